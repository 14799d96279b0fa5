"""Rows of a table by token id, and the last rows of sequences."""

from __future__ import annotations

from xdsl.ir import SSAValue

from starc.core.quasi_affine.expressions import Const, Expression, Table
from starc.dialects import nn
from starc.dialects.sharding import encoding_of, global_shape
from starc.kernel_bodies.body import Body, Template
from starc.kernel_bodies.context import (
    DEVICE,
    WORKGROUP,
    LaunchContext,
    tensor_shape,
)
from starc.kernel_bodies.rows.blocks import Block, operation, tile_count, tile_of


def lower_embedding(context: LaunchContext) -> list[list[Template]]:
    """Rows of a table by token id, zero where another device holds the row; or the last row of
    every sequence."""
    templates: list[Template] = []
    for part, (value, output) in enumerate(context.outputs):
        op = operation(value)
        body = context.body(op)
        shape = tensor_shape(value)
        rows, column = tile_of(context, body, shape, WORKGROUP)
        columns = context.tile[1]
        block = Block(context, body, rows, column, columns)
        if isinstance(op, nn.EmbeddingOp):
            tile = _look_up(context, body, op, block)
        elif isinstance(op, nn.LastTokenOp):
            source = context.buffer(op.input)
            tile = block.new("x", source.element_type)
            last = tensor_shape(op.input)[1] - 1
            starts = [rows.sequence, rows.position + last, column]
            body.load(tile, source, starts, rows.extents(columns))
        else:
            tile = block.value(value)
        body.store(tile, output, rows.starts(column), rows.extents(columns))
        templates.append(context.template(body, part, tile_count(context, shape)))
    return [templates]


def _look_up(context: LaunchContext, body: Body, op: nn.EmbeddingOp, block: Block) -> SSAValue:
    ids, table = context.buffer(op.ids), context.buffer(op.table)
    numbers = body.tile("ids", block.rows.count, 1, ids.element_type, register=True)
    body.load(numbers, ids, block.rows.starts(), block.rows.extents())
    tile = block.new("x", table.element_type)
    body.gather(tile, numbers, table, block.column, _first_row(context, op.table))
    return tile


def _first_row(context: LaunchContext, table: SSAValue) -> Expression:
    """The global number of the first table row that a device holds."""
    type_ = table.type
    encoding = encoding_of(type_, context.mesh)
    if encoding is None or not encoding.dims[0].axes:
        return Const(0)
    extent = global_shape(type_)[0]  # type: ignore[arg-type]
    rows, ranks = encoding.dims[0].map, encoding.ranks(0)
    firsts: list[int] = []
    for coords in context.mesh.devices():
        rank = encoding.rank(0, coords)
        held = rows.count(rank, ranks, extent)
        first = rows.position(rank, 0, ranks, extent) if held else extent
        # Positions ascend, so that consecutive ones are told by the last.
        if held and rows.position(rank, held - 1, ranks, extent) != first + held - 1:
            raise ValueError("the rows of a table that a device holds must be consecutive")
        firsts.append(first)
    return _by_device(firsts)


def _by_device(values: list[int]) -> Expression:
    """An integer of each device: linear in the device where it is, else a table."""
    step = values[1] - values[0] if len(values) > 1 else 0
    if all(value == values[0] + step * i for i, value in enumerate(values)):
        return DEVICE * step + values[0]
    return Table(tuple(values), DEVICE)
