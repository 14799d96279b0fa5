"""The cost model and the simulator agree on what the compiler builds."""

from __future__ import annotations

import pytest
from xdsl.context import Context
from xdsl.parser import Parser
from xdsl.universe import Universe

from starc.analysis.cost import compulsory, launch_cost
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.dialects.kernel import LaunchOp
from starc.dialects.nn import ModelFacts
from starc.dialects.target import set_target
from starc.passes.base import RemarkSink
from starc.passes.manager import instantiate
from starc.passes.pipeline import PASSES
from starc.passes.program.pack import pack
from starc.passes.selection import PassSpec
from starc.simulator.run import simulate
from starc.targets.loader import load_target

TOLERANCE = 0.15  # for launches of 20 us and more
KERNEL_AND_ISA = [entry.name for entry in PASSES if entry.level in ("kernel", "isa")]


def gemm(rows: int, columns: tuple[int, ...], k: int, *, query: int = 1) -> str:
    x = f"tensor<{rows // query}x{query}x{k}xbf16>"
    results = ", ".join(f"tensor<{rows // query}x{query}x{n}xbf16>" for n in columns)
    weights = "\n".join(
        f"nn.parameter @f.w{i} : tensor<{k}x{n}xbf16>" for i, n in enumerate(columns)
    )
    body = "\n".join(
        f"""  %w{i} = nn.read @f.w{i} : tensor<{k}x{n}xbf16>
  %y{i} = nn.linear %x, %w{i} : {x}, tensor<{k}x{n}xbf16> -> {result}"""
        for i, (n, result) in enumerate(zip(columns, results.split(", "), strict=True))
    )
    values = ", ".join(f"%y{i}" for i in range(len(columns)))
    return f"""{weights}
func.func @f(%x : {x}) -> ({results}) {{
{body}
  func.return {values} : {results}
}}"""


def attention(batch: int, query: int, group: int, keys: int) -> str:
    q = f"tensor<{batch}x{query}x{group * 128}xbf16>"
    cache = f"tensor<{batch}x1x{keys}x128xbf16>"
    return f"""func.func @f(%q : {q}, %k : {cache}, %v : {cache}) -> {q} {{
  %y = nn.attention %q, %k, %v {{head_dim = 128 : i64, start = {keys - query} : i64,
       scale = 0.088 : f64, causal}} : {q}, {cache}, {cache} -> {q}
  func.return %y : {q}
}}"""


def times(text: str, target_name: str) -> tuple[float, float, float]:
    """Estimated, simulated and compulsory seconds of the one kernel of a function, run by every
    device of one GPU at once."""
    target = load_target(target_name, 1)
    context = Context()
    for name, factory in Universe.get_multiverse().all_dialects.items():
        context.register_dialect(name, factory)
    inner = target.devices_per_gpu
    head = f'sharding.mesh @node = ["gpu"=1 : outer xgmi, "xcd"={inner} : inner usr]\n'
    module = Parser(context, f"{head}nn.stack [@f * 1]\n{text}").parse_module()
    set_target(module, target)
    ModelFacts("one kernel", "decode", 1, 1, 1).write_to(module)
    estimate = bound = 0.0
    for name in KERNEL_AND_ISA:
        if name == "lower-to-isa":
            (launch,) = [op for op in module.walk() if isinstance(op, LaunchOp)]
            rates = DeviceRates.of(target)
            estimate = launch_cost(launch, rates).seconds
            bound = compulsory(launch).bound(rates).seconds
        instantiate(PassSpec(name)).run(module, target, RemarkSink())
    result = simulate(pack(module, target))
    return estimate, sum(launch.time_ps for launch in result.launches) * 1e-12, bound


CASES = {
    "gate_up": (gemm(8, (448, 448), 8192), "mi300x-cpx", 0.9),
    "lm_head": (gemm(8, (2004,), 8192), "mi300x-cpx", 0.9),
    "down, whole GPU": (gemm(8, (8192,), 7168), "mi300x-spx", 0.9),
    "prefill gate_up": (gemm(2048, (448, 448), 8192, query=2048), "mi300x-cpx", 0.65),
    "square": (gemm(4096, (4096,), 4096, query=4096), "mi300x-cpx", 0.9),
    "attention 16k": (attention(8, 1, 8, 16384), "mi300x-cpx", 0.9),
    "attention 128k": (attention(8, 1, 8, 131072), "mi300x-cpx", 0.9),
    "attention 128k, whole GPU": (attention(8, 1, 8, 131072), "mi300x-spx", 0.9),
    "prefill attention": (attention(1, 4096, 1, 4096), "mi300x-cpx", 0.55),
}


@pytest.mark.parametrize("name", CASES)
def test_estimates_hold_and_schedules_reach_their_bounds(name: str) -> None:
    text, target, efficiency = CASES[name]
    estimate, simulated, bound = times(text, target)
    assert simulated >= 20e-6
    assert abs(estimate / simulated - 1) <= TOLERANCE
    assert bound / simulated >= efficiency
