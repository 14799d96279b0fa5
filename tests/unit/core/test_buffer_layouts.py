"""Which layout a buffer gets, and how long it lives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.memory.buffer_kinds import PLACING_ORDER, BufferRole
from starc.core.memory.buffer_layouts import TileReads, buffer_layout
from starc.core.memory.layout import Layout, blocked, row_major
from starc.core.memory.planning import Lifetime, Request

PASSING = st.sampled_from((BufferRole.ACTIVATION, BufferRole.INPUT, BufferRole.OUTPUT))


def layout(
    role: BufferRole,
    shape: tuple[int, ...],
    reads: TileReads | None = None,
    channels: int = 1,
    row_unit: int = 16384,
) -> Layout:
    """The layout of a bf16 buffer."""
    reads = TileReads() if reads is None else reads
    return buffer_layout(role, shape, 2, reads, channels=channels, row_unit=row_unit)


def test_a_weight_that_no_gemm_reads_is_read_by_rows() -> None:
    assert layout(BufferRole.WEIGHT, (4096, 512)) == row_major((4096, 512))


def test_blocks_of_a_weight_divide_its_narrowest_tile_and_its_shortest_step() -> None:
    reads = TileReads({64, 16}, {32, 8})
    assert layout(BufferRole.WEIGHT, (4096, 512), reads) == blocked((4096, 512), (8, 16))


def test_a_row_narrower_than_a_block_is_padded_only_where_a_stack_has_one_channel() -> None:
    reads = TileReads({64}, {32})
    assert layout(BufferRole.WEIGHT, (4096, 56), reads).padded_elements > 4096 * 56
    assert layout(BufferRole.WEIGHT, (4096, 56), reads, channels=4).padded_elements == 4096 * 56


def test_a_cache_lies_in_blocks_of_whole_tokens() -> None:
    assert layout(BufferRole.STATE, (2, 8, 64, 128)) == blocked((2, 8, 64, 128), (16, 128))


@given(role=PASSING, rows=st.integers(1, 31), columns=st.integers(1, 4096))
def test_few_rows_that_no_gemm_reads_are_row_major(
    role: BufferRole, rows: int, columns: int
) -> None:
    assert layout(role, (rows, 1, columns)) == row_major((rows, 1, columns))


@given(role=PASSING, gpus=st.sampled_from((1, 2, 4)), columns=st.integers(1, 4096))
def test_rows_of_every_gpu_begin_on_the_same_place(
    role: BufferRole, gpus: int, columns: int
) -> None:
    owned = 8 // gpus
    found = layout(role, (8, 1, columns), TileReads(gpu_rows=owned))
    assert found.offset((owned % 8, 0, 0)) * 2 % 16384 == 0 or owned == 8


@given(role=PASSING, rows=st.integers(2, 4), width=st.sampled_from((16, 32, 64)))
def test_what_a_gemm_reads_is_in_blocks_no_wider_than_its_step(
    role: BufferRole, rows: int, width: int
) -> None:
    found = layout(role, (rows, 1, 256), TileReads({width}))
    assert found == blocked((rows, 1, 256), (rows, 1, width))


def test_every_role_has_its_place() -> None:
    assert sorted(PLACING_ORDER) == sorted(BufferRole)


@given(steps=st.lists(st.integers(1, 50), min_size=1), begin=st.integers(0, 50))
def test_a_buffer_lives_from_its_first_use_to_its_last(steps: list[int], begin: int) -> None:
    life = Lifetime(steps[0], steps[0])
    for step in steps:
        life.reach(step)
    life.begin(begin)
    assert (life.first, life.last) == (min(begin, steps[0]), max(steps))


@pytest.mark.parametrize("step", [0, 7])
def test_a_buffer_that_peers_reach_lives_to_the_end(step: int) -> None:
    life = Lifetime(3, 4)
    life.pin()
    life.reach(step)
    assert (life.first, life.last) == (0, None)
    assert Request("a", 1, life.first, life.last).overlaps(Request("b", 1, 100, 100))
