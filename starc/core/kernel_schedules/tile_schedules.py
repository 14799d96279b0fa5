"""How a GEMM is cut into tiles: the rule, and the numbers it is decided by.

**Rule.** Every candidate (tile m x n x k, shares of K, slots) that fits the scratch memory and the
registers of a compute unit, and whose weight tile is made of contiguous pieces of a granule as far
as the shape allows, is given an estimated time, and the smallest wins; ties go to fewer shares,
then to larger tiles, then to a smaller step. The estimate is

    overlapped(matrix, stream, memory, L2, dispatch) + fill + epilogue + merge

where ``overlapped`` is the 4-norm: the largest term, and more where others come close to it, for
resources that are all nearly busy do not overlap perfectly. The terms:

- matrix: workgroups of the busiest compute unit times the work of one, edge tiles at full size and
  rows padded as the matrix engine does (wave quantisation shows here), and a little more with two
  slots, where a load that is late delays the product at once;
- scratch: operands of the same workgroups through the scratch memory of the unit;
- stream: the loads of the same workgroups. A step's pieces of a granule are fetched as many at a
  time as the workgroup's part of the window holds, each a latency long. With two slots a step's
  loads start when the step before starts, so their latency counts in full, every time; with three
  they flow on, and what hits the L2 is nearer;
- memory and the memory-side cache: bytes that miss the L2 over their rates; an operand that fits
  half of that cache comes from memory once. Per round of resident workgroups a die fetches ``g``
  tile rows of A and the tile columns of B that go with them, of all parts of the launch where they
  take turns; the group ``g`` that makes this smallest is the swizzle;
- L2: all bytes over the rate of the L2 caches; dispatch: workgroups of a die, one after another;
- fill and epilogue: first tiles in, result out, once per workgroup that nothing overlaps;
- merge: with shares of K, either the owner of a tile reads the other shares (all workgroups must be
  resident, for it waits for them) or a second launch does.

**Stream-K.** Where tiles do not fill whole rounds, another candidate has as many workgroups as are
resident at once, each with an equal share of the steps of the tiles that would be left over and of
one whole round, and behind it an equal number of whole tiles. Shares begin at different steps, so
that caches serve them only where they hold all operands. Who begins a tile owns it: it adds
what later workgroups have of it, in order. The estimate is that of the steps of a workgroup, with a
fill and an epilogue for each tile that it touches, and is taken where it is better by ``MARGIN``.

Callers may fix any of this (``GemmOptions``); what is left open is chosen among what fits it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import ceil
from typing import Final

from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.share_merging import NO_MERGE, Combine, Merge, choose_merge
from starc.core.kernel_schedules.tile_walks import choose_walk
from starc.core.memory.layout import GRANULE, matrix_layout
from starc.core.tiling import (
    RowTiling,
    ceil_div,
    covering_power_of_two,
    overlapped,
    power_of_two_divisor,
    row_tiling,
    shares,
)
from starc.diagnostics import counted

ROWS: Final = (16, 32, 64, 96, 128, 160, 192, 224, 256)
COLUMNS: Final = (16, 32, 64, 96, 128, 160, 192, 224, 256)
STEPS: Final = (16, 32, 64, 128, 256)
STAGES: Final = (2, 3, 4)
WAVES: Final = 4
MAX_RESIDENT: Final = 4
ACCUMULATOR_BYTES: Final = 4
LINE_BYTES: Final = 128
BLOCKED_ROWS: Final = 32  # rows of a block of an activation of that many rows or more
LOCKSTEP_MISSES: Final = 0.5
LEAST_PIECE: Final = 2048
TWO_SLOTS: Final = 1.03  # a late load delays its product at once
MARGIN: Final = 1.05  # estimates of stream-K leave out that its workgroups do not go in step
ACCUMULATOR_SHARE: Final = (5, 8)  # accumulators take at most so much of the registers of a unit


@dataclass(frozen=True)
class GemmProblem:
    """One launch of matrix products with a shared input: [batch, query, k] x [k, n] for each n."""

    batch: int
    query: int
    columns: tuple[int, ...]
    k: int
    dtype: str = "bf16"
    element_bytes: int = 2

    @property
    def m(self) -> int:
        return self.batch * self.query

    @property
    def n(self) -> int:
        return sum(self.columns)

    @property
    def flops(self) -> int:
        """2 m n k over the outputs."""
        return 2 * self.m * self.n * self.k

    @property
    def compulsory_bytes(self) -> int:
        """Input and weights once, results once."""
        return (self.m * self.k + self.k * self.n + self.m * self.n) * self.element_bytes


@dataclass(frozen=True)
class GemmOptions:
    """What a caller fixes of a schedule; ``None`` leaves it to the estimate.

    ``streams`` is the number of persistent workgroups of stream-K, 0 for none of it;
    ``whole_rounds`` how many rounds of its tiles stay whole (0: all steps are shared out).
    ``group`` is the number of tile rows that are walked together, ``multicast`` how many
    workgroups share the loads of one operand.
    """

    tile: tuple[int, int, int] | None = None
    split: int | None = None
    combine: Combine | None = None
    stages: int | None = None
    waves: int | None = None
    streams: int | None = None
    whole_rounds: int | None = None
    group: int | None = None
    multicast: int | None = None

    def allows(self, schedule: GemmSchedule) -> bool:
        """Whether a schedule is as it is asked for."""
        return self.combine in (None, schedule.combine) or schedule.split == 1


ANY: Final = GemmOptions()


@dataclass(frozen=True)
class GemmSchedule:
    """A schedule and its estimate; ``terms`` are the seconds that were compared and added."""

    tile: tuple[int, int, int]
    split: int
    merge: Merge
    stages: int
    waves: int
    window_bytes: int
    resident: int  # workgroups that fit a compute unit
    row_tiles: int
    column_tiles: tuple[int, ...]
    group: int  # tile rows that are walked together
    seconds: float
    terms: tuple[tuple[str, float], ...]
    streams: int = 0  # persistent workgroups, 0 for one a tile and share
    multicast: int = 1  # workgroups that share the loads of an operand

    @property
    def combine(self) -> Combine | None:
        return self.merge.combine

    @property
    def tiles(self) -> int:
        return self.row_tiles * sum(self.column_tiles)

    @property
    def grid(self) -> int:
        return self.streams or self.tiles * self.split

    def wave_efficiency(self, compute_units: int) -> float:
        """Workgroups over the slots of the rounds that they take (a round is one a unit)."""
        return self.grid / (ceil_div(self.grid, compute_units) * compute_units)

    def __str__(self) -> str:
        m, n, k = self.tile
        shares = f"split {self.split}" if not self.streams else f"stream-K over {self.streams}"
        shared = f" multicast {self.multicast}" if self.multicast > 1 else ""
        return f"{m}x{n}x{k} {shares} stages {self.stages}{shared}"


def choose_gemm(
    problem: GemmProblem,
    rates: DeviceRates,
    *,
    options: GemmOptions = ANY,
    alternatives: int = 3,
) -> tuple[GemmSchedule, ...]:
    """The best schedule first, then the best ones with other tiles or shares.

    Raises ``ValueError`` when no candidate fits the device, or none that is as asked for.
    """
    ranked = _ranked(problem, RatesKey(rates), options)
    if not ranked:
        asked = "" if options == ANY else " as asked for"
        text = f"no tile{asked} fits the scratch memory and registers of a compute unit"
        raise ValueError(text + _room(problem, rates, options))
    chosen: list[GemmSchedule] = []
    for schedule in ranked:
        shown = {(*other.tile[:2], other.split, other.streams) for other in chosen}
        if (*schedule.tile[:2], schedule.split, schedule.streams) not in shown:
            chosen.append(schedule)
        if len(chosen) > alternatives:
            break
    return tuple(chosen)


def _room(problem: GemmProblem, rates: DeviceRates, options: GemmOptions) -> str:
    """What the tile that is asked for takes at least, and what there is; nothing if it fits."""
    if options.tile is None:
        return ""
    stages = min(STAGES) if options.stages is None else options.stages
    if gemm_resident(options.tile, stages, problem.element_bytes, rates, options.waves or WAVES):
        return ""
    m, n, k = options.tile
    operands = stages * (m + n) * k * problem.element_bytes
    part, whole = ACCUMULATOR_SHARE
    return (
        f": gemm-tile={m},{n},{k} in {counted(stages, 'slot')} takes {operands:,} of "
        f"{rates.scratch_bytes:,} bytes of scratch memory for its operands, its accumulator "
        f"{m * n * ACCUMULATOR_BYTES:,} of {rates.register_bytes * part // whole:,} bytes"
    )


def gemm_candidates(problem: GemmProblem, rates: DeviceRates) -> tuple[GemmSchedule, ...]:
    """The best schedules of one workgroup a tile or share, the best first."""
    return _ranked(problem, RatesKey(rates), GemmOptions(streams=0))


@dataclass(frozen=True)
class RatesKey:
    """Rates as a cache key: by identity, for their mappings do not hash."""

    rates: DeviceRates

    def __hash__(self) -> int:
        return hash((self.rates.compute_units, self.rates.hbm_rate, self.rates.clock_hz))


@lru_cache(maxsize=256)
def _ranked(problem: GemmProblem, key: RatesKey, options: GemmOptions) -> tuple[GemmSchedule, ...]:
    found = [
        schedule
        for tile, stages in _tiles(problem, options)
        for schedule in _schedules(problem, key.rates, tile, stages, options)
        if options.allows(schedule)
    ]
    found.sort(
        key=lambda s: (
            s.seconds * (MARGIN if s.streams else 1.0),
            s.split,
            -s.tile[0] * s.tile[1],
            s.tile[2],
            s.stages,
        )
    )
    return tuple(found[:64])


def _tiles(
    problem: GemmProblem, options: GemmOptions
) -> Iterator[tuple[tuple[int, int, int], int]]:
    every_stage = STAGES if options.stages is None else (options.stages,)
    if options.tile is not None:
        yield from product((options.tile,), every_stage)
        return
    most_rows = max(ROWS[0], covering_power_of_two(problem.m))
    most_columns = max(COLUMNS[0], covering_power_of_two(max(problem.columns)))
    most_steps = max(STEPS[0], covering_power_of_two(problem.k))
    shapes = [
        (m, n, k)
        for m, n, k in product(ROWS, COLUMNS, STEPS)
        if m <= most_rows and n <= most_columns and k <= most_steps
    ]
    largest = max(_weight_piece(problem, n, k) for _, n, k in shapes)
    for tile, stages in product(shapes, every_stage):
        if _weight_piece(problem, *tile[1:]) >= min(largest, LEAST_PIECE):
            yield tile, stages


def _weight_piece(problem: GemmProblem, n: int, k: int) -> int:
    """Contiguous bytes of a weight tile of k x n, in the layout that suits it best: its blocks
    lie side by side where they are as high as the step."""
    width = problem.element_bytes
    shape = (problem.k, min(problem.columns))
    widest = min(LINE_BYTES // width, power_of_two_divisor(n))
    rows, columns = matrix_layout(shape, width, widest, rows=k).block
    beside = max(1, min(n, shape[1]) // columns) if rows == k else 1
    return min(GRANULE, rows * columns * beside * width)


def _splits(steps: int, tiles: int, slots: int) -> Iterator[int]:
    """Shares of K without empty ones, no more than fill the slots twice."""
    for _, split in shares(steps, max(1, min(steps, 2 * slots // tiles))):
        yield split


def gemm_resident(
    tile: tuple[int, int, int],
    stages: int,
    element_bytes: int,
    rates: DeviceRates,
    waves: int = WAVES,
) -> int:
    """Workgroups that fit a compute unit: A and B slots in scratch memory, the accumulator in
    registers, of which it leaves three eighths for the rest."""
    m, n, k = tile
    accumulator = m * n * ACCUMULATOR_BYTES
    part, whole = ACCUMULATOR_SHARE
    if accumulator * whole > rates.register_bytes * part:
        return 0
    return min(
        rates.scratch_bytes // (stages * (m + n) * k * element_bytes),
        rates.register_bytes // (accumulator + waves * rates.working_registers),
        rates.max_waves // waves,
        rates.max_workgroups,
        MAX_RESIDENT,
    )


def gemm_waves(tile: tuple[int, int, int], rates: DeviceRates) -> int:
    """Waves of a workgroup: at least four, and so many that the accumulator takes half of the
    registers that a wave can have."""
    accumulator = tile[0] * tile[1] * ACCUMULATOR_BYTES
    return max(WAVES, covering_power_of_two(ceil_div(2 * accumulator, rates.wave_registers)))


def stream_rounds(tiles: int, streams: int, whole_rounds: int | None = None) -> int:
    """Rounds of whole tiles behind the shared ones of stream-K: all but the last full one, and no
    more than asked for."""
    most = max(0, tiles // streams - 1)
    return most if whole_rounds is None else min(most, whole_rounds)


def share_streams(tiles: Sequence[int], streams: int) -> list[int]:
    """Workgroups of each part of a stream-K launch, in proportion to its tiles.

    >>> share_streams([64, 8, 8], 100)
    [80, 10, 10]
    """
    total = sum(tiles)
    return [max(1, streams * count // total) for count in tiles]


def _schedules(
    problem: GemmProblem,
    rates: DeviceRates,
    tile: tuple[int, int, int],
    stages: int,
    options: GemmOptions,
) -> Iterator[GemmSchedule]:
    m, n, k = tile
    waves = options.waves or gemm_waves(tile, rates)
    resident = gemm_resident(tile, stages, problem.element_bytes, rates, waves)
    if resident < 1:
        return
    rows = row_tiling(problem.batch, problem.query, m)
    columns = tuple(ceil_div(width, n) for width in problem.columns)
    slots = resident * rates.compute_units
    steps = ceil_div(problem.k, k)
    tiles = rows.tiles * sum(columns)
    plan = _Plan(problem, rates, tile, stages, waves, resident, rows, columns, options.combine)
    multicasts = _multicasts(rows.tiles, sum(columns), rates)
    if options.multicast is not None:
        multicasts = (options.multicast,)
    for multicast in multicasts:
        if not options.streams:
            splits = _splits(steps, tiles, slots) if options.split is None else (options.split,)
            for split in splits:
                if split <= steps:
                    yield _estimate(plan, split, multicast)
        if options.streams == 0 or (options.split or 1) > 1:
            continue
        if options.streams is not None:
            if options.streams <= min(slots, tiles * steps):
                yield _estimate(plan, 1, multicast, options.streams, options.whole_rounds)
        elif tiles % slots and len(columns) <= slots <= tiles * steps:
            yield _estimate(plan, 1, multicast, slots)


def _multicasts(row_tiles: int, column_tiles: int, rates: DeviceRates) -> tuple[int, ...]:
    """Workgroups that may share loads: those of two tiles side by side, where the device can."""
    pairs = rates.multicast > 1 and (row_tiles % 2 == 0 or (row_tiles == 1 < column_tiles))
    return (1, 2) if pairs else (1,)


@dataclass(frozen=True)
class _Plan:
    """Tiles of a problem, and the workgroups of ``waves`` that hold one."""

    problem: GemmProblem
    rates: DeviceRates
    tile: tuple[int, int, int]
    stages: int
    waves: int
    resident: int
    rows: RowTiling
    columns: tuple[int, ...]
    combine: Combine | None


def _estimate(
    plan: _Plan,
    split: int,
    multicast: int = 1,
    streams: int = 0,
    whole_rounds: int | None = None,
) -> GemmSchedule:
    problem, rates, tile, rows, columns = (
        plan.problem,
        plan.rates,
        plan.tile,
        plan.rows,
        plan.columns,
    )
    stages, resident = plan.stages, plan.resident
    _, n, k = tile
    width = problem.element_bytes
    tiles = rows.tiles * sum(columns)
    grid = streams or tiles * split
    steps = ceil_div(problem.k, k)
    share, visits, shared = ceil_div(steps, split), 1, 0
    if streams:
        rounds = stream_rounds(tiles, streams, whole_rounds)
        shared = ceil_div((tiles - rounds * streams) * steps, streams)
        share, visits = rounds * steps + shared, rounds + 1 + ceil_div(shared, steps)
    busiest = ceil_div(grid, rates.compute_units)
    active = min(resident, busiest)
    step_bytes = max(LINE_BYTES, rows.rows * k * width) + n * k * width
    walk = choose_walk(problem, rates, tile, resident, rows, columns, split)
    misses, fetched = walk.misses, walk.fetched
    written = problem.m * problem.n * width
    loaded = (tiles * steps if streams else grid * share) * step_bytes
    if streams:
        # Workgroups that share out steps are at different ones: what one has loaded is of use to
        # another only where caches hold everything.
        apart = (tiles - stream_rounds(tiles, streams, whole_rounds) * streams) / tiles
        operands = (problem.m + problem.n) * problem.k * width
        if operands > rates.l2_bytes:
            misses = (1 - apart) * misses + apart * loaded
            kept = operands <= rates.mall_bytes // 2
            fetched = max(fetched, operands if kept else (1 - apart) * fetched + apart * loaded)
    window = rates.window(plan.waves, step_bytes, stages)
    stream = rates.stream_rate(window, active)
    step = _step_loads(rates, step_bytes, stages, active, min(1.0, misses / loaded))
    stored = rows.rows * n * width
    padded = rates.padded(rows.rows, n, k)
    matrix = 2 * padded * share / rates.matrix_rate(problem.dtype)
    mnk = (rows.rows, n, k)
    scratch = rates.scratch_seconds(plan.waves, mnk, (width, width))
    # Of an operand that several workgroups load together the L2 is read once.
    once = max(rows.rows, n) * k * width
    from_l2 = loaded * (1 - once / step_bytes * (1 - 1 / multicast))
    body = {
        "matrix": busiest * matrix * (TWO_SLOTS if stages == 2 else 1.0),
        "scratch": busiest * share * scratch,
        "stream": busiest / active * share * step,
        "memory": (fetched + written) / rates.hbm_rate,
        "mall": (misses + written) / rates.mall_rate,
        "l2": from_l2 / rates.l2_rate,
        "dispatch": ceil_div(grid, rates.dies) * rates.dispatch_s,
    }
    exposed = busiest / active * visits
    fill = exposed * (rates.latency_s + step_bytes / stream + matrix / share)
    epilogue = exposed * (stored / stream + rates.latency_s)
    merge, fix = NO_MERGE, 0.0
    if streams:
        # Its partial tile goes through memory, and the owner of a tile reads those of others.
        others = ceil_div(steps, max(1, shared)) if shared % steps else 0
        partial = rows.rows * n * ACCUMULATOR_BYTES
        fix = (1 + others) * partial / stream + 3 * rates.latency_s if others else 0.0
    else:
        merge = choose_merge(
            rows=rows.rows,
            row_bytes=n * ACCUMULATOR_BYTES,
            tiles=tiles,
            split=split,
            resident=resident,
            kernel_class="gemm",
            rates=rates,
            combine=plan.combine,
        )
        fix = merge.seconds
    ends = {"fill": fill, "epilogue": epilogue, "merge": fix}
    return GemmSchedule(
        tile=tile,
        split=split,
        merge=merge,
        stages=stages,
        waves=plan.waves,
        window_bytes=window,
        resident=resident,
        row_tiles=rows.tiles,
        column_tiles=columns,
        group=walk.group,
        seconds=overlapped(body.values()) + sum(ends.values()),
        terms=(*body.items(), *ends.items()),
        streams=streams,
        multicast=multicast,
    )


def _step_loads(
    rates: DeviceRates, step_bytes: int, stages: int, active: int, miss_share: float
) -> float:
    """Seconds between the loads of one step and the next of a workgroup, ``active`` of which share
    a compute unit."""
    pieces = step_bytes / GRANULE
    at_once = max(1.0, rates.window_bytes / active / GRANULE)
    port = active * step_bytes / rates.cu_port
    if stages <= 2:
        piece = rates.latency_s + GRANULE / rates.cu_port
        return max(port, ceil(pieces / at_once) * piece)
    # Workgroups that run in step miss together, and all of them wait for the same fill.
    misses = max(LOCKSTEP_MISSES, min(1.0, miss_share))
    latency = rates.l2_latency_s + misses * (rates.latency_s - rates.l2_latency_s)
    piece = latency + GRANULE / rates.cu_port
    return max(port, pieces / at_once * piece, piece / (stages - 1))
