"""Pages that a die does not know cost a walk, where walks are modelled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starc.targets.loader import load_target
from starc.targets.target import Target
from tests.unit.simulator.programs import KIB, MIB, chase, run


def small_reach() -> Target:
    """Sixteen pages of 64 KiB: a reach of 1 MiB, 50 ns beyond it."""
    return replace(
        load_target("mi300x-spx", gpus=1),
        tlb_entries=16,
        tlb_page_bytes=64 * KIB,
        page_walk_ps=50_000,
    )


def load_ns(target: Target, footprint: int, *, page_walk: bool) -> float:
    """Nanoseconds of a dependent load in a second pass over one line of each page."""
    loads = footprint // (64 * KIB)
    once, twice = (
        run(chase(target, loads=loads, stride=64 * KIB, passes=n), target, page_walk=page_walk,
            skew=False).time_ps
        for n in (1, 2)
    )  # fmt: skip
    return (twice - once) / loads / 1e3


@pytest.mark.parametrize(
    ("footprint", "walks"),
    # One place a page: beyond the reach, pages that share a place displace each other.
    [(MIB // 2, 0.0), (MIB, 0.0), (MIB + MIB // 2, 2 / 3), (2 * MIB, 1.0), (8 * MIB, 1.0)],
)
def test_walks_by_footprint(footprint: int, walks: float) -> None:
    target = small_reach()
    plain = load_ns(target, footprint, page_walk=False)
    assert load_ns(target, footprint, page_walk=True) - plain == pytest.approx(50 * walks, abs=0.5)


def test_walks_are_off_by_default() -> None:
    target = small_reach()
    program = chase(target, loads=64, stride=64 * KIB, passes=2)
    other = replace(target, page_walk_ps=0)
    assert run(program, target).key() == run(program, other).key()
    assert run(program, target, page_walk=True).time_ps > run(program, target).time_ps


def test_walks_are_exact_in_every_engine() -> None:
    target = small_reach()
    program = chase(target, loads=64, stride=64 * KIB, passes=2)
    first = run(program, target, page_walk=True)
    assert first.key() == run(program, target, page_walk=True, engine="heap", jit=False).key()
