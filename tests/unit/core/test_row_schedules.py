"""Tiles of rows and pieces of payloads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.row_schedules import (
    RowProblem,
    choose_pieces,
    choose_rows,
    holds_rows,
)
from starc.core.tiling import ceil_div
from tests.unit.core.rates import GPU, PARTITION


def test_few_long_rows_are_cut_until_the_units_are_busy() -> None:
    schedule = choose_rows(RowProblem(8, 1, 8192), PARTITION)
    assert schedule.grid >= PARTITION.compute_units
    assert schedule.tile[0] == 1


def test_many_rows_are_taken_in_whole_blocks() -> None:
    rows, columns = choose_rows(RowProblem(1, 8192, 8192), PARTITION).tile
    assert rows % 32 == 0
    assert columns % 64 == 0


@pytest.mark.parametrize(("batch", "query"), [(2, 1), (8, 1), (1, 8192), (3, 7)])
def test_heads_stay_whole(batch: int, query: int) -> None:
    _, columns = choose_rows(RowProblem(batch, query, 48 * 5, unit=48), PARTITION).tile
    assert columns % 48 == 0
    append = choose_rows(RowProblem(batch, query, 48 * 5, unit=48, one_unit=True), PARTITION)
    assert append.tile[1] == 48


def norm(batch: int, query: int, columns: int) -> RowProblem:
    elements = batch * query * columns
    return RowProblem(
        batch,
        query,
        columns,
        whole_rows=True,
        read_bytes=2 * elements,
        written_bytes=2 * elements,
        lane_operations=4 * elements,
    )


def test_a_norm_takes_whole_rows_or_steps_through_them() -> None:
    assert choose_rows(norm(8, 1, 8192), PARTITION).tile == (1, 8192)
    wide = choose_rows(norm(8, 1, 16384), PARTITION)
    assert wide.steps * wide.tile[1] >= 16384
    assert wide.grid == 8


@pytest.mark.parametrize("rates", [PARTITION, GPU])
@pytest.mark.parametrize("columns", [5120, 8192, 16384])
@pytest.mark.parametrize("rows", [1, 2, 8, 33, 64, 256, 2048])
def test_norms_use_the_device_and_rows_of_blocks_where_there_are_many(
    rows: int, columns: int, rates: DeviceRates
) -> None:
    schedule = choose_rows(norm(rows, 1, columns), rates)
    assert schedule.grid >= min(rows, rates.compute_units) / 2
    if rows >= 8 * rates.compute_units:
        assert schedule.tile[0] >= 8
    # Time is what one row takes, or what all bytes take at half the rate of memory.
    alone = choose_rows(norm(1, 1, columns), rates).seconds
    assert schedule.seconds <= 1.5 * alone + 2 * 4 * rows * columns / rates.hbm_rate


@given(
    st.integers(1, 70),
    st.sampled_from([1, 5, 64]),
    st.integers(1, 5000),
    st.sampled_from([1, 2, 8, 64]),
    st.integers(1, 16),
    st.sampled_from([1, 4]),
)
def test_chunks_hold_every_piece(
    batch: int, query: int, columns: int, chunks: int, workgroups: int, rings: int
) -> None:
    pieces = choose_pieces(batch, query, columns, 2, chunks, workgroups, rings)
    assert pieces.chunk_pieces * chunks >= pieces.pieces
    assert 1 <= pieces.workgroups <= workgroups
    assert pieces.workgroup_pieces * pieces.workgroups >= pieces.chunk_pieces
    if pieces.workgroups > rings:
        assert pieces.workgroups % rings == 0


def test_a_small_payload_needs_one_workgroup_and_a_big_one_all() -> None:
    small = choose_pieces(8, 1, 8192, 2, 64, 16)
    assert (small.workgroups, small.chunk_pieces) == (1, 1)
    big = choose_pieces(1, 8192, 8192, 2, 64, 16)
    assert big.workgroups == 16
    assert big.tile[0] * big.tile[1] * 2 <= 16384
    assert big.pieces == ceil_div(8192 * 8192, big.tile[0] * big.tile[1])


def test_workgroups_are_dealt_out_over_rings() -> None:
    assert choose_pieces(8, 1, 8192, 2, 8, 16, rings=4).workgroups % 4 == 0


def test_norm_of_many_rows_holds_them_in_registers():
    schedule = choose_rows(
        RowProblem(1, 8192, 8192, whole_rows=True, read_bytes=2**27, written_bytes=2**27),
        PARTITION,
    )
    rows, columns = schedule.tile
    assert holds_rows(rows, 8192 * 2, PARTITION.register_bytes)
    assert rows >= 8
    assert schedule.steps <= 8
    assert columns % 64 == 0
    wider = choose_rows(norm(1, 8192, 65536), PARTITION)
    assert holds_rows(wider.tile[0], 65536 * 2, PARTITION.register_bytes)
    widest = choose_rows(norm(1, 64, 1 << 20), PARTITION)
    assert widest.steps > 8  # registers hold none: twice, in tiles of columns


def test_sums_over_rows_of_a_decode_step_use_the_device() -> None:
    moved = 64 * 2048 * 2
    problem = RowProblem(
        64, 1, 2048, whole_rows=True, one_pass=True, read_bytes=2 * moved, written_bytes=2 * moved
    )
    schedule = choose_rows(problem, PARTITION)
    assert schedule.grid >= 16  # blocks of 32 rows would be 2 workgroups
    assert schedule.seconds <= choose_rows(replace(problem, one_pass=False), PARTITION).seconds


def test_sums_over_many_rows_take_blocks_once() -> None:
    rows = 8192
    moved = rows * 2048 * 2
    problem = RowProblem(
        1, rows, 2048, whole_rows=True, one_pass=True, read_bytes=2 * moved, written_bytes=moved
    )
    schedule = choose_rows(problem, PARTITION)
    assert schedule.grid * schedule.tile[0] == rows
    assert schedule.grid >= PARTITION.compute_units
