"""How fast the compiler and the simulator are: ``python benchmarks/speed.py``.

Every case runs ``starc compile`` in a process of its own, from a warm cache of compiled code, so
that the seconds include the start. Prints a table and writes JSON; with ``--baseline FILE`` it
adds the ratio to an earlier run and ends with 1 where something takes more than 1.3 times as long.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SLOWER = 1.3


@dataclass(frozen=True)
class Case:
    """A compilation to measure."""

    name: str
    words: tuple[str, ...]
    target: str = "mi300x-cpx"


_NAIVE = ("--strategy", "naive")
_DECODE = ("--phase", "decode", "--batch", "8", "--context", "128k")
_PROMPT = ("--phase", "prefill", "--batch", "1", "--prompt")

CASES = (
    Case("8b decode", ("llama3-8b", "--gpus", "4", "--batch", "16", "--context", "8k", *_NAIVE)),
    Case("8b prefill", ("llama3-8b", "--gpus", "4", *_PROMPT, "2k", *_NAIVE)),
    Case("70b decode", ("llama3-70b", "--batch", "8", "--context", "16k", *_NAIVE)),
    Case("70b prefill", ("llama3-70b", *_PROMPT, "8k", *_NAIVE)),
    Case("405b decode", ("llama3-405b", *_DECODE, *_NAIVE)),
    Case("405b decode node", ("llama3-405b", *_DECODE, *_NAIVE, "--full-node")),
    Case(
        "8b decode spx",
        ("llama3-8b", "--gpus", "2", "--batch", "16", "--context", "8k", *_NAIVE),
        target="mi300x-spx",
    ),
    Case("405b prefill", ("llama3-405b", *_PROMPT, "2k", *_NAIVE)),
    Case("70b decode 2d", ("llama3-70b", "--batch", "8", "--context", "16k")),
    Case("70b prefill 2d", ("llama3-70b", *_PROMPT, "2k")),
    Case("405b decode 2d", ("llama3-405b", *_DECODE)),
    Case("70b decode ahbm", ("llama3-70b", "--phase", "decode"), target="ahbm"),
)
"""The naive plan, and the plan of two levels (2d), also on 512 PEs of memory cubes (ahbm).
Where GPUs are the same by rotation one of them is simulated; ``node`` simulates all. Requests and
events are those of the node in any case."""


@dataclass(frozen=True)
class Measurement:
    """What one case took. Memory is the peak of the process in bytes."""

    name: str
    seconds: float
    compile_s: float
    simulate_s: float
    requests: int
    events: int
    requests_per_s: float
    events_per_s: float
    peak_bytes: int
    layer_us: float


def measure(case: Case) -> Measurement:
    """Runs a case."""
    model, *words = case.words
    command = [
        sys.executable, "-m", "starc.cli", "compile", str(ROOT / "examples" / f"{model}.sa"),
        *words, "--target", case.target, "--ignore-capacity", "--format", "json",
    ]  # fmt: skip
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, text=True
    )
    assert process.stdout is not None
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        raise SystemExit(f"{case.name}: ends with {os.waitstatus_to_exitcode(status)}")
    report: dict[str, Any] = json.loads(text)
    engine = report["engine"]
    return Measurement(
        name=case.name,
        seconds=seconds,
        compile_s=engine["compile_s"],
        simulate_s=engine["wall_s"],
        requests=engine["requests"],
        events=engine["events"],
        requests_per_s=engine["requests"] / engine["wall_s"],
        events_per_s=engine["events"] / engine["wall_s"],
        peak_bytes=_peak_bytes(usage),
        layer_us=report["layer"]["time_us"],
    )


def _peak_bytes(usage: resource.struct_rusage) -> int:
    # Linux counts kilobytes, macOS bytes.
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def print_table(rows: list[Measurement], baseline: dict[str, float]) -> None:
    """One line a case."""
    print(
        f"{'case':16s} {'seconds':>8s} {'compile':>8s} {'simulate':>9s} {'requests':>10s} "
        f"{'M req/s':>8s} {'M ev/s':>8s} {'peak MB':>8s} {'layer':>10s} {'ratio':>6s}"
    )
    for row in rows:
        ratio = f"{row.seconds / baseline[row.name]:.2f}" if row.name in baseline else ""
        print(
            f"{row.name:16s} {row.seconds:8.2f} {row.compile_s:8.2f} {row.simulate_s:9.2f} "
            f"{row.requests:10,d} {row.requests_per_s / 1e6:8.2f} {row.events_per_s / 1e6:8.2f} "
            f"{row.peak_bytes / 1e6:8.0f} {row.layer_us:8.1f}us {ratio:>6s}"
        )


def main() -> None:
    """Measures the chosen cases."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--only", metavar="TEXT", default="", help="cases whose name has TEXT")
    parser.add_argument("--output", metavar="FILE", help="write the measurements as JSON")
    parser.add_argument(
        "--baseline",
        metavar="FILE",
        default=str(Path(__file__).with_name("baseline.json")),
        help="measurements to compare with (default: benchmarks/baseline.json)",
    )
    options = parser.parse_args()
    baseline: dict[str, float] = {}
    if Path(options.baseline).exists():
        stored = json.loads(Path(options.baseline).read_text())
        baseline = {row["name"]: row["seconds"] for row in stored}
    # The first run of all compiles the event core.
    measure(Case("warm up", ("tiny", "--gpus", "1")))
    rows = [measure(case) for case in CASES if options.only in case.name]
    print_table(rows, baseline)
    if options.output:
        text = json.dumps([asdict(row) for row in rows], indent=2) + "\n"
        Path(options.output).write_text(text)
    slower = [row.name for row in rows if row.seconds > SLOWER * baseline.get(row.name, 1e9)]
    if slower:
        raise SystemExit(f"slower than {SLOWER} times the baseline: {', '.join(slower)}")


if __name__ == "__main__":
    main()
