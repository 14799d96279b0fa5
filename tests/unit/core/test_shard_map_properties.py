"""Shard maps: what they refuse, how they print, and maps of blocks as inverses of each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.sharding.shard_map import (
    CONTIGUOUS,
    Contiguous,
    Cyclic,
    Offsets,
    ShardMap,
    Zigzag,
    even_shares,
)


@pytest.mark.parametrize(
    ("block", "offset", "by", "problem"),
    [
        (0, 0, None, "block of a cyclic map must be at least 1, got 0"),
        (-1, 0, None, "block of a cyclic map must be at least 1, got -1"),
        (1, -1, None, "offset of a cyclic map must not be negative, got -1"),
        (1, 0, -1, "by of a cyclic map must be a dimension, got -1"),
    ],
)
def test_a_cyclic_map_that_cannot_be_is_refused(
    block: int, offset: int, by: int | None, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        Cyclic(block, offset, by)


def test_the_smallest_cyclic_map_has_blocks_of_one_from_the_first_position_on() -> None:
    assert Cyclic() == Cyclic(block=1, offset=0, by=None)
    assert Cyclic(1, 0, 0).rotated_by == 0
    assert [Cyclic().count(rank, 3, 4) for rank in range(3)] == [2, 1, 1]


@pytest.mark.parametrize("offsets", [(), (1, 2), (-1, 2)])
def test_offsets_start_with_nought(offsets: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="offsets must start with 0"):
        Offsets(offsets)


def test_offsets_of_empty_shards_are_equal() -> None:
    empty = Offsets((0, 0, 2, 2))
    assert [empty.count(rank, 3, 2) for rank in range(3)] == [0, 2, 0]
    assert empty.problem(3, 2) is None


def test_there_is_an_offset_more_than_shards() -> None:
    for offsets in ((0, 4), (0, 1, 2, 4)):
        expected = f"2 shards need 3 offsets, got {len(offsets)}"
        assert Offsets(offsets).problem(2, 4) == expected


@pytest.mark.parametrize(
    ("shard_map", "text"),
    [
        (CONTIGUOUS, ""),
        (Zigzag(), " zigzag"),
        (Offsets((0, 2, 5)), " offsets [0, 2, 5]"),
        (Cyclic(4), " cyclic(4)"),
        (Cyclic(4, 3), " cyclic(4, offset = 3)"),
        (Cyclic(4, by=0), " cyclic(4, by = 0)"),
        (Cyclic(4, 3, 1), " cyclic(4, offset = 3, by = 1)"),
    ],
)
def test_a_map_prints_what_is_not_the_default(shard_map: ShardMap, text: str) -> None:
    assert shard_map.suffix() == text


def test_a_cyclic_map_starts_within_its_first_round() -> None:
    for block, ranks in ((1, 1), (2, 3), (4, 2)):
        assert Cyclic(block, block * ranks - 1).problem(ranks, 8) is None
        assert Cyclic(block, block * ranks).problem(ranks, 8) is not None
        assert Cyclic(block, block * ranks + 1).problem(ranks, 8) is not None


@pytest.mark.parametrize("shard_map", [CONTIGUOUS, Zigzag(), Cyclic(4), Cyclic(4, 4)])
def test_blocks_divide_the_dimension(shard_map: ShardMap) -> None:
    for ranks in (1, 2):
        for extent in (6, 10, 13):
            assert shard_map.in_blocks(4, ranks, extent) is None


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 30), st.data())
def test_blocks_and_positions_are_inverses(
    block: int, ranks: int, extent: int, data: st.DataObject
) -> None:
    cyclic = Cyclic(data.draw(st.integers(1, 4)), by=data.draw(st.sampled_from([None, 0, 1])))
    cyclic = Cyclic(
        cyclic.block, data.draw(st.integers(0, cyclic.block * ranks - 1)), cyclic.rotated_by
    )
    fine = cyclic.of_blocks(block, ranks, extent)
    assert fine == Cyclic(cyclic.block * block, cyclic.offset * block, cyclic.by)
    coarse = fine.in_blocks(block, ranks, extent * block)
    assert coarse == cyclic
    offsets = Offsets.balanced(extent, ranks)
    fine = offsets.of_blocks(block, ranks, extent)
    assert fine.in_blocks(block, ranks, extent * block) == offsets


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 30))
def test_contiguous_shards_are_counted_in_blocks_where_none_is_cut(
    block: int, ranks: int, blocks: int
) -> None:
    extent = block * blocks
    owners = [CONTIGUOUS.owner(position, ranks, extent)[0] for position in range(extent)]
    cut = any(len(set(owners[at : at + block])) > 1 for at in range(0, extent, block))
    found = CONTIGUOUS.in_blocks(block, ranks, extent)
    if cut:
        assert found is None
    else:
        assert found is not None
        coarse = [found.owner(index, ranks, blocks)[0] for index in range(blocks)]
        assert coarse == owners[::block]


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4))
def test_blocks_in_zigzag_order_are_counted_where_no_chunk_cuts_one(
    block: int, ranks: int, chunk: int
) -> None:
    extent = 2 * ranks * chunk * block
    assert Zigzag().in_blocks(block, ranks, extent) == Zigzag()
    assert Zigzag().of_blocks(block, ranks, 2 * ranks * chunk) == Zigzag()


def test_blocks_in_zigzag_order_without_a_map_of_positions_are_named() -> None:
    assert Zigzag().in_blocks(4, 2, 20) is None
    with pytest.raises(ValueError, match="5 blocks of 4 in zigzag order have no map of positions"):
        Zigzag().of_blocks(4, 2, 5)


@pytest.mark.parametrize(
    ("shard_map", "block", "ranks", "coarse"),
    [
        (Cyclic(6), 3, 2, Cyclic(2)),
        (Cyclic(6, 9), 3, 2, Cyclic(2, 3)),
        (Cyclic(6, 9, 1), 3, 2, Cyclic(2, 3, 1)),
        (Cyclic(6, 8), 3, 2, None),
        (Cyclic(4, 9), 3, 2, None),
        (Cyclic(3, 3), 3, 2, Cyclic(1, 1)),
        # One rank holds all blocks, whatever its own are.
        (Cyclic(2), 3, 1, Cyclic(1)),
        (Cyclic(7), 3, 1, Cyclic(2)),
    ],
)
def test_a_cyclic_map_is_counted_in_blocks_that_its_own_and_its_offset_hold(
    shard_map: Cyclic, block: int, ranks: int, coarse: Cyclic | None
) -> None:
    assert shard_map.in_blocks(block, ranks, 36) == coarse


def test_offsets_are_counted_in_blocks_where_all_are_multiples() -> None:
    assert Offsets((0, 4, 4, 12)).in_blocks(4, 3, 12) == Offsets((0, 1, 1, 3))
    assert Offsets((0, 4, 6, 12)).in_blocks(4, 3, 12) is None
    coarse = Offsets((0, 4, 12)).in_blocks(4, 2, 12)
    assert coarse is not None
    assert coarse.suffix() == " offsets [0, 1, 3]"


def test_shares_of_balanced_offsets_differ_by_one_the_larger_first() -> None:
    for extent in range(12):
        for ranks in range(1, 6):
            found = Offsets.balanced(extent, ranks)
            counts = [found.count(rank, ranks, extent) for rank in range(ranks)]
            assert counts == sorted(counts, reverse=True)
            assert counts[0] - counts[-1] <= 1
            assert sum(counts) == extent


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 40), st.integers(0, 20))
def test_a_window_of_a_rotated_map_is_rotated_too(
    block: int, ranks: int, start: int, offset: int
) -> None:
    rotated = Cyclic(block, offset % (block * ranks), by=2)
    window = rotated.window(start, 4, ranks, 64)
    assert isinstance(window, Cyclic)
    assert window.rotated_by == 2
    assert window.problem(ranks, 4) is None
    for row in range(3):
        expected = rotated.at_row(row).owners(ranks, 64)[start : start + 4].tolist()
        assert window.at_row(row).owners(ranks, 4).tolist()[: len(expected)] == expected


def test_a_map_that_is_not_rotated_is_the_same_in_every_row() -> None:
    for shard_map in (CONTIGUOUS, Zigzag(), Cyclic(2, 3), Offsets((0, 4, 8))):
        assert shard_map.rotated_by is None
        assert shard_map.at_row(5) is shard_map
        assert shard_map.window(0, 8, 2, 8) is not None
    assert CONTIGUOUS.with_rows(1) is CONTIGUOUS
    assert Cyclic(2, by=0).with_rows(3) == Cyclic(2, by=3)
    assert Cyclic(2, 1, by=0).at_row(2) == Cyclic(2, 5)


def test_only_the_whole_is_a_window_in_zigzag_order() -> None:
    assert Zigzag().window(0, 16, 2, 16) == Zigzag()
    assert Zigzag().window(0, 8, 2, 16) is None
    assert Zigzag().window(1, 16, 2, 16) is None
    assert Zigzag().window(1, 15, 2, 16) is None


def test_the_default_owners_follow_from_the_positions() -> None:
    assert Zigzag().owners(2, 10).tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1, 0]
    assert Zigzag().capacity(2, 10) == 6
    assert Contiguous().capacity(4, 9) == 3
    assert Contiguous().capacity(4, 0) == 0


def test_even_shares() -> None:
    assert even_shares(8, 3) == (3, 3, 2)
    assert even_shares(2, 4) == (1, 1, 0, 0)
    assert even_shares(0, 2) == (0, 0)
    assert Offsets.of_counts((2, 0, 3)) == Offsets((0, 2, 2, 5))
    assert Offsets.of_counts(()) == Offsets((0,))


def test_only_shards_that_are_ranges_are_said_to_be() -> None:
    maps = (CONTIGUOUS, Offsets((0, 3, 4)), Zigzag(), Cyclic(1))
    assert [shard_map.has_ranges for shard_map in maps] == [True, True, False, False]


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 20))
def test_ranks_of_a_cyclic_map_come_again_after_a_period(
    block: int, ranks: int, offset: int
) -> None:
    cyclic = Cyclic(block, offset % (block * ranks))
    period = block * ranks
    assert cyclic.period(ranks) == period
    owners = cyclic.owners(ranks, 3 * period).tolist()
    assert owners[period:] == owners[:-period]
    assert all(other.period(ranks) is None for other in (CONTIGUOUS, Zigzag()))


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 11), st.integers(0, 11))
def test_shards_with_one_name_are_the_same_in_every_row(
    block: int, ranks: int, offset: int, other: int
) -> None:
    turn = block * ranks
    extent = 4 * turn
    for by in (None, 0):
        left, right = (Cyclic(block, start % turn, by) for start in (offset, other))
        names = left.shard_names(ranks, extent), right.shard_names(ranks, extent)
        for rank in range(ranks):
            for again in range(ranks):
                same = all(
                    left.at_row(row).positions(rank, ranks, extent).tolist()
                    == right.at_row(row).positions(again, ranks, extent).tolist()
                    for row in range(ranks)
                )
                assert (names[0][rank] == names[1][again]) == same


def test_shards_of_maps_that_turn_differently_have_different_names() -> None:
    names = {Cyclic(block, 0, by).shard_names(2, 64)[0] for block in (1, 2) for by in (0, 1)} | {
        Cyclic(1, 0, 0).shard_names(4, 64)[0]
    }
    assert len(names) == 5
    assert Cyclic(3, by=0).shard_names(1, 6) == CONTIGUOUS.shard_names(1, 6)
