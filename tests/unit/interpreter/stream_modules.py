"""Modules whose kernels are streams of engines, and the same kernels as one stream."""

from __future__ import annotations

from tests.unit.interpreter.isa_modules import buffer, launches

MESH = 'sharding.mesh @node = ["pe"=2 : inner pe_mesh]\n'
HEAD = 'coords(%device, %pe, %wg) attributes {kernel_class = "gemm"}'

_K, _Q, _S = "!isa.tile<4x8xbf16>", "!isa.tile<2x16xbf16>", "!isa.tile<2x8xf32>"


def scratch_buffer(name: str, shape: str, address: int, bytes: int) -> str:
    return buffer(name, shape, address, bytes, space="symmetric", role="communication").replace(
        'role = "communication"}', 'role = "communication", memory = "scratch"}'
    )


def _scores(body: str) -> str:
    """``y[2, 8 * tiles] = scale(q @ k^T)``: q 2x16, k 8*tiles x 16, in pieces of 4 x 8."""
    return (
        MESH
        + buffer("q", "2x16xbf16", 4096, 64, role="input")
        + buffer("k", "32x16xbf16", 8192, 1024, role="input")
        + buffer("y", "2x32xf32", 12288, 256, role="output")
        + f"isa.kernel @scores {HEAD} {{\n{body}\n}}\n"
        + launches('isa.launch @scores [@scores grid 1] queue "compute"')
    )


def scores_in_line(*, composites: bool = True, stage: int = 0) -> str:
    """One stream: with commands and a scope, or without them. ``stage`` is that of the store."""
    begin, end = ("isa.composite {", "}") if composites else ("", "")
    scope, unscope = ("isa.scope {", "}") if composites and not stage else ("", "")
    late = f"{{stage = {stage} : i64}} " if stage else ""
    return _scores(f"""
  %q = isa.alloc scratch : {_Q}
  isa.load %q, @q[0, 0] : {_Q}
  isa.loop %t = [0] to [4] {{
    %s = isa.alloc scratch slots 2 : {_S}
    {scope}
    {begin}
      isa.vector "zero"(%s) : {_S}
      isa.loop %i = [0] to [2] {{
        isa.loop %j = [0] to [2] {{
          %k = isa.alloc scratch slots 2 : {_K}
          isa.load %k, @k[%t * 8 + %i * 4, %j * 8] : {_K}
          isa.matrix %s, %q, %k columns [%i * 4] inner [%j * 8] {{transpose_b}} : {_S}, {_Q}, {_K}
        }}
      }}
      isa.vector "scale"(%s, %s) params [4602678819172646912] : {_S}, {_S}
    {end}
    isa.store %s, @y[0, %t * 8] {late}: {_S}
    {unscope}
  }}""")


# Without %command only time changes; %s_free follows from the others, because the next keys are
# loaded behind the store of the scores.
SCORE_ORDER = (
    "isa.acquire %q_full",
    "isa.acquire %s_zero",
    "isa.acquire %k_free",
    "isa.acquire %k_full",
    "isa.acquire %s_sum",
    "isa.acquire %s_full",
)


