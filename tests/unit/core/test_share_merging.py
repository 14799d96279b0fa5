"""How the shares of a tile are combined."""

from __future__ import annotations

from starc.core.kernel_schedules.share_merging import (
    NO_MERGE,
    Combine,
    Merge,
    choose_merge,
    kernel_merge,
)
from tests.unit.core.rates import PARTITION


def merge(rows: int, tiles: int, split: int, resident: int = 2) -> Merge:
    return choose_merge(
        rows=rows,
        row_bytes=512,
        tiles=tiles,
        split=split,
        resident=resident,
        kernel_class="gemm",
        rates=PARTITION,
    )


def test_one_share_needs_no_merge() -> None:
    assert merge(16, 10, 1) is NO_MERGE


def test_owners_combine_where_all_are_resident() -> None:
    assert merge(16, 10, 4).combine is Combine.OWNER
    assert merge(16, 100, 4).combine is Combine.KERNEL


def test_a_combining_launch_fills_the_device() -> None:
    found = kernel_merge(
        rows=128, row_bytes=512, tiles=1, split=4, kernel_class="gemm", rates=PARTITION
    )
    assert 128 // found.rows >= PARTITION.compute_units
    assert merge(16, 100, 4).rows == 16


def test_small_shares_are_read_further_ahead() -> None:
    small, large = merge(8, 10, 4), merge(128, 10, 4)
    assert small.stages == 8
    assert large.stages == 2


def test_more_shares_cost_more() -> None:
    times = [merge(16, 2, split).seconds for split in (2, 4, 16, 32)]
    assert times == sorted(times)


def test_several_owners_take_a_part_of_the_rows_each() -> None:
    """Of many shares one workgroup would read for long, and a launch would begin late."""
    for split in (8, 38):
        found = choose_merge(
            rows=16,
            row_bytes=520,
            tiles=1,
            split=split,
            resident=1,
            kernel_class="attention",
            rates=PARTITION,
            box=(1, 16),
        )
        assert found.combine is Combine.OWNER
        assert 0 < found.rows < 16
        assert 16 // found.rows <= split
