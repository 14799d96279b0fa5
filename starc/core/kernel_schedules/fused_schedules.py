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

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal

from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.tile_schedules import (
    ACCUMULATOR_BYTES,
    GemmProblem,
    GemmSchedule,
    RatesKey,
    gemm_candidates,
    gemm_resident,
)
from starc.core.tiling import ceil_div, overlapped, row_tiling

Pull = Literal["uncached", "cached", "staged"]

PULLS: Final[tuple[Pull, ...]] = ("uncached", "cached", "staged")
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
    rows_of_sums: Literal["tile", "whole", "single"] = "tile"

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


def fused_resident(
    problem: FusedProblem, tile: tuple[int, int, int], stages: int, rates: DeviceRates
) -> int:
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
        ways = PULLS if pull is None else (pull,)
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
    if gemm.split > 1 and gemm.combine != "owner":
        return
    resident = fused_resident(problem, gemm.tile, gemm.stages, rates)
    copiers = COPIERS if way == "staged" else 0
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
    yield _estimate(problem, rates, replace(gemm, resident=resident), way, tiles, grid, copiers)


def _share_slots(tiles: list[int], slots: int) -> list[int]:
    """Workgroups of each part: one a tile, or in proportion to the tiles."""
    total = sum(tiles)
    if total <= slots:
        return list(tiles)
    return [max(1, slots * count // total) for count in tiles]


def _arrival(
    problem: FusedProblem,
    rates: DeviceRates,
    gemm: GemmSchedule,
    tiles: list[int],
    grid: list[int],
    latency_s: float,
) -> float:
    """What the sums of a push are later than the last product: the way of its last tile, the
    signal behind it, and the sums that a workgroup makes one after the other."""
    m, n, _ = gemm.tile
    ranks = problem.push_ranks
    stream = rates.stream_rate(rates.window_bytes, 1)
    tile_bytes = m * n * problem.partial_bytes
    sent = tile_bytes * (ranks - 1 if any(problem.to_all) else 1)
    parts = list(zip(tiles, grid, problem.scattered, strict=True))
    owned = sum(
        count if problem.goes_to_all(part) else count // ranks
        for part, (count, _, width) in enumerate(parts)
        if width
    )
    turns = ceil_div(owned, rates.compute_units)
    if problem.rows_of_sums == "whole":
        workers = sum(workgroups for _, workgroups, width in parts if width)
        rows = ceil_div(problem.gemm.m, max(1, min(workers, rates.compute_units)))
        row_bytes = max(problem.scattered) * problem.partial_bytes
        summed = rows * (ranks * row_bytes / stream + rates.latency_s)
    elif problem.rows_of_sums == "single":
        # Rows of one owner come one after the other.
        rows = ceil_div(min(m, problem.gemm.m), ranks)
        summed = turns * (ranks * tile_bytes / stream + rows * 2 * rates.latency_s)
    else:
        summed = turns * ranks * tile_bytes / stream
    # What comes in is written to memory, and read by all workgroups together.
    columns = sum(width for _, _, width in parts)
    received = problem.gemm.m * columns * ranks * problem.partial_bytes
    summed = max(summed, 2 * received / rates.mall_rate)
    return summed + 3 * rates.latency_s + 2 * latency_s + sent / stream


def _estimate(
    problem: FusedProblem,
    rates: DeviceRates,
    gemm: GemmSchedule,
    way: Pull | None,
    tiles: list[int],
    grid: list[int],
    copiers: int,
) -> FusedSchedule:
    m, _, k = gemm.tile
    terms = dict(gemm.terms)
    ends = {key: terms.pop(key) for key in ("fill", "epilogue", "merge")}
    # A workgroup takes several tiles in turns: whole turns count, as whole workgroups do.
    total = sum(tiles) * gemm.split
    held = sum(grid)
    turns = max(ceil_div(count * gemm.split, g) for count, g in zip(tiles, grid, strict=True))
    per_unit = ceil_div(held, rates.compute_units)
    active = min(gemm.resident, per_unit)
    busiest = turns * per_unit
    planned = max(1, ceil_div(gemm.grid, rates.compute_units))
    for key in ("matrix", "stream"):
        terms[key] *= busiest / planned
    terms["dispatch"] *= held / max(1, gemm.grid)
    link_bytes = copied = 0.0
    if way is not None:
        far = 2 * problem.link_latency_s
        rows = row_tiling(problem.gemm.batch, problem.gemm.query, m)
        across = max(1, total // gemm.split // max(1, rows.tiles))
        every = float(problem.pulled_bytes * across)
        link_bytes = every
        if way == "staged":
            link_bytes = float(problem.pulled_bytes)
            whole = link_bytes / (problem.pull_ranks - 1)
            window = copiers * rates.window_bytes / (rates.latency_s + far)
            rate = min(problem.link_rate, window)
            # Each slice is read, stored and signalled before the next one begins.
            each = whole / rate + 4 * rates.latency_s + far
            copied = (problem.pull_ranks - 1) * each
            terms["mall"] += 2 * link_bytes / rates.mall_rate
            ends["arrival"] = each
            # The loop over K begins anew with every slice.
            slices = ceil_div(problem.pull_ranks, gemm.split)
            ends["fill"] *= max(1, slices)
        else:
            if way == "cached":
                at_once = max(1, held // (rates.dies * gemm.split))
                wide = max(1, at_once // max(1, min(gemm.group, at_once)))
                fits = problem.pulled_bytes * rates.dies <= rates.l2_bytes * rates.dies // 2
                times = 1 if fits else max(1, ceil_div(across, wide))
                link_bytes = float(problem.pulled_bytes * times)
                # Workgroups that run in step wait for the same fetch.
            step_rows = row_tiling(problem.gemm.batch, problem.gemm.query, m).rows
            fetched = step_rows * k * problem.gemm.element_bytes
            pieces = max(1.0, fetched / 4096)
            steps = busiest / active * ceil_div(ceil_div(problem.gemm.k, k), gemm.split)
            share = (problem.pull_ranks - 1) / problem.pull_ranks
            at_a_time = max(1.0, rates.window_bytes / active / 4096)
            terms["stream"] += steps * share * min(1.0, pieces / at_a_time) * far
            ends["arrival"] = 4 * rates.latency_s + far
    terms["link"] = link_bytes / problem.link_rate
    if problem.push_ranks:
        pushed = problem.pushed_bytes
        rate = problem.push_rate or problem.link_rate
        latency_s = problem.push_latency_s if problem.push_rate else problem.link_latency_s
        link_bytes += pushed
        # Tiles of the last turn are done together, and cross the link behind the products.
        terms["link"] += pushed / rate * (turns - 1) / turns
        ends["push"] = pushed / rate / turns
        ends["arrival"] = ends.get("arrival", 0.0) + _arrival(
            problem, rates, gemm, tiles, grid, latency_s
        )
    body = overlapped(terms.values())
    if copied:
        # Behind the last slice there is its own part of the products.
        ends["arrival"] = max(ends["arrival"], copied + body / problem.pull_ranks - body)
    seconds = body + sum(ends.values())
    return FusedSchedule(
        gemm=gemm,
        pull=way,
        grid=tuple(grid) + ((copiers,) if copiers else ()),
        link_bytes=link_bytes,
        seconds=seconds,
        terms=(*terms.items(), *ends.items()),
    )
