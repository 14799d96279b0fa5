"""The report as text for a terminal, at most 100 columns wide."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from starc.diagnostics import counted
from starc.report.engines import engines_table
from starc.report.kernel_table import bar, kernels_table, short_name
from starc.report.model import MemoryReport, Report
from starc.report.tables import Column, FittedTable
from starc.units import count, microseconds, size, three_digits, tokens

WIDTH = 100
_BAR = 54
_PARTS = (
    ("weights", "weights_bytes", "█", "blue"),
    ("KV cache", "kv_bytes", "▓", "magenta"),
    ("activations", "activations_bytes", "▒", "green"),
    ("communication", "communication_bytes", "░", "yellow"),
)


def render_text(report: Report, *, color: bool = False, width: int = WIDTH) -> str:
    """The text report; with ``color`` it carries ANSI styles."""
    console = Console(
        file=io.StringIO(),
        width=min(width, WIDTH),
        force_terminal=color,
        color_system="auto" if color else None,
        highlight=False,
        legacy_windows=False,
    )
    with console.capture() as capture:
        console.print(Group(*_sections(report)))
    return "\n".join(line.rstrip() for line in capture.get().split("\n"))


def _sections(report: Report) -> Iterable[RenderableType]:
    yield from _header(report)
    yield _title("Memory of the fullest partition")
    yield from _memory(report.memory, report.context)
    yield _title("Time")
    yield from _time(report)
    if report.kernels and report.layer.time_us is not None:
        yield _title(f"Kernels of one '{report.layer.kind}' layer")
        yield kernels_table(report)
    if report.engines:
        yield _title("Engines of a device in those kernels: share of the time, mean of all devices")
        table = engines_table(report.engines, report.layer.kind)
        yield Padding(table, (0, 0, 0, 2))
    if report.collectives and report.layer.time_us is not None:
        yield _title("Collectives of that layer, bandwidths in GB/s")
        yield _collectives(report)
    if report.traffic is not None:
        yield _title("Traffic of that layer, all devices together")
        yield _traffic(report)
    if len(report.kinds) > 1 and report.layer.time_us is not None:
        yield _title("Layer kinds")
        yield _kinds(report)
    yield from _notes(report)


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _indented(*parts: str | Text) -> Padding:
    line = Text()
    for part in parts:
        line.append_text(Text.from_markup(part) if isinstance(part, str) else part)
    return Padding(line, (0, 0, 0, 2))


def _header(report: Report) -> Iterable[RenderableType]:
    work = (
        f"decode, batch {report.batch}, context {tokens(report.context)}"
        if report.phase == "decode"
        else f"{report.phase}, batch {report.batch}, prompt {tokens(report.query)}"
        + (f", context {tokens(report.context)}" if report.context != report.query else "")
    )
    yield Text.from_markup(
        f"[bold]{escape(report.model)}[/] on [bold]{escape(report.target)}[/]: {work}"
    )
    mesh = " x ".join(f"{extent} {axis}" for axis, extent in report.mesh.items())
    plan = f"tensor parallel {report.tensor_parallel}"
    if report.data_parallel > 1:
        plan += f" x data parallel {report.data_parallel}"
    types = report.dtype
    if report.kv_cache_dtype != report.dtype:
        types += f", KV cache {report.kv_cache_dtype}"
    yield _indented(
        f"{counted(report.devices, 'device')} ({mesh}), {plan}, strategy {report.strategy}"
    )
    if report.changes:
        yield _indented(f"changed: {escape(', '.join(report.changes))}")
    parameters = (
        f"{count(report.parameters.total)} parameters "
        f"({count(report.parameters.per_layer)} a layer), "
        if report.parameters.total
        else "no parameters, "
    )
    yield _indented(f"{parameters}{types}")
    if report.defaults:
        yield _indented(f"[dim]defaults in force: {escape(', '.join(report.defaults))}[/]")


def _memory(memory: MemoryReport, context: int) -> Iterable[RenderableType]:
    verdict = "[green]fits[/]" if memory.fits else "[bold red]does not fit[/]"
    yield _indented(
        _memory_bar(memory),
        f"  {size(memory.peak_bytes)} of {size(memory.usable_bytes)} usable: {verdict}",
    )
    yield _indented(
        "   ".join(
            f"[{style}]{mark}[/] {name} {size(getattr(memory, key))}"
            for name, key, mark, style in _PARTS
        )
    )
    copies = (
        f"KV cache stored {three_digits(memory.kv_replication)} times over; "
        if memory.kv_replication > 1.0005
        else ""
    )
    if memory.fits:
        yield _indented(
            f"{copies}room for {memory.kv_tokens:,} KV tokens: batch {memory.max_batch:,} at "
            f"context {tokens(context)}"
        )
        return
    would = f"batch {memory.max_batch:,} would fit" if memory.max_batch else "no batch would fit"
    excess = size(memory.peak_bytes - memory.usable_bytes)
    yield _indented(
        f"{copies}[bold red]too large by {excess}[/]; {would} at context {tokens(context)}"
    )


def _memory_bar(memory: MemoryReport) -> Text:
    """What fills the memory, what is usable, and the rest, to scale: always ``_BAR`` cells."""
    scale = max(memory.capacity_bytes, memory.peak_bytes, 1)
    usable = min(round(_BAR * memory.usable_bytes / scale), _BAR)
    bar = Text()
    total = 0
    for _, key, mark, style in _PARTS:
        total += getattr(memory, key)
        until = min(round(_BAR * total / scale), _BAR)
        bar.append(mark * (until - len(bar)), style=style)
    bar.append("·" * (usable - len(bar)), style="dim")
    bar.append("┆" * (_BAR - len(bar)), style="dim")
    if memory.fits:
        return bar
    # The end of the usable memory, in the middle of what is needed.
    end = min(usable, _BAR - 1)
    return bar[:end] + Text("┃", style="bold red") + bar[end + 1 :]


def _time(report: Report) -> Iterable[RenderableType]:
    layer, whole = report.layer, report.whole_model
    if layer.time_us is None:
        yield _indented("not simulated: the model does not fit (--ignore-capacity simulates it)")
        yield Padding(_bounds(report, 0.0), (0, 0, 0, 2))
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    spread = ""
    if layer.spread_us:
        spread = f"; devices end within {microseconds(layer.spread_us)}"
    table.add_row(
        "layer",
        f"[bold]{microseconds(layer.time_us)}[/]",
        f"{layer.cycles:,} cycles at {layer.clock_mhz:,.0f} MHz, {layer.caches} caches{spread}",
    )
    kinds = " + ".join(
        f"{kind.count} x {escape(kind.name)}" if kind.count > 1 else escape(kind.name)
        for kind in report.kinds
    )
    if layer.power_w is not None and layer.power_cap_w is not None:
        table.add_row(
            "power",
            f"{layer.power_w:,.0f} W",
            f"of a GPU, the whole model repeated; the cap is {layer.power_cap_w:,.0f} W"
            + (", held by an estimate" if layer.power_w > layer.power_cap_w else ""),
        )
    table.add_row("whole model", f"[bold]{microseconds(whole.time_us)}[/]", kinds)
    if whole.tpot_ms is not None:
        table.add_row(
            "throughput",
            f"[bold]{three_digits(whole.tokens_per_s or 0.0)} tok/s[/]",
            f"{three_digits(whole.tpot_ms)} ms a token "
            + (
                f"for each of {report.batch:,} sequences"
                if report.batch > 1
                else "for the sequence"
            ),
        )
    elif whole.ttft_ms is not None:
        table.add_row(
            "throughput",
            f"[bold]{three_digits(whole.tokens_per_s or 0.0)} tok/s[/]",
            f"{three_digits(whole.ttft_ms)} ms to the first token",
        )
    yield Padding(table, (0, 0, 0, 2))
    yield Padding(_bounds(report, layer.time_us), (0, 0, 0, 2))


def _bounds(report: Report, time_us: float) -> Table:
    """Bars of the layer's bounds against its time."""
    layer = report.layer
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    table.add_column(style="dim")
    rows = (
        ("at peak rates", layer.peak_bound_us, "compulsory work at the vendor's peaks"),
        ("compulsory", layer.algorithm_bound_us, "compulsory work at sustained rates"),
        (
            "this program",
            layer.lower_bound_us,
            f"work of its busiest server ({layer.busiest})",
        ),
    )
    for name, bound, meaning in rows:
        if bound is not None:
            share = min(bound / time_us, 1.0) if time_us else 0.0
            table.add_row(
                f"bound, {name}",
                microseconds(bound),
                Text(bar(share, 20).ljust(20), style="cyan") if time_us else "",
                f"{100 * share:.0f} %  {meaning}" if time_us else meaning,
            )
    return table


