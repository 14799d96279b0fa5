"""Values that pass between layers, the residual stream, split over the inner level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import AnyFloat, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute

from starc.analysis.orthogonality import TwoLevels
from starc.analysis.reencoding import (
    layers_of,
    reshard_after,
    reshard_before,
    set_encoding,
    update_signature,
)
from starc.analysis.sharding_rules import module_mesh, stack_edges
from starc.core.sharding.mesh import Mesh, axes_text
from starc.dialects.sharding import AnyTensor, encoding_of, global_shape
from starc.passes.base import RemarkSink


@dataclass(frozen=True)
class _Slot:
    """The first argument or result of a layer."""

    layer: FuncOp
    is_result: bool
    type: Attribute


def size_problem(what: str, extent: int, size: int, uneven: bool) -> str | None:
    """Why something is not split over the ``size`` devices of the inner level, or ``None``."""
    if extent % size == 0 or uneven:
        return None
    return f"{what} does not divide over the {size} devices of the inner level"


def split_streams(
    module: ModuleOp,
    levels: TwoLevels,
    changed: Sequence[FuncOp],
    uneven: bool,
    sink: RemarkSink,
) -> None:
    """Splits what passes between layers over the inner level, where one of them was ``changed``."""
    mesh = module_mesh(module)
    for slots in _connected(module):
        if not any(slot.layer in changed for slot in slots):
            continue
        names = ", ".join(dict.fromkeys(f"@{slot.layer.sym_name.data}" for slot in slots))
        if len({slot.type for slot in slots}) > 1 or not _is_stream(slots[0].type, mesh, levels):
            continue
        size = mesh.refs_size(levels.inner)
        extent = global_shape(cast(AnyTensor, slots[0].type))[2]
        problem = size_problem(f"its size of {extent}", extent, size, uneven)
        if problem is not None:
            sink.remark(
                "residual-stream",
                f"what passes through {names} stays whole: {problem}",
                slots[0].layer,
                declined=True,
            )
            continue
        _split_stream(slots, mesh, levels)
        sink.remark(
            "residual-stream",
            f"what passes through {names} is split over {{{axes_text(levels.inner)}}}: "
            f"each device of the inner level keeps 1/{size} of it",
            slots[0].layer,
            devices=size,
        )


def _connected(module: ModuleOp) -> list[list[_Slot]]:
    """The ends of layers that must have one type, each group in the order of the module."""
    edges = stack_edges(module)
    followed = {before for before, _ in edges}
    groups: list[list[_Slot]] = []
    slots: dict[tuple[FuncOp, bool], list[_Slot]] = {}
    for layer in layers_of(module):
        function = layer.function_type
        for is_result, types in ((False, function.inputs.data), (True, function.outputs.data)):
            if types:
                group = [_Slot(layer, is_result, types[0])]
                slots[layer, is_result] = group
                groups.append(group)
        ends = (slots.get((layer, False)), slots.get((layer, True)))
        if layer not in followed and ends[0] and ends[1] and ends[0][0].type == ends[1][0].type:
            edges = [*edges, (layer, layer)]
    for before, after in edges:
        left, right = slots.get((before, True)), slots.get((after, False))
        if left is None or right is None or left is right:
            continue
        left += right
        groups = [group for group in groups if group is not right]
        for slot in right:
            slots[slot.layer, slot.is_result] = left
    return groups


def _is_stream(type: Attribute, mesh: Mesh, levels: TwoLevels) -> bool:
    """Whether a type is that of an activation whose features are whole and could be split over
    the inner level."""
    found = encoding_of(type, mesh)
    return (
        found is not None
        and len(found.dims) == 3
        and isinstance(cast(AnyTensor, type).element_type, AnyFloat)
        and not found.dims[2].axes
        and found.partial is None
        and not any(mesh.overlap(ref, other) for ref in levels.inner for other in found.used_axes())
    )


def _split_stream(slots: list[_Slot], mesh: Mesh, levels: TwoLevels) -> None:
    old = encoding_of(slots[0].type, mesh)
    assert old is not None
    new = old.with_dim(2, levels.inner)
    for slot in slots:
        block = slot.layer.body.block
        if slot.is_result:
            last = block.last_op
            assert isinstance(last, ReturnOp)
            last.operands[0] = reshard_before(last, last.operands[0], new)
        else:
            reshard_after(set_encoding(block.args[0], new), old)
        update_signature(slot.layer)
