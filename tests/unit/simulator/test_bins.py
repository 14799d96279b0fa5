"""Work of servers over time."""

from __future__ import annotations

import numpy as np
import pytest

from starc.backend.template import DEVICE
from starc.simulator.results.result import utilization
from starc.simulator.state import counts, servers
from tests.unit.simulator.programs import exchange, machine, matrix, run, stream


def test_bins_hold_all_work_of_a_run() -> None:
    target = machine(gpu=2, xcd=2)
    result = run(exchange(target, peer=(DEVICE + 3) % 4), target, full_node=True)
    kinds = result.bins.sum(axis=2)
    assert kinds.shape == (2, servers.SERVER_KINDS)
    assert kinds.sum() == result.work.sum()
    assert (kinds.sum(axis=1) == result.work.sum(axis=(0, 2))).all()
    assert kinds[:, servers.XGMI].sum() > 0


def test_bins_double_their_width_until_a_run_fits() -> None:
    target = machine(gpu=1, xcd=1)
    short = run(matrix(target, workgroups=4, iterations=8), target)
    long = run(matrix(target, workgroups=4, iterations=400), target)
    assert short.bin_ps == 1 << counts.BIN_SHIFT
    assert long.bin_ps > short.bin_ps
    assert counts.BINS // 2 < long.bins.shape[2] <= counts.BINS
    assert long.bins.sum() == long.work.sum()


def test_least_width_is_the_next_power_of_two() -> None:
    target = machine(gpu=1, xcd=1)
    program = matrix(target, workgroups=4, iterations=8)
    assert run(program, target, bins_ps=1_000_000).bin_ps == 1 << 20
    assert run(program, target, bins_ps=1 << 20).bin_ps == 1 << 20
    assert run(program, target, bins_ps=(1 << 20) + 1).bin_ps == 1 << 21


def test_bins_do_not_depend_on_how_the_core_runs() -> None:
    target = machine(gpu=2, xcd=1)
    program = exchange(target, peer=DEVICE * -1 + 1, workgroups=4, iterations=4)
    calendar = run(program, target, full_node=True)
    heap = run(program, target, full_node=True, engine="heap", jit=False)
    assert calendar.bin_ps == heap.bin_ps
    assert (calendar.bins == heap.bins).all()


def test_a_saturated_stack_is_used_all_the_time() -> None:
    target = machine(gpu=1, xcd=2)
    result = run(stream(target, workgroups=76, iterations=64), target)
    shares = utilization(target, result)
    hbm = shares["hbm"][0]
    middle = hbm[len(hbm) // 4 : len(hbm) // 2]
    assert np.mean(middle) == pytest.approx(1.0, abs=0.02)
    # One carrier has no links to others.
    assert set(shares) == set(servers.SERVER_NAMES) - {"usr", "noc"}
    assert shares["matrix"].max() == 0.0
