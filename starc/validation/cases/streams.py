"""``h200_read.csv``, ``h200_read_l2.csv`` and ``h200_copy.csv``: streams over the whole GPU.

``read`` and ``copy`` take buffers in turn that together do not fit the L2; ``read_l2`` reads one
buffer again and again, so that what fits the L2 stays there. Copies of 512 MiB and more are shown
only: they are a library's, which takes another way for them. A copy is simulated behind another
one, which leaves the L2 dirty, and a ``read_l2`` behind one of the same bytes.

Fitted are the rows of 64 MiB and of 256 MiB. All others are tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from starc.simulator.run import simulate as run
from starc.validation.columns import Column, cases_of, time_column
from starc.validation.context import Context
from starc.validation.rows import Case, Role, Work
from starc.validation.streams import stream

MIB: Final = 1 << 20
KINDS: Final[Mapping[str, str]] = {
    "h200_read.csv": "read",
    "h200_read_l2.csv": "read_l2",
    "h200_copy.csv": "copy",
}
COLUMNS: Final = (Column("bytes"), time_column())
MARGINS: Final[Mapping[str, float]] = {kind: 0.08 for kind in KINDS.values()}
CONSTANTS: Final = (
    "kernels.stream.prologue",
    "kernels.stream.copy_prologue",
    "memory.turnaround",
)
FITTED: Final = (64 * MIB, 256 * MIB)
LIBRARY: Final = 512 * MIB


def read(path: Path) -> list[Case]:
    """The cases of a file."""
    return cases_of(path, KINDS[path.name], COLUMNS)


def role(case: Case) -> Role:
    """64 and 256 MiB are fitted; long copies are shown."""
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
    target = replace(target, vector_latency_ps=round(constants["use"]), window_bytes_per_cu=1 << 20)
    program = stream(
        target,
        size=size,
        blocks=blocks,
        threads=threads,
        unroll=unroll,
        copy=case.kind == "copy",
        launches=2 if case.kind == "read_l2" else 1,
        prologue_ps=round(constants["copy_prologue" if case.kind == "copy" else "prologue"]),
        before=2 * target.l2_bytes_per_die if case.kind == "copy" else 0,
    )
    launches = list(run(program).launches)
    before = launches[-2].end_ps if len(launches) > 1 else 0
    return (launches[-1].end_ps - before) * 1e-6
