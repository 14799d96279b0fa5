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

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from starc.core.quasi_affine.expressions import Const, Expression
from starc.dialects import nn
from starc.dialects.collective import AllReduceOp
from starc.dialects.kernel_fusion import Collection, GemmPart, collections_of, summed_rows
from starc.kernel_bodies.body import Body, Buffer, Template
from starc.kernel_bodies.context import LaunchContext
from starc.kernel_bodies.gemm.fused_tiles import FusedTiles, TilePlace
from starc.kernel_bodies.gemm.sum_units import SumSlots, SumUnits, put_to_all
from starc.kernel_bodies.peers import Group
from starc.kernel_bodies.shards import shard_of


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

        self.slots = SumSlots(
            context,
            parts,
            tiles,
            self.staging,
            self.joined,
            self.first,
            self.in_rows,
            self.taxes,
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
        put_to_all(body, receivers, tile, staging, starts, box, counter, element)

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
        units = SumUnits(self.slots, body, collection, receivers, grid, outputs)
        squares = self._squares(collection)
        appends = [op for value, _ in outputs if isinstance(op := value.owner, nn.AppendOp)]
        if any(not shard_of(op.result, 2, self.context.mesh).is_whole for op in appends):
            units.rows_to_caches()
        elif squares:
            units.whole_rows(squares)
        else:
            units.of_tiles()

    def _squares(self, collection: Collection) -> list[nn.SumSquaresOp]:
        """The sums of squares that a collection yields."""
        yielded = [self.context.launch.yielded[position] for position in collection.outputs]
        owners = [value.owner for value in yielded if isinstance(value.owner, Operation)]
        found = [summed_rows(op) or op for op in owners]
        return [op for op in found if isinstance(op, nn.SumSquaresOp)]
