"""A sweep of attention over tiles of keys on one processing element, by hand."""

from __future__ import annotations

from dataclasses import replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.universe import Universe

from starc.backend.program import Program
from starc.core.streams.engine_times import matrix_ps, vector_ps
from starc.core.vector_functions.table import BY_NAME
from starc.passes.base import RemarkSink
from starc.passes.isa.assign_engines import AssignEngines
from starc.passes.isa.plan_scratch import PlanScratch
from starc.passes.isa.schedule_commands import ScheduleCommands
from starc.passes.program.pack import pack
from starc.simulator.options import SimulationOptions
from starc.simulator.results.result import SimulationResult
from starc.simulator.run import simulate
from starc.targets.loader import load_target
from starc.targets.target import Target

ROWS, KEYS, DIM = 32, 128, 64
BUFFER = """
  kernel.buffer @{name} : tensor<{rows}x{columns}x{dtype}> {{address = {address} : i64,
      bytes = {bytes} : i64, layout = #kernel.layout<row_major>, space = "private",
      role = "{role}"}}"""
KERNEL = """
  isa.kernel @sweep coords(%device, %sip, %group, %cube, %pe, %wg) attributes
      {{kernel_class = "attention", waves = 4 : i64}} {{
    %q = isa.alloc scratch : !isa.tile<32x64xbf16>
    isa.load %q, @q[0, 0] : !isa.tile<32x64xbf16>
    %m = isa.alloc scratch : !isa.tile<32x1xf32>
    %l = isa.alloc scratch : !isa.tile<32x1xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    isa.vector "fill_neg_inf"(%m) : !isa.tile<32x1xf32>
    isa.vector "zero"(%l) : !isa.tile<32x1xf32>
    isa.vector "zero"(%o) : !isa.tile<32x64xf32>
    isa.loop %j = [0] to [{tiles}] attributes {{sweep}} {{
      %s = isa.alloc scratch : !isa.tile<32x128xf32>
      isa.composite {{
        isa.vector "zero"(%s) : !isa.tile<32x128xf32>
        isa.loop %i = [0] to [2] {{
          %k = isa.alloc scratch slots 2 : !isa.tile<64x64xbf16>
          isa.load %k, @k[%j * 128 + %i * 64, 0] : !isa.tile<64x64xbf16>
          isa.matrix %s, %q, %k columns [%i * 64] {{transpose_b}} : !isa.tile<32x128xf32>,
              !isa.tile<32x64xbf16>, !isa.tile<64x64xbf16>
        }}
        isa.vector "scale"(%s, %s) params [4593671619917905920] : !isa.tile<32x128xf32>,
            !isa.tile<32x128xf32>
      }}
      isa.scope {{
        %p = isa.alloc scratch : !isa.tile<32x128xbf16>
        %c = isa.alloc scratch : !isa.tile<32x1xf32>
        isa.vector "softmax_step"(%p, %s, %m, %l, %c) params [4607182418800017408, {keys}, 32,
            %j * 128, {keys}] : !isa.tile<32x128xbf16>, !isa.tile<32x128xf32>, !isa.tile<32x1xf32>,
            !isa.tile<32x1xf32>, !isa.tile<32x1xf32>
        %pv = isa.alloc scratch : !isa.tile<32x64xf32>
        isa.composite {{
          isa.vector "zero"(%pv) : !isa.tile<32x64xf32>
          isa.loop %i = [0] to [2] {{
            %v = isa.alloc scratch slots 2 : !isa.tile<64x64xbf16>
            isa.load %v, @v[%j * 128 + %i * 64, 0] : !isa.tile<64x64xbf16>
            isa.matrix %pv, %p, %v inner [%i * 64] : !isa.tile<32x64xf32>, !isa.tile<32x128xbf16>,
                !isa.tile<64x64xbf16>
          }}
        }}
        isa.vector "rescale"(%o, %c) : !isa.tile<32x64xf32>, !isa.tile<32x1xf32>
        isa.vector "add"(%o, %o, %pv) : !isa.tile<32x64xf32>, !isa.tile<32x64xf32>,
            !isa.tile<32x64xf32>
      }}
    }}
    %y = isa.alloc scratch : !isa.tile<32x64xbf16>
    isa.vector "lse_finish"(%y, %l, %o) : !isa.tile<32x64xbf16>, !isa.tile<32x1xf32>,
        !isa.tile<32x64xf32>
    isa.store %y, @y[0, 0] : !isa.tile<32x64xbf16>
  }}
  func.func @layer() attributes {{kernel.arguments = [@q, @k, @v], kernel.results = [@y]}} {{
    isa.launch @sweep [@sweep grid 1] queue "compute"
    func.return
  }}"""
