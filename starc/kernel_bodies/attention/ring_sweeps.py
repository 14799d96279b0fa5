"""The sweeps of a PE over the keys of a block that is in the slots of its cube."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute, SSAValue

from starc.core.quasi_affine.expressions import Const, Expression, minimum
from starc.core.tiling import ceil_div
from starc.kernel_bodies.attention.cube_attention import sweep
from starc.kernel_bodies.attention.key_tiles import KeyTiles, Sight, key_tiles
from starc.kernel_bodies.attention.ring_launch import ZERO, RingLaunch, RingTask
from starc.kernel_bodies.attention.ring_messages import RingMessages
from starc.kernel_bodies.attention.state import State
from starc.kernel_bodies.body import Body


@dataclass(frozen=True)
class RowTile:
    """A tile of query rows: local and global position of its first one, and how many the device
    has."""

    local: Expression
    position: Expression
    held: Expression


@dataclass(frozen=True)
class Sweep:
    """What a sweep over keys is for: a tile of query rows and its state."""

    rows: RowTile
    queries: SSAValue
    state: State


@dataclass(frozen=True)
class _Tile:
    """A tile of keys from index ``first`` of a shard on, at ``local`` in a slot of ``peer``."""

    tiles: KeyTiles
    first: Expression
    local: Expression
    peer: Expression


class RingSweeps:
    """The sweeps of one template."""

    def __init__(self, body: Body, launch: RingLaunch, messages: RingMessages) -> None:
        self.body = body
        self.launch = launch
        self.messages = messages

    def share(
        self, sweep_: Sweep, task: RingTask, source: Expression, pe: Expression, turn: Expression
    ) -> None:
        """The visible tiles of the share of a PE."""
        body, messages = self.body, self.messages
        share = self.launch.share(task, source * messages.pes + pe)
        peer = body.index("holder", messages.device(messages.cube, pe))
        sight = self._sight(sweep_.rows)
        for found in key_tiles(share, sight, self.launch.shape.keys):
            with self._loop(found.lower, self._upper(found, sweep_)) as j:
                first = body.index("first_key", found.first_key(j))
                self._take(sweep_, sight, _Tile(found, first, first, peer), turn)

    def block(self, sweep_: Sweep, source: Expression, part: Expression, turn: Expression) -> None:
        """The visible tiles of a block, in the order of positions: one loop for all shares."""
        launch, body, messages = self.launch, self.body, self.messages
        assert launch.block is not None
        block, pes, keys = launch.block, messages.pes, launch.shape.keys
        sight = self._sight(sweep_.rows)
        (found,) = key_tiles(block.of_rank(source), sight, keys)
        lower, upper = found.lower, self._upper(found, sweep_)
        if launch.sweeps > 1:
            width = ceil_div(ceil_div(block.capacity, keys), launch.sweeps)
            upper = minimum(upper, lower + part * width + width)
            lower = lower + part * width
        with self._loop(lower, upper) as j:
            first = body.index("first_key", found.first_key(j))
            run = launch.run
            pe = body.index("share", first // run % pes) if pes > 1 else ZERO
            local = body.index("local_key", first // (run * pes) * run + first % run)
            peer = body.index("holder", messages.device(messages.cube, pe))
            self._take(sweep_, sight, _Tile(found, first, local, peer), turn)

    def _sight(self, rows: RowTile) -> Sight:
        shape, limit = self.launch.shape, self.launch.limit
        if not shape.causal:
            return Sight(Const(limit), Const(limit), limit, causal=False)
        end = minimum(rows.position + rows.held, limit)
        return Sight(rows.position, end, limit, True, shape.window, shape.keep)

    def _upper(self, found: KeyTiles, sweep_: Sweep) -> Expression:
        """The end of the visible tiles; none where the device has no row of the tile."""
        if self.launch.is_even:
            return found.upper
        shape = self.launch.shape
        most = ceil_div(shape.shard.capacity, shape.keys) * self.messages.pes
        return minimum(found.upper, sweep_.rows.held * most)

    @contextmanager
    def _loop(self, lower: Expression, upper: Expression) -> Generator[Expression]:
        body = self.body
        with sweep(body, body.index("first_tile", lower), body.index("tiles", upper)) as j:
            yield j

    def _take(self, sweep_: Sweep, sight: Sight, tile: _Tile, turn: Expression) -> None:
        """Takes a tile of keys and values into the state."""
        launch, body, state = self.launch, self.body, sweep_.state
        shape = launch.shape
        d, size, parts = shape.head_dim, shape.rows, shape.keys // launch.sub
        scores = self._new("s", size, shape.keys)
        with body.composite():
            body.vector("zero", scores)
            with body.each("i", parts) as i:
                key = self._fetch("k", 0, tile, i, turn)
                columns = self._window(i)
                body.matrix(scores, sweep_.queries, key, transpose_b=True, columns=columns)
            launch.softmax.scale_scores(body, scores)
        with body.scope():
            weights = self._new("p", size, shape.keys, launch.caches[1].element_type)
            correction = self._new("correction", size, 1)
            product = self._new("pv", size, d)
            found = tile.tiles
            operands = (scores, weights, correction, state)
            launch.softmax.emit(body, sight, found.run, found.limit, tile.first, *operands)
            with body.composite():
                body.vector("zero", product)
                with body.each("i", parts) as i:
                    value = self._fetch("v", 1, tile, i, turn)
                    body.matrix(product, weights, value, inner=self._window(i))
            body.vector("rescale", state.o, correction)
            body.vector("add", state.o, state.o, product)

    def _window(self, i: Expression) -> Expression | None:
        """The columns of a sub-tile within the tile; ``None`` where it is all of it."""
        return i * self.launch.sub if self.launch.sub < self.launch.shape.keys else None

    def _fetch(
        self, name: str, which: int, tile: _Tile, i: Expression, turn: Expression
    ) -> SSAValue:
        """Keys (0) or values (1) of a sub-tile, from the slot of the PE that has the share."""
        launch = self.launch
        slots = launch.staging[which]
        size = launch.sub, launch.shape.head_dim
        fetched = self._new(name, *size, slots.element_type, launch.stages)
        starts = [turn % launch.slots, tile.local + i * launch.sub, 0]
        self.body.get(fetched, slots, starts, tile.peer)
        return fetched

    def _new(
        self, name: str, rows: int, columns: int, element: Attribute = f32, slots: int = 1
    ) -> SSAValue:
        register = self.launch.register
        return self.body.tile(name, rows, columns, element, register=register, slots=slots)
