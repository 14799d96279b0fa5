"""Small programs by hand, and the machines that tests run them on."""

from __future__ import annotations

from typing import Any

from starc.backend.assembly import ProgramAssembler
from starc.backend.program import Program, Role, Space, TileSpace
from starc.backend.template import DEVICE, WORKGROUP
from starc.core.element_types import ElementType
from starc.core.quasi_affine.expressions import Expression
from starc.simulator.options import SimulationOptions
from starc.simulator.results.result import SimulationResult
from starc.simulator.run import simulate
from starc.targets.loader import load_target
from starc.targets.target import Target

BF16, F32 = ElementType.BF16, ElementType.F32
KIB, MIB = 1 << 10, 1 << 20


def machine(name: str = "mi300x-cpx", **mesh: int) -> Target:
    """A target, or with ``gpu`` and ``xcd`` an illustration machine of it."""
    return load_target(name, mesh=mesh or None)


def run(program: Program, target: Target, **options: Any) -> SimulationResult:
    return simulate(program, options=SimulationOptions(target=target, **options))


def assembler(name: str, target: Target) -> ProgramAssembler:
    return ProgramAssembler(name, target.to_dict(), tuple((a, n) for a, n, _, _ in target.mesh))


def stream(
    target: Target,
    *,
    workgroups: int,
    iterations: int,
    copy: bool = False,
    acquire: bool = False,
    rows: int = 64,
    slots: int = 4,
    idle_from: int | None = None,
    passes: int = 1,
) -> Program:
    """Every workgroup reads (or copies) ``iterations`` tiles of ``rows`` x 128 bf16, ``passes``
    times over. Devices from ``idle_from`` on do nothing."""
    p = assembler("stream", target)
    shape = (workgroups * iterations * rows, 128)
    x = p.buffer("x", shape, BF16, block=(16, 128), role=Role.INPUT)
    y = p.buffer("y", shape, BF16, block=(16, 128), role=Role.OUTPUT)
    t = p.template("stream")
    tile = t.tile(rows, 128, BF16, slots=slots, depth=2)

    def body() -> None:
        with t.loop(0, passes), t.loop(0, iterations) as i:
            start = (WORKGROUP * iterations + i) * rows
            t.load(tile, x, (start, 0), acquire=acquire)
            if copy:
                t.store(tile, y, (start, 0), stage=slots - 1)
            else:
                t.vector("zero", [tile], stage=slots - 1)

    if idle_from is None:
        body()
    else:
        with t.if_(DEVICE * -1 + (idle_from - 1)):
            body()
    p.layer("stream")
    p.launch("stream", [(p.add(t, waves=4), workgroups)])
    return p.finish()


def chase(target: Target, *, loads: int, stride: int, passes: int = 1) -> Program:
    """One workgroup, one load of a line at a time, ``stride`` bytes apart."""
    p = assembler("chase", target)
    x = p.buffer("x", (max(1, loads) * stride // 2,), BF16, role=Role.INPUT)
    t = p.template("chase")
    tile = t.tile(1, 64, BF16)
    with t.loop(0, passes), t.loop(0, loads) as i:
        t.load(tile, x, (i * (stride // 2),))
        # Reading the tile is what the next load has to wait for.
        t.vector("zero", [tile])
    p.layer("chase")
    p.launch("chase", [(p.add(t, waves=1), 1)])
    return p.finish()


def matrix(target: Target, *, workgroups: int, iterations: int, size: int = 128) -> Program:
    """Matrix operations on tiles that are loaded once."""
    p = assembler("matrix", target)
    x = p.buffer("x", (size, size), BF16, block=(32, 64), role=Role.INPUT)
    t = p.template("matrix")
    a, b = t.tile(size, size, BF16), t.tile(size, size, BF16, space=TileSpace.REGISTER)
    acc = t.tile(size, size, F32, space=TileSpace.REGISTER)
    t.load(a, x, (0, 0))
    t.load(b, x, (0, 0))
    with t.loop(0, iterations):
        t.matrix(acc, a, b)
    p.layer("matrix")
    p.launch("matrix", [(p.add(t), workgroups)], kind="gemm")
    return p.finish()


def exchange(
    target: Target,
    *,
    peer: Expression | int,
    workgroups: int = 16,
    iterations: int = 16,
    get: bool = False,
    rows: int = 16,
) -> Program:
    """Every device puts tiles to (or gets them from) a peer, then signals it and waits."""
    p = assembler("exchange", target)
    shape = (workgroups * iterations * rows, 128)
    x = p.buffer("x", shape, BF16, block=(16, 128), role=Role.INPUT)
    y = p.buffer("y", shape, BF16, block=(16, 128), space=Space.SYMMETRIC)
    flags = p.counter("flags", workgroups)
    t = p.template("exchange")
    tile = t.tile(rows, 128, BF16, slots=4, depth=1)
    with t.loop(0, iterations) as i:
        start = (WORKGROUP * iterations + i) * rows
        if get:
            t.get(tile, y, (start, 0), peer)
            t.vector("zero", [tile], stage=3)
        else:
            t.load(tile, x, (start, 0))
            t.put(tile, y, (start, 0), peer, stage=3)
    t.signal(flags, WORKGROUP, peer=peer)
    t.wait(flags, WORKGROUP, 1)
    p.layer("exchange")
    p.launch("exchange", [(p.add(t), workgroups)], kind="collective")
    return p.finish()