_SOFTMAX = KERNEL[KERNEL.index('isa.vector "softmax_step"') : KERNEL.index("        %pv =")]
SOFTMAX = (
    ("mask", "s s"),
    ("row_max", "n s"),
    ("maximum", "n m n"),
    ("exp_difference", "p s n"),
    ("exp_difference", "c m n"),
    ("copy", "m n"),
    ("row_sum", "n p"),
    ("mul", "l l c"),
    ("add", "l l n"),
)
"""The softmax of a tile, function by function, with the tiles of each."""
_TYPES = {"s": "32x128xf32", "p": "32x128xbf16"}


def _operation(name: str, tiles: str) -> str:
    parameters = " params [{keys}, 32, %j * 128, {keys}]" if name == "mask" else ""
    operands = ", ".join(f"%{tile}" for tile in tiles.split())
    types = ", ".join(f"!isa.tile<{_TYPES.get(tile, '32x1xf32')}>" for tile in tiles.split())
    return f'        isa.vector "{name}"({operands}){parameters} : {types}\n'


OPERATIONS = KERNEL.replace(
    _SOFTMAX,
    "%n = isa.alloc scratch : !isa.tile<32x1xf32>\n"
    + "".join(_operation(name, tiles) for name, tiles in SOFTMAX),
)
"""The same with the softmax in operations of the MATH engine one by one."""


def machine(
    *,
    issue: int = 10,
    scheduler: int = 1,
    gemm: float = 1,
    math: float = 1,
    stateful: bool = True,
    queue: int | None = None,
) -> Target:
    """One element; costs of commands and of the scheduler in cycles, rates of engines as
    factors."""
    target = load_target("ahbm", mesh={"sip": 1, "group": 1, "cube": 1, "pe": 1})
    costs = dict.fromkeys(target.issue_ps, int(issue * target.cycle_ps))
    costs["scheduler"] = int(scheduler * target.cycle_ps)
    rates = {t: round(v * gemm) for t, v in target.matrix_flops_per_clock.items()}
    return replace(
        target,
        issue_ps=costs,
        queue_commands=target.queue_commands if queue is None else queue,
        stateful_composites=stateful,
        matrix_flops_per_clock=rates,
        vector_ops_per_clock=round(target.vector_ops_per_clock * math),
        special_lanes=target.special_lanes * math,
    )


def parse(text: str) -> ModuleOp:
    context = Context()
    for name, factory in Universe.get_multiverse().all_dialects.items():
        context.register_dialect(name, factory)
    return Parser(context, text).parse_module()


def sweep(tiles: int, kernel: str = KERNEL) -> ModuleOp:
    """The module at the level of instructions, before commands are scheduled."""
    keys = tiles * KEYS
    shapes = (
        ("q", ROWS, "input"),
        ("k", keys, "state"),
        ("v", keys, "state"),
        ("y", ROWS, "output"),
    )
    text, address = "", 0
    for name, rows, role in shapes:
        size = rows * DIM * 2
        text += BUFFER.format(
            name=name, rows=rows, columns=DIM, dtype="bf16", address=address, bytes=size, role=role
        )
        address += size
    return parse("module {" + text + kernel.format(tiles=tiles, keys=keys) + "\n}")


def scheduled(
    module: ModuleOp, target: Target, schedule: str, sink: RemarkSink | None = None
) -> ModuleOp:
    """A module behind ``assign-engines``."""
    sink = sink or RemarkSink()
    ScheduleCommands(attention_schedule=schedule).run(module, target, sink)
    module.verify()
    PlanScratch().run(module, target, sink)
    AssignEngines().run(module, target, sink)
    module.verify()
    return module


def program(tiles: int, target: Target, schedule: str, kernel: str = KERNEL) -> Program:
    return pack(scheduled(sweep(tiles, kernel), target, schedule), target)


def simulated(tiles: int, target: Target, schedule: str, kernel: str = KERNEL) -> SimulationResult:
    packed = program(tiles, target, schedule, kernel)
    return simulate(packed, SimulationOptions(log=True, skew=False, target=target))


def matrix_time(target: Target) -> tuple[int, int]:
    """Picoseconds of the products of a tile of keys: queries with keys, weights with values."""
    scores = matrix_ps(target, "bf16", ROWS, 64, DIM)
    return 2 * scores, 2 * matrix_ps(target, "bf16", ROWS, DIM, 64)


def vector_time(target: Target, name: str, *sizes: int) -> int:
    return vector_ps(target, *BY_NAME[name].operations(sizes))
