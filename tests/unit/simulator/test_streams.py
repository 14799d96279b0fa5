"""Streams of engines joined by semaphores: times that are computed by hand, to the picosecond."""

from __future__ import annotations

import pytest

from starc.backend.assembly import ProgramAssembler
from starc.backend.program import Engine, Program, Role, Space
from starc.backend.template import DEVICE, TemplateAssembler
from starc.simulator.errors import DeadlockError, DecodeError
from starc.simulator.results.result import SimulationResult
from starc.targets.target import Target
from tests.unit.simulator.programs import BF16, F32, assembler, machine, run

PE = machine("ahbm", sip=1, group=1, cube=1, pe=1)
PAIR = machine("ahbm", sip=1, group=1, cube=1, pe=2)

# A PE reads 204.8 GB/s: 4 KiB in 20 ns, 100 ns after it has asked. Its DMA takes 256 B a clock.
LATENCY, KIB4 = 100_000, 20_000
# What the machine counts as latency has the time of a line of 128 B at the DMA in it.
LINE = 500
# 32 x 32 x 64 is a tile of the GEMM engine: 64 clocks of 1 ns.
TILE = 64_000


def loaded(rows: int) -> int:
    """Picoseconds of a load of rows of 256 B that is alone."""
    return LATENCY + rows * 256 * KIB4 // 4096 - LINE


def finished(p: ProgramAssembler, t: TemplateAssembler, workgroups: int = 1) -> Program:
    p.layer("layer")
    p.launch("kernel", [(p.add(t, window_bytes=1 << 16), workgroups)])
    return p.finish()


def timed(program: Program, target: Target = PE) -> int:
    return run(program, target, jit=False, skew=False).time_ps


def pipeline(
    *, slots: int, trips: int, compute: int, rows: int = 16, blocking: bool = False
) -> Program:
    """A DMA that loads tiles and another engine that takes ``compute`` for each of them."""
    p = assembler("pipeline", PE)
    x = p.buffer("x", (rows * trips, 128), BF16, role=Role.INPUT)
    t = p.template("pipeline")
    tile = t.tile(rows, 128, BF16, slots=slots, depth=1)
    full, free = t.semaphore(), t.semaphore(slots)
    with t.stream(Engine.DMA), t.loop(0, trips) as i:
        t.acquire(free)
        t.load(tile, x, (i * rows, 0))
        t.release(full, None if blocking else tile)
    with t.stream(Engine.MATH), t.loop(0, trips):
        t.acquire(full)
        t.delay(compute)
        t.release(free)
    return finished(p, t)


@pytest.mark.parametrize("compute", [50_000, 150_000])
def test_one_slot_is_the_sum(compute: int) -> None:
    program = pipeline(slots=1, trips=5, compute=compute)
    assert timed(program) == 5 * (loaded(16) + compute)


def test_two_slots_hide_loads_behind_what_takes_longer() -> None:
    program = pipeline(slots=2, trips=5, compute=150_000)
    assert timed(program) == loaded(16) + 5 * 150_000


def test_enough_slots_hide_what_is_shorter_behind_the_memory() -> None:
    # Tiles of 16 KiB stream at 80 ns each, with the latency once.
    program = pipeline(slots=8, trips=8, compute=30_000, rows=64)
    assert timed(program) == LATENCY - LINE + 8 * 4 * KIB4 + 30_000


def test_two_slots_of_a_long_latency_are_not_enough() -> None:
    # Two tiles come together, 20 ns apart; then both are used before the next two are asked for.
    program = pipeline(slots=2, trips=6, compute=10_000)
    # Of each slot: a load, its use, the next load.
    assert timed(program) == 3 * (loaded(16) + 10_000) + KIB4


def test_a_release_that_blocks_loads_one_tile_after_the_other() -> None:
    program = pipeline(slots=8, trips=6, compute=10_000, blocking=True)
    assert timed(program) == 6 * loaded(16) + 10_000


