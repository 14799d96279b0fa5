"""What the engines of a device did in each kernel of a layer, where kernels have a stream for each:
the figures of the report, and their table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from rich.markup import escape

from starc.backend.program import Engine, LayerInfo, Program
from starc.report.model import EngineUse, KernelEngines
from starc.report.tables import Column, FittedTable
from starc.simulator.results.result import SimulationResult
from starc.simulator.state import engine_counts as ec
from starc.targets.target import Target
from starc.units import microseconds

_US: Final = 1e-6  # of a picosecond
_COLUMNS: Final = (
    Column("kernel", "left"),
    Column("CPU"),
    Column("waits"),
    Column("sched", rank=5),
    Column("DMA"),
    Column("GEMM"),
    Column("bubbles", rank=2, key="bubbles of GEMM"),
    Column("MATH"),
    Column("bubbles", rank=3, key="bubbles of MATH"),
    Column("commands", rank=1),
    Column("puts", rank=4),
)


def engine_reports(
    program: Program, target: Target, result: SimulationResult | None, kind: LayerInfo
) -> list[KernelEngines]:
    """The engines in the kernels of a layer kind; empty where no kernel has streams of them."""
    if result is None or not len(result.engine_counts):
        return []
    rows = range(kind.first_launch, kind.first_launch + kind.launches)
    return [
        kernel_engines(
            program.launch_names[launch],
            target,
            result.engine_counts[launch],
            result.ends[launch] - result.starts[launch],
        )
        for launch in rows
    ]


def kernel_engines(name: str, target: Target, counts: Any, times: Any) -> KernelEngines:
    """The engines in one launch: ``counts`` of its devices, and its times on them."""
    total = counts.sum(axis=0)
    return KernelEngines(
        name=name,
        engines={
            engine.name.lower(): _use(counts[:, engine * ec.PER_ENGINE :], times)
            for engine in Engine
        },
        commands=_named(ec.COMMAND_NAMES, total[ec.COMMANDS :]),
        moves=_named(ec.MOVE_NAMES, total[ec.MOVES :]),
        messages=_named(message_classes(target), total[ec.MESSAGES :]),
    )


def message_classes(target: Target) -> tuple[str, str, str]:
    """What the target calls the links between devices of a carrier or cube, of a GPU, of a node."""
    classes = target.carrier_links_by_class
    return "die" if target.has_l2 else classes[0], classes[-1], target.gpu_link


def _named(names: Sequence[str], values: Any) -> dict[str, int]:
    return dict(zip(names, values[: len(names)].tolist(), strict=True))


def _use(counts: Any, times: Any) -> EngineUse:
    busy, first, last = (counts[:, kind] for kind in (ec.BUSY, ec.FIRST, ec.LAST))
    spans = np.where(first >= 0, last - first, 0)

    def mean(values: Any) -> float:
        return float(values.mean()) * _US

    return EngineUse(
        busy_us=mean(busy),
        idle_us=mean(times - busy),
        bubbles_us=mean(np.maximum(spans - busy, 0)),
        bubbles=int(counts[:, ec.GAPS].sum()),
        held_us=mean(counts[:, ec.HELD]),
        awaited_us=mean(counts[:, ec.AWAITED]),
        instructions=int(counts[:, ec.INSTRUCTIONS].sum()),
    )


def engines_table(kernels: Iterable[KernelEngines], layer: str) -> FittedTable:
    """A row a kernel: shares of its time that engines work, and what the CPU issued and waited."""
    table = FittedTable(_COLUMNS)
    for kernel in kernels:
        use = kernel.engines
        cpu, gemm, math = use["cpu"], use["gemm"], use["math"]
        time = cpu.busy_us + cpu.idle_us

        def share(value: float, time: float = time) -> str:
            return f"{100 * value / time:.0f} %" if time else ""

        def bubbles(engine: EngineUse) -> str:
            return microseconds(engine.bubbles_us) if engine.busy_us else ""

        table.add_row(
            escape(kernel.name.removeprefix(f"{layer}.")),
            share(cpu.busy_us),
            share(cpu.held_us + cpu.awaited_us),
            share(use["scheduler"].busy_us),
            share(use["dma"].busy_us),
            share(gemm.busy_us),
            bubbles(gemm),
            share(math.busy_us),
            bubbles(math),
            f"{sum(kernel.commands.values()):,}",
            f"{sum(kernel.messages.values()):,}",
        )
    return table
