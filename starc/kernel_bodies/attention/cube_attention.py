"""Attention on a processing element of a memory cube: a sweep over key tiles as engine commands.

A device is one element with one compute unit, so that one workgroup goes through all tasks of a
device (a sequence and the query heads of a KV head, a row tile of its queries) one after the other.
The query heads of a KV head are rows of one tile: K and V are read once for all of them.

A key tile is two composites and the softmax between them. The first streams the tile's keys in
sub-tiles into windows of the scores and scales them; the second streams the values and leaves the
product with the weights in a tile of its own, for a composite carries nothing from one to the next.
The softmax is one command of the MATH engine or several (``tile_softmax``). The state (m, l, o) is
f32 and lives outside of the scratch scope of a tile. The loop has the attribute ``sweep``:
``schedule-commands`` decides what of it overlaps.

Behind the sweep the state is finished where the device has all keys, stored where it is a partial
result, or merged with those of the other ranks of the group (``cube_merge``).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import SSAValue

from starc.core.quasi_affine.expressions import Const, Expression
from starc.core.tiling import largest_divisor
from starc.dialects import isa
from starc.dialects.kernel_problems import attention_of, gather_of
from starc.kernel_bodies.attention.cube_merge import CubeMerge
from starc.kernel_bodies.attention.extents import (
    Extents,
    Task,
    check_written,
    extents_of,
    locate,
)
from starc.kernel_bodies.attention.key_tiles import Sight, key_tiles
from starc.kernel_bodies.attention.state import Place, State, store_output
from starc.kernel_bodies.attention.tile_softmax import TileSoftmax
from starc.kernel_bodies.body import Body, Buffer, Template
from starc.kernel_bodies.context import LaunchContext
from starc.kernel_bodies.shards import Run, global_row

SWEEP: Final = "sweep"
"""Attribute of the loop over key tiles."""


@contextmanager
def sweep(body: Body, lower: Expression, upper: Expression) -> Generator[Expression]:
    """A loop over tiles of keys, whose schedule ``schedule-commands`` chooses."""
    with body.loop("j", lower, upper) as j:
        loop = body.block.parent_op()
        assert isinstance(loop, isa.LoopOp)
        loop.attributes[SWEEP] = UnitAttr()
        yield j


def sweeps(context: LaunchContext) -> bool:
    """Whether a launch is attention on the engines of an element, over keys of its own."""
    launch = context.launch
    if not context.target.engines or launch.ring is not None:
        return False
    return gather_of(attention_of(launch)) is None


def lower_cube_attention(context: LaunchContext) -> list[list[Template]]:
    """The template of the launch: one workgroup."""
    return [[_CubeAttention(context).attend()]]


class _CubeAttention:
    def __init__(self, context: LaunchContext) -> None:
        self.context = context
        self.op = attention_of(context.launch)
        self.shape: Extents = extents_of(context, self.op)
        self.keys, self.values = context.buffer(self.op.key), context.buffer(self.op.value)
        check_written(context, self.shape)
        self.merge = CubeMerge.of(context)
        self.softmax = TileSoftmax.of(
            context.launch,
            float(self.op.scale.value.data),
            self.shape.rows,
            self.shape.keys,
            self.shape.group,
        )
        # Whole tiles of the matrix engine, and whole stripes of the memory's channels.
        self.sub_tile = largest_divisor(self.shape.keys, context.launch.integer("sub_tile", 64))

    def attend(self) -> Template:
        body = self.context.body(self.op)
        tasks = self.shape.tasks * self.shape.row_tiles
        if tasks == 1:
            self._task(body, Const(0))
        else:
            with body.loop("task", 0, tasks) as number:
                self._task(body, number)
        return self.context.template(body, 0, 1, waits=self.merge is not None)

    def _task(self, body: Body, number: Expression) -> None:
        context, shape = self.context, self.shape
        task = locate(body, shape, number)
        q = context.buffer(self.op.query)
        place = Place(task.batch, task.position, task.head, shape.positions, shape.group)
        queries = body.tile("q", shape.rows, shape.head_dim, q.element_type, register=False)
        body.load(queries, q, place.starts(shape.head_dim), place.extents(shape.head_dim))
        state = State.new(body, shape.rows, shape.head_dim, register=False).fill(body)
        self._sweep(body, task, queries, state)
        if self.merge is not None:
            self.merge.emit(body, task, number, state)
        else:
            store_output(context, body, self.op, state, place, shape.head_dim, register=False)

    # The sweep

    def _sweep(self, body: Body, task: Task, queries: SSAValue, state: State) -> None:
        shape = self.shape
        sight = shape.sight(task.position)
        shard = shape.shard
        if shard.is_rotated:
            row = global_row(self.op.key, 0, task.batch, self.context.mesh)
            shard = shard.at_row(body.index("row", row))
        if not shard.is_whole:
            shard = shard.of_rank(body.index("rank", shard.rank))
        for tiles in key_tiles(shard, sight, shape.keys):
            lower = body.index("first_tile", tiles.lower)
            upper = body.index("steps", tiles.upper)
            with sweep(body, lower, upper) as j:
                first = body.index("first_key", tiles.first_key(j))
                self._tile(body, task, sight, tiles.run, tiles.limit, first, queries, state)

    def _tile(
        self,
        body: Body,
        task: Task,
        sight: Sight,
        run: Run,
        limit: Expression,
        first: Expression,
        queries: SSAValue,
        state: State,
    ) -> None:
        shape = self.shape
        scores = body.tile("s", shape.rows, shape.keys, register=False)
        with body.composite():
            body.vector("zero", scores)
            with body.loop("i", 0, shape.keys // self.sub_tile) as i:
                key = self._stream(body, "k", self.keys, task, first, i)
                body.matrix(scores, queries, key, transpose_b=True, columns=i * self.sub_tile)
            self.softmax.scale_scores(body, scores)
        with body.scope():
            weights = body.tile(
                "p", shape.rows, shape.keys, self.values.element_type, register=False
            )
            correction = body.tile("correction", shape.rows, 1, register=False)
            operands = (scores, weights, correction, state)
            self.softmax.emit(body, sight, run, limit, first, *operands)
            product = body.tile("pv", shape.rows, shape.head_dim, register=False)
            with body.composite():
                body.vector("zero", product)
                with body.loop("i", 0, shape.keys // self.sub_tile) as i:
                    value = self._stream(body, "v", self.values, task, first, i)
                    body.matrix(product, weights, value, inner=i * self.sub_tile)
            body.vector("rescale", state.o, correction)
            body.vector("add", state.o, state.o, product)

    def _stream(
        self,
        body: Body,
        name: str,
        cache: Buffer,
        task: Task,
        first: Expression,
        index: Expression,
    ) -> SSAValue:
        """A sub-tile of the keys or values."""
        tile = body.tile(
            name,
            self.sub_tile,
            self.shape.head_dim,
            cache.element_type,
            register=False,
            slots=self.context.launch.integer("stages"),
        )
        body.load(tile, cache, [task.batch, task.kv_head, first + index * self.sub_tile, 0])
        return tile
