"""Programs of micro-benchmarks, built by hand: chains of loads, streams of floats, empty kernels,
dependent operations, counters and reads of scratch memory."""

from __future__ import annotations

from typing import Final

from starc.backend.assembly import ProgramAssembler
from starc.backend.program import Program, TileSpace
from starc.backend.program import Role as BufferRole
from starc.backend.template import WORKGROUP
from starc.core.element_types import ElementType
from starc.targets.target import Target

GRANULE: Final = 4096
BLOCKS: Final = 65536
"""The largest grid of ``shoc_devicememory``."""


def assembler(name: str, target: Target) -> ProgramAssembler:
    """An empty program for a machine."""
    mesh = tuple((axis, size) for axis, size, _, _ in target.mesh)
    return ProgramAssembler(name, target.to_dict(), mesh)


def chain(target: Target, *, granules: int, loads: int, passes: int) -> Program:
    """One work-item, one load after the other, each to the next granule; ``passes`` rounds."""
    p = assembler("chain", target)
    x = p.buffer("x", (granules, GRANULE // 4), ElementType.F32, role=BufferRole.INPUT)
    t = p.template("chain")
    tile = t.tile(1, 32, ElementType.F32)
    with t.loop(0, passes), t.loop(0, loads) as i:
        t.load(tile, x, (i, 0))
        t.vector("zero", [tile])  # what the next load waits for
    p.layer("chain")
    p.launch("chain", [(p.add(t, waves=1), 1)], gap_ps=0, prologue_ps=0)
    return p.finish()


def floats(target: Target, *, size: int, threads: int, writes: bool) -> Program:
    """Blocks of ``threads`` that read or write a float a thread, again in strides of the grid."""
    p = assembler("floats", target)
    row = 4 * threads
    rows = -(-size // row)
    blocks = min(rows, BLOCKS)
    role = BufferRole.OUTPUT if writes else BufferRole.INPUT
    x = p.buffer("x", (rows, threads), ElementType.F32, role=role)
    t = p.template("floats")
    tile = t.tile(1, threads, ElementType.F32, space=TileSpace.REGISTER)
    with t.loop(0, -(-rows // blocks)) as i:
        start = i * blocks + WORKGROUP
        if writes:
            t.vector("zero", [tile])
            t.store(tile, x, (start, 0))
        else:
            t.load(tile, x, (start, 0))
            t.vector("zero", [tile])  # a float is used before the next is asked for
    p.layer("floats")
    template = p.add(t, waves=max(1, threads // target.wave_size), window_bytes=4 * row)
    p.launch("floats", [(template, blocks)], gap_ps=0, prologue_ps=0)
    return p.finish()


def empty(target: Target, *, blocks: int, threads: int) -> Program:
    """Workgroups that do nothing."""
    p = assembler("empty", target)
    t = p.template("empty")
    t.delay(1)
    p.layer("empty")
    template = p.add(t, waves=max(1, -(-threads // target.wave_size)))
    p.launch("empty", [(template, blocks)], gap_ps=0, prologue_ps=0)
    return p.finish()


def dependent(target: Target, *, threads: int, operations: int, dtype: ElementType) -> Program:
    """One workgroup, an operation on a tile of a lane a thread after the other."""
    p = assembler("dependent", target)
    t = p.template("dependent")
    tile = t.tile(1, threads, dtype, space=TileSpace.REGISTER)
    with t.loop(0, operations):
        t.vector("add", [tile, tile, tile])
    p.layer("dependent")
    template = p.add(t, waves=max(1, -(-threads // target.wave_size)))
    p.launch("dependent", [(template, 1)], gap_ps=0, prologue_ps=0)
    return p.finish()


def counted(target: Target, *, blocks: int, waves: int, operations: int) -> Program:
    """Every wave raises one counter so many times."""
    p = assembler("counted", target)
    counter = p.counter("counter", 1)
    t = p.template("counted")
    with t.loop(0, operations * waves):
        t.signal(counter)
    p.layer("counted")
    p.launch("counted", [(p.add(t, waves=waves), blocks)], gap_ps=0, prologue_ps=0)
    return p.finish()


def scratch_reads(target: Target, *, blocks: int, threads: int, iterations: int) -> Program:
    """Blocks whose threads read eight words of LDS an iteration: as many bytes as a matrix
    operation takes whose operand has half as many (it is stored there and read once)."""
    p = assembler("scratch", target)
    t = p.template("scratch")
    columns = threads * 8 * 4 // 2 // (16 * 2)  # of an operand of 16 x columns of 2 bytes
    a = t.tile(16, 16, ElementType.BF16, space=TileSpace.REGISTER)
    b = t.tile(16, columns, ElementType.BF16)
    c = t.tile(16, columns, ElementType.F32, space=TileSpace.REGISTER)
    with t.loop(0, iterations):
        t.matrix(c, a, b)
    p.layer("scratch")
    template = p.add(t, waves=1)
    p.launch("scratch", [(template, blocks)], gap_ps=0, prologue_ps=0)
    return p.finish()
