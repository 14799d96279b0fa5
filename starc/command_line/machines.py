"""The machine that the options name, and ``starc targets``."""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
from collections.abc import Sequence
from typing import Final

from starc.diagnostics import InputError, UsageError, counted, render_error
from starc.passes.pipeline import unknown_name
from starc.simulator.machine.recorded import reads
from starc.targets.default import DEFAULT_TARGET
from starc.targets.loader import load_target
from starc.targets.machine_file import products
from starc.targets.names import (
    aliases,
    dram_fraction,
    has_partitions,
    issue_keys,
    modes,
    numbers,
    refusals,
    target_names,
    title,
)
from starc.targets.target import Target


def target_name(options: argparse.Namespace) -> str:
    """The name that ``--target``, or ``--system`` with its partition modes, stands for."""
    partition = (options.compute_partition, options.memory_partition)
    if options.system is None:
        if any(partition):
            raise UsageError("--compute-partition and --memory-partition belong to --system")
        return DEFAULT_TARGET if options.target is None else options.target
    if options.target is not None:
        raise UsageError("--target and --system exclude each other")
    if options.system not in products():
        raise unknown_name("system", options.system, products())
    if any(partition) and not has_partitions(options.system):
        given = " and ".join(
            name
            for name, mode in zip(
                ("--compute-partition", "--memory-partition"), partition, strict=True
            )
            if mode
        )
        raise UsageError(f"{options.system} has no partitions: leave out {given}")
    compute, memory = (mode.lower() if mode else None for mode in partition)
    if compute is None:
        if memory is not None:
            raise UsageError("--memory-partition needs --compute-partition")
        return options.system
    if memory is not None:
        return f"{options.system}-{compute}-{memory}"
    short = f"{options.system}-{compute}"
    return short if short in aliases() else _only_mode(options.system, compute)


def _only_mode(product: str, compute: str) -> str:
    """The mode of a product for a compute partition, where there is one memory mode only."""
    known = tuple(modes(product))
    fitting = [mode for mode in known if mode.split("-")[0] == compute]
    if not fitting:
        partitions = dict.fromkeys(mode.split("-")[0].upper() for mode in known)
        raise unknown_name("compute partition", compute.upper(), tuple(partitions))
    if len(fitting) > 1:
        legal = ", ".join(mode.split("-")[1].upper() for mode in fitting)
        raise UsageError(f"{compute.upper()} needs --memory-partition: {legal}")
    return f"{product}-{fitting[0]}"


def machine(name: str, options: argparse.Namespace) -> Target:
    """The machine of a name with the GPUs or the mesh of the options."""
    try:
        gpus = options.gpus
        if options.sips is not None:
            gpus = _sips(name, options)
        return load_target(
            name, gpus=gpus, mesh=options.mesh, overrides=overrides_of(name, options)
        )
    except InputError as error:
        # The name comes from the command line: it is its use that is wrong.
        raise UsageError(render_error(error, severity=False)) from error


def _sips(name: str, options: argparse.Namespace) -> int:
    """What ``--sips`` says: the number of GPUs of a machine whose GPUs are SIPs."""
    if not load_target(name).grid:
        raise UsageError(f"--sips: {name} has no SIPs; --gpus says how many GPUs there are")
    if options.gpus not in (None, options.sips):
        raise UsageError(f"--sips {options.sips} contradicts --gpus {options.gpus}")
    return options.sips


def overrides_of(name: str, options: argparse.Namespace) -> dict[str, float]:
    """The numbers of a machine that ``--machine``, ``--issue-cost`` and ``--dram-fraction``
    replace."""
    found = dict[str, float]()
    if options.dram_fraction is not None:
        found |= dram_fraction(name, options.dram_fraction)
    cost: float | None = getattr(options, "issue_cost", None)
    if cost is not None:
        classes = issue_keys(name)
        if not classes:
            raise UsageError(f"--issue-cost: {name} has no commands with a cost")
        found |= dict.fromkeys(classes, cost)
    return found | dict(options.overrides)


