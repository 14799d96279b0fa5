"""Attention: a loop over key tiles with online softmax, shares of the keys merged in order.

A task is a sequence and the query heads of one KV head (or some of them); its queries are the rows
of one tile, row = position * group + head. Key tiles run up to the last position that a query of
the tile may see, and from the first one of a window; see ``key_tiles``. Every instruction works on
whole tiles: what is beyond the cache or masked does not count, because scores are set to -inf by
position and loads leave zeros outside the buffer.

``nn.partial_attention`` stores maximum, sum and unnormalised output of the keys that the device
holds. A sink is merged in when the output is normalised, once.

The cache of a launch may be gathered in its body: then tiles are read from the caches of the
devices that hold them. Tile i of all of them come before tile i + 1 of any, each device beginning
with its own, so that no two read the same cache at the same time.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from xdsl.ir import BlockArgument, SSAValue

from starc.backend.kernel_bodies.body import Body, Buffer, Template
from starc.backend.kernel_bodies.context import WORKGROUP, LaunchContext, tensor_shape
from starc.backend.kernel_bodies.key_tiles import (
    Sight,
    common_tiles,
    key_tiles,
    most_tiles,
    softmax,
)
from starc.backend.kernel_bodies.owner_merge import OwnerMerge, Records
from starc.backend.kernel_bodies.peers import Group
from starc.backend.kernel_bodies.shards import Run, Shard, global_row, shard_of
from starc.core.quasi_affine import Const, Expression, Table, minimum
from starc.core.shard_map import Cyclic
from starc.core.tiling import Slice, ceil_div, slice_rows
from starc.dialects import nn
from starc.dialects.collective import AllGatherOp
from starc.dialects.kernel_problems import attention_of, gather_of


@dataclass(frozen=True)
class _Shape:
    """The extents of an attention launch on one device, and its tiles."""

    batch: int
    query: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int  # positions of the whole cache
    start: int
    causal: bool
    window: int | None
    keep: int
    keys: int  # of a key tile
    group: int  # query heads of a task
    positions: int  # query positions of a row tile
    order: tuple[int, ...] | None  # row tiles as they start; None: the last first
    shard: Shard  # of the cache's positions
    dies: int  # that tasks are dealt out to, each with neighbouring ones; 1: they are not
    walks_rows: bool  # whether the row tiles of a task follow each other

    @property
    def row_tiles(self) -> int:
        return ceil_div(self.query, self.positions)

    @property
    def rows(self) -> int:
        return self.positions * self.group

    @property
    def tasks(self) -> int:
        return self.batch * self.heads // self.group

    @property
    def key_limit(self) -> int:
        """Keys that are written: the last query's position and those before."""
        return min(self.context, self.start + self.query)

    def sight(self, position: Expression) -> Sight:
        """What the row tile from a query position on sees. Without a mask it is everything."""
        end: Expression = Const(self.key_limit)
        if not self.causal:
            return Sight(end, end, self.key_limit, causal=False)
        if self.row_tiles > 1:
            end = minimum(position + (self.start + self.positions), self.key_limit)
        first = position + self.start
        return Sight(first, end, self.key_limit, True, self.window, self.keep)


@dataclass(frozen=True)
class _Task:
    """Where a workgroup works."""

    number: Expression  # of the task
    row_tile: Expression
    batch: Expression
    head: Expression  # first query head
    kv_head: Expression
    position: Expression  # first query position


@dataclass(frozen=True)
class _State:
    """The running maximum, sum and unnormalised output of a tile of queries."""

    m: SSAValue
    l: SSAValue  # noqa: E741
    o: SSAValue


@dataclass(frozen=True)
class _Place:
    """Where some queries of a task stand: a box of positions and query heads."""

    batch: Expression
    position: Expression
    head: Expression
    positions: int
    heads: int

    @property
    def rows(self) -> int:
        return self.positions * self.heads

    def starts(self, width: int = 1) -> list[Expression | int]:
        return [self.batch, self.position, self.head * width]

    def extents(self, width: int = 1) -> list[int]:
        return [1, self.positions, self.heads * width]


def lower_attention(context: LaunchContext) -> list[list[Template]]:
    """The templates of the launch and, where a second launch merges shares, of that."""
    attention = _Attention(context)
    templates = [[attention.attend()]]
    if attention.meets_before:
        templates.insert(0, [attention.meet()])
    if context.combine == "kernel":
        templates.append([attention.merge_launch()])
    owners = attention.owners
    if owners is not None and owners.is_apart:
        templates.append([owners.owners()])
    elif owners is not None:
        templates[-1].append(owners.owners())
    return templates


