"""What a collective exchanges: its operands and results, cut into pieces of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue

from starc.core.kernel_schedules.exchange_schedules import Cutting
from starc.core.quasi_affine.expressions import Expression
from starc.core.sharding.combiners import COMBINERS
from starc.core.sharding.mesh import Mesh
from starc.dialects import collective
from starc.dialects.collective import CollectiveOp
from starc.dialects.kernel_buffers import element_bytes
from starc.dialects.sharding import encoding_of, global_shape
from starc.kernel_bodies.collectives.places import Box, Cut, Places, box_of
from starc.kernel_bodies.shards import global_row

AnyTensor = TensorType[Attribute]


@dataclass(frozen=True)
class Value:
    """What is exchanged and combined together: one operand, or the components of a partial state.

    ``boxes`` are the pieces of each component; all have as many.
    """

    inputs: tuple[SSAValue, ...]
    outputs: tuple[SSAValue, ...]
    places: tuple[Places, ...]

    @property
    def boxes(self) -> tuple[Box, ...]:
        return tuple(places.box for places in self.places)

    @property
    def pieces(self) -> int:
        return self.boxes[0].count

    @property
    def cutting(self) -> Cutting:
        return Cutting(
            self.pieces,
            tuple((box.rows, box.columns) for box in self.boxes),
            tuple(element_bytes(cast(AnyTensor, component.type)) for component in self.inputs),
        )


def values_of(op: CollectiveOp, mesh: Mesh, tile: tuple[int, int]) -> tuple[Value, ...]:
    """The values of an operation in pieces of at most ``tile`` rows x columns."""
    kind = op.reduction_kind
    pairs = list(zip(op.inputs, op.outputs, strict=True))
    if kind is not None and len(COMBINERS[kind].components) > 1:
        return (_components(op, mesh, tile, pairs),)
    return tuple(
        Value((before,), (after,), (_places(op, mesh, tile, before, after),))
        for before, after in pairs
    )


def places_of(op: CollectiveOp, mesh: Mesh, tile: tuple[int, int]) -> Places:
    """Where the pieces of the only value of an operation lie."""
    ((value,),) = (value.places for value in values_of(op, mesh, tile))
    return value


def _places(
    op: CollectiveOp, mesh: Mesh, tile: tuple[int, int], before: SSAValue, after: SSAValue
) -> Places:
    operand, result = _cuts(op, mesh, before, after)
    shape = list(cast(AnyTensor, before.type).get_shape())
    for dim, cut in operand.items():
        shape[dim] = cut.extent
    both = {
        dim: [cuts[dim] for cuts in (operand, result) if dim in cuts] for dim in (*operand, *result)
    }
    rows = {
        cut.rotated_by: partial(_global_row, before, cut.rotated_by, mesh)
        for found in both.values()
        for cut in found
        if cut.rotated_by is not None
    }
    return Places(box_of(shape, tile, both), operand, result, rows)


def _global_row(value: SSAValue, by: int, mesh: Mesh, row: Expression) -> Expression:
    return global_row(value, by, row, mesh)


def _cuts(
    op: CollectiveOp, mesh: Mesh, before: SSAValue, after: SSAValue
) -> tuple[dict[int, Cut], dict[int, Cut]]:
    """The cuts of an operand and of a result of an operation, by dimension."""

    def cut(dim: int, coarse: SSAValue, fine: SSAValue) -> Cut:
        outer, inner = cast(AnyTensor, coarse.type), cast(AnyTensor, fine.type)
        old, new = encoding_of(outer, mesh), encoding_of(inner, mesh)
        assert old is not None
        assert new is not None
        whole = global_shape(outer)[dim]
        return Cut(inner.get_shape()[dim], mesh, op.axes.data, old, new, dim, whole)

    match op:
        case collective.ReduceScatterOp() | collective.AllSliceOp():
            dim = op.number("dim")
            return {dim: cut(dim, before, after)}, {}
        case collective.AllGatherOp():
            dim = op.number("dim")
            return {}, {dim: cut(dim, after, before)}
        case collective.AllToAllOp():
            split, concat = op.number("split_dim"), op.number("concat_dim")
            return {split: cut(split, before, after)}, {concat: cut(concat, after, before)}
        case _:
            return {}, {}


def _components(
    op: CollectiveOp,
    mesh: Mesh,
    tile: tuple[int, int],
    pairs: Sequence[tuple[SSAValue, SSAValue]],
) -> Value:
    """Components that are combined together: the last has ``width`` columns for each of the
    others'."""
    shapes = [cast(AnyTensor, before.type).get_shape() for before, _ in pairs]
    width = shapes[-1][-1] // shapes[0][-1]
    heads = (max(1, tile[0]), max(1, tile[1] // width))
    first = _places(op, mesh, heads, *pairs[0])
    places = [first]
    for before, after in pairs[1:]:
        operand, result = _cuts(op, mesh, before, after)
        own = cast(AnyTensor, before.type).get_shape()
        stretch = own[-1] // shapes[0][-1]
        shape, extents = list(first.box.shape), list(first.box.extents)
        shape[-1], extents[-1] = shape[-1] * stretch, extents[-1] * stretch
        for dim, cut in (*operand.items(), *result.items()):
            if not cut.fits(extents[dim]):
                raise ValueError(f"the shards of dim {dim} cut what is combined together")
        places.append(Places(Box(tuple(shape), tuple(extents)), operand, result, first.rows))
    return Value(
        tuple(before for before, _ in pairs), tuple(after for _, after in pairs), tuple(places)
    )
