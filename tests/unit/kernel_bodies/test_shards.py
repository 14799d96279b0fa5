"""Expressions of shards against the maps that they are of."""

from __future__ import annotations

import pytest

from starc.core.quasi_affine.expressions import Var
from starc.core.sharding.mesh import Axis, AxisRef, Mesh
from starc.core.sharding.shard_map import Contiguous, Cyclic, Offsets, ShardMap, Zigzag
from starc.kernel_bodies.shards import Shard, of_devices, rank_expression

MAPS = [
    Contiguous(),
    Cyclic(1),
    Cyclic(3),
    Cyclic(1, offset=2),
    Cyclic(2, offset=3),
    Zigzag(),
]


def checked(shard_map: ShardMap, ranks: int, extent: int, row: int = 0) -> None:
    plain = shard_map.at_row(row)
    for rank in range(ranks):
        shard = Shard(shard_map, ranks, extent, Var("r")).at_row(Var("row"))
        names = {"r": rank, "row": row}
        positions = plain.positions(rank, ranks, extent).tolist()
        assert shard.count.evaluate(names) == len(positions)
        for end in range(extent + 1):
            below = sum(position < end for position in positions)
            assert shard.count_below(end).evaluate(names) == below
        for index, position in enumerate(positions):
            assert shard.position(Var("i")).evaluate({**names, "i": index}) == position
            runs = [
                run
                for run in shard.runs()
                if run.begin.evaluate(names) <= index < run.end.evaluate(names)
            ]
            assert [run.position(index).evaluate(names) for run in runs] == [position]
            owner = (shard.owner(position).evaluate(names) + row) % ranks
            assert owner == rank


@pytest.mark.parametrize("shard_map", MAPS, ids=str)
@pytest.mark.parametrize("extent", [1, 2, 7, 24, 29])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_positions_and_counts_are_those_of_the_map(shard_map: ShardMap, extent: int, ranks: int):
    if shard_map.problem(ranks, extent) is None:
        checked(shard_map, ranks, extent)


def test_explicit_offsets():
    checked(Offsets((0, 5, 5, 11)), 3, 11)


@pytest.mark.parametrize("shard_map", [Cyclic(1, by=0), Cyclic(2, 1, by=0)], ids=str)
@pytest.mark.parametrize("row", [0, 1, 3, 6])
def test_rotated_maps_turn_with_the_row(shard_map: ShardMap, row: int):
    checked(shard_map, 4, 21, row)
    with pytest.raises(ValueError, match="depend on the row"):
        _ = Shard(shard_map, 4, 21, Var("r")).count


def test_a_dimension_that_is_not_split_is_whole():
    shard = Shard(Cyclic(1, by=0), 1, 9, Var("r"))
    assert shard.is_whole
    assert str(shard.position(Var("i"))) == "i"
    assert str(shard.count) == "9"


def test_ranks_of_devices():
    node = Mesh("node", (Axis("gpu", 2), Axis("xcd", 4)))
    assert str(rank_expression(node, [AxisRef("gpu"), AxisRef("xcd")])) == "device"
    assert str(rank_expression(node, [AxisRef("xcd", 2, 2)])) == "device mod 2"
    turned = rank_expression(node, [AxisRef("xcd"), AxisRef("gpu")])
    assert [turned.evaluate({"device": d}) for d in range(8)] == [0, 2, 4, 6, 1, 3, 5, 7]
    assert str(of_devices([3, 5, 7])) == "device * 2 + 3"
