"""Elementwise chains: a tile of rows and columns a workgroup."""

from __future__ import annotations

from xdsl.ir import SSAValue

from starc.kernel_bodies.body import Buffer, Template
from starc.kernel_bodies.context import (
    WORKGROUP,
    LaunchContext,
    tensor_shape,
)
from starc.kernel_bodies.rows.blocks import Block, operation, store_columns, tile_count, tile_of


def lower_elementwise(context: LaunchContext) -> list[list[Template]]:
    """One workgroup a tile of rows x columns of each part."""
    parts = enumerate(context.outputs)
    return [[elementwise_part(context, part, *output) for part, output in parts]]


def elementwise_part(
    context: LaunchContext, part: int, value: SSAValue, output: Buffer
) -> Template:
    """The template of one part, which may stand beside parts of another kind, such as the rotated
    queries beside appends."""
    body = context.body(operation(value))
    shape = tensor_shape(value)
    rows, column = tile_of(context, body, shape, WORKGROUP)
    columns = 1 if shape[2] == 1 else context.tile[1]
    store_columns(Block(context, body, rows, column, columns), [(value, output)])
    return context.template(body, part, tile_count(context, shape))