def _collectives(report: Report) -> Padding:
    table = FittedTable(
        [
            Column("collective", "left"),
            Column("op", "left", rank=1),
            Column("over", "left"),
            Column("size"),
            Column("time"),
            Column("algbw", rank=3),
            Column("busbw", rank=2),
            Column("algorithm", "left"),
        ]
    )
    for item in report.collectives:
        table.add_row(
            short_name(item.name, report),
            item.op,
            f"{' x '.join(item.axes)} ({item.ranks})",
            size(item.size_bytes),
            microseconds(item.time_us),
            three_digits(item.algbw_gbps) if item.algbw_gbps is not None else "-",
            three_digits(item.busbw_gbps) if item.busbw_gbps is not None else "-",
            f"{item.algorithm}, {item.transport}" if item.transport else item.algorithm,
        )
    return Padding(table, (0, 0, 0, 2))


def _traffic(report: Report) -> RenderableType:
    traffic = report.traffic
    assert traffic is not None
    lines = [
        f"HBM read {size(traffic.hbm_read_bytes)}, written {size(traffic.hbm_write_bytes)}"
        + (f", of it remote {size(traffic.hbm_remote_bytes)}" if traffic.hbm_remote_bytes else "")
    ]
    for link, crossed in traffic.links.items():
        logical = traffic.logical_bytes.get(link)
        if crossed or logical:
            detail = f", {size(logical)} payload" if logical is not None else ""
            lines.append(f"{link} links {size(crossed)}{detail}")
    return Padding("\n".join(lines), (0, 0, 0, 2))


