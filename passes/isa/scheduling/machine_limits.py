"""What a kernel may ask of its machine: scratch bytes, streams of engines, commands that carry
state. ``verify-schedule`` checks it of every module, ``assign-engines`` of commands."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block

from starc.diagnostics import Diagnostic
from starc.dialects import isa
from starc.dialects.locations import location_of
from starc.passes.isa.plan_scratch import on_engines, outside_of_queues
from starc.passes.isa.scheduling.attention_sweeps import CONTINUES
from starc.passes.isa.scheduling.scratch_tiles import slot_bytes
from starc.targets.target import Target


def beyond_machine(module: ModuleOp, target: Target) -> list[Diagnostic]:
    """What kernels and buffers ask for that the machine does not have."""
    found = outside_of_queues(module, target) if target.engines else []
    moving = on_engines(module)
    for kernel in module.ops:
        if not isinstance(kernel, isa.KernelOp):
            continue
        found += unknown_streams(kernel, target)
        found += illegal_commands(kernel, target)
        if kernel.sym_name.data not in moving:
            found += _outside_of_scratch(kernel, target)
    return found


def unknown_streams(kernel: isa.KernelOp, target: Target) -> list[Diagnostic]:
    """Streams of engines that the machine does not have."""
    legal = (
        f"its elements have {', '.join(target.engines)}"
        if target.engines
        else "its compute units execute a kernel as one stream"
    )
    return [
        Diagnostic(
            f'template @{kernel.sym_name.data} has a stream for "{stream.engine.data}", an engine '
            f"that {target.name} does not have",
            location_of(stream) or location_of(kernel),
            hint=legal,
        )
        for stream in kernel.streams
        if stream.engine.data not in target.engines
    ]


def illegal_commands(kernel: isa.KernelOp, target: Target) -> list[Diagnostic]:
    """Composites that carry state where the machine has none, and those that continue nothing."""
    found: list[Diagnostic] = []
    if not target.engines:
        return found
    name = kernel.sym_name.data
    for op in kernel.body.walk():
        if isinstance(op, isa.CompositeOp) and op.stateful is not None:
            if not target.stateful_composites:
                found.append(
                    Diagnostic(
                        f"template @{name}: {target.name} has no composites that carry state (its "
                        "number compute.stateful_composites is 0)",
                        location_of(op),
                        hint="legal is a composite without 'stateful': one product and elementwise "
                        "functions",
                    )
                )
        blocks = [region.block for region in op.regions]
        if not isinstance(op, isa.CompositeOp | isa.ScopeOp):
            for block in blocks:
                found += _without_command(name, block)
    return [*found, *_without_command(name, kernel.body.block)]


def _without_command(name: str, block: Block) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for number, op in enumerate(_composites(block)):
        if CONTINUES in op.attributes and number == 0:
            found.append(
                Diagnostic(
                    f"template @{name}: a composite continues a command, and none comes before it",
                    location_of(op),
                    hint="legal behind another composite of the same block; without "
                    f"'{CONTINUES}' it is a command of its own",
                )
            )
    return found


def _composites(block: Block) -> Iterator[isa.CompositeOp]:
    """The composites of a block in order; scopes are seen through."""
    for op in block.ops:
        if isinstance(op, isa.ScopeOp):
            yield from _composites(op.body.block)
        elif isinstance(op, isa.CompositeOp):
            yield op


def _outside_of_scratch(kernel: isa.KernelOp, target: Target) -> list[Diagnostic]:
    """Tiles of which a slot lies outside of the scratch bytes that tiles may take."""
    available = target.scratch_bytes_per_cu - (target.queue_bytes if target.engines else 0)
    found: list[Diagnostic] = []
    for op in kernel.body.walk():
        if not isinstance(op, isa.AllocOp) or op.offset is None or op.space.data != "scratch":
            continue
        first = op.offset.value.data
        end = first + slot_bytes(op)
        if end <= available:
            continue
        slots = op.slots.value.data
        text = (
            f"template @{kernel.sym_name.data}: tile %{op.tile.name_hint or '?'} takes bytes "
            f"{first:,} to {end:,} of scratch memory"
            + (f" with its {slots} slots" if slots > 1 else "")
            + f", which has 0 to {available:,} for tiles"
        )
        if target.scratch_bytes_per_cu > available:
            text += f" and {available:,} to {target.scratch_bytes_per_cu:,} for queues"
        most = available - slot_bytes(op)
        hint = (
            f"legal offsets are 0 to {most:,}"
            if most >= 0
            else f"no offset is legal: it takes {slot_bytes(op):,} bytes"
        )
        found.append(Diagnostic(text, location_of(op) or location_of(kernel), hint=hint))
    return found