def changed_machine(target: Target, options: argparse.Namespace) -> Target | None:
    """The machine of a program with other numbers, or None where none are asked for."""
    try:
        found = overrides_of(target.name, options)
        if not found:
            return None
        if recorded := [key for key in found if not reads(target, key)]:
            them = "it" if len(recorded) == 1 else "them"
            raise UsageError(
                f"{', '.join(recorded)}: the simulator does not read {them}; what a program takes "
                f"from {them} is in its records: compile it again"
            )
        known = load_target(target.name, gpus=target.gpus)
        other = load_target(target.name, gpus=target.gpus, overrides=found)
    except InputError as error:
        raise UsageError(render_error(error, severity=False)) from error
    names = (item.name for item in dataclasses.fields(known) if item.compare)
    changed = {
        name: getattr(other, name) for name in names if getattr(other, name) != getattr(known, name)
    }
    return dataclasses.replace(target, **changed, warnings=other.warnings)


def scaled_memory(target: Target, fraction: float) -> Target:
    """The machine with another sustained fraction of its memory's rate."""
    return dataclasses.replace(
        target,
        hbm_rate=round(target.hbm_peak * fraction),
        hbm_stack_rate=round(target.hbm_stack_peak * fraction),
    )


def list_text() -> str:
    """Every machine, one a line."""
    short = {full: alias for alias, full in aliases().items()}
    rows = [("target", "short name", "devices a GPU", "memory a device", "")]
    for product in products():
        for mode, entry in modes(product).items():
            full = f"{product}-{mode}"
            target = load_target(full)
            status = "" if entry["status"] == "validated" else entry["status"] + ", not validated"
            memory = f"{target.visible_memory_bytes / 1e9:g} GB"
            if target.visible_memory_bytes != target.device_memory_bytes:
                memory += ", shared"
            rows.append((full, short.get(full, ""), f"{target.devices_per_gpu}", memory, status))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    more = "'starc targets show TARGET' lists its numbers and sources, also those of FILE.toml."
    return "\n".join([*lines, "", more])


def show_text(name: str) -> str:
    """A machine's resolved figures, and every number of its description with its source."""
    try:
        lines = _summary(load_target(name))
        rows = numbers(name)
    except InputError as error:
        raise UsageError(render_error(error, severity=False)) from error
    lines += ["", "numbers of the product (value unit, from low to high where swept, kind; source)"]
    section = ""
    for row in rows:
        head, _, key = row.key.partition(".")
        if head != section:
            section = head
            lines.append(f"{section}")
        text = f"{key} = {_number(row.value)} {row.unit}, "
        if row.low is not None and row.high is not None:
            text += f"{_number(row.low)} to {_number(row.high)}, "
        text += f"{row.kind}; {row.source}"
        if row.fitted_on:
            text += f"; fitted on {row.fitted_on}"
        if row.note:
            text += f" ({row.note})"
        lines.append(textwrap.fill(text, 98, initial_indent="  ", subsequent_indent="      "))
    return "\n".join(lines)


def machine_text(name: str) -> str | None:
    """What a target or a product is, or None where there is none of the name."""
    if name in products():
        legal = [
            f"  {name}-{mode}: {counted(_devices(name, mode), 'device')} a GPU, {entry['status']}"
            + (f"; {entry['note']}" if "note" in entry else "")
            for mode, entry in modes(name).items()
        ]
        refused = [f"  {name}-{mode} {why}" for mode, why in refusals(name).items()]
        more = f"starc targets show {name} lists its numbers."
        parts = [f"{name}: {title(name)}. Its modes:", *legal]
        parts += ["refused:", *refused] if refused else []
        # The name of a product that has one mode is that mode's too.
        parts += _summary(load_target(name)) if name in aliases() else []
        return "\n".join([*parts, more])
    if name in aliases() or name in target_names():
        more = f"starc targets show {name} lists its numbers."
        return "\n".join([*_summary(load_target(name)), more])
    return None


def _devices(product: str, mode: str) -> int:
    return load_target(f"{product}-{mode}", gpus=1).devices


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


_NETWORKS: Final = {
    "direct": "a link for each pair",
    "switch": "a link to a switch and one from it",
    "links": "links of some pairs, GPUs pass on",
}


