"""Ring schedules, run on data for every group size, with several rings and uneven pieces."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starc.core.collectives.schedules import (
    bandwidth_bound,
    even_pieces,
    latency_bound,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    ring_strides,
    ring_time,
)
from starc.core.sharding.mesh import Axis, Mesh


@st.composite
def groups(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Device ids in any order, uneven pieces and some of the legal strides."""
    size = draw(st.integers(1, 9))
    devices = tuple(draw(st.permutations(range(10, 10 + size))))
    pieces = tuple(draw(st.lists(st.integers(0, 7), min_size=size, max_size=size)))
    legal = ring_strides(size)
    count = draw(st.integers(1, len(legal)))
    return devices, pieces, tuple(draw(st.permutations(legal))[:count])


def data_of(devices: tuple[int, ...], pieces: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(sum(pieces))
    return [rng.integers(-99, 99, sum(pieces)) for _ in devices]


@given(groups())
@settings(deadline=None)
def test_all_reduce_gives_every_device_the_sum(
    case: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
) -> None:
    devices, pieces, strides = case
    data = data_of(devices, pieces)
    schedule = ring_all_reduce(devices, pieces, strides)
    assert schedule.steps == 2 * (len(devices) - 1)
    for held in schedule.run(data):
        assert np.array_equal(held, np.add.reduce(data))


@given(groups())
@settings(deadline=None)
def test_reduce_scatter_gives_every_device_its_piece(
    case: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
) -> None:
    devices, pieces, strides = case
    data = data_of(devices, pieces)
    total = np.add.reduce(data)
    starts = np.concatenate([[0], np.cumsum(pieces)])
    held = ring_reduce_scatter(devices, pieces, strides).run(data)
    for index in range(len(devices)):
        piece = slice(starts[index], starts[index + 1])
        assert np.array_equal(held[index][piece], total[piece])


@given(groups())
@settings(deadline=None)
def test_all_gather_gives_every_device_every_piece(
    case: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
) -> None:
    devices, pieces, strides = case
    starts = np.concatenate([[0], np.cumsum(pieces)])
    whole = np.arange(sum(pieces))
    data = [np.full_like(whole, -1) for _ in devices]
    for index in range(len(devices)):
        piece = slice(starts[index], starts[index + 1])
        data[index][piece] = whole[piece]
    for held in ring_all_gather(devices, pieces, strides).run(data):
        assert np.array_equal(held, whole)


def test_all_devices_sum_in_the_same_order() -> None:
    rng = np.random.default_rng(3)
    data = [rng.normal(size=40).astype(np.float32) for _ in range(5)]
    held = ring_all_reduce(tuple(range(5)), even_pieces(40, 5)).run(data)
    assert all(np.array_equal(array, held[0]) for array in held)


@pytest.mark.parametrize("size", range(2, 10))
def test_rings_of_different_strides_share_no_link(size: int) -> None:
    schedule = ring_all_reduce(range(size), (len(ring_strides(size)),) * size, ring_strides(size))
    rings_of: dict[tuple[int, int], set[int]] = {}
    rings = len(ring_strides(size))
    for transfer in schedule.transfers:
        rings_of.setdefault((transfer.source, transfer.target), set()).add(transfer.chunk % rings)
    assert {len(used) for used in rings_of.values()} == {1}


def test_volumes_of_the_closed_form() -> None:
    # Each device sends (n - 1)/n of the data a phase: 2 * 63/64 of it in an all-reduce.
    schedule = ring_all_reduce(range(64), even_pieces(640, 64))
    assert set(schedule.sent().values()) == {2 * 630}
    assert ring_strides(8) == (1, 3, 5, 7)
    loads = ring_all_reduce(range(8), even_pieces(320, 8), ring_strides(8)).link_volumes()
    assert set(loads.values()) == {2 * 280 // 4}


def test_a_flat_ring_crosses_the_outer_level_once_a_gpu() -> None:
    node = Mesh("node", (Axis("gpu", 8, "outer", "xgmi"), Axis("xcd", 8, "inner", "usr")))
    schedule = ring_all_reduce(range(64), even_pieces(640, 64))
    volumes = schedule.class_volumes(node)
    assert volumes == {"xgmi": 8 * 2 * 630, "usr": 56 * 2 * 630}
    crossing = Counter(
        node.pair_link_class(transfer.source, transfer.target)
        for transfer in schedule.transfers
        if transfer.step == 0
    )
    assert crossing == {"xgmi": 8, "usr": 56}


def test_costs_of_the_methods_table() -> None:
    # Flat ring over 64 partitions at 48 GB/s and 2 us a step, 268 MB: 11262 us.
    assert ring_time("all_reduce", 64, 268_435_456, 2e-6, 48e9) * 1e6 == pytest.approx(
        11262, rel=1e-3
    )
    # The bound of 8 GPUs with 7 links each: V / (4 B) = 1398 us.
    bound = bandwidth_bound("all_reduce", 8, 268_435_456, 48e9, links=7)
    assert bound * 1e6 == pytest.approx(1398, rel=1e-3)
    assert latency_bound(64, 2e-6) == pytest.approx(12e-6)
    assert ring_time("all_gather", 8, 800, 0.0, 1.0) == pytest.approx(700)


@given(st.integers(2, 64), st.integers(1, 10**9), st.sampled_from(["all_reduce", "all_gather"]))
def test_no_ring_beats_its_bounds(size: int, payload: int, operation: str) -> None:
    time = ring_time(operation, size, payload, 1e-6, 1e9)
    assert time >= bandwidth_bound(operation, size, payload, 1e9)
    assert time >= latency_bound(size, 1e-6)


def test_illegal_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="coprime"):
        ring_all_reduce(range(4), (1, 1, 1, 1), (2,))
    with pytest.raises(ValueError, match="4 devices need 4 pieces, got 3"):
        ring_all_gather(range(4), (1, 1, 1))
