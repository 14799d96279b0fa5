"""The shares and tiles of attention."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starc.core.kernel_schedules.attention_orders import row_tile_order
from starc.core.kernel_schedules.attention_problem import (
    AttentionProblem,
    key_steps,
    total_key_steps,
)
from starc.core.kernel_schedules.attention_schedules import choose_attention
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.share_merging import Combine
from starc.core.tiling import ceil_div
from tests.unit.core.rates import GPU, PARTITION


def decode(batch: int, context: int, group: int = 8, kv_heads: int = 1) -> AttentionProblem:
    return AttentionProblem(batch, 1, kv_heads, group, 128, context - 1, context)


@pytest.mark.parametrize("rates", [PARTITION, GPU], ids=["partition", "gpu"])
def test_decode_at_128k_is_close_to_the_memory_bound(rates: DeviceRates) -> None:
    problem = decode(8, 131072)
    best = choose_attention(problem, rates)[0]
    assert problem.compulsory_bytes / rates.hbm_rate / best.seconds >= 0.9
    assert best.split > 1


def test_decode_packs_the_heads_of_a_group() -> None:
    best = choose_attention(decode(8, 16384), PARTITION)[0]
    assert best.group == 8
    assert best.tile[0] == 8
    assert best.tasks == 8


def test_owner_combines_only_what_is_resident() -> None:
    for context in (4096, 16384, 131072):
        for rates in (PARTITION, GPU):
            for schedule in choose_attention(decode(8, context), rates):
                if schedule.combine is Combine.OWNER:
                    assert schedule.grid <= schedule.resident * rates.compute_units


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 64), st.integers(1, 5000), st.sampled_from([1, 2, 8]), st.integers(1, 4))
def test_no_share_of_the_keys_is_empty(batch: int, context: int, group: int, heads: int) -> None:
    problem = decode(batch, context, group, heads)
    for schedule in choose_attention(problem, PARTITION):
        steps = ceil_div(context, schedule.tile[1])
        assert schedule.split <= steps
        share = ceil_div(steps, schedule.split)
        assert (schedule.split - 1) * share < steps
        slots = 2 * schedule.stages * schedule.tile[1] * 128 * 2
        assert schedule.resident * slots <= PARTITION.scratch_bytes


def test_prefill_takes_tiles_of_queries() -> None:
    problem = AttentionProblem(1, 8192, 1, 1, 128, 0, 8192)
    best = choose_attention(problem, PARTITION)[0]
    assert best.group == 1
    assert best.split == 1
    assert best.tile[0] in (64, 128)
    assert best.row_tiles == 8192 // best.tile[0]
    matrix = problem.flops / (PARTITION.matrix_rate("bf16") * PARTITION.compute_units)
    assert matrix / best.seconds >= 0.65


def test_causal_tiles_stop_at_their_last_query() -> None:
    problem = AttentionProblem(1, 256, 1, 1, 128, 64, 320)
    assert key_steps(problem, 128, 64) == [3, 5]
    assert key_steps(replace(problem, causal=False), 128, 64) == [5, 5]


def test_work_is_that_of_the_visible_pairs() -> None:
    problem = AttentionProblem(2, 4, 3, 2, 16, 10, 14)
    pairs = sum(10 + t + 1 for t in range(4))
    assert problem.visible_pairs == pairs
    assert problem.flops == 4 * 16 * pairs * 2 * 3 * 2
    cache = 2 * 2 * 3 * 14 * 16
    assert problem.compulsory_bytes == 2 * (cache + 2 * 2 * 4 * 6 * 16)


def test_rows_that_are_dealt_out_see_as_much_on_average_as_all() -> None:
    """64 new tokens on 8 devices: a device's eight rows see up to the last position."""
    whole = AttentionProblem(1, 64, 1, 8, 16, 0, 64)
    share = AttentionProblem(1, 8, 1, 8, 16, 0, 64, row_ranks=8)
    assert share.visible_pairs * 8 == whole.visible_pairs
    assert share.flops * 8 == whole.flops
    assert share.visible_keys == whole.visible_keys == 64


def test_a_device_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="no attention tile fits"):
        choose_attention(decode(1, 64), replace(PARTITION, scratch_bytes=1024))


