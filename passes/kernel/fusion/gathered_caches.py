"""Gathers of keys and values move into the launch of their attention, which then reads the caches
of peers tile by tile; on machines of cubes keys go around instead."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import BlockArgument, SSAValue

from starc.analysis.cost import launch_cost
from starc.diagnostics import counted
from starc.dialects import nn
from starc.dialects.collective import AllGatherOp
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_attributes import integers
from starc.dialects.kernel_rings import ring_of, ring_text
from starc.dialects.sharding import encoding_of, mesh_of
from starc.passes.base import with_location
from starc.passes.kernel.fusion.choice import FusionChoice, microseconds
from starc.passes.kernel.fusion.launch_values import (
    is_used_beside,
    launch_behind,
    only_op,
    outside,
    yielded_as,
)


def gather_caches_inside(choice: FusionChoice, launch: LaunchOp) -> None:
    """Takes the gathers of keys and values into an attention, where that is faster."""
    attention = only_op(launch, nn.AttentionOp)
    sources = _sources(choice, launch, attention) if attention is not None else None
    if sources is None:
        return
    new = launch.clone()
    choice.block.insert_op_before(with_location(new, launch), launch)
    _gather_inside(new)
    if choice.on_engines:
        _go_around(choice, launch, new)
        _replace(launch, new, sources)
        return
    fused = launch_cost(new, choice.rates).seconds
    separate = choice.separate_seconds(launch_cost(launch, choice.rates).seconds, sources)
    numbers = {"fused_us": microseconds(fused), "separate_us": microseconds(separate)}
    does = "that reads the caches of peers itself"
    if not choice.is_faster(launch, fused, separate, does, numbers):
        new.detach()
        new.erase()
        return
    choice.accept(
        launch,
        f"{launch.sym_name.data} reads the caches of peers itself: {microseconds(fused):.1f} us "
        f"instead of {microseconds(separate):.1f} us",
        numbers,
    )
    _replace(launch, new, sources)


def _sources(
    choice: FusionChoice, launch: LaunchOp, attention: nn.AttentionOp
) -> list[LaunchOp] | None:
    """The launches that gather keys and values, where an attention can do without them."""
    sources: list[LaunchOp] = []
    for value in (attention.key, attention.value):
        outer = outside(launch, value)
        source = launch_behind(outer) if outer is not None else None
        gather = only_op(source, AllGatherOp)
        if outer is None or source is None or gather is None:
            return None
        reason = _obstacle(launch, outer, gather)
        if reason is not None:
            choice.decline(launch, f"it does not read the caches of peers itself: {reason}")
            return None
        if source not in sources:
            sources.append(source)
    return sources


def _obstacle(launch: LaunchOp, outer: SSAValue, gather: AllGatherOp) -> str | None:
    if is_used_beside(outer, launch):
        return "a gathered cache has other uses"
    if gather.number("dim") != 2:
        return "other dimensions than positions are gathered"
    encoding = encoding_of(outer.type, mesh_of(launch))
    if encoding is None or encoding.ranks(2) != 1:
        return "the gathered caches are not whole"
    return None


def _gather_inside(launch: LaunchOp) -> None:
    """Replaces the gathered caches of a launch by gathers in its body."""
    block = launch.block
    attention = only_op(launch, nn.AttentionOp)
    assert attention is not None
    for value in (attention.key, attention.value):
        assert isinstance(value, BlockArgument)
        index = value.index
        outer = launch.inputs[index]
        source = launch_behind(outer)
        gather = only_op(source, AllGatherOp)
        assert source is not None
        assert gather is not None
        position = list[SSAValue](gather.outputs).index(yielded_as(outer))
        part = outside(source, gather.inputs[position])
        assert part is not None
        argument = block.insert_arg(part.type, index)
        argument.name_hint = value.name_hint
        copy = AllGatherOp.create(
            operands=[argument],
            result_types=[outer.type],
            properties=dict(gather.properties),
            attributes=dict(gather.attributes),
        )
        copy.location = gather.location
        block.insert_op_before(copy, attention)
        value.replace_all_uses_with(copy.results[0])
        block.erase_arg(value)
        launch.operands[index] = part


def _go_around(choice: FusionChoice, launch: LaunchOp, new: LaunchOp) -> None:
    """On machines of cubes the kernel passes keys around the cubes of a group: no PE has room for
    all of them, and each is read where it is needed next."""
    ring = ring_of(new)
    new.properties["ring"] = integers(ring)
    rotations = len(ring) - 1
    for op in new.block.ops:
        if isinstance(op, AllGatherOp):
            op.algorithm = StringAttr("ring")
    choice.accept(
        launch,
        f"{launch.sym_name.data} gathers keys and values itself: they go around {ring_text(new)}, "
        f"in {counted(rotations, 'rotation')}",
        {"cubes": len(ring), "rotations": rotations},
    )


def _replace(launch: LaunchOp, new: LaunchOp, sources: Sequence[LaunchOp]) -> None:
    """Puts ``new`` in the place of an attention and the gathers in front of it."""
    new.results[0].name_hint = launch.results[0].name_hint
    launch.results[0].replace_all_uses_with(new.results[0])
    for op in (launch, *sources):
        op.detach()
        op.erase(safe_erase=False)
