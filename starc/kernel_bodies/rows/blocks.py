"""Tiles of rows and columns, and the values that are computed on them.

A part computes the operations that its result needs, tile by tile: arguments are loaded once, each
operation is one vector instruction (``silu`` and a product are one), intermediate values stay f32
in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from starc.core.quasi_affine.expressions import Const, Expression
from starc.core.tiling import ceil_div, row_tiling
from starc.dialects import nn
from starc.kernel_bodies.body import Body, Buffer
from starc.kernel_bodies.context import (
    LaunchContext,
    Rows,
    take_rows,
    tensor_shape,
)
from starc.kernel_bodies.shards import shard_of


@dataclass
class Block:
    """A tile of rows and columns of a part, and the values that have been computed on it."""

    context: LaunchContext
    body: Body
    rows: Rows
    column: Expression
    columns: int
    tiles: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Also given from outside: sums over rows that are known by now."""

    def value(self, value: SSAValue) -> SSAValue:
        """The tile of a value of the launch's body, loaded or computed at its first use."""
        if value not in self.tiles:
            self.tiles[value] = self._make(value)
        return self.tiles[value]

    def new(self, name: str, element_type: Attribute = f32, columns: int | None = None) -> SSAValue:
        width = self.columns if columns is None else columns
        return self.body.tile(name, self.rows.count, width, element_type, register=True)

    def _make(self, value: SSAValue) -> SSAValue:
        if isinstance(value, BlockArgument):
            return self._load(self.context.buffer(value), tensor_shape(value)[-1] == 1)
        op = value.owner
        match op:
            case nn.MulOp():
                return self._product(op)
            case nn.ElementwiseOp():
                return self._elementwise(op)
            case nn.RopeOp():
                return self._rope(op)
            case nn.ScaleColumnsOp():
                return self._apply("scaled", "mul", self.value(op.input), self.weight(op.weight))
            case nn.ScaleRowsOp():
                return self._apply("scaled", "mul", self.value(op.input), self.value(op.scale))
            case nn.NormScaleOp():
                return self._norm_scale(op)
            case nn.LseFinishOp():
                return self._lse_finish(op)
            case _:
                assert isinstance(op, Operation)
                raise ValueError(f"{op.name} is not a row-wise operation")

    def _load(self, buffer: Buffer, is_row_value: bool) -> SSAValue:
        """The tile of a buffer; of one number a row, those of the rows."""
        column, columns = (Const(0), 1) if is_row_value else (self.column, self.columns)
        tile = self.new("x", buffer.element_type, columns)
        self.body.load(tile, buffer, self.rows.starts(column), self.rows.extents(columns))
        return tile

    def weight(self, value: SSAValue) -> SSAValue:
        """Weights of the columns, one row of them."""
        if value not in self.tiles:
            weight = self.context.buffer(value)
            tile = self.body.tile("w", 1, self.columns, weight.element_type, register=True)
            self.body.load(tile, weight, [self.column])
            self.tiles[value] = tile
        return self.tiles[value]

    def _norm_scale(self, op: nn.NormScaleOp) -> SSAValue:
        squares = self.value(op.input)
        result = self.new("factors", columns=1)
        params = [op.count.value.data, float(op.eps.value.data)]
        self.body.vector("norm_scale", result, squares, params=params)
        return result

    def _apply(self, name: str, function: str, *operands: SSAValue) -> SSAValue:
        result = self.new(name)
        self.body.vector(function, result, *operands)
        return result

    def _elementwise(self, op: nn.ElementwiseOp) -> SSAValue:
        operands = [self.value(operand) for operand in op.operands]
        return self._apply(op.result_name(), op.FUNCTION, *operands)

    def _product(self, op: nn.MulOp) -> SSAValue:
        for gated, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            owner = gated.owner
            if (
                isinstance(owner, nn.ElementwiseOp)
                and owner.GATE is not None
                and gated not in self.tiles
            ):
                operands = [self.value(operand) for operand in owner.operands]
                return self._apply("gated", owner.GATE, *operands, self.value(other))
        return self._elementwise(op)

    def _lse_finish(self, op: nn.LseFinishOp) -> SSAValue:
        """The heads of the tile; maxima and sums have a number for each."""
        d = op.head_dim.value.data
        if self.columns % d:
            raise ValueError(f"a tile of {self.columns} columns cuts a head of {d}")
        heads, first = self.columns // d, self.column // d

        def of_heads(value: SSAValue) -> SSAValue:
            if value not in self.tiles:
                buffer = self.context.buffer(value)
                tile = self.new("x", buffer.element_type, heads)
                self.body.load(tile, buffer, self.rows.starts(first), self.rows.extents(heads))
                self.tiles[value] = tile
            return self.tiles[value]

        result = self.new("result")
        if op.sink is None:
            self.body.vector("lse_finish", result, of_heads(op.l), self.value(op.o))
            return result
        logits = self.context.buffer(op.sink)
        sink = self.body.tile("sink", 1, heads, logits.element_type, register=True)
        self.body.load(sink, logits, [first])
        operands = (of_heads(op.l), self.value(op.o), of_heads(op.m), sink)
        self.body.vector("lse_finish_sink", result, *operands)
        return result

    def _rope(self, op: nn.RopeOp) -> SSAValue:
        if not shard_of(op.input, 1, self.context.mesh).is_whole:
            raise ValueError("rows that are turned by their positions must not be sharded by them")
        x = self.value(op.input)
        result = self.new("rotated")
        params = [
            op.head_dim.value.data,
            float(op.theta.value.data),
            op.start.value.data,
            tensor_shape(op.input)[1],
            self.rows.position,
        ]
        self.body.vector("rope", result, x, params=params)
        return result


def store_columns(block: Block, results: Sequence[tuple[SSAValue, Buffer]]) -> None:
    """Stores the tiles of elementwise results."""
    rows, columns = block.rows, block.columns
    for value, output in results:
        tile = block.value(value)
        block.body.store(tile, output, rows.starts(block.column), rows.extents(columns))


def tile_of(
    context: LaunchContext, body: Body, shape: tuple[int, ...], number: Expression
) -> tuple[Rows, Expression]:
    """Rows and first column of the ``number``-th tile of a value, row-major."""
    rows, columns = context.tile
    across = ceil_div(shape[2], columns)
    row = body.index("row", number // across) if across > 1 else number
    column = body.index("column", number % across * columns) if across > 1 else Const(0)
    return take_rows(body, shape, rows, row), column


def tile_count(context: LaunchContext, shape: tuple[int, ...]) -> int:
    """Tiles of a value."""
    rows, columns = context.tile
    return row_tiling(shape[0], shape[1], rows).tiles * ceil_div(shape[2], columns)


def operation(value: SSAValue) -> Operation:
    """The operation that yields a value of the launch."""
    owner = value.owner
    assert isinstance(owner, Operation)
    return owner
