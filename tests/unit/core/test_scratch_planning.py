"""Tiles share scratch bytes only as far as they must."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starc.core.memory.scratch_planning import ScratchPlan, ScratchTile, Sharing, plan_scratch

KIB = 1024


def overlaps(plan: ScratchPlan, tiles: list[ScratchTile], i: int, j: int) -> bool:
    a, b = plan.offsets[i], plan.offsets[j]
    return a < b + tiles[j].bytes and b < a + tiles[i].bytes


@pytest.mark.parametrize(
    ("available", "bytes", "sharing"),
    [
        (8, 8, Sharing.NONE),
        (7, 6, Sharing.SCOPES),
        (5, 4, Sharing.TILES),
        (3, 2, Sharing.ALL),
        (1, 2, Sharing.ALL),
    ],
)
def test_as_far_as_they_must(available: int, bytes: int, sharing: Sharing):
    """Two tiles in scopes, one beside them, one of a pipeline, one behind the other."""
    tiles = [
        ScratchTile(2 * KIB, 0, 1, (1,)),
        ScratchTile(2 * KIB, 2, 3, (2,)),
        ScratchTile(2 * KIB, 4, 5),
        ScratchTile(2 * KIB, 6, 7, (3,), pipelined=True),
    ]
    plan = plan_scratch(tiles, available * KIB)
    assert (plan.bytes, plan.sharing) == (bytes * KIB, sharing)


def test_scopes_inside_each_other_do_not_share():
    tiles = [ScratchTile(KIB, 0, 1, (1,)), ScratchTile(KIB, 2, 3, (1, 2))]
    assert not tiles[0].may_share(tiles[1], Sharing.SCOPES)
    assert tiles[0].may_share(tiles[1], Sharing.TILES)


def test_nothing_to_place():
    assert plan_scratch([], 0) == ScratchPlan((), 0, Sharing.NONE)


@st.composite
def tiles_of(draw: st.DrawFn) -> list[ScratchTile]:
    found: list[ScratchTile] = []
    for _ in range(draw(st.integers(0, 9))):
        first = draw(st.integers(0, 20))
        found.append(
            ScratchTile(
                128 * draw(st.integers(1, 30)),
                first,
                first + draw(st.integers(0, 10)),
                tuple(draw(st.lists(st.integers(1, 2), max_size=2))),
                draw(st.booleans()),
            )
        )
    return found


@settings(deadline=None)
@given(tiles_of(), st.integers(0, 12 * KIB))
def test_what_is_alive_together_lies_apart(tiles: list[ScratchTile], available: int):
    plan = plan_scratch(tiles, available)
    for i in range(len(tiles)):
        for j in range(i):
            if overlaps(plan, tiles, i, j):
                assert tiles[i].may_share(tiles[j], plan.sharing)
    assert plan.bytes == max(
        (offset + tile.bytes for offset, tile in zip(plan.offsets, tiles, strict=True)), default=0
    )
    if sum(tile.bytes for tile in tiles) <= available:
        assert plan.sharing == Sharing.NONE
