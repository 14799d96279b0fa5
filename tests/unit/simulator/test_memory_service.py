"""Reads and writes of a stack have rates of their own, and turns of its bus cost time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starc.backend.program import Program, Role
from starc.backend.template import WORKGROUP
from starc.simulator.results.result import SimulationResult
from starc.targets.target import Target
from tests.unit.simulator.programs import BF16, assembler, machine, run, stream


def writes(target: Target, *, workgroups: int, iterations: int, rows: int = 64) -> Program:
    """Every workgroup writes ``iterations`` tiles of ``rows`` x 128 bf16."""
    p = assembler("writes", target)
    y = p.buffer("y", (workgroups * iterations * rows, 128), BF16, block=(16, 128),
                 role=Role.OUTPUT)  # fmt: skip
    t = p.template("writes")
    tile = t.tile(rows, 128, BF16)
    with t.loop(0, iterations) as i:
        t.store(tile, y, ((WORKGROUP * iterations + i) * rows, 0))
    p.layer("writes")
    p.launch("writes", [(p.add(t, waves=4), workgroups)])
    return p.finish()


def rate(result: SimulationResult) -> float:
    """Bytes per second, read and written."""
    moved = result.traffic.hbm_read_bytes + result.traffic.hbm_write_bytes
    return moved / result.time_ps * 1e12


def streams(target: Target) -> tuple[float, float, float]:
    """Rates of a stream of reads, one of writes and a copy."""
    programs = (
        stream(target, workgroups=76, iterations=64),
        writes(target, workgroups=76, iterations=64),
        stream(target, workgroups=76, iterations=64, copy=True),
    )
    read, write, copy = (rate(run(program, target)) for program in programs)
    return read, write, copy


def test_reads_and_writes_reach_their_shares_and_a_copy_both() -> None:
    target = replace(machine(gpu=1, xcd=2), hbm_read_share=0.8, hbm_write_share=0.6)
    whole = 2 * target.hbm_rate
    read, write, copy = streams(target)
    assert read == pytest.approx(0.8 * whole, rel=0.03)
    assert write == pytest.approx(0.6 * whole, rel=0.03)
    assert copy == pytest.approx(2 / (1 / 0.8 + 1 / 0.6) * whole, rel=0.04)


def test_turns_of_the_bus_cost_a_copy_time_and_streams_of_one_kind_nothing() -> None:
    target = machine(gpu=1, xcd=2)
    neutral = streams(target)
    # A stack writes a batch in so many picoseconds; a turn takes half of that.
    batch = target.hbm_write_batch_bytes * 1e12 / target.hbm_stack_rate
    turning = streams(replace(target, hbm_turnaround_ps=round(batch / 2)))
    assert turning[:2] == neutral[:2]
    # Two batches' worth of time become two and a half.
    assert turning[2] == pytest.approx(neutral[2] * 2 / 2.5, rel=0.03)


def test_a_turn_is_paid_once_a_batch() -> None:
    target = machine(gpu=1, xcd=2)
    turn = round(target.hbm_write_batch_bytes * 1e12 / target.hbm_stack_rate / 2)
    small = replace(target, hbm_turnaround_ps=turn)
    large = replace(small, hbm_write_batch_bytes=4 * target.hbm_write_batch_bytes)
    assert streams(large)[2] > 1.1 * streams(small)[2]


def test_write_backs_hold_up_the_stores_that_cause_them() -> None:
    target = machine(gpu=1, xcd=2)
    program = writes(target, workgroups=76, iterations=64)
    bounded = rate(run(program, target))
    assert bounded == pytest.approx(2 * target.hbm_rate, rel=0.03)
    # Without a bound the L2s take stores as fast as the compute units send them.
    assert rate(run(program, replace(target, write_back_queue_ps=0))) > 3 * bounded


def test_shares_of_one_and_no_turn_change_nothing() -> None:
    target = machine(gpu=1, xcd=2)
    assert (target.hbm_read_share, target.hbm_write_share) == (1.0, 1.0)
    assert target.hbm_turnaround_ps == 0
