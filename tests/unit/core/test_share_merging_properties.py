"""Estimates of merges in round numbers: a compute unit streams 100 bytes a second and waits 10."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.share_merging import (
    NO_MERGE,
    Combine,
    Merge,
    choose_merge,
    kernel_merge,
)
from tests.unit.core.rates import PARTITION

ROUND = replace(
    PARTITION,
    compute_units=4,
    dies=2,
    window_bytes=1000,
    latency_s=10.0,
    l2_latency_s=10.0,
    cu_port=1e9,
    hbm_rate=100.0,
    l2_bytes=1 << 40,
    gap_s=5.0,
    prologue_s={"gemm": 2.0},
    register_bytes=16 * 500,
)


def merge(
    rows: int,
    *,
    tiles: int = 1,
    split: int = 3,
    resident: int = 2,
    row_bytes: int = 50,
    rates: DeviceRates = ROUND,
    box: tuple[int, int] | None = None,
    combine: Combine | None = None,
) -> Merge:
    return choose_merge(
        rows=rows,
        row_bytes=row_bytes,
        tiles=tiles,
        split=split,
        resident=resident,
        kernel_class="gemm",
        rates=rates,
        box=box,
        combine=combine,
    )


def launched(
    rows: int, *, tiles: int = 1, split: int = 3, row_bytes: int = 50, rates: DeviceRates = ROUND
) -> Merge:
    return kernel_merge(
        rows=rows, row_bytes=row_bytes, tiles=tiles, split=split, kernel_class="gemm", rates=rates
    )


def test_nothing_is_merged_of_one_share() -> None:
    assert merge(8, split=1, combine=Combine.KERNEL) == NO_MERGE == Merge(None, 0.0, 0, 0)


def test_an_owner_writes_its_share_and_reads_the_others() -> None:
    # 100 bytes: a second of writing, two shares of a fourth of the latency each, three ways.
    assert merge(2, combine=Combine.OWNER) == Merge(Combine.OWNER, 1 + 2 * 2.5 + 30, 0, 5)
    # 2500 bytes: 25 seconds of reading hide the latency, two slots are the least.
    assert merge(50, combine=Combine.OWNER) == Merge(Combine.OWNER, 25 + 2 * 25 + 30, 0, 2)


def test_a_launch_pays_its_gap_and_prologue() -> None:
    # Four workgroups of two rows: the latency of three shares over four slots ahead.
    assert launched(8) == Merge(Combine.KERNEL, 5 + 2 + 30 + 4 + 3 * 10 / 4, 2, 5)
    # Nine tiles on four units: three one after the other, each of three shares of 4 seconds.
    assert launched(8, tiles=9) == Merge(Combine.KERNEL, 5 + 2 + 30 + 4 + 3 * 3 * 4, 8, 2)
    # A row is not cut.
    assert launched(1).rows == 1
    assert launched(3) == Merge(Combine.KERNEL, 5 + 2 + 30 + 1.5 + 3 * 10 / 9, 1, 10)


def test_what_does_not_fit_the_caches_goes_through_memory_twice() -> None:
    fits, spills = (replace(ROUND, l2_bytes=size) for size in (600, 599))
    assert launched(8, rates=fits) == launched(8)
    assert launched(8, rates=spills).seconds == 5 + 2 + 30 + 4 + 2 * 1200 / 100


def test_the_last_part_of_a_tile_may_be_smaller() -> None:
    # Five rows for two units: parts of three rows, as if both had them.
    two = replace(ROUND, compute_units=2, l2_bytes=0)
    assert launched(5, rates=two) == Merge(Combine.KERNEL, 5 + 2 + 30 + 2.5 + 2 * 900 / 100, 3, 3)


def test_no_more_than_so_many_shares_are_read_ahead() -> None:
    assert merge(1, row_bytes=1, combine=Combine.OWNER).stages == 32
    assert merge(1, row_bytes=500 // 31, combine=Combine.OWNER).stages == 31
    assert merge(1, row_bytes=500, combine=Combine.OWNER).stages == 2


def test_owners_are_resident_together_or_none_is() -> None:
    assert merge(8, tiles=2, split=4, combine=Combine.OWNER).combine is Combine.OWNER
    assert merge(8, tiles=3, split=3, combine=Combine.OWNER) == launched(8, tiles=3)
    assert merge(8, tiles=2, split=4, resident=1, combine=Combine.OWNER).combine is Combine.KERNEL
    assert merge(8, combine=Combine.KERNEL) == launched(8)


def test_the_fastest_way_is_taken() -> None:
    assert merge(8) == launched(8)  # 48.5 against 54
    assert merge(8, rates=replace(ROUND, gap_s=20.0)) == Merge(Combine.OWNER, 4 + 2 * 10 + 30, 0, 2)


def test_owners_of_parts_read_side_by_side() -> None:
    # Four owners of two rows: the latency of four shares over four slots ahead.
    assert merge(8, split=4, box=(2, 4), combine=Combine.OWNER) == Merge(
        Combine.OWNER, 30 + 4 + 4 * 10 / 4, 2, 5
    )
    # Eight owners of a row, two on a unit.
    assert merge(8, split=8, box=(2, 4), combine=Combine.OWNER) == Merge(
        Combine.OWNER, 30 + 4 + 8 * 10 / 9, 1, 10
    )
    # There are no more owners than shares: two parts cost more than one owner here.
    assert merge(8, split=3, box=(2, 4), combine=Combine.OWNER).rows == 0
    # As many as there are may be owners: three of them, of a row and two reads.
    assert merge(3, split=3, box=(3, 1), combine=Combine.OWNER) == Merge(
        Combine.OWNER, 30 + 1.5 + 3 * 10 / 9, 1, 10
    )


@given(
    st.integers(1, 64),
    st.integers(1, 4096),
    st.integers(1, 12),
    st.integers(2, 12),
    st.integers(1, 4),
)
def test_a_merge_is_the_cheapest_of_the_ways_that_may_be_asked_for(
    rows: int, row_bytes: int, tiles: int, split: int, resident: int
) -> None:
    ways = [
        merge(
            rows,
            tiles=tiles,
            split=split,
            resident=resident,
            row_bytes=row_bytes,
            rates=PARTITION,
            combine=combine,
        )
        for combine in (None, *Combine)
    ]
    assert ways[0].seconds == min(way.seconds for way in ways)
    assert all(2 <= way.stages <= 32 for way in ways)
    assert ways[0].seconds >= 3 * PARTITION.latency_s


@pytest.mark.parametrize("combine", list(Combine))
def test_more_shares_and_larger_ones_cost_more(combine: Combine) -> None:
    shares = [merge(8, split=split, combine=combine).seconds for split in range(2, 9)]
    assert shares == sorted(shares)
    sizes = [merge(rows, combine=combine).seconds for rows in (8, 16, 32, 64)]
    assert sizes == sorted(sizes)
