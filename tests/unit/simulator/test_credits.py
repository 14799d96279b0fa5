"""Queues of links with an end: who sends more is held up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starc.backend.program import Program, Role
from starc.backend.template import DEVICE, WORKGROUP
from starc.targets.loader import load_target
from starc.targets.target import Target
from tests.unit.simulator.programs import BF16, KIB, assembler, exchange, machine, run, stream


def hot_spot(target: Target, *, workgroups: int, iterations: int) -> Program:
    """Devices 0 and 1, on one carrier, read from the far carriers 1 and 2, whose ways share links;
    device 4 reads what lies at its own carrier, from a stack that the first also use."""
    p = assembler("hot spot", target)
    y = p.buffer("y", (workgroups * iterations * 16, 128), BF16, block=(16, 128), role=Role.INPUT)
    t = p.template("hot spot")
    tile = t.tile(16, 128, BF16, slots=4, depth=1)
    peer = (DEVICE // 2 + 2) % 4 * 2
    with t.loop(0, iterations) as i:
        t.get(tile, y, ((WORKGROUP * iterations + i) * 16, 0), peer)
        t.vector("zero", [tile], stage=3)
    p.layer("hot spot")
    p.launch("hot spot", [(p.add(t), workgroups)], kind="collective")
    return p.finish()


def slow_links(target: Target, **queues: int) -> Target:
    rates = {**target.link_rate, "usr": 200_000_000_000}
    return replace(target, link_rate=rates, **queues)


def test_no_bound_changes_nothing_and_neither_does_a_large_one() -> None:
    target = slow_links(machine(gpu=1, xcd=8))
    program = hot_spot(target, workgroups=16, iterations=16)
    plain = run(program, target)
    large = replace(target, usr_queue_bytes=1 << 30, die_port_queue_bytes=1 << 30)
    assert run(program, large).key() == plain.key()


def test_a_small_queue_slows_a_hot_spot() -> None:
    target = slow_links(machine(gpu=1, xcd=8))
    program = hot_spot(target, workgroups=38, iterations=32)
    times = [
        run(program, replace(target, usr_queue_bytes=queue)).time_ps
        for queue in (0, 64 * KIB, 8 * KIB)
    ]
    assert times[0] <= times[1] < times[2]


@pytest.mark.parametrize("queue", [256, 4 * KIB])
def test_nothing_waits_for_ever(queue: int) -> None:
    # Devices send around the ring in both directions, and between GPUs.
    target = machine(gpu=2, xcd=8)
    bounded = replace(
        target, usr_queue_bytes=queue, die_port_queue_bytes=queue, xgmi_queue_bytes=queue
    )
    for distance in (1, 4, 9, 12):
        program = exchange(bounded, peer=(DEVICE + distance) % 16)
        result = run(program, bounded)
        assert (result.ends > 0).all()
        assert result.traffic == run(program, target).traffic


def test_bounded_queues_are_exact_in_every_engine() -> None:
    target = replace(machine(gpu=2, xcd=4), usr_queue_bytes=4 * KIB, xgmi_queue_bytes=4 * KIB)
    program = exchange(target, peer=(DEVICE + 5) % 8, workgroups=4, iterations=4)
    first = run(program, target)
    assert first.key() == run(program, target, engine="heap", jit=False).key()


def test_a_stream_that_fits_its_queues_is_not_held_up() -> None:
    spx = load_target("mi300x-spx", gpus=1)
    bounded = replace(spx, usr_queue_bytes=256 * KIB, die_port_queue_bytes=256 * KIB)
    program = stream(spx, workgroups=304, iterations=16)
    assert run(program, bounded).time_ps == pytest.approx(run(program, spx).time_ps, rel=0.02)
