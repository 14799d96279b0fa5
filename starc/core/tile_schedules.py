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
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import ceil
from typing import Final

from starc.core.device_rates import DeviceRates
from starc.core.layout import GRANULE, matrix_layout
from starc.core.share_merging import Combine, Merge, choose_merge
from starc.core.tile_walks import choose_walk
from starc.core.tiling import (
    RowTiling,
    ceil_div,
    covering_power_of_two,
    overlapped,
    pad,
    power_of_two_divisor,
    row_tiling,
    shares,
)

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

    @property
    def combine(self) -> Combine | None:
        return self.merge.combine

    @property
    def tiles(self) -> int:
        return self.row_tiles * sum(self.column_tiles)

    @property
    def grid(self) -> int:
        return self.tiles * self.split

    def wave_efficiency(self, compute_units: int) -> float:
        """Workgroups over the slots of the rounds that they take (a round is one a unit)."""
        return self.grid / (ceil_div(self.grid, compute_units) * compute_units)

    def __str__(self) -> str:
        m, n, k = self.tile
        return f"{m}x{n}x{k} split {self.split} stages {self.stages}"


def choose_gemm(
    problem: GemmProblem, rates: DeviceRates, *, alternatives: int = 3
) -> tuple[GemmSchedule, ...]:
    """The best schedule first, then the best ones with other tiles or shares.

    Raises ``ValueError`` when no candidate fits the device.
    """
    ranked = _ranked(problem, RatesKey(rates))
    if not ranked:
        raise ValueError("no tile fits the scratch memory and registers of a compute unit")
    chosen: list[GemmSchedule] = []
    for schedule in ranked:
        shown = {(*other.tile[:2], other.split) for other in chosen}
        if (*schedule.tile[:2], schedule.split) not in shown:
            chosen.append(schedule)
        if len(chosen) > alternatives:
            break
    return tuple(chosen)


def gemm_candidates(problem: GemmProblem, rates: DeviceRates) -> tuple[GemmSchedule, ...]:
    """The best schedules of all tiles and shares, the best first."""
    return _ranked(problem, RatesKey(rates))


@dataclass(frozen=True)
class RatesKey:
    """Rates as a cache key: by identity, for their mappings do not hash."""

    rates: DeviceRates

    def __hash__(self) -> int:
        return hash((self.rates.compute_units, self.rates.hbm_rate, self.rates.clock_hz))


@lru_cache(maxsize=256)
def _ranked(problem: GemmProblem, key: RatesKey) -> tuple[GemmSchedule, ...]:
    found = [
        schedule
        for tile, stages in _tiles(problem)
        for schedule in _schedules(problem, key.rates, tile, stages)
    ]
    found.sort(key=lambda s: (s.seconds, s.split, -s.tile[0] * s.tile[1], s.tile[2], s.stages))
    return tuple(found[:64])


def _tiles(problem: GemmProblem) -> Iterator[tuple[tuple[int, int, int], int]]:
    most_rows = max(ROWS[0], covering_power_of_two(problem.m))
    most_columns = max(COLUMNS[0], covering_power_of_two(max(problem.columns)))
    most_steps = max(STEPS[0], covering_power_of_two(problem.k))
    shapes = [
        (m, n, k)
        for m, n, k in product(ROWS, COLUMNS, STEPS)
        if m <= most_rows and n <= most_columns and k <= most_steps
    ]
    largest = max(_weight_piece(problem, n, k) for _, n, k in shapes)
    for tile, stages in product(shapes, STAGES):
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
    tile: tuple[int, int, int], stages: int, element_bytes: int, rates: DeviceRates
) -> int:
    """Workgroups that fit a compute unit: A and B slots in scratch memory, the accumulator in
    registers."""
    m, n, k = tile
    return min(
        rates.scratch_bytes // (stages * (m + n) * k * element_bytes),
        rates.register_bytes // (m * n * ACCUMULATOR_BYTES),
        rates.max_waves // WAVES,
        MAX_RESIDENT,
    )


