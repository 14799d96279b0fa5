"""The ring of cubes that key blocks go around, what is seen of them, and its times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.kernel_schedules.ring_prefill import (
    RingProblem,
    RingSchedule,
    barrier_makespan,
    chunks_below,
    makespan,
    ring_order,
    step_hops,
    triangular,
)
from starc.core.sharding.shard_map import CONTIGUOUS, Cyclic, Offsets, ShardMap, Zigzag

MAPS: tuple[ShardMap, ...] = (CONTIGUOUS, Cyclic(1), Cyclic(4), Zigzag())
STRETCHES = [(8 - block - 0.5) / 8 for block in range(8)]
DEALT = [0.5] * 8


@given(st.integers(1, 4), st.integers(1, 4))
def test_a_ring_passes_every_cube_once_in_steps_as_short_as_can_be(rows: int, columns: int) -> None:
    order = ring_order(rows, columns)
    assert sorted(order) == list(range(rows * columns))
    if len(order) == 1:
        return
    hops = step_hops(order, columns)
    has_cycle = len(order) <= 2 or (min(rows, columns) > 1 and len(order) % 2 == 0)
    assert max(hops) == (1 if has_cycle else 2)
    if min(rows, columns) > 1:
        assert hops.count(2) == (0 if has_cycle else 1)


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 2), (2, 4), (4, 4)])
def test_every_cube_sees_every_block_once_after_one_rotation_less_than_there_are_cubes(
    shape: tuple[int, int],
) -> None:
    schedule = RingSchedule(ring_order(*shape))
    cubes = schedule.cubes
    assert schedule.rotations == cubes - 1
    for cube in range(cubes):
        assert schedule.source(cube, 0) == cube
        assert sorted(schedule.source(cube, step) for step in range(cubes)) == list(range(cubes))
        assert schedule.previous(schedule.next(cube)) == cube
        for step in range(cubes - 1):  # what a cube works on is what its neighbour gets next
            assert schedule.source(schedule.next(cube), step + 1) == schedule.source(cube, step)


@given(st.sampled_from(MAPS), st.integers(1, 6), st.integers(1, 70), st.data())
def test_what_is_seen_of_a_share_is_counted_without_looking_at_positions(
    keys: ShardMap, ranks: int, extent: int, data: st.DataObject
) -> None:
    end = data.draw(st.integers(0, extent))
    for rank in range(ranks):
        held = keys.positions(rank, ranks, extent)
        below = chunks_below(keys, rank, ranks, extent, end)
        assert sum(below) == int((held < end).sum())
        if len(below) == 1:  # a prefix
            assert (held[: below[0]] < end).all()


def test_shares_of_any_size_are_counted_too() -> None:
    assert chunks_below(Offsets((0, 3, 5, 9)), 1, 3, 9, 4) == (1,)


@pytest.mark.parametrize("keys", [CONTIGUOUS, Cyclic(32), Zigzag()], ids=str)
@pytest.mark.parametrize("rows", [CONTIGUOUS, Cyclic(32), Zigzag()], ids=str)
@pytest.mark.parametrize(("cubes", "pes"), [(1, 1), (2, 2), (4, 1), (8, 4)])
def test_a_prompt_takes_the_triangular_number_of_tiles(
    keys: ShardMap, rows: ShardMap, cubes: int, pes: int
) -> None:
    tiles = 2 * cubes * pes
    problem = RingProblem(cubes, pes, 32 * tiles, 0, 32 * tiles, keys, rows, 32, 32)
    assert problem.tiles == triangular(tiles)


def test_keys_that_are_dealt_out_one_by_one_are_skipped_by_tiles_too() -> None:
    """A tile of 32 keys of one of 8 ranks reaches over 256 positions."""
    one_by_one = RingProblem(4, 2, 4096, 0, 4096, Cyclic(1), Cyclic(32), 32, 32)
    by_tiles = RingProblem(4, 2, 4096, 0, 4096, Cyclic(32), Cyclic(32), 32, 32)
    assert by_tiles.tiles == triangular(128)
    assert by_tiles.tiles < one_by_one.tiles < 1.1 * by_tiles.tiles


@given(
    st.sampled_from(MAPS),
    st.sampled_from((CONTIGUOUS, Cyclic(4), Zigzag())),
    st.sampled_from([(1, 1), (2, 2), (4, 1), (2, 4)]),
    st.integers(0, 40),
    st.integers(1, 40),
)
def test_tiles_are_those_that_hold_a_visible_pair(
    keys: ShardMap, rows: ShardMap, shape: tuple[int, int], start: int, query: int
) -> None:
    cubes, pes = shape
    context = start + query
    problem = RingProblem(cubes, pes, query, start, context, keys, rows, 4, 4)
    expected = 0
    for pe in range(pes):
        held = [start + int(row) for row in rows.positions(pe, pes, query)]
        for first in range(0, len(held), 4):
            last = max(held[first : first + 4])
            for rank in range(cubes * pes):
                positions = keys.positions(rank, cubes * pes, context)
                if isinstance(keys, Zigzag):
                    (near, far) = chunks_below(keys, rank, cubes * pes, context, context)
                    parts = [positions[:near], positions[near : near + far]]
                else:
                    parts = [positions]
                expected += sum(
                    1
                    for part in parts
                    for tile in range(0, len(part), 4)
                    if part[tile : tile + 4].min() <= last
                )
    assert problem.tiles == expected


def test_rows_that_are_dealt_out_balance_causal_work() -> None:
    """Of a prompt that starts at 0, rows in stretches make the last PE work twice the mean. Chunks
    from front and back balance all steps together, but not each."""

    def problem(rows: ShardMap, start: int = 0) -> RingProblem:
        return RingProblem(8, 8, 4096, start, start + 4096, Cyclic(64), rows, 64, 64)

    def imbalance(rows: ShardMap, start: int = 0) -> float:
        return problem(rows, start).imbalance

    assert imbalance(CONTIGUOUS) == pytest.approx(1.87, abs=0.01)
    assert imbalance(Cyclic(64)) == pytest.approx(1.11, abs=0.01)
    assert imbalance(Zigzag()) == pytest.approx(1.0, abs=0.001)
    assert problem(Zigzag()).step_imbalance == pytest.approx(1.43, abs=0.01)
    assert problem(Cyclic(64)).step_imbalance == pytest.approx(1.11, abs=0.01)
    # Behind a long context it does not matter.
    assert imbalance(CONTIGUOUS, start=126976) == pytest.approx(1.01, abs=0.01)


def test_block_times_are_those_of_the_prototype() -> None:
    for transfer, two, three in ((0.05, 4.475, 4.0), (0.3, 5.0875, 4.35)):
        assert makespan(STRETCHES, transfer, slots=2) == two
        assert makespan(STRETCHES, transfer, slots=3) == three
        assert makespan(DEALT, transfer, slots=2) == 4.0
        assert makespan([1.0] * 8, transfer, slots=2) == 8.0
    assert barrier_makespan(STRETCHES) == 7.5
    problem = RingProblem(8, 1, 2048, 0, 2048, CONTIGUOUS, CONTIGUOUS, 32, 32)
    assert problem.block_costs() == pytest.approx(STRETCHES, abs=0.07)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.integers(0, 9), st.integers(2, 9))
def test_a_ring_takes_no_less_than_its_work_and_no_more_than_with_barriers(
    costs: list[int], transfer: int, slots: int
) -> None:
    found = makespan([float(cost) for cost in costs], float(transfer), slots)
    assert found >= sum(costs)
    assert found <= len(costs) * (max(costs) + transfer) + transfer
    assert found >= makespan([float(cost) for cost in costs], float(transfer), slots + 1)


def test_one_slot_is_not_enough() -> None:
    """Every cube would wait until the next one has sent its block on."""
    with pytest.raises(ValueError, match="two slots"):
        makespan(DEALT, 0.05, slots=1)
