"""The sums over ranks behind products that push their tiles, and what is made of them.

A device receives from every rank of a group, itself among them, a part of the same partial result:
the columns that it owns, or all of it. It lies in a staging buffer
``[rank, batch, query, column]``, and every tile of it has a counter that all ranks signal.
Workgroups take *units* of the sums:

- tiles, of whole heads where rows are rotated by their positions;
- some whole rows, where their squares are summed, which may go on to be added up over the devices
  among which the columns are split;
- the rows of one head and sequence, where they go to a cache that is split by positions: each row
  to where the device holds its position, if it does.

A unit waits for the tiles that it needs, adds the ranks in ascending order in f32, and computes and
stores what the launch yields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from xdsl.ir import Operation, SSAValue

from starc.core.quasi_affine.expressions import Const, Expression, minimum
from starc.core.tiling import RowTiling, ceil_div, slice_rows
from starc.dialects import nn
from starc.dialects.collective import AllReduceOp
from starc.dialects.kernel_fusion import Collection, GemmPart, collections_of, summed_rows
from starc.kernel_bodies.body import Body, Buffer, Template
from starc.kernel_bodies.context import LaunchContext, Rows, take_rows
from starc.kernel_bodies.gemm.fused_tiles import FusedTiles, TilePlace, in_turns
from starc.kernel_bodies.peers import Group
from starc.kernel_bodies.rows.blocks import Block
from starc.kernel_bodies.shards import global_row, shard_of

PIECE_BYTES: Final = 16384
"""Registers that a piece of a sum takes."""
WHOLE_ROW_COLUMNS: Final = 1024
"""Columns of whole rows that are summed at once."""


class Sums:
    """The sums of one launch, by collections of parts."""

    def __init__(
        self, context: LaunchContext, parts: Sequence[GemmPart], tiles: Sequence[FusedTiles]
    ) -> None:
        self.context = context
        self.parts = parts
        self.tiles = tiles
        self.taxes = context.launch.taxes
        staging = iter(context.launch.staging_names)
        self.staging: dict[int, Buffer] = {}
        self.first: dict[int, int] = {}
        self.count = 0
        for number, part in enumerate(parts):
            if part.reduction is not None:
                self.staging[number] = context.buffers[next(staging)]
        self.joined: dict[AllReduceOp, Buffer] = {
            op: context.buffers[next(staging)]
            for op in context.launch.block.ops
            if isinstance(op, AllReduceOp) and summed_rows(op) is not None
        }
        self.collections = [
            collection
            for collection in collections_of(context.launch)
            if collection.parts[0] in self.staging
        ]
        # A row of tiles has one counter where whole rows are needed.
        self.in_rows = {
            number
            for collection in self.collections
            if self._squares(collection)
            for number in collection.parts
        }
        for number in self.staging:
            self.first[number] = self.count
            self.count += (
                tiles[number].rows.tiles if number in self.in_rows else tiles[number].local
            )

    def declare(self) -> None:
        """Declares the counters of arrivals."""
        if self.count:
            self.context.counter("arrived", 1 if "sync" in self.taxes else self.count)

    # Tiles that are sent

    def send(
        self, body: Body, number: int, place: TilePlace, tile: SSAValue, receivers: Group
    ) -> None:
        """Puts a finished tile to those who add it up, and tells them."""
        staging, rows = self.staging[number], place.rows
        columns = self.tiles[number].columns
        starts = [receivers.rank, *rows.starts(place.within)]
        box = [1, *rows.extents(columns)]
        counter = f"{self.context.name}.arrived"
        element: Expression = Const(0)
        if "sync" not in self.taxes:
            slot = place.row if number in self.in_rows else place.slot
            element = body.index("slot", slot + self.first[number])
        if place.hop is not None and place.owner is not None:
            with body.when(receivers.size - 1 - place.hop):
                body.put(tile, staging, starts, place.owner, box)
                body.signal(counter, element, 1, place.owner)
            with body.when(place.hop - receivers.size):
                body.store(tile, staging, starts, box)
                body.signal(counter, element)
            return
        _to_all(body, receivers, tile, staging, starts, box, counter, element)

    # Units of sums

    def add(self, body: Body, number: int, receivers: Group, grid: int) -> None:
        """The units of the collection that ends with a part, of ``grid`` workgroups."""
        for collection in self.collections:
            if collection.parts[-1] == number:
                self._collect(body, collection, receivers, grid)

    def templates(self) -> list[Template]:
        """The sums as a launch of their own."""
        context = self.context
        result: list[Template] = []
        for collection in self.collections:
            number = collection.parts[-1]
            reduction = self.parts[number].reduction
            assert reduction is not None
            body = context.body(reduction)
            receivers = Group.of(body, context.mesh, reduction.axes.data)
            grid = min(self.tiles[number].local, max(1, context.grid[number]))
            self._collect(body, collection, receivers, grid)
            count = len(self.parts)
            found = context.template(body, number, grid, suffix=".owner", waits=True, parts=count)
            result.append(found)
        return result

    def _collect(self, body: Body, collection: Collection, receivers: Group, grid: int) -> None:
        outputs = [self.context.outputs[position] for position in collection.outputs]
        squares = self._squares(collection)
        appends = [op for value, _ in outputs if isinstance(op := value.owner, nn.AppendOp)]
        if any(not shard_of(op.result, 2, self.context.mesh).is_whole for op in appends):
            self._rows_to_caches(body, collection, receivers, grid, outputs)
        elif squares:
            self._whole_rows(body, collection, receivers, grid, outputs, squares)
        else:
            self._tiles(body, collection, receivers, grid, outputs)

    def _squares(self, collection: Collection) -> list[nn.SumSquaresOp]:
        """The sums of squares that a collection yields."""
        yielded = [self.context.launch.yielded[position] for position in collection.outputs]
        owners = [value.owner for value in yielded if isinstance(value.owner, Operation)]
        found = [summed_rows(op) or op for op in owners]
        return [op for op in found if isinstance(op, nn.SumSquaresOp)]

    def _await(
        self,
        body: Body,
        collection: Collection,
        ranks: int,
        row: Expression,
        columns: tuple[Expression, int] | None,
    ) -> None:
        """Waits for the tiles of a row of tiles that lie in a range of columns (first, how many),
        or for all of them."""
        counter = f"{self.context.name}.arrived"
        if "sync" in self.taxes:
            total = sum(self.tiles[number].local for number in self.staging)
            body.wait(counter, 0, ranks * total)
            return
        for number in collection.parts:
            tiles = self.tiles[number]
            if number in self.in_rows:
                body.wait(counter, row + self.first[number], ranks * tiles.across)
                continue
            first: Expression = Const(0)
            count: Expression = Const(tiles.across)
            if columns is not None and tiles.across > 1:
                start, width = columns
                first = body.index("first", start // tiles.columns)
                if tiles.columns % width == 0:
                    count = Const(1)
                else:
                    last = minimum((start + (width - 1)) // tiles.columns + 1, tiles.across)
                    count = last - first
            base = row * tiles.across + (first + self.first[number])
            if count == Const(1):
                body.wait(counter, base, ranks)
            else:
                with body.loop("covered", 0, count) as covered:
                    body.wait(counter, base + covered, ranks)

    def _sum(
        self, body: Body, number: int, receivers: Group, rows: Rows, column: Expression, width: int
    ) -> SSAValue:
        """The sum over ranks of some rows and columns, rotated where the part says so."""
        staging, part = self.staging[number], self.parts[number]
        sum_ = body.tile("sum", rows.count, width, register=True)
        body.vector("zero", sum_)
        with body.loop("source", 0, receivers.size, stages=4) as source:
            one = body.tile("part", rows.count, width, staging.element_type, register=True)
            starts, box = rows.starts(column), rows.extents(width)
            body.load(one, staging, [source, *starts], [1, *box], acquire=True)
            body.vector("add", sum_, sum_, one)
        if part.rope is None:
            return sum_
        rope = part.rope
        rotated = body.tile("rotated", rows.count, width, register=True)
        params = [
            rope.head_dim.value.data,
            float(rope.theta.value.data),
            rope.start.value.data,
            part.received[1],
            rows.position,
        ]
        body.vector("rope", rotated, sum_, params=params)
        return rotated

    def _block(
        self,
        body: Body,
        collection: Collection,
        receivers: Group,
        rows: Rows,
        column: Expression,
        width: int,
    ) -> Block:
        """What rowwise operations find: the sums of all parts of a collection."""
        sums: dict[SSAValue, SSAValue] = {}
        for number in collection.parts:
            reduction = self.parts[number].reduction
            assert reduction is not None
            tile = self._sum(body, number, receivers, rows, column, width)
            sums[reduction.outputs[0]] = tile
        return Block(self.context, body, rows, column, width, sums)

    def _heads(self, collection: Collection) -> int:
        """Columns that must stay together."""
        heads = [
            part.rope.head_dim.value.data
            for part in (self.parts[number] for number in collection.parts)
            if part.rope is not None
        ]
        return max(heads, default=1)

    def _tiles(
        self,
        body: Body,
        collection: Collection,
        receivers: Group,
        grid: int,
        outputs: Sequence[tuple[SSAValue, Buffer]],
    ) -> None:
        tiles = self.tiles[collection.parts[0]]
        head = self._heads(collection)
        width = head * max(1, tiles.columns // head)
        for value, cache in outputs:
            if isinstance(value.owner, nn.AppendOp):
                width = cache.shape[3]
        across = ceil_div(tiles.width, width)
        tiling = tiles.rows
        piece = slice_rows(tiling.sequences, tiling.positions, max(1, PIECE_BYTES // (width * 4)))
        with in_turns(body, tiling.tiles * across * piece.count, grid) as (unit, _):
            column = body.index("column", unit % across * width)
            row = body.index("row", unit // across // piece.count)
            self._await(body, collection, receivers.size, row, (column, width))
            rows = self._slice(body, tiles, row, unit // across % piece.count, piece.rows)
            block = self._block(body, collection, receivers, rows, column, width)
            for value, output in outputs:
                if isinstance(value.owner, nn.AppendOp):
                    tile = block.value(value.owner.input)
                    start = value.owner.start.value.data
                    box = [rows.tiling.sequences, 1, rows.tiling.positions, width]
                    at = [rows.sequence, column // width, rows.position + start, 0]
                    body.store(tile, output, at, box)
                else:
                    tile = block.value(value)
                    body.store(tile, output, rows.starts(column), rows.extents(width))

    def _slice(
        self, body: Body, tiles: FusedTiles, row: Expression, number: Expression, limit: int
    ) -> Rows:
        """Some rows of a row tile."""
        whole = take_rows(body, tiles.shape, tiles.m, row)
        piece = slice_rows(whole.tiling.sequences, whole.tiling.positions, limit)
        if piece.count == 1:
            return whole
        first = body.index("first_row", number * piece.rows)
        positions = whole.tiling.positions
        return Rows(
            RowTiling(piece.outer, piece.inner, 1, 1),
            body.index("sequence", whole.sequence + first // positions),
            body.index("position", whole.position + first % positions),
        )

    def _whole_rows(
        self,
        body: Body,
        collection: Collection,
        receivers: Group,
        grid: int,
        outputs: Sequence[tuple[SSAValue, Buffer]],
        squares: Sequence[nn.SumSquaresOp],
    ) -> None:
        tiles = self.tiles[collection.parts[0]]
        tiling = tiles.rows
        sums = {op.result for op in squares} | {op.outputs[0] for op in self.joined}
        width = min(tiles.width, WHOLE_ROW_COLUMNS)
        each = min(ceil_div(tiling.tiles * tiling.rows, grid), PIECE_BYTES // (width * 4))
        piece = slice_rows(tiling.sequences, tiling.positions, max(1, each))
        with in_turns(body, tiling.tiles * piece.count, grid) as (unit, _):
            row = body.index("row", unit // piece.count)
            self._await(body, collection, receivers.size, row, None)
            rows = self._slice(body, tiles, row, unit % piece.count, piece.rows)
            totals: dict[SSAValue, SSAValue] = {}
            for op in squares:
                totals[op.result] = body.tile("squares", rows.count, 1, register=True)
                body.vector("zero", totals[op.result])

            def step(column: Expression) -> None:
                block = self._block(body, collection, receivers, rows, column, width)
                for op in squares:
                    total = totals[op.result]
                    body.vector("row_sum_squares_add", total, block.value(op.input))
                for value, output in outputs:
                    if value not in sums:
                        tile = block.value(value)
                        body.store(tile, output, rows.starts(column), rows.extents(width))

            if width == tiles.width:
                step(Const(0))
            else:
                with body.loop("c", 0, ceil_div(tiles.width, width)) as c:
                    step(body.index("column", c * width))
            for value, output in outputs:
                if value not in sums:
                    continue
                total = totals.get(value)
                if total is None:
                    total = self._join(body, value, totals, rows, unit, tiling.tiles * piece.count)
                body.store(total, output, rows.starts(0), rows.extents(1))

    def _join(
        self,
        body: Body,
        value: SSAValue,
        totals: Mapping[SSAValue, SSAValue],
        rows: Rows,
        unit: Expression,
        units: int,
    ) -> SSAValue:
        """The sums of squares of some rows over the devices among which the columns are split:
        each sends its own to all, and adds them up in the order of ranks."""
        op = value.owner
        assert isinstance(op, AllReduceOp)
        staging = self.joined[op]
        group = Group.of(body, self.context.mesh, op.axes.data)
        counter = self.context.counter(f"rows{list(self.joined).index(op)}", units)
        own, starts, box = totals[op.inputs[0]], rows.starts(0), [1, *rows.extents(1)]
        _to_all(body, group, own, staging, [group.rank, *starts], box, counter, unit)
        body.wait(counter, unit, group.size)
        total = body.tile("total", rows.count, 1, register=True)
        body.vector("zero", total)
        with body.loop("source", 0, group.size, stages=4) as source:
            one = body.tile("one", rows.count, 1, staging.element_type, register=True)
            body.load(one, staging, [source, *starts], box, acquire=True)
            body.vector("add", total, total, one)
        return total

    def _rows_to_caches(
        self,
        body: Body,
        collection: Collection,
        receivers: Group,
        grid: int,
        outputs: Sequence[tuple[SSAValue, Buffer]],
    ) -> None:
        """A unit is one head of the rows of one sequence in a row tile."""
        ((value, cache),) = outputs
        op = value.owner
        assert isinstance(op, nn.AppendOp)
        (number,) = collection.parts
        tiles, mesh = self.tiles[number], self.context.mesh
        start, query, d = op.start.value.data, tiles.shape[1], cache.shape[3]
        tiling = tiles.rows
        across = ceil_div(tiles.width, d)
        held = shard_of(op.result, 2, mesh)
        with in_turns(body, tiling.tiles * tiling.sequences * across, grid) as (unit, _):
            head = body.index("head", unit % across)
            number_of_row = body.index("row", unit // across // tiling.sequences)
            column = body.index("column", head * d)
            self._await(body, collection, receivers.size, number_of_row, (column, d))
            rows = take_rows(body, tiles.shape, tiles.m, number_of_row)
            within = unit // across % tiling.sequences
            sequence = body.index("sequence", rows.sequence + within)
            own = held
            if held.is_rotated:
                own = held.at_row(
                    body.index("global_row", global_row(op.result, 0, sequence, mesh))
                )
                own = own.of_rank(body.index("rank", own.rank))
            first = own.count_below(rows.position + start)
            end = minimum(rows.position + (start + tiling.positions), start + query)
            with body.loop("i", first, own.count_below(end)) as i:
                position = body.index("position", own.position(i) - start)
                one = Rows(RowTiling(1, 1, 1, 1), sequence, position)
                block = self._block(body, collection, receivers, one, column, d)
                body.store(block.value(op.input), cache, [sequence, head, i, 0], [1, 1, 1, d])


def _to_all(
    body: Body,
    group: Group,
    tile: SSAValue,
    staging: Buffer,
    starts: Sequence[Expression | int],
    box: Sequence[int],
    counter: str,
    element: Expression,
) -> None:
    """Puts a tile to every device of a group, the own one last, and tells them when all of it is on
    its way."""
    with body.loop("hop", 1, group.size + 1) as hop:
        body.put(tile, staging, starts, group.device(group.turned(hop)), box)
    with body.loop("hop", 1, group.size + 1) as hop:
        body.signal(counter, element, 1, group.device(group.turned(hop)))
