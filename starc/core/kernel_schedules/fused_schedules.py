"""How a GEMM that exchanges data with its peers is cut, and which way its operand comes.

**Rule.** The tiles are those of ``tile_schedules``; each that fits is given an estimate for every
way in which slices of peers may be read, and the smallest wins. The estimate is that of the GEMM
itself with what the exchange adds:

- link: bytes that a device fetches from peers, or puts to them, over the rate of its link. Where a
  pull is ``uncached`` every tile fetches the rows that it needs; ``cached`` they are fetched once
  for the tiles that run at once on a die, or once at all where they fit half its L2; ``staged``
  once, by workgroups that take slots from the others;
- stream: what a workgroup reads from a peer is two link latencies farther away;
- push: what of it crosses the link when the products are done, for workgroups that are resident
  together finish their last tiles together;
- arrival: what the slices of peers (``staged``: copied one after the other) are later than the
  products that could use them, or the last tile of a push: its way over the link, the signal
  behind it, and the sum over the ranks at its owner.

A launch whose workgroups wait has no more of them than fit the device at once. Without shares of K
they take several tiles each; shares are added by their owner, with all of them resident.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from starc.core.kernel_schedules.device_rates import DeviceRates, RatesKey
from starc.core.kernel_schedules.gemm_problem import GemmProblem, GemmSchedule, Tile
from starc.core.kernel_schedules.residency import ACCUMULATOR_BYTES, gemm_resident
from starc.core.kernel_schedules.share_merging import Combine
from starc.core.kernel_schedules.tile_schedules import gemm_candidates
from starc.core.memory.layout import GRANULE
from starc.core.tiling import RowTiling, ceil_div, overlapped, row_tiling


class Pull(StrEnum):
    """How slices of peers are read."""

    UNCACHED = "uncached"
    """By each workgroup over the link."""
    CACHED = "cached"
    """Through the L2, so that the workgroups of a die share a fetch."""
    STAGED = "staged"
    """Some workgroups copy them to a local buffer."""


class SumRows(StrEnum):
    """Which rows of the sums of a push are made at once."""

    TILE = "tile"
    WHOLE = "whole"
    """Whole rows, for a sum over their columns."""
    SINGLE = "single"
    """Single ones, for every row has a place of its own."""


SUM_BYTES: Final = 16384 * 6
"""Registers of the sum over ranks: a piece of a tile, and pieces of peers ahead of it."""
COPIERS: Final = 8
"""Workgroups that copy slices of peers, of a ``staged`` pull."""


@dataclass(frozen=True)
class FusedProblem:
    """A GEMM with slices of K on ``pull_ranks`` devices (0: its input is there) and parts whose
    columns belong to ``push_ranks`` devices (0: it keeps what it computes). ``scattered`` has for
    each part the columns that a device adds up: those of an owner, or all of them where ``to_all``
    says that tiles go to every device; 0 for a part that stays. ``partial_bytes`` are those of an
    element that is pushed. ``rows_of_sums`` says whether sums are made by tiles, by whole rows or
    by single rows of a tile."""

    gemm: GemmProblem
    pull_ranks: int
    push_ranks: int
    scattered: tuple[int, ...]
    partial_bytes: int
    link_rate: float  # bytes per second of a device in one direction
    link_latency_s: float
    push_rate: float = 0.0  # the same of the links of a push, where they are others
    push_latency_s: float = 0.0
    to_all: tuple[bool, ...] = ()
    rows_of_sums: SumRows = SumRows.TILE

    def goes_to_all(self, part: int) -> bool:
        """Whether tiles of a part go to every device."""
        return part < len(self.to_all) and self.to_all[part]

    @property
    def pulled_bytes(self) -> int:
        """Bytes of the slices of peers, each once."""
        if self.pull_ranks == 0:
            return 0
        gemm = self.gemm
        return gemm.m * gemm.k * gemm.element_bytes * (self.pull_ranks - 1) // self.pull_ranks

    @property
    def pushed_bytes(self) -> int:
        """Bytes of result tiles for peers."""
        if self.push_ranks == 0:
            return 0
        columns = sum(self.scattered) * (self.push_ranks - 1)
        return self.gemm.m * columns * self.partial_bytes


@dataclass(frozen=True)
class FusedSchedule:
    """The tiles, the way of the pull, the workgroups of each part (of a ``staged`` pull those that
    copy behind them), and the estimate with its terms."""

    gemm: GemmSchedule
    pull: Pull | None
    grid: tuple[int, ...]
    link_bytes: float
    seconds: float
    terms: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        way = f", {self.pull} reads" if self.pull is not None else ""
        return f"{self.gemm}{way}"


def column_tiles(problem: FusedProblem, n: int) -> tuple[int, ...]:
    """Column tiles of each part: of a scattered one those of every owner."""
    return tuple(
        ceil_div(owned, n) * problem.push_ranks
        if owned and not problem.goes_to_all(part)
        else ceil_div(width, n)
        for part, (width, owned) in enumerate(
            zip(problem.gemm.columns, problem.scattered, strict=True)
        )
    )


def fused_resident(problem: FusedProblem, tile: Tile, stages: int, rates: DeviceRates) -> int:
    """Workgroups that fit a compute unit."""
    resident = gemm_resident(tile, stages, problem.gemm.element_bytes, rates)
    if problem.push_ranks:
        held = 2 * tile[0] * tile[1] * ACCUMULATOR_BYTES + SUM_BYTES
        resident = min(resident, rates.register_bytes // held)
    return resident


def choose_fused(
    problem: FusedProblem, rates: DeviceRates, pull: Pull | None = None
) -> tuple[FusedSchedule, ...]:
    """The best schedule of each way to pull first, by estimate; of one way with ``pull``. Empty
    where none fits the device."""
    return _best(problem, RatesKey(rates), pull)


@lru_cache(maxsize=1024)
def _best(
    problem: FusedProblem, key: RatesKey, pull: Pull | None = None
) -> tuple[FusedSchedule, ...]:
    rates = key.rates
    ways: tuple[Pull | None, ...] = (None,)
    if problem.pull_ranks:
        ways = tuple(Pull) if pull is None else (pull,)
    chosen: list[FusedSchedule] = []
    candidates = gemm_candidates(problem.gemm, rates)
    for way in ways:
        found = [s for gemm in candidates for s in _schedules(problem, rates, gemm, way)]
        if found:
            chosen.append(min(found, key=lambda s: (s.seconds, s.gemm.split)))
    return tuple(sorted(chosen, key=lambda s: s.seconds))


def _schedules(
    problem: FusedProblem, rates: DeviceRates, gemm: GemmSchedule, way: Pull | None
) -> Iterator[FusedSchedule]:
    if gemm.split > 1 and gemm.combine is not Combine.OWNER:
        return
    resident = fused_resident(problem, gemm.tile, gemm.stages, rates)
    copiers = COPIERS if way is Pull.STAGED else 0
    slots = resident * rates.compute_units - copiers
    m, n, _ = gemm.tile
    rows = row_tiling(problem.gemm.batch, problem.gemm.query, m)
    across = column_tiles(problem, n)
    tiles = [rows.tiles * count for count in across]
    if slots < len(tiles) or resident < 1:
        return
    if gemm.split > 1:
        grid = [count * gemm.split for count in tiles]
        if sum(grid) > slots:
            return
    else:
        grid = _share_slots(tiles, slots)
    fitted = replace(gemm, resident=resident)
    yield _estimate(_plan(problem, rates, fitted, rows, tiles, grid), way)


def _share_slots(tiles: list[int], slots: int) -> list[int]:
    """Workgroups of each part: one a tile, or in proportion to the tiles."""
    total = sum(tiles)
    if total <= slots:
        return list(tiles)
    return [max(1, slots * count // total) for count in tiles]


class _FusedPlan(NamedTuple):
    """The tiles of each part, and the workgroups (``held`` in all) that take them in turns, of
    which a compute unit has ``active`` at once."""

    problem: FusedProblem
    rates: DeviceRates
    gemm: GemmSchedule
    rows: RowTiling
    tiles: Sequence[int]
    grid: Sequence[int]
    held: int
    turns: int
    per_unit: int
    active: int

    @property
    def across(self) -> int:
        """Tiles side by side, of all parts."""
        return max(1, sum(self.tiles) // max(1, self.rows.tiles))


def _plan(
    problem: FusedProblem,
    rates: DeviceRates,
    gemm: GemmSchedule,
    rows: RowTiling,
    tiles: Sequence[int],
    grid: Sequence[int],
) -> _FusedPlan:
    held = sum(grid)
    # A workgroup takes several tiles in turns: whole turns count, as whole workgroups do.
    pairs = zip(tiles, grid, strict=True)
    turns = max(ceil_div(count * gemm.split, workgroups) for count, workgroups in pairs)
    per_unit = ceil_div(held, rates.compute_units)
    active = min(gemm.resident, per_unit)
    return _FusedPlan(problem, rates, gemm, rows, tiles, grid, held, turns, per_unit, active)


class _PullCost(NamedTuple):
    """What reading slices of peers adds to the terms of a product, in seconds: to the stream, to
    the memory-side cache, at its end. The loop over K begins ``loops`` times; ``link_bytes`` are
    fetched, and copied after ``copied`` seconds."""

    link_bytes: float
    arrival: float
    stream: float = 0.0
    mall: float = 0.0
    loops: int = 1
    copied: float = 0.0


def _pull_cost(plan: _FusedPlan, way: Pull) -> _PullCost:
    if way is Pull.STAGED:
        return _staged_cost(plan)
    problem, rates, gemm = plan.problem, plan.rates, plan.gemm
    times = plan.across
    if way is Pull.CACHED:
        # Workgroups that run in step wait for the same fetch.
        at_once = max(1, plan.held // (rates.dies * gemm.split))
        wide = max(1, at_once // max(1, min(gemm.group, at_once)))
        fits = problem.pulled_bytes * rates.dies <= rates.l2_bytes * rates.dies // 2
        times = 1 if fits else max(1, ceil_div(plan.across, wide))
    far = 2 * problem.link_latency_s
    k = gemm.tile[2]
    pieces = max(1.0, plan.rows.rows * k * problem.gemm.element_bytes / GRANULE)
    busiest = plan.turns * plan.per_unit
    steps = busiest / plan.active * ceil_div(ceil_div(problem.gemm.k, k), gemm.split)
    share = (problem.pull_ranks - 1) / problem.pull_ranks
    at_a_time = max(1.0, rates.window_bytes / plan.active / GRANULE)
    return _PullCost(
        link_bytes=float(problem.pulled_bytes * times),
        arrival=4 * rates.latency_s + far,
        stream=steps * share * min(1.0, pieces / at_a_time) * far,
    )


def _staged_cost(plan: _FusedPlan) -> _PullCost:
    """Of slices that some workgroups copy, each read, stored and signalled before the next one
    begins."""
    problem, rates = plan.problem, plan.rates
    far = 2 * problem.link_latency_s
    link_bytes = float(problem.pulled_bytes)
    whole = link_bytes / (problem.pull_ranks - 1)
    window = COPIERS * rates.window_bytes / (rates.latency_s + far)
    each = whole / min(problem.link_rate, window) + 4 * rates.latency_s + far
    return _PullCost(
        link_bytes=link_bytes,
        arrival=each,
        mall=2 * link_bytes / rates.mall_rate,
        loops=max(1, ceil_div(problem.pull_ranks, plan.gemm.split)),
        copied=(problem.pull_ranks - 1) * each,
    )


def _estimate(plan: _FusedPlan, way: Pull | None) -> FusedSchedule:
    problem, gemm, turns = plan.problem, plan.gemm, plan.turns
    terms = dict(gemm.terms)
    ends = {key: terms.pop(key) for key in ("fill", "epilogue", "merge")}
    planned = max(1, ceil_div(gemm.grid, plan.rates.compute_units))
    for key in ("matrix", "stream"):
        terms[key] *= turns * plan.per_unit / planned
    terms["dispatch"] *= plan.held / max(1, gemm.grid)
    link_bytes = copied = 0.0
    if way is not None:
        cost = _pull_cost(plan, way)
        link_bytes, copied = cost.link_bytes, cost.copied
        terms["stream"] += cost.stream
        terms["mall"] += cost.mall
        ends["fill"] *= cost.loops
        ends["arrival"] = cost.arrival
    terms["link"] = link_bytes / problem.link_rate
    if problem.push_ranks:
        pushed = problem.pushed_bytes
        rate = problem.push_rate or problem.link_rate
        link_bytes += pushed
        # Tiles of the last turn are done together, and cross the link behind the products.
        terms["link"] += pushed / rate * (turns - 1) / turns
        ends["push"] = pushed / rate / turns
        ends["arrival"] = ends.get("arrival", 0.0) + _sums_arrival(plan)
    body = overlapped(terms.values())
    if copied:
        # Behind the last slice there is its own part of the products.
        ends["arrival"] = max(ends["arrival"], copied + body / problem.pull_ranks - body)
    return FusedSchedule(
        gemm=gemm,
        pull=way,
        grid=(*plan.grid, COPIERS) if way is Pull.STAGED else tuple(plan.grid),
        link_bytes=link_bytes,
        seconds=body + sum(ends.values()),
        terms=(*terms.items(), *ends.items()),
    )


def _sums_arrival(plan: _FusedPlan) -> float:
    """What the sums of a push are later than the last product: the way of its last tile, the
    signal behind it, and the sums that a workgroup makes one after the other."""
    problem, rates = plan.problem, plan.rates
    m, n, _ = plan.gemm.tile
    ranks = problem.push_ranks
    stream = rates.stream_rate(rates.window_bytes, 1)
    sent = m * n * problem.partial_bytes * (ranks - 1 if any(problem.to_all) else 1)
    # What comes in is written to memory, and read by all workgroups together.
    columns = sum(problem.scattered)
    received = problem.gemm.m * columns * ranks * problem.partial_bytes
    summed = max(_sum_seconds(plan, stream), 2 * received / rates.mall_rate)
    latency_s = problem.push_latency_s if problem.push_rate else problem.link_latency_s
    return summed + 3 * rates.latency_s + 2 * latency_s + sent / stream


def _sum_seconds(plan: _FusedPlan, stream: float) -> float:
    """Seconds of the sums of one compute unit over the ranks, by which of their rows are made at
    once; a workgroup reads ``stream`` bytes a second."""
    problem, rates = plan.problem, plan.rates
    m, n, _ = plan.gemm.tile
    ranks = problem.push_ranks
    tile_bytes = m * n * problem.partial_bytes
    pushing = [part for part, width in enumerate(problem.scattered) if width]
    if problem.rows_of_sums is SumRows.WHOLE:
        workers = sum(plan.grid[part] for part in pushing)
        rows = ceil_div(problem.gemm.m, max(1, min(workers, rates.compute_units)))
        row_bytes = max(problem.scattered) * problem.partial_bytes
        return rows * (ranks * row_bytes / stream + rates.latency_s)
    owned = sum(
        plan.tiles[part] if problem.goes_to_all(part) else plan.tiles[part] // ranks
        for part in pushing
    )
    turns = ceil_div(owned, rates.compute_units)
    if problem.rows_of_sums is SumRows.SINGLE:
        # Rows of one owner come one after the other.
        rows = ceil_div(min(m, problem.gemm.m), ranks)
        return turns * (ranks * tile_bytes / stream + rows * 2 * rates.latency_s)
    return turns * ranks * tile_bytes / stream
