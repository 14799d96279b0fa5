"""Streams reach the sustained rates of the servers that bound them, and latencies are the input."""

from __future__ import annotations

import pytest

from starc.backend.template import DEVICE
from starc.core.streams.engine_times import matrix_ps
from starc.targets.loader import load_target
from tests.unit.simulator.programs import chase, exchange, machine, matrix, run, stream


def rate(bytes_: float, ps: int) -> float:
    """Bytes per second."""
    return bytes_ / ps * 1e12


def test_partition_stream_reaches_its_share_of_the_stacks() -> None:
    target = machine(gpu=1, xcd=2)
    result = run(stream(target, workgroups=76, iterations=96), target)
    assert rate(result.traffic.hbm_read_bytes, result.time_ps) == pytest.approx(
        2 * target.hbm_rate, rel=0.02
    )
    assert result.layers[0].bound_by == "hbm"


def test_gpu_stream_reaches_the_sustained_rate_over_all_stacks() -> None:
    target = load_target("mi300x-spx", gpus=1)
    result = run(stream(target, workgroups=608, iterations=60), target)
    assert rate(result.traffic.hbm_read_bytes, result.time_ps) == pytest.approx(
        target.hbm_rate, rel=0.03
    )


def test_copy_shares_the_stacks_between_reads_and_writes() -> None:
    target = machine(gpu=1, xcd=2)
    result = run(stream(target, workgroups=76, iterations=96, copy=True), target)
    moved = result.traffic.hbm_read_bytes + result.traffic.hbm_write_bytes
    assert result.traffic.hbm_write_bytes > 0.5 * result.traffic.hbm_read_bytes
    assert rate(moved, result.time_ps) == pytest.approx(2 * target.hbm_rate, rel=0.05)


def test_lone_die_takes_most_of_its_carrier_and_a_pair_shares_it() -> None:
    target = machine(gpu=1, xcd=2)
    alone = run(stream(target, workgroups=76, iterations=96, idle_from=1), target)
    lone = rate(alone.traffic.hbm_read_bytes, alone.time_ps)
    assert 0.93e12 < lone < 1.06e12
    both = run(stream(target, workgroups=76, iterations=96), target)
    assert rate(both.traffic.hbm_read_bytes, both.time_ps) / 2 == pytest.approx(0.526e12, rel=0.02)


def load_to_use(target_name: str, *, loads: int, stride: int, passes: int) -> float:
    """Picoseconds of one dependent load, launch costs taken away."""
    target = load_target(target_name, gpus=1)
    program = chase(target, loads=loads, stride=stride, passes=passes)
    once = run(chase(target, loads=loads, stride=stride, passes=passes - 1), target, skew=False)
    result = run(program, target, skew=False)
    vector = 476  # the instruction that uses the line
    return (result.time_ps - once.time_ps) / loads - vector


def test_latency_of_an_l2_hit_is_the_input() -> None:
    target = load_target("mi300x-spx", gpus=1)
    measured = load_to_use("mi300x-spx", loads=256, stride=4096, passes=3)
    assert measured == pytest.approx(target.l2_latency_ps, rel=0.01)


def test_latency_of_the_memory_side_cache_is_the_mean_over_the_stacks() -> None:
    # 16 MiB do not fit into an L2 and fit into the caches in front of the stacks.
    measured = load_to_use("mi300x-spx", loads=4096, stride=4096, passes=3)
    assert measured == pytest.approx(199_300, rel=0.01)


def test_latency_of_memory_is_the_mean_over_the_stacks() -> None:
    measured = load_to_use("mi300x-spx", loads=512, stride=4096, passes=1)
    assert measured == pytest.approx(322_000, rel=0.01)


def test_latency_of_a_partition_has_no_hop() -> None:
    target = machine()
    measured = load_to_use("mi300x-cpx", loads=512, stride=4096, passes=1)
    assert measured == pytest.approx(target.memory_latency_ps, rel=0.01)


def test_link_between_gpus_carries_its_sustained_rate() -> None:
    target = machine(gpu=2, xcd=1)
    program = exchange(target, peer=DEVICE * -1 + 1, workgroups=16, iterations=64)
    result = run(program, target)
    per_gpu = result.traffic.logical["xgmi"] / 2
    assert rate(per_gpu, result.time_ps) == pytest.approx(46.55e9, rel=0.05)
    assert result.layers[0].bound_by == "xgmi"


def test_gets_carry_the_same_rate_the_other_way() -> None:
    target = machine(gpu=2, xcd=1)
    program = exchange(target, peer=DEVICE * -1 + 1, workgroups=16, iterations=64, get=True)
    result = run(program, target)
    assert rate(result.traffic.logical["xgmi"] / 2, result.time_ps) == pytest.approx(
        46.55e9, rel=0.05
    )


def test_matrix_operations_run_at_the_sustained_rate() -> None:
    target = machine(gpu=1, xcd=1)
    result = run(matrix(target, workgroups=38, iterations=500), target)
    flops = 38 * 500 * 2 * 128**3
    peak = 38 * target.matrix_rate("bf16")
    assert flops / result.time_ps * 1e12 == pytest.approx(peak, rel=0.03)
    assert result.layers[0].bound_by == "matrix"


def test_matrix_operations_are_padded_to_whole_instructions() -> None:
    target = machine()
    assert matrix_ps(target, "bf16", 1, 64, 64) == matrix_ps(target, "bf16", 16, 64, 64)
    assert matrix_ps(target, "bf16", 17, 64, 64) == matrix_ps(target, "bf16", 32, 64, 64)
