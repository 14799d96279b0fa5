"""Every algorithm of every collective: what devices end with, in which order they combine, and
which links carry how much."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from starc.core.collectives.event_numbers import closed_form
from starc.core.collectives.schedules import Schedule
from starc.core.collectives.spmd import spmd
from starc.core.collectives.table import (
    ALGORITHMS,
    legal_algorithms,
    mates_of,
    profile,
    schedule_of,
)
from starc.core.sharding.mesh import Axis, AxisRef, Mesh
from starc.targets.loader import load_target

NODE = Mesh("node", (Axis("gpu", 8, "outer", "xgmi"), Axis("xcd", 8, "inner", "usr")))
GPU, XCD = (AxisRef("gpu"),), (AxisRef("xcd"),)
SIZES = [(n, 1) for n in range(1, 10)] + [(4, 2), (6, 2), (8, 2), (9, 3), (8, 4)]
REDUCING = [
    (operation, algorithm)
    for operation in ("all_reduce", "reduce_scatter", "reduce_to_root")
    for algorithm in ALGORITHMS[operation]
]


def schedule(operation: str, algorithm: str, size: int, mates: int = 1, unit: int = 3) -> Schedule:
    pieces = tuple(unit + index for index in range(size))
    return schedule_of(operation, algorithm, tuple(range(10, 10 + size)), pieces, mates)


def bounds(size: int, unit: int = 3) -> list[int]:
    return np.cumsum([0, *(unit + index for index in range(size))]).tolist()


@pytest.mark.parametrize(("size", "mates"), SIZES)
@pytest.mark.parametrize(("operation", "algorithm"), REDUCING)
def test_reductions_combine_everything_once(
    operation: str, algorithm: str, size: int, mates: int
) -> None:
    starts = bounds(size)
    data = [np.random.default_rng(d).integers(-99, 99, starts[-1]) for d in range(size)]
    held = schedule(operation, algorithm, size, mates).run(data)
    total = np.add.reduce(data)
    for index, own in enumerate(held):
        if operation == "all_reduce" or (operation == "reduce_to_root" and index == 0):
            assert np.array_equal(own, total)
        elif operation == "reduce_scatter":
            piece = slice(starts[index], starts[index + 1])
            assert np.array_equal(own[piece], total[piece])


@pytest.mark.parametrize(("size", "mates"), SIZES)
@pytest.mark.parametrize("algorithm", ALGORITHMS["all_reduce"])
def test_all_devices_hold_the_same_bits(algorithm: str, size: int, mates: int) -> None:
    rng = np.random.default_rng(size)
    data = [rng.normal(size=bounds(size)[-1]).astype(np.float32) for _ in range(size)]
    held = schedule("all_reduce", algorithm, size, mates).run(data)
    assert all(np.array_equal(own, held[0]) for own in held)


@pytest.mark.parametrize(("size", "mates"), SIZES)
@pytest.mark.parametrize("algorithm", ALGORITHMS["all_gather"])
def test_gathers_bring_every_piece(algorithm: str, size: int, mates: int) -> None:
    starts = bounds(size)
    whole = np.arange(starts[-1])
    data = [np.full_like(whole, -1) for _ in range(size)]
    for index, own in enumerate(data):
        own[starts[index] : starts[index + 1]] = whole[starts[index] : starts[index + 1]]
    for own in schedule("all_gather", algorithm, size, mates).run(data):
        assert np.array_equal(own, whole)


@pytest.mark.parametrize("algorithm", ALGORITHMS["broadcast"])
@pytest.mark.parametrize("size", range(1, 10))
def test_broadcasts_bring_what_the_first_has(algorithm: str, size: int) -> None:
    data = [np.full(bounds(size)[-1], d) for d in range(size)]
    assert all(not own.any() for own in schedule("broadcast", algorithm, size).run(data))


def carrier_loads(schedule: Schedule, per_carrier: int) -> Counter[tuple[int, int]]:
    """Elements between carriers, each between neighbours on their ring."""
    loads: Counter[tuple[int, int]] = Counter()
    for (source, target), elements in schedule.link_volumes().items():
        pair = source // per_carrier, target // per_carrier
        if pair[0] != pair[1]:
            loads[pair] += elements
    return loads


def test_a_reduce_scatter_in_both_directions_puts_three_eighths_on_every_carrier_link() -> None:
    payload = 8 * 64
    found = schedule_of("reduce_scatter", "bidirectional_ring", tuple(range(8)), (64,) * 8, 2)
    loads = carrier_loads(found, 2)
    neighbours = {(c, (c + way) % 4) for c in range(4) for way in (1, -1)}
    assert set(loads) == neighbours
    assert set(loads.values()) == {3 * payload // 8}
    assert found.steps == 3
    # The all-gather is the same backwards, an all-reduce both.
    back = schedule_of("all_gather", "bidirectional_ring", tuple(range(8)), (64,) * 8, 2)
    assert carrier_loads(back, 2) == loads
    both = schedule_of("all_reduce", "bidirectional_ring", tuple(range(8)), (64,) * 8, 2)
    assert set(carrier_loads(both, 2).values()) == {3 * payload // 4}


@pytest.mark.parametrize("size", range(3, 10))
def test_both_directions_of_a_ring_carry_the_same(size: int) -> None:
    found = schedule_of("reduce_scatter", "bidirectional_ring", tuple(range(size)), (2,) * size)
    loads = found.link_volumes()
    assert set(loads) == {(d, (d + way) % size) for d in range(size) for way in (1, -1)}
    assert set(loads.values()) == {size - 1}  # half of the (n - 1) / n of 2 n
    assert found.steps == size // 2


def test_volumes_over_seven_links() -> None:
    def of(operation: str, algorithm: str) -> tuple[Fraction, Fraction]:
        found = profile(operation, algorithm, NODE, GPU)
        return found.volumes["xgmi"], found.busiest["xgmi"]

    assert of("all_reduce", "two_shot") == (Fraction(7, 4), Fraction(1, 4))
    assert of("all_reduce", "one_shot") == (7, 1)
    assert of("all_reduce", "ring") == (Fraction(7, 4), Fraction(7, 4))
    assert of("reduce_scatter", "direct") == (Fraction(7, 8), Fraction(1, 8))
    assert of("all_to_all", "direct") == (Fraction(7, 8), Fraction(1, 8))
    assert of("all_reduce", "tree") == (3, 1)  # the root's broadcast
    assert profile("all_reduce", "tree", NODE, GPU).steps == 6
    assert profile("all_reduce", "two_shot", NODE, GPU).peers == {"xgmi": 7}


def test_what_is_read_is_not_staged() -> None:
    assert profile("reduce_scatter", "direct", NODE, XCD).staging == 0
    assert profile("reduce_scatter", "one_shot", NODE, XCD).staging == Fraction(7, 8)
    assert profile("all_reduce", "one_shot", NODE, XCD).staging_bytes(800) == 7 * 800


def test_mates_share_a_carrier() -> None:
    target = load_target("mi300x-cpx")
    assert mates_of(NODE, XCD, target) == 2
    assert mates_of(NODE, GPU, target) == 1
    assert mates_of(NODE, (AxisRef("gpu"), AxisRef("xcd")), target) == 1
    assert mates_of(NODE, (AxisRef("xcd", 1, 4),), target) == 1  # one device a carrier
    assert mates_of(NODE, (AxisRef("xcd", 2, 4),), target) == 2
    assert mates_of(NODE, (AxisRef("xcd", 4, 2),), target) == 1  # the whole group is one carrier's


def test_legal_algorithms() -> None:
    assert legal_algorithms("all_to_all", NODE, GPU) == ("direct",)
    assert "two_shot" in legal_algorithms("all_reduce", NODE, GPU)
    with pytest.raises(ValueError, match="no algorithm for all_slice"):
        legal_algorithms("all_slice", NODE, GPU)
    with pytest.raises(ValueError, match="all_gather has no algorithm tree"):
        schedule_of("all_gather", "tree", (0, 1), (1, 1))
    with pytest.raises(ValueError, match="not a permutation"):
        schedule_of("permute", "direct", (0, 1), (1, 1), targets=(0, 0))
    with pytest.raises(ValueError, match="groups of 2 mates"):
        schedule_of("all_gather", "bidirectional_ring", (0, 1, 2), (1, 1, 1), 2)


@pytest.mark.parametrize(("size", "mates"), SIZES[1:])
@pytest.mark.parametrize(
    ("operation", "algorithm"),
    [(operation, algorithm) for operation, known in ALGORITHMS.items() for algorithm in known],
)
def test_blocks_send_what_the_schedule_sends(
    operation: str, algorithm: str, size: int, mates: int
) -> None:
    """Every arrival is written once, what is awaited arrives, and nothing else happens."""
    targets = tuple((index + 1) % size for index in range(size))
    found = schedule_of(operation, algorithm, tuple(range(size)), (2,) * size, mates, (1,), targets)
    program = spmd(found, operation)
    sent: Counter[tuple[int, int]] = Counter()
    awaited: list[set[int]] = [set(row) for row in program.last]
    for block in program.blocks:
        for rank, row in enumerate(block.events):
            for event in row:
                if event is None:
                    continue
                awaited[rank].update(event.awaited)
                for target, arrival in event.targets:
                    sent[target, arrival] += 1
    if program.pulled:
        assert not sent
        assert all(arrivals == set(range(program.arrivals)) for arrivals in awaited)
        return
    assert set(sent.values()) <= {1}
    assert {(rank, a) for rank, arrivals in enumerate(awaited) for a in arrivals} == set(sent)
    remote = sum(t.source != t.target for t in found.transfers)
    own = size * (operation == "all_to_all") + size * (algorithm == "one_shot")
    assert len(sent) == remote + own


def test_numbers_of_events_in_closed_form() -> None:
    values = {(rank, number): (rank - 2 * number + 3) % 5 for rank in range(5) for number in (0, 1)}
    assert closed_form(values, 5) == (1, -2, 3)
    assert closed_form({(0, 0): 0, (1, 0): 2, (2, 0): 2}, 3) is None
    assert closed_form({(0, 0): 4}, 3) is None