def _cubes(target: Target) -> list[str]:
    """What a machine of cubes is made of."""
    rows, columns, pe_rows, pe_columns = target.grid
    m, n, k = target.matrix_tile
    tile_flops = 2 * m * n * k
    cycles = {name: tile_flops // rate for name, rate in target.matrix_flops_per_clock.items()}
    costs = ", ".join(f"{name} {ps / 1000:g}" for name, ps in target.issue_ps.items())
    features = "with" if target.stateful_composites else "without"
    return [
        f"  a SIP: {rows} x {columns} cubes with a router each, a cube: {pe_rows} x {pe_columns} "
        "PEs; ways are XY",
        f"  a device is a PE of {len(target.engines)} engines: {', '.join(target.engines)}; "
        f"{features} stateful composites",
        f"  GEMM tile {m} x {k} x {n} (M x K x N) in {cycles['bf16']} cycles, of f32 in "
        f"{cycles['f32']}; MATH {target.vector_ops_per_clock} lanes; {target.core_clock_mhz} MHz",
        textwrap.fill(f"  issue of a command in ns: {costs}", 98, subsequent_indent=" " * 6),
        f"  scratch {target.scratch_bytes_per_cu / 1024:g} KiB, of it {target.queue_bytes / 1024:g}"
        f" for queues of {target.queue_depth} slots; no caches",
        "  command queues of "
        + (f"{target.queue_commands} entries" if target.queue_commands else "any length"),
        f"  memory {target.device_memory_bytes / 1e9:g} GB in {target.channels} channels of "
        f"{target.channel_granule} B in turn, {target.hbm_rate / 1e9:.1f} GB/s sustained of "
        f"{target.hbm_peak / 1e9:.1f}",
        "  UCIe: a link between any two SIPs, from cubes "
        + ", ".join(str(p - target.carriers + target.routers) for p in target.port_carriers[1:]),
    ]


def _links(target: Target) -> list[str]:
    return [
        f"  link {name}: {rate / 1e9:.1f} GB/s sustained of {target.link_peak[name] / 1e9:.1f} "
        f"in each direction, {target.link_latency_ps.get(name, 0) / 1000:g} ns"
        for name, rate in target.link_rate.items()
        if name != "usr" or target.carriers > 1
    ]


def _pairs(links: Sequence[Sequence[int]]) -> str:
    """``0-1, 1-2``"""
    return ", ".join("-".join(str(end) for end in link) for link in links)


def _summary(target: Target) -> list[str]:
    """The figures of a machine."""
    mesh = " x ".join(f"{size} {axis} ({link})" for axis, size, _, link in target.mesh)
    memory = f"{target.device_memory_bytes / 1e9:g} GB"
    if target.visible_memory_bytes != target.device_memory_bytes:
        memory = f"{target.visible_memory_bytes / 1e9:g} GB shared by the GPU's devices"
    if target.grid:
        return [
            f"{target.name}: {counted(target.gpus, 'SIP')}, {counted(target.devices, 'PE')}",
            *(f"  {warning}" for warning in target.warnings),
            f"  mesh {mesh}",
            *_cubes(target),
            *_links(target),
        ]
    shape = "in a ring" if not target.carrier_links else f"linked {_pairs(target.carrier_links)}"
    lines = [
        f"{target.name}: {counted(target.gpus, 'GPU')}, {counted(target.devices, 'device')}",
        *(f"  {warning}" for warning in target.warnings),
        f"  mesh {mesh}",
        f"  GPUs: {_NETWORKS[target.network]}"
        + (f", {_pairs(target.gpu_links)}" if target.gpu_links else "")
        + f"; a GPU: {counted(target.dies_per_gpu, 'die')} on "
        f"{counted(target.carriers, 'carrier')}" + (f" {shape}" if target.carriers > 1 else ""),
        f"  a device: {counted(target.dies_per_device, 'die')} of {target.cus_per_die} compute "
        f"units at {target.core_clock_mhz} MHz, {memory}",
        f"  memory {target.hbm_rate / 1e12:.3f} TB/s sustained of {target.hbm_peak / 1e12:.3f}",
    ]
    return [*lines, *_links(target)]
