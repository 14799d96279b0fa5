"""Baselines find the constants of data that were made with them, and leave out what cannot tell."""

from __future__ import annotations

import pytest

from starc.validation.baselines import ROOFLINE, SPLIT_AWARE, fit
from starc.validation.rows import Work


def works() -> list[Work]:
    return [
        Work(size, flops, workgroups, stages)
        for size in (1e6, 1e7, 1e8, 1e9)
        for flops in (1e6, 1e11, 1e12)
        for workgroups, stages in ((4, 0), (64, 1), (4096, 0))
    ]


def split_aware(work: Work) -> float:
    assert work.workgroups is not None
    stream = work.bytes / min(4.2e6, 3.5e4 * work.workgroups)
    return 3.0 + 2.0 * work.stages + max(stream, work.flops / 7e8)


def test_a_roofline_finds_its_constants():
    rows = [Work(work.bytes, work.flops) for work in works()]
    times = [5.0 + max(work.bytes / 4.5e6, work.flops / 7e8) for work in rows]
    found = fit(rows, times)[ROOFLINE]
    assert dict(found.constants) == pytest.approx(
        {"offset_us": 5.0, "bandwidth": 4.5e6, "matrix_rate": 7e8}, rel=1e-3
    )
    assert [found.time(work) for work in rows] == pytest.approx(times, rel=1e-3)


def test_a_split_aware_roofline_finds_its_constants():
    rows = works()
    found = fit(rows, [split_aware(work) for work in rows])[SPLIT_AWARE]
    assert dict(found.constants) == pytest.approx(
        {
            "offset_us": 3.0,
            "second_offset_us": 2.0,
            "bandwidth": 4.2e6,
            "workgroup_rate": 3.5e4,
            "matrix_rate": 7e8,
        },
        rel=1e-3,
    )


def test_constants_that_the_rows_cannot_tell_are_not_counted():
    rows = [Work(size) for size in (1e6, 1e8)]
    found = fit(rows, [work.bytes / 4e6 + 1 for work in rows])
    assert set(found[ROOFLINE].constants) == {"offset_us", "bandwidth"}
    assert set(found[SPLIT_AWARE].constants) == {"offset_us", "bandwidth"}


def test_the_same_rows_give_the_same_constants():
    rows = works()
    times = [split_aware(work) * (1 + 0.05 * (i % 3)) for i, work in enumerate(rows)]
    assert fit(rows, times) == fit(rows, times)


def test_no_rows_have_no_baselines():
    assert fit([], []) == {}
