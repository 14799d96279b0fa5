"""The units of sums over ranks: what one workgroup adds up, computes and stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from xdsl.ir import SSAValue

from starc.core.quasi_affine.expressions import Const, Expression, minimum
from starc.core.tiling import RowTiling, ceil_div, slice_rows
from starc.dialects import nn
from starc.dialects.collective import AllReduceOp
from starc.dialects.kernel_fusion import Collection, GemmPart
from starc.kernel_bodies.body import Body, Buffer
from starc.kernel_bodies.context import LaunchContext, Rows, take_rows
from starc.kernel_bodies.gemm.fused_tiles import FusedTiles, in_turns
from starc.kernel_bodies.peers import Group
from starc.kernel_bodies.rows.blocks import Block
from starc.kernel_bodies.shards import global_row, shard_of

PIECE_BYTES: Final = 16384
"""Registers that a piece of a sum takes."""
WHOLE_ROW_COLUMNS: Final = 1024
"""Columns of whole rows that are summed at once."""


@dataclass(frozen=True)
class SumSlots:
    """Where what is added up lies, by part (``staging``) or by sum over devices (``joined``), and
    the counters that say so: from ``first`` of a part on, one for a row of tiles of those
    ``in_rows``, else one for each tile, or with the tax ``sync`` one for all."""

    context: LaunchContext
    parts: Sequence[GemmPart]
    tiles: Sequence[FusedTiles]
    staging: Mapping[int, Buffer]
    joined: Mapping[AllReduceOp, Buffer]
    first: Mapping[int, int]
    in_rows: AbstractSet[int]
    taxes: Sequence[str]


@dataclass(frozen=True)
class SumUnits:
    """The units of a collection of parts, whose ``outputs`` ``grid`` workgroups compute."""

    sums: SumSlots
    body: Body
    collection: Collection
    receivers: Group
    grid: int
    outputs: Sequence[tuple[SSAValue, Buffer]]

    @property
    def context(self) -> LaunchContext:
        return self.sums.context

    @property
    def tiles(self) -> FusedTiles:
        """The tiles of the parts, which are the same."""
        return self.sums.tiles[self.collection.parts[0]]

    def _await(self, row: Expression, columns: tuple[Expression, int] | None) -> None:
        """Waits for the tiles of a row of tiles that lie in a range of columns (first, how many),
        or for all of them."""
        body, sums, ranks = self.body, self.sums, self.receivers.size
        counter = f"{self.context.name}.arrived"
        if "sync" in sums.taxes:
            total = sum(sums.tiles[number].local for number in sums.staging)
            body.wait(counter, 0, ranks * total)
            return
        for number in self.collection.parts:
            tiles = sums.tiles[number]
            if number in sums.in_rows:
                body.wait(counter, row + sums.first[number], ranks * tiles.across)
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
            base = row * tiles.across + (first + sums.first[number])
            if count == Const(1):
                body.wait(counter, base, ranks)
            else:
                with body.loop("covered", 0, count) as covered:
                    body.wait(counter, base + covered, ranks)

    def _sum(self, number: int, rows: Rows, column: Expression, width: int) -> SSAValue:
        """The sum over ranks of some rows and columns, rotated where the part says so."""
        body, staging, part = self.body, self.sums.staging[number], self.sums.parts[number]
        sum_ = body.tile("sum", rows.count, width, register=True)
        body.vector("zero", sum_)
        with body.loop("source", 0, self.receivers.size, stages=4) as source:
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

    def _block(self, rows: Rows, column: Expression, width: int) -> Block:
        """What rowwise operations find: the sums of all parts of the collection."""
        sums: dict[SSAValue, SSAValue] = {}
        for number in self.collection.parts:
            reduction = self.sums.parts[number].reduction
            assert reduction is not None
            sums[reduction.outputs[0]] = self._sum(number, rows, column, width)
        return Block(self.context, self.body, rows, column, width, sums)

    def _heads(self) -> int:
        """Columns that must stay together."""
        heads = [
            part.rope.head_dim.value.data
            for part in (self.sums.parts[number] for number in self.collection.parts)
            if part.rope is not None
        ]
        return max(heads, default=1)

    def of_tiles(self) -> None:
        """A unit is some rows of a tile, of whole heads where rows are rotated."""
        body, outputs, tiles = self.body, self.outputs, self.tiles
        head = self._heads()
        width = head * max(1, tiles.columns // head)
        for value, cache in outputs:
            if isinstance(value.owner, nn.AppendOp):
                width = cache.shape[3]
        across = ceil_div(tiles.width, width)
        tiling = tiles.rows
        piece = slice_rows(tiling.sequences, tiling.positions, max(1, PIECE_BYTES // (width * 4)))
        with in_turns(body, tiling.tiles * across * piece.count, self.grid) as (unit, _):
            column = body.index("column", unit % across * width)
            row = body.index("row", unit // across // piece.count)
            self._await(row, (column, width))
            rows = self._slice(row, unit // across % piece.count, piece.rows)
            block = self._block(rows, column, width)
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

    def _slice(self, row: Expression, number: Expression, limit: int) -> Rows:
        """Some rows of a row tile."""
        body, tiles = self.body, self.tiles
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

    def whole_rows(self, squares: Sequence[nn.SumSquaresOp]) -> None:
        """A unit is some whole rows, whose squares are summed."""
        body, outputs, tiles, grid = self.body, self.outputs, self.tiles, self.grid
        tiling = tiles.rows
        sums = {op.result for op in squares} | {op.outputs[0] for op in self.sums.joined}
        width = min(tiles.width, WHOLE_ROW_COLUMNS)
        each = min(ceil_div(tiling.tiles * tiling.rows, grid), PIECE_BYTES // (width * 4))
        piece = slice_rows(tiling.sequences, tiling.positions, max(1, each))
        with in_turns(body, tiling.tiles * piece.count, self.grid) as (unit, _):
            row = body.index("row", unit // piece.count)
            self._await(row, None)
            rows = self._slice(row, unit % piece.count, piece.rows)
            totals: dict[SSAValue, SSAValue] = {}
            for op in squares:
                totals[op.result] = body.tile("squares", rows.count, 1, register=True)
                body.vector("zero", totals[op.result])

            def step(column: Expression) -> None:
                block = self._block(rows, column, width)
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
                    total = self._join(value, totals, rows, unit, tiling.tiles * piece.count)
                body.store(total, output, rows.starts(0), rows.extents(1))

    def _join(
        self,
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
        body, joined = self.body, self.sums.joined
        staging = joined[op]
        group = Group.of(body, self.context.mesh, op.axes.data)
        counter = self.context.counter(f"rows{list(joined).index(op)}", units)
        own, starts, box = totals[op.inputs[0]], rows.starts(0), [1, *rows.extents(1)]
        put_to_all(body, group, own, staging, [group.rank, *starts], box, counter, unit)
        body.wait(counter, unit, group.size)
        total = body.tile("total", rows.count, 1, register=True)
        body.vector("zero", total)
        with body.loop("source", 0, group.size, stages=4) as source:
            one = body.tile("one", rows.count, 1, staging.element_type, register=True)
            body.load(one, staging, [source, *starts], box, acquire=True)
            body.vector("add", total, total, one)
        return total

    def rows_to_caches(self) -> None:
        """A unit is one head of the rows of one sequence in a row tile."""
        body, grid = self.body, self.grid
        ((value, cache),) = self.outputs
        op = value.owner
        assert isinstance(op, nn.AppendOp)
        tiles, mesh = self.tiles, self.context.mesh
        start, query, d = op.start.value.data, tiles.shape[1], cache.shape[3]
        tiling = tiles.rows
        across = ceil_div(tiles.width, d)
        held = shard_of(op.result, 2, mesh)
        with in_turns(body, tiling.tiles * tiling.sequences * across, grid) as (unit, _):
            head = body.index("head", unit % across)
            number_of_row = body.index("row", unit // across // tiling.sequences)
            column = body.index("column", head * d)
            self._await(number_of_row, (column, d))
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
                block = self._block(one, column, d)
                body.store(block.value(op.input), cache, [sequence, head, i, 0], [1, 1, 1, d])


def put_to_all(
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
