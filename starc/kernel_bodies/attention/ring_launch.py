"""An attention launch whose keys go around a ring of cubes: what is known before its body."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from starc.core.quasi_affine.expressions import Const, Expression
from starc.core.sharding.shard_map import Contiguous, Cyclic, Offsets, Zigzag
from starc.core.tiling import ceil_div, largest_divisor
from starc.dialects import nn
from starc.dialects.kernel_problems import attention_of, gather_of, tensor
from starc.dialects.sharding import global_shape
from starc.kernel_bodies.attention.extents import Extents, check_written, extents_of
from starc.kernel_bodies.attention.key_loops import gathered_cache
from starc.kernel_bodies.attention.tile_softmax import TileSoftmax
from starc.kernel_bodies.body import Buffer
from starc.kernel_bodies.context import LaunchContext
from starc.kernel_bodies.shards import Shard, global_row, shard_of

ZERO: Final = Const(0)
LONG: Final = 16
"""Tiles of keys in a loop at least, where blocks are cut so that what goes on comes in between."""


@dataclass(frozen=True)
class RingTask:
    """A sequence and a KV head with the query heads that share it."""

    number: Expression
    batch: Expression
    kv_head: Expression
    head: Expression


class RingLaunch:
    """The launch being lowered: ``cubes`` cubes of ``pes`` PEs, ``tasks`` tasks, ``sweeps`` loops
    over the tiles of a block."""

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
        self.cache = gathered_cache(op.key)
        self.caches = context.buffer(self.cache), context.buffer(gathered_cache(op.value))
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
        sub = context.launch.integer("sub_tile", self.shape.keys)
        self.sub = largest_divisor(self.shape.keys, sub)
        self.softmax = TileSoftmax.of(
            context.launch,
            float(op.scale.value.data),
            self.shape.rows,
            self.shape.keys,
            self.shape.group,
        )
        self.register = not context.target.engines  # tiles: where the device has registers, there
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
        if self.shape.row_tiles > 1:
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
    def is_even(self) -> bool:
        """Whether every row tile of every device is full."""
        held = self.rows.ranks * self.shape.row_tiles * self.shape.positions
        return held == self.rows.extent

    @property
    def slots(self) -> int:
        return self.staging[0].shape[0]

    def share(self, task: RingTask, rank: Expression) -> Shard:
        """The keys that a rank holds of the task's sequence."""
        shard = self.shape.shard.of_rank(rank)
        if not shard.is_rotated:
            return shard
        return shard.at_row(global_row(self.cache, 0, task.batch, self.context.mesh))

    def chunks(self, share: Shard) -> Expression:
        """Chunks of ``sub`` keys of the tiles of a share that have been written."""
        keys = self.shape.keys
        return (share.count_below(self.limit) + (keys - 1)) // keys * (keys // self.sub)


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
