"""One collective of a node, compiled as asked and simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from starc.core.sharding.encoding import Encoding
from starc.core.sharding.mesh import AxisRef, Mesh, axes_text
from starc.dialects.nn import ModelFacts
from starc.dialects.target import set_target
from starc.passes.base import RemarkSink
from starc.passes.manager import instantiate
from starc.passes.pipeline import LOWERING, OptionValue
from starc.passes.program.pack import pack
from starc.passes.selection import PassSpec
from starc.simulator.results.result import SimulationResult
from starc.simulator.run import simulate
from starc.targets.target import Target
from tests.unit.test_pass_examples import parse


@dataclass(frozen=True)
class Exchange:
    """A collective of a value of ``payload`` bytes (what one device holds in full) over ``axes``
    of a node, along the last dimension."""

    operation: str
    axes: tuple[AxisRef, ...]
    payload: int

    def shape(self) -> tuple[int, int, int]:
        """[1, rows, columns] in bf16, of at most 8192 columns."""
        columns = min(8192, self.payload // 2)
        return 1, self.payload // 2 // columns, columns

    def text(self, target: Target) -> str:
        mesh = Mesh.from_rows("node", target.mesh)
        plain = Encoding.replicated(mesh, 3)
        partial, split = plain.with_partial("sum", self.axes), plain.with_dim(2, self.axes)
        before, after, clauses = {
            "all_reduce": (partial, plain, "reduction = sum"),
            "reduce_scatter": (partial, split, "reduction = sum dim = 2"),
            "all_gather": (split, plain, "dim = 2"),
            "all_to_all": (split, plain.with_dim(1, self.axes), "split_dim = 1 concat_dim = 2"),
        }[self.operation]
        a, b = self._type(before), self._type(after)
        rows = ", ".join(f'"{row[0]}"={row[1]} : {row[2]} {row[3]}' for row in target.mesh)
        return f"""
sharding.mesh @node = [{rows}]
nn.stack [@f * 1]
func.func @f(%x : {a}) -> {b} {{
  %0 = collective.{self.operation} %x on @node axes = [{axes_text(self.axes)}] {clauses}
    : {a} -> {b}
  func.return %0 : {b}
}}
"""

    def _type(self, encoding: Encoding) -> str:
        whole = self.shape()
        extents = "x".join(map(str, encoding.local_shape(whole)))
        return f"tensor<{extents}xbf16, #sharding.of<@node, {encoding}, global = {list(whole)}>>"


def compiled(
    exchange: Exchange,
    target: Target,
    options: Mapping[str, OptionValue],
    before: tuple[str, ...] = (),
    behind: tuple[PassSpec, ...] = (),
) -> tuple[ModuleOp, RemarkSink]:
    """The module at the level of instructions: passes ``before`` the choice of algorithms, and
    ``behind`` the forming of kernels."""
    module = parse(exchange.text(target))
    set_target(module, target)
    ModelFacts("one exchange", "decode", 1, 1, 1).write_to(module)
    sink = RemarkSink()
    specs = [
        *(PassSpec(name) for name in before),
        PassSpec("select-collective-algorithm", options),
        PassSpec("form-kernels"),
        *behind,
        *(PassSpec(name, given) for name, given in LOWERING),
    ]
    for spec in specs:
        sink.pass_name = spec.name
        instantiate(spec).run(module, target, sink)
    return module, sink


def simulated(module: ModuleOp, target: Target) -> SimulationResult:
    return simulate(pack(module, target))


def seconds(result: SimulationResult) -> float:
    """From the start of the first kernel to the end of the last, gaps between them included."""
    return sum(launch.time_ps for launch in result.launches) * 1e-12
