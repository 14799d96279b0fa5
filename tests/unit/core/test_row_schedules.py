"""Tiles of rows and pieces of payloads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.row_schedules import RowProblem, choose_pieces, choose_rows, holds_rows
from starc.core.tiling import ceil_div
from tests.unit.core.rates import PARTITION


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


def test_a_norm_takes_whole_rows_or_steps_through_them() -> None:
    assert choose_rows(RowProblem(8, 1, 8192, whole_rows=True), PARTITION).tile == (1, 8192)
    wide = choose_rows(RowProblem(8, 1, 16384, whole_rows=True), PARTITION)
    assert wide.steps * wide.tile[1] >= 16384
    assert wide.grid == 8


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
    wide = choose_rows(RowProblem(1, 64, 65536, whole_rows=True), PARTITION)
    assert wide.tile == (32, 256)


def test_sums_over_rows_of_a_decode_step_use_the_device() -> None:
    moved = 64 * 2048 * 2
    problem = RowProblem(
        64, 1, 2048, whole_rows=True, one_pass=True, read_bytes=2 * moved, written_bytes=2 * moved
    )
    schedule = choose_rows(problem, PARTITION)
    assert schedule.grid >= 16  # blocks of 32 rows would be 2 workgroups
    assert schedule.seconds < choose_rows(replace(problem, one_pass=False), PARTITION).seconds


def test_sums_over_many_rows_take_blocks_once() -> None:
    rows = 8192
    moved = rows * 2048 * 2
    problem = RowProblem(
        1, rows, 2048, whole_rows=True, one_pass=True, read_bytes=2 * moved, written_bytes=moved
    )
    schedule = choose_rows(problem, PARTITION)
    assert schedule.grid * schedule.tile[0] == rows
    assert schedule.grid >= PARTITION.compute_units
