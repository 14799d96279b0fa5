"""Matrix products that exchange data with their peers while they compute.

**Pull.** The input lies in slices of K on the devices of a group. Every device tells the others at
the start of its launch that its slice is there (its earlier launches have ended). A workgroup first
multiplies the slice of its own device, then goes round the group from the rank behind its own, so
that no two devices read the same slice at the same time. Slices of peers are read by every
workgroup that needs them, past the L2 (``uncached``) or through it (``cached``); or some workgroups
copy them to a local buffer, slice by slice, and the others wait for the slices as they need them
(``staged``).

**Push.** The result is a partial sum of the devices of a group. Each result tile is put into the
staging slot for this rank as soon as it is done, and a signal says so: at the owner of its columns,
tiles that peers own first, or at all devices of the group, where everybody needs the sum or its
rows have different owners. Behind its products a device adds the slots of all ranks in ascending
order, its own among them, so that the bits do not depend on who came first, and goes on with the
sums while they are in registers: rotation by position (linear, so that it may come behind the sum),
elementwise operations, sums of squares of whole rows, rows that go to their places in a cache.

A launch has at most as many workgroups as are resident: workgroup w of a part of g takes the tiles
w, w + g, ..., and behind them units of sums, so that nothing that peers wait for stands behind a
wait for peers.

Where all of this is too long for one kernel, the sums are a launch of their own.

The costs of unfused kernels can be put back one by one (``unfuse``): ``hbm`` (pull: ``staged``;
push: tiles go through a local buffer), ``sync`` (nobody goes on before everything of everybody is
there), ``launch`` (the waiting side is a launch of its own).
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from starc.backend.program import MAX_RECORDS
from starc.core.quasi_affine.expressions import Expression
from starc.dialects import isa
from starc.dialects.kernel_fusion import (
    GemmPart,
    collections_of,
    gemm_parts,
    pulled,
)
from starc.kernel_bodies.body import Body, Template
from starc.kernel_bodies.context import (
    LaunchContext,
    row_factors,
)
from starc.kernel_bodies.gemm.fused_sums import Sums
from starc.kernel_bodies.gemm.fused_tiles import FusedTiles, TilePlace, in_turns
from starc.kernel_bodies.gemm.pulled_slices import Product, PulledSlices
from starc.kernel_bodies.peers import Group


def lower_fused_gemm(context: LaunchContext) -> list[list[Template]]:
    """The templates of the launch; of two launches where ``unfuse`` asks for it."""
    return _FusedGemm(context).lower()


class _FusedGemm:
    def __init__(self, context: LaunchContext) -> None:
        self.context = context
        self.launch = context.launch
        self.parts = gemm_parts(context.launch)
        self.taxes = self.launch.taxes
        self.outputs = {
            number: context.outputs[collection.outputs[0]][1]
            for collection in collections_of(context.launch)
            for number in collection.parts
            if self.parts[number].reduction is None
        }
        self.tiles = [FusedTiles(context, part) for part in self.parts]
        self.sums = Sums(context, self.parts, self.tiles)
        self.is_split = "launch" in self.taxes
        workspace = list(context.workspace)
        gather = pulled(context.launch)
        self.slices: PulledSlices | None = None
        if gather is not None:
            self.slices = PulledSlices(context, gather, workspace, len(self.parts))
        self.through = [
            workspace.pop(0) if part.reduction is not None and "hbm" in self.taxes else None
            for part in self.parts
        ]
        self.shares = workspace[0] if workspace else None
        self.sums_apart = self.is_split

    def lower(self) -> list[list[Template]]:
        context = self.context
        before: list[Template] = []
        products: list[Template] = []
        after: list[Template] = []
        if self.slices is not None:
            self.slices.declare()
            if self.slices.gathered is not None:
                (before if self.is_split else products).append(self.slices.copy())
            elif self.is_split:
                before.append(self.slices.meet())
        found = self._products()
        if any(_records(template) > MAX_RECORDS for template in found):
            # What follows the sums makes the kernel too long: they are a launch of their own.
            self.sums_apart = True
            found = self._products()
        products += found
        if self.sums_apart:
            after = self.sums.templates()
        self.sums.declare()
        if context.split > 1:
            context.counter("shares", sum(tiles.count for tiles in self.tiles))
        return [group for group in (before, products, after) if group]

    def _products(self) -> list[Template]:
        found: list[Template] = []
        first = 0
        for number, (part, tiles) in enumerate(zip(self.parts, self.tiles, strict=True)):
            found.append(self._product(number, part, tiles, first))
            first += tiles.count
        return found

    # Products

    def _product(self, number: int, part: GemmPart, tiles: FusedTiles, first: int) -> Template:
        context = self.context
        body = context.body(part.linear)
        split = context.split
        grid = context.grid[number]
        items = tiles.count * split
        group = None
        if self.slices is not None:
            group = self.slices.group(body)
            if number == 0 and self.slices.gathered is None and not self.is_split:
                self.slices.tell(body, group)
        receivers = None
        if part.reduction is not None:
            receivers = group
            if group is None or group.axes != tuple(part.reduction.axes.data):
                receivers = Group.of(body, context.mesh, part.reduction.axes.data)
        waits = bool(context.counters) or split > 1 or receivers is not None
        with in_turns(body, items, grid) as (item, turn):
            share: Expression | None = None
            if split > 1:
                share = body.index("share", item // tiles.count)
                item = body.index("number", item % tiles.count)
            place = tiles.locate(body, item, receivers)
            accumulator = body.tile("acc", place.rows.count, tiles.columns, register=True)
            body.vector("zero", accumulator)
            product = Product(
                context, body, part.linear, tiles.step, tiles.columns, place, accumulator, share
            )
            if self.slices is None or group is None:
                product.over_own()
            else:
                product.over_slices(self.slices, group, turn)
            if share is None:
                self._finish(body, number, part, tiles, place, accumulator, receivers)
            else:
                slot = body.index("slot", place.number + first)
                counter = f"{context.name}.shares"
                assert self.shares is not None
                with body.when(-share):
                    body.wait(counter, slot, split - 1)
                    self._add_shares(body, part, tiles, accumulator, slot)
                    self._finish(body, number, part, tiles, place, accumulator, receivers)
                with body.when(share - 1):
                    body.store(accumulator, self.shares, [share - 1, slot, 0, 0])
                    body.signal(counter, slot)
        if receivers is not None and not self.sums_apart:
            self.sums.add(body, number, receivers, grid)
        count = len(self.parts)
        return context.template(body, number, grid, waits=waits, parts=count)

    def _add_shares(
        self, body: Body, part: GemmPart, tiles: FusedTiles, accumulator: SSAValue, slot: Expression
    ) -> None:
        """Adds the other shares of a tile to share 0, in order."""
        assert self.shares is not None
        rows, columns = tiles.rows.rows, tiles.columns
        width = self.context.buffer(part.linear.weight).element_bytes
        free = self.launch.integer("stages") * (rows + columns) * tiles.step * width
        slots = min(self.launch.integer("combine_stages", 2), free // (rows * columns * 4))
        body.vector("copy", accumulator, accumulator)
        with body.loop("other", 0, self.context.split - 1, stages=max(1, slots)) as other:
            tile = body.tile("other_acc", rows, columns, register=slots == 0)
            body.load(tile, self.shares, [other, slot, 0, 0], acquire=True)
            body.vector("add", accumulator, accumulator, tile)

    # Results

    def _finish(
        self,
        body: Body,
        number: int,
        part: GemmPart,
        tiles: FusedTiles,
        place: TilePlace,
        accumulator: SSAValue,
        receivers: Group | None,
    ) -> None:
        """Scales the rows of a finished tile and stores it, or sends it to those who add it up."""
        context, rows = self.context, place.rows
        if part.scale is not None:
            starts, extents = rows.starts(0), rows.extents(1)
            factors = row_factors(context, body, part.scale, starts, extents)
            body.vector("rescale", accumulator, factors)
        if receivers is None:
            output = self.outputs[number]
            body.store(accumulator, output, rows.starts(place.column), rows.extents(tiles.columns))
            return
        sent = accumulator
        through = self.through[number]
        if through is not None:
            body.store(accumulator, through, [place.number, 0, 0])
            sent = body.tile(
                "again", rows.count, tiles.columns, through.element_type, register=True
            )
            body.load(sent, through, [place.number, 0, 0], acquire=True)
        self.sums.send(body, number, place, sent, receivers)


def _records(template: Template) -> int:
    """Records of a program that a template takes."""
    ops = [
        op for op in template.kernel.body.walk() if not isinstance(op, isa.IndexOp | isa.AllocOp)
    ]
    return len(ops) + sum(isinstance(op, isa.LoopOp | isa.IfOp) for op in ops)
