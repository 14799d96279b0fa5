"""The estimated time of a GEMM whose tiles are dealt out over workgroups, term by term (they are
explained in ``tile_schedules``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple

from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.gemm_problem import GemmProblem, GemmSchedule, Tile
from starc.core.kernel_schedules.residency import ACCUMULATOR_BYTES
from starc.core.kernel_schedules.share_merging import NO_MERGE, Combine, Merge, choose_merge
from starc.core.kernel_schedules.tile_walks import Walk, choose_walk
from starc.core.memory.layout import GRANULE, LINE_BYTES
from starc.core.tiling import RowTiling, ceil_div, overlapped, row_tiling

LOCKSTEP_MISSES: Final = 0.5
TWO_SLOTS: Final = 1.03  # a late load delays its product at once


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


@dataclass(frozen=True)
class TilePlan:
    """Tiles of a problem, and the workgroups of ``waves`` that hold one, ``resident`` of them on a
    compute unit."""

    problem: GemmProblem
    rates: DeviceRates
    tile: Tile
    stages: int
    waves: int
    resident: int
    rows: RowTiling
    columns: tuple[int, ...]  # column tiles of each part
    combine: Combine | None
    tiles: int
    steps: int  # of the loop over K of a tile
    step_bytes: int  # that a workgroup loads for a step

    @classmethod
    def of(
        cls,
        problem: GemmProblem,
        rates: DeviceRates,
        tile: Tile,
        stages: int,
        waves: int,
        resident: int,
        combine: Combine | None,
    ) -> TilePlan:
        """The plan of a tile; rows that are shorter than a cache line are loaded with all of it."""
        m, n, k = tile
        width = problem.element_bytes
        rows = row_tiling(problem.batch, problem.query, m)
        columns = tuple(ceil_div(columns, n) for columns in problem.columns)
        return cls(
            problem,
            rates,
            tile,
            stages,
            waves,
            resident,
            rows,
            columns,
            combine,
            tiles=rows.tiles * sum(columns),
            steps=ceil_div(problem.k, k),
            step_bytes=max(LINE_BYTES, rows.rows * k * width) + n * k * width,
        )


class _Work(NamedTuple):
    """How the steps of all tiles are dealt out: to ``grid`` workgroups, each of which takes
    ``share`` steps in ``visits`` tiles. Of stream-K (``streams``) it shares out ``apart`` of all
    tiles, ``shared`` steps of them to each."""

    split: int
    streams: int
    grid: int
    share: int
    visits: int
    shared: int
    apart: float
    busiest: int  # workgroups of the busiest compute unit
    active: int  # of them at once


def _dealt_out(plan: TilePlan, split: int, streams: int, whole_rounds: int | None) -> _Work:
    tiles, steps = plan.tiles, plan.steps
    grid = streams or tiles * split
    share, visits, shared, apart = ceil_div(steps, split), 1, 0, 0.0
    if streams:
        rounds = stream_rounds(tiles, streams, whole_rounds)
        shared = ceil_div((tiles - rounds * streams) * steps, streams)
        share, visits = rounds * steps + shared, rounds + 1 + ceil_div(shared, steps)
        apart = (tiles - rounds * streams) / tiles
    busiest = ceil_div(grid, plan.rates.compute_units)
    active = min(plan.resident, busiest)
    return _Work(split, streams, grid, share, visits, shared, apart, busiest, active)


class _Traffic(NamedTuple):
    """Bytes: that workgroups load, of these those that miss the L2, those that come from memory,
    and the results."""

    loaded: int
    misses: float
    fetched: float
    written: int


def _traffic(plan: TilePlan, work: _Work, walk: Walk) -> _Traffic:
    problem, rates = plan.problem, plan.rates
    width = problem.element_bytes
    written = problem.m * problem.n * width
    if not work.streams:
        loaded = work.grid * work.share * plan.step_bytes
        return _Traffic(loaded, walk.misses, walk.fetched, written)
    loaded = plan.tiles * plan.steps * plan.step_bytes
    misses, fetched = walk.misses, walk.fetched
    # Workgroups that share out steps are at different ones: what one has loaded is of use to
    # another only where caches hold everything.
    operands = (problem.m + problem.n) * problem.k * width
    if operands > rates.l2_bytes:
        misses = (1 - work.apart) * misses + work.apart * loaded
        kept = operands <= rates.mall_bytes // 2
        apart = (1 - work.apart) * fetched + work.apart * loaded
        fetched = max(fetched, operands if kept else apart)
    return _Traffic(loaded, misses, fetched, written)


def estimate(
    plan: TilePlan,
    split: int,
    multicast: int = 1,
    streams: int = 0,
    whole_rounds: int | None = None,
) -> GemmSchedule:
    """The schedule of ``split`` shares of K, or of ``streams`` persistent workgroups, with the time
    of its terms in seconds."""
    problem, rates = plan.problem, plan.rates
    work = _dealt_out(plan, split, streams, whole_rounds)
    walk = choose_walk(
        problem, rates, plan.tile, plan.resident, plan.rows, plan.columns, work.split
    )
    traffic = _traffic(plan, work, walk)
    window = rates.window(plan.waves, plan.step_bytes, plan.stages)
    stream = rates.stream_rate(window, work.active)
    matrix = _matrix_seconds(plan, work)
    body = _body(plan, work, traffic, matrix, multicast)
    merge, merge_seconds = _merge(plan, work, stream)
    ends = {**_ends(plan, work, matrix, stream), "merge": merge_seconds}
    return GemmSchedule(
        tile=plan.tile,
        split=split,
        merge=merge,
        stages=plan.stages,
        waves=plan.waves,
        window_bytes=window,
        resident=plan.resident,
        row_tiles=plan.rows.tiles,
        column_tiles=plan.columns,
        group=walk.group,
        seconds=overlapped(body.values()) + sum(ends.values()),
        terms=(*body.items(), *ends.items()),
        streams=streams,
        multicast=multicast,
    )


def _matrix_seconds(plan: TilePlan, work: _Work) -> float:
    """Of the products of one workgroup."""
    _, n, k = plan.tile
    padded = plan.rates.padded(plan.rows.rows, n, k)
    return 2 * padded * work.share / plan.rates.matrix_rate(plan.problem.dtype)


def _body(
    plan: TilePlan, work: _Work, traffic: _Traffic, matrix: float, multicast: int
) -> dict[str, float]:
    """Seconds of every resource, all at work at once."""
    rates, width = plan.rates, plan.problem.element_bytes
    _, n, k = plan.tile
    miss_share = min(1.0, traffic.misses / traffic.loaded)
    step = _step_loads(rates, plan.step_bytes, plan.stages, work.active, miss_share)
    scratch = rates.scratch_seconds(plan.waves, (plan.rows.rows, n, k), (width, width))
    # Of an operand that several workgroups load together the L2 is read once.
    once = max(plan.rows.rows, n) * k * width
    from_l2 = traffic.loaded * (1 - once / plan.step_bytes * (1 - 1 / multicast))
    return {
        "matrix": work.busiest * matrix * (TWO_SLOTS if plan.stages == 2 else 1.0),
        "scratch": work.busiest * work.share * scratch,
        "stream": work.busiest / work.active * work.share * step,
        "memory": (traffic.fetched + traffic.written) / rates.hbm_rate,
        "mall": (traffic.misses + traffic.written) / rates.mall_rate,
        "l2": from_l2 / rates.l2_rate,
        "dispatch": ceil_div(work.grid, rates.dies) * rates.dispatch_s,
    }


def _ends(plan: TilePlan, work: _Work, matrix: float, stream: float) -> dict[str, float]:
    """Seconds that overlap with nothing: first tiles in, results out."""
    latency_s = plan.rates.latency_s
    stored = plan.rows.rows * plan.tile[1] * plan.problem.element_bytes
    exposed = work.busiest / work.active * work.visits
    return {
        "fill": exposed * (latency_s + plan.step_bytes / stream + matrix / work.share),
        "epilogue": exposed * (stored / stream + latency_s),
    }


def _merge(plan: TilePlan, work: _Work, stream: float) -> tuple[Merge, float]:
    """How shares of a tile are combined, and in how many seconds."""
    rows, n = plan.rows.rows, plan.tile[1]
    if work.streams:
        # Its partial tile goes through memory, and the owner of a tile reads those of others.
        steps, shared = plan.steps, work.shared
        others = ceil_div(steps, max(1, shared)) if shared % steps else 0
        partial = rows * n * ACCUMULATOR_BYTES
        fix = (1 + others) * partial / stream + 3 * plan.rates.latency_s if others else 0.0
        return NO_MERGE, fix
    merge = choose_merge(
        rows=rows,
        row_bytes=n * ACCUMULATOR_BYTES,
        tiles=plan.tiles,
        split=work.split,
        resident=plan.resident,
        kernel_class="gemm",
        rates=plan.rates,
        combine=plan.combine,
    )
    return merge, merge.seconds


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
