"""Layouts are bijections, and runs are the bytes of a tile."""

from __future__ import annotations

from itertools import pairwise, product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.memory.layout import (
    GRANULE,
    Layout,
    activation_layout,
    blocked,
    cache_layout,
    matrix_layout,
    row_layout,
    row_major,
    run_arrays,
    runs,
)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    rank = draw(st.integers(1, 4))
    shape = [draw(st.integers(1, 9)) for _ in range(rank)]
    if draw(st.booleans()):
        return row_major(shape)
    return blocked(shape, [draw(st.integers(1, 5)) for _ in range(rank)])


@given(layouts())
def test_every_element_has_its_own_place(layout: Layout) -> None:
    indices = np.indices(layout.shape).reshape(len(layout.shape), -1)
    offsets = layout.offsets(list(indices))
    assert len(set(offsets.tolist())) == prod(layout.shape)
    assert offsets.min() >= 0
    assert offsets.max() < layout.padded_elements


@given(layouts(), st.data())
def test_runs_are_the_bytes_of_the_tile(layout: Layout, data: st.DataObject) -> None:
    starts = [data.draw(st.integers(-2, extent + 1)) for extent in layout.shape]
    extents = [data.draw(st.integers(1, 6)) for _ in layout.shape]
    granule, width = 16, 2
    pieces = runs(layout, starts, extents, width, granule)
    inside = [
        range(max(0, start), min(extent, start + size))
        for start, size, extent in zip(starts, extents, layout.shape, strict=True)
    ]
    expected = {
        layout.offset(index) * width + byte for index in product(*inside) for byte in (0, 1)
    }
    covered = [offset + byte for offset, size in pieces for byte in range(size)]
    assert len(covered) == len(set(covered))
    assert set(covered) == expected
    # In address order, inside a granule, and as long as they can be.
    assert [offset for offset, _ in pieces] == sorted(offset for offset, _ in pieces)
    for offset, size in pieces:
        assert offset // granule == (offset + size - 1) // granule
    for (offset, size), (following, _) in pairwise(pieces):
        assert offset + size < following or following % granule == 0


def test_a_block_of_a_weight_is_one_granule() -> None:
    layout = matrix_layout((8192, 448), 2)
    assert layout.block == (32, 64)
    assert runs(layout, (32, 64), (32, 64), 2) == [((7 + 1) * GRANULE, GRANULE)]
    first, size = run_arrays(layout, (0, 0), (64, 128), 2)
    assert size.tolist() == [GRANULE] * 4
    assert first.tolist() == [0, GRANULE, 7 * GRANULE, 8 * GRANULE]


def test_tiles_of_narrow_whole_rows_are_one_run() -> None:
    padded, whole = (matrix_layout((8192, 56), 2, whole_rows=whole) for whole in (False, True))
    assert (padded.block, whole.block) == ((32, 64), (32, 56))
    assert len(runs(padded, (64, 0), (64, 64), 2)) == 64
    assert runs(whole, (64, 0), (64, 64), 2) == [(7168, 1024), (8192, GRANULE), (12288, 2048)]
    assert whole.bytes(2) == 8192 * 56 * 2
    # Steps of 16 rows have blocks of 16 rows; what needs no padding stays as it is.
    assert matrix_layout((8192, 56), 2, rows=16, whole_rows=True).block == (16, 56)
    assert matrix_layout((8192, 48), 2, whole_rows=True) == matrix_layout((8192, 48), 2)


def test_a_row_of_a_row_major_buffer_is_contiguous() -> None:
    assert runs(row_major((4, 8192)), (1, 0), (1, 8192), 2) == [
        (16384 + GRANULE * i, GRANULE) for i in range(4)
    ]


@pytest.mark.parametrize(
    ("shape", "block"),
    [((8192, 160), (64, 32)), ((448, 8192), (32, 64)), ((448, 16), (64, 16)), ((64, 1), (64, 1))],
)
def test_blocks_divide_what_they_can(shape: tuple[int, int], block: tuple[int, int]) -> None:
    layout = matrix_layout(shape, 2)
    assert layout.block == block
    assert layout.bytes(2) == prod(shape) * 2


def test_what_does_not_divide_is_padded() -> None:
    assert matrix_layout((8192, 2004), 2).grid == (256, 32)


def test_a_cache_has_sixteen_tokens_of_128_a_block() -> None:
    assert cache_layout((8, 1, 16384, 128), 2).block == (1, 1, 16, 128)
    assert cache_layout((2, 2, 32, 16), 2).block == (1, 1, 32, 16)
    assert cache_layout((2, 2, 32, 80), 2).kind == "row_major"


@pytest.mark.parametrize(
    ("shape", "block"),
    [
        ((8, 1, 8192), (8, 1, 64)),
        ((3, 5, 64), (3, 5, 64)),
        ((1, 1, 8192), ()),
        ((64, 1, 8192), (32, 1, 64)),
        ((1, 8192, 8192), (1, 32, 64)),
        ((2, 100, 64), (1, 32, 64)),
        ((8, 8, 64), (4, 8, 64)),
        ((7, 5, 64), ()),
    ],
)
def test_activations_are_blocked(shape: tuple[int, ...], block: tuple[int, ...]) -> None:
    assert activation_layout(shape, 2).block == block


def test_a_layout_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="1 to 4 dimensions"):
        row_major((1, 1, 1, 1, 1))
    with pytest.raises(ValueError, match="does not fit shape"):
        Layout("blocked", (4, 4), (2,))
    with pytest.raises(ValueError, match="has no block"):
        Layout("row_major", (4, 4), (2, 2))
    with pytest.raises(ValueError, match="must be positive"):
        row_major((4, 0))


def test_rows_are_padded_until_each_share_takes_whole_units() -> None:
    padded = row_layout((8, 1, 2048), 2, 1, 16384)
    assert padded.bytes(2) == 8 * 16384
    assert runs(padded, (3, 0, 0), (1, 1, 2048), 2) == [(3 * 16384, 4096)]
    assert row_layout((16, 1, 2048), 2, 2, 16384).bytes(2) == 16 * 8192
    assert row_layout((32, 1, 2048), 2, 4, 16384).kind == "row_major"
