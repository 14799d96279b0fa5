"""Phases that cancel: gathers of what is sliced again and slices of what is gathered again."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import VerifyException

from starc.core.sharding.mesh import Mesh, axes_text
from starc.dialects.collective import AllGatherOp, AllSliceOp, AllToAllOp, CollectiveOp
from starc.passes.base import RemarkSink, with_location


def cancel_phases(module: ModuleOp, mesh: Mesh, sink: RemarkSink) -> None:
    """Removes gathers of what is sliced again and slices of what is gathered again."""
    changed = True
    while changed:
        changed = False
        for op in list(module.walk()):
            if op.parent is not None and _cancel_one(op, mesh, sink):
                changed = True


def _cancel_one(op: Operation, mesh: Mesh, sink: RemarkSink) -> bool:
    if isinstance(op, AllSliceOp | AllGatherOp):
        source = _source(op)
        inverse = AllGatherOp if isinstance(op, AllSliceOp) else AllSliceOp
        if isinstance(source, inverse):
            made = _shortened(source, op, mesh)
            if made is None:
                return False
            _replace(op, made, source, sink)
            return True
    return False


def _source(op: CollectiveOp) -> Operation | None:
    """The one operation that gives all operands, as its results in order."""
    owner = op.inputs[0].owner
    if isinstance(owner, CollectiveOp) and list(owner.outputs) == list(op.inputs):
        return owner
    return None


def _shortened(
    first: CollectiveOp, second: CollectiveOp, mesh: Mesh
) -> CollectiveOp | tuple[SSAValue, ...] | None:
    """What a gather and a slice, in either order, are together: nothing, or one of them over fewer
    axes, or an all-to-all; ``None`` if that cannot be said."""
    values = list(first.inputs)
    types = [value.type for value in second.outputs]
    a, b = first.axes.data, second.axes.data
    make: list[Callable[[], CollectiveOp]] = []
    if first.number("dim") == second.number("dim"):
        dim = second.number("dim")
        if [value.type for value in values] == types:
            return tuple(values)
        shared, rest_a, rest_b = mesh.common_prefix(a, b)
        if isinstance(first, AllGatherOp) and shared:
            if not rest_a:
                make.append(lambda: AllSliceOp(values, types, mesh.name, rest_b, dim=dim))
            if not rest_b:
                make.append(lambda: AllGatherOp(values, types, mesh.name, rest_a, dim=dim))
    elif isinstance(first, AllGatherOp) and a == b:
        if all(len(list(value.uses)) == 1 for value in first.outputs):
            split, concat = second.number("dim"), first.number("dim")
            make.append(
                lambda: AllToAllOp(values, types, mesh.name, a, split_dim=split, concat_dim=concat)
            )
    for build in make:
        new = build()
        Rewriter.insert_op(new, InsertPoint.before(second))
        try:
            new.verify_()
        except VerifyException:
            new.detach()
            new.erase()
            continue
        return with_location(new, second)
    return None


def _replace(
    op: CollectiveOp,
    made: CollectiveOp | tuple[SSAValue, ...],
    source: CollectiveOp,
    sink: RemarkSink,
) -> None:
    names = " and ".join(
        f"{each.KIND} over {{{axes_text(each.axes.data)}}}" for each in (source, op)
    )
    if isinstance(made, CollectiveOp):
        values = tuple(made.outputs)
        outcome = f"are one {made.KIND} over {{{axes_text(made.axes.data)}}}"
    else:
        values, outcome = made, "cancel"
    stays = any(use.operation is not op for value in source.outputs for use in value.uses)
    sink.remark(
        "phases-cancelled",
        f"{names} {outcome}" + ("; the first stays for its other uses" if stays else ""),
        op,
    )
    for old, new in zip(list(op.outputs), values, strict=True):
        old.replace_all_uses_with(new)
    op.detach()
    op.erase()
    if not stays:
        source.detach()
        source.erase()
