"""``h200_read.csv``, ``h200_read_l2.csv`` and ``h200_copy.csv``: streams over the whole GPU.

``read`` and ``copy`` take several sets of buffers in turn, ``read_l2`` reads one buffer again and
again. Where all sets fit the L2 together a launch is simulated behind one over the same bytes;
otherwise a copy behind another one, which leaves the L2 dirty. Copies of 512 MiB and more are shown
only: they are a library's, which takes another way for them (measured here: 384 and 768 MiB at
4.2 TB/s, 512 MiB and 1 GiB at 2.7 in a graph and at 4.2 without one).

Fitted are the rows of 1 MiB, which tell how many sets there are, of 64 MiB and of 256 MiB. All
others are tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from starc.simulator.run import simulate as run
from starc.validation.columns import Column, cases_of, time_column
from starc.validation.context import Context
from starc.validation.registry import what_of
from starc.validation.rows import Case, Role, Work
from starc.validation.streams import stream

MIB: Final = 1 << 20
KINDS: Final = ("read", "read_l2", "copy")
NEEDS: Final = ("kernels.stream",)
COLUMNS: Final = (Column("bytes"), time_column())
MARGINS: Final[Mapping[str, float]] = {kind: 0.08 for kind in KINDS}
CONSTANTS: Final = (
    "kernels.stream.prologue",
    "kernels.stream.copy_prologue",
    "kernels.stream.sets",
    "memory.turnaround",
)
FITTED: Final = (MIB, 64 * MIB, 256 * MIB)
LIBRARY: Final = 512 * MIB


def read(path: Path) -> list[Case]:
    """The cases of a file."""
    return cases_of(path, what_of(path.name), COLUMNS)


def role(case: Case) -> Role:
    """1, 64 and 256 MiB are fitted; long copies are shown."""
    size = case.integer("bytes")
    if case.kind == "copy" and size >= LIBRARY:
        return "shown"
    return "fitted" if size in FITTED else "test"


def work(case: Case) -> Work:
    """Bytes read and written."""
    size = case.integer("bytes")
    return Work(size * (2.0 if case.kind == "copy" else 1.0))


def effort(case: Case) -> float:
    """Bytes."""
    return float(case.integer("bytes"))


def simulate(case: Case, context: Context) -> float:
    """Microseconds of the kernel in a graph."""
    size = case.integer("bytes")
    target = context.machine("h200")
    constants = target.kernels["stream"]
    threads, unroll = 256, round(constants["loads"])
    most = target.cus_per_die * 8
    blocks = max(1, min(most, size // (threads * 16 * unroll)))
    copies = case.kind == "copy"
    rotation = size * (2 if copies else 1) * round(constants["sets"])
    warm = case.kind == "read_l2" or rotation <= target.l2_bytes_per_die
    target = replace(target, vector_latency_ps=round(constants["use"]), window_bytes_per_cu=1 << 20)
    program = stream(
        target,
        size=size,
        blocks=blocks,
        threads=threads,
        unroll=unroll,
        copy=copies,
        launches=2 if warm else 1,
        prologue_ps=round(constants["copy_prologue" if copies else "prologue"]),
        before=2 * target.l2_bytes_per_die if copies and not warm else 0,
    )
    launches = list(run(program).launches)
    before = launches[-2].end_ps if len(launches) > 1 else 0
    return (launches[-1].end_ps - before) * 1e-6
