"""Pieces of two granules on the two stacks of a carrier change times by less than a percent."""

from __future__ import annotations

from typing import Any

import pytest

from starc.backend.program import Program, Role, TileSpace
from starc.backend.template import DEVICE, WORKGROUP
from starc.simulator.results.result import SimulationResult
from starc.targets.loader import load_target
from starc.targets.target import Target
from tests.unit.simulator.programs import BF16, F32, assembler, exchange, machine, run, stream

PAIR = machine(gpu=1, xcd=2)  # two dies of one carrier
SPX = load_target("mi300x-spx", gpus=1)


def both(program: Program, target: Target) -> tuple[SimulationResult, SimulationResult]:
    return run(program, target, striped=True), run(program, target, striped=False)


def gemm(target: Target, *, size: int, depth: int) -> Program:
    """Every workgroup multiplies 128 rows of x with 128 columns of y; a tile of x, and one of y,
    is 16 KiB in a row."""
    p = assembler("gemm", target)
    x = p.buffer("x", (size * depth // 64, 64), BF16, block=(32, 64), role=Role.INPUT)
    y = p.buffer("y", (size * depth // 64, 64), BF16, block=(32, 64), role=Role.WEIGHT)
    z = p.buffer("z", (size, size), BF16, block=(32, 64), role=Role.OUTPUT)
    t = p.template("gemm")
    a = t.tile(128, 64, BF16, slots=3, depth=1)
    b = t.tile(128, 64, BF16, slots=3, depth=1)
    acc = t.tile(128, 128, F32, space=TileSpace.REGISTER)
    across = size // 128
    with t.loop(0, depth // 64) as k:
        t.load(a, x, ((WORKGROUP // across * (depth // 64) + k) * 128, 0))
        t.load(b, y, ((WORKGROUP % across * (depth // 64) + k) * 128, 0))
        t.matrix(acc, a, b, transpose_b=True, stage=2)
    out = t.tile(128, 128, BF16, space=TileSpace.REGISTER)
    t.vector("copy", [out, acc])
    t.store(out, z, (WORKGROUP // across * 128, WORKGROUP % across * 128))
    p.layer("gemm")
    p.launch("gemm", [(p.add(t, scratch_bytes=49152), across * across)], kind="gemm")
    return p.finish()


@pytest.mark.parametrize(
    "options",
    [
        {"workgroups": 76, "iterations": 48},
        {"workgroups": 76, "iterations": 48, "copy": True},
        {"workgroups": 76, "iterations": 24, "passes": 2},
        {"workgroups": 16, "iterations": 48},  # latency alone
        {"workgroups": 228, "iterations": 16},
    ],
)
def test_streams_take_the_same_time(options: dict[str, Any]) -> None:
    striped, plain = both(stream(PAIR, **options), PAIR)
    assert striped.requests == plain.requests // 2
    assert striped.time_ps == pytest.approx(plain.time_ps, rel=0.01)
    assert striped.traffic.hbm_read_bytes == plain.traffic.hbm_read_bytes
    assert striped.traffic.l2_hit_bytes == plain.traffic.l2_hit_bytes


@pytest.mark.parametrize(("size", "depth"), [(2048, 512), (2048, 4096), (1536, 4096)])
def test_a_gemm_takes_the_same_time(size: int, depth: int) -> None:
    striped, plain = both(gemm(PAIR, size=size, depth=depth), PAIR)
    assert striped.requests < 0.6 * plain.requests
    assert striped.time_ps == pytest.approx(plain.time_ps, rel=0.01)
    assert striped.traffic.hbm_read_bytes == pytest.approx(plain.traffic.hbm_read_bytes, rel=0.01)


def test_a_window_without_room_for_two_granules_takes_one() -> None:
    program = stream(PAIR, workgroups=152, iterations=8, slots=1)  # four in a compute unit
    striped, plain = both(program, PAIR)
    assert striped.key() == plain.key()


def test_memory_that_is_interleaved_over_all_carriers_is_not_striped() -> None:
    striped, plain = both(stream(SPX, workgroups=64, iterations=4), SPX)
    assert striped.key() == plain.key()


def test_all_engines_agree_on_pairs() -> None:
    program = stream(PAIR, workgroups=8, iterations=3, copy=True, passes=2)
    results = [
        run(program, PAIR, engine=engine, jit=jit).key()
        for engine in ("calendar", "heap")
        for jit in (True, False)
    ]
    assert all(result == results[0] for result in results)


def test_puts_within_a_gpu_are_striped_and_those_to_another_are_not() -> None:
    target = machine(gpu=2, xcd=4)
    for distance, fewer in ((1, True), (4, False)):
        program = exchange(target, peer=(DEVICE + distance) % 8, rows=32)
        striped, plain = both(program, target)
        # Half of all requests are loads.
        assert (striped.requests < 0.7 * plain.requests) == fewer
        assert striped.time_ps == pytest.approx(plain.time_ps, rel=0.02)
