"""Attention on one device, in numbers: the keys that its queries see, and the tiles of keys that
each tile of queries visits."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.residency import ACCUMULATOR_BYTES
from starc.core.kernel_schedules.share_merging import Combine, Merge
from starc.core.tiling import ceil_div, floor_sum

STATISTICS: Final = 2  # running maximum and sum of a row
MOST_LISTED: Final = 4096  # tiles of queries that are gone through one by one


@dataclass(frozen=True)
class AttentionProblem:
    """Attention on one device: ``batch`` sequences of ``query`` new tokens, ``kv_heads`` caches,
    each read by ``group`` query heads of ``head_dim``, over ``start + query`` keys at most.

    With a ``window`` a query sees the last ``window`` keys and the first ``keep``. Of positions
    that are dealt out to ``ranks`` devices, one has an equal share; ``partial_bytes`` is the size
    of an element of a result that is not normalised and has its maxima and sums beside it.
    ``sources`` are the extents and link classes, outer to inner, of a group of devices whose caches
    are read; each has an equal share of the keys. Where the new tokens are dealt out, too, to
    ``row_ranks`` devices, ``query`` is a device's share.
    """

    batch: int
    query: int
    kv_heads: int
    group: int
    head_dim: int
    start: int
    keys: int
    causal: bool = True
    dtype: str = "bf16"
    element_bytes: int = 2
    cache_element_bytes: int | None = None  # of keys and values; None: as of queries
    window: int | None = None
    keep: int = 0
    ranks: int = 1
    block: int = 1  # of positions that are dealt out
    partial_bytes: int | None = None
    sources: tuple[tuple[int, str], ...] = ()
    row_ranks: int = 1

    @property
    def source_count(self) -> int:
        """Devices whose caches are read."""
        return prod(size for size, _ in self.sources)

    def link_seconds(self, rates: DeviceRates, rounds: int) -> float:
        """Seconds of the slowest link class, where what peers have is read ``rounds`` times."""
        caches = 2 * self.batch * self.kv_heads * self.visible_keys * self.key_bytes * rounds
        seconds = [0.0]
        left = 1.0
        for size, name in self.sources:
            if size > 1 and name in rates.links:
                link = rates.links[name]
                share = left * (size - 1) / size
                seconds.append(share * caches / (link.bytes_per_s * link.per_device))
            left /= size
        return max(seconds)

    @property
    def key_bytes(self) -> int:
        """Bytes of one key, or value, of a head."""
        return self.head_dim * (self.cache_element_bytes or self.element_bytes)

    @property
    def end(self) -> int:
        """The first position that no query sees."""
        return (
            min(self.keys, self.start + self.query * self.row_ranks) if self.causal else self.keys
        )

    def lowest(self, query: int) -> int:
        """The first position that the ``query``-th new token sees, apart from those kept."""
        return 0 if self.window is None else max(0, self.start + query - self.window + 1)

    @property
    def visible_pairs(self) -> int:
        """(query, key) pairs of one head that are not masked, of this device's keys."""
        if not self.causal:
            return ceil_div(self.query * self.keys, self.ranks)
        end = self.start + self.query * self.row_ranks
        seen = _seen(end, self.window) - _seen(self.start, self.window)
        if self.window is not None and self.keep:
            first = max(0, self.start - self.window)
            last = max(0, end - self.window)
            seen += _seen(last, self.keep) - _seen(first, self.keep)
        return ceil_div(seen, self.ranks * self.row_ranks)

    @property
    def flops(self) -> int:
        """4 head_dim per visible pair and query head."""
        return 4 * self.head_dim * self.visible_pairs * self.batch * self.kv_heads * self.group

    @property
    def visible_keys(self) -> int:
        """Keys of this device that some query sees."""
        return ceil_div(self._seen_below(self.end), self.ranks)

    @property
    def old_keys(self) -> int:
        """Those of them that were there before the new tokens."""
        return ceil_div(self._seen_below(min(self.start, self.end)), self.ranks)

    def _seen_below(self, end: int) -> int:
        lowest = min(self.lowest(0), end)
        return end - lowest + min(self.keep, lowest)

    @property
    def compulsory_bytes(self) -> int:
        """K and V of the visible keys once; queries and results once."""
        caches = 2 * self.batch * self.kv_heads * self.visible_keys * self.key_bytes
        rows = self.batch * self.query * self.kv_heads * self.group
        if self.partial_bytes is None:
            return caches + 2 * rows * self.head_dim * self.element_bytes
        results = self.head_dim * self.partial_bytes + STATISTICS * ACCUMULATOR_BYTES
        return caches + rows * (self.head_dim * self.element_bytes + results)

    @property
    def softmax(self) -> str:
        """The vector function of a step."""
        if self.window is not None:
            return "softmax_step_window"
        return "softmax_step" if self.ranks == 1 else "softmax_step_sharded"


