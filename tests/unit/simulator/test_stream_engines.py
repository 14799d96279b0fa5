"""Streams of engines: the calendar, the binary heap, plain Python and one GPU for all agree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starc.backend.program import Engine, Program, Role, Space
from starc.backend.template import DEVICE, WORKGROUP
from starc.simulator.symmetry.proof import find_symmetry
from starc.targets.target import Target
from tests.unit.simulator.programs import BF16, F32, assembler, machine, run

MACHINES = {
    "one PE": machine("ahbm", sip=1, group=1, cube=1, pe=1),
    "two cubes": machine("ahbm", sip=1, group=1, cube=2, pe=2),
    "two SIPs": machine("ahbm", sip=2, group=1, cube=1, pe=2),
    "a GPU": machine(gpu=1, xcd=2),
    "two GPUs": machine(gpu=2, xcd=1),
}
ORACLES: list[dict[str, Any]] = [
    {"engine": "heap", "jit": True},
    {"engine": "calendar", "jit": False},
    {"engine": "heap", "jit": False},
]


def assert_same(program: Program, target: Target, oracles: list[dict[str, Any]]) -> None:
    first = run(program, target, log=True)
    for oracle in oracles:
        assert run(program, target, log=True, **oracle).key() == first.key()


def pipeline(
    target: Target,
    *,
    hop: int,
    slots: int = 2,
    trips: int = 4,
    rows: int = 16,
    issue: int = 10_000,
    products: int = 1,
    blocking: bool = False,
    launches: int = 1,
    workgroups: int = 1,
) -> Program:
    """Every device loads tiles, multiplies them, adds something, and puts the result to a peer,
    which it signals; then it waits for its own signal."""
    p = assembler("pipeline", target)
    x = p.buffer("x", (rows * trips * workgroups, 128), BF16, role=Role.INPUT)
    y = p.buffer("y", (launches * workgroups * rows, rows), F32, space=Space.SYMMETRIC)
    flags = p.counter("flags", launches * workgroups)
    p.layer("layer")
    for launch in range(launches):
        t = p.template(f"kernel{launch}")
        tile = t.tile(rows, 128, BF16, slots=slots, depth=1)
        acc = t.tile(rows, rows, F32)
        expand, load, multiply, add, send = (t.semaphore() for _ in range(5))
        full, free, product, ready, there = (t.semaphore(k) for k in (0, slots, 0, 0, 0))
        peer = (DEVICE + hop) % target.devices
        own = WORKGROUP + launch * workgroups
        issue_commands(t, issue, trips, (expand, load, multiply, add, send), flags, own)
        with t.stream(Engine.DMA):
            with t.loop(0, trips) as i:
                t.acquire(load)
                t.acquire(free)
                t.load(tile, x, ((WORKGROUP * trips + i) * rows, 0))
                t.release(full, None if blocking else tile)
            t.acquire(send)
            t.acquire(ready)
            t.put(acc, y, (own * rows, 0), peer)
            t.release(there, acc)
            t.acquire(there)
            t.signal(flags, own, peer=peer, attached=launch % 2 == 0)
        multiply_and_add(t, trips, products, tile, acc, (multiply, full, free, product, add, ready))
        template = p.add(t, waves=4, window_bytes=16384)
        p.launch(f"launch{launch}", [(template, workgroups)], prologue_ps=launch * 7_000)
    return p.finish()


def issue_commands(
    t: Any, issue: int, trips: int, semaphores: tuple[Any, ...], flags: Any, own: Any
) -> None:
    """What the CPU issues, and what the scheduler makes of the command that it expands."""
    expand, load, multiply, add, send = semaphores
    with t.stream(Engine.CPU):
        t.delay(issue)
        t.release(expand)
        t.delay(2 * issue)
        t.release(add)
        t.delay(issue)
        t.release(send)
        t.wait(flags, own, 1)
    with t.stream(Engine.SCHEDULER):
        t.acquire(expand)
        with t.loop(0, trips):
            t.delay(issue // 10)
            t.release(load)
            t.release(multiply)


def multiply_and_add(
    t: Any, trips: int, products: int, tile: Any, acc: Any, semaphores: tuple[Any, ...]
) -> None:
    """What the engines do with the tiles that are loaded."""
    multiply, full, free, product, add, ready = semaphores
    with t.stream(Engine.GEMM):
        with t.loop(0, trips):
            t.acquire(multiply)
            t.acquire(full)
            for _ in range(products):
                t.matrix(acc, tile, tile, transpose_b=True)
            t.release(free)
        t.release(product)
    with t.stream(Engine.MATH):
        t.acquire(add)
        t.acquire(product)
        t.vector("zero", [acc])
        t.release(ready)


@st.composite
def programs(draw: st.DrawFn) -> tuple[Program, Target]:
    target = MACHINES[draw(st.sampled_from(sorted(MACHINES)))]
    program = pipeline(
        target,
        hop=draw(st.integers(0, target.devices - 1)),
        slots=draw(st.integers(1, 3)),
        trips=draw(st.integers(0, 5)),
        rows=draw(st.sampled_from([16, 32, 48])),
        issue=draw(st.sampled_from([0, 1_000, 10_000])),
        products=draw(st.integers(1, 2)),
        blocking=draw(st.booleans()),
        launches=draw(st.integers(1, 3)),
        workgroups=draw(st.integers(1, 3)),
    )
    return program, target


@settings(max_examples=40, deadline=None)
@given(programs())
def test_calendar_and_heap_agree(case: tuple[Program, Target]) -> None:
    assert_same(*case, ORACLES[:1])


@settings(max_examples=10, deadline=None)
@given(programs())
def test_plain_python_agrees(case: tuple[Program, Target]) -> None:
    assert_same(*case, ORACLES[1:])


def test_logs_that_grow_are_whole() -> None:
    target = MACHINES["one PE"]
    program = pipeline(target, hop=0, trips=20_000)
    result = run(program, target, log=True)
    assert result.log is not None
    assert len(result.log) > 1 << 16
    products = result.log[result.log["engine"] == Engine.GEMM]
    names = program.records["op"][products["record"]]
    assert (names == 7).sum() == 20_000
    assert run(program, target, log=True, engine="heap").key() == result.key()


def test_one_gpu_stands_for_all_where_streams_turn() -> None:
    # Counters and buffers at the same place everywhere, peers by a rotation of the GPUs.
    target = machine("ahbm", sip=4, group=1, cube=1, pe=2)
    program = pipeline(target, hop=2, trips=3)
    assert find_symmetry(program, target).reason == ""
    one = run(program, target, log=True)
    node = run(program, target, log=True, full_node=True)
    assert (one.simulated_gpus, node.simulated_gpus) == (1, 4)
    assert one.key() == node.key()
    some = run(program, target, log=True, log_devices=(1, 6))
    assert some.log is not None
    assert some.log.tolist() == [row for row in node.log.tolist() if row[0] in (1, 6)]  # pyright: ignore


@pytest.mark.parametrize("blocking", [False, True])
def test_an_exchange_between_sips(blocking: bool) -> None:
    target = MACHINES["two SIPs"]
    assert_same(pipeline(target, hop=2, blocking=blocking), target, ORACLES)