def _schedules(
    problem: GemmProblem, rates: DeviceRates, tile: tuple[int, int, int], stages: int
) -> Iterator[GemmSchedule]:
    m, n, k = tile
    resident = gemm_resident(tile, stages, problem.element_bytes, rates)
    if resident < 1:
        return
    rows = row_tiling(problem.batch, problem.query, m)
    columns = tuple(ceil_div(width, n) for width in problem.columns)
    slots = resident * rates.compute_units
    for split in _splits(ceil_div(problem.k, k), rows.tiles * sum(columns), slots):
        yield _estimate(problem, rates, tile, stages, resident, rows, columns, split)


def _estimate(
    problem: GemmProblem,
    rates: DeviceRates,
    tile: tuple[int, int, int],
    stages: int,
    resident: int,
    rows: RowTiling,
    columns: tuple[int, ...],
    split: int,
) -> GemmSchedule:
    _, n, k = tile
    width = problem.element_bytes
    tiles = rows.tiles * sum(columns)
    grid = tiles * split
    share = ceil_div(ceil_div(problem.k, k), split)
    busiest = ceil_div(grid, rates.compute_units)
    active = min(resident, busiest)
    step_bytes = max(LINE_BYTES, rows.rows * k * width) + n * k * width
    walk = choose_walk(problem, rates, tile, resident, rows, columns, split)
    misses = walk.misses
    written = problem.m * problem.n * width
    loaded = grid * share * step_bytes
    window = min(rates.window_bytes, (stages - 1) * step_bytes)
    stream = rates.stream_rate(window, active)
    step = _step_loads(rates, step_bytes, stages, active, misses / loaded)
    stored = rows.rows * n * width
    padded = pad(rows.rows, rates.matrix_rows) * pad(n, rates.matrix_rows)
    matrix = 2 * padded * share * k / rates.matrix_rate(problem.dtype)
    body = {
        "matrix": busiest * matrix * (TWO_SLOTS if stages == 2 else 1.0),
        "stream": busiest / active * share * step,
        "memory": (walk.fetched + written) / rates.hbm_rate,
        "mall": (misses + written) / rates.mall_rate,
        "l2": loaded / rates.l2_rate,
        "dispatch": ceil_div(grid, rates.dies) * rates.dispatch_s,
    }
    exposed = busiest / active
    fill = exposed * (rates.latency_s + step_bytes / stream + matrix / share)
    epilogue = exposed * (stored / stream + rates.latency_s)
    merge = choose_merge(
        rows=rows.rows,
        row_bytes=n * ACCUMULATOR_BYTES,
        tiles=tiles,
        split=split,
        resident=resident,
        kernel_class="gemm",
        rates=rates,
    )
    ends = {"fill": fill, "epilogue": epilogue, "merge": merge.seconds}
    return GemmSchedule(
        tile=tile,
        split=split,
        merge=merge,
        stages=stages,
        waves=WAVES,
        window_bytes=window,
        resident=resident,
        row_tiles=rows.tiles,
        column_tiles=columns,
        group=walk.group,
        seconds=overlapped(body.values()) + sum(ends.values()),
        terms=(*body.items(), *ends.items()),
    )


def _step_loads(
    rates: DeviceRates, step_bytes: int, stages: int, active: int, miss_share: float
) -> float:
    """Seconds between the loads of one step and the next of a workgroup, ``active`` of which share
    a compute unit."""
    pieces = step_bytes / GRANULE
    at_once = max(1.0, rates.window_bytes / active / GRANULE)
    port = active * step_bytes / rates.cu_port
    if stages == 2:
        piece = rates.latency_s + GRANULE / rates.cu_port
        return max(port, ceil(pieces / at_once) * piece)
    # Workgroups that run in step miss together, and all of them wait for the same fill.
    misses = max(LOCKSTEP_MISSES, min(1.0, miss_share))
    latency = rates.l2_latency_s + misses * (rates.latency_s - rates.l2_latency_s)
    piece = latency + GRANULE / rates.cu_port
    return max(port, pieces / at_once * piece, piece / (stages - 1))
