"""Matrix products that exchange data with their peers while they compute.

**Pull.** The input lies in slices of K on the devices of a group. Every device tells the others at
the start of its launch that its slice is there (its earlier launches have ended). A workgroup first
multiplies the slice of its own device, then goes round the group from the rank behind its own, so
that no two devices read the same slice at the same time. Slices of peers are read by every
workgroup that needs them, past the L2 (``uncached``) or through it (``cached``); or some workgroups
copy them to a local buffer, slice by slice, and the others wait for the slices as they need them
(``staged``).

**Push.** The result is a partial sum whose columns belong to the devices of a group. Each result
tile is put into its owner's staging slot for this rank as soon as it is done, and a signal says so;
tiles that peers own come first. The owner adds the slots of all ranks in ascending order, its own
among them, so that the bits do not depend on who came first.

A launch has at most as many workgroups as are resident: workgroup w of a part of g takes the tiles
w, w + g, ..., in an order in which nothing that peers wait for stands behind a wait.

The costs of unfused kernels can be put back one by one (``unfuse``): ``hbm`` (pull: ``staged``;
push: tiles go through a local buffer), ``sync`` (nobody goes on before everything of everybody is
there), ``launch`` (the waiting side is a launch of its own).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

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
from starc.backend.kernel_bodies.peers import Group
from starc.core.quasi_affine import Const, Expression, expression, maximum, minimum
from starc.core.tiling import ceil_div, row_tiling
from starc.dialects.collective import AllGatherOp, ReduceScatterOp
from starc.dialects.kernel_fusion import GemmPart, gemm_parts, pulled, slice_starts

PIECE_BYTES = 16384
"""Registers that a piece of a tile takes while owners add the parts of peers."""


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
        staging = iter(context.launch.staging_names)
        self.staging = [
            context.buffers[next(staging)] if part.scatter is not None else None
            for part in self.parts
        ]
        workspace = list(context.workspace)
        self.gathered = workspace.pop() if self.gather and self.mode == "staged" else None
        self.through = [
            workspace.pop(0) if part.scatter is not None and "hbm" in self.taxes else None
            for part in self.parts
        ]
        self.shares = workspace[0] if workspace else None
        grid = context.grid
        self.copiers = grid[-1] if len(grid) > len(self.parts) else 0
        self.is_split = "launch" in self.taxes

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
        first, owned = 0, 0
        for number, part in enumerate(self.parts):
            tiles = _Tiles(context, part)
            products.append(self._product(number, part, tiles, first, owned))
            if part.scatter is not None and self.is_split:
                after.append(self._owners(number, part, tiles, owned))
            first += tiles.count
            owned += tiles.local if part.scatter is not None else 0
        if owned:
            context.counter("arrived", 1 if "sync" in self.taxes else owned)
        if context.split > 1:
            context.counter("shares", first)
        return [group for group in (before, products, after) if group]

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

    def _product(
        self, number: int, part: GemmPart, tiles: _Tiles, first: int, owned: int
    ) -> Template:
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
        owners = None
        if part.scatter is not None:
            owners = group
            if group is None or group.axes != tuple(part.scatter.axes.data):
                owners = Group.of(body, context.mesh, part.scatter.axes.data)
        waits = bool(context.counters) or split > 1 or owners is not None
        with _turns(body, items, grid) as (item, turn):
            share: Expression | None = None
            if split > 1:
                share = body.index("share", item // tiles.count)
                item = body.index("number", item % tiles.count)
            place = tiles.locate(body, item, owners)
            accumulator = body.tile("acc", place.rows.count, tiles.columns, register=True)
            body.vector("zero", accumulator)
            self._multiply(body, part, tiles, place, accumulator, share, group, turn)
            if share is None:
                self._finish(body, number, part, tiles, place, accumulator, owners, owned)
            else:
                slot = body.index("slot", place.number + first)
                counter = f"{context.name}.shares"
                assert self.shares is not None
                with body.when(-share):
                    body.wait(counter, slot, split - 1)
                    self._add_shares(body, part, tiles, accumulator, slot)
                    self._finish(body, number, part, tiles, place, accumulator, owners, owned)
                with body.when(share - 1):
                    body.store(accumulator, self.shares, [share - 1, slot, 0, 0])
                    body.signal(counter, slot)
        return context.template(body, number, grid, waits=waits)

    def _multiply(
        self,
        body: Body,
        part: GemmPart,
        tiles: _Tiles,
        place: _Place,
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
                acquire = context.target.dies_per_device > 1
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
        starts = _starts(self.gather, context)
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
        self, body: Body, part: GemmPart, tiles: _Tiles, accumulator: SSAValue, slot: Expression
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
        tiles: _Tiles,
        place: _Place,
        accumulator: SSAValue,
        owners: Group | None,
        owned: int,
    ) -> None:
        """Scales the rows of a finished tile and stores it, or sends it to its owner."""
        context, rows = self.context, place.rows
        if part.scale is not None:
            starts, extents = rows.starts(0), rows.extents(1)
            factors = row_factors(context, body, part.scale, starts, extents)
            body.vector("rescale", accumulator, factors)
        if owners is None:
            output = context.outputs[number][1]
            body.store(accumulator, output, rows.starts(place.column), rows.extents(tiles.columns))
            return
        staging = self.staging[number]
        assert staging is not None
        sent = accumulator
        through = self.through[number]
        if through is not None:
            body.store(accumulator, through, [place.number, 0, 0])
            sent = body.tile(
                "again", rows.count, tiles.columns, through.element_type, register=True
            )
            body.load(sent, through, [place.number, 0, 0], acquire=True)
        slot = [owners.rank, place.local, Const(0), Const(0)]
        element = 0 if "sync" in self.taxes else place.local + owned
        with body.when(owners.size - 1 - place.hop):
            body.put(sent, staging, slot, place.owner)
            body.signal(f"{context.name}.arrived", element, 1, place.owner)
        with body.when(place.hop - owners.size):
            body.store(sent, staging, slot)
            if not self.is_split:
                self._collect(body, number, tiles, place, owners, owned)

    def _collect(
        self, body: Body, number: int, tiles: _Tiles, place: _Place, owners: Group, owned: int
    ) -> None:
        """The owner's part: adds the tiles of all ranks in ascending order, some rows at a time."""
        context = self.context
        staging, output = self.staging[number], context.outputs[number][1]
        assert staging is not None
        if "sync" in self.taxes:
            total = sum(
                _Tiles(context, part).local for part in self.parts if part.scatter is not None
            )
            body.wait(f"{context.name}.arrived", 0, (owners.size - 1) * total)
        else:
            body.wait(f"{context.name}.arrived", place.local + owned, owners.size - 1)
        rows = place.rows
        limit = max(1, PIECE_BYTES // (tiles.columns * 4))
        piece = slice_rows(rows.tiling.sequences, rows.tiling.positions, limit)
        with body.loop("piece", 0, piece.count) as number_of_piece:
            first = body.index("row", number_of_piece * piece.rows)
            sum_ = body.tile("sum", piece.rows, tiles.columns, register=True)
            body.vector("zero", sum_)
            with body.loop("source", 0, owners.size, stages=4) as source:
                part = body.tile(
                    "part", piece.rows, tiles.columns, staging.element_type, register=True
                )
                body.load(part, staging, [source, place.local, first, 0], acquire=True)
                body.vector("add", sum_, sum_, part)
            positions = rows.tiling.positions
            body.store(
                sum_,
                output,
                [
                    rows.sequence + first // positions,
                    rows.position + first % positions,
                    place.within,
                ],
                [piece.outer, piece.inner, tiles.columns],
            )

    def _owners(self, number: int, part: GemmPart, tiles: _Tiles, owned: int) -> Template:
        """The owner's part as a launch of its own."""
        context = self.context
        assert part.scatter is not None
        body = context.body(part.scatter)
        owners = Group.of(body, context.mesh, part.scatter.axes.data)
        grid = min(tiles.local, max(1, context.grid[number]))
        with _turns(body, tiles.local, grid) as (item, _):
            place = tiles.locate_owned(body, item, owners)
            self._collect(body, number, tiles, place, owners, owned)
        return context.template(body, number, grid, suffix=".owner", waits=True)


def _starts(
    op: AllGatherOp | ReduceScatterOp, context: LaunchContext
) -> tuple[tuple[int, ...], ...]:
    starts = slice_starts(op, context.mesh)
    if starts is None:
        raise ValueError(f"launch @{context.name}: the slices of {op.name} are not contiguous")
    return starts


def _range(
    steps: int, split: int, share: Expression | None
) -> tuple[Expression | int, Expression | int]:
    """The steps of a share, all of them for none."""
    if share is None:
        return 0, steps
    width = ceil_div(steps, split)
    return share * width, minimum(share * width + width, steps)


@contextmanager
def _turns(body: Body, items: int, grid: int) -> Generator[tuple[Expression, Expression | None]]:
    """What workgroup w of ``grid`` does: items w, w + grid, ... Gives the item and, where there
    are several, the turn."""
    if items <= grid:
        yield WORKGROUP, None
        return
    with body.loop("turn", 0, ceil_div(items, grid)) as turn:
        item = body.index("item", turn * grid + WORKGROUP)
        if items % grid:
            with body.when(Const(items - 1) - item):
                yield item, turn
        else:
            yield item, turn


@contextmanager
def _first(body: Body, turn: Expression | None) -> Generator[None]:
    """What a workgroup does in its first turn alone."""
    if turn is None:
        yield
    else:
        with body.when(-turn):
            yield


@dataclass(frozen=True)
class _Place:
    """Where a tile lies: its number among all of the part and among those of its owner, its rows,
    its first column in the product (``column``) and in the owner's shard (``within``), the owner's
    device, and how many ranks behind the own one the owner is (the group's size: itself)."""

    number: Expression
    local: Expression
    rows: Rows
    column: Expression
    within: Expression
    owner: Expression
    hop: Expression


class _Tiles:
    """The tiles of one part and their order. Where the result is scattered, those of each owner's
    columns are numbered alike, and the owner behind the own rank comes first."""

    def __init__(self, context: LaunchContext, part: GemmPart) -> None:
        self.context = context
        m, self.columns, self.step = context.tile
        self.m = m
        self.shape = tensor_shape(part.linear.result)
        self.rows = row_tiling(self.shape[0], self.shape[1], m)
        self.ranks = 1
        self.starts: tuple[tuple[int, ...], ...] | None = None
        width = self.shape[2]
        if part.scatter is not None:
            self.ranks = context.mesh.refs_size(part.scatter.axes.data)
            self.starts = _starts(part.scatter, context)
            width = tensor_shape(part.scatter.outputs[0])[2]
        self.across = ceil_div(width, self.columns)
        self.local = self.rows.tiles * self.across
        self.count = self.local * self.ranks
        self.group, self.dies = context.launch.integers("swizzle") or (1, 1)

    def _walk(self, body: Body, number: Expression) -> tuple[Rows, Expression]:
        """Rows and column of a tile of a shard, column within it."""
        band = self.group * self.across
        column = body.index("within", number % band // self.group * self.columns)
        row = number // band * self.group + number % self.group
        return take_rows(body, self.shape, self.m, body.index("row", row)), column

    def locate(self, body: Body, item: Expression, owners: Group | None) -> _Place:
        if owners is None or self.starts is None:
            number = item
            if self.dies > 1:
                number = item % self.dies * (self.count // self.dies) + item // self.dies
            number = body.index("tile", number)
            rows, column = self._walk(body, number)
            zero = Const(0)
            return _Place(number, number, rows, column, column, zero, zero)
        hop = body.index("behind", item // self.local + 1)
        local = body.index("tile", item % self.local)
        rows, within = self._walk(body, local)
        rank = body.index("owner", owners.turned(hop))
        base = owners.start(self.starts, rank)
        column = body.index("column", within + base)
        device = body.index("owner_device", owners.device(rank))
        return _Place(item, local, rows, column, within, device, hop)

    def locate_owned(self, body: Body, item: Expression, owners: Group) -> _Place:
        """A tile of the device's own shard."""
        rows, within = self._walk(body, item)
        return _Place(item, item, rows, within, within, Const(0), Const(owners.size))
