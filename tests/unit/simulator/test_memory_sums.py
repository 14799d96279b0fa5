"""Puts that the memory adds to what is there."""

from __future__ import annotations

from starc.backend.program import Program, Space
from starc.backend.template import DEVICE, WORKGROUP
from starc.targets.target import Target
from tests.unit.simulator.programs import BF16, KIB, assembler, machine, run

WORKGROUPS, ITERATIONS = 8, 4
BYTES = WORKGROUPS * ITERATIONS * 4 * KIB


def puts(target: Target, *, accumulate: bool, passes: int = 1) -> Program:
    """Both devices put tiles that they have to the other one."""
    p = assembler("puts", target)
    shape = (WORKGROUPS * ITERATIONS * 16, 128)
    y = p.buffer("y", shape, BF16, block=(16, 128), space=Space.SYMMETRIC)
    t = p.template("puts")
    tile = t.tile(16, 128, BF16)
    with t.loop(0, passes), t.loop(0, ITERATIONS) as i:
        start = ((WORKGROUP * ITERATIONS + i) * 16, 0)
        t.put(tile, y, start, DEVICE * -1 + 1, accumulate=accumulate)
    p.layer("puts")
    p.launch("puts", [(p.add(t), WORKGROUPS)], kind="collective")
    return p.finish()


def test_a_sum_reads_what_is_there_and_writes_it() -> None:
    target = machine(gpu=2, xcd=1)
    plain = run(puts(target, accumulate=False), target).traffic
    sums = run(puts(target, accumulate=True), target).traffic
    assert (plain.hbm_read_bytes, plain.hbm_write_bytes) == (0, 2 * BYTES)
    assert (sums.hbm_read_bytes, sums.hbm_write_bytes) == (2 * BYTES, 2 * BYTES)
    assert sums.memory_bytes == 2 * plain.memory_bytes
    # The links carry the tiles once.
    assert sums.xgmi_bytes == plain.xgmi_bytes == 2 * BYTES


def test_a_second_sum_finds_the_first_in_the_cache() -> None:
    target = machine(gpu=2, xcd=1)
    twice = run(puts(target, accumulate=True, passes=2), target).traffic
    assert twice.hbm_read_bytes == twice.mall_hit_bytes == 2 * BYTES
    assert twice.hbm_write_bytes == 4 * BYTES


def test_sums_are_exact_in_every_engine() -> None:
    target = machine(gpu=2, xcd=1)
    program = puts(target, accumulate=True)
    first = run(program, target)
    assert first.key() == run(program, target, engine="heap", jit=False).key()


def test_a_sum_is_done_when_it_has_been_read_and_written() -> None:
    target = machine(gpu=1, xcd=2)
    plain, sums = (run(puts(target, accumulate=add), target) for add in (False, True))
    assert sums.time_ps > plain.time_ps + target.hbm_extra_ps
