"""How kernels are executed: windows, launches by a host, scratch memory, latencies, sharing of
loads and of compute units."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starc.backend.program import Program, Role, TileSpace
from starc.backend.template import WORKGROUP
from starc.core.streams.engine_times import scratch_bytes, scratch_ps, vector_ps
from starc.simulator.machine.services import server_layout
from starc.simulator.results.result import SimulationResult
from starc.simulator.state.servers import L2_READ
from starc.targets.target import Target
from tests.unit.simulator.programs import BF16, F32, assembler, machine, matrix, run, stream

PARTITION = machine("mi300x-cpx", gpu=1, xcd=1)
H200 = machine("h200", gpu=1)


def reading(target: Target, result: SimulationResult) -> int:
    """Picoseconds of the busiest L2 for reads."""
    first, _ = server_layout(target)
    return int(result.work.sum(axis=0)[:, first[L2_READ] : first[L2_READ] + 1].max())


def rate(target: Target, workgroups: int = 1) -> float:
    """Bytes per second that a stream reads."""
    iterations, rows = 256, 64
    program = stream(target, workgroups=workgroups, iterations=iterations, rows=rows)
    program = replace(
        program, templates=tuple(replace(t, window_bytes=1 << 20) for t in program.templates)
    )
    read = workgroups * iterations * rows * 256
    return read / (run(program, target, skew=False).time_ps * 1e-12)


def test_the_window_of_a_unit_bounds_one_workgroup():
    wide = replace(H200, window_bytes_per_cu=32768)
    narrow = replace(H200, window_bytes_per_cu=8192)
    assert rate(wide) == pytest.approx(4 * rate(narrow), rel=0.25)


def launches(target: Target, count: int, iterations: int) -> Program:
    """Kernels of matrix operations one after the other."""
    p = assembler("launches", target)
    t = p.template("matrix")
    a, b = (t.tile(64, 64, BF16, space=TileSpace.REGISTER) for _ in range(2))
    acc = t.tile(64, 64, F32, space=TileSpace.REGISTER)
    with t.loop(0, iterations):
        t.matrix(acc, a, b)
    index = p.add(t)
    p.layer("launches")
    for number in range(count):
        p.launch(f"k{number}", [(index, 1)], kind="gemm", gap_ps=500_000)
    return p.finish()


def test_eager_launches_take_the_time_of_the_host_where_kernels_are_short():
    target = replace(PARTITION, kernel_issue_ps=4_000_000)
    short, long = launches(target, 6, 4), launches(target, 6, 2000)
    assert run(short, target, eager=True).time_ps >= 5 * 4_000_000
    assert run(short, target).time_ps < 8_000_000
    assert not run(short, target, eager=True).warnings
    # The host is ahead of long ones: it does not show, which the result says.
    hidden = run(long, target, eager=True)
    assert hidden.time_ps == run(long, target).time_ps
    assert hidden.warnings[0].startswith("--eager changes nothing")
    assert not run(long, target).warnings


def test_eager_times_do_not_depend_on_the_engine():
    target = replace(PARTITION, kernel_issue_ps=3_000_000)
    program = launches(target, 3, 8)
    found = {
        run(program, target, eager=True, engine=engine, jit=jit).time_ps
        for engine, jit in (("calendar", True), ("heap", True), ("calendar", False))
    }
    assert len(found) == 1


def test_waves_share_a_product_so_that_operands_pass_scratch_memory_least():
    # Four waves of 32 x 32: each half of a and of b is read by two of them.
    assert scratch_bytes(16, 0, 4, (64, 64, 16), (2, 2)) == 3 * (64 + 64) * 16 * 2
    # Rows of one unit: all waves share the columns, and a is read by each of them.
    assert scratch_bytes(16, 0, 4, (16, 64, 16), (2, 2)) == (16 * 5 + 64 * 2) * 16 * 2
    # What is in registers does not pass.
    assert scratch_bytes(16, 0, 4, (16, 64, 16), (0, 2)) == 64 * 2 * 16 * 2
    # Products of 64 rows that read b themselves.
    assert scratch_bytes(16, 64, 8, (128, 256, 16), (2, 2)) == (128 * 2 + 256 * 3) * 16 * 2
    assert scratch_ps(replace(PARTITION, scratch_bytes_per_clock=0), 4, (64, 64, 16), (2, 2)) == 0


def test_small_tiles_are_bound_by_scratch_memory_and_large_ones_are_not():
    free = replace(PARTITION, scratch_bytes_per_clock=0)
    for size, least, most in ((32, 1.3, 6.0), (128, 1.0, 1.01)):
        program = matrix(PARTITION, workgroups=1, iterations=400, size=size)
        ratio = run(program, PARTITION).time_ps / run(program, free).time_ps
        assert least <= ratio <= most, size


def test_exponentials_have_their_own_rate():
    clock = PARTITION.cycle_ps
    assert vector_ps(PARTITION, 128, 32) == -(-2 * clock.numerator // clock.denominator)
    # Beside the others on an H200: 16 a clock.
    assert vector_ps(H200, 1280, 1600) == vector_ps(H200, 0, 1600)
    assert vector_ps(H200, 12800 * 2, 1600) == vector_ps(H200, 12800 * 2)


def test_a_late_result_delays_its_use_and_not_the_next_product():
    program = matrix(PARTITION, workgroups=1, iterations=400)
    late = replace(PARTITION, matrix_latency_ps=200_000)
    assert run(program, late).time_ps - run(program, PARTITION).time_ps <= 200_000

    def alternating(target: Target) -> int:
        p = assembler("alternating", target)
        t = p.template("alternating")
        a, b = (t.tile(16, 16, BF16, space=TileSpace.REGISTER) for _ in range(2))
        acc = t.tile(16, 16, F32, space=TileSpace.REGISTER)
        with t.loop(0, 100):
            t.matrix(acc, a, b)
            t.vector("zero", [acc])
        p.layer("alternating")
        p.launch("alternating", [(p.add(t), 1)], kind="gemm")
        return run(p.finish(), target).time_ps

    assert alternating(late) - alternating(PARTITION) == pytest.approx(100 * 200_000, rel=0.02)


def test_workgroups_that_load_together_read_the_l2_once():
    def shared(multicast: int) -> Program:
        p = assembler("shared", H200)
        x = p.buffer("x", (64 * 64, 128), BF16, block=(16, 128), role=Role.INPUT)
        t = p.template("shared")
        tile = t.tile(64, 128, BF16, slots=2, depth=1)
        with t.loop(0, 64) as i:
            t.load(tile, x, (i * 64, WORKGROUP * 0), multicast=multicast)
            t.vector("zero", [tile], stage=1)
        p.layer("shared")
        p.launch("shared", [(p.add(t), 64)])
        return p.finish()

    alone, pairs = (run(shared(n), H200) for n in (1, 2))
    assert reading(H200, pairs) == pytest.approx(reading(H200, alone) / 2, rel=0.01)
    assert pairs.time_ps <= alone.time_ps


def test_a_kernel_of_the_communication_queue_takes_compute_units_from_the_other():
    """Workgroups that fill a unit wait where those of the other queue are."""
    target = PARTITION

    def both(guests: int) -> int:
        p = assembler("both", target)
        p.layer("both")
        if guests:
            guest = p.template("guest")
            guest.tile(16, 16, F32, space=TileSpace.REGISTER)
            guest.delay(200_000_000)
            index = p.add(guest, waves=target.max_waves_per_cu)
            p.launch("guest", [(index, guests)], kind="collective", queue=1)
        t = p.template("matrix")
        a, b = (t.tile(64, 64, BF16, space=TileSpace.REGISTER) for _ in range(2))
        acc = t.tile(64, 64, F32, space=TileSpace.REGISTER)
        with t.loop(0, 500):
            t.matrix(acc, a, b)
        whole = p.add(t, waves=target.max_waves_per_cu)
        p.launch("matrix", [(whole, 2 * target.cus_per_die)], kind="gemm", gap_ps=1_000_000)
        result = run(p.finish(), target, skew=False)
        (launch,) = [one for one in result.launches if one.name == "matrix"]
        return launch.time_ps

    # Of 38 units 19 are taken: twice two rounds.
    assert both(target.cus_per_die // 2) == pytest.approx(2 * both(0), rel=0.05)


def test_a_transport_may_reserve_compute_units():
    own = {name: replace(one, reserves=1) for name, one in PARTITION.transports.items()}
    given = Target.from_dict(replace(PARTITION, transports=own).to_dict())
    assert all(transport.reserves == 1 for transport in given.transports.values())
