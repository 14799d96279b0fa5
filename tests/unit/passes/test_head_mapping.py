"""Query heads of a KV head on one die: what its L2 then serves."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_attributes import integers
from starc.simulator.results.result import SimulationResult
from starc.simulator.run import simulate
from starc.targets.loader import load_target
from starc.validation.context import build

HEADS, KV_HEADS, TOKENS = 64, 8, 1024


def simulated(dies: int) -> SimulationResult:
    """A prefill in which heads are dealt out to so many dies."""
    target = load_target("mi300x-spx", 1)
    q = f"tensor<1x{TOKENS}x{HEADS * 128}xbf16>"
    cache = f"tensor<1x{KV_HEADS}x{TOKENS}x128xbf16>"

    def prepare(module: ModuleOp) -> None:
        for op in module.walk():
            if isinstance(op, LaunchOp):
                op.properties["swizzle"] = integers((1, dies))

    text = f"""func.func @f(%q : {q}, %k : {cache}, %v : {cache}) -> {q} {{
  %y = nn.attention %q, %k, %v {{head_dim = 128 : i64, start = 0 : i64, scale = 0.088 : f64,
       causal}} : {q}, {cache}, {cache} -> {q}
  func.return %y : {q}
}}"""
    return simulate(build(text, target, prepare=prepare))


def hits(result: SimulationResult) -> float:
    traffic = result.traffic
    return traffic.l2_hit_bytes / (traffic.l2_hit_bytes + traffic.l2_miss_bytes)


def test_heads_that_share_keys_hit_the_l2_of_their_die() -> None:
    spread, dealt = simulated(1), simulated(8)
    # Public counters of kernels that map heads so: 0.8 to 0.97.
    assert 0.8 <= hits(dealt) <= 0.97
    assert hits(spread) < hits(dealt) - 0.1
    # Each die reads the keys of one KV head instead of all eight.
    assert dealt.traffic.hbm_remote_bytes < 0.5 * spread.traffic.hbm_remote_bytes
    assert dealt.time_ps == pytest.approx(spread.time_ps, rel=0.1)
