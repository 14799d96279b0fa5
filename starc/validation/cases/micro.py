"""``h200_micro.csv``, ``h200_launch_graph.csv`` and ``h200_launch_eager.csv``.

Latencies, the clock and empty kernels are inputs of the model: they are shown beside what it makes
of them. Read rates by number of blocks, threads and loads, and re-reads by footprint, are tests of
windows, queues at channels, and the L2; the rows of one block are fitted.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from starc.diagnostics import Diagnostic, InputError, Location
from starc.simulator.run import simulate as run
from starc.targets.target import Target
from starc.validation.columns import Column, cases_of, read_table, time_column
from starc.validation.context import Context
from starc.validation.registry import what_of
from starc.validation.rows import Case, Role, Work
from starc.validation.streams import chase, stream

KIB: Final = 1 << 10
MIB: Final = 1 << 20
RATES: Final[Mapping[str, tuple[int, int]]] = {
    f"read_gbps_u{unroll}_t{threads}": (unroll, threads)
    for unroll in (1, 4, 8)
    for threads in (256, 1024)
}
INPUTS: Final = (
    "clock_max",
    "chase_ns",
    "chase_cycles",
    "chase_l1_cycles",
    "empty_kernel_back_to_back",
    "empty_kernel_in_graph",
)
KINDS: Final = (*INPUTS, *RATES, "reread_gbps")
COLUMNS: Final = (
    Column("kind", "text", choices=KINDS),
    Column("a", optional=True),
    Column("b", optional=True),
    Column("value", "float", least=0),
    Column("unit", "text"),
)
MARGINS: Final[Mapping[str, float]] = {"micro": 0.1}
CONSTANTS: Final = ("kernels.stream.use", "kernels.stream.loads")
NEEDS: Final = ("kernels.stream",)
BATCHES: Final = 48  # of loads of a group of threads, between which a rate is taken


def read(path: Path) -> list[Case]:
    """The cases of a file. Raises ``InputError`` where a kind that has a parameter lacks it."""
    if what_of(path.name) != "micro":
        return cases_of(path, "launch", (time_column(),))
    cases: list[Case] = []
    problems: list[Diagnostic] = []
    for record in read_table(path, COLUMNS):
        cells = record.cells
        kind = str(cells["kind"])
        if "a" not in cells and kind not in ("clock_max", *INPUTS[-2:]):
            place = Location(str(path), record.line, 1)
            problems.append(Diagnostic(f"column a: '{kind}' needs a whole number", place))
        parameters = {key: cells[key] for key in ("kind", "a", "b") if key in cells}
        value, unit = float(cells["value"]), str(cells["unit"])
        cases.append(Case(path.name, "micro", parameters, value, unit, record.line))
    if problems:
        raise InputError(problems)
    return cases


def _kind(case: Case) -> str:
    return case.text("kind") if case.kind == "micro" else what_of(case.file)


def role(case: Case) -> Role:
    """Latencies and launches are inputs; rates of one block are fitted. There is no L1: its latency
    is shown."""
    kind = _kind(case)
    if kind == "chase_l1_cycles":
        return "shown"
    if kind not in RATES and kind != "reread_gbps":
        return "input"
    return "fitted" if kind in RATES and case.integer("a") == 1 else "test"


def group(case: Case) -> str:
    """By what is varied."""
    kind = _kind(case)
    return "read by blocks" if kind in RATES else kind


def key(case: Case) -> Hashable:
    """Kind and parameters."""
    return (_kind(case), *case.parameters.values())


def work(case: Case) -> Work | None:
    """A rate is no time: rooflines have nothing to say."""
    return None


def simulate(case: Case, context: Context) -> float:
    """The value in the unit of the row."""
    kind = _kind(case)
    target = context.machine("h200")
    match kind:
        case "clock_max":
            return target.core_clock_mhz * 1e3
        case "chase_ns":
            return _latency(target, case.integer("a") * KIB) * 1e-3
        case "chase_cycles" | "chase_l1_cycles":
            return _latency(target, case.integer("a") * KIB) / float(target.cycle_ps)
        case "empty_kernel_in_graph" | "launch_graph":
            return target.kernel_gap_ps * 1e-6
        case "empty_kernel_back_to_back" | "launch_eager":
            return target.kernel_issue_ps * 1e-6
        case "reread_gbps":
            return _reread(target, case.integer("a") * MIB)
        case _:
            unroll, threads = RATES[kind]
            return _rate(target, case.integer("a"), threads, unroll)


def _latency(target: Target, size: int) -> float:
    """Picoseconds of a dependent load of a footprint, after all its lines have been there once. A
    footprint of more than a few times the L2 is as good as any larger one."""
    size = min(size, 4 * target.l2_bytes_per_die)
    lines = max(1, size // 4096)
    first, both = (run(chase(target, size=size, loads=n * lines)).time_ps for n in (1, 2))
    return (both - first) / lines - target.vector_latency_ps


def _stream_target(target: Target) -> Target:
    constants = target.kernels["stream"]
    return replace(target, vector_latency_ps=round(constants["use"]), window_bytes_per_cu=MIB)


def _rate(target: Target, blocks: int, threads: int, unroll: int) -> float:
    """GB/s of so many blocks, without beginning and end."""
    loads = min(unroll, round(target.kernels["stream"]["loads"]))
    batch = blocks * threads * 16 * loads
    machine = _stream_target(target)
    sizes = (batch * BATCHES // 2, batch * BATCHES)
    half, whole = (
        run(stream(machine, size=size, blocks=blocks, threads=threads, unroll=loads)).time_ps
        for size in sizes
    )
    return (sizes[1] - sizes[0]) / (whole - half) * 1e3


def _reread(target: Target, size: int) -> float:
    """GB/s of a kernel that reads a buffer again, launched one by one: no faster than the host
    issues kernels."""
    loads = round(target.kernels["stream"]["loads"])
    program = stream(
        _stream_target(target),
        size=size,
        blocks=target.cus_per_die * 8,
        threads=256,
        unroll=loads,
        launches=2,
        prologue_ps=round(target.kernels["stream"]["prologue"]),
    )
    launches = list(run(program).launches)
    time = launches[-1].end_ps - launches[-2].end_ps
    return size / max(time, target.kernel_issue_ps) * 1e3
