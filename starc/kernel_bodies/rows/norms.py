"""Norms of rows, and sums of their squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import BlockArgument, SSAValue

from starc.core.kernel_schedules.row_schedules import HELD_TILES, holds_rows
from starc.core.quasi_affine.expressions import Const, Expression
from starc.core.tiling import ceil_div, row_tiling
from starc.dialects import nn
from starc.kernel_bodies.body import Body, Buffer, Template
from starc.kernel_bodies.context import (
    WORKGROUP,
    LaunchContext,
    Rows,
    take_rows,
    tensor_shape,
)
from starc.kernel_bodies.rows.blocks import Block, store_columns


def lower_norm(context: LaunchContext) -> list[list[Template]]:
    """A workgroup normalises some rows: whole rows at once, in tiles of columns that registers hold
    until the sum of squares is known, or in two passes over such tiles. Or it only sums up the
    squares of some rows, in one pass. Elementwise results, such as a residual sum, are stored on
    the way, and what the sums alone are needed for behind it."""
    norms = [op for op in context.launch.block.ops if isinstance(op, nn.RmsNormOp)]
    sums = [op for op in context.launch.block.ops if isinstance(op, nn.SumSquaresOp)]
    if len(norms) + bool(sums) != 1:
        raise ValueError(f"launch @{context.name}: one norm, or sums of squares, in a launch")
    op = norms[0] if norms else sums[0]
    x = tensor_shape(op.input)
    rows_tile, columns = context.tile
    body = context.body(op)
    rows = take_rows(body, x, rows_tile, WORKGROUP)
    across = ceil_div(x[2], columns)
    beside = [
        (value, output)
        for value, output in context.outputs
        if not isinstance(value.owner, nn.RmsNormOp | nn.SumSquaresOp | nn.NormScaleOp)
    ]
    if norms:
        outputs = [output for value, output in context.outputs if value.owner is op]
        _Norm(context, body, norms[0], outputs, beside, rows).emit(across)
    else:
        _sum_up(context, body, sums, beside, rows, across)
    grid = row_tiling(x[0], x[1], rows_tile).tiles
    return [[context.template(body, 0, grid)]]


def _sum_up(
    context: LaunchContext,
    body: Body,
    sums: Sequence[nn.SumSquaresOp],
    beside: Sequence[tuple[SSAValue, Buffer]],
    rows: Rows,
    across: int,
) -> None:
    columns = context.tile[1]
    squares: dict[SSAValue, SSAValue] = {}
    for op in sums:
        squares[op.result] = body.tile("squares", rows.count, 1, register=True)
        body.vector("zero", squares[op.result])

    def step(column: Expression) -> None:
        block = Block(context, body, rows, column, columns)
        for op in sums:
            body.vector("row_sum_squares_add", squares[op.result], block.value(op.input))
        store_columns(block, beside)

    if across == 1:
        step(Const(0))
    else:
        with body.loop("c", 0, across, stages=2) as c:
            step(c * columns)
    stored = {value for value, _ in beside}
    behind = Block(context, body, rows, Const(0), 1, dict(squares))
    store_columns(behind, [pair for pair in context.outputs if pair[0] not in stored])


@dataclass(frozen=True)
class _Norm:
    """Some rows that are normalised into ``outputs``; results ``beside`` are stored on the way."""

    context: LaunchContext
    body: Body
    op: nn.RmsNormOp
    outputs: Sequence[Buffer]
    beside: Sequence[tuple[SSAValue, Buffer]]
    rows: Rows

    def emit(self, across: int) -> None:
        """The rows in ``across`` tiles of columns."""
        columns = self.context.tile[1]
        squares = self.body.tile("squares", self.rows.count, 1, register=True)
        self.body.vector("zero", squares)
        if self._is_held(across):
            # All of them, and the weights, are on their way before the first is waited for.
            blocks = [self._at(Const(step * columns)) for step in range(across)]
            for block in blocks:
                block.value(self.op.input)
            for block in blocks:
                block.weight(self.op.weight)
            for block in blocks:
                self._square(block, squares)
            for block in blocks:
                self._apply(block, squares)
            return
        with self.body.loop("c", 0, across, stages=2) as c:
            self._square(self._at(c * columns), squares)
        with self.body.loop("c", 0, across, stages=2) as c:
            self._apply(self._at(c * columns), squares)

    def _is_held(self, across: int) -> bool:
        """Whether registers hold the rows until the sum of squares is known."""
        x, target = self.op.input, self.context.target
        if across == 1 or not isinstance(x, BlockArgument) or across > HELD_TILES:
            return across == 1
        width = tensor_shape(x)[2] * self.context.buffer(x).element_bytes
        return holds_rows(self.rows.count, width, target.registers_bytes_per_cu)

    def _at(self, column: Expression) -> Block:
        return Block(self.context, self.body, self.rows, column, self.context.tile[1])

    def _square(self, block: Block, squares: SSAValue) -> None:
        self.body.vector("row_sum_squares_add", squares, block.value(self.op.input))
        store_columns(block, self.beside)

    def _apply(self, block: Block, squares: SSAValue) -> None:
        op, rows = self.op, self.rows
        scale = block.weight(op.weight)
        result = block.new("y", self.outputs[0].element_type)
        params = [tensor_shape(op.input)[2], float(op.eps.value.data)]
        self.body.vector("rms_apply", result, block.value(op.input), squares, scale, params=params)
        for output in self.outputs:
            self.body.store(result, output, rows.starts(block.column), rows.extents(block.columns))