def attention_facts(context: LaunchContext) -> dict[str, int]:
    """The extents that decide the time; FLOP are those of the visible pairs."""
    shape = _Attention(context).shape
    return {"tasks": shape.tasks, "keys": shape.key_limit, "head_dim": shape.head_dim}


def _shape(context: LaunchContext, op: nn.AttentionOp | nn.PartialAttentionOp) -> _Shape:
    batch, query, features = tensor_shape(op.query)
    gather = gather_of(op)
    cache = op.key if gather is None else gather.inputs[0]
    _, kv_heads, _, head_dim = tensor_shape(cache)
    shard = shard_of(cache, 2, context.mesh)
    if isinstance(op, nn.AttentionOp) and gather is None and not shard.is_whole:
        raise ValueError("the positions of the cache are sharded: gather them or leave a partial")
    rows, keys, _ = context.tile
    group = context.launch.integer("group")
    return _Shape(
        batch=batch,
        query=query,
        heads=features // head_dim,
        kv_heads=kv_heads,
        head_dim=head_dim,
        context=shard.extent,
        start=op.start.value.data,
        causal=op.causal is not None,
        window=None if op.window is None else op.window.value.data,
        keep=0 if op.keep is None else op.keep.value.data,
        keys=keys,
        group=group,
        positions=min(query, max(1, rows // group)),
        order=context.launch.integers("order") or None,
        shard=shard,
        dies=(context.launch.integers("swizzle") or (1, 1))[1],
        walks_rows=context.launch.rows_first is not None,
    )


def _check_written(context: LaunchContext, shape: _Shape) -> None:
    """Raises ``ValueError`` where a tile would read rows that nobody has written."""
    shard = shape.shard.at_row(0)
    for rank in range(shard.ranks):
        own = shard.of_rank(rank)
        written = own.count_below(shape.key_limit).evaluate({})
        if written < own.count.evaluate({}) and written % shape.keys:
            raise ValueError(
                f"launch @{context.name}: a tile of {shape.keys} keys would read cache rows from "
                f"{written} on, which nobody has written"
            )


def _locate(body: Body, shape: _Shape, number: Expression) -> _Task:
    """The task and row tile of the ``number``-th workgroup of a share: later row tiles see more
    keys, so the longest start first; see
    ``row_tile_order``."""
    task, row_tile = number, Const(0)
    if shape.row_tiles > 1:
        task = number % shape.tasks
        place = number // shape.tasks
        if shape.walks_rows:
            task = number // shape.row_tiles
            place = number % shape.row_tiles
        if shape.order is None:
            row_tile = body.index("row_tile", shape.row_tiles - 1 - place)
        else:
            row_tile = body.index("row_tile", Table(shape.order, place))
    if shape.dies > 1:
        task = task % shape.dies * (shape.tasks // shape.dies) + task // shape.dies
    task = body.index("task", task)
    groups = shape.heads // shape.group
    batch = body.index("batch", task // groups) if shape.batch > 1 else Const(0)
    head = body.index("head", task % groups * shape.group) if groups > 1 else Const(0)
    shared = shape.heads // shape.kv_heads
    kv_head = body.index("kv_head", head // shared) if shape.kv_heads > 1 else Const(0)
    return _Task(task, row_tile, batch, head, kv_head, row_tile * shape.positions)


def _initial(body: Body, shape: _Shape, rows: int) -> _State:
    """The identity of the merge: m = -inf, l = 0, o = 0."""
    m = body.tile("m", rows, 1, register=True)
    l = body.tile("l", rows, 1, register=True)  # noqa: E741
    o = body.tile("o", rows, shape.head_dim, register=True)
    body.vector("fill_neg_inf", m)
    body.vector("zero", l)
    body.vector("zero", o)
    return _State(m, l, o)


@dataclass(frozen=True)
class _Keys:
    """A tile of keys: the local index of its first one, the run that it is of, and the device
    that holds it (None: this one)."""

    first: Expression
    run: Run
    limit: Expression
    peer: Expression | None = None


class _Attention:
    """The launch being lowered."""

    def __init__(self, context: LaunchContext) -> None:
        self.context = context
        self.op = attention_of(context.launch)
        self.gather = gather_of(self.op)
        self.shape = _shape(context, self.op)
        self.outputs = dict(context.outputs)
        key, value = (self.op.key, self.op.value)
        if self.gather is not None:
            key, value = _source(key), _source(value)
        self.cache = key
        self.keys, self.values = context.buffer(key), context.buffer(value)
        _check_written(context, self.shape)
        self.owners = OwnerMerge.of(context, self.shape.positions, self.shape.row_tiles)

    @property
    def meets_before(self) -> bool:
        """Whether a launch of its own waits for the caches of peers: where the workgroups of this
        one cannot all be resident, so that none of them may wait."""
        return self.gather is not None and self.context.launch.waits is None

    # Workgroups that share a task

    def attend(self) -> Template:
        context, shape = self.context, self.shape
        body = context.body(self.op)
        split = context.split
        total = shape.tasks * shape.row_tiles
        number: Expression = WORKGROUP
        share: Expression | None = None
        if split > 1:
            share = body.index("share", WORKGROUP // total)
            number = WORKGROUP % total
        task = _locate(body, shape, number)
        q = context.buffer(self.op.query)
        place = _Place(task.batch, task.position, task.head, shape.positions, shape.group)
        queries = body.tile("q", shape.rows, shape.head_dim, q.element_type, register=True)
        body.load(queries, q, place.starts(shape.head_dim), place.extents(shape.head_dim))
        state = _initial(body, shape, shape.rows)
        waits = self.gather is not None and not self.meets_before
        self._visit(body, task, share, queries, state, waits)
        if context.combine is None:
            self._finish(body, state, place)
            return context.template(body, 0, total, waits=waits)
        slot = task.number
        if context.combine == "kernel":
            self._store_share(body, slot, Const(0) if share is None else share, state)
            return context.template(body, 0, total * split, waits=waits)
        assert share is not None
        counter = context.counter("shares", total)
        if context.launch.combine_rows is not None:
            piece = self._piece()
            if piece.count > split:
                raise ValueError(f"{split} shares do not own {piece.count} parts of a tile")
            self._store_share(body, slot, share, state)
            body.signal(counter, slot)
            with body.when(piece.count - 1 - share):
                body.wait(counter, slot, split)
                self._merge_piece(body, task, body.index("first", share * piece.rows))
            return context.template(body, 0, total * split, waits=True)
        with body.when(-share):
            body.wait(counter, slot, split - 1)
            self._merge_shares(body, shape.rows, (0, split - 1), (slot, Const(0)), state)
            self._finish(body, state, place)
        with body.when(share - 1):
            self._store_share(body, slot, share - 1, state)
            body.signal(counter, slot)
        return context.template(body, 0, total * split, waits=True)

    def merge_launch(self) -> Template:
        """The template that merges the shares of some rows of a task."""
        context, shape = self.context, self.shape
        body = context.body(self.op)
        piece = self._piece()
        task = _locate(body, shape, body.index("whole", WORKGROUP // piece.count))
        first = body.index("first", WORKGROUP % piece.count * piece.rows)
        self._merge_piece(body, task, first)
        return context.template(body, 0, shape.tasks * piece.count, suffix=".merge")

    def _piece(self) -> Slice:
        """The rows of a task that one workgroup merges."""
        limit = self.context.launch.integer("combine_rows", self.shape.rows)
        return slice_rows(self.shape.positions, self.shape.group, limit)

    def _merge_piece(self, body: Body, task: _Task, first: Expression) -> None:
        """Merges all shares of the rows of a task from ``first`` on."""
        shape, piece = self.shape, self._piece()
        state = _initial(body, shape, piece.rows)
        shares = (0, self.context.split)
        self._merge_shares(body, piece.rows, shares, (task.number, first), state)
        position = task.position + first // shape.group
        head = task.head + first % shape.group
        self._finish(body, state, _Place(task.batch, position, head, piece.outer, piece.inner))

    def _store_share(self, body: Body, slot: Expression, share: Expression, state: _State) -> None:
        m, l, o = self.context.workspace[:3]  # noqa: E741
        body.store(state.m, m, [share, slot, 0], [1, 1, self.shape.rows])
        body.store(state.l, l, [share, slot, 0], [1, 1, self.shape.rows])
        body.store(state.o, o, [share, slot, 0, 0])

    def _merge_shares(
        self,
        body: Body,
        rows: int,
        shares: tuple[int, int],
        place: tuple[Expression, Expression],
        state: _State,
    ) -> None:
        """Merges shares ``first .. end`` into the state, in order; ``place`` is the slot of the
        workspace and the first of its rows."""
        m, l, o = self.context.workspace[:3]  # noqa: E741
        slot, first = place
        d = o.shape[-1]
        stages = self.context.launch.integer("combine_stages", 2)
        with body.loop("other", *shares, stages=stages) as other:
            other_m = body.tile("other_m", rows, 1, register=True)
            other_l = body.tile("other_l", rows, 1, register=True)
            other_o = body.tile("other_o", rows, d, register=True)
            body.load(other_m, m, [other, slot, first], [1, 1, rows], acquire=True)
            body.load(other_l, l, [other, slot, first], [1, 1, rows], acquire=True)
            body.load(other_o, o, [other, slot, first, 0], acquire=True)
            packed = body.tile("packed", rows, d + 2, register=True)
            body.vector("lse_pack", packed, other_m, other_l, other_o)
            body.vector("lse_merge", state.o, state.m, state.l, packed)

    # The end

    def _finish(self, body: Body, state: _State, place: _Place) -> None:
        """Divides by the sum and stores; a partial result is stored as it is."""
        d, op = self.shape.head_dim, self.op
        if self.owners is not None:
            box = (place.batch, place.position, place.head, place.positions, place.heads)
            self.owners.send(body, Records(state.m, state.l, state.o, *box))
            return
        if isinstance(op, nn.PartialAttentionOp):
            parts = ((op.m, state.m, 1), (op.l, state.l, 1), (op.o, state.o, d))
            for value, tile, width in parts:
                starts, extents = place.starts(width), place.extents(width)
                body.store(tile, self.outputs[value], starts, extents)
            return
        output = self.outputs[op.result]
        result = body.tile("result", place.rows, d, output.element_type, register=True)
        if op.sink is None:
            body.vector("lse_finish", result, state.l, state.o)
        else:
            logits = self.context.buffer(op.sink)
            sink = body.tile("sink", place.heads, 1, logits.element_type, register=True)
            body.load(sink, logits, [place.head], [place.heads])
            body.vector("lse_finish_sink", result, state.l, state.o, state.m, sink)
        body.store(result, output, place.starts(d), place.extents(d))

    # Keys

    def _visit(
        self,
        body: Body,
        task: _Task,
        share: Expression | None,
        queries: SSAValue,
        state: _State,
        waits: bool,
    ) -> None:
        """Goes through the tiles of keys that the queries see, or a share of them."""
        context, shape = self.context, self.shape
        sight = shape.sight(task.position)
        shard = shape.shard
        if shard.is_rotated:
            row = body.index("row", global_row(self.cache, 0, task.batch, context.mesh))
            shard = shard.at_row(row)
        most = most_tiles(shard, sight, shape.keys) if share is not None else ()
        if self.gather is not None:
            self._visit_peers(body, task, shard, sight, share, most, queries, state, waits)
            return
        if not shard.is_whole:
            shard = shard.of_rank(body.index("rank", shard.rank))
        for number, tiles in enumerate(key_tiles(shard, sight, shape.keys)):
            lower = body.index("first_tile", tiles.lower)
            upper = body.index("steps", tiles.upper)
            steps = most[number] if most else 0
            with self._loop(body, lower, upper, share, steps) as j:
                keys = _Keys(tiles.first_key(j), tiles.run, tiles.limit)
                self._step(body, task, sight, keys, queries, state)

    @contextmanager
    def _loop(
        self,
        body: Body,
        lower: Expression,
        upper: Expression,
        share: Expression | None,
        steps: int,
    ) -> Generator[Expression]:
        """A loop over tiles, or over a share's part of at most ``steps`` of them."""
        if share is not None:
            width = ceil_div(steps, self.context.split)
            lower = lower + share * width
            upper = minimum(lower + width, upper)
        with body.loop("j", lower, upper, stages=self.context.launch.integer("stages")) as j:
            yield j

    def _step(
        self,
        body: Body,
        task: _Task,
        sight: Sight,
        keys: _Keys,
        queries: SSAValue,
        state: _State,
    ) -> None:
        shape = self.shape
        k, v, d = self.keys, self.values, shape.head_dim
        key = body.tile("k", shape.keys, d, k.element_type, register=False)
        value = body.tile("v", shape.keys, d, v.element_type, register=False)
        scores = body.tile("s", shape.rows, shape.keys, register=True)
        weights = body.tile("p", shape.rows, shape.keys, v.element_type, register=True)
        correction = body.tile("correction", shape.rows, 1, register=True)
        start = [task.batch, task.kv_head, keys.first, 0]
        self._fetch(body, key, k, start, keys.peer)
        body.vector("zero", scores)
        body.matrix(scores, queries, key, transpose_b=True)
        function, first, rest = softmax(sight, keys.run, keys.limit, keys.first, shape.keys)
        scale = self.op.scale.value.data
        body.vector(
            function,
            weights,
            scores,
            state.m,
            state.l,
            correction,
            params=[scale, *first, shape.group, *rest],
        )
        body.vector("rescale", state.o, correction)
        self._fetch(body, value, v, start, keys.peer)
        body.matrix(state.o, weights, value)
        if self.context.launch.chain is not None:
            body.delay(self.context.launch.integer("chain"))

    def _fetch(
        self,
        body: Body,
        tile: SSAValue,
        buffer: Buffer,
        start: Sequence[Expression | int],
        peer: Expression | None,
    ) -> None:
        if peer is None:
            body.load(tile, buffer, start)
            return
        pull = self.context.launch.pull
        is_cached = pull is None or pull.data == "cached"
        body.get(tile, buffer, start, peer, cached=is_cached)

    # Caches of peers

    def meet(self) -> Template:
        """A launch that ends when the caches of all peers are there."""
        body = self.context.body(self.op)
        self._meet(body, self._group(body))
        return self.context.template(body, 0, 1, suffix=".meet", waits=True)

    def _group(self, body: Body) -> Group:
        assert self.gather is not None
        return Group.of(body, self.context.mesh, self.gather.axes.data)

    def _meet(self, body: Body, group: Group) -> None:
        """One workgroup tells the peers that the rows of this device are appended, which an earlier
        launch has done; then everybody waits for those of the peers."""
        counter = self.context.counter("appended", 1)
        with body.when(-WORKGROUP), body.loop("hop", 1, group.size) as hop:
            peer = body.index("peer", group.device(group.turned(hop)))
            body.signal(counter, 0, 1, peer)
        body.wait(counter, 0, group.size - 1)

    def _visit_peers(
        self,
        body: Body,
        task: _Task,
        shard: Shard,
        sight: Sight,
        share: Expression | None,
        most: Sequence[int],
        queries: SSAValue,
        state: _State,
        waits: bool,
    ) -> None:
        """The shards of all devices of the group, from their caches."""
        shape = self.shape
        group = self._group(body)
        if waits:
            self._meet(body, group)

        def shard_at(rank: Expression) -> Shard:
            turned = shape.shard.of_rank(rank)
            if turned.is_rotated:
                turned = turned.at_row(global_row(self.cache, 0, task.batch, self.context.mesh))
            return turned

        if isinstance(shard.map, Cyclic) and not shard.map.offset:
            tiles = common_tiles(shard, sight, shape.keys)
            size = group.size
            lower = body.index("first_tile", tiles.lower)
            upper = body.index("steps", tiles.upper)
            steps = 0
            if share is not None:  # all ends are constants
                steps = int((tiles.upper - tiles.lower).evaluate({})) * size
            with self._loop(body, lower * size, upper * size, share, steps) as j:
                source = body.index("source", group.turned(j % size))
                (run,) = shard_at(source).runs()
                first = tiles.first_key(j // size)
                keys = _Keys(first, run, tiles.limit, group.device(source))
                self._step(body, task, sight, keys, queries, state)
            return
        with body.loop("hop", 0, group.size) as hop:
            source = body.index("source", group.turned(hop))
            for number, tiles in enumerate(key_tiles(shard_at(source), sight, shape.keys)):
                lower = body.index("first_tile", tiles.lower)
                upper = body.index("steps", tiles.upper)
                steps = most[number] if most else 0
                with self._loop(body, lower, upper, share, steps) as j:
                    peer = group.device(source)
                    keys = _Keys(tiles.first_key(j), tiles.run, tiles.limit, peer)
                    self._step(body, task, sight, keys, queries, state)


def _source(value: SSAValue) -> SSAValue:
    """The cache of this device that a gathered one is made of."""
    owner = value.owner
    if isinstance(value, BlockArgument) or not isinstance(owner, AllGatherOp):
        raise ValueError("keys and values are gathered both or none")
    return owner.inputs[0]
