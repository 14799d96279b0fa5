"""Shard maps: every position has one owner, in closed form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.shard_map import Contiguous, Cyclic, Offsets, ShardMap, Zigzag


@st.composite
def cases(draw: st.DrawFn) -> tuple[ShardMap, int, int]:
    ranks, extent = draw(st.integers(1, 9)), draw(st.integers(0, 70))
    cuts = sorted(draw(st.lists(st.integers(0, extent), min_size=ranks - 1, max_size=ranks - 1)))
    shard_map = draw(
        st.sampled_from(
            [Contiguous(), Zigzag(), Offsets((0, *cuts, extent))]
            + [Cyclic(block) for block in (1, 2, 3, 16)]
        )
    )
    return shard_map, ranks, extent


@given(cases())
def test_positions_and_owners_are_a_bijection(case: tuple[ShardMap, int, int]) -> None:
    shard_map, ranks, extent = case
    seen: list[int] = []
    for rank in range(ranks):
        positions = shard_map.positions(rank, ranks, extent).tolist()
        assert len(positions) == shard_map.count(rank, ranks, extent)
        assert positions == sorted(positions)
        for index, position in enumerate(positions):
            assert shard_map.position(rank, index, ranks, extent) == position
            assert shard_map.owner(position, ranks, extent) == (rank, index)
        seen += positions
    assert sorted(seen) == list(range(extent))
    counts = [shard_map.count(rank, ranks, extent) for rank in range(ranks)]
    assert shard_map.capacity(ranks, extent) == max(counts)
    assert shard_map.problem(ranks, extent) is None


@given(cases(), st.integers(1, 5))
def test_maps_of_blocks_move_whole_blocks(case: tuple[ShardMap, int, int], block: int) -> None:
    shard_map, ranks, extent = case
    try:
        fine = shard_map.of_blocks(block, ranks, extent)
    except ValueError:
        assert isinstance(shard_map, Zigzag)
        return
    for rank in range(ranks):
        expected = [
            position * block + inside
            for position in shard_map.positions(rank, ranks, extent).tolist()
            for inside in range(block)
        ]
        assert fine.positions(rank, ranks, extent * block).tolist() == expected


@given(cases(), st.integers(2, 5))
def test_in_blocks_is_none_exactly_where_a_shard_cuts_a_block(
    case: tuple[ShardMap, int, int], block: int
) -> None:
    shard_map, ranks, extent = case
    if extent % block or (isinstance(shard_map, Offsets) and extent == 0):
        return
    coarse = shard_map.in_blocks(block, ranks, extent)
    owners = [shard_map.owner(position, ranks, extent)[0] for position in range(extent)]
    whole = all(len(set(owners[start : start + block])) == 1 for start in range(0, extent, block))
    if coarse is None:
        # A cyclic map that wraps only once may keep blocks whole by chance.
        assert not whole or isinstance(shard_map, Cyclic | Contiguous | Zigzag)
        return
    assert whole
    for rank in range(ranks):
        expected = shard_map.positions(rank, ranks, extent).tolist()[::block]
        found = coarse.positions(rank, ranks, extent // block).tolist()
        assert [position * block for position in found] == expected


def test_methods_formula_of_the_cyclic_count() -> None:
    # count(r, S) = S // R + (r < S % R) for blocks of 1.
    for extent in (0, 1, 7, 64, 65):
        for rank in range(8):
            assert Cyclic(1).count(rank, 8, extent) == extent // 8 + (rank < extent % 8)


def test_zigzag_pairs_the_first_chunk_with_the_last() -> None:
    assert Zigzag().positions(0, 2, 8).tolist() == [0, 1, 6, 7]
    assert Zigzag().positions(1, 2, 8).tolist() == [2, 3, 4, 5]


def test_offsets_that_do_not_fit_are_named() -> None:
    assert Offsets((0, 4)).problem(2, 4) == "2 shards need 3 offsets, got 2"
    last = Offsets((0, 2, 4)).problem(2, 5)
    assert last == "the last offset is 4, the size of the dimension is 5"
    with pytest.raises(ValueError, match="must not decrease"):
        Offsets((0, 3, 2))