@pytest.mark.parametrize("issue", [0, 10_000, 64_000, 100_000])
def test_issue_costs_show_where_they_exceed_the_work(issue: int) -> None:
    p = assembler("issue", PE)
    t = p.template("issue")
    a, acc = t.tile(32, 64, BF16), t.tile(32, 32, F32)
    queue = t.semaphore()
    with t.stream(Engine.CPU), t.loop(0, 10):
        t.delay(issue)
        t.release(queue)
    with t.stream(Engine.GEMM), t.loop(0, 10):
        t.acquire(queue)
        t.matrix(acc, a, a, transpose_b=True)
    assert timed(finished(p, t)) == issue + TILE + 9 * max(issue, TILE)


def test_a_release_behind_work_waits_for_its_end() -> None:
    p = assembler("order", PE)
    t = p.template("order")
    a, acc = t.tile(32, 64, BF16), t.tile(32, 32, F32)
    done = t.semaphore()
    with t.stream(Engine.CPU):
        t.acquire(done)
        t.delay(1000)
    with t.stream(Engine.GEMM), t.loop(0, 3):
        t.matrix(acc, a, a, transpose_b=True)
        t.release(done)
    assert timed(finished(p, t)) == 3 * TILE
    result = run(finished_copy(), PE, jit=False, skew=False, log=True)
    assert result.log is not None
    assert [tuple(row) for row in result.log[["engine", "start_ps", "end_ps"]]] == [
        (Engine.CPU, 0, TILE),
        (Engine.CPU, TILE, TILE + 1000),
        (Engine.GEMM, 0, TILE),
    ]


def finished_copy() -> Program:
    p = assembler("order", PE)
    t = p.template("order")
    a, acc = t.tile(32, 64, BF16), t.tile(32, 32, F32)
    done = t.semaphore()
    with t.stream(Engine.CPU):
        t.acquire(done)
        t.delay(1000)
    with t.stream(Engine.GEMM):
        t.matrix(acc, a, a, transpose_b=True)
        t.release(done)
    return finished(p, t)


def test_a_release_behind_a_store_waits_until_it_has_read_its_tile() -> None:
    p = assembler("store", PE)
    y = p.buffer("y", (64, 128), BF16, role=Role.OUTPUT)
    t = p.template("store")
    tile = t.tile(64, 128, BF16)
    free = t.semaphore()
    with t.stream(Engine.CPU):
        t.acquire(free)
        t.delay(5_000_000)  # much longer than the store
    with t.stream(Engine.DMA):
        t.store(tile, y, (0, 0))
        t.release(free, tile)
    # 16 KiB at 256 B a clock, long before the memory has them.
    assert timed(finished(p, t)) == 64_000 + 5_000_000


def exchange(*, acquired: int) -> Program:
    """PE 0 gets from PE 1 and loads from its own memory, which comes first, and goes on behind the
    first or both of them."""
    p = assembler("exchange", PAIR)
    x = p.buffer("x", (16, 128), BF16, role=Role.INPUT)
    y = p.buffer("y", (64, 128), BF16, space=Space.SYMMETRIC)
    t = p.template("exchange")
    far, near = t.tile(64, 128, BF16), t.tile(1, 128, BF16)
    there = t.semaphore()
    with t.stream(Engine.CPU):
        for _ in range(acquired):
            t.acquire(there)
        t.delay(1_000_000)
    with t.stream(Engine.DMA):
        t.get(far, y, (0, 0), (DEVICE + 1) % 2)
        t.release(there, far)
        t.load(near, x, (0, 0))
        t.release(there, near)
    return finished(p, t)


def test_a_semaphore_is_raised_in_the_order_of_its_stream() -> None:
    log = run(exchange(acquired=2), PAIR, jit=False, skew=False, log=True).log
    assert log is not None
    moved = {row["record"]: row["end_ps"] for row in log if row["engine"] == Engine.DMA}
    first, second = (end for _, end in sorted(moved.items()))
    assert second < first
    assert timed(exchange(acquired=1), PAIR) == first + 1_000_000
    assert timed(exchange(acquired=2), PAIR) == first + 1_000_000


