"""Small programs by hand: a stream copy, a GEMM and a ring all-reduce."""

from __future__ import annotations

from typing import Any

from starc.backend.assembly import ProgramAssembler
from starc.backend.program import Program, Role, Space, TileSpace
from starc.backend.template import DEVICE, WORKGROUP
from starc.core.element_types import ElementType
from starc.core.quasi_affine.expressions import Const

BF16, F32 = ElementType.BF16, ElementType.F32


def stream_copy(
    *,
    devices: int = 1,
    workgroups: int = 4,
    iterations: int = 8,
    rows: int = 32,
    cols: int = 64,
    slots: int = 3,
    target: dict[str, Any] | None = None,
) -> Program:
    """``y = x``: every workgroup copies ``iterations`` consecutive tiles of rows x cols."""
    p = ProgramAssembler("stream_copy", target or {}, (("gpu", devices),))
    shape = (workgroups * iterations * rows, cols)
    x = p.buffer("x", shape, BF16, block=(rows, cols), role=Role.INPUT)
    y = p.buffer("y", shape, BF16, block=(rows, cols), role=Role.OUTPUT)
    t = p.template("copy")
    tile = t.tile(rows, cols, BF16, slots=slots, depth=1)
    with t.loop(0, iterations) as i:
        start = (WORKGROUP * iterations + i) * rows
        t.load(tile, x, (start, 0))
        t.store(tile, y, (start, 0), stage=slots - 1)
    p.layer("copy")
    p.launch("copy", [(p.add(t), workgroups)])
    return p.finish()


def gemm(
    *,
    devices: int = 1,
    m: int = 128,
    n: int = 256,
    k: int = 256,
    tile: tuple[int, int, int] = (64, 64, 64),
    stages: int = 2,
    blocked: bool = True,
    target: dict[str, Any] | None = None,
) -> Program:
    """``c[m, n] = a[m, k] @ b[k, n]`` in bf16 with f32 accumulation, one workgroup a tile."""
    tm, tn, tk = tile
    block = (32, 64) if blocked else ()
    p = ProgramAssembler("gemm", target or {}, (("gpu", devices),))
    a = p.buffer("a", (m, k), BF16, block=block, role=Role.INPUT)
    b = p.buffer("b", (k, n), BF16, block=block, role=Role.INPUT)
    c = p.buffer("c", (m, n), BF16, role=Role.OUTPUT)
    t = p.template("gemm")
    tiles_n, steps = -(-n // tn), -(-k // tk)
    row, col = (WORKGROUP // tiles_n) * tm, (WORKGROUP % tiles_n) * tn
    acc = t.tile(tm, tn, F32, space=TileSpace.REGISTER)
    left = t.tile(tm, tk, BF16, slots=stages, depth=1)
    right = t.tile(tk, tn, BF16, slots=stages, depth=1)
    out = t.tile(tm, tn, BF16)
    t.vector("zero", [acc])
    with t.loop(0, steps) as i:
        t.load(left, a, (row, i * tk))
        t.load(right, b, (i * tk, col))
        t.matrix(acc, left, right, stage=stages - 1)
    t.vector("copy", [out, acc])
    t.store(out, c, (row, col))
    p.layer("gemm")
    p.launch(
        "gemm",
        [(p.add(t), -(-m // tm) * tiles_n)],
        kind="gemm",
        attributes={"m": m, "n": n, "k": k},
    )
    return p.finish()


def ring_all_reduce(
    *,
    devices: int = 4,
    workgroups: int = 2,
    rows: int = 1,
    cols: int = 64,
    start_ps: int = 0,
    step_ps: int = 0,
    drop_last_signal: bool = False,
    wrong_peer: bool = False,
    extra_wait: int = 0,
    early_signal: bool = False,
    target: dict[str, Any] | None = None,
) -> Program:
    """``y = sum over devices of x`` around a ring, f32, one staging slot a step.

    Every workgroup owns ``devices`` chunks of rows x cols. The four flags break the schedule: the
    last reduction's signal is left out, puts go to the wrong neighbour, waits ask for more signals
    than are sent, or the first signal leaves before its put.
    """
    n = devices
    p = ProgramAssembler("ring_all_reduce", target or {}, (("gpu", n),))
    shape = (workgroups * n * rows, cols)
    x = p.buffer("x", shape, F32, role=Role.INPUT)
    y = p.buffer("y", shape, F32, role=Role.OUTPUT)
    slots = 2 * n - 2
    staging = p.buffer(
        "staging",
        (workgroups * slots * rows, cols),
        F32,
        space=Space.SYMMETRIC,
        role=Role.COMMUNICATION,
    )
    arrived = p.counter("arrived", workgroups)
    t = p.template("ring")
    received, own, total = (t.tile(rows, cols, F32) for _ in range(3))
    peer = (DEVICE + (n - 1 if wrong_peer else 1)) % n
    right = (DEVICE + 1) % n

    def chunk(index: Any) -> Any:
        return ((WORKGROUP * n) + (index + n) % n) * rows, Const(0)

    def slot(step: Any) -> Any:
        return (WORKGROUP * slots + step) * rows, Const(0)

    t.delay(start_ps)
    t.load(own, x, chunk(DEVICE))
    if early_signal:
        t.signal(arrived, WORKGROUP, 1, peer=right)
    t.put(own, staging, slot(0), peer)
    if not early_signal:
        t.signal(arrived, WORKGROUP, 1, peer=right)
    with t.loop(1, n) as s:
        t.wait(arrived, WORKGROUP, s + extra_wait)
        t.delay(step_ps)
        t.load(received, staging, slot(s - 1), acquire=True)
        t.load(own, x, chunk(DEVICE - s))
        t.vector("add", [total, received, own])
        with t.if_(s - (n - 1)):
            t.store(total, y, chunk(DEVICE - s))
        t.put(total, staging, slot(s), peer)
        if drop_last_signal:
            with t.if_(n - 2 - s):
                t.signal(arrived, WORKGROUP, 1, peer=right)
        else:
            t.signal(arrived, WORKGROUP, 1, peer=right)
    with t.loop(0, n - 1) as s:
        t.wait(arrived, WORKGROUP, s + n + extra_wait)
        t.delay(step_ps)
        t.load(received, staging, slot(s + n - 1), acquire=True)
        t.store(received, y, chunk(DEVICE - s))
        with t.if_(n - 3 - s):
            t.put(received, staging, slot(s + n), peer)
            t.signal(arrived, WORKGROUP, 1, peer=right)
    p.layer("all_reduce")
    p.launch(
        "all_reduce",
        [(p.add(t), workgroups)],
        kind="collective",
        attributes={
            "op": "all_reduce",
            "axes": ["gpu"],
            "size_bytes": workgroups * n * rows * cols * 4,
            "algorithm": "ring",
        },
    )
    return p.finish()
