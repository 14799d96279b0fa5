"""The text of programs."""

from __future__ import annotations

from starc.backend.assembly import ProgramAssembler
from starc.backend.disassembler import disassemble
from starc.backend.program import Role
from starc.backend.template import WORKGROUP
from starc.core.element_types import ElementType
from starc.core.vector_functions.function import real_bits
from tests.unit.backend.builders import gemm, ring_all_reduce


def test_gemm():
    assert disassemble(gemm(m=64, n=128, k=128)) == (
        """\
program gemm, mesh gpu=1
buffers
  0x0000001000  @a  bf16 64x128  blocked 32x64  private input  16384 B
  0x0000005000  @b  bf16 128x128  blocked 32x64  private input  32768 B
  0x000000d000  @c  bf16 64x128  row_major  private output  16384 B
kernel @gemm: 4 waves, 40960 B scratch, 16384 B registers, window 16384 B, pieces of 4096 B
  tiles
    t0  f32 64x64 in registers
    t1  bf16 64x64 x2 slots of loop 1 at 0x0
    t2  bf16 64x64 x2 slots of loop 1 at 0x4000
    t3  bf16 64x64 at 0x8000
      zero dst=t0
      loop counter0 = 0 to 2
        load t1 <- @a[(wg floordiv 2) * 64, counter0 * 64] extents 64x64
        load t2 <- @b[counter0 * 64, (wg mod 2) * 64] extents 64x64
   1    matrix 64x64x64 t0 += t1 * t2
      copy dst=t3, a=t0
      store @c[(wg floordiv 2) * 64, (wg mod 2) * 64] extents 64x64 <- t3
layer @gemm * 1
  launch gemm: @gemm x 2 workgroups
"""
    )


def test_counters_and_remote_accesses():
    text = disassemble(ring_all_reduce())
    assert "  0x0000004000  @arrived x 2\n" in text
    assert "put @staging[wg * 6, 0] extents 1x64 of device (device + 1) mod 4 <- t1" in text
    assert "signal @arrived[wg] of device (device + 1) mod 4 add 1" in text
    assert "wait @arrived[wg] until counter0 + 4" in text
    assert "load acquire t0 <- @staging[" in text
    assert "launch all_reduce: @ring x 2 workgroups, waits inside" in text


def test_parameters_locations_and_gathers():
    p = ProgramAssembler("p", {"name": "toy"}, (("gpu", 1),))
    ids = p.buffer("ids", (4, 1), ElementType.I32, role=Role.INPUT)
    table = p.buffer("table", (64, 8), ElementType.BF16, role=Role.WEIGHT)
    t = p.template("embed")
    rows, tile = t.tile(2, 1, ElementType.I32), t.tile(2, 8, ElementType.BF16)
    t.location = p.location(("a.sa", 3, 7))
    t.load(rows, ids, (WORKGROUP * 2, 0))
    t.location = p.location(("a.sa", 4, 1))
    t.load(tile, table, (0, 0), gather=rows, gather_base=64)
    t.vector("rope", [tile, tile], (8, real_bits(10000.0), 3, 1, WORKGROUP))
    p.layer("layer", 3)
    launch = p.launch("first", [(p.add(t), 2)], kind="embedding")
    p.launch("second", [(0, 1), (0, 2)], kind="embedding", queue=1, depends=launch)
    text = disassemble(p.finish())
    assert "program p for toy" in text
    assert "load t0 <- @ids[wg * 2, 0] extents 2x1  ; a.sa:3:7" in text
    assert "load t1 <- @table[0, 0] extents 2x8 rows t0 - (64)  ; :4:1" in text
    assert "rope dst=t1, a=t1; head_dim=8, theta=10000, start=3, query=1, row=wg" in text
    assert "layer @layer * 3" in text
    assert (
        "launch second: @embed x 1 workgroups + @embed x 2 workgroups on queue 1 after first"
        in text
    )