def test_a_stream_waits_for_its_own_loads() -> None:
    p = assembler("own", PE)
    x = p.buffer("x", (16, 128), BF16, role=Role.INPUT)
    t = p.template("own")
    tile = t.tile(16, 128, BF16)
    there = t.semaphore()
    with t.stream(Engine.DMA):
        t.load(tile, x, (0, 0))
        t.release(there, tile)
        t.acquire(there)
        t.delay(7_000)
    assert timed(finished(p, t)) == loaded(16) + 7_000


def test_workgroups_of_streams_follow_each_other_on_a_unit() -> None:
    p = assembler("two", PE)
    t = p.template("two")
    go = t.semaphore()
    with t.stream(Engine.CPU):
        t.delay(3_000)
        t.release(go)
    with t.stream(Engine.DMA):
        t.acquire(go)
        t.delay(4_000)
    # The CPU takes 10 clocks to start the next one, and has room when all streams have ended.
    assert timed(finished(p, t, workgroups=2)) == 10_000 + 7_000


def test_tiles_join_streams_without_semaphores() -> None:
    """What a load brings is not read before it is there, whoever reads it."""
    p = assembler("tile", PE)
    x = p.buffer("x", (32, 64), BF16, role=Role.INPUT)
    t = p.template("tile")
    a, acc = t.tile(32, 64, BF16), t.tile(32, 32, F32)
    with t.stream(Engine.DMA):
        t.load(a, x, (0, 0))
    with t.stream(Engine.GEMM):
        t.delay(10_000)
        t.matrix(acc, a, a, transpose_b=True)
    assert timed(finished(p, t)) == loaded(16) + TILE


def test_a_semaphore_that_nobody_raises_is_a_deadlock() -> None:
    p = assembler("hangs", PE)
    flags = p.counter("flags", 1)
    t = p.template("hangs")
    a, acc = t.tile(32, 64, BF16), t.tile(32, 32, F32)
    go, never = t.semaphore(), t.semaphore()
    with t.stream(Engine.CPU):
        t.wait(flags, 0, 1)
        t.release(go)
    with t.stream(Engine.GEMM):
        t.acquire(go)
        t.matrix(acc, a, a, transpose_b=True)
    with t.stream(Engine.MATH):
        t.acquire(never)
    with pytest.raises(DeadlockError) as found:
        timed(finished(p, t))
    assert found.value.chain == (
        "kernel on device 0, workgroup 0, stream cpu, waits for flags[0] >= 1, which is 0 "
        "(raised by no kernel)",
        "kernel on device 0, workgroup 0, stream gemm, waits for semaphore 0 of @hangs (raised by "
        "stream cpu)",
        "kernel on device 0, workgroup 0, stream math, waits for semaphore 1 of @hangs (raised by "
        "no stream)",
        "kernel does not end",
    )


def test_a_semaphore_has_one_stream_that_acquires_it() -> None:
    p = assembler("shared", PE)
    t = p.template("shared")
    go = t.semaphore(2)
    with t.stream(Engine.CPU):
        t.acquire(go)
    with t.stream(Engine.DMA):
        t.acquire(go)
    with pytest.raises(DecodeError, match="semaphore 0 of @shared is acquired by two streams"):
        timed(finished(p, t))


def test_streams_run_on_any_machine() -> None:
    result: SimulationResult = run(finished_copy(), PE, jit=False, skew=False)
    gpu = machine(gpu=1, xcd=1)
    p = assembler("pipeline", gpu)
    x = p.buffer("x", (64, 128), BF16, role=Role.INPUT)
    t = p.template("pipeline")
    tile = t.tile(64, 128, BF16)
    full = t.semaphore()
    with t.stream(Engine.DMA):
        t.load(tile, x, (0, 0))
        t.release(full, tile)
    with t.stream(Engine.MATH):
        t.acquire(full)
        t.vector("zero", [tile])
    p.layer("layer")
    p.launch("kernel", [(p.add(t, waves=4), 3)])
    other = run(p.finish(), gpu, jit=False)
    assert result.time_ps < other.time_ps
    assert other.key() == run(p.finish(), gpu, engine="heap").key()
