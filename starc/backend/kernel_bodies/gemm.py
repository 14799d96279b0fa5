"""Matrix products: a loop over K of loads and a matrix instruction, shares of K combined in order.

Workgroup w of a part computes one tile of its output, or a share of K of it. Shares are combined by
adding them in the order of their numbers, so that the result does not depend on who came first:
with ``owner`` share 0 keeps its part in registers and waits for the others'; with ``kernel`` a
second launch reads all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from starc.backend.kernel_bodies.body import Body, Buffer, Template
from starc.backend.kernel_bodies.context import (
    WORKGROUP,
    LaunchContext,
    Rows,
    row_factors,
    slice_rows,
    take_rows,
    tensor_shape,
)
from starc.backend.kernel_bodies.fused_gemm import lower_fused_gemm
from starc.core.quasi_affine import Expression, minimum
from starc.core.tiling import ceil_div, row_tiling
from starc.dialects import nn
from starc.dialects.kernel_fusion import GemmPart, gemm_parts, is_fused


def lower_gemm(context: LaunchContext) -> list[list[Template]]:
    """The templates of the launch and, where a second launch combines shares, of that."""
    if is_fused(context.launch):
        return lower_fused_gemm(context)
    first: list[Template] = []
    second: list[Template] = []
    first_tile = 0
    parts = gemm_parts(context.launch)
    for number, (part, (_, output)) in enumerate(zip(parts, context.outputs, strict=True)):
        tiles = _Tiles(context, part.linear)
        first.append(_product(context, number, part, output, tiles, first_tile))
        if context.combine == "kernel":
            second.append(_combination(context, number, part, output, tiles, first_tile))
        first_tile += tiles.count
    if context.combine == "owner":
        context.counter("shares", first_tile)
    return [first, second] if second else [first]


class _Tiles:
    """The tiles of one part's output and how workgroups walk them."""

    def __init__(self, context: LaunchContext, linear: nn.LinearOp) -> None:
        m, self.columns, self.step = context.tile
        self.shape = tensor_shape(linear.result)
        self.inner = tensor_shape(linear.input)[-1]
        self.m = m
        self.rows = row_tiling(self.shape[0], self.shape[1], m)
        self.row_tiles = self.rows.tiles
        self.column_tiles = ceil_div(self.shape[2], self.columns)
        self.count = self.row_tiles * self.column_tiles
        self.group, self.dies = context.launch.integers("swizzle") or (1, 1)

    def locate(self, body: Body, number: Expression) -> tuple[Expression, Rows, Expression]:
        """Tile number, rows and first column of the ``number``-th workgroup of a share."""
        tile = number
        if self.dies > 1:
            tile = number % self.dies * (self.count // self.dies) + number // self.dies
        tile = body.index("tile", tile)
        band = self.group * self.column_tiles
        column = body.index("column", tile % band // self.group * self.columns)
        row = tile // band * self.group + tile % self.group
        return tile, take_rows(body, self.shape, self.m, body.index("row", row)), column


def _product(
    context: LaunchContext,
    number_of_part: int,
    part: GemmPart,
    output: Buffer,
    tiles: _Tiles,
    first_tile: int,
) -> Template:
    linear = part.linear
    body = context.body(linear)
    split = context.split
    number: Expression = WORKGROUP
    share: Expression | None = None
    if split > 1:
        share = body.index("share", WORKGROUP // tiles.count)
        number = WORKGROUP % tiles.count
    tile, rows, column = tiles.locate(body, number)
    steps = ceil_div(tiles.inner, tiles.step)
    accumulator = body.tile("acc", rows.count, tiles.columns, register=True)
    body.vector("zero", accumulator)
    lower, upper = 0, steps
    if share is not None:
        width = ceil_div(steps, split)
        lower, upper = share * width, minimum(share * width + width, steps)
    x, weight = context.buffer(linear.input), context.buffer(linear.weight)
    with body.loop("k", lower, upper, stages=context.launch.integer("stages")) as k:
        a = body.tile("a", rows.count, tiles.step, x.element_type, register=False)
        b = body.tile("b", tiles.step, tiles.columns, weight.element_type, register=False)
        body.load(a, x, rows.starts(k * tiles.step), rows.extents(tiles.step))
        body.load(b, weight, [k * tiles.step, column])
        body.matrix(accumulator, a, b)

    def finish() -> None:
        scale_tile(context, body, part, accumulator, rows.starts(0), rows.extents(1))
        body.store(accumulator, output, rows.starts(column), rows.extents(tiles.columns))

    if share is None:
        finish()
        return context.template(body, number_of_part, tiles.count)
    partial = context.workspace[0]
    number = body.index("slot", tile + first_tile)
    if context.combine == "kernel":
        body.store(accumulator, partial, [share, number, 0, 0])
        return context.template(body, number_of_part, tiles.count * split)
    counter = f"{context.name}.shares"
    with body.when(-share):
        body.wait(counter, number, split - 1)
        add_shares(context, body, accumulator, tiles, number)
        finish()
    with body.when(share - 1):
        body.store(accumulator, partial, [share - 1, number, 0, 0])
        body.signal(counter, number)
    return context.template(body, number_of_part, tiles.count * split, waits=True)


def add_shares(
    context: LaunchContext, body: Body, accumulator: SSAValue, tiles: _Tiles, number: Expression
) -> None:
    """Adds the other shares of a tile to share 0, in order.

    They pass through the scratch memory that the loop over K has left, and through registers
    where a share does not fit there, so that a workgroup needs no more than that loop did.
    """
    launch = context.launch
    rows, columns = tiles.rows.rows, tiles.columns
    width = context.buffer(gemm_parts(launch)[0].linear.weight).element_bytes
    free = launch.integer("stages") * (rows + columns) * tiles.step * width
    slots = min(launch.integer("combine_stages", 2), free // (rows * columns * 4))
    # The stream goes on here only when the last product is done: then nothing reads the scratch
    # memory that the loads below take over.
    body.vector("copy", accumulator, accumulator)
    with body.loop("other", 0, context.split - 1, stages=max(1, slots)) as other:
        tile = body.tile("other_acc", rows, columns, register=slots == 0)
        body.load(tile, context.workspace[0], [other, number, 0, 0], acquire=True)
        body.vector("add", accumulator, accumulator, tile)


def _combination(
    context: LaunchContext,
    number_of_part: int,
    part: GemmPart,
    output: Buffer,
    tiles: _Tiles,
    first_tile: int,
) -> Template:
    """The template that adds the shares of some rows of a tile and stores the result."""
    body = context.body(part.linear)
    tiling = tiles.rows
    limit = context.launch.integer("combine_rows", tiling.rows)
    piece = slice_rows(tiling.sequences, tiling.positions, limit)
    number, part_of_tile = WORKGROUP // piece.count, WORKGROUP % piece.count
    tile, rows, column = tiles.locate(body, body.index("whole", number))
    slot = body.index("slot", tile + first_tile)
    first = body.index("first", part_of_tile * piece.rows)
    accumulator = body.tile("acc", piece.rows, tiles.columns, register=True)
    body.vector("zero", accumulator)
    with body.loop(
        "share", 0, context.split, stages=context.launch.integer("combine_stages", 2)
    ) as share:
        other = body.tile("other_acc", piece.rows, tiles.columns, register=True)
        body.load(other, context.workspace[0], [share, slot, first, 0], acquire=True)
        body.vector("add", accumulator, accumulator, other)
    sequence = rows.sequence + first // tiling.positions
    position = rows.position + first % tiling.positions
    box = [piece.outer, piece.inner]
    scale_tile(context, body, part, accumulator, [sequence, position, 0], [*box, 1])
    body.store(accumulator, output, [sequence, position, column], [*box, tiles.columns])
    return context.template(body, number_of_part, tiles.count * piece.count, suffix=".combine")


def scale_tile(
    context: LaunchContext,
    body: Body,
    part: GemmPart,
    accumulator: SSAValue,
    starts: Sequence[Expression | int],
    extents: Sequence[int],
) -> None:
    """Multiplies the rows of a finished tile with their factors, of a part that has some."""
    if part.scale is None:
        return
    factors = row_factors(context, body, part.scale, starts, extents)
    body.vector("rescale", accumulator, factors)


def gemm_facts(context: LaunchContext) -> dict[str, int]:
    """m, n, k and FLOP of the launch, all parts together."""
    linears = [part.linear for part in gemm_parts(context.launch)]
    shape = tensor_shape(linears[0].input)
    m, k = shape[0] * shape[1], shape[2]
    n = sum(tensor_shape(linear.weight)[1] for linear in linears)
    return {"m": m, "n": n, "k": k, "flops": 2 * m * n * k}
