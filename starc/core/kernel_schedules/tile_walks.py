"""In which order a GEMM's tiles are taken, and what that costs in memory traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from starc.core.kernel_schedules.device_rates import DeviceRates, RatesKey
from starc.core.kernel_schedules.gemm_problem import GemmProblem, Tile
from starc.core.tiling import RowTiling, ceil_div, divisors, overlapped

CLOSE: Final = 1.02  # times that count as equal


@dataclass(frozen=True)
class Walk:
    """An order of tiles: ``group`` tile rows are walked together, and parts take turns in ``bands``
    bands of such groups (1: one part after the other). ``misses`` are the bytes that then miss the
    L2, ``fetched`` those of them that come from memory."""

    group: int
    bands: int
    misses: float
    fetched: float


def choose_walk(
    problem: GemmProblem,
    rates: DeviceRates,
    tile: Tile,
    resident: int,
    rows: RowTiling,
    columns: Sequence[int],
    split: int,
) -> Walk:
    """The order of the least memory time, the smallest group of those that come close: tile rows
    that go in step ask the same memory stacks. ``columns`` are the column tiles of each part. Parts
    that take turns are one matrix as wide as all of them; others fetch the input again, each. On
    devices with several dies each has its own rows, so that groups must divide those."""
    # Waves, stages and shares count only by how many tiles run at once.
    at_once = max(1, resident * rates.compute_units // (rates.dies * split))
    return _choose(problem, RatesKey(rates), tile[:2], rows, tuple(columns), at_once)


@lru_cache(maxsize=16384)
def _choose(
    problem: GemmProblem,
    key: RatesKey,
    tile: tuple[int, int],
    rows: RowTiling,
    columns: tuple[int, ...],
    at_once: int,
) -> Walk:
    rates = key.rates
    everything_runs = rows.tiles * sum(columns) <= at_once * rates.dies
    matrix = problem.flops / (rates.matrix_rate(problem.dtype) * rates.compute_units)
    written = problem.m * problem.n * problem.element_bytes
    walks: list[tuple[float, Walk]] = []
    groups = divisors(rows.tiles)
    # A group of more tiles than run at once is walked like the smallest such group.
    larger = sum(group <= at_once for group in groups)
    for group in groups[: larger + 1]:
        bands = 1
        if len(columns) > 1 and rows.tiles % (group * rates.dies) == 0:
            bands = rows.tiles // (group * rates.dies)
        is_shared = bands > 1 or everything_runs
        spans = (sum(columns),) if is_shared else columns
        walk = _walk(problem, rates, tile, rows, spans, at_once, group, bands)
        memory = (walk.fetched + written) / rates.hbm_rate
        cache = (walk.misses + written) / rates.mall_rate
        walks.append((overlapped((matrix, memory, cache)), walk))
    least = min(seconds for seconds, _ in walks)
    return next(walk for seconds, walk in walks if seconds <= least * CLOSE)


def _walk(
    problem: GemmProblem,
    rates: DeviceRates,
    tile: tuple[int, int],
    rows: RowTiling,
    spans: tuple[int, ...],
    at_once: int,
    group: int,
    bands: int,
) -> Walk:
    """The traffic of walking ``spans`` (column tiles) one after the other, ``at_once`` tiles on a
    die at a time."""
    bytes_of_row = problem.k * problem.element_bytes
    inputs, weights = problem.m * bytes_of_row, problem.n * bytes_of_row
    again = inputs if inputs <= rates.l2_bytes else inputs * len(spans)
    if (inputs + weights) * rates.dies <= rates.l2_bytes:
        return Walk(group, bands, inputs + weights, inputs + weights)
    tall_bytes = wide_bytes = 0.0
    for across in spans:
        held = min(at_once, ceil_div(rows.tiles * across, rates.dies))
        rounds = max(1.0, rows.tiles * across / (held * rates.dies))
        tall = min(group, held)
        wide = min(ceil_div(held, tall), across)
        tall = min(rows.tiles, max(tall, held // wide))
        tall_bytes += rounds * rates.dies * tall * rows.rows * bytes_of_row
        wide_bytes += rounds * rates.dies * wide * tile[1] * bytes_of_row
    misses = max(again + weights, tall_bytes + wide_bytes)
    # The memory-side cache keeps an operand that is small enough to outlast the other's stream.
    kept = rates.mall_bytes // 2
    fetched = (inputs if inputs <= kept else max(again, tall_bytes)) + (
        weights if weights <= kept else max(weights, wide_bytes)
    )
    return Walk(group, bands, misses, min(misses, fetched))
