"""Rings of groups whose devices are all linked to each other."""

from __future__ import annotations

import numpy as np
import pytest

from starc.core.collectives.rings import all_rings, hamiltonian_rings, is_ring, ring_behind
from starc.core.collectives.schedules import ring_all_reduce
from starc.core.collectives.tree import chain_all_reduce


@pytest.mark.parametrize("size", [2, 3, 5, 7, 8])
def test_cycles_use_every_directed_pair_once(size: int) -> None:
    rings = hamiltonian_rings(size)
    pairs = [(ring[i], ring[(i + 1) % size]) for ring in rings for i in range(size)]
    assert all(sorted(ring) == list(range(size)) for ring in rings)
    assert len(pairs) == len(set(pairs)) == size * (size - 1)


@pytest.mark.parametrize("size", [4, 6])
def test_groups_that_do_not_fall_into_cycles_keep_strides(size: int) -> None:
    assert hamiltonian_rings(size) == ()
    assert all_rings(size) == (1, size - 1)
    assert not is_ring(size, size)


def test_a_step_behind_and_one_ahead_are_inverse() -> None:
    for ring in (*all_rings(8), 1, 3, 5, 7):
        for index in range(8):
            assert ring_behind(ring_behind(index, -1, 8, ring), 1, 8, ring) == index
            assert len({ring_behind(index, hops, 8, ring) for hops in range(8)}) == 8


def test_seven_rings_of_eight_devices_load_all_links_alike() -> None:
    schedule = ring_all_reduce(tuple(range(8)), (7,) * 8, all_rings(8))
    volumes = schedule.link_volumes()
    assert len(volumes) == 56
    assert set(volumes.values()) == {2 * 7}


@pytest.mark.parametrize("kind", ["rings", "chain"])
def test_sums_over_cycles_and_chains(kind: str) -> None:
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 100, 56) for _ in range(8)]
    devices = tuple(range(8))
    if kind == "chain":
        schedule = chain_all_reduce(devices, 56)
    else:
        schedule = ring_all_reduce(devices, (7,) * 8, all_rings(8))
    for found in schedule.run(parts, lambda a, b: a + b):
        np.testing.assert_array_equal(found, sum(parts))
