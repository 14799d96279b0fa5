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

from starc.core.quasi_affine.expressions import Const, Expression, minimum
from starc.core.sharding.shard_map import Cyclic
from starc.core.tiling import Slice, ceil_div, slice_rows
from starc.dialects import nn
from starc.dialects.collective import AllGatherOp
from starc.dialects.kernel_problems import attention_of, gather_of, tensor
from starc.kernel_bodies.attention.cube_attention import lower_cube_attention, sweeps
from starc.kernel_bodies.attention.extents import (
    Place,
    State,
    Task,
    check_written,
    extents_of,
    initial_state,
    locate,
)
from starc.kernel_bodies.attention.key_tiles import (
    Sight,
    common_tiles,
    key_tiles,
    most_tiles,
    softmax,
)
from starc.kernel_bodies.attention.owner_merge import OwnerMerge, Records
from starc.kernel_bodies.attention.ring import lower_ring, ring_facts
from starc.kernel_bodies.body import Body, Buffer, Template
from starc.kernel_bodies.context import WORKGROUP, LaunchContext
from starc.kernel_bodies.peers import Group
from starc.kernel_bodies.shards import Run, Shard, global_row


def lower_attention(context: LaunchContext) -> list[list[Template]]:
    """The templates of the launch and, where a second launch merges shares, of that."""
    if sweeps(context):
        return lower_cube_attention(context)
    if context.launch.ring is not None:
        return lower_ring(context)
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
    if context.launch.ring is not None:
        return ring_facts(context)
    shape = _Attention(context).shape
    facts = {"tasks": shape.tasks, "keys": shape.key_limit, "head_dim": shape.head_dim}
    if context.target.engines:
        batch, kv_heads = tensor(attention_of(context.launch).key).get_shape()[:2]
        facts["passes"] = batch * kv_heads
    return facts


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
        self.shape = extents_of(context, self.op)
        self.outputs = dict(context.outputs)
        key, value = (self.op.key, self.op.value)
        if self.gather is not None:
            key, value = _source(key), _source(value)
        self.cache = key
        self.keys, self.values = context.buffer(key), context.buffer(value)
        check_written(context, self.shape)
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
        task = locate(body, shape, number)
        q = context.buffer(self.op.query)
        place = Place(task.batch, task.position, task.head, shape.positions, shape.group)
        queries = body.tile("q", shape.rows, shape.head_dim, q.element_type, register=True)
        body.load(queries, q, place.starts(shape.head_dim), place.extents(shape.head_dim))
        state = initial_state(body, shape, shape.rows)
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
        task = locate(body, shape, body.index("whole", WORKGROUP // piece.count))
        first = body.index("first", WORKGROUP % piece.count * piece.rows)
        self._merge_piece(body, task, first)
        return context.template(body, 0, shape.tasks * piece.count, suffix=".merge")

    def _piece(self) -> Slice:
        """The rows of a task that one workgroup merges."""
        limit = self.context.launch.integer("combine_rows", self.shape.rows)
        return slice_rows(self.shape.positions, self.shape.group, limit)

    def _merge_piece(self, body: Body, task: Task, first: Expression) -> None:
        """Merges all shares of the rows of a task from ``first`` on."""
        shape, piece = self.shape, self._piece()
        state = initial_state(body, shape, piece.rows)
        shares = (0, self.context.split)
        self._merge_shares(body, piece.rows, shares, (task.number, first), state)
        position = task.position + first // shape.group
        head = task.head + first % shape.group
        self._finish(body, state, Place(task.batch, position, head, piece.outer, piece.inner))

    def _store_share(self, body: Body, slot: Expression, share: Expression, state: State) -> None:
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
        state: State,
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

    def _finish(self, body: Body, state: State, place: Place) -> None:
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
        task: Task,
        share: Expression | None,
        queries: SSAValue,
        state: State,
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
        task: Task,
        sight: Sight,
        keys: _Keys,
        queries: SSAValue,
        state: State,
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
        task: Task,
        shard: Shard,
        sight: Sight,
        share: Expression | None,
        most: Sequence[int],
        queries: SSAValue,
        state: State,
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
