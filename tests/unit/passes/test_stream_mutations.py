"""Kernels of several streams without one of their semaphores: ``verify-schedule`` objects to every
one that orders something, and so does the concurrent interpreter, which knows nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Operation

from starc.diagnostics import InputError
from starc.dialects import isa
from starc.dialects.kernel_buffers import BufferOp
from starc.interpreter.concurrent import ConcurrentMachine, ScheduleError
from starc.passes.base import RemarkSink
from starc.passes.isa.assign_engines import AssignEngines
from starc.passes.isa.plan_scratch import PlanScratch
from starc.passes.isa.scheduling.stream_templates import stream_problems
from starc.passes.isa.verify_schedule import VerifySchedule
from starc.targets.loader import load_target
from starc.targets.target import Target
from tests.unit.interpreter.isa_modules import buffer, launches
from tests.unit.interpreter.modules import parse

AXES = [("sip", 1), ("group", 1), ("cube", 1), ("pe", 1)]
MESH = (
    'sharding.mesh @node = ["sip"=1 : outer ucie, "group"=1 : outer noc, "cube"=1 : inner noc, '
    '"pe"=1 : inner pe_mesh]\n'
)
HEAD = (
    "coords(%device, %sip, %group, %cube, %pe, %wg) "
    'attributes {kernel_class = "attention", waves = 4 : i64}'
)
STEPS = 5
KEYS = 64  # of a step, in four pieces
Q, K, S = "!isa.tile<2x16xbf16>", "!isa.tile<16x16xbf16>", "!isa.tile<2x64xf32>"
P, R = "!isa.tile<2x64xbf16>", "!isa.tile<2x1xf32>"
D, Y = "!isa.tile<2x16xf32>", "!isa.tile<2x16xbf16>"


def attention(*, pipelined: bool = False, wide: int = 0) -> str:
    """A sweep of flash attention; ``pipelined``: the scores of a step are computed while the step
    before is used. ``wide``: rows of a tile that is in use before the sweep, and of one after."""
    slots = " slots 2" if pipelined else ""
    early = " attributes {stage = 0 : i64}" if pipelined else ""
    late = " attributes {stage = 1 : i64}" if pipelined else ""
    late_op = " {stage = 1 : i64}" if pipelined else ""
    around = f"!isa.tile<{wide}x16xf32>"
    extra = [
        f"""isa.scope {{
    %w{name} = isa.alloc scratch : {around}
    isa.load %w{name}, @w[0, 0] : {around}
    isa.vector "scale"(%w{name}, %w{name}) params [4602678819172646912] : {around}, {around}
    isa.store %w{name}, @{to}[0, 0] : {around}
  }}"""
        if wide
        else ""
        for name, to in (("0", "w0"), ("1", "w1"))
    ]
    return (
        MESH
        + buffer("q", "2x16xbf16", 4096, 64, role="input")
        + buffer("k", f"{STEPS * KEYS}x16xbf16", 8192, STEPS * KEYS * 32, role="input")
        + buffer("v", f"{STEPS * KEYS}x16xbf16", 32768, STEPS * KEYS * 32, role="input")
        + buffer("y", "2x16xbf16", 65536, 64, role="output")
        + "".join(
            buffer(name, f"{wide or 1}x16xf32", 2**20 * (i + 1), (wide or 1) * 64, role=role)
            for i, (name, role) in enumerate((("w", "input"), ("w0", "output"), ("w1", "output")))
        )
        + f"""isa.kernel @flash {HEAD} {{
  {extra[0]}
  %q = isa.alloc scratch : {Q}
  %m = isa.alloc register : {R}
  %l = isa.alloc register : {R}
  %o = isa.alloc register : {D}
  isa.load %q, @q[0, 0] : {Q}
  isa.vector "fill_neg_inf"(%m) : {R}
  isa.vector "zero"(%l) : {R}
  isa.vector "zero"(%o) : {D}
  isa.loop %j = [0] to [{STEPS}] {{
    %s = isa.alloc register{slots} : {S}
    isa.composite{early} {{
      isa.vector "zero"(%s) : {S}
      isa.loop %i = [0] to [4] {{
        %k = isa.alloc scratch slots 2 : {K}
        isa.load %k, @k[%j * {KEYS} + %i * 16, 0] : {K}
        isa.matrix %s, %q, %k columns [%i * 16] {{transpose_b}} : {S}, {Q}, {K}
      }}
    }}
    isa.scope {{
      %p = isa.alloc register : {P}
      %c = isa.alloc register : {R}
      isa.vector "softmax_step"(%p, %s, %m, %l, %c) params [4607182418800017408, {STEPS * KEYS}, 2,
          %j * {KEYS}, {STEPS * KEYS}]{late_op} : {P}, {S}, {R}, {R}, {R}
      %d = isa.alloc register : {D}
      isa.composite{late} {{
        isa.vector "zero"(%d) : {D}
        isa.loop %i = [0] to [4] {{
          %v = isa.alloc scratch slots 2 : {K}
          isa.load %v, @v[%j * {KEYS} + %i * 16, 0] : {K}
          isa.matrix %d, %p, %v inner [%i * 16] : {D}, {P}, {K}
        }}
      }}
      isa.vector "rescale"(%o, %c){late_op} : {D}, {R}
      isa.vector "add"(%o, %o, %d){late_op} : {D}, {D}, {D}
    }}
  }}
  isa.scope {{
    %y = isa.alloc register : {Y}
    isa.vector "lse_finish"(%y, %l, %o) : {Y}, {R}, {D}
    isa.store %y, @y[0, 0] : {Y}
  }}
  {extra[1]}
}}
"""
        + launches('isa.launch @flash [@flash grid 1] queue "compute"')
    )


@cache
def target() -> Target:
    return load_target("ahbm", mesh=dict(AXES))


def compiled(text: str) -> ModuleOp:
    module = parse(text)
    for step in (PlanScratch(), AssignEngines(), VerifySchedule()):
        step.run(module, target(), RemarkSink())
        module.verify()
    return module


CASES = {
    "blocking": attention(),
    "pipelined": attention(pipelined=True),
    # Each of the wide tiles takes more than half of the scratch memory, so they share bytes.
    "shared": attention(wide=8000),
}


@cache
def case(name: str) -> ModuleOp:
    return compiled(CASES[name])


def semaphores(module: ModuleOp) -> list[isa.SemaphoreOp]:
    return [op for op in module.walk() if isinstance(op, isa.SemaphoreOp)]


def objections(module: ModuleOp) -> list[str]:
    kernel = next(op for op in module.ops if isinstance(op, isa.KernelOp))
    return [problem.kind for problem in stream_problems(kernel, AXES, 1)]


def runs(module: ModuleOp) -> bool:
    """Whether the concurrent interpreter finds nothing."""
    random = np.random.default_rng(0)
    shapes = {"q": (2, 16), "k": (STEPS * KEYS, 16), "v": (STEPS * KEYS, 16)}
    shapes["w"] = next(
        (op.shape[0], op.shape[1])
        for op in module.ops
        if isinstance(op, BufferOp) and op.sym_name.data == "w"
    )
    contents = {(0, name): random.normal(size=shape) for name, shape in shapes.items()}
    try:
        for seed in range(2):
            ConcurrentMachine(module, contents, seed=seed).run()
    except ScheduleError:
        return False
    return True


def mutants(name: str) -> Iterator[tuple[str, bool, ModuleOp]]:
    """A case with one semaphore left out, or starting higher or lower, and whether that joins a
    stream to itself."""
    for index in range(len(semaphores(case(name)))):
        for change in ("left out", "higher", "lower"):
            module = case(name).clone()
            semaphore = semaphores(module)[index]
            initial = semaphore.initial.value.data
            if change == "left out":
                users = [use.operation for use in semaphore.semaphore.uses]
                for user in users:
                    user.detach()
            elif change == "lower" and not initial:
                continue
            else:
                value = initial + (1 if change == "higher" else -1)
                semaphore.properties["initial"] = IntegerAttr(value, i64)
            own = semaphores(case(name))[index].semaphore
            alone = len({_stream(use.operation) for use in own.uses}) == 1
            yield f"semaphore {index}, which starts at {initial}, {change}", alone, module


@pytest.mark.parametrize("name", CASES)
def test_compiled(name: str):
    assert objections(case(name)) == []
    assert runs(case(name))


def test_wide_tiles_share():
    allocs = [op for op in case("shared").walk() if isinstance(op, isa.AllocOp)]
    wide = [op.offset for op in allocs if op.type.rows == 8000]
    assert len(wide) == 2
    assert wide[0] == wide[1]


@pytest.mark.parametrize("name", CASES)
def test_both_object_to_the_same(name: str):
    """What either checker accepts the other one accepts: queues of commands order nothing but
    time, all other semaphores matter. One that keeps a load behind a store of its own stream, whose
    bytes it takes, the interpreter does not miss: there a store has read its tile at once."""
    accepted: list[str] = []
    for what, alone, module in mutants(name):
        found = objections(module)
        assert bool(found) != runs(module) or (alone and found), f"{what}: {found}"
        if not found:
            accepted.append(what)
    # A credit less than there are slots, or an entry less in a queue, is slow and right.
    slow = ("at 2,", f"at {target().queue_commands},")
    assert not [w for w in accepted if "lower" in w and not any(each in w for each in slow)]


@pytest.mark.parametrize("name", ["blocking", "pipelined"])
def test_what_orders_something(name: str):
    """Of the semaphores that join engines directly, none is superfluous."""
    module = case(name)
    for index, semaphore in enumerate(semaphores(module)):
        ends = {_stream(use.operation) for use in semaphore.semaphore.uses}
        if ends & {"cpu", "scheduler"}:
            continue
        mutant = module.clone()
        for use in list(semaphores(mutant)[index].semaphore.uses):
            use.operation.detach()
        assert objections(mutant), index


def _stream(op: Operation | None) -> str:
    while op is not None and not isinstance(op, isa.StreamOp):
        op = op.parent_op()
    assert op is not None
    return op.engine.data


@pytest.mark.parametrize("name", ["blocking", "pipelined"])
def test_one_end_left_out(name: str):
    """Every acquire and every release alone."""
    ends = [op for op in case(name).walk() if isinstance(op, isa.AcquireOp | isa.ReleaseOp)]
    for index in range(len(ends)):
        module = case(name).clone()
        found = [op for op in module.walk() if isinstance(op, isa.AcquireOp | isa.ReleaseOp)]
        found[index].detach()
        assert objections(module) == ["unbalanced"]


def test_tiles_moved_together():
    """Two tiles that are alive together on the same bytes."""
    count = len([op for op in case("blocking").walk() if isinstance(op, isa.AllocOp)])
    for first in range(count):
        for second in range(first):
            module = case("blocking").clone()
            allocs = [op for op in module.walk() if isinstance(op, isa.AllocOp)]
            allocs[first].offset = allocs[second].offset
            found = objections(module)
            assert bool(found) != runs(module), (first, second, found)


def test_the_pass_names_both_instructions():
    module = case("blocking").clone()
    arrival = next(op for op in semaphores(module) if op.semaphore.name_hint == "dma_to_gemm")
    for use in list(arrival.semaphore.uses):
        use.operation.detach()
    with pytest.raises(InputError) as caught:
        VerifySchedule().run(module, target(), RemarkSink())
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message == (
        "@flash: gemm's isa.matrix of iteration [0, 0] reads %q before dma's isa.load @q has "
        "written it"
    )