def scores_streams(
    *, without: str = "", offsets: tuple[int, int, int] | None = None, free: int = 2
) -> str:
    """The same as streams: keys double-buffered by the inner loop, scores by the outer one.
    ``without`` leaves out the lines that hold it; ``offsets`` are those of q, s and k in scratch,
    ``free`` the slots of k that count as free at the start."""
    at = ["", "", ""] if offsets is None else [f" offset {offset}" for offset in offsets]
    text = f"""
  %q = isa.alloc scratch{at[0]} : {_Q}
  %s = isa.alloc scratch slots 2 turns 1{at[1]} : {_S}
  %k = isa.alloc scratch slots 2 turns 3{at[2]} : {_K}
  %q_full = isa.semaphore initial 0 : !isa.semaphore
  %command = isa.semaphore initial 0 : !isa.semaphore
  %s_free = isa.semaphore initial 2 : !isa.semaphore
  %s_zero = isa.semaphore initial 0 : !isa.semaphore
  %k_free = isa.semaphore initial {free} : !isa.semaphore
  %k_full = isa.semaphore initial 0 : !isa.semaphore
  %s_sum = isa.semaphore initial 0 : !isa.semaphore
  %s_full = isa.semaphore initial 0 : !isa.semaphore
  isa.stream "cpu" {{
    isa.loop %t = [0] to [4] {{
      isa.delay 40000
      isa.release %command
    }}
  }}
  isa.stream "dma" {{
    isa.load %q, @q[0, 0] : {_Q}
    isa.release %q_full after %q : {_Q}
    isa.loop %t = [0] to [4] {{
      isa.loop %i = [0] to [2] {{
        isa.loop %j = [0] to [2] {{
          isa.acquire %k_free
          isa.load %k, @k[%t * 8 + %i * 4, %j * 8] : {_K}
          isa.release %k_full after %k : {_K}
        }}
      }}
      isa.acquire %s_full
      isa.store %s, @y[0, %t * 8] : {_S}
      isa.release %s_free after %s : {_S}
    }}
  }}
  isa.stream "gemm" {{
    isa.acquire %q_full
    isa.loop %t = [0] to [4] {{
      isa.acquire %s_zero
      isa.loop %i = [0] to [2] {{
        isa.loop %j = [0] to [2] {{
          isa.acquire %k_full
          isa.matrix %s, %q, %k columns [%i * 4] inner [%j * 8] {{transpose_b}} : {_S}, {_Q}, {_K}
          isa.release %k_free
        }}
      }}
      isa.release %s_sum
    }}
  }}
  isa.stream "math" {{
    isa.loop %t = [0] to [4] {{
      isa.acquire %command
      isa.acquire %s_free
      isa.vector "zero"(%s) : {_S}
      isa.release %s_zero
      isa.acquire %s_sum
      isa.vector "scale"(%s, %s) params [4602678819172646912] : {_S}, {_S}
      isa.release %s_full
    }}
  }}"""
    lines = [line for line in text.splitlines() if not without or without not in line]
    return _scores("\n".join(lines))


_T = "!isa.tile<1x8xf32>"


def exchange_streams() -> str:
    """``y = x + x of the other element``, six rows of 8, through a queue of two slots in scratch.

    The sender waits on its dma stream for a credit of a slot before it uses it again; the receiver
    gives it back when it has read the slot."""
    text = f"""
isa.counter @arrived count 1
isa.counter @credit count 1
isa.kernel @exchange {HEAD} {{
  %own = isa.alloc scratch slots 2 turns 1 offset 0 : {_T}
  %in = isa.alloc scratch slots 2 turns 1 offset 64 : {_T}
  %sum = isa.alloc scratch offset 128 : {_T}
  %here = isa.semaphore initial 0 : !isa.semaphore
  %full = isa.semaphore initial 0 : !isa.semaphore
  %read = isa.semaphore initial 0 : !isa.semaphore
  %free = isa.semaphore initial 2 : !isa.semaphore
  %done = isa.semaphore initial 0 : !isa.semaphore
  %stored = isa.semaphore initial 1 : !isa.semaphore
  isa.stream "cpu" {{
    isa.loop %r = [0] to [6] {{
      isa.wait @arrived[0] until [%r + 1]
      isa.release %here
    }}
  }}
  isa.stream "dma" {{
    isa.loop %r = [0] to [6] {{
      isa.acquire %free
      isa.load %own, @x[%r, 0] : {_T}
      isa.if [%r - 2] {{
        isa.wait @credit[0] until [%r - 1] deferred
      }}
      isa.put %own, @queue[%r mod 2, 0] to [1 - %device] : {_T}
      isa.signal @arrived[0] add [1] to [1 - %device] attached
      isa.acquire %here
      isa.load %in, @queue[%r mod 2, 0] : {_T}
      isa.release %read after %in : {_T}
      isa.release %full after %in : {_T}
      isa.acquire %read
      isa.signal @credit[0] add [1] to [1 - %device]
      isa.acquire %done
      isa.store %sum, @y[%r, 0] : {_T}
      isa.release %stored after %sum : {_T}
    }}
  }}
  isa.stream "math" {{
    isa.loop %r = [0] to [6] {{
      isa.acquire %full
      isa.acquire %stored
      isa.vector "add"(%sum, %own, %in) : {_T}, {_T}, {_T}
      isa.release %free
      isa.release %done
    }}
  }}
}}
"""
    return (
        MESH
        + buffer("x", "6x8xf32", 4096, 192, role="input")
        + buffer("y", "6x8xf32", 8192, 192, role="output")
        + scratch_buffer("queue", "2x8xf32", 1024, 64)
        + text
        + launches('isa.launch @exchange [@exchange grid 1] queue "compute"')
    )


