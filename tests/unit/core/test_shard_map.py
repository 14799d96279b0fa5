"""Shard maps: every position has one owner, in closed form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.sharding.encoding import refines
from starc.core.sharding.shard_map import Contiguous, Cyclic, Offsets, ShardMap, Zigzag


@st.composite
def cases(draw: st.DrawFn) -> tuple[ShardMap, int, int]:
    ranks, extent = draw(st.integers(1, 9)), draw(st.integers(0, 70))
    cuts = sorted(draw(st.lists(st.integers(0, extent), min_size=ranks - 1, max_size=ranks - 1)))
    shard_map = draw(
        st.sampled_from(
            [Contiguous(), Zigzag(), Offsets((0, *cuts, extent)), Offsets.balanced(extent, ranks)]
            + [Cyclic(block) for block in (1, 2, 3, 16)]
            + [Cyclic(block, draw(st.integers(0, block * ranks - 1))) for block in (1, 4)]
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
    assert shard_map.owners(ranks, extent).tolist() == [
        shard_map.owner(position, ranks, extent)[0] for position in range(extent)
    ]
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


@given(cases(), st.data())
def test_a_window_stays_where_it_is(case: tuple[ShardMap, int, int], data: st.DataObject) -> None:
    shard_map, ranks, extent = case
    start = data.draw(st.integers(0, extent))
    length = data.draw(st.integers(0, extent - start))
    window = shard_map.window(start, length, ranks, extent)
    if window is None:
        assert isinstance(shard_map, Zigzag)
        return
    assert window.problem(ranks, length) is None
    expected = shard_map.owners(ranks, extent)[start : start + length]
    assert window.owners(ranks, length).tolist() == expected.tolist()


@given(
    st.integers(1, 4), st.integers(1, 9), st.integers(0, 40), st.integers(0, 50), st.integers(0, 99)
)
def test_a_rotated_map_moves_on_by_a_rank_with_every_row(
    block: int, ranks: int, extent: int, row: int, offset: int
) -> None:
    rotated = Cyclic(block, offset % (block * ranks), by=0)
    found = rotated.at_row(row)
    assert found.rotated_by is None
    for position in range(extent):
        expected = ((position + rotated.offset) // block + row) % ranks
        assert found.owner(position, ranks, extent)[0] == expected
    # No row needs more slots than another.
    assert found.capacity(ranks, extent) == rotated.capacity(ranks, extent)


@given(cases(), st.integers(1, 4), st.data())
def test_a_refinement_is_one_for_every_position(
    case: tuple[ShardMap, int, int], parts: int, data: st.DataObject
) -> None:
    coarse, ranks, extent = case
    fine = data.draw(
        st.sampled_from([Contiguous(), Zigzag(), Cyclic(1), Cyclic(2), Offsets((0,) * 1)])
    )
    if isinstance(fine, Offsets):
        # One that is one: every shard of the coarse map cut into balanced parts.
        if not isinstance(coarse, Offsets):
            return
        ends = [0]
        for rank in range(ranks):
            start = coarse.offsets[rank]
            share = Offsets.balanced(coarse.count(rank, ranks, extent), parts).offsets
            ends += [start + end for end in share[1:]]
        fine = Offsets(tuple(ends))
        assert refines(coarse, fine, ranks, parts, extent)
    covers = all(
        fine.owner(position, ranks * parts, extent)[0] // parts
        == coarse.owner(position, ranks, extent)[0]
        for position in range(extent)
    )
    assert refines(coarse, fine, ranks, parts, extent) == covers


def test_rotated_maps_refine_one_another_only_if_every_row_does() -> None:
    turned = Cyclic(1, by=0)
    assert refines(Contiguous(), turned, 1, 8, 64)
    assert refines(turned, turned, 8, 1, 64)
    # One block of 4 ranks each, but the rows turn by single ranks.
    assert refines(Cyclic(4), Cyclic(1), 2, 4, 64)
    assert not refines(Cyclic(4, by=0), turned, 2, 4, 64)
    assert not refines(Cyclic(1, by=1), turned, 4, 2, 64)


def test_methods_formula_of_the_cyclic_count() -> None:
    # count(r, S) = S // R + (r < S % R) for blocks of 1.
    for extent in (0, 1, 7, 64, 65):
        for rank in range(8):
            assert Cyclic(1).count(rank, 8, extent) == extent // 8 + (rank < extent % 8)


def test_zigzag_pairs_the_first_chunk_with_the_last() -> None:
    assert Zigzag().positions(0, 2, 8).tolist() == [0, 1, 6, 7]
    assert Zigzag().positions(1, 2, 8).tolist() == [2, 3, 4, 5]


def test_a_cyclic_map_that_does_not_fit_is_named() -> None:
    assert Cyclic(2, 7).problem(4, 9) is None
    found = Cyclic(2, 8).problem(4, 9)
    assert found == "offset 8 of a cyclic map must be less than a round of 8"
    with pytest.raises(ValueError, match="must not be negative"):
        Cyclic(1, -1)


def test_offsets_that_do_not_fit_are_named() -> None:
    assert Offsets((0, 4)).problem(2, 4) == "2 shards need 3 offsets, got 2"
    last = Offsets((0, 2, 4)).problem(2, 5)
    assert last == "the last offset is 4, the size of the dimension is 5"
    with pytest.raises(ValueError, match="must not decrease"):
        Offsets((0, 3, 2))
