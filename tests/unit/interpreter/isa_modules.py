"""Modules at the isa level for tests: a ring all-reduce, a split GEMM and a pipelined copy."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from starc.dialects.isa import Isa
from starc.dialects.kernel import Kernel
from starc.dialects.nn import Nn
from starc.dialects.sharding import Sharding


def parse(text: str) -> ModuleOp:
    """The module in ``text``."""
    context = Context()
    for dialect in (Builtin, Func, Isa, Kernel, Nn, Sharding):
        context.load_dialect(dialect)
    module = Parser(context, text).parse_module()
    module.verify()
    return module


def buffer(
    name: str, shape: str, address: int, bytes: int, *, space: str = "private", role: str
) -> str:
    return (
        f"kernel.buffer @{name} : tensor<{shape}> {{address = {address} : i64, "
        f"bytes = {bytes} : i64, layout = #kernel.layout<row_major>, "
        f'space = "{space}", role = "{role}"}}\n'
    )


MESH = 'sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=2 : inner usr]\n'


def launches(*texts: str) -> str:
    lines = "\n".join(texts)
    return f"func.func @layer() {{\n{lines}\nfunc.return\n}}\n"


def ring_all_reduce(
    *,
    wait: str = "%s",
    peer: str = "(%device + 1) mod 4",
    signal_before_put: bool = False,
    repeat: bool = False,
    second_wait: str = "%s + 4",
) -> str:
    """``y = sum of x`` over 4 devices, 2 workgroups, chunks of 8 f32 and a staging slot a step.

    ``wait``, ``peer``, ``second_wait`` and ``signal_before_put`` break it; ``repeat`` launches it
    twice, which reuses staging slots that a slow neighbour may not have read.
    """
    put = f"isa.put %own, @staging[%wg * 6, 0] to [{peer}] : !isa.tile<1x8xf32>"
    signal = "isa.signal @arrived[%wg] add [1] to [(%device + 1) mod 4]"
    first = f"{signal}\n{put}" if signal_before_put else f"{put}\n{signal}"
    launch = 'isa.launch @all_reduce [@ring grid 2] queue "compute"'
    return (
        MESH
        + buffer("x", "8x8xf32", 4096, 256, role="input")
        + buffer("y", "8x8xf32", 8192, 256, role="output")
        + buffer("staging", "12x8xf32", 12288, 384, space="symmetric", role="communication")
        + f"""
isa.counter @arrived count 2
isa.kernel @ring coords(%device, %gpu, %xcd, %wg) attributes {{kernel_class = "collective"}} {{
  %own = isa.alloc scratch : !isa.tile<1x8xf32>
  %in = isa.alloc scratch : !isa.tile<1x8xf32>
  %sum = isa.alloc scratch : !isa.tile<1x8xf32>
  isa.load %own, @x[%wg * 4 + %device, 0] : !isa.tile<1x8xf32>
  {first}
  isa.loop %s = [1] to [4] {{
    isa.wait @arrived[%wg] until [{wait}]
    isa.load %in, @staging[%wg * 6 + %s - 1, 0] : !isa.tile<1x8xf32>
    isa.load %own, @x[%wg * 4 + (%device - %s + 4) mod 4, 0] : !isa.tile<1x8xf32>
    isa.vector "add"(%sum, %in, %own) : !isa.tile<1x8xf32>, !isa.tile<1x8xf32>, !isa.tile<1x8xf32>
    isa.if [%s - 3] {{
      isa.store %sum, @y[%wg * 4 + (%device - %s + 4) mod 4, 0] : !isa.tile<1x8xf32>
    }}
    isa.put %sum, @staging[%wg * 6 + %s, 0] to [{peer}] : !isa.tile<1x8xf32>
    isa.signal @arrived[%wg] add [1] to [(%device + 1) mod 4]
  }}
  isa.loop %s = [0] to [3] {{
    isa.wait @arrived[%wg] until [{second_wait}]
    isa.load %in, @staging[%wg * 6 + %s + 3, 0] : !isa.tile<1x8xf32>
    isa.store %in, @y[%wg * 4 + (%device - %s + 4) mod 4, 0] : !isa.tile<1x8xf32>
    isa.if [1 - %s] {{
      isa.put %in, @staging[%wg * 6 + %s + 4, 0] to [{peer}] : !isa.tile<1x8xf32>
      isa.signal @arrived[%wg] add [1] to [(%device + 1) mod 4]
    }}
  }}
}}
"""
        + launches(launch, *([launch.replace("@all_reduce", "@again")] if repeat else []))
    )


def pipelined_copy(*, slots: int = 3, store_stage: int = 2, store_offset: str = "%i") -> str:
    """``y = x`` by rows of 8 bf16 through a tile of several slots."""
    return (
        MESH
        + buffer("x", "8x8xbf16", 4096, 128, role="input")
        + buffer("y", "8x8xbf16", 8192, 128, role="output")
        + f"""