def test_longest_row_tiles_share_a_unit_with_the_shortest():
    order = row_tile_order(64, 1, 2, 38)
    assert sorted(order) == list(range(64))
    pairs = [order[unit] + order[38 + unit] for unit in range(64 - 38)]
    assert set(pairs) == {63}
    # One workgroup a unit: the next starts where one has ended, longest first.
    assert row_tile_order(64, 1, 1, 38) == tuple(range(63, -1, -1))
    # As many heads as units: their tiles are equally long.
    assert row_tile_order(4, 64, 2, 38) == (3, 2, 1, 0)


@pytest.mark.parametrize("query", [1, 63, 64, 200, 1024])
@pytest.mark.parametrize("start", [0, 1, 77, 500])
@pytest.mark.parametrize("causal", [True, False])
def test_key_steps_are_summed_in_closed_form(query: int, start: int, causal: bool) -> None:
    for spare in (0, 5, 300):
        problem = AttentionProblem(1, query, 1, 1, 64, start, start + query + spare, causal)
        for rows, keys in ((64, 128), (128, 32), (16, 48)):
            steps = key_steps(problem, rows, keys)
            assert total_key_steps(problem, rows, keys) == (sum(steps), max(steps))


@pytest.mark.parametrize("rates", [PARTITION, GPU], ids=["partition", "gpu"])
def test_sizes_of_any_magnitude_are_scheduled_at_once(rates: DeviceRates) -> None:
    huge = 10**12
    assert choose_attention(decode(1, huge), rates)[0].split > 1
    prefill = AttentionProblem(1, huge, 1, 1, 128, 0, huge)
    assert choose_attention(prefill, rates)[0].row_tiles >= huge // 128


def test_a_cache_of_smaller_elements_is_less_to_read() -> None:
    problem = decode(8, 16384)
    halved = replace(problem, cache_element_bytes=1)
    rows = 2 * 8 * 8 * 128 * 2  # queries and results stay as they are
    assert halved.compulsory_bytes - rows == (problem.compulsory_bytes - rows) // 2
    assert (
        choose_attention(halved, PARTITION)[0].seconds
        < choose_attention(problem, PARTITION)[0].seconds
    )


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 20),
    st.integers(0, 40),
    st.one_of(st.none(), st.integers(1, 30)),
    st.integers(0, 12),
    st.integers(1, 5),
)
def test_windows_and_shards_are_counted_by_position(
    query: int, start: int, window: int | None, keep: int, ranks: int
) -> None:
    problem = AttentionProblem(
        1, query, 1, 1, 16, start, start + query, window=window, keep=keep, ranks=ranks
    )
    pairs = [
        (q, k)
        for q in range(start, start + query)
        for k in range(q + 1)
        if window is None or q - k < window or k < keep
    ]
    keys = {k for _, k in pairs}
    assert problem.visible_pairs == ceil_div(len(pairs), ranks)
    assert problem.visible_keys == ceil_div(len(keys), ranks)
    assert problem.old_keys == ceil_div(len([k for k in keys if k < start]), ranks)
    for rows, tile in ((4, 2), (8, 1)):
        steps = key_steps(problem, rows, tile)
        assert total_key_steps(problem, rows, tile) == (sum(steps), max(steps))
        for number, count in enumerate(steps):
            queries = range(start + number * rows, start + min(query, (number + 1) * rows))
            seen = {k // (ranks * tile) for q, k in pairs if q in queries}
            assert len(seen) <= count <= len(seen) + 1


def test_a_window_shortens_decode_and_prefill() -> None:
    whole = decode(8, 131072)
    windowed = replace(whole, window=128)
    assert windowed.visible_keys == 128
    assert choose_attention(windowed, PARTITION)[0].seconds < 0.1 * (
        choose_attention(whole, PARTITION)[0].seconds
    )
    prefill = AttentionProblem(1, 8192, 1, 1, 128, 0, 8192)
    short = choose_attention(replace(prefill, window=512, keep=4), PARTITION)[0]
    assert short.seconds < 0.3 * choose_attention(prefill, PARTITION)[0].seconds
    huge = replace(prefill, query=10**9, keys=10**9, window=512)
    assert choose_attention(huge, PARTITION)[0].row_tiles >= 10**9 // 128


def test_the_number_of_shares_follows_the_keys_of_the_shard() -> None:
    """Of 512 positions a die of eight has 64: sharing them out would cost more than it saves."""
    short = replace(decode(1, 512), ranks=8, partial_bytes=4)
    assert choose_attention(short, PARTITION)[0].split == 1
    long = replace(decode(1, 131072), ranks=8, partial_bytes=4)
    assert choose_attention(long, PARTITION)[0].split > 8
