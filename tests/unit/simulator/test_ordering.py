"""Puts, signals and waits; launches and queues; deadlock."""

from __future__ import annotations

import pytest

from starc.backend.program import Program, Role, Space
from starc.backend.template import DEVICE, WORKGROUP
from starc.simulator.errors import DeadlockError, DecodeError
from starc.targets.target import Target
from tests.unit.simulator.programs import BF16, assembler, machine, run, stream

TWO = machine(gpu=2, xcd=1)


def hand_over(target: Target, *, other_workgroup_puts: bool) -> Program:
    """Device 0 puts 1 MiB to device 1 and signals it; device 1 waits. The workgroup that signals
    is the one that puts, or another."""
    p = assembler("hand_over", target)
    y = p.buffer("y", (4096, 128), BF16, block=(16, 128), space=Space.SYMMETRIC)
    flag = p.counter("flag", 1)
    t = p.template("hand_over")
    tile = t.tile(64, 128, BF16)
    putter = 1 if other_workgroup_puts else 0
    with t.if_(DEVICE * -1):
        # The workgroup ``putter`` alone puts; workgroup 0 alone signals.
        with (
            t.if_(WORKGROUP - putter),
            t.if_(WORKGROUP * -1 + putter),
            t.loop(0, 64) as i,
        ):
            t.put(tile, y, (i * 64, 0), 1)
        with t.if_(WORKGROUP * -1):
            t.signal(flag, 0, peer=1)
    p.layer("put")
    p.launch("put", [(p.add(t), 2)], kind="collective")
    w = p.template("take")
    with w.if_(DEVICE - 1):
        w.wait(flag, 0, 1)
    p.layer("take")
    p.launch("take", [(p.add(w), 1)], kind="collective", queue=1)
    return p.finish()


def test_a_signal_follows_its_workgroups_puts_and_overtakes_those_of_another() -> None:
    after = run(hand_over(TWO, other_workgroup_puts=False), TWO)
    before = run(hand_over(TWO, other_workgroup_puts=True), TWO)
    link_ps = (1 << 20) / TWO.link_rate["xgmi"] * 1e12
    taken_after, taken_before = int(after.ends[1, 1]), int(before.ends[1, 1])
    assert taken_after > link_ps
    # The puts take as long, but the flag is there while they are still on their way.
    assert int(before.ends[0, 0]) > link_ps
    assert taken_before < link_ps / 4


def test_a_wait_ends_one_latency_after_the_signal_has_crossed_the_link() -> None:
    result = run(hand_over(TWO, other_workgroup_puts=True), TWO, skew=False)
    assert int(result.ends[1, 1]) > TWO.link_latency_ps["xgmi"] + TWO.mall_latency_ps


def waiting(target: Target, *, workgroups: int, raised: bool, waves: int = 4) -> Program:
    """Every workgroup waits until all have signalled: a barrier of more than fit is a deadlock."""
    p = assembler("barrier", target)
    flag = p.counter("flag", 1)
    t = p.template("barrier")
    if raised:
        t.signal(flag, 0)
    t.wait(flag, 0, workgroups)
    p.layer("barrier")
    p.launch("barrier", [(p.add(t, waves=waves), workgroups)])
    return p.finish()


def test_a_deadlock_names_who_waits_for_what() -> None:
    target = machine(gpu=1, xcd=1)
    with pytest.raises(DeadlockError) as error:
        run(waiting(target, workgroups=2, raised=False), target)
    text = str(error.value)
    assert "barrier on device 0, workgroup" in text
    assert "waits for flag[0] >= 2, which is 0 (raised by no kernel)" in text


def test_a_barrier_of_more_workgroups_than_fit_deadlocks() -> None:
    target = machine(gpu=1, xcd=1)
    assert run(waiting(target, workgroups=76, raised=True, waves=16), target).time_ps > 0
    with pytest.raises(DeadlockError, match="workgroups that found no room"):
        run(waiting(target, workgroups=77, raised=True, waves=16), target)


def two_launches(target: Target, *, queue: int, depends: int, gap: int) -> Program:
    p = assembler("two", target)
    x = p.buffer("x", (4096, 128), BF16, block=(16, 128), role=Role.INPUT)
    t = p.template("read")
    tile = t.tile(64, 128, BF16)
    t.load(tile, x, (WORKGROUP * 64, 0))
    template = p.add(t)
    p.layer("layer")
    p.launch("first", [(template, 8)])
    p.launch("second", [(template, 8)], queue=queue, depends=depends, gap_ps=gap)
    return p.finish()


def test_launches_of_a_queue_follow_each_other_after_the_gap() -> None:
    target = machine(gpu=1, xcd=1)
    result = run(two_launches(target, queue=0, depends=-1, gap=1_500_000), target)
    assert int(result.starts[1, 0]) == int(result.ends[0, 0]) + 1_500_000


def test_queues_run_side_by_side_unless_one_depends_on_the_other() -> None:
    target = machine(gpu=1, xcd=1)
    apart = run(two_launches(target, queue=1, depends=-1, gap=0), target)
    assert int(apart.starts[1, 0]) == 0
    behind = run(two_launches(target, queue=1, depends=0, gap=0), target)
    assert int(behind.starts[1, 0]) == int(behind.ends[0, 0])


def test_dispatch_starts_one_workgroup_in_eight_cycles() -> None:
    target = machine(gpu=1, xcd=1)
    p = assembler("empty", target)
    t = p.template("empty")
    t.delay(1)
    p.layer("layer")
    p.launch("empty", [(p.add(t, waves=4), 1001)])
    result = run(p.finish(), target, skew=False)
    assert result.time_ps / 1000 == pytest.approx(8 * float(target.cycle_ps), rel=0.01)


def test_lockstep_is_what_skew_removes() -> None:
    target = machine(gpu=1, xcd=1)
    program = stream(target, workgroups=38, iterations=4)
    assert run(program, target, skew=False).time_ps != run(program, target).time_ps


def test_work_on_both_queues_shares_the_room_of_compute_units() -> None:
    target = machine(gpu=1, xcd=1)
    p = assembler("full", target)
    t = p.template("sleep")
    t.delay(10_000_000)
    template = p.add(t, waves=32)
    p.layer("layer")
    p.launch("first", [(template, 38)])
    p.launch("second", [(template, 38)], queue=1)
    result = run(p.finish(), target)
    assert int(result.ends.max()) > 20_000_000


def test_a_workgroup_that_does_not_fit_is_refused() -> None:
    target = machine(gpu=1, xcd=1)
    p = assembler("large", target)
    t = p.template("large")
    t.delay(1)
    p.layer("layer")
    p.launch("large", [(p.add(t, scratch_bytes=65537), 1)])
    with pytest.raises(DecodeError, match="does not fit a compute unit"):
        run(p.finish(), target)


def test_a_program_for_another_mesh_is_refused() -> None:
    target = machine(gpu=1, xcd=1)
    with pytest.raises(DecodeError, match="for 2 devices"):
        run(stream(TWO, workgroups=1, iterations=1), target)


def test_a_launch_that_does_nothing_is_reported() -> None:
    target = machine(gpu=1, xcd=1)
    p = assembler("nothing", target)
    t = p.template("nothing")
    t.delay(0)
    p.layer("layer")
    p.launch("nothing", [(p.add(t), 0)])
    assert any("takes no time" in text for text in run(p.finish(), target).warnings)
