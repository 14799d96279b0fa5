"""Products with a collective around them, as launches: unfused, fused, and each half alone."""

from __future__ import annotations

from typing import Literal

from xdsl.dialects.builtin import ModuleOp

from starc.dialects.target import set_target
from starc.passes.base import Remark, RemarkSink
from starc.passes.manager import instantiate
from starc.passes.pipeline import LOWERING, OptionValue
from starc.passes.program.pack import pack
from starc.passes.selection import PassSpec
from starc.simulator.results.result import SimulationResult
from starc.simulator.run import simulate
from starc.targets.loader import load_target
from starc.targets.target import Target
from tests.unit.interpreter.modules import parse

Half = Literal["both", "exchange", "product"]
FUSION = "fuse-compute-collectives"


def partition() -> Target:
    """One GPU of eight dies."""
    return load_target("mi300x-cpx", gpus=1)


def typed(
    shape: tuple[int, ...], dims: tuple[str, ...], *, ranks: int = 8, partial: str = ""
) -> str:
    """A local tensor type of a global shape over the inner axis."""
    local = [n // ranks if dim else n for n, dim in zip(shape, dims, strict=True)]
    cut = ", ".join("{" + (f'"{dim}"' if dim else "") + "}" for dim in dims)
    suffix = f', partial = sum{{"{partial}"}}' if partial else ""
    extents = "x".join(map(str, local))
    return f"tensor<{extents}xbf16, #sharding.of<@node, [{cut}]{suffix}, global = {list(shape)}>>"


def gather_product(m: int, k: int, n: int, half: Half = "both") -> str:
    """x in slices of K on 8 dies, gathered, times weights split by columns; x is the result of an
    earlier launch."""
    x, g = typed((m, 1, k), ("", "", "xcd")), typed((m, 1, k), ("", "", ""))
    w, y = typed((k, n), ("", "xcd")), typed((m, 1, n), ("", "", "xcd"))
    gather = f"""
    %x = kernel.launch @f.make elementwise (%z1 = %z : {x}) -> ({x}) {{
      %z2 = nn.silu %z1 : {x} -> {x}
      kernel.yield %z2 : {x}
    }}
    %g = kernel.launch @f.gather collective (%a = %x : {x}) -> ({g}) {{
      %b = collective.all_gather %a on @node axes = ["xcd"] dim = 2
        {{algorithm = "ring", transport = "bulk"}} : {x} -> {g}
      kernel.yield %b : {g}
    }}"""
    product = f"""
    %w = nn.read @f.weight : {w}
    %y = kernel.launch @f.product gemm (%c = %g : {g}, %d = %w : {w}) -> ({y}) {{
      %e = nn.linear %c, %d : {g}, {w} -> {y}
      kernel.yield %e : {y}
    }}"""
    weight = f"nn.parameter @f.weight : {w}"
    if half == "exchange":
        return module("", f"%z: {x}", gather, "%g", g)
    if half == "product":
        return module(weight, f"%g: {g}", product, "%y", y)
    return module(weight, f"%z: {x}", gather + product, "%y", y)


def product_scatter(m: int, k: int, n: int, half: Half = "both") -> str:
    """x and weights split along K on 8 dies; the columns of the partial result are scattered."""
    x, w = typed((m, 1, k), ("", "", "xcd")), typed((k, n), ("xcd", ""))
    p = typed((m, 1, n), ("", "", ""), partial="xcd")
    y = typed((m, 1, n), ("", "", "xcd"))
    product = f"""
    %w = nn.read @f.weight : {w}
    %p = kernel.launch @f.product gemm (%c = %x : {x}, %d = %w : {w}) -> ({p}) {{
      %e = nn.linear %c, %d : {x}, {w} -> {p}
      kernel.yield %e : {p}
    }}"""
    scatter = f"""
    %y = kernel.launch @f.scatter collective (%a = %p : {p}) -> ({y}) {{
      %b = collective.reduce_scatter %a on @node axes = ["xcd"] reduction = sum dim = 2
        {{algorithm = "ring", transport = "bulk"}} : {p} -> {y}
      kernel.yield %b : {y}
    }}"""
    weight = f"nn.parameter @f.weight : {w}"
    if half == "exchange":
        return module("", f"%p: {p}", scatter, "%y", y)
    if half == "product":
        return module(weight, f"%x: {x}", product, "%p", p)
    return module(weight, f"%x: {x}", product + scatter, "%y", y)


def product_sum(m: int, k: int, n: int, half: Half = "both") -> str:
    """x and weights split along K on 8 dies; all dies need the result, and another sum as well."""
    x, w = typed((m, 1, k), ("", "", "xcd")), typed((k, n), ("xcd", ""))
    p, y = typed((m, 1, n), ("", "", ""), partial="xcd"), typed((m, 1, n), ("", "", ""))
    q, z = typed((1, 1, 8), ("", "", ""), partial="xcd"), typed((1, 1, 8), ("", "", ""))
    product = f"""
    %w = nn.read @f.weight : {w}
    %p = kernel.launch @f.product gemm (%c = %x : {x}, %d = %w : {w}) -> ({p}) {{
      %e = nn.linear %c, %d : {x}, {w} -> {p}
      kernel.yield %e : {p}
    }}"""
    total = f"""
    %y = kernel.launch @f.sum collective (%a = %p : {p}) -> ({y}) {{
      %b = collective.all_reduce %a on @node axes = ["xcd"] reduction = sum
        {{algorithm = "one_shot", transport = "device_put"}} : {p} -> {y}
      kernel.yield %b : {y}
    }}"""
    again = f"""
    %z = kernel.launch @f.again collective (%a = %q : {q}) -> ({z}) {{
      %b = collective.all_reduce %a on @node axes = ["xcd"] reduction = sum
        {{algorithm = "one_shot", transport = "device_put"}} : {q} -> {z}
      kernel.yield %b : {z}
    }}"""
    weight = f"nn.parameter @f.weight : {w}"
    if half == "exchange":
        return module("", f"%p: {p}", total, "%y", y)
    if half == "product":
        return module(weight, f"%x: {x}", product, "%p", p)
    return module(weight, f"%x: {x}, %q: {q}", product + total + again, "%y", y)


def module(parameters: str, arguments: str, body: str, result: str, type_: str) -> str:
    return f"""builtin.module {{
  sharding.mesh @node = ["gpu"=1 : outer xgmi, "xcd"=8 : inner usr]
  {parameters}
  func.func @f({arguments}) -> {type_} {{
    {body}
    func.return {result} : {type_}
  }}
}}"""


def compiled(
    text: str, options: dict[str, OptionValue] | None = None
) -> tuple[ModuleOp, list[Remark]]:
    """The instructions of a module, fused with these options or, without, as it is."""
    target = partition()
    found = parse(text)
    set_target(found, target)
    sink = RemarkSink()
    fusion = () if options is None else ((FUSION, options),)
    for name, given in (*fusion, *LOWERING):
        sink.pass_name = name
        instantiate(PassSpec(name, given)).run(found, target, sink)
    return found, [remark for name, remark in sink.remarks if name == FUSION]


def simulated(text: str, options: dict[str, OptionValue] | None = None) -> SimulationResult:
    """Times of a module, fused with these options or as it is."""
    return simulate(pack(compiled(text, options)[0], partition()))


def launch_us(result: SimulationResult, name: str) -> float:
    """Microseconds of the launches whose name begins so, from the first start to the last end."""
    found = [launch for launch in result.launches if launch.name.startswith(name)]
    return (max(x.end_ps for x in found) - min(x.start_ps for x in found)) * 1e-6
