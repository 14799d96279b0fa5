"""The loops of a workgroup over the tiles of keys that its queries see, with online softmax.

Key tiles run up to the last position that a query of the tile may see, and from the first one of a
window; see ``key_tiles``. Every instruction works on whole tiles: what is beyond the cache or
masked does not count, because scores are set to -inf by position and loads leave zeros outside
the buffer.

The cache of a launch may be gathered in its body: then tiles are read from the caches of the
devices that hold them. Tile i of all of them come before tile i + 1 of any, each device beginning
with its own, so that no two read the same cache at the same time.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from xdsl.ir import BlockArgument, SSAValue

from starc.core.quasi_affine.expressions import Expression, minimum
from starc.core.sharding.shard_map import Cyclic
from starc.core.tiling import ceil_div
from starc.dialects import nn
from starc.dialects.collective import AllGatherOp
from starc.dialects.kernel_problems import gather_of
from starc.kernel_bodies.attention.extents import Extents, Task
from starc.kernel_bodies.attention.key_tiles import (
    KeyTiles,
    Sight,
    common_tiles,
    key_tiles,
    most_tiles,
    softmax,
)
from starc.kernel_bodies.attention.state import State
from starc.kernel_bodies.body import Body, Buffer, Template
from starc.kernel_bodies.context import WORKGROUP, LaunchContext
from starc.kernel_bodies.peers import Group
from starc.kernel_bodies.shards import Run, Shard, global_row


@dataclass(frozen=True)
class Queries:
    """The queries of a workgroup: their task, the number of its share of the keys (None: it has all
    of them), their tile and state."""

    task: Task
    share: Expression | None
    tile: SSAValue
    state: State


@dataclass(frozen=True)
class _Keys:
    """A tile of keys: the local index of its first one, the run that it is of, and the device
    that holds it (None: this one)."""

    first: Expression
    run: Run
    limit: Expression
    peer: Expression | None = None


class KeyLoops:
    """The keys of a launch, of this device or of all that its cache is gathered from."""

    def __init__(
        self, context: LaunchContext, op: nn.AttentionOp | nn.PartialAttentionOp, shape: Extents
    ) -> None:
        self.context = context
        self.op = op
        self.shape = shape
        self.gather = gather_of(op)
        key, value = op.key, op.value
        if self.gather is not None:
            key, value = gathered_cache(key), gathered_cache(value)
        self.cache = key
        self.keys, self.values = context.buffer(key), context.buffer(value)

    @property
    def meets_before(self) -> bool:
        """Whether a launch of its own waits for the caches of peers: where the workgroups of this
        one cannot all be resident, so that none of them may wait."""
        return self.gather is not None and self.context.launch.waits is None

    def visit(self, body: Body, queries: Queries) -> bool:
        """Goes through the tiles of keys that the queries see, or a share of them; whether it waits
        for peers before that."""
        shape, task = self.shape, queries.task
        sight = shape.sight(task.position)
        shard = shape.shard
        if shard.is_rotated:
            row = body.index("row", global_row(self.cache, 0, task.batch, self.context.mesh))
            shard = shard.at_row(row)
        most = most_tiles(shard, sight, shape.keys) if queries.share is not None else ()
        if self.gather is not None:
            self._visit_peers(body, queries, shard, sight, most)
            return not self.meets_before
        if not shard.is_whole:
            shard = shard.of_rank(body.index("rank", shard.rank))
        self._visit_tiles(body, queries, sight, key_tiles(shard, sight, shape.keys), most, None)
        return False

    def _visit_tiles(
        self,
        body: Body,
        queries: Queries,
        sight: Sight,
        runs: Sequence[KeyTiles],
        most: Sequence[int],
        peer: Expression | None,
    ) -> None:
        """A loop for each run of positions, of this device or of a peer."""
        for number, tiles in enumerate(runs):
            lower = body.index("first_tile", tiles.lower)
            upper = body.index("steps", tiles.upper)
            steps = most[number] if most else 0
            with self._loop(body, lower, upper, queries.share, steps) as j:
                keys = _Keys(tiles.first_key(j), tiles.run, tiles.limit, peer)
                self._step(body, queries, sight, keys)

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

    def _step(self, body: Body, queries: Queries, sight: Sight, keys: _Keys) -> None:
        """Takes a tile of keys and values into the state."""
        shape, state, task = self.shape, queries.state, queries.task
        k, v, d = self.keys, self.values, shape.head_dim
        key = body.tile("k", shape.keys, d, k.element_type, register=False)
        value = body.tile("v", shape.keys, d, v.element_type, register=False)
        scores = body.tile("s", shape.rows, shape.keys, register=True)
        weights = body.tile("p", shape.rows, shape.keys, v.element_type, register=True)
        correction = body.tile("correction", shape.rows, 1, register=True)
        start = [task.batch, task.kv_head, keys.first, 0]
        self._fetch(body, key, k, start, keys.peer)
        body.vector("zero", scores)
        body.matrix(scores, queries.tile, key, transpose_b=True)
        function, first, rest = softmax(sight, keys.run, keys.limit, keys.first, shape.keys)
        params = [self.op.scale.value.data, *first, shape.group, *rest]
        body.vector(function, weights, scores, state.m, state.l, correction, params=params)
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
        self, body: Body, queries: Queries, shard: Shard, sight: Sight, most: Sequence[int]
    ) -> None:
        """The shards of all devices of the group, from their caches."""
        group = self._group(body)
        if not self.meets_before:
            self._meet(body, group)
        if isinstance(shard.map, Cyclic) and not shard.map.offset:
            self._visit_in_turns(body, queries, shard, sight, group)
            return
        with body.loop("hop", 0, group.size) as hop:
            source = body.index("source", group.turned(hop))
            runs = key_tiles(self._shard_at(source, queries.task), sight, self.shape.keys)
            self._visit_tiles(body, queries, sight, runs, most, group.device(source))

    def _visit_in_turns(
        self, body: Body, queries: Queries, shard: Shard, sight: Sight, group: Group
    ) -> None:
        """Of positions that are dealt out, a tile of every device before the next one of any."""
        tiles = common_tiles(shard, sight, self.shape.keys)
        size = group.size
        lower = body.index("first_tile", tiles.lower)
        upper = body.index("steps", tiles.upper)
        steps = 0
        if queries.share is not None:  # all ends are constants
            steps = int((tiles.upper - tiles.lower).evaluate({})) * size
        with self._loop(body, lower * size, upper * size, queries.share, steps) as j:
            source = body.index("source", group.turned(j % size))
            (run,) = self._shard_at(source, queries.task).runs()
            first = tiles.first_key(j // size)
            keys = _Keys(first, run, tiles.limit, group.device(source))
            self._step(body, queries, sight, keys)

    def _shard_at(self, rank: Expression, task: Task) -> Shard:
        """What a rank holds of the task's sequence."""
        shard = self.shape.shard.of_rank(rank)
        if not shard.is_rotated:
            return shard
        return shard.at_row(global_row(self.cache, 0, task.batch, self.context.mesh))


def gathered_cache(value: SSAValue) -> SSAValue:
    """The cache of this device that a gathered one is made of. Raises ``ValueError`` for one that
    is not gathered."""
    owner = value.owner
    if isinstance(value, BlockArgument) or not isinstance(owner, AllGatherOp):
        raise ValueError("keys and values are gathered both or none")
    return owner.inputs[0]
