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

from collections.abc import Generator
from contextlib import contextmanager

from xdsl.ir import SSAValue

from starc.backend.program import MAX_RECORDS
from starc.core.quasi_affine.expressions import Expression, expression, maximum, minimum
from starc.core.tiling import ceil_div, row_tiling
from starc.dialects import isa
from starc.dialects.collective import AllGatherOp
from starc.dialects.kernel_fusion import (
    GemmPart,
    collections_of,
    gemm_parts,
    pulled,
)
from starc.kernel_bodies.body import Body, Buffer, Template
from starc.kernel_bodies.context import (
    WORKGROUP,
    LaunchContext,
    row_factors,
)
from starc.kernel_bodies.gemm.fused_sums import Sums
from starc.kernel_bodies.gemm.fused_tiles import FusedTiles, TilePlace, in_turns, starts_of
from starc.kernel_bodies.peers import Group


def lower_fused_gemm(context: LaunchContext) -> list[list[Template]]:
    """The templates of the launch; of two launches where ``unfuse`` asks for it."""
    return _FusedGemm(context).lower()


class _FusedGemm:
    def __init__(self, context: LaunchContext) -> None:
        self.context = context
        self.launch = context.launch
        self.parts = gemm_parts(context.launch)
        self.gather = pulled(context.launch)
        self.mode = self.launch.pull.data if self.launch.pull is not None else "cached"
        self.taxes = self.launch.taxes
        self.outputs = {
            number: context.outputs[collection.outputs[0]][1]
            for collection in collections_of(context.launch)
            for number in collection.parts
            if self.parts[number].reduction is None
        }
        self.tiles = [FusedTiles(context, part) for part in self.parts]
        self.sums = Sums(context, self.parts, self.tiles)
        workspace = list(context.workspace)
        self.gathered = workspace.pop() if self.gather and self.mode == "staged" else None
        self.through = [
            workspace.pop(0) if part.reduction is not None and "hbm" in self.taxes else None
            for part in self.parts
        ]
        self.shares = workspace[0] if workspace else None
        grid = context.grid
        self.copiers = grid[-1] if len(grid) > len(self.parts) else 0
        self.is_split = "launch" in self.taxes
        self.sums_apart = self.is_split

    def lower(self) -> list[list[Template]]:
        context = self.context
        before: list[Template] = []
        products: list[Template] = []
        after: list[Template] = []
        if self.gather is not None:
            size = context.mesh.refs_size(self.gather.axes.data)
            context.counter("ready", size)
            if self.gathered is not None:
                context.counter("copied", size)
                (before if self.is_split else products).append(self._copy(self.gather))
            elif self.is_split:
                before.append(self._meet(self.gather))
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

    # The device's slice and those of its peers

    def _tell(self, body: Body, group: Group) -> None:
        """One workgroup tells all peers that the slice of this device is there."""
        with body.when(-WORKGROUP), body.loop("hop", 1, group.size) as hop:
            peer = body.index("peer", group.device(group.turned(hop)))
            body.signal(f"{self.context.name}.ready", group.rank, 1, peer)

    def _wait(self, body: Body, group: Group, counter: str, value: int) -> None:
        with body.loop("hop", 1, group.size) as hop:
            body.wait(f"{self.context.name}.{counter}", group.turned(hop), value)

    def _meet(self, gather: AllGatherOp) -> Template:
        """A launch that ends when the slices of all peers are there."""
        body = self.context.body(gather)
        group = Group.of(body, self.context.mesh, gather.axes.data)
        self._tell(body, group)
        self._wait(body, group, "ready", 1)
        return self.context.template(body, 0, 1, suffix=".meet", waits=True)

    def _copy(self, gather: AllGatherOp) -> Template:
        """Workgroups that copy the slices of peers to the local buffer, one slice after the
        other; each takes an equal share of the pieces of a slice."""
        context, target = self.context, self.gathered
        assert target is not None
        body = context.body(gather)
        group = Group.of(body, context.mesh, gather.axes.data)
        source = context.buffer(gather.inputs[0])
        m, _, step = context.tile
        rows = row_tiling(source.shape[0], source.shape[1], m)
        across = ceil_div(source.shape[2], step)
        pieces = rows.tiles * across
        share = ceil_div(pieces, self.copiers)
        self._tell(body, group)
        first = body.index("first", WORKGROUP * share)
        last = body.index("last", minimum(first + share, pieces))
        with body.loop("hop", 1, group.size) as hop:
            rank = body.index("source", group.turned(hop))
            peer = body.index("peer", group.device(rank))
            body.wait(f"{context.name}.ready", rank, 1)
            with body.loop("i", first, last, stages=4) as i:
                row = i // across
                sequence = row // rows.position_tiles * rows.sequences
                position = row % rows.position_tiles * rows.positions
                column = i % across * step
                piece = body.tile("piece", rows.rows, step, source.element_type, register=False)
                box = [rows.sequences, rows.positions, step]
                body.get(piece, source, [sequence, position, column], peer, box)
                body.store(piece, target, [rank, sequence, position, column], [1, *box])
            body.signal(f"{context.name}.copied", rank)
        return context.template(body, 0, self.copiers, suffix=".copy", waits=True)

    # Products

    def _product(self, number: int, part: GemmPart, tiles: FusedTiles, first: int) -> Template:
        context = self.context
        body = context.body(part.linear)
        split = context.split
        grid = context.grid[number]
        items = tiles.count * split
        group = None
        if self.gather is not None:
            group = Group.of(body, context.mesh, self.gather.axes.data)
            if number == 0 and self.gathered is None and not self.is_split:
                self._tell(body, group)
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
            self._multiply(body, part, tiles, place, accumulator, share, group, turn)
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

    def _multiply(
        self,
        body: Body,
        part: GemmPart,
        tiles: FusedTiles,
        place: TilePlace,
        accumulator: SSAValue,
        share: Expression | None,
        group: Group | None,
        turn: Expression | None,
    ) -> None:
        """The loops over K: of the own slice, then of those of the peers. Steps are numbered in
        the order in which a device takes them; a share is a range of these numbers."""
        context = self.context
        stages = context.launch.integer("stages")
        weight = context.buffer(part.linear.weight)
        step = tiles.step

        def multiply(
            buffer: Buffer,
            k: Expression,
            row: Expression,
            *,
            peer: Expression | None = None,
            rank: Expression | None = None,
        ) -> None:
            rows = place.rows
            a = body.tile("a", rows.count, step, buffer.element_type, register=False)
            b = body.tile("b", step, tiles.columns, weight.element_type, register=False)
            starts, box = rows.starts(k), rows.extents(step)
            if peer is not None:
                body.get(a, buffer, starts, peer, box, cached=self.mode == "cached")
            elif rank is not None:
                acquire = not context.target.coherent
                body.load(a, buffer, [rank, *starts], [1, *box], acquire=acquire)
            else:
                body.load(a, buffer, starts, box)
            body.load(b, weight, [row, place.column])
            body.matrix(accumulator, a, b)

        if self.gather is None or group is None:
            x = context.buffer(part.linear.input)
            lower, upper = _range(ceil_div(x.shape[2], step), context.split, share)
            with body.loop("k", lower, upper, stages=stages) as k:
                multiply(x, k * step, k * step)
            return
        x = context.buffer(self.gather.inputs[0])
        starts = starts_of(self.gather, context)
        steps = ceil_div(x.shape[2], step)
        lower, upper = _range(steps * group.size, context.split, share)
        lower, upper = expression(lower), expression(upper)
        if share is not None:
            lower, upper = body.index("lower", lower), body.index("upper", upper)
        if "sync" in self.taxes:
            self._arrive(body, group, turn)
        base = body.index("own", group.start(starts, group.rank))
        with body.loop("k", minimum(lower, steps), minimum(upper, steps), stages=stages) as k:
            multiply(x, k * step, k * step + base)
        # The stream goes on only when the last product is done: then the loops below may take over
        # the scratch memory.
        body.vector("copy", accumulator, accumulator)
        if self.gathered is not None:
            wait = not self.is_split and "sync" not in self.taxes
            with body.loop("hop", 1, group.size) as hop:
                rank = body.index("source", group.turned(hop))
                base = body.index("base", group.start(starts, rank))
                if wait:
                    with _first(body, turn):
                        body.wait(f"{context.name}.copied", rank, self.copiers)
                low = maximum(minimum(lower - hop * steps, steps), 0)
                high = maximum(minimum(upper - hop * steps, steps), 0)
                with body.loop("k", low, high, stages=stages) as k:
                    multiply(self.gathered, k * step, k * step + base, rank=rank)
            return
        if "sync" not in self.taxes:
            self._arrive(body, group, turn)
        with body.loop("k", maximum(lower, steps), maximum(upper, steps), stages=stages) as k:
            rank = group.turned(k // steps)
            base = group.start(starts, rank)
            column = k % steps * step
            multiply(x, column, column + base, peer=group.device(rank))

    def _arrive(self, body: Body, group: Group, turn: Expression | None) -> None:
        """Waits until the slices of all peers are there."""
        if self.is_split:
            return
        with _first(body, turn):
            if self.gathered is not None:
                self._wait(body, group, "copied", self.copiers)
            else:
                self._wait(body, group, "ready", 1)

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


def _range(
    steps: int, split: int, share: Expression | None
) -> tuple[Expression | int, Expression | int]:
    """The steps of a share, all of them for none."""
    if share is None:
        return 0, steps
    width = ceil_div(steps, split)
    return share * width, minimum(share * width + width, steps)


@contextmanager
def _first(body: Body, turn: Expression | None) -> Generator[None]:
    """What a workgroup does in its first turn alone."""
    if turn is None:
        yield
    else:
        with body.when(-turn):
            yield
