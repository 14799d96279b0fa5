"""Candidates for the tiles of attention, each with its estimated time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from starc.core.kernel_schedules.attention_problem import (
    STATISTICS,
    AttentionOptions,
    AttentionProblem,
    AttentionSchedule,
    key_steps,
    total_key_steps,
)
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.residency import ACCUMULATOR_BYTES, MAX_RESIDENT, STAGES, WAVES
from starc.core.kernel_schedules.share_merging import NO_MERGE, Merge, choose_merge
from starc.core.tiling import ceil_div, covering_power_of_two, overlapped, pad, shares
from starc.core.vector_functions.table import BY_NAME

ROW_TILES: Final = (128, 64)
KEY_TILES: Final = (128, 64, 32)


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


@dataclass(frozen=True)
class _KeyTiles:
    """Tiles of ``rows`` queries and ``keys`` keys that go through ``stages`` slots, with
    ``resident`` workgroups on a compute unit; and of one step the bytes and the seconds: of the
    engines, of scratch memory, and of the chain that it leaves to the next step."""

    rows: int
    keys: int
    stages: int
    waves: int
    resident: int
    window: int
    step_bytes: int
    matrix: float
    vector: float
    scratch: float
    chain: float


def _fitting(
    problem: AttentionProblem, rates: DeviceRates, rows: int, options: AttentionOptions
) -> Iterator[_KeyTiles]:
    """Key tiles and slots that fit."""
    most = max(KEY_TILES[-1], covering_power_of_two(problem.visible_keys))
    every_stage = STAGES if options.stages is None else (options.stages,)
    waves = options.waves or WAVES
    for keys in KEY_TILES if options.keys is None else (options.keys,):
        is_dealt = problem.window is not None and problem.block > 1
        if is_dealt and problem.block % keys:  # a tile must be positions in a row
            continue
        if keys > most and options.keys is None:
            continue
        step_bytes = 2 * keys * problem.key_bytes
        for stages in every_stage:
            resident = attention_resident(problem, rates, rows, keys, stages, waves)
            if resident:
                yield _KeyTiles(
                    rows,
                    keys,
                    stages,
                    waves,
                    resident,
                    rates.window(waves, step_bytes, stages),
                    step_bytes,
                    *_step(problem, rates, rows, keys, waves),
                )


def _step(
    problem: AttentionProblem, rates: DeviceRates, rows: int, keys: int, waves: int
) -> tuple[float, float, float, float]:
    """Seconds of one key tile of the matrix and of the vector engine and of scratch memory, and of
    the chain that one step leaves to the next: its softmax needs the last one's maximum, and the
    accumulator is rescaled before the product with V fills it."""
    d, size = problem.head_dim, problem.element_bytes
    matrix = 4 * pad(rows, rates.matrix_rows) * keys * d / rates.matrix_rate(problem.dtype)
    if rates.machine.matrix_tile:
        padded = rates.padded(rows, keys, d) + rates.padded(rows, d, keys)
        matrix = 2 * padded / rates.matrix_rate(problem.dtype)
    step = rates.vector_seconds(*BY_NAME[problem.softmax].operations((rows * keys,)))
    rescale = rates.vector_seconds(*BY_NAME["rescale"].operations((rows * d,)))
    # Queries, and what values are multiplied with, are in registers.
    scratch = rates.scratch_seconds(waves, (rows, keys, d), (0, size))
    scratch += rates.scratch_seconds(waves, (rows, d, keys), (0, size))
    chain = max(step, rescale + matrix / 2) + rates.vector_latency_s
    return matrix, step + rescale, scratch, chain


def decode_schedules(
    problem: AttentionProblem, rates: DeviceRates, options: AttentionOptions
) -> Iterator[AttentionSchedule]:
    """Schedules of which a task is a sequence and KV head, its keys shared out."""
    rows = problem.query * problem.group
    tasks = problem.batch * problem.kv_heads
    for tiles in _fitting(problem, rates, rows, options):
        (steps,) = key_steps(problem, problem.query, tiles.keys)
        most = max(1, min(steps, 4 * tiles.resident * rates.compute_units // tasks))
        for share, split in _shares(steps, most, options):
            merge = choose_merge(
                rows=rows,
                row_bytes=(problem.head_dim + STATISTICS) * ACCUMULATOR_BYTES,
                tiles=tasks,
                split=split,
                resident=tiles.resident,
                kernel_class="attention",
                rates=rates,
                box=(problem.query, problem.group),
                combine=options.combine,
            )
            if options.combine not in (None, merge.combine) and split > 1:
                continue
            grid = tasks * split
            active = min(tiles.resident, ceil_div(grid, rates.compute_units))
            stream = rates.stream_rate(tiles.window, active)
            body = _decode_body(problem, rates, tiles, grid, share, stream)
            body["memory"] = tasks * steps * tiles.step_bytes / rates.hbm_rate
            body["dispatch"] = ceil_div(grid, rates.dies) * rates.dispatch_s
            body["links"] = problem.link_seconds(rates, 1)
            exposed = ceil_div(grid, rates.compute_units) / active
            fill = exposed * (2 * rates.latency_s + tiles.step_bytes / stream)
            ends = {"fill": fill, "merge": merge.seconds}
            yield _schedule(problem, tiles, tasks, problem.group, body, ends, split, merge)


def _shares(steps: int, most: int, options: AttentionOptions) -> Iterator[tuple[int, int]]:
    """Steps of a share and the number of shares; the number that is asked for may leave some of
    them empty, as a kernel launched with it would."""
    if options.split is None:
        yield from shares(steps, most)
    else:
        yield ceil_div(steps, options.split), options.split


def _decode_body(
    problem: AttentionProblem,
    rates: DeviceRates,
    tiles: _KeyTiles,
    grid: int,
    share: int,
    stream: float,
) -> dict[str, float]:
    """Seconds of the busiest compute unit, whose workgroups take ``share`` steps each."""
    busiest = ceil_div(grid, rates.compute_units)
    active = min(tiles.resident, busiest)
    chain = tiles.chain
    if tiles.stages == 1:  # nothing of a step overlaps with another
        load = rates.latency_s + tiles.step_bytes / 2 / rates.cu_port
        latency = 2 * (rates.matrix_latency_s + rates.vector_latency_s)
        chain = load + tiles.matrix + tiles.vector + latency
    return {
        "matrix": busiest * share * tiles.matrix,
        "scratch": busiest * share * tiles.scratch,
        "vector": busiest * share * tiles.vector,
        "chain": busiest / active * share * chain,
        "stream": busiest * share * tiles.step_bytes / stream,
    }


def prefill_schedules(
    problem: AttentionProblem, rates: DeviceRates, options: AttentionOptions
) -> Iterator[AttentionSchedule]:
    """Schedules of which a task is a sequence and query head, with tiles of its rows."""
    tasks = problem.batch * problem.kv_heads * problem.group
    most_rows = max(ROW_TILES[-1], covering_power_of_two(problem.query))
    for rows in ROW_TILES if options.rows is None else (options.rows,):
        if rows > most_rows and options.rows is None:
            continue
        row_tiles = ceil_div(problem.query, rows)
        for tiles in _fitting(problem, rates, rows, options):
            steps, longest = total_key_steps(problem, rows, tiles.keys)
            step, alone = _prefill_step(problem, rates, tiles, tasks * row_tiles, row_tiles)
            units = _busiest(problem, rows, tiles.keys, tasks, rates.compute_units)
            rounds = ceil_div(tasks * row_tiles, rates.compute_units * tiles.resident)
            body = {
                "units": max(units * step, longest * alone),
                "memory": problem.compulsory_bytes / rates.hbm_rate,
                "l2": tasks * steps * tiles.step_bytes / rates.l2_rate,
                # Workgroups that run together read a tile of a peer through the L2 together.
                "links": problem.link_seconds(rates, rounds),
            }
            fill = rounds * (2 * rates.latency_s + tiles.matrix + tiles.vector)
            yield _schedule(problem, tiles, tasks, 1, body, {"fill": fill})


def _prefill_step(
    problem: AttentionProblem,
    rates: DeviceRates,
    tiles: _KeyTiles,
    workgroups: int,
    row_tiles: int,
) -> tuple[float, float]:
    """Seconds of a step where units hold as many workgroups as they can, and of one alone."""
    # Heads of a group and their row tiles read the same keys: the L2 serves most of it.
    stream = rates.stream_rate(tiles.window, tiles.resident, 1 / (problem.group * row_tiles))
    # What one workgroup's chain leaves idle, others on the same unit can use.
    together = max(1.0, min(tiles.resident, workgroups / rates.compute_units))
    # With two slots a step's loads start when the slot is free: their latency counts.
    wait = 0.0
    if tiles.stages <= 2:
        wait = rates.latency_s + tiles.step_bytes / 2 / rates.cu_port
    engines = (tiles.matrix, tiles.vector, tiles.scratch, tiles.step_bytes / stream)
    step = max(overlapped((*engines, wait / together)), tiles.chain / together)
    return step, max(overlapped((*engines, wait)), tiles.chain)


def _schedule(
    problem: AttentionProblem,
    tiles: _KeyTiles,
    tasks: int,
    group: int,
    body: dict[str, float],
    ends: dict[str, float],
    split: int = 1,
    merge: Merge = NO_MERGE,
) -> AttentionSchedule:
    """The schedule of tiles that take ``group`` heads; the terms of ``body`` overlap, those of
    ``ends`` do not."""
    seconds = overlapped(body.values())
    for each in ends.values():
        seconds += each
    return AttentionSchedule(
        tile=(tiles.rows, tiles.keys, problem.head_dim),
        group=group,
        split=split,
        merge=merge,
        stages=tiles.stages,
        waves=tiles.waves,
        window_bytes=tiles.window,
        resident=tiles.resident,
        tasks=tasks,
        row_tiles=ceil_div(problem.query, tiles.rows // group),
        seconds=seconds,
        terms=(*body.items(), *ends.items()),
    )


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
