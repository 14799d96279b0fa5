"""The tiles that the rule takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.gemm_problem import GemmProblem, GemmSchedule
from starc.core.kernel_schedules.residency import ACCUMULATOR_BYTES
from starc.core.kernel_schedules.share_merging import Combine
from starc.core.kernel_schedules.tile_schedules import choose_gemm
from starc.core.kernel_schedules.tile_walks import choose_walk
from starc.core.tiling import ceil_div, overlapped, row_tiling
from starc.targets.loader import load_target
from tests.unit.core.rates import GPU, PARTITION


def best(problem: GemmProblem, rates: DeviceRates) -> GemmSchedule:
    return choose_gemm(problem, rates)[0]


def ideal(problem: GemmProblem, rates: DeviceRates) -> float:
    matrix = problem.flops / (rates.matrix_rate("bf16") * rates.compute_units)
    return max(matrix, problem.compulsory_bytes / rates.hbm_rate)


@pytest.mark.parametrize("rates", [PARTITION, GPU], ids=["partition", "gpu"])
def test_a_big_square_fills_its_rounds(rates: DeviceRates) -> None:
    problem = GemmProblem(1, 8192, (8192,), 8192)
    schedule = best(problem, rates)
    assert schedule.split == 1
    slots = ceil_div(schedule.grid, rates.compute_units) * rates.compute_units
    assert schedule.grid >= 0.95 * slots
    assert ideal(problem, rates) / schedule.seconds >= 0.8


@pytest.mark.parametrize("rates", [PARTITION, GPU], ids=["partition", "gpu"])
def test_a_skinny_product_splits_k_so_that_all_units_stream_weights(rates: DeviceRates) -> None:
    problem = GemmProblem(8, 1, (160,), 8192)
    schedule = best(problem, rates)
    assert schedule.split > 1
    assert schedule.combine in Combine
    if rates is PARTITION:
        # Bytes in flight of all workgroups keep memory busy for its latency and more.
        in_flight = min(schedule.grid, rates.compute_units) * schedule.window_bytes
        assert in_flight >= 1.5 * rates.hbm_rate * rates.latency_s
        assert ideal(problem, rates) / schedule.seconds >= 0.6


def test_a_wide_product_needs_no_split() -> None:
    schedule = best(GemmProblem(8, 1, (8192,), 448), PARTITION)
    assert schedule.split == 1
    assert schedule.combine is None
    assert schedule.grid >= PARTITION.compute_units


def test_grouped_outputs_share_a_tile() -> None:
    schedule = best(GemmProblem(8, 1, (1024, 128, 128), 8192), PARTITION)
    n = schedule.tile[1]
    assert schedule.column_tiles == (ceil_div(1024, n), ceil_div(128, n), ceil_div(128, n))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 70),
    st.sampled_from([1, 3, 128]),
    st.lists(st.integers(1, 3000), min_size=1, max_size=3),
    st.integers(1, 5000),
)
def test_every_schedule_fits_the_device(batch: int, query: int, columns: list[int], k: int) -> None:
    problem = GemmProblem(batch, query, tuple(columns), k)
    for schedule in choose_gemm(problem, PARTITION):
        m, n, step = schedule.tile
        slots = schedule.stages * (m + n) * step * problem.element_bytes
        assert schedule.resident >= 1
        assert schedule.resident * slots <= PARTITION.scratch_bytes
        assert schedule.resident * m * n * ACCUMULATOR_BYTES <= PARTITION.register_bytes
        assert schedule.window_bytes <= PARTITION.window_bytes
        steps = ceil_div(k, step)
        share = ceil_div(steps, schedule.split)
        assert (schedule.split - 1) * share < steps, "a share of K is empty"
        assert schedule.row_tiles % schedule.group == 0
        if schedule.combine is Combine.OWNER:
            assert schedule.grid <= schedule.resident * PARTITION.compute_units
        assert schedule.seconds >= 0.99 * ideal(problem, PARTITION)


def test_the_best_comes_first() -> None:
    ranked = choose_gemm(GemmProblem(8, 1, (448, 448), 8192), PARTITION)
    assert len(ranked) > 1
    assert [s.seconds for s in ranked] == sorted(s.seconds for s in ranked)


def test_twice_the_rows_is_never_faster() -> None:
    times = [best(GemmProblem(b, 1, (448, 448), 8192), PARTITION).seconds for b in (1, 8, 64, 512)]
    assert times == sorted(times)


def test_a_device_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="no tile fits"):
        choose_gemm(GemmProblem(1, 1, (64,), 64), replace(PARTITION, scratch_bytes=1024))


@given(st.integers(1, 40), st.integers(1, 300), st.sampled_from([16, 32, 64, 128, 256]))
def test_row_tiles_cover_every_row_once(batch: int, query: int, rows: int) -> None:
    tiling = row_tiling(batch, query, rows)
    assert tiling.rows <= rows
    covered = [
        (s, q)
        for tile in range(tiling.tiles)
        for s in range(
            tile // tiling.position_tiles * tiling.sequences,
            min(batch, (tile // tiling.position_tiles + 1) * tiling.sequences),
        )
        for q in range(
            tile % tiling.position_tiles * tiling.positions,
            min(query, (tile % tiling.position_tiles + 1) * tiling.positions),
        )
    ]
    assert sorted(covered) == [(s, q) for s in range(batch) for q in range(query)]


def test_work_on_several_resources_overlaps_imperfectly() -> None:
    assert overlapped([1.0, 0.0]) == 1.0
    assert overlapped([0.0, 0.0]) == 0.0
    assert 1.0 < overlapped([1.0, 1.0]) < 2.0


def test_parts_that_share_their_input_take_turns():
    problem = GemmProblem(1, 8192, (128, 128, 128), 8192)
    rows, columns = row_tiling(1, 8192, 256), (1, 1, 1)
    walk = choose_walk(problem, PARTITION, (256, 128, 16), 1, rows, columns, 1)
    assert walk.bands == rows.tiles // walk.group > 1
    merged = replace(problem, columns=(384,))
    alone = choose_walk(merged, PARTITION, (256, 128, 16), 1, rows, (3,), 1)
    assert alone.bands == 1
    assert walk.fetched == alone.fetched


def test_tiles_divide_what_is_no_power_of_two():
    best = choose_gemm(GemmProblem(1, 8192, (448, 448), 8192), PARTITION)[0]
    assert 448 % best.tile[1] == 0


@pytest.mark.parametrize("rates", [PARTITION, GPU], ids=["partition", "gpu"])
@pytest.mark.parametrize(
    "problem",
    [
        GemmProblem(10**9, 1, (64, 64), 4096),
        GemmProblem(1, 2**40, (4096,), 4096),
        GemmProblem(1, 1, (10**12,), 4096),
        GemmProblem(8, 1, (64,), 10**12),
    ],
    ids=["batch", "query", "columns", "k"],
)
def test_sizes_of_any_magnitude_are_scheduled_at_once(
    problem: GemmProblem, rates: DeviceRates
) -> None:
    assert best(problem, rates).seconds > 0


@pytest.mark.parametrize(
    ("columns", "k"), [((56, 56), 8192), ((128,), 1024), ((128,), 3584), ((1024, 128, 128), 128)]
)
def test_steps_of_a_product_are_whole_tiles_of_a_matrix_engine(
    columns: tuple[int, ...], k: int
) -> None:
    element = DeviceRates.of(load_target("ahbm"))
    _, n, step = element.machine.matrix_tile
    schedule = best(GemmProblem(16, 1, columns, k), element)
    assert schedule.tile[1] % n == schedule.tile[2] % step == 0
    # Operands are padded to tiles of 32 x 32 x 64, of which each takes 64 ns.
    tiles = sum(ceil_div(width, n) for width in columns) * ceil_div(k, step)
    assert dict(schedule.terms)["matrix"] == pytest.approx(tiles * 64e-9, rel=0.04)
    assert schedule.resident == 1
