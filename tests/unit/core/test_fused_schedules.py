"""Schedules of products that exchange data with their peers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.fused_schedules import (
    FusedProblem,
    FusedSchedule,
    Pull,
    choose_fused,
    column_tiles,
    fused_resident,
)
from starc.core.kernel_schedules.gemm_problem import GemmProblem
from starc.targets.loader import load_target

RATES = DeviceRates.of(load_target("mi300x-cpx"))
LINK = RATES.links["usr"]


def problem(
    m: int, k: int, *widths: int, pull: int = 0, push: int = 0, owned: tuple[int, ...] = ()
) -> FusedProblem:
    gemm = GemmProblem(m, 1, widths, k)
    scattered = owned or (0,) * len(widths)
    return FusedProblem(gemm, pull, push, scattered, 2, LINK.bytes_per_s, LINK.latency_s)


PROBLEMS = [
    problem(8, 8192, 1024, pull=8),
    problem(64, 4096, 512, 512, pull=8),
    problem(2048, 8192, 2048, pull=8),
    problem(8, 1024, 8192, push=8, owned=(1024,)),
    problem(300, 1000, 1000, 640, push=8, owned=(125, 0)),
    problem(2048, 1024, 8192, push=8, owned=(1024,)),
    problem(64, 4096, 4096, pull=8, push=8, owned=(512,)),
]


def slots(p: FusedProblem, schedule: FusedSchedule) -> int:
    gemm = schedule.gemm
    return fused_resident(p, gemm.tile, gemm.stages, RATES) * RATES.compute_units


@pytest.mark.parametrize("p", PROBLEMS, ids=str)
def test_all_workgroups_are_resident(p: FusedProblem):
    found = choose_fused(p, RATES)
    assert found
    for schedule in found:
        assert sum(schedule.grid) <= slots(p, schedule)
        assert all(count >= 1 for count in schedule.grid)
        if schedule.gemm.split > 1:  # every share of every tile has its own
            across = column_tiles(p, schedule.gemm.tile[1])
            tiles = sum(across) * schedule.gemm.row_tiles
            assert sum(schedule.grid[: len(across)]) == tiles * schedule.gemm.split


@pytest.mark.parametrize("p", PROBLEMS[:3], ids=str)
def test_ways_to_read_are_ranked_and_differ_in_bytes(p: FusedProblem):
    found = choose_fused(p, RATES)
    assert {schedule.pull for schedule in found} == set(Pull)
    assert [s.seconds for s in found] == sorted(s.seconds for s in found)
    sent = {schedule.pull: schedule.link_bytes for schedule in found}
    assert sent[Pull.STAGED] == p.pulled_bytes
    assert sent[Pull.STAGED] <= sent[Pull.CACHED] <= sent[Pull.UNCACHED]
    (forced,) = choose_fused(p, RATES, Pull.STAGED)
    assert forced.pull is Pull.STAGED


def test_columns_of_every_owner_are_cut_alike():
    p = problem(8, 64, 250, 96, push=2, owned=(125, 0))
    assert column_tiles(p, 32) == (8, 3)
    assert p.pushed_bytes == 8 * 125 * 2


def test_a_slow_link_makes_the_exchange_the_longest_part():
    p = problem(256, 8192, 1024, pull=8)
    fast = choose_fused(p, RATES)[0]
    slow = choose_fused(replace(p, link_rate=1e9), RATES)[0]
    assert slow.seconds > 10 * fast.seconds
    assert slow.seconds >= p.pulled_bytes / 1e9


def test_nothing_fits_a_device_without_scratch_memory():
    assert choose_fused(PROBLEMS[0], replace(RATES, scratch_bytes=1024)) == ()
