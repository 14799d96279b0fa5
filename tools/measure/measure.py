"""Measures a GPU for the simulator: writes the CSV files that it is validated and fitted with.

See ``--help`` and docs/measuring.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kinds import KINDS
from kinds.kind import Extent, Kind
from table import Results

EPILOG = """\
examples:
  everything, one GPU idle otherwise:  python tools/measure/measure.py --out measured
  does it run here at all (a minute):  python tools/measure/measure.py --out try --quick
  two kinds only:                      python tools/measure/measure.py --out m --only gemm,micro
  at most five minutes:                python tools/measure/measure.py --out m --seconds 300
  other sizes, to test a fit with:     python tools/measure/measure.py --out m2 --wide
  what would be measured:              python tools/measure/measure.py --dry-run

files: DIR/<device>_<what>.csv with a header line, times in microseconds of one launch (median), and
DIR/<device>_metadata.json (device, driver, versions, date, what was left out and why).
Then: starc validate --data DIR, starc calibrate DIR -o mine.toml
"""


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    lines = [f"  {kind.name:<25} {kind.about}" for kind in KINDS.values()]
    parser = argparse.ArgumentParser(
        prog="measure.py",
        description="Measures kernels, memory, launches and collectives of a CUDA or ROCm GPU and\n"
        "writes CSV files. Needs PyTorch and Triton; two GPUs for the last three kinds.\n\n"
        "kinds:\n" + "\n".join(lines),
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the files go (made)")
    parser.add_argument("--only", metavar="KINDS", default="", help="these kinds: gemm,micro")
    parser.add_argument("--skip", metavar="KINDS", default="", help="all but these kinds")
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--quick", action="store_true", help="one or two cases of every kind")
    extent.add_argument("--wide", action="store_true", help="other sizes than the usual ones")
    parser.add_argument(
        "--seconds", type=float, metavar="S",
        help="end after so long: every kind gets its share, what is left out is listed",
    )  # fmt: skip
    parser.add_argument("--device", type=int, default=0, metavar="N", help="GPU (default: 0)")
    parser.add_argument("--prefix", metavar="NAME", help="of the files (default: the device's)")
    parser.add_argument("--dry-run", action="store_true", help="list the cases, measure nothing")
    options = parser.parse_args(words)
    options.kinds = chosen(parser, options.only, options.skip)
    if options.seconds is not None and not 0 < options.seconds < float("inf"):
        parser.error(f"--seconds must be above 0, not {options.seconds:g}")
    if options.out is None and not options.dry_run:
        parser.error("--out DIR is needed: where the files go")
    return options


def chosen(parser: argparse.ArgumentParser, only: str, skip: str) -> list[Kind]:
    """The kinds that were asked for, in the table's order."""
    named = [[word for word in text.split(",") if word] for text in (only, skip)]
    unknown = [word for words in named for word in words if word not in KINDS]
    if unknown:
        parser.error(f"unknown kinds {', '.join(unknown)}\n  choose from: {', '.join(KINDS)}")
    return [
        kind
        for kind in KINDS.values()
        if kind.name not in named[1] and (kind.name in named[0] or not named[0])
    ]


def extent_of(options: argparse.Namespace) -> Extent:
    """How many cases."""
    return "quick" if options.quick else "wide" if options.wide else "default"


def dry_summary(kinds: Sequence[Kind], extent: Extent) -> str:
    """How many cases of each kind would be measured."""
    counts = {kind.name: len(kind.cases(extent)) for kind in kinds}
    each = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f"{sum(counts.values())} cases: {each}"


def run_kinds(
    device: Any,
    kinds: Sequence[Kind],
    extent: Extent,
    results: Results,
    *,
    seconds: float | None = None,
    say: Callable[[str], None] = lambda line: None,
    now: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Measures every case of every kind and returns what was left out, with reasons.

    With ``seconds`` each kind ends when its share of what is left is spent; what it does not use
    is left to the kinds after it. A case that fails is reported and left out; the others go on.
    """
    start = now()
    left_out: list[str] = []
    for index, kind in enumerate(kinds):
        cases = kind.cases(extent)
        begun = now()
        end = None
        if seconds is not None:
            rest = max(0.0, start + seconds - begun)
            end = begun + rest * kind.share / sum(each.share for each in kinds[index:])
        for number, case in enumerate(cases):
            if end is not None and now() > end:
                left_out.append(f"{kind.name}: {len(cases) - number} of {len(cases)} cases, time")
                break
            label = " ".join(f"{key}={value}" for key, value in case.items())
            try:
                for file, row in kind.run(device, case):
                    results.add(file, row)
                    measured = row.get("us", row.get("value"))
                    say(f"{kind.name} {number + 1}/{len(cases)} {label}: {measured}")
            except Exception as error:
                left_out.append(f"{kind.name} {label}: {type(error).__name__}: {error}"[:500])
                say(f"{kind.name} {number + 1}/{len(cases)} {label} failed: {left_out[-1]}")
            device.forget()
        say(f"== {kind.name}: {len(cases)} cases in {now() - begun:.1f} s")
    return left_out


def main(words: Sequence[str] | None = None) -> int:
    """Runs the tool; the exit code is 1 when nothing was measured."""
    options = parse(words)
    extent = extent_of(options)
    if options.dry_run:
        for kind in options.kinds:
            for case in kind.cases(extent):
                print(kind.name, " ".join(f"{key}={value}" for key, value in case.items()))
        print(dry_summary(options.kinds, extent))
        return 0
    if lacking := [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]:
        print(
            "measure: error: needs PyTorch and Triton, and this Python has no "
            + " and no ".join(lacking),
            file=sys.stderr,
        )
        return 1
    from device import Device

    device = Device(options.device)
    options.out.mkdir(parents=True, exist_ok=True)
    count = device.torch.cuda.device_count()
    kinds = [kind for kind in options.kinds if kind.gpus <= count]
    left_out = [
        f"{kind.name}: needs {kind.gpus} GPUs, there is {count}"
        for kind in options.kinds
        if kind.gpus > count
    ]
    several = any(kind.gpus > 1 for kind in kinds) and all(kind.gpus > 1 for kind in kinds)
    prefix = options.prefix or (f"{device.prefix}x{count}" if several else device.prefix)
    files = {name: columns for kind in kinds for name, columns in kind.files.items()}
    results = Results(options.out, prefix, files)
    facts = dict(device.facts())
    left_out += run_kinds(
        device, kinds, extent, results, seconds=options.seconds,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )  # fmt: skip
    facts |= {
        "clock_mhz_at_end": device.reading("clock_rate"),
        "extent": extent,
        "rows": results.counts(),
        "left_out": left_out,
        "method": "medians of event times around graphs of launches, random data, buffers in "
        "rotation over three caches' worth; see docs/measuring.md",
    }
    metadata = options.out / f"{prefix}_metadata.json"
    metadata.write_text(json.dumps(facts, indent=2) + "\n")
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)
    print(f"{sum(results.counts().values())} rows in {options.out}", file=sys.stderr)
    return 0 if results.counts() else 1


if __name__ == "__main__":
    raise SystemExit(main())
