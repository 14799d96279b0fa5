"""Several reports side by side."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from starc.report.model import Report
from starc.report.text import WIDTH
from starc.report.units import microseconds, scaled, size, three_digits, tokens


@dataclass(frozen=True)
class Refused:
    """A configuration that the model cannot be compiled for, and the reasons."""

    target: str
    strategy: str
    refused: tuple[str, ...]


def comparison_text(
    reports: Sequence[Report], refused: Sequence[Refused] = (), *, color: bool = False
) -> str:
    """A table with a row a report; ratios are speed-ups over the first row that has a time.
    What was refused is listed below with the reasons."""
    first = next((report for report in reports if report.layer.time_us is not None), reports[0])
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name, left in (
        ("target", True),
        ("strategy", True),
        ("devices", False),
        ("layer", False),
        ("ratio", False),
        ("model", False),
        ("tokens/s", False),
        ("memory", False),
        ("KV copies", False),
        ("bound by", True),
    ):
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for report in reports:
        memory = report.memory
        row = [
            escape(report.target),
            escape(report.strategy),
            f"{report.devices}",
        ]
        if report.layer.time_us is None:
            row += ["[red]OOM[/]", "-", "-", "-"]
        else:
            ratio = (first.layer.time_us or 0.0) / report.layer.time_us
            row += [
                microseconds(report.layer.time_us),
                f"{ratio:.2f}" if first.layer.time_us else "-",
                microseconds(report.whole_model.time_us),
                scaled(report.whole_model.tokens_per_s or 0.0, "").strip(),
            ]
        row += [
            f"{size(memory.peak_bytes)}",
            three_digits(memory.kv_replication),
            report.layer.bound_by or "-",
        ]
        table.add_row(*row)
    console = Console(
        file=io.StringIO(),
        width=WIDTH,
        force_terminal=color,
        color_system="auto" if color else None,
        highlight=False,
    )
    with console.capture() as capture:
        console.print(
            f"[bold]{escape(first.model)}[/]: {first.phase}, batch {first.batch}, "
            f"context {tokens(first.context)}\n"
        )
        console.print(table)
        oom = [report for report in reports if not report.memory.fits]
        if refused or oom:
            console.print()
        for entry in refused:
            reasons = escape("; ".join(entry.refused))
            console.print(f"[red]{escape(entry.target)}, {entry.strategy}: refused[/], {reasons}")
        for report in oom:
            console.print(
                f"[dim]{escape(report.target)}, {report.strategy}: needs "
                f"{size(report.memory.peak_bytes)} of {size(report.memory.usable_bytes)} a "
                f"partition; batch {report.memory.max_batch} would fit[/]"
                if report.memory.max_batch
                else f"[dim]{escape(report.target)}, {report.strategy}: no batch fits[/]"
            )
    return "\n".join(line.rstrip() for line in capture.get().split("\n"))


def comparison_json(reports: Sequence[Report], refused: Sequence[Refused] = ()) -> str:
    """The reports as a JSON list, and after them what was refused."""
    rows = [report.to_json() for report in reports] + [asdict(entry) for entry in refused]
    return json.dumps(rows, indent=2, allow_nan=False) + "\n"
