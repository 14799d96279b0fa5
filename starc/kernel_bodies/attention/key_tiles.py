"""Which tiles of its keys an attention visits, and what the softmax has to know of their positions.

Tiles are numbered along the local keys of a shard. A tile of queries sees positions up to its last
query; with a window those from ``first query - window + 1`` on, and the first ``keep``. Both ends
become local indices by counting the held positions below them, so that a tile is visited only if it
holds a position that some query may see. Tiles with kept positions that lie before the window come
first, in the same loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from starc.core.quasi_affine.expressions import Const, Expression, expression, maximum, minimum
from starc.core.sharding.shard_map import Cyclic
from starc.core.tiling import ceil_div
from starc.kernel_bodies.shards import ZERO, Run, Shard, clamp


@dataclass(frozen=True)
class Sight:
    """What a tile of queries sees: ``first`` is the position of its first query, ``end`` the first
    position that none of them sees. ``written`` positions have been written."""

    first: Expression
    end: Expression
    written: int
    causal: bool = True
    window: int | None = None
    keep: int = 0

    @property
    def lowest(self) -> Expression:
        """The first position of the window of the first query."""
        if self.window is None:
            return Const(0)
        return maximum(0, self.first - (self.window - 1))


@dataclass(frozen=True)
class KeyTiles:
    """The tiles of ``keys`` keys of a run that are visited: numbers ``lower .. upper - 1``, of
    which those before the window stand for tiles ``skipped`` further to the front. Local keys from
    ``limit`` on do not count."""

    run: Run
    keys: int
    limit: Expression
    lower: Expression
    upper: Expression
    skipped: Expression = ZERO
    window_tile: Expression = ZERO
    most: int = 0  # tiles that are skipped at most

    def first_key(self, number: Expression) -> Expression:
        """The local index of the first key of a tile."""
        if self.most:
            is_kept = clamp(self.window_tile - number, 1)
            number = number - minimum(is_kept * self.most, self.skipped)
        return number * self.keys + self.run.begin


def key_tiles(shard: Shard, sight: Sight, keys: int) -> tuple[KeyTiles, ...]:
    """The tiles of a shard, a loop for each run of its positions."""
    runs = shard.runs()
    return tuple(_of_run(shard, run, sight, keys, len(runs) > 1) for run in runs)


def _of_run(shard: Shard, run: Run, sight: Sight, keys: int, is_part: bool) -> KeyTiles:
    def below(end: Expression | int) -> Expression:
        if not is_part:
            return shard.count_below(end)
        return clamp(expression(end) - run.rank - run.begin, run.end - run.begin)

    limit = run.end
    if isinstance(shard.map, Cyclic) and not shard.is_whole and sight.causal:
        limit = Const(shard.capacity)  # behind the last key there are only later positions
    elif shard.is_whole or not sight.causal:
        limit = run.begin + below(sight.written)
    upper = (below(sight.end) + (keys - 1)) // keys
    if sight.window is None:
        return KeyTiles(run, keys, limit, Const(0), upper)
    window_tile = below(sight.lowest) // keys
    if not sight.keep:
        return KeyTiles(run, keys, limit, window_tile, upper)
    kept = minimum((below(sight.keep) + (keys - 1)) // keys, window_tile)
    return _with_kept(run, keys, limit, upper, window_tile, kept, ceil_div(shard.capacity, keys))


def _with_kept(
    run: Run,
    keys: int,
    limit: Expression,
    upper: Expression,
    window_tile: Expression,
    kept: Expression,
    most: int,
) -> KeyTiles:
    skipped = window_tile - kept
    return KeyTiles(run, keys, limit, skipped, upper, skipped, window_tile, most)


def common_tiles(shard: Shard, sight: Sight, keys: int) -> KeyTiles:
    """Tile numbers that between them cover what the queries see of every rank's shard, of positions
    that are dealt out: the first rank has the most below a position, the last one the fewest."""
    first = key_tiles(shard.of_rank(0), sight, keys)[0]
    if sight.window is None:
        return first
    last = key_tiles(shard.of_rank(shard.ranks - 1), sight, keys)[0]
    if not sight.keep:
        return replace(first, lower=last.lower)
    kept = minimum(
        (shard.of_rank(0).count_below(sight.keep) + (keys - 1)) // keys, last.window_tile
    )
    return _with_kept(first.run, keys, first.limit, first.upper, last.window_tile, kept, first.most)


def most_tiles(shard: Shard, sight: Sight, keys: int) -> tuple[int, ...]:
    """For each run the largest number of tiles of any rank, where the queries are the same in every
    workgroup (``sight`` is constant)."""
    counts = [
        [
            int((tiles.upper - tiles.lower).evaluate({}))
            for tiles in key_tiles(shard.of_rank(rank), sight, keys)
        ]
        for rank in range(shard.ranks)
    ]
    return tuple(max(0, *column) for column in zip(*counts, strict=True))


def softmax(
    sight: Sight, run: Run, limit: Expression, first_key: Expression, keys: int
) -> tuple[str, list[Expression | int], list[Expression | int]]:
    """The vector function of a tile of ``keys`` keys from local index ``first_key``, and its
    parameters before and after the group: that of the queries, and those of the keys."""
    suffix, before, behind = visible(sight, run, limit, first_key, keys)
    return f"softmax_step{suffix}", before, behind


def visible(
    sight: Sight, run: Run, limit: Expression, first_key: Expression, keys: int
) -> tuple[str, list[Expression | int], list[Expression | int]]:
    """What decides which keys of a tile a query sees: the end of the name of the functions that
    compare positions so, and their parameters before and after the group."""
    start, end = first_key + run.shift, limit + run.shift
    first = sight.first + run.offset
    if sight.window is None:
        if run.is_plain:
            return "", [first], [start, end]
        return "_sharded", [first], [start, end, run.block, run.ranks, run.rank]
    if run.block == 1:
        # Keys count from the rank's first position on: what they are compared with moves along.
        ahead, ranks = run.rank, run.ranks
        keep = sight.keep + run.offset - ahead
    elif run.block % keys or run.offset:
        raise ValueError(
            f"with a window, tiles of {keys} keys need positions that are dealt out in blocks of a "
            f"multiple of that, not in blocks of {run.block}"
        )
    else:  # the positions of a tile follow each other
        ahead, ranks = run.position(first_key) - first_key, 1
        keep = sight.keep - ahead
    return "_window", [first - ahead], [start, end, ranks, sight.window, keep]
