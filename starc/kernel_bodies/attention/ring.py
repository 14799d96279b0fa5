"""Attention of a prompt whose keys go around a ring of cubes; no results are merged.

A launch with ``ring`` runs as one workgroup on every device. The axes over which its keys are
gathered are the cubes of a group and the PEs of a cube: the keys of a cube are a *block*, those of
one of its PEs a *share*. Query heads are split over cubes and query rows over PEs, so that a block
is read by all PEs of a cube, each for its own rows:

    copy the own share to slot 0
    for every step of the ring:                       block of the cube ``step`` places before
      for every tile of query rows (and part of the block):
        (first ones) send a part of the own share of this block to the next cube
        (first one) wait until the shares of the block are there
        for every visible tile of keys:
          composite s = q k^T; softmax; composite y = p v; o = o * correction + y
      tell the previous cube, and the own one, that the block has been read

- Blocks lie in slots that take turns, at the same address on every device. A PE puts its share into
  the slot of the PE with its number in the next cube, and then tells all PEs there (``arrived``, a
  counter a share; ``copied`` of shares that their own PE has put there). All readers of a slot tell
  those who fill it next: the previous cube (``read``, a counter a reader) and the own one
  (``reread``), which wait for that. The last block does not go on.
- The launch ends when everything that it has sent has been read, so that the next one, of any
  device, may use the slots.
- Tiles of a block go in the order of positions, through the shares of all PEs, so that what is seen
  is the first ones of them, which bounds the loop. Where shares do not make whole tiles, or are
  rotated or in zigzag order, each is a loop of its own, bounded in the same way. Masks compare
  global positions.
- Where the query rows are one tile its state stays in scratch memory for all steps; else it is kept
  in memory between steps, and no tile depends on the context.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from xdsl.dialects.builtin import UnitAttr, f32
from xdsl.ir import Attribute, BlockArgument, SSAValue

from starc.core.quasi_affine.expressions import Const, Expression, Table, minimum
from starc.core.sharding.shard_map import Contiguous, Cyclic, Offsets, Zigzag
from starc.core.tiling import ceil_div, largest_divisor
from starc.dialects import isa, nn
from starc.dialects.collective import AllGatherOp
from starc.dialects.kernel_problems import attention_of, gather_of, tensor
from starc.dialects.sharding import global_shape
from starc.kernel_bodies.attention.cube_attention import SWEEP
from starc.kernel_bodies.attention.extents import Extents, State, check_written, extents_of
from starc.kernel_bodies.attention.key_tiles import KeyTiles, Sight, key_tiles
from starc.kernel_bodies.attention.tile_softmax import TileSoftmax
from starc.kernel_bodies.body import Body, Buffer, Template
from starc.kernel_bodies.context import LaunchContext
from starc.kernel_bodies.peers import Group
from starc.kernel_bodies.shards import Shard, clamp, global_row, shard_of

ZERO: Final = Const(0)
LONG: Final = 16
"""Tiles of keys in a loop at least, where blocks are cut so that what goes on comes in between."""


def lower_ring(context: LaunchContext) -> list[list[Template]]:
    """The template of an attention launch with ``ring``."""
    return [[_Ring(context).template()]]


def ring_facts(context: LaunchContext) -> dict[str, int]:
    """The extents that decide the time."""
    ring = _Ring(context)
    return {
        "tasks": ring.tasks,
        "keys": ring.limit,
        "head_dim": ring.shape.head_dim,
        "rotations": ring.cubes - 1,
    }


@dataclass(frozen=True)
class _Task:
    """A sequence and a KV head with the query heads that share it."""

    number: Expression
    batch: Expression
    kv_head: Expression
    head: Expression


@dataclass(frozen=True)
class _Rows:
    """A tile of query rows: local and global position of its first one, and how many the device
    has."""

    local: Expression
    position: Expression
    held: Expression


@dataclass(frozen=True)
class _Tiles:
    """What a sweep over keys is for: a tile of query rows and its state."""

    rows: _Rows
    sight: Sight
    queries: SSAValue
    state: State


@dataclass(frozen=True)
class _Place:
    """Where a PE stands, and whom it speaks to."""

    group: Group
    pes: int
    cube: Expression
    pe: Expression
    on_ring: Expression
    next: Expression
    previous: Expression

    def device(self, cube: Expression, pe: Expression) -> Expression:
        return self.group.device(cube * self.pes + pe)


class _Ring:
    """The launch being lowered."""

    def __init__(self, context: LaunchContext) -> None:
        op = attention_of(context.launch)
        assert isinstance(op, nn.AttentionOp)
        self.context, self.op = context, op
        gather = gather_of(op)
        if gather is None:
            raise ValueError(f"@{context.name}: keys that go around are gathered in the launch")
        self.axes = gather.axes.data
        self.shape: Extents = extents_of(context, op)
        self.order = context.launch.integers("ring")
        self.cache = _source(op.key)
        self.caches = context.buffer(self.cache), context.buffer(_source(op.value))
        self.cubes = len(self.order)
        self.ranks = context.mesh.refs_size(self.axes)
        self.pes = self.ranks // self.cubes
        self.rows = shard_of(op.query, 1, context.mesh)
        self.limit = min(self.shape.context, self.shape.start + self.rows.extent)  # written keys
        self.tasks = self.shape.batch * self.shape.kv_heads
        self.staging: tuple[Buffer, ...] = tuple(
            context.buffers[name] for name in context.launch.staging_names
        )
        self.stages = context.launch.integer("stages", 2)
        self.sub = largest_divisor(
            self.shape.keys, context.launch.integer("sub_tile", self.shape.keys)
        )
        self.softmax = TileSoftmax.of(
            context.launch,
            float(op.scale.value.data),
            self.shape.rows,
            self.shape.keys,
            self.shape.group,
        )
        self.block, self.run = self._block()
        self.sweeps = self._sweeps()
        self._check()

    def _block(self) -> tuple[Shard | None, int]:
        """The keys of a cube as one shard of those of all cubes, and how many keys of it a PE has
        side by side: where the tiles of a block are in the order of positions, each of one PE."""
        shard, keys = self.shape.shard, self.shape.keys
        match shard.map:
            case Cyclic(block=block, offset=0, by=by):
                rows = global_shape(tensor(self.cache))[0]
                if block % keys or (by is not None and rows > 1):
                    return None, block
                joined = Cyclic(block * self.pes)
                return Shard(joined, self.cubes, shard.extent, ZERO), block
            case Contiguous():
                if shard.extent % (self.ranks * keys):
                    return None, shard.capacity
                return Shard(shard.map, self.cubes, shard.extent, ZERO), shard.capacity
            case _:
                return None, 1

    def _sweeps(self) -> int:
        """Loops over the tiles of a block, for each tile of query rows: one a share; of the whole
        block one, or, of a single tile of query rows, as many as leave it long loops."""
        if self.block is None:
            return self.pes
        if self.row_tiles > 1:
            return 1
        return max(1, min(self.pes, ceil_div(self.block.capacity, self.shape.keys) // LONG))

    def _check(self) -> None:
        shape, name = self.shape, self.context.name
        check_written(self.context, replace(shape, query=self.rows.extent))
        if self.ranks % self.cubes:
            raise ValueError(f"@{name}: {self.ranks} devices do not make {self.cubes} cubes")
        if shape.heads != shape.group * shape.kv_heads:
            raise ValueError(
                f"@{name}: {shape.heads} query heads of a cube do not share {shape.kv_heads} KV "
                f"heads by {shape.group}"
            )
        size = _stretch(self.rows)
        if size is not None and size % shape.positions and size < shape.query:
            raise ValueError(
                f"@{name}: {size} query rows that follow each other are not tiles of "
                f"{shape.positions}"
            )
        if self.slots < 2:
            raise ValueError(f"@{name}: one block is read while the next one arrives: two slots")

    @property
    def row_tiles(self) -> int:
        return self.shape.row_tiles

    @property
    def _is_even(self) -> bool:
        """Whether every row tile of every device is full."""
        held = self.rows.ranks * self.row_tiles * self.shape.positions
        return held == self.rows.extent

    @property
    def slots(self) -> int:
        return self.staging[0].shape[0]

    # The order of work

    def template(self) -> Template:
        context = self.context
        body = context.body(self.op)
        place = self._place(body)
        queries, state = self._state(body)
        begins, ends = self.tasks > 1 and self.cubes > 1, self.tasks == 1
        if ends:
            self._begin(body, self._task(body, ZERO), place, ZERO, queries, state)
        with self._each(body, "turn", self.tasks * self.cubes) as turn:
            task = self._task(body, body.index("task", turn // self.cubes))
            step = body.index("step", turn % self.cubes)
            if not ends:
                with self._where(body, -step, begins):
                    self._begin(body, task, place, turn, queries, state)
            self._step(body, task, place, step, turn, queries, state)
            self._tell_readings(body, place)
            if not ends:
                with self._where(body, step - (self.cubes - 1), begins):
                    self._end(body, task, queries, state)
        if ends:
            self._end(body, self._task(body, ZERO), queries, state)
        for counter in ("reread", "read") if self.cubes > 1 else ("reread",):
            self._wait_readings(body, counter, Const(self.cubes * self.tasks))
        return context.template(body, 0, 1, waits=True)

    def _begin(
        self,
        body: Body,
        task: _Task,
        place: _Place,
        turn: Expression,
        queries: SSAValue,
        state: State,
    ) -> None:
        """Queries and state of a task where its rows are one tile, else the state of all tiles; the
        own share goes to its slot."""
        self._fill(body, state)
        if self.row_tiles == 1:
            self._load_queries(body, task, 0, queries)
        else:
            with body.loop("r", 0, self.row_tiles) as number:
                self._store_state(body, number, state)
        self._copy_own(body, task, place, turn)

    @contextmanager
    def _where(self, body: Body, condition: Expression, branches: bool) -> Generator[None]:
        """A branch, where the condition is not always true."""
        if not branches:
            yield
            return
        with body.when(condition):
            yield

    @contextmanager
    def _each(self, body: Body, name: str, count: int) -> Generator[Expression]:
        """A loop, where there is more than one turn."""
        if count == 1:
            yield ZERO
            return
        with body.loop(name, 0, count) as number:
            yield number

    def _place(self, body: Body) -> _Place:
        group = Group.of(body, self.context.mesh, self.axes)
        cubes = self.cubes
        cube = body.index("cube", group.rank // self.pes)
        own = body.index("place", _entry(_inverse(self.order), cube))
        return _Place(
            group,
            self.pes,
            cube,
            body.index("pe", group.rank % self.pes) if self.pes > 1 else ZERO,
            own,
            body.index("next", _entry(self.order, (own + 1) % cubes)),
            body.index("previous", _entry(self.order, (own + (cubes - 1)) % cubes)),
        )

    def _task(self, body: Body, number: Expression) -> _Task:
        heads = self.shape.kv_heads
        batch = body.index("batch", number // heads) if self.shape.batch > 1 else ZERO
        kv_head = body.index("kv_head", number % heads) if heads > 1 else ZERO
        return _Task(number, batch, kv_head, kv_head * self.shape.group)

    def _counter(self, name: str, count: int) -> str:
        return self.context.counter(name, count)

    # Query rows

    def _row_tile(self, body: Body, number: Expression) -> _Rows:
        shape = self.shape
        local = body.index("row", number * shape.positions)
        position = body.index("position", self.rows.position(local) + shape.start)
        held: Expression = Const(shape.positions)
        if not self._is_even:
            held = clamp(self.rows.count - local, shape.positions)
        return _Rows(local, position, held)

    def _state(self, body: Body) -> tuple[SSAValue, State]:
        """Tiles of queries and of their state."""
        shape, rows = self.shape, self.shape.rows
        element = self.context.buffer(self.op.query).element_type
        queries = self._tile(body, "q", rows, shape.head_dim, element)
        m = self._tile(body, "m", rows, 1)
        l = self._tile(body, "l", rows, 1)  # noqa: E741
        return queries, State(m, l, self._tile(body, "o", rows, shape.head_dim))

    def _fill(self, body: Body, state: State) -> None:
        """The identity of the merge: m = -inf, l = 0, o = 0."""
        body.vector("fill_neg_inf", state.m)
        body.vector("zero", state.l)
        body.vector("zero", state.o)

    def _load_queries(
        self, body: Body, task: _Task, local: Expression | int, queries: SSAValue
    ) -> None:
        shape = self.shape
        d = shape.head_dim
        box = [1, shape.positions, shape.group * d]
        source = self.context.buffer(self.op.query)
        body.load(queries, source, [task.batch, local, task.head * d], box)

    def _store_state(self, body: Body, number: Expression, state: State) -> None:
        for tile, buffer, starts, box in self._parts(number, state):
            body.store(tile, buffer, starts, box)

    def _load_state(self, body: Body, number: Expression, state: State) -> None:
        for tile, buffer, starts, box in self._parts(number, state):
            body.load(tile, buffer, starts, box)

    def _parts(
        self, number: Expression, state: State
    ) -> list[tuple[SSAValue, Buffer, list[Expression | int], list[int]]]:
        m, l, o = self.context.workspace[:3]  # noqa: E741
        rows = self.shape.rows
        return [
            (state.m, m, [number, 0], [1, rows]),
            (state.l, l, [number, 0], [1, rows]),
            (state.o, o, [number, 0, 0], [1, rows, self.shape.head_dim]),
        ]

    def _end(self, body: Body, task: _Task, queries: SSAValue, state: State) -> None:
        """Divides by the sums and stores the rows of the heads of this cube."""
        shape, op = self.shape, self.op
        d = shape.head_dim
        output = self.context.outputs[0][1]
        with self._each(body, "r", self.row_tiles) as number:
            if self.row_tiles > 1:
                self._load_state(body, number, state)
            result = self._tile(body, "result", shape.rows, d, output.element_type)
            if op.sink is None:
                body.vector("lse_finish", result, state.l, state.o)
            else:
                logits = self.context.buffer(op.sink)
                sink = self._tile(body, "sink", shape.group, 1, logits.element_type)
                body.load(sink, logits, [task.head], [shape.group])
                body.vector("lse_finish_sink", result, state.l, state.o, state.m, sink)
            starts = [task.batch, number * shape.positions, task.head * d]
            body.store(result, output, starts, [1, shape.positions, shape.group * d])

    # Blocks

    def _share(self, task: _Task, rank: Expression) -> Shard:
        """The keys that a rank holds of the task's sequence."""
        shard = self.shape.shard.of_rank(rank)
        if not shard.is_rotated:
            return shard
        return shard.at_row(global_row(self.cache, 0, task.batch, self.context.mesh))

    def _chunks(self, share: Shard) -> Expression:
        """Chunks of ``sub`` keys of the tiles of a share that have been written."""
        keys = self.shape.keys
        return (share.count_below(self.limit) + (keys - 1)) // keys * (keys // self.sub)

    def _copy_own(self, body: Body, task: _Task, place: _Place, turn: Expression) -> None:
        """The own share to a slot, of which all PEs of the cube, and the next cube, take it."""
        shape = self.shape
        own = self._share(task, place.group.rank)
        if self.tasks > 1:  # the PEs of the cube have read what was in the slot
            self._wait_readings(body, "reread", turn + 1 - self.slots)
        with body.loop("c", 0, body.index("chunks", self._chunks(own))) as c, body.scope():
            for cache, slots in zip(self.caches, self.staging, strict=True):
                size, first = (self.sub, shape.head_dim), c * self.sub
                chunk = self._tile(body, "own", *size, cache.element_type, self.stages)
                body.load(chunk, cache, [task.batch, task.kv_head, first, 0])
                body.store(chunk, slots, [turn % self.slots, first, 0])
        self._tell_arrival(body, place, place.cube, "copied")

    def _tell_arrival(self, body: Body, place: _Place, cube: Expression, counter: str) -> None:
        """Tells all PEs of a cube that the share of this PE's number is there."""
        with self._each(body, "p", self.pes) as pe:
            device = body.index("reader", place.device(cube, pe))
            body.signal(self._counter(counter, self.pes), place.pe, 1, device)

    def _wait_arrival(self, body: Body, pe: Expression, rotations: Expression) -> None:
        """Waits for the share of a PE that came with the last of so many rotations."""
        body.wait(self._counter("arrived", self.pes), pe, rotations, deferred=True)

    def _tell_readings(self, body: Body, place: _Place) -> None:
        """Tells those who filled the slots that this PE has read all shares of a block: the PEs of
        the previous cube, and of the own one."""
        with self._each(body, "p", self.pes) as pe:
            own = body.index("owner", place.device(place.cube, pe))
            body.signal(self._counter("reread", self.pes), place.pe, 1, own)
            if self.cubes > 1:
                sender = body.index("sender", place.device(place.previous, pe))
                body.signal(self._counter("read", self.pes), place.pe, 1, sender)

    def _wait_readings(
        self, body: Body, counter: str, blocks: Expression, *, deferred: bool = False
    ) -> None:
        """Waits until every PE of a cube has read so many blocks: each has a counter, for one may
        be ahead of the others."""
        with self._each(body, "p", self.pes) as pe:
            body.wait(self._counter(counter, self.pes), pe, blocks, deferred=deferred)

    def _step(
        self,
        body: Body,
        task: _Task,
        place: _Place,
        step: Expression,
        turn: Expression,
        queries: SSAValue,
        state: State,
    ) -> None:
        """Works on one block, all of it for every tile of query rows.

        The own share of the block goes on to the next cube in parts, before each of the first
        sweeps, so that reads of keys do not wait for all of it.
        """
        behind = (place.on_ring + (self.cubes - step)) % self.cubes
        source = body.index("source", _entry(self.order, behind))
        sweeps = self.sweeps
        with self._each(body, "u", self.row_tiles * sweeps) as unit:
            part, number = unit % sweeps, unit // sweeps
            rows = self._row_tile(body, number)
            if self.row_tiles > 1:
                with self._where(body, -part, sweeps > 1):
                    self._load_queries(body, task, rows.local, queries)
                    self._load_state(body, number, state)
            if self.cubes > 1:
                self._send(body, task, place, source, step, turn, unit)
            tiles = _Tiles(rows, self._sight(rows), queries, state)
            if self.block is not None:
                with self._where(body, -unit, self.row_tiles * sweeps > 1):
                    with self._each(body, "p", self.pes) as pe:
                        self._wait_share(body, task, pe, turn)
                self._sweep_block(body, place, source, part, turn, tiles)
            else:
                pe = body.index("share", (place.pe + part) % self.pes) if self.pes > 1 else ZERO
                self._wait_share(body, task, pe, turn)
                self._sweep_share(body, task, place, source, pe, turn, tiles)
            if self.row_tiles > 1:
                with self._where(body, part - (sweeps - 1), sweeps > 1):
                    self._store_state(body, number, state)

    def _wait_share(self, body: Body, task: _Task, pe: Expression, turn: Expression) -> None:
        copied = self._counter("copied", self.pes)
        body.wait(copied, pe, task.number + 1, deferred=True)
        if self.cubes > 1:
            self._wait_arrival(body, pe, turn - task.number)

    def _send(
        self,
        body: Body,
        task: _Task,
        place: _Place,
        source: Expression,
        step: Expression,
        turn: Expression,
        unit: Expression,
    ) -> None:
        """Sends a part of the own share of a block on to the next cube, unless it is the last."""
        shape = self.shape
        parts = max(1, self.row_tiles * self.sweeps // 2)
        every = ceil_div(shape.shard.capacity, shape.keys) * (shape.keys // self.sub)
        chunks = ceil_div(every, parts)
        own = self._share(task, source * self.pes + place.pe)
        with body.when(minimum(self.cubes - 2 - step, parts - 1 - unit)):
            self._wait_arrival(body, place.pe, turn - task.number)
            self._wait_readings(body, "read", turn + 2 - self.slots, deferred=True)
            last = minimum(unit * chunks + chunks, self._chunks(own))
            target = body.index("successor", place.device(place.next, place.pe))
            with body.loop("c", unit * chunks, body.index("last_chunk", last)) as c, body.scope():
                for slots in self.staging:
                    size, first = (self.sub, shape.head_dim), c * self.sub
                    chunk = self._tile(body, "sent", *size, slots.element_type, self.stages)
                    body.load(chunk, slots, [turn % self.slots, first, 0], acquire=True)
                    body.put(chunk, slots, [(turn + 1) % self.slots, first, 0], target)
            with self._where(body, unit - (parts - 1), parts > 1):
                self._tell_arrival(body, place, place.next, "arrived")

    # Keys

    def _sight(self, rows: _Rows) -> Sight:
        shape = self.shape
        if not shape.causal:
            end = Const(self.limit)
            return Sight(end, end, self.limit, causal=False)
        end = minimum(rows.position + rows.held, self.limit)
        return Sight(rows.position, end, self.limit, True, shape.window, shape.keep)

    def _sweep_share(
        self,
        body: Body,
        task: _Task,
        place: _Place,
        source: Expression,
        pe: Expression,
        turn: Expression,
        tiles: _Tiles,
    ) -> None:
        """The visible tiles of a share."""
        share = self._share(task, source * self.pes + pe)
        peer = body.index("holder", place.device(place.cube, pe))
        for found in key_tiles(share, tiles.sight, self.shape.keys):
            lower, upper = found.lower, self._upper(found, tiles)
            with self._sweep(body, lower, upper) as j:
                first = body.index("first_key", found.first_key(j))
                self._tile_of_keys(body, tiles, found, first, turn, first, peer)

    def _sweep_block(
        self,
        body: Body,
        place: _Place,
        source: Expression,
        part: Expression,
        turn: Expression,
        tiles: _Tiles,
    ) -> None:
        """The visible tiles of a block, in the order of positions: one loop for all shares."""
        assert self.block is not None
        block, pes, keys = self.block, self.pes, self.shape.keys
        (found,) = key_tiles(block.of_rank(source), tiles.sight, keys)
        lower, upper = found.lower, self._upper(found, tiles)
        if self.sweeps > 1:
            width = ceil_div(ceil_div(block.capacity, keys), self.sweeps)
            upper = minimum(upper, lower + part * width + width)
            lower = lower + part * width
        with self._sweep(body, lower, upper) as j:
            first = body.index("first_key", found.first_key(j))
            run = self.run
            pe = body.index("share", first // run % pes) if pes > 1 else ZERO
            local = body.index("local_key", first // (run * pes) * run + first % run)
            peer = body.index("holder", place.device(place.cube, pe))
            self._tile_of_keys(body, tiles, found, first, turn, local, peer)

    def _upper(self, found: KeyTiles, tiles: _Tiles) -> Expression:
        """The end of the visible tiles; none where the device has no row of the tile."""
        if self._is_even:
            return found.upper
        most = ceil_div(self.shape.shard.capacity, self.shape.keys) * self.pes
        return minimum(found.upper, tiles.rows.held * most)

    @contextmanager
    def _sweep(self, body: Body, lower: Expression, upper: Expression) -> Generator[Expression]:
        """A loop over tiles, whose schedule ``schedule-commands`` chooses."""
        with body.loop("j", body.index("first_tile", lower), body.index("tiles", upper)) as j:
            loop = body.block.parent_op()
            assert isinstance(loop, isa.LoopOp)
            loop.attributes[SWEEP] = UnitAttr()
            yield j

    def _tile_of_keys(
        self,
        body: Body,
        tiles: _Tiles,
        found: KeyTiles,
        first: Expression,
        turn: Expression,
        local: Expression,
        peer: Expression,
    ) -> None:
        """Takes a tile of keys and values, from index ``first`` of a shard on, into the state; it
        lies at ``local`` in the slot of a PE."""
        shape, state = self.shape, tiles.state
        d, size = shape.head_dim, shape.rows
        scores = self._tile(body, "s", size, shape.keys)
        with body.composite():
            body.vector("zero", scores)
            with self._each(body, "i", shape.keys // self.sub) as i:
                key = self._fetch(body, "k", 0, local + i * self.sub, turn, peer)
                columns = self._window(i)
                body.matrix(scores, tiles.queries, key, transpose_b=True, columns=columns)
            self.softmax.scale_scores(body, scores)
        with body.scope():
            weights = self._tile(body, "p", size, shape.keys, self.caches[1].element_type)
            correction = self._tile(body, "correction", size, 1)
            product = self._tile(body, "pv", size, d)
            operands = (scores, weights, correction, state)
            self.softmax.emit(body, tiles.sight, found.run, found.limit, first, *operands)
            with body.composite():
                body.vector("zero", product)
                with self._each(body, "i", shape.keys // self.sub) as i:
                    value = self._fetch(body, "v", 1, local + i * self.sub, turn, peer)
                    body.matrix(product, weights, value, inner=self._window(i))
            body.vector("rescale", state.o, correction)
            body.vector("add", state.o, state.o, product)

    def _window(self, i: Expression) -> Expression | None:
        """The columns of a sub-tile within the tile; ``None`` where it is all of it."""
        return i * self.sub if self.sub < self.shape.keys else None

    def _fetch(
        self,
        body: Body,
        name: str,
        which: int,
        first: Expression,
        turn: Expression,
        peer: Expression,
    ) -> SSAValue:
        """Keys (0) or values (1) of a sub-tile, from the slot of the PE that has the share."""
        slots = self.staging[which]
        tile = self._tile(
            body, name, self.sub, self.shape.head_dim, slots.element_type, self.stages
        )
        body.get(tile, slots, [turn % self.slots, first, 0], peer)
        return tile

    def _tile(
        self,
        body: Body,
        name: str,
        rows: int,
        columns: int,
        element: Attribute = f32,
        slots: int = 1,
    ) -> SSAValue:
        """A tile in scratch memory; where the device has registers, in those."""
        register = not self.context.target.engines
        return body.tile(name, rows, columns, element, register=register, slots=slots)


def _source(value: SSAValue) -> SSAValue:
    """The cache of this device that a gathered one is made of."""
    owner = value.owner
    if isinstance(value, BlockArgument) or not isinstance(owner, AllGatherOp):
        raise ValueError("keys and values are gathered both or none")
    return owner.inputs[0]


def _stretch(rows: Shard) -> int | None:
    """How many local rows follow each other in position; ``None`` where all do."""
    if rows.is_whole:
        return None
    match rows.map:
        case Cyclic(block=block, offset=0, by=None):
            return block
        case Zigzag():
            return ceil_div(rows.extent, 2 * rows.ranks)
        case Contiguous() | Offsets():
            return None
        case _:
            raise ValueError("query rows that are dealt out begin with the first PE")


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(order.index(cube) for cube in range(len(order)))


def _entry(values: Sequence[int], index: Expression) -> Expression:
    """An entry of a table; the index itself where the entries are their own numbers."""
    if list(values) == list(range(len(values))):
        return index
    if isinstance(index, Const):
        return Const(values[index.value])
    return Table(tuple(values), index)