isa.kernel @copy coords(%device, %gpu, %xcd, %wg) attributes {{kernel_class = "elementwise"}} {{
  isa.loop %i = [0] to [8] {{
    %t = isa.alloc scratch slots {slots} : !isa.tile<1x8xbf16>
    isa.load %t, @x[%i, 0] {{stage = 0 : i64}} : !isa.tile<1x8xbf16>
    isa.store %t, @y[{store_offset}, 0] {{stage = {store_stage} : i64}} : !isa.tile<1x8xbf16>
  }}
}}
"""
        + launches('isa.launch @copy [@copy grid 1] queue "compute"')
    )


def split_gemm(*, wait: bool = True) -> str:
    """``c = a @ b`` (4x8 by 8x4), K split over two workgroups; workgroup 0 adds the partial of
    workgroup 1, which it must wait for."""
    wait_text = "isa.wait @ready[0] until [1]" if wait else ""
    return (
        MESH
        + buffer("a", "4x8xbf16", 4096, 64, role="input")
        + buffer("b", "8x4xbf16", 8192, 64, role="weight")
        + buffer("part", "4x4xf32", 12288, 64, role="activation")
        + buffer("c", "4x4xbf16", 16384, 32, role="output")
        + f"""
isa.counter @ready count 1
isa.kernel @gemm coords(%device, %gpu, %xcd, %wg) attributes {{kernel_class = "gemm"}} {{
  %acc = isa.alloc register : !isa.tile<4x4xf32>
  %a = isa.alloc scratch : !isa.tile<4x4xbf16>
  %b = isa.alloc scratch : !isa.tile<4x4xbf16>
  isa.vector "zero"(%acc) : !isa.tile<4x4xf32>
  isa.load %a, @a[0, %wg * 4] : !isa.tile<4x4xbf16>
  isa.load %b, @b[%wg * 4, 0] : !isa.tile<4x4xbf16>
  isa.matrix %acc, %a, %b : !isa.tile<4x4xf32>, !isa.tile<4x4xbf16>, !isa.tile<4x4xbf16>
  isa.if [%wg - 1] {{
    isa.store %acc, @part[0, 0] : !isa.tile<4x4xf32>
    isa.signal @ready[0] add [1]
  }}
  isa.if [0 - %wg] {{
    %other = isa.alloc register : !isa.tile<4x4xf32>
    {wait_text}
    isa.load %other, @part[0, 0] : !isa.tile<4x4xf32>
    isa.vector "add"(%acc, %acc, %other)
      : !isa.tile<4x4xf32>, !isa.tile<4x4xf32>, !isa.tile<4x4xf32>
    isa.store %acc, @c[0, 0] : !isa.tile<4x4xf32>
  }}
}}
"""
        + launches('isa.launch @gemm [@gemm grid 2] queue "compute"')
    )
