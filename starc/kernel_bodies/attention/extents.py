"""The extents of an attention launch, and its tasks.

A task is a sequence and the query heads of one KV head (or some of them); its queries are the rows
of one tile, row = position * group + head.
"""

from __future__ import annotations

from dataclasses import dataclass

from starc.core.quasi_affine.expressions import Const, Expression, Table, minimum
from starc.core.tiling import ceil_div
from starc.dialects import nn
from starc.dialects.kernel_problems import gather_of
from starc.kernel_bodies.attention.key_tiles import Sight
from starc.kernel_bodies.body import Body
from starc.kernel_bodies.context import LaunchContext, tensor_shape
from starc.kernel_bodies.shards import Shard, shard_of


@dataclass(frozen=True)
class Extents:
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
class Task:
    """Where a workgroup works."""

    number: Expression  # of the task
    row_tile: Expression
    batch: Expression
    head: Expression  # first query head
    kv_head: Expression
    position: Expression  # first query position


def extents_of(context: LaunchContext, op: nn.AttentionOp | nn.PartialAttentionOp) -> Extents:
    batch, query, features = tensor_shape(op.query)
    gather = gather_of(op)
    cache = op.key if gather is None else gather.inputs[0]
    _, kv_heads, _, head_dim = tensor_shape(cache)
    shard = shard_of(cache, 2, context.mesh)
    if isinstance(op, nn.AttentionOp) and gather is None and not shard.is_whole:
        raise ValueError("the positions of the cache are sharded: gather them or leave a partial")
    rows, keys, _ = context.tile
    group = context.launch.integer("group")
    return Extents(
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


def check_written(context: LaunchContext, shape: Extents) -> None:
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


def locate(body: Body, shape: Extents, number: Expression) -> Task:
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
    return Task(task, row_tile, batch, head, kv_head, row_tile * shape.positions)