TRANSFER_ORDER = (
    "isa.wait @arrived",
    "isa.acquire %here",
    "isa.acquire %read",
    "isa.acquire %full",
    "isa.acquire %done",
    "isa.wait @credit",
)


def transfer_streams(*, without: str = "", credits: int = 2) -> str:
    """``y = 2 x`` of element 0 on element 1, six rows through two slots in scratch.

    ``credits`` is how many rows the sender runs ahead."""
    text = f"""
isa.counter @arrived count 1
isa.counter @credit count 1
isa.kernel @transfer {HEAD} {{
  %own = isa.alloc scratch slots 2 turns 1 : {_T}
  %in = isa.alloc scratch slots 2 turns 1 : {_T}
  %sum = isa.alloc scratch slots 2 turns 1 : {_T}
  %here = isa.semaphore initial 0 : !isa.semaphore
  %full = isa.semaphore initial 0 : !isa.semaphore
  %read = isa.semaphore initial 0 : !isa.semaphore
  %free = isa.semaphore initial 2 : !isa.semaphore
  %done = isa.semaphore initial 0 : !isa.semaphore
  isa.stream "cpu" {{
    isa.if [%device - 1] {{
      isa.loop %r = [0] to [6] {{
        isa.wait @arrived[0] until [%r + 1]
        isa.release %here
      }}
    }}
  }}
  isa.stream "dma" {{
    isa.if [0 - %device] {{
      isa.loop %r = [0] to [6] {{
        isa.load %own, @x[%r, 0] : {_T}
        isa.wait @credit[0] until [%r - {credits - 1}] deferred
        isa.put %own, @queue[%r mod 2, 0] to [1] : {_T}
        isa.signal @arrived[0] add [1] to [1] attached
      }}
    }}
    isa.if [%device - 1] {{
      isa.loop %r = [0] to [6] {{
        isa.acquire %here
        isa.acquire %free
        isa.load %in, @queue[%r mod 2, 0] : {_T}
        isa.release %read after %in : {_T}
        isa.release %full after %in : {_T}
        isa.acquire %read
        isa.signal @credit[0] add [1] to [0]
        isa.acquire %done
        isa.store %sum, @y[%r, 0] : {_T}
      }}
    }}
  }}
  isa.stream "math" {{
    isa.if [%device - 1] {{
      isa.loop %r = [0] to [6] {{
        isa.acquire %full
        isa.vector "add"(%sum, %in, %in) : {_T}, {_T}, {_T}
        isa.release %free
        isa.release %done
      }}
    }}
  }}
}}
"""
    kept = [line for line in text.splitlines() if not without or without not in line]
    return (
        MESH
        + buffer("x", "6x8xf32", 4096, 192, role="input")
        + buffer("y", "6x8xf32", 8192, 192, role="activation")
        + scratch_buffer("queue", "2x8xf32", 1024, 64)
        + "\n".join(kept)
        + "\n"
        + launches('isa.launch @transfer [@transfer grid 1] queue "compute"')
    )
