"""The table of the kernels of a layer in the text report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Group
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from starc.report.model import KernelReport, Report
from starc.report.tables import Column, FittedTable
from starc.units import microseconds, three_digits

SHARE_BAR: Final = 12
"""Cells of a bar that shows a share of the time."""
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(share: float, cells: int) -> str:
    """A horizontal bar with a resolution of an eighth of a cell."""
    eighths = round(max(0.0, min(share, 1.0)) * cells * 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def short_name(name: str, report: Report) -> str:
    """A kernel's name without its layer's, which the title says."""
    return escape(name.removeprefix(f"{report.layer.kind}."))


def kernels_table(report: Report) -> Padding:
    kernels, layer_us = report.kernels, report.layer.time_us
    table = FittedTable(
        [
            Column("kernel", "left"),
            Column("kind", "left", rank=1),
            Column("time"),
            Column("share"),
            Column("", "left", rank=5),
            Column("TFLOP/s", rank=2),
            Column("GB/s", rank=3),
            Column("FLOP/B", rank=4),
            Column("bound by", "left"),
        ]
    )
    for kernel in kernels:
        share = kernel.time_us / layer_us if kernel.time_us and layer_us else 0.0
        seconds = (kernel.time_us or 0.0) * 1e-6
        table.add_row(
            short_name(kernel.name, report),
            kernel.kind if kernel.kind == kernel.group else f"{kernel.kind} {kernel.group}",
            microseconds(kernel.time_us),
            f"{100 * share:.1f} %",
            Text(bar(share, SHARE_BAR), style="cyan"),
            three_digits(kernel.flops / seconds / 1e12) if seconds and kernel.flops else "",
            three_digits(kernel.bytes / seconds / 1e9) if seconds and kernel.bytes else "",
            three_digits(kernel.intensity) if kernel.flops else "",
            kernel.bound_by or "",
        )
    if layer_us:
        _add_gaps(table, layer_us, kernels)
    notes = map(Text.from_markup, _kernel_notes(report))
    return Padding(Group(table, *notes), (0, 0, 0, 2))


def _add_gaps(table: FittedTable, layer_us: float, kernels: Sequence[KernelReport]) -> None:
    """The row of the time between kernels, where that is not next to nothing."""
    gaps = layer_us - sum(kernel.time_us or 0.0 for kernel in kernels)
    if gaps > 0.0005 * layer_us:
        table.add_row(
            "[dim](between kernels)[/]",
            "",
            microseconds(gaps),
            f"{100 * gaps / layer_us:.1f} %",
            Text(bar(gaps / layer_us, SHARE_BAR), style="dim"),
        )


def _kernel_notes(report: Report) -> list[str]:
    """What fused kernels are made of, and attention kernels that pass over their keys again."""
    notes = [
        f"[dim]{short_name(kernel.name, report)} = {', '.join(kernel.operations)}[/]"
        for kernel in report.kernels
        if kernel.operations
    ]
    notes += [
        f"[dim]{short_name(kernel.name, report)}: {_passes(kernel.shape['passes'])} over its keys, "
        "one for each sequence and KV head of a device[/]"
        for kernel in report.kernels
        if kernel.shape.get("passes", 1) > 1
    ]
    return notes


def _passes(number: int) -> str:
    return "two passes" if number == 2 else f"{number} passes"
