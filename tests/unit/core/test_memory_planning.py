"""Addresses never overlap while both buffers live, and the accounting is arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.memory.planning import (
    GRANULE,
    Holding,
    Request,
    account,
    plan_addresses,
    plan_queues,
)


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    found: list[Request] = []
    for index in range(draw(st.integers(0, 24))):
        first = draw(st.integers(0, 12))
        last = draw(st.one_of(st.none(), st.integers(first, 14)))
        found.append(Request(f"b{index}", draw(st.integers(1, 40_000)), first, last))
    return found


@given(requests(), st.sampled_from([1, 2, 8]))
def test_live_buffers_do_not_overlap(found: list[Request], stacks: int) -> None:
    plan = plan_addresses(found, stacks=stacks)
    assert set(plan.addresses) == {request.name for request in found}
    for a in found:
        low = plan.addresses[a.name]
        assert low % GRANULE == 0
        assert low + a.bytes <= plan.peak_bytes
        for b in found:
            if a is not b and a.overlaps(b):
                other = plan.addresses[b.name]
                assert low + a.bytes <= other or other + b.bytes <= low


@given(requests())
def test_the_plan_is_deterministic(found: list[Request]) -> None:
    assert plan_addresses(found, stacks=8) == plan_addresses(found, stacks=8)


def test_buffers_that_are_not_live_together_share_memory() -> None:
    plan = plan_addresses([Request("a", GRANULE, 1, 2), Request("b", GRANULE, 3, 4)])
    assert plan.addresses["a"] == plan.addresses["b"] == 0
    assert plan.peak_bytes == GRANULE


def test_the_last_step_of_one_is_not_the_first_of_another() -> None:
    plan = plan_addresses([Request("a", GRANULE, 1, 2), Request("b", GRANULE, 2, 4)])
    assert plan.peak_bytes == 2 * GRANULE


def test_bases_start_on_different_stacks() -> None:
    found = [Request(f"decoder.weight{i}", 64 * GRANULE) for i in range(64)]
    plan = plan_addresses(found, stacks=8)
    starts = [plan.addresses[request.name] // GRANULE % 8 for request in found]
    assert set(starts) == set(range(8))
    assert max(starts.count(stack) for stack in range(8)) <= 20


def test_two_buffers_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        plan_addresses([Request("a", 1), Request("a", 2)])


def plan(local_batch: int = 8, capacity: int = 24_000_000_000, context: int = 16384):
    cache = local_batch * context * 128 * 2
    return account(
        [Holding("decoder.q", 100_000_000, 100_000_000, 80), Holding("table", 50, 4096, 1)],
        [Holding("decoder.k", cache, cache, 80), Holding("decoder.v", cache, cache, 80)],
        activations_bytes=local_batch * 1000,
        communication_bytes=local_batch * 24,
        capacity_bytes=capacity,
        utilization=0.9,
        local_batch=local_batch,
        batch_groups=1,
        context=context,
        kv_replication=8.0,
    )


def test_caches_of_all_layers_count() -> None:
    found = plan()
    assert found.kv_bytes == 80 * 2 * 16384 * 128 * 2 * 8 == 5_368_709_120
    assert found.weights_bytes == 80 * 100_000_000 + 50
    assert found.padding_bytes == 4096 - 50
    assert found.usable_bytes == 21_600_000_000
    assert found.fits
    assert found.excess_bytes == 0


def test_max_batch_is_the_largest_that_fits() -> None:
    limit = plan().max_batch
    assert plan(limit).fits
    assert not plan(limit + 1).fits
    assert plan(limit + 1).excess_bytes > 0


def test_cache_tokens_are_what_is_left_over_their_bytes() -> None:
    found = plan()
    token = 80 * 2 * 128 * 2
    left = found.usable_bytes - found.weights_bytes - found.padding_bytes - 8 * 1024
    assert found.kv_tokens == left // token


def test_a_model_whose_weights_do_not_fit_has_no_batch() -> None:
    found = plan(capacity=8_000_000_000)
    assert found.max_batch == found.kv_tokens == 0
    assert not found.fits


def test_queues_lie_one_behind_the_other() -> None:
    sizes = {"a": 100, "b": 16, "c": 1}
    assert plan_queues(sizes, 1024, 160, 16) == ({"a": 1024, "b": 1136, "c": 1152}, 144)
    assert plan_queues({}, 1024, 0, 16) == ({}, 0)


def test_queues_that_are_too_large_are_named() -> None:
    with pytest.raises(OverflowError) as caught:
        plan_queues({"few": 1024, "many": 4096}, 0, 4096, 16)
    assert str(caught.value) == (
        "queues take 5,120 bytes of scratch memory, of which 4,096 are for queues: "
        "@many 4,096 B, @few 1,024 B"
    )
