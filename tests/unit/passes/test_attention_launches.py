"""Attention launches from their values to verified instructions, by the passes' own choices."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.core.sharding.shard_map import Cyclic
from starc.dialects import isa
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_buffers import BufferOp
from starc.passes.base import RemarkSink
from starc.passes.isa.lower_to_isa import LowerToIsa
from starc.passes.isa.pipeline_loops import PipelineLoops
from starc.passes.isa.plan_scratch import PlanScratch
from starc.passes.isa.verify_schedule import VerifySchedule
from starc.passes.kernel.map_workgroups import MapWorkgroups
from starc.passes.kernel.plan_memory import PlanMemory
from starc.passes.kernel.tile_kernels import TileKernels
from starc.passes.verification import verify
from starc.targets.loader import load_target
from tests.unit.interpreter.modules import parse
from tests.unit.passes.sharded_values import split, type_text

MESH = (2, 4)


def compiled(
    query: int, context: int, body: str, results: list[str], q: str
) -> tuple[ModuleOp, LaunchOp]:
    """A function of one attention launch over a cache that is dealt out over ``xcd``, and the
    launch as it is before it is lowered."""
    shape = (2, 1, context, 128)
    cache = f"tensor<{type_text(split(MESH, 4, 2, ['xcd'], Cyclic(1, by=0)), shape)}>"
    text = f"""
    builtin.module {{
      sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=4 : inner usr]
      func.func @f(%q : {q}, %k : {cache}, %v : {cache})
          -> ({", ".join(results)}) {{
        %y:{len(results)} = kernel.launch @f.attention attention
            (%a = %q : {q}, %b = %k : {cache}, %c = %v : {cache})
            -> ({", ".join(results)}) {{
          {body.replace("CACHE", cache)}
        }}
        func.return {", ".join(f"%y#{i}" for i in range(len(results)))} : {", ".join(results)}
      }}
    }}"""
    module, sink = parse(text), RemarkSink()
    target = load_target("mi300x-cpx", mesh={"gpu": 2, "xcd": 4})
    for step in (TileKernels(), MapWorkgroups(), PlanMemory()):
        step.run(module, target, sink)
        verify(module, locations=False)
    launch = next(op for op in module.walk() if isinstance(op, LaunchOp)).clone()
    for step in (LowerToIsa(), PipelineLoops(), PlanScratch(), VerifySchedule()):
        step.run(module, target, sink)
        verify(module, locations=False)
    return module, launch


PROPERTIES = "head_dim = 128 : i64, scale = 0.088 : f64, causal"


@pytest.mark.parametrize(("query", "context"), [(1, 32768), (1, 3), (256, 4096)])
def test_partial_attention_is_compiled(query: int, context: int):
    m, o = f"tensor<2x{query}x8xf32>", f"tensor<2x{query}x1024xf32>"
    q = f"tensor<2x{query}x1024xbf16>"
    body = f"""
      %0, %1, %2 = nn.partial_attention %a, %b, %c
        {{start = {context - query} : i64, {PROPERTIES}}} : {q}, CACHE, CACHE -> {m}, {m}, {o}
      kernel.yield %0, %1, %2 : {m}, {m}, {o}"""
    module, launch = compiled(query, context, body, [m, m, o], q)
    assert len(launch.integers("grid")) == 1
    assert launch.integer("split") > 1 or context < 4097
    assert any(isinstance(op, isa.KernelOp) for op in module.ops)


@pytest.mark.parametrize(("query", "waits"), [(64, True), (4096, False)])
def test_caches_of_peers_are_awaited_where_all_workgroups_are_resident(query: int, waits: bool):
    """More workgroups than a device holds wait in a launch before."""
    q = f"tensor<{type_text(split(MESH, 3, 0, []), (2, query, 1024))}>"
    whole = f"tensor<{type_text(split(MESH, 4, 0, []), (2, 1, query, 128))}>"
    gather = f'on @node axes = ["xcd"] dim = 2 : CACHE -> {whole}'
    body = f"""
      %0 = collective.all_gather %b {gather}
      %1 = collective.all_gather %c {gather}
      %2 = nn.attention %a, %0, %1 {{start = 0 : i64, {PROPERTIES}}} : {q}, {whole}, {whole} -> {q}
      kernel.yield %2 : {q}"""
    module, launch = compiled(query, query, body, [q], q)
    assert (launch.waits is not None) == waits
    launches = [op for op in module.walk() if isinstance(op, isa.LaunchOp)]
    assert len(launches) == (1 if waits else 2)
    spaces = {op.sym_name.data: op.space.data for op in module.ops if isinstance(op, BufferOp)}
    assert [name for name, space in spaces.items() if space == "symmetric"] == ["f.k", "f.v"]
    gets = [op for op in module.walk() if isinstance(op, isa.GetOp)]
    assert len(gets) == 2
    assert all(op.cached is not None for op in gets)
