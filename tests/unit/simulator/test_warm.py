"""A warm run finds in the caches what a run before it has left there."""

from __future__ import annotations

import pytest

from starc.targets.loader import load_target
from tests.unit.simulator.programs import MIB, machine, run, stream


def test_what_fits_the_l2_is_read_from_it() -> None:
    target = machine(gpu=1, xcd=1)
    program = stream(target, workgroups=16, iterations=8)  # 2 MiB of 4
    cold, warm = run(program, target), run(program, target, warm=True)
    assert cold.traffic.hbm_read_bytes == 2 * MIB
    assert warm.traffic.hbm_read_bytes == 0
    assert warm.traffic.l2_hit_bytes == 2 * MIB
    assert warm.time_ps < cold.time_ps
    assert (cold.caches, warm.caches) == ("cold", "warm")


def test_what_fits_the_memory_side_cache_is_read_from_it() -> None:
    # Two stacks of 32 MiB: 38 MiB do not fit the L2.
    target = machine(gpu=1, xcd=1)
    program = stream(target, workgroups=38, iterations=64)
    warm = run(program, target, warm=True).traffic
    assert warm.hbm_read_bytes == 0
    assert warm.mall_hit_bytes == pytest.approx(38 * MIB, rel=0.1)


def test_l2s_of_a_device_with_several_start_empty() -> None:
    target = load_target("mi300x-spx", gpus=1)
    program = stream(target, workgroups=16, iterations=8)
    warm = run(program, target, warm=True).traffic
    assert warm.l2_hit_bytes == 0
    assert warm.mall_hit_bytes == 2 * MIB


def test_a_warm_run_is_the_same_every_time_and_in_every_engine() -> None:
    target = machine(gpu=1, xcd=2)
    program = stream(target, workgroups=8, iterations=4, copy=True)
    first = run(program, target, warm=True)
    assert first.key() == run(program, target, warm=True).key()
    assert first.key() == run(program, target, warm=True, engine="heap", jit=False).key()
