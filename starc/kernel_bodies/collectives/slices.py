"""The slice of a value that a device keeps: nothing moves between devices."""

from __future__ import annotations

from typing import cast

from starc.core.quasi_affine.expressions import minimum
from starc.core.tiling import ceil_div
from starc.dialects import collective
from starc.kernel_bodies.body import Buffer, Template
from starc.kernel_bodies.collectives.plan import is_even
from starc.kernel_bodies.collectives.row_pieces import row_pieces, scattered, single_operand
from starc.kernel_bodies.collectives.values import AnyTensor, places_of
from starc.kernel_bodies.context import WORKGROUP, LaunchContext, tensor_shape
from starc.kernel_bodies.peers import Group


def all_slice(context: LaunchContext, op: collective.AllSliceOp, output: Buffer) -> Template:
    """A copy of the device's piece; nothing moves between devices."""
    body = context.body(op)
    source = context.buffer(single_operand(op))
    dim = op.number("dim")
    types = (*op.inputs.types, *op.outputs.types)
    if len(source.shape) != 3 or not all(
        is_even(cast(AnyTensor, type), context.mesh) for type in types
    ):
        return _uneven_slice(context, op, output)
    pieces = row_pieces(output.shape, context.tile, exact=True)
    rank = Group.of(body, context.mesh, op.axes.data).rank
    grid = max(1, sum(context.grid))
    share = ceil_div(pieces.count, grid)
    place = scattered(pieces, dim, tensor_shape(op.outputs[0])[dim])
    first = body.index("first", WORKGROUP * share)
    with body.loop("i", first, minimum(first + share, pieces.count), stages=2) as i:
        own = body.tile(
            "own", pieces.tiling.rows, pieces.columns, source.element_type, register=True
        )
        body.load(own, source, place(rank, i), pieces.extents)
        body.store(own, output, [*pieces.starts(i)], pieces.extents)
    return context.template(body, 0, grid)


def _uneven_slice(context: LaunchContext, op: collective.AllSliceOp, output: Buffer) -> Template:
    """A slice whose pieces lie where the shards of the result say."""
    body = context.body(op)
    source = context.buffer(single_operand(op))
    places = places_of(op, context.mesh, cast("tuple[int, int]", context.tile))
    box = places.box
    rank = Group.of(body, context.mesh, op.axes.data).rank
    grid = max(1, sum(context.grid))
    share = ceil_div(box.count, grid)
    first = body.index("first", WORKGROUP * share)
    with body.loop("i", first, minimum(first + share, box.count), stages=2) as i:
        starts, conditions = places.in_operand(rank, i)
        there, _ = places.in_result(rank, i)
        with body.when_all(conditions):
            own = body.tile("own", box.rows, box.columns, source.element_type, register=True)
            body.load(own, source, starts, box.extents)
            body.store(own, output, there, box.extents)
    return context.template(body, 0, grid)
