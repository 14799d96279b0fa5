"""Hand-made programs that read, copy and chase, as the micro-benchmarks of a GPU do.

A block of threads is one workgroup. Its threads load 16 bytes each; groups of 256 threads have
their own loads under way, as warps do, and use what has come before they ask for more.
"""

from __future__ import annotations

from starc.backend.assembly import ProgramAssembler
from starc.backend.program import Program, Role
from starc.backend.template import WORKGROUP
from starc.core.element_types import ElementType
from starc.targets.target import Target

BYTES_A_THREAD = 16
ROW = 256  # bytes of a row of the buffers: 128 elements of 2 bytes
GROUP = 256  # threads that load and wait together


def _assembler(name: str, target: Target) -> ProgramAssembler:
    mesh = tuple((axis, size) for axis, size, _, _ in target.mesh)
    return ProgramAssembler(name, target.to_dict(), mesh)


def stream(
    target: Target,
    *,
    size: int,
    blocks: int,
    threads: int,
    unroll: int,
    copy: bool = False,
    launches: int = 1,
    gap_ps: int | None = None,
    prologue_ps: int = 0,
    before: int = 0,
) -> Program:
    """``blocks`` blocks read ``size`` bytes in strides of the whole grid, ``unroll`` loads of a
    thread at a time, or copy them; ``launches`` kernels one after the other over the same bytes.
    ``before`` bytes of other buffers are copied ahead of the first."""
    p = _assembler("copy" if copy else "read", target)
    groups = max(1, threads // GROUP)
    batch = min(threads, GROUP) * BYTES_A_THREAD * unroll  # of a group
    rows = batch // ROW
    gap = target.kernel_gap_ps if gap_ps is None else gap_ps

    def kernel(name: str, length: int, copies: bool) -> int:
        shape = (-(-length // ROW), ROW // 2)
        x = p.buffer(f"{name}.x", shape, ElementType.BF16, role=Role.INPUT)
        y = p.buffer(f"{name}.y", shape, ElementType.BF16, role=Role.OUTPUT) if copies else -1
        t = p.template(name)
        tile = t.tile(rows, ROW // 2, ElementType.BF16, slots=groups, depth=1)
        with t.loop(0, -(-length // (blocks * batch))) as i:
            # A group comes round again when its data have been used.
            start = ((i // groups * blocks + WORKGROUP) * groups + i % groups) * rows
            t.load(tile, x, (start, 0))
            if copies:
                t.store(tile, y, (start, 0), stage=groups - 1)
            else:
                t.vector("zero", [tile], stage=groups - 1)
        return p.add(t, waves=max(1, threads // target.wave_size), window_bytes=batch * groups)

    p.layer("stream")
    if before:
        p.launch("before", [(kernel("before", before, True), blocks)], gap_ps=gap)
    template = kernel("stream", size, copy)
    for number in range(launches):
        p.launch(
            f"stream{number}",
            [(template, blocks)],
            gap_ps=gap,
            prologue_ps=prologue_ps,
        )
    return p.finish()


def chase(target: Target, *, size: int, loads: int) -> Program:
    """One thread that follows links, each to a line further on in ``size`` bytes: ``loads`` of them
    after all lines have been touched once, if they fit the L2 then."""
    p = _assembler("chase", target)
    lines = max(1, size // 4096)
    x = p.buffer("x", (lines * 2048,), ElementType.BF16, role=Role.INPUT)
    t = p.template("chase")
    tile = t.tile(1, 64, ElementType.BF16)
    with t.loop(0, loads) as i:
        t.load(tile, x, (i % lines * 2048,))
        t.vector("zero", [tile])  # what the next load waits for
    p.layer("chase")
    p.launch("chase", [(p.add(t, waves=1), 1)])
    return p.finish()