def _seen(end: int, window: int | None) -> int:
    """The sum over positions p below ``end`` of ``min(p + 1, window)``.

    >>> _seen(4, None), _seen(4, 2)
    (10, 7)
    """
    full = end if window is None else min(end, window)
    return full * (full + 1) // 2 + (end - full) * full


@dataclass(frozen=True)
class AttentionOptions:
    """What a caller fixes of a schedule; ``None`` leaves it to the estimate. ``rows`` are query
    rows of a tile where heads are not packed."""

    rows: int | None = None
    keys: int | None = None
    split: int | None = None
    combine: Combine | None = None
    stages: int | None = None
    waves: int | None = None


ANY: Final = AttentionOptions()


@dataclass(frozen=True)
class AttentionSchedule:
    """A schedule and its estimate; ``terms`` are the seconds that were compared and added."""

    tile: tuple[int, int, int]  # query rows, keys, head size
    group: int
    split: int
    merge: Merge
    stages: int
    waves: int
    window_bytes: int
    resident: int
    tasks: int
    row_tiles: int
    seconds: float
    terms: tuple[tuple[str, float], ...]

    @property
    def combine(self) -> Combine | None:
        return self.merge.combine

    @property
    def grid(self) -> int:
        return self.tasks * self.row_tiles * self.split

    def __str__(self) -> str:
        rows, keys, _ = self.tile
        return f"{rows} rows x {keys} keys split {self.split}"


def key_steps(problem: AttentionProblem, rows: int, keys: int) -> list[int]:
    """Key tiles that each tile of ``rows`` queries visits, in order of position."""
    tiles = range(ceil_div(problem.query, rows))
    sources = problem.source_count
    width = problem.ranks * sources * keys  # positions that a tile of keys of each device spans
    if not problem.causal:
        return [sources * ceil_div(problem.keys, width) for _ in tiles]
    ends = (problem.start + min(problem.query, (tile + 1) * rows) for tile in tiles)
    steps = [ceil_div(min(end, problem.keys), width) for end in ends]
    if problem.window is None:
        return [sources * step for step in steps]
    # Tiles before the window, of which only those with kept positions are visited.
    skipped = [problem.lowest(tile * rows) // width for tile in tiles]
    kept = ceil_div(problem.keep, width)
    return [
        sources * (step - skip + min(skip, kept)) for step, skip in zip(steps, skipped, strict=True)
    ]


def total_key_steps(problem: AttentionProblem, rows: int, keys: int) -> tuple[int, int]:
    """The sum and the largest of ``key_steps``, at no more cost for a longer prompt: with a window,
    of many tiles an upper bound of both."""
    tiles = ceil_div(problem.query, rows)
    sources = problem.source_count
    width = problem.ranks * sources * keys
    if not problem.causal:
        steps = sources * ceil_div(problem.keys, width)
        return tiles * steps, steps
    if problem.window is not None:
        if tiles <= MOST_LISTED:
            listed = key_steps(problem, rows, keys)
            return sum(listed), max(listed)
        widest = ceil_div(problem.window + rows, width) + 1 + ceil_div(problem.keep, width)
        widest = sources * min(widest, ceil_div(problem.end, width))
        return tiles * widest, widest
    longest = ceil_div(min(problem.start + problem.query, problem.keys), width)
    # Tiles that end before the last key, and before the end of the queries.
    growing = max(0, min(tiles - 1, (problem.keys - problem.start) // rows))
    first = problem.start + rows + width - 1
    total = floor_sum(growing, rows, first, width) + (tiles - growing) * longest
    return sources * total, sources * longest
