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

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Final

from starc.core.kernel_schedules.device_rates import DeviceRates, RatesKey
from starc.core.kernel_schedules.gemm_problem import (
    ANY,
    GemmOptions,
    GemmProblem,
    GemmSchedule,
    Tile,
)
from starc.core.kernel_schedules.residency import (
    ACCUMULATOR_BYTES,
    ACCUMULATOR_SHARE,
    STAGES,
    WAVES,
    gemm_resident,
    gemm_waves,
)
from starc.core.kernel_schedules.tile_estimates import TilePlan, estimate
from starc.core.memory.layout import GRANULE, LINE_BYTES, matrix_layout
from starc.core.tiling import (
    covering_power_of_two,
    power_of_two_divisor,
    shares,
)
from starc.diagnostics import counted

ROWS: Final = (16, 32, 64, 96, 128, 160, 192, 224, 256)
COLUMNS: Final = (16, 32, 64, 96, 128, 160, 192, 224, 256)
STEPS: Final = (16, 32, 64, 128, 256)
LEAST_PIECE: Final = 2048
MARGIN: Final = 1.05  # estimates of stream-K leave out that its workgroups do not go in step


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


def _tiles(problem: GemmProblem, options: GemmOptions) -> Iterator[tuple[Tile, int]]:
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


def _schedules(
    problem: GemmProblem,
    rates: DeviceRates,
    tile: Tile,
    stages: int,
    options: GemmOptions,
) -> Iterator[GemmSchedule]:
    waves = options.waves or gemm_waves(tile, rates)
    resident = gemm_resident(tile, stages, problem.element_bytes, rates, waves)
    if resident < 1:
        return
    slots = resident * rates.compute_units
    plan = TilePlan.of(problem, rates, tile, stages, waves, resident, options.combine)
    tiles, steps = plan.tiles, plan.steps
    multicasts = _multicasts(plan.rows.tiles, sum(plan.columns), rates)
    if options.multicast is not None:
        multicasts = (options.multicast,)
    for multicast in multicasts:
        if not options.streams:
            splits = _splits(steps, tiles, slots) if options.split is None else (options.split,)
            for split in splits:
                if split <= steps:
                    yield estimate(plan, split, multicast)
        if options.streams == 0 or (options.split or 1) > 1:
            continue
        if options.streams is not None:
            if options.streams <= min(slots, tiles * steps):
                yield estimate(plan, 1, multicast, options.streams, options.whole_rounds)
        elif tiles % slots and len(plan.columns) <= slots <= tiles * steps:
            yield estimate(plan, 1, multicast, slots)


def _multicasts(row_tiles: int, column_tiles: int, rates: DeviceRates) -> tuple[int, ...]:
    """Workgroups that may share loads: those of two tiles side by side, where the device can."""
    pairs = rates.multicast > 1 and (row_tiles % 2 == 0 or (row_tiles == 1 < column_tiles))
    return (1, 2) if pairs else (1,)
