"""How attention is cut into workgroups: FlashDecoding for few query rows, FlashAttention for many.

**Rule.** When the queries that share a KV head (``query * group`` rows) fit one tile of 128 rows,
they are packed: a task is (sequence, KV head), and its keys are shared out among ``split``
workgroups. Otherwise a task is (sequence, query head) with tiles of 128 or 64 query rows, whole
keys each. Every candidate (key tile, shares or row tile, slots) that fits a compute unit gets an
estimated time, and the smallest wins; ties go to fewer shares, then to larger tiles.

Shares: the busiest compute unit has ``ceil(tasks * split / units)`` of them, so that the estimate
favours counts that fill the units evenly; there are never more shares than key tiles. ``owner``
combines where all workgroups are resident, a second launch otherwise.
Causal row tiles differ in length: the longest start first and share their compute unit with the
shortest, and the estimate is that of list scheduling, but no less than the longest tile alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Final

from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.share_merging import NO_MERGE, Combine, Merge, choose_merge
from starc.core.kernel_schedules.tile_schedules import (
    ACCUMULATOR_BYTES,
    MAX_RESIDENT,
    STAGES,
    WAVES,
)
from starc.core.tiling import (
    ceil_div,
    covering_power_of_two,
    floor_sum,
    overlapped,
    pad,
    shares,
)
from starc.core.vector_functions.table import BY_NAME

PACKED_ROWS: Final = 128
ROW_TILES: Final = (128, 64)
KEY_TILES: Final = (128, 64, 32)
STATISTICS: Final = 2  # running maximum and sum of a row


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


def choose_attention(
    problem: AttentionProblem,
    rates: DeviceRates,
    *,
    options: AttentionOptions = ANY,
    alternatives: int = 3,
) -> tuple[AttentionSchedule, ...]:
    """The best schedule first, then the next ones with other tiles or shares.

    Raises ``ValueError`` when no candidate fits the device, or none that is as asked for.
    """
    packed = problem.query * problem.group <= PACKED_ROWS
    if not packed and options.split not in (None, 1):
        raise ValueError("keys are shared out only where all queries of a KV head are one tile")
    find = _decode if packed else _prefill
    candidates = find(problem, rates, options)
    ranked = sorted(
        candidates, key=lambda s: (s.seconds, s.split, -s.tile[0] * s.tile[1], s.stages)
    )
    if not ranked:
        asked = "" if options == ANY else " as asked for"
        raise ValueError(f"no attention tile{asked} fits the scratch memory of a compute unit")
    chosen: dict[tuple[int, int, int], AttentionSchedule] = {}
    for schedule in ranked:
        chosen.setdefault((*schedule.tile[:2], schedule.split), schedule)
        if len(chosen) > alternatives:
            break
    return tuple(chosen.values())


def attention_resident(
    problem: AttentionProblem,
    rates: DeviceRates,
    rows: int,
    keys: int,
    stages: int,
    waves: int = WAVES,
) -> int:
    """Workgroups that fit a compute unit: K and V slots in scratch memory; queries, scores and
    accumulator in registers."""
    d = problem.head_dim
    scratch = 2 * stages * keys * d * problem.element_bytes
    queries = pad(rows, rates.matrix_rows) * d * problem.element_bytes
    scores = pad(rows, rates.matrix_rows) * keys * (ACCUMULATOR_BYTES + problem.element_bytes)
    scores *= 2  # of a key tile while those of the one before are multiplied with V
    registers = (
        waves * rates.working_registers
        + queries
        + scores
        + pad(rows, rates.matrix_rows) * d * ACCUMULATOR_BYTES
    )
    return min(
        rates.scratch_bytes // scratch,
        rates.register_bytes // registers,
        rates.max_waves // waves,
        rates.max_workgroups,
        MAX_RESIDENT,
    )


def _fitting(
    problem: AttentionProblem, rates: DeviceRates, rows: int, options: AttentionOptions
) -> Iterator[tuple[int, int, int]]:
    """Key tiles, slots and resident workgroups that fit."""
    most = max(KEY_TILES[-1], covering_power_of_two(problem.visible_keys))
    key_tiles = KEY_TILES if options.keys is None else (options.keys,)
    every_stage = STAGES if options.stages is None else (options.stages,)
    for keys in key_tiles:
        for stages in every_stage:
            waves = options.waves or WAVES
            resident = attention_resident(problem, rates, rows, keys, stages, waves)
            is_dealt = problem.window is not None and problem.block > 1
            if is_dealt and problem.block % keys:  # a tile must be positions in a row
                continue
            if resident and (keys <= most or options.keys is not None):
                yield keys, stages, resident


def _step(
    problem: AttentionProblem, rates: DeviceRates, rows: int, keys: int
) -> tuple[float, float, float]:
    """Seconds of the matrix and of the vector engine for one key tile, and of the chain that one
    step leaves to the next: its softmax needs the last one's maximum, and the accumulator is
    rescaled before the product with V fills it."""
    d = problem.head_dim
    matrix = 4 * pad(rows, rates.matrix_rows) * keys * d / rates.matrix_rate(problem.dtype)
    if rates.machine.matrix_tile:
        padded = rates.padded(rows, keys, d) + rates.padded(rows, d, keys)
        matrix = 2 * padded / rates.matrix_rate(problem.dtype)
    step = rates.vector_seconds(*BY_NAME[problem.softmax].operations((rows * keys,)))
    rescale = rates.vector_seconds(*BY_NAME["rescale"].operations((rows * d,)))
    late = rates.vector_latency_s
    return matrix, step + rescale, max(step, rescale + matrix / 2) + late


def _scratch(
    problem: AttentionProblem, rates: DeviceRates, rows: int, keys: int, waves: int
) -> float:
    """Seconds in which keys and values of a tile pass scratch memory; queries, and what they are
    multiplied with values by, are in registers."""
    d, size = problem.head_dim, problem.element_bytes
    scores = rates.scratch_seconds(waves, (rows, keys, d), (0, size))
    return scores + rates.scratch_seconds(waves, (rows, d, keys), (0, size))


def _shares(steps: int, most: int, options: AttentionOptions) -> Iterator[tuple[int, int]]:
    """Steps of a share and the number of shares; the number that is asked for may leave some of
    them empty, as a kernel launched with it would."""
    if options.split is None:
        yield from shares(steps, most)
    else:
        yield ceil_div(steps, options.split), options.split


def _decode(
    problem: AttentionProblem, rates: DeviceRates, options: AttentionOptions
) -> Iterator[AttentionSchedule]:
    rows = problem.query * problem.group
    tasks = problem.batch * problem.kv_heads
    for keys, stages, resident in _fitting(problem, rates, rows, options):
        (steps,) = key_steps(problem, problem.query, keys)
        step_bytes = 2 * keys * problem.key_bytes
        waves = options.waves or WAVES
        window = rates.window(waves, step_bytes, stages)
        matrix, vector, chain = _step(problem, rates, rows, keys)
        if stages == 1:  # nothing of a step overlaps with another
            load = rates.latency_s + step_bytes / 2 / rates.cu_port
            chain = load + matrix + vector + 2 * (rates.matrix_latency_s + rates.vector_latency_s)
        most = max(1, min(steps, 4 * resident * rates.compute_units // tasks))
        for share, split in _shares(steps, most, options):
            grid = tasks * split
            busiest = ceil_div(grid, rates.compute_units)
            active = min(resident, busiest)
            stream = rates.stream_rate(window, active)
            body = {
                "matrix": busiest * share * matrix,
                "scratch": busiest * share * _scratch(problem, rates, rows, keys, waves),
                "vector": busiest * share * vector,
                "chain": busiest / active * share * chain,
                "stream": busiest * share * step_bytes / stream,
                "memory": tasks * steps * step_bytes / rates.hbm_rate,
                "dispatch": ceil_div(grid, rates.dies) * rates.dispatch_s,
                "links": problem.link_seconds(rates, 1),
            }
            fill = busiest / active * (2 * rates.latency_s + step_bytes / stream)
            merge = choose_merge(
                rows=rows,
                row_bytes=(problem.head_dim + STATISTICS) * ACCUMULATOR_BYTES,
                tiles=tasks,
                split=split,
                resident=resident,
                kernel_class="attention",
                rates=rates,
                box=(problem.query, problem.group),
                combine=options.combine,
            )
            if options.combine not in (None, merge.combine) and split > 1:
                continue
            yield AttentionSchedule(
                tile=(rows, keys, problem.head_dim),
                group=problem.group,
                split=split,
                merge=merge,
                stages=stages,
                waves=waves,
                window_bytes=window,
                resident=resident,
                tasks=tasks,
                row_tiles=1,
                seconds=overlapped(body.values()) + fill + merge.seconds,
                terms=(*body.items(), ("fill", fill), ("merge", merge.seconds)),
            )


def _prefill(
    problem: AttentionProblem, rates: DeviceRates, options: AttentionOptions
) -> Iterator[AttentionSchedule]:
    tasks = problem.batch * problem.kv_heads * problem.group
    most_rows = max(ROW_TILES[-1], covering_power_of_two(problem.query))
    for rows in ROW_TILES if options.rows is None else (options.rows,):
        if rows > most_rows and options.rows is None:
            continue
        row_tiles = ceil_div(problem.query, rows)
        for keys, stages, resident in _fitting(problem, rates, rows, options):
            steps, longest = total_key_steps(problem, rows, keys)
            step_bytes = 2 * keys * problem.key_bytes
            waves = options.waves or WAVES
            window = rates.window(waves, step_bytes, stages)
            # Heads of a group and their row tiles read the same keys: the L2 serves most of it.
            stream = rates.stream_rate(window, resident, 1 / (problem.group * row_tiles))
            matrix, vector, chain = _step(problem, rates, rows, keys)
            # What one workgroup's chain leaves idle, others on the same unit can use.
            together = max(1.0, min(resident, tasks * row_tiles / rates.compute_units))
            # With two slots a step's loads start when the slot is free: their latency counts.
            wait = rates.latency_s + step_bytes / 2 / rates.cu_port if stages <= 2 else 0.0
            scratch = _scratch(problem, rates, rows, keys, waves)
            engines = (matrix, vector, scratch, step_bytes / stream)
            step = max(overlapped((*engines, wait / together)), chain / together)
            alone = max(overlapped((*engines, wait)), chain)
            units = _busiest(problem, rows, keys, tasks, rates.compute_units)
            body = {
                "units": max(units * step, longest * alone),
                "memory": problem.compulsory_bytes / rates.hbm_rate,
                "l2": tasks * steps * step_bytes / rates.l2_rate,
            }
            rounds = ceil_div(tasks * row_tiles, rates.compute_units * resident)
            # Workgroups that run together read a tile of a peer through the L2 together.
            body["links"] = problem.link_seconds(rates, rounds)
            fill = rounds * (2 * rates.latency_s + matrix + vector)
            yield AttentionSchedule(
                tile=(rows, keys, problem.head_dim),
                group=1,
                split=1,
                merge=NO_MERGE,
                stages=stages,
                waves=waves,
                window_bytes=window,
                resident=resident,
                tasks=tasks,
                row_tiles=row_tiles,
                seconds=overlapped(body.values()) + fill,
                terms=(*body.items(), ("fill", fill)),
            )


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


MOST_LISTED: Final = 4096  # tiles of queries that are gone through one by one


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


def row_tile_order(row_tiles: int, tasks: int, resident: int, units: int) -> tuple[int, ...]:
    """Row tiles of causal attention in the order in which they start, those of all tasks together.

    The longest (last) come first, a compute unit after the other. Workgroups that start beside them
    at once, as long as ``resident`` fit a unit, come in turns from short to long and from long to
    short, so that the longest ones share their unit with the shortest; the rest starts, longest
    first, where one has ended.

        >>> row_tile_order(8, 1, 2, 5)
        (7, 6, 5, 4, 3, 0, 1, 2)
    """
    order = list(range(row_tiles - 1, -1, -1))
    wave = round(units / tasks)
    if wave < 1:
        return tuple(order)
    for first in range(wave, min(row_tiles, resident * wave), 2 * wave):
        order[first : first + wave] = reversed(order[first : first + wave])
    return tuple(order)


DEALT: Final = 1.02  # gain that is worth it


def deals_heads(
    problem: AttentionProblem, rates: DeviceRates, row_tiles: int, resident: int
) -> bool:
    """Whether dies get neighbouring query heads each, so that those of a KV head are together,
    instead of taking them in turns: by the time of what then misses the L2 beside the products."""
    tasks = problem.batch * problem.kv_heads * problem.group
    if rates.dies == 1 or tasks % rates.dies:
        return False
    each = tasks // rates.dies
    matrix = problem.flops / (rates.matrix_rate(problem.dtype) * rates.compute_units)
    keys = 2 * problem.visible_keys * problem.key_bytes
    at_once = resident * rates.compute_units // rates.dies
    rounds = max(1.0, each * row_tiles / at_once)

    def seconds(heads: int) -> float:
        """With the keys of so many KV heads on a die."""
        passes = 1.0 if heads * keys <= rates.l2_bytes else rounds
        return overlapped((matrix, rates.dies * heads * keys * passes / rates.mall_rate))

    dealt = {task // problem.group for task in range(each)}
    in_turns = {task // problem.group for task in range(0, tasks, rates.dies)}
    return seconds(len(dealt)) * DEALT < seconds(len(in_turns))


def _busiest(problem: AttentionProblem, rows: int, keys: int, tasks: int, units: int) -> int:
    """Steps of the busiest compute unit when workgroups go, longest first, to the unit that is
    free first."""
    jobs = tasks * ceil_div(problem.query, rows)
    if jobs > 64 * units:  # so many that they even out
        steps, longest = total_key_steps(problem, rows, keys)
        return ceil_div(tasks * steps, units) + longest // 2
    free = [0] * min(units, jobs)
    for length in sorted(key_steps(problem, rows, keys), reverse=True):
        for _ in range(tasks):
            heapq.heapreplace(free, free[0] + length)
    return max(free)
