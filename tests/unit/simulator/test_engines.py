"""The calendar, the binary heap and plain Python give the same picoseconds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from starc.backend.program import Program, Role, Space
from starc.backend.template import DEVICE, WORKGROUP, TemplateAssembler, Tile
from starc.core.quasi_affine.expressions import Expression
from starc.simulator.run import simulate
from starc.targets.loader import load_target
from starc.targets.target import Target
from tests.unit.simulator.programs import BF16, F32, assembler, exchange, machine, run, stream

MACHINES = {
    "one die": machine(gpu=1, xcd=1),
    "pair of dies": machine(gpu=1, xcd=2),
    "two GPUs": machine(gpu=2, xcd=1),
    "three GPUs of four dies": machine(gpu=3, xcd=4),
    "SPX": load_target("mi300x-spx", gpus=2),
    "one memory domain": machine("mi300x-cpx-nps1", gpu=2, xcd=4),
}
ENGINES: list[dict[str, Any]] = [
    {"engine": "calendar", "jit": True},
    {"engine": "heap", "jit": True},
    {"engine": "calendar", "jit": False},
    {"engine": "heap", "jit": False},
]


def assert_same(program: Program, target: Target, engines: list[dict[str, Any]] = ENGINES) -> None:
    first = run(program, target, **engines[0])
    for engine in engines[1:]:
        assert run(program, target, **engine).key() == first.key()


@st.composite
def bodies(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """A list of instructions: kind, and two small numbers that choose operands."""
    kinds = ["load", "uncached", "store", "put", "get", "matrix", "vector", "delay", "if"]
    step = st.tuples(st.sampled_from(kinds), st.integers(0, 7), st.integers(0, 7))
    return draw(st.lists(step, min_size=1, max_size=8))


@st.composite
def programs(draw: st.DrawFn) -> tuple[Program, Target]:
    """A random program in which every device signals a peer and waits for one."""
    target = MACHINES[draw(st.sampled_from(sorted(MACHINES)))]
    p = assembler("random", target)
    rows = draw(st.sampled_from([16, 48, 64]))
    blocked = draw(st.booleans())
    shape = (1024, 128)
    block = (16, 128) if blocked else ()
    x = p.buffer("x", shape, BF16, block=block, role=Role.INPUT)
    y = p.buffer("y", shape, BF16, block=block, space=Space.SYMMETRIC)
    flags = p.counter("flags", 64)
    p.layer("layer")
    devices = target.devices
    for launch in range(draw(st.integers(1, 3))):
        t = p.template(f"kernel{launch}")
        slots = draw(st.integers(1, 3))
        tiles = [t.tile(rows, 128, BF16, slots=slots, depth=1) for _ in range(3)]
        square = t.tile(rows, rows, F32)
        hop = draw(st.integers(0, devices - 1))
        peer = (DEVICE + hop) % devices
        with t.loop(0, draw(st.integers(1, 3))) as i:
            for kind, a, b in draw(bodies()):
                emit(t, kind, a, b, tiles, square, (x, y), i, peer, slots, rows)
        if draw(st.booleans()):
            t.signal(flags, WORKGROUP % 64, peer=peer)
            if draw(st.booleans()):
                # Raised once by every launch before this one that signals, hence by this one.
                t.wait(flags, WORKGROUP % 64, 1)
        template = p.add(
            t,
            waves=draw(st.sampled_from([1, 4, 16])),
            window_bytes=draw(st.sampled_from([4096, 16384])),
            scratch_bytes=16384,
            register_bytes=4096,
        )
        p.launch(
            f"launch{launch}",
            [(template, draw(st.integers(1, 9)))],
            queue=draw(st.integers(0, 1)),
            gap_ps=draw(st.sampled_from([0, 1_500_000])),
            prologue_ps=draw(st.sampled_from([0, 300_000])),
        )
    return p.finish(), target


def emit(
    t: TemplateAssembler,
    kind: str,
    a: int,
    b: int,
    tiles: list[Tile],
    square: Tile,
    buffers: tuple[int, int],
    i: Expression,
    peer: Expression,
    slots: int,
    rows: int,
) -> None:
    tile, other, buffer = tiles[a % 3], tiles[b % 3], buffers[b % 2]
    start = ((WORKGROUP * (a + 1) + i * rows) % 1000, (b % 3) * 32)
    stage = b % slots
    match kind:
        case "load" | "uncached":
            t.load(tile, buffer, start, stage=stage, acquire=kind == "uncached")
        case "store":
            t.store(tile, buffer, start, stage=stage)
        case "put":
            t.put(tile, buffer, start, peer, stage=stage)
        case "get":
            t.get(tile, buffer, start, peer, stage=stage)
        case "matrix":
            t.matrix(square, tile, other, transpose_b=True, stage=stage)
        case "vector":
            t.vector("add", [tile, other, tiles[(a + b) % 3]], stage=stage)
        case "delay":
            t.delay(1000 * a * b, stage=stage)
        case _:
            with t.if_(WORKGROUP % 2 - 1, stage=stage):
                t.vector("zero", [tile])


@settings(max_examples=60, deadline=None)
@given(programs())
def test_calendar_and_heap_agree_on_random_programs(case: tuple[Program, Target]) -> None:
    assert_same(*case, engines=ENGINES[:2])


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(programs())
def test_plain_python_agrees_on_random_programs(case: tuple[Program, Target]) -> None:
    # Plain Python runs some ten thousand events a second.
    assume(run(*case).events < 10_000)
    assert_same(*case, engines=[ENGINES[0], ENGINES[2]])


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_all_engines_agree_on_a_copy(name: str) -> None:
    target = MACHINES[name]
    assert_same(stream(target, workgroups=4, iterations=3, copy=True), target)


@pytest.mark.parametrize("get", [False, True])
def test_all_engines_agree_on_an_exchange_between_gpus(get: bool) -> None:
    target = MACHINES["three GPUs of four dies"]
    peer = (DEVICE + 5) % target.devices
    assert_same(exchange(target, peer=peer, workgroups=2, iterations=3, get=get), target)


def test_pools_that_grow_change_nothing() -> None:
    target = machine(gpu=1, xcd=1)
    # Pieces of 128 bytes: more requests in flight than the pool begins with.
    p = assembler("scattered", target)
    x = p.buffer("x", (38 * 64, 4096), BF16, role=Role.INPUT)
    t = p.template("scattered")
    tile = t.tile(64, 64, BF16)
    t.load(tile, x, (WORKGROUP * 64, 0))
    p.layer("layer")
    p.launch("launch", [(p.add(t, window_bytes=16384), 38)])
    program = p.finish()
    assert_same(program, target, engines=ENGINES[:2])


def test_a_run_repeats_to_the_picosecond() -> None:
    target = MACHINES["SPX"]
    program = stream(target, workgroups=16, iterations=4, copy=True)
    assert simulate(program).key() == simulate(program).key()
