"""How fast the event loop is by itself, and that it is linear: ``python benchmarks/events.py``.

Every workgroup of a node streams its own part of memory, from starts that are staggered, in SPX
with NPS1 and in CPX with NPS4. Each size runs in a process of its own, which is measured in seconds
of the processor, so that a busy machine shows little; the least of some runs counts. Rates are
between a size and the one before it: what a run costs before its first event is in neither. The
last line of a mode says how far seconds and memory are from a straight line in the requests.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

MODES: Final = ("spx-nps1", "cpx-nps4")
TILES: Final = (8, 32, 64, 128)
"""Tiles of 16 KiB that each of the 9728 workgroups of a node reads, four of them on a compute unit:
a tile is four requests, or two where two granules on the stacks of a carrier are one."""
ROWS: Final = 64
COLUMNS: Final = 128
SLOTS: Final = 4
RESIDENT: Final = 4


@dataclass(frozen=True)
class Point:
    """What one size took. Memory is the peak of the process in bytes."""

    tiles: int
    requests: int
    events: int
    seconds: float
    peak_bytes: int
    time_us: float


def run(mode: str, tiles: int, gpus: int) -> Point:
    """Simulates one size in this process."""
    from starc.backend.assembly import ProgramAssembler
    from starc.backend.program import Role
    from starc.backend.template import WORKGROUP
    from starc.core.element_types import ElementType
    from starc.simulator.options import SimulationOptions
    from starc.simulator.run import simulate
    from starc.targets.loader import load_target

    target = load_target(f"mi300x-{mode}", gpus)
    workgroups = target.cus_per_die * target.dies_per_device * RESIDENT

    def program(tiles: int) -> Any:
        mesh = tuple((axis, size) for axis, size, _, _ in target.mesh)
        p = ProgramAssembler("read", target.to_dict(), mesh)
        shape = (workgroups * tiles * ROWS, COLUMNS)
        x = p.buffer("x", shape, ElementType.BF16, block=(16, COLUMNS), role=Role.INPUT)
        t = p.template("read")
        tile = t.tile(ROWS, COLUMNS, ElementType.BF16, slots=SLOTS, depth=1)
        with t.loop(0, tiles) as i:
            t.load(tile, x, ((WORKGROUP * tiles + i) * ROWS, 0))
            t.vector("zero", [tile], stage=SLOTS - 1)
        p.layer("read")
        p.launch("read", [(p.add(t, waves=4), workgroups)])
        return p.finish()

    options = SimulationOptions(target=target, full_node=True)
    simulate(program(1), options)  # compiles the loop, or loads it
    built = program(tiles)
    started = time.process_time()
    result = simulate(built, options)
    seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts kilobytes, macOS bytes.
    peak *= 1 if sys.platform == "darwin" else 1024
    return Point(tiles, result.requests, result.events, seconds, peak, result.time_ps / 1e6)


def measure(mode: str, tiles: int, gpus: int, repeat: int) -> Point:
    """The least of some runs, each in a process of its own."""
    best: Point | None = None
    command = [sys.executable, __file__, "--gpus", str(gpus), "--one", mode, str(tiles)]
    for _ in range(repeat):
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        point = Point(**json.loads(text))
        if best is None or point.seconds < best.seconds:
            best = point
    assert best is not None
    return best


def print_mode(mode: str, points: list[Point]) -> None:
    """One line a size, and how straight the line through them is."""
    before: Point | None = None
    rates: list[float] = []
    for point in points:
        rate = ""
        if before is not None:
            seconds = point.seconds - before.seconds
            events, requests = point.events - before.events, point.requests - before.requests
            rates.append(seconds / requests)
            rate = f"{events / seconds / 1e6:8.1f} {requests / seconds / 1e6:8.2f}"
        print(
            f"{mode:9s} {point.requests:10,d} {point.events:11,d} {point.seconds:8.2f} "
            f"{point.peak_bytes / 1e6:8.0f} {point.time_us:9.1f} {rate}"
        )
        before = point
    first, last = points[0], points[-1]
    print(
        f"{mode:9s} requests x{last.requests / first.requests:.0f}: "
        f"seconds a request +-{100 * (max(rates) / min(rates) - 1) / 2:.0f} %, "
        f"memory +{(last.peak_bytes - first.peak_bytes) / 1e6:.0f} MB"
    )


def main() -> None:
    """Measures the chosen modes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of the node (default: 8)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of a size (default: 3)")
    parser.add_argument("--only", metavar="MODE", default="", help="modes whose name has MODE")
    parser.add_argument("--one", nargs=2, metavar=("MODE", "TILES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        point = run(options.one[0], int(options.one[1]), options.gpus)
        print(json.dumps(vars(point)))
        return
    print(
        f"{'mode':9s} {'requests':>10s} {'events':>11s} {'seconds':>8s} {'peak MB':>8s} "
        f"{'node us':>9s} {'M ev/s':>8s} {'M req/s':>8s}"
    )
    for mode in MODES:
        if options.only in mode:
            print_mode(mode, [measure(mode, n, options.gpus, options.repeat) for n in TILES])


if __name__ == "__main__":
    main()
