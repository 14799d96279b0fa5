"""Matrix products: a loop over K of loads and a matrix instruction, shares of K combined in order.

Workgroup w of a part computes one tile of its output, or a share of K of it. Shares are combined by
adding them in the order of their numbers, so that the result does not depend on who came first:
with ``owner`` share 0 keeps its part in registers and waits for the others'; with ``kernel`` a
second launch reads all of them.

With ``streams`` workgroups stay: each takes an equal run of the steps of several tiles (stream-K),
then whole tiles. The one that has the first step of a tile owns it, and it comes to that tile last,
when those that have the rest began with it; all are resident.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from xdsl.ir import SSAValue

from starc.core.kernel_schedules.tile_estimates import stream_rounds
from starc.core.quasi_affine.expressions import Expression, maximum, minimum
from starc.core.tiling import ceil_div, row_tiling, slice_rows
from starc.dialects import nn
from starc.dialects.kernel_fusion import GemmPart, gemm_parts, is_fused
from starc.kernel_bodies.body import Body, Buffer, Template
from starc.kernel_bodies.context import (
    WORKGROUP,
    LaunchContext,
    Rows,
    row_factors,
    take_rows,
    tensor_shape,
)
from starc.kernel_bodies.gemm.fused import lower_fused_gemm


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
        if context.launch.streams is not None:
            first.append(_streams(context, number, part, output, tiles, first_tile))
            first_tile += tiles.count
            continue
        first.append(_product(context, number, part, output, tiles, first_tile))
        if context.combine == "kernel":
            second.append(_combination(context, number, part, output, tiles, first_tile))
        first_tile += tiles.count
    if context.combine == "owner" or context.launch.streams is not None:
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
        sharing = context.launch.integer("multicast")
        # Neighbours have a column of tiles in common, or where they are not walked in groups a row.
        self.row_sharing = sharing if self.group == 1 else 1
        self.column_sharing = sharing if self.group > 1 and self.group % sharing == 0 else 1
        self.stays = context.launch.streams is not None

    def locate(self, body: Body, number: Expression) -> tuple[Expression, Rows, Expression]:
        """Tile number, rows and first column of the ``number``-th workgroup of a share."""
        tile = number
        if self.dies > 1 and not self.stays:
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
    _multiply(context, body, linear, tiles, rows, column, accumulator, (lower, upper))

    finish = partial(finish_tile, context, body, part, accumulator, output, tiles, rows, column)
    if share is None:
        finish()
        return context.template(body, number_of_part, tiles.count)
    workspace = context.workspace[0]
    number = body.index("slot", tile + first_tile)
    if context.combine == "kernel":
        body.store(accumulator, workspace, [share, number, 0, 0])
        return context.template(body, number_of_part, tiles.count * split)
    counter = f"{context.name}.shares"
    with body.when(-share):
        body.wait(counter, number, split - 1)
        shares = context.split - 1
        add_shares(context, body, accumulator, tiles, (0, number), shares, is_share=True)
        finish()
    with body.when(share - 1):
        body.store(accumulator, workspace, [share - 1, number, 0, 0])
        body.signal(counter, number)
    return context.template(body, number_of_part, tiles.count * split, waits=True)


def _multiply(
    context: LaunchContext,
    body: Body,
    linear: nn.LinearOp,
    tiles: _Tiles,
    rows: Rows,
    column: Expression,
    accumulator: SSAValue,
    steps: tuple[Expression | int, Expression | int],
) -> None:
    """The loop over some steps of K."""
    x, weight = context.buffer(linear.input), context.buffer(linear.weight)
    with body.loop("k", *steps, stages=context.launch.integer("stages")) as k:
        a = body.tile("a", rows.count, tiles.step, x.element_type, register=False)
        b = body.tile("b", tiles.step, tiles.columns, weight.element_type, register=False)
        start, box = rows.starts(k * tiles.step), rows.extents(tiles.step)
        body.load(a, x, start, box, multicast=tiles.row_sharing)
        body.load(b, weight, [k * tiles.step, column], multicast=tiles.column_sharing)
        body.matrix(accumulator, a, b)


@dataclass(frozen=True)
class _Stream:
    """A workgroup that stays: its place among ``streams``, and the tiles that it works on."""

    context: LaunchContext
    body: Body
    part: GemmPart
    output: Buffer
    tiles: _Tiles
    first_tile: int
    place: Expression
    accumulator: SSAValue
    before: int  # workgroups of the parts before

    @property
    def steps(self) -> int:
        """Steps of K of a tile."""
        return ceil_div(self.tiles.inner, self.tiles.step)

    def shared_tiles(self, shared: int, streams: int) -> None:
        """An equal run of the steps of ``shared`` tiles."""
        body, steps, place = self.body, self.steps, self.place
        width = ceil_div(shared * steps, streams)
        first = body.index("first", minimum(place * width, shared * steps))
        end = body.index("end", minimum(first + width, shared * steps))
        with body.loop("t", first // steps, (end + (steps - 1)) // steps) as t:
            tile, rows, column = self.tiles.locate(body, t)
            body.vector("zero", self.accumulator)
            lower = body.index("lower", maximum(first - t * steps, 0))
            upper = body.index("upper", minimum(end - t * steps, steps))
            self._multiply(rows, column, lower, upper)
            slot = body.index("slot", tile + self.first_tile)
            counter, workspace = f"{self.context.name}.shares", self.context.workspace[0]
            with body.when(-lower):
                others = body.index("others", (t * steps + (steps - 1)) // width - place)
                with body.when(others - 1):
                    body.wait(counter, slot, others)
                    begin = (0, place + (1 + self.before))
                    add_shares(self.context, body, self.accumulator, self.tiles, begin, others)
                self._finish(rows, column)
            with body.when(lower - 1):
                body.store(self.accumulator, workspace, [0, place + self.before, 0, 0])
                body.signal(counter, slot)

    def whole_tiles(self, rounds: int, shared: int, streams: int) -> None:
        """Tiles behind the shared ones, one a round."""
        body = self.body
        with body.loop("round", 0, rounds) as turn:
            _, rows, column = self.tiles.locate(body, turn * streams + self.place + shared)
            body.vector("zero", self.accumulator)
            self._multiply(rows, column, 0, self.steps)
            self._finish(rows, column)

    def _multiply(
        self, rows: Rows, column: Expression, lower: Expression | int, upper: Expression | int
    ) -> None:
        linear, accumulator = self.part.linear, self.accumulator
        steps = (lower, upper)
        _multiply(self.context, self.body, linear, self.tiles, rows, column, accumulator, steps)
        # The stream goes on when the last product is done: then nothing reads the scratch memory.
        self.body.vector("copy", accumulator, accumulator)

    def _finish(self, rows: Rows, column: Expression) -> None:
        finish_tile(
            self.context,
            self.body,
            self.part,
            self.accumulator,
            self.output,
            self.tiles,
            rows,
            column,
        )


def _streams(
    context: LaunchContext,
    number_of_part: int,
    part: GemmPart,
    output: Buffer,
    tiles: _Tiles,
    first_tile: int,
) -> Template:
    """The template of workgroups that stay: shared tiles, then whole ones."""
    launch = context.launch
    body = context.body(part.linear)
    streams = context.grid[number_of_part]
    most = launch.integer("whole_rounds") if launch.whole_rounds is not None else None
    rounds = stream_rounds(tiles.count, streams, most)
    shared = tiles.count - rounds * streams
    place: Expression = WORKGROUP
    if tiles.dies > 1:
        place = WORKGROUP % tiles.dies * (streams // tiles.dies) + WORKGROUP // tiles.dies
        place = body.index("place", place)
    accumulator = body.tile("acc", tiles.rows.rows, tiles.columns, register=True)
    before = sum(context.grid[:number_of_part])
    stream = _Stream(context, body, part, output, tiles, first_tile, place, accumulator, before)
    stream.shared_tiles(shared, streams)
    if rounds:
        stream.whole_tiles(rounds, shared, streams)
    return context.template(body, number_of_part, streams, waits=True)


def finish_tile(
    context: LaunchContext,
    body: Body,
    part: GemmPart,
    accumulator: SSAValue,
    output: Buffer,
    tiles: _Tiles,
    rows: Rows,
    column: Expression,
) -> None:
    """Scales the rows of a finished tile and stores it."""
    scale_tile(context, body, part, accumulator, rows.starts(0), rows.extents(1))
    body.store(accumulator, output, rows.starts(column), rows.extents(tiles.columns))


def add_shares(
    context: LaunchContext,
    body: Body,
    accumulator: SSAValue,
    tiles: _Tiles,
    place: tuple[Expression | int, Expression | int],
    count: Expression | int,
    *,
    is_share: bool = False,
) -> None:
    """Adds ``count`` other shares of a tile, in order. ``place`` is where the first of them lies in
    the workspace; the next one is the next share, or the next tile.

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
    with body.loop("other", 0, count, stages=max(1, slots)) as other:
        tile = body.tile("other_acc", rows, columns, register=slots == 0)
        share, number = place
        start = [other + share, number] if is_share else [share, other + number]
        body.load(tile, context.workspace[0], [*start, 0, 0], acquire=True)
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