def _kinds(report: Report) -> Padding:
    table = FittedTable(
        [Column("kind", "left"), *map(Column, ("count", "kernels", "time", "bound"))]
    )
    for kind in report.kinds:
        table.add_row(
            escape(kind.name),
            f"{kind.count}",
            f"{kind.kernels}",
            microseconds(kind.time_us),
            microseconds(kind.lower_bound_us),
        )
    return Padding(table, (0, 0, 0, 2))


def _notes(report: Report) -> Iterable[RenderableType]:
    engine = report.engine
    yield Text("")
    for check in report.checks:
        yield Text(check, style="green")
    # Machines whose kernels are streams of engines have no governor of the clock.
    limited = report.layer.power_cap_w is not None or bool(report.engines)
    if not limited and "matrix" in (report.layer.bound_by, report.layer.busiest):
        note = (
            "bound by the matrix engines: this machine's power limit, which may lower the clock, "
            "is not known"
        )
        yield Text(note, style="dim")
    done: list[str] = []
    if engine.compile_s:
        done.append(f"compiled in {three_digits(engine.compile_s)} s")
    if engine.events:
        done.append(
            f"simulated {count(engine.requests)} requests, {count(engine.events)} events in "
            f"{three_digits(engine.wall_s)} s"
        )
    if engine.events and not engine.whole_node:
        done.append(f"one {next(iter(report.mesh), 'gpu').upper()} stands for all of them")
    yield Text("; ".join(done), style="dim")
