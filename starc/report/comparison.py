"""Several reports side by side: times by kind of kernel, then memory and traffic."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from rich.console import Console
from rich.markup import escape

from starc.report.formats import OutputFormat
from starc.report.model import Report
from starc.report.tables import Column, FittedTable
from starc.report.text import WIDTH
from starc.units import microseconds, scaled, size, three_digits, tokens

BEST: Final = "best"
LINKS: Final = ("xgmi", "usr", "ucie", "noc", "pe_mesh")
"""Classes of links between devices, the farthest of each kind of machine first."""
GROUPS: Final = ("attention", "gemm", "collective", "other")
"""Groups of kernels, by kind; a fused kernel belongs to its computation."""


@dataclass(frozen=True)
class Row:
    """A configuration and its report. ``transport`` says how its collectives move data: ``BEST``
    (by cost) or a name. ``dram_fraction`` is the sustained part of its memory's peak rate: the
    machine's own, or with ``same_fraction`` that of the first machine of its product."""

    transport: str
    report: Report
    dram_fraction: float | None = None
    same_fraction: bool = False


@dataclass(frozen=True)
class Refused:
    """A configuration that the model cannot be compiled for, and the reasons."""

    target: str
    strategy: str
    refused: tuple[str, ...]


def kernel_groups(report: Report) -> dict[str, float]:
    """Microseconds of a layer by group of kernels, and between kernels. Launches that run at the
    same time count each."""
    times: dict[str, float] = dict.fromkeys(GROUPS, 0.0)
    for kernel in report.kernels:
        times[kernel.group if kernel.group in times else "other"] += kernel.time_us or 0.0
    times["between"] = max(0.0, (report.layer.time_us or 0.0) - sum(times.values()))
    return times


def comparison_text(
    rows: Sequence[Row], refused: Sequence[Refused] = (), *, color: bool = False
) -> str:
    """A table of times for every choice of transports, and one of memory and traffic for the first
    choice; ratios are speed-ups over the table's first row that has a time. What was refused is
    listed below with the reasons."""
    same = [row for row in rows if row.same_fraction]
    every, rows = rows, [row for row in rows if not row.same_fraction]
    choices = list(dict.fromkeys(row.transport for row in rows))
    first = rows[0].report
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
            f"context {tokens(first.context)}"
        )
        for choice in choices:
            how = "each with its best transports" if choice == BEST else f"all with {choice}"
            if same:
                how += ", each machine with its own DRAM fraction"
            console.print(f"\n[bold]Time of a layer, {escape(how)}[/]")
            console.print(_times([row for row in rows if row.transport == choice]))
            if same and choice == choices[0]:
                title = "The same with one DRAM fraction for all memory modes of a product"
                console.print(f"\n[bold]{title}[/]")
                console.print(_times(same))
        console.print(
            "\n[bold]Memory of the fullest partition, largest batch, traffic of a layer[/]"
        )
        console.print(_bytes([row.report for row in rows if row.transport == choices[0]]))
        _print_failures(console, every, refused)
    return "\n".join(line.rstrip() for line in capture.get().split("\n"))


def _table(*columns: str) -> FittedTable:
    return FittedTable([Column(columns[0], "left"), *map(Column, columns[1:])])


def _name(report: Report) -> str:
    return f"{escape(report.target)} {escape(report.strategy)}"


def _times(rows: Sequence[Row]) -> FittedTable:
    first = next((row.report.layer.time_us for row in rows if row.report.layer.time_us), None)
    shares = rows[0].same_fraction or len({row.dram_fraction for row in rows}) > 1
    table = _table(
        *("", "layer", "ratio", "attn", "GEMM", "exchange", "other", "gaps", "tok/s"),
        *(("DRAM",) if shares else ()),
    )
    for row in rows:
        report, time = row.report, row.report.layer.time_us
        share = [f"{row.dram_fraction:.3f}"] if shares and row.dram_fraction is not None else []
        if time is None or first is None:
            table.add_row(_name(report), "[red]OOM[/]", *"-------", *share)
            continue
        table.add_row(
            _name(report),
            microseconds(time),
            f"{first / time:.2f}",
            *(microseconds(part) for part in kernel_groups(report).values()),
            scaled(report.whole_model.tokens_per_s or 0.0, "").strip(),
            *share,
        )
    return table


def _bytes(reports: Sequence[Report]) -> FittedTable:
    links = _link_classes(reports)
    columns = [name for link in links for name in (link, "once")[: 2 if len(links) < 4 else 1]]
    table = _table("", "memory", "KV copies", "batch", "HBM", *columns)
    for report in reports:
        memory, traffic = report.memory, report.traffic
        peak = size(memory.peak_bytes)
        cells = [
            _name(report),
            peak if memory.fits else f"[red]{peak}[/]",
            three_digits(memory.kv_replication),
            f"{memory.max_batch:,}",
        ]
        if traffic is None:
            cells += "-" * (1 + len(columns))
        else:
            cells.append(size(traffic.hbm_read_bytes + traffic.hbm_write_bytes))
            for link in links:
                crossed, once = traffic.links.get(link, 0), traffic.logical_bytes.get(link, 0)
                cells += [size(crossed), size(once)][: 2 if len(links) < 4 else 1]
        table.add_row(*cells)
    return table


def _link_classes(reports: Sequence[Report]) -> tuple[str, ...]:
    """The classes of links that the machines of some reports have, the farthest first."""
    found = {link for report in reports if report.traffic for link in report.traffic.links}
    return tuple(link for link in LINKS if link in found) or LINKS[:2]


def _print_failures(console: Console, rows: Sequence[Row], refused: Sequence[Refused]) -> None:
    oom = {
        (row.report.target, row.report.strategy): row.report.memory
        for row in rows
        if not row.report.memory.fits
    }
    if refused or oom:
        console.print()
    for entry in refused:
        reasons = escape("; ".join(entry.refused))
        console.print(f"[red]{escape(entry.target)}, {entry.strategy}: refused[/], {reasons}")
    for (target, strategy), memory in oom.items():
        need = f"needs {size(memory.peak_bytes)} of {size(memory.usable_bytes)} a partition"
        would = f"batch {memory.max_batch} would fit" if memory.max_batch else "no batch fits"
        console.print(f"[dim]{escape(target)}, {strategy}: {need}; {would}[/]")


def comparison_json(rows: Sequence[Row], refused: Sequence[Refused] = ()) -> str:
    """The reports as a JSON list, each with its ``transport``, ``dram_fraction``, whether that is
    one for all memory modes (``same_fraction``), and ``kernel_groups``, and after them what was
    refused."""
    values = [
        {
            **row.report.to_json(),
            "transport": row.transport,
            "dram_fraction": row.dram_fraction,
            "same_fraction": row.same_fraction,
            "kernel_groups": {
                name: float(f"{time:.12g}") for name, time in kernel_groups(row.report).items()
            },
        }
        for row in rows
    ]
    return json.dumps([*values, *map(asdict, refused)], indent=2, allow_nan=False) + "\n"


def _text(rows: Sequence[Row], refused: Sequence[Refused], color: bool) -> str:
    return comparison_text(rows, refused, color=color)


def _json(rows: Sequence[Row], refused: Sequence[Refused], color: bool) -> str:
    return comparison_json(rows, refused)


COMPARISON_FORMATS: Final[
    Mapping[OutputFormat, Callable[[Sequence[Row], Sequence[Refused], bool], str]]
] = {
    OutputFormat.TEXT: _text,
    OutputFormat.JSON: _json,
}
"""What prints a comparison, given whether it may carry colours."""
