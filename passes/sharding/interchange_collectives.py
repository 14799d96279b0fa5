"""``interchange-collectives``: a product and the exchange beside it change places, by cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Final

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from starc.analysis.orthogonality import TwoLevels, violations
from starc.analysis.product_exchanges import ExchangeCost, ProductForm
from starc.analysis.reencoding import ParameterUses, layer_counts, layers_of
from starc.analysis.sharding_rules import module_mesh
from starc.core.sharding.mesh import Mesh, axes_text
from starc.diagnostics import InputError
from starc.dialects.kernel_buffers import element_bytes
from starc.dialects.nn import LinearOp, ParameterOp, StateOp
from starc.dialects.sharding import local_shape
from starc.passes.base import OptionValues, RemarkSink, StarcPass
from starc.passes.layer_costs import (
    Launches,
    different_seconds,
    launch_estimates,
    passes_to_launches,
)
from starc.passes.selection import PassSpec
from starc.passes.sharding.interchange.flipping import flip, flipped_copy
from starc.passes.sharding.interchange.products import Conditions, Product, group_of, product_of
from starc.targets.default import MEMORY_UTILIZATION
from starc.targets.target import Target

AUTO: Final = "auto"


@dataclass(frozen=True)
class InterchangeCollectivesPass(StarcPass):
    """Chooses for every group of products whether the inner level's exchange stands behind them or
    in front of them.

    ``X[K:{inner}] W[K:{inner}, N]`` is a partial sum that a reduce-scatter finishes as ``[N:
    {inner}]``; ``X`` gathered and ``W[K, N:{inner}]`` give the same ``[N:{inner}]`` at once. A
    device has the same part of the weight and does the same work in both; what differs are the
    bytes, ``M N`` of partial sums against ``M K`` of activations, the shapes of its tiles, and the
    results that it writes. All products of one input are a group: they share the gather.

    A group changes its form where its time is less by more than ``margin``. That is the time of the
    launches that differ between the forms, with the gaps in front of them: the layer is lowered in
    both, on copies, by the passes that follow (``layer_costs``). For what a product can take into
    its launch, all-reduces over other levels, norms and appends, depends on what its form leaves
    around it. A group whose launches are not known keeps its form. Every product of it must satisfy
    all of:


    1. the input's features and the weight's rows are cut alike, the inner level last, so that the
       gather gives whole shards;
    2. the reduce-scatter cuts the columns, not tokens, over the whole inner level;
    3. the result's columns are cut in the order in which the weight's would be;
    4. between product and reduce-scatter stand only operations that are linear in the partial sum
       and take nothing else that is split (row scales, rotary embeddings);
    5. the weight is a parameter of this product alone, which can be stored otherwise;
    6. the partial sum has one use;
    7. the input is no partial sum itself; partial sums over other axes stay as they are;
    8. sums may be added in another order (not under ``exact``: results differ by rounding);
    9. the gathered input, or the whole partial sum, fits the memory beside what is resident.

    Contract: encodings are legal and all values that are no partial sums keep theirs. A remark
    gives both costs of every group, of the products with their own exchange alone and of the
    launches, and why it was declined. A product whose columns or rows are
    split by two levels then has a remark ``not-orthogonal``. Needs ``propagate-shardings``.

    Before:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    nn.parameter @mlp.up : tensor<64x4096xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
    func.func @mlp(%x : tensor<2x64x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>)
        -> tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> {
      %0 = nn.read @mlp.up : tensor<64x4096xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
      %1 = nn.linear %x, %0
        : tensor<2x64x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>,
          tensor<64x4096xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
        -> tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>
      %2 = sharding.reshard %1
        : tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>
        -> tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
      func.return %2 : tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
    }
    ```

    After:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    nn.parameter @mlp.up : tensor<64x4096xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>>
    func.func @mlp(%x : tensor<2x64x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>)
        -> tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> {
      %0 = nn.read @mlp.up : tensor<64x4096xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>>
      %1 = sharding.reshard %x
        : tensor<2x64x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
        -> tensor<2x64x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
      %2 = nn.linear %1, %0
        : tensor<2x64x64xbf16, #sharding.of<@node, [{}, {}, {}]>>,
          tensor<64x4096xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>>
        -> tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
      func.return %2 : tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
    }
    ```
    """

    name = "interchange-collectives"
    VALUES: ClassVar[OptionValues] = {"form": (AUTO, *ProductForm)}

    exact: bool = False
    """Keep the order in which sums are added, so that results are the same to the last bit."""

    form: str = AUTO
    """The form that groups get if that is legal: ``scatter``, ``gather``, or ``auto``, by cost."""

    margin: float = 0.02
    """The least share of its time that a group must save to change its form: estimates are no
    better than that."""

    fused: bool = True
    """Count products that exchange what they need themselves, as fuse-compute-collectives makes
    them, where that is faster."""

    uneven: bool = False
    """Shards may differ in size, in the passes that follow, too."""

    buffer_bytes: int | None = None
    """The most bytes of a gathered input or a partial sum; by default what memory is left."""

    memory_utilization: float = MEMORY_UTILIZATION
    """The part of a device's memory that may be used."""

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        if problems := self.wrong_values():
            raise InputError(problems)
        mesh = module_mesh(module)
        levels = TwoLevels.of(mesh)
        if levels is None:
            return
        limit = self.buffer_bytes
        if limit is None:
            usable = int(target.device_memory_bytes * self.memory_utilization)
            limit = usable - _resident_bytes(module, mesh)
        parameters = ParameterUses.of(module)
        interchange = _Interchange(
            self,
            module,
            mesh,
            levels,
            parameters,
            Conditions(mesh, parameters, self.exact, limit),
            target,
            passes_to_launches(self.name, fused=self.fused, uneven=self.uneven),
            sink,
        )
        flipped: dict[Operation, str] = {}
        for layer in layers_of(module):
            flipped |= {product.op: product.name for product in interchange.layer(layer)}
        for violation in violations(module):
            if violation.op in flipped:
                sink.remark(
                    "not-orthogonal",
                    f"@{flipped[violation.op]}: {violation}, because its exchange is faster "
                    "in this form",
                    violation.op,
                )


def _resident_bytes(module: ModuleOp, mesh: Mesh) -> int:
    """The memory of a device that weights and caches take."""
    counts = layer_counts(module)
    resident = 0
    for op in module.body.ops:
        if isinstance(op, ParameterOp | StateOp):
            held = prod(local_shape(op.type, mesh)) * element_bytes(op.type)
            resident += held * counts.get(op.sym_name.data.split(".")[0], 1)
    return resident


@dataclass(frozen=True)
class GroupChoice:
    """What is compared for a group of products, and what is chosen. ``alone`` are the costs of the
    products with their own exchange alone, ``launches`` the seconds of the launches of the layer
    that differ, where they are known; ``problem`` is the condition that forbids the other form."""

    form: ProductForm
    alone: Mapping[ProductForm, ExchangeCost]
    launches: Mapping[ProductForm, float] | None
    problem: str | None
    changes: bool
    margin: float

    def seconds(self, form: ProductForm) -> float:
        """By launches if they are known."""
        return self.alone[form].seconds if self.launches is None else self.launches[form]

    def __str__(self) -> str:
        other = self.form.other
        chosen, rejected = (other, self.form) if self.changes else (self.form, other)
        one, alternative = self.alone[chosen], self.alone[rejected]
        text = f"{'changed to' if self.changes else 'kept as'} {chosen.words}"
        if self.launches is None:
            text += f", {one}; {rejected.words} would be {alternative}"
        else:
            own, their = self.launches[chosen], self.launches[rejected]
            text += (
                f", {own * 1e6:.1f} us in its launches; {rejected.words} would be "
                f"{their * 1e6:.1f} us"
            )
            if not self.changes and their < own:
                text += f", less than {self.margin:.0%} faster"
            text += f"; alone {one}, {rejected.words} {alternative}"
        if self.problem is not None:
            return f"{text}; {other.words} is not legal by condition {self.problem}"
        unknown = "; the launches of the layer are not known"
        return text + unknown if self.launches is None else text


@dataclass
class _Interchange:
    """The groups of a module; ``following`` are the passes up to the launches."""

    options: InterchangeCollectivesPass
    module: ModuleOp
    mesh: Mesh
    levels: TwoLevels
    parameters: ParameterUses
    conditions: Conditions
    target: Target
    following: tuple[PassSpec, ...]
    sink: RemarkSink
    launches: Launches | None = None
    """Those of the layer as it is, once they are known."""

    def layer(self, layer: FuncOp) -> list[Product]:
        """Chooses the forms of all groups of a layer. Returns the products that changed."""
        groups: dict[tuple[SSAValue, ProductForm], list[Product]] = {}
        for op in layer.body.block.ops:
            if isinstance(op, LinearOp):
                product = product_of(op, self.mesh, self.levels, self.parameters)
                if product is not None:
                    groups.setdefault((op.input, product.form), []).append(product)
        changed: list[Product] = []
        self.launches = None
        for products in groups.values():
            choice = self._choose(layer, products)
            self._remark(products, choice)
            if choice.changes:
                flip(layer, products, self.mesh, self.parameters)
                changed += products
        return changed

    def _choose(self, layer: FuncOp, products: Sequence[Product]) -> GroupChoice:
        form = products[0].form
        group, outer = group_of(products, self.mesh)
        alone = {
            each: group.cost(
                each,
                self.mesh,
                products[0].inner,
                self.target,
                fused=self.options.fused,
                outer=outer,
            )
            for each in ProductForm
        }
        buffer_bytes = alone[form.other].buffer_bytes
        problems = [self.conditions.problem(product, buffer_bytes) for product in products]
        problem = next((found for found in problems if found is not None), None)
        margin = self.options.margin
        if problem is not None:
            return GroupChoice(form, alone, None, problem, changes=False, margin=margin)
        if self.launches is None:
            self.launches = self._launches(self.module.clone(), layer)
        flipped = self._launches(flipped_copy(self.module, layer, products, self.mesh), layer)
        seconds: dict[ProductForm, float] | None = None
        if self.launches is not None and flipped is not None:
            own, their = different_seconds(self.launches, flipped)
            seconds = {form: own, form.other: their}
        changes = self._is_better(form, seconds)
        if changes:
            self.launches = flipped
        return GroupChoice(form, alone, seconds, None, changes, margin)

    def _is_better(self, form: ProductForm, seconds: Mapping[ProductForm, float] | None) -> bool:
        """Whether the other form is the wanted one, or faster by more than the margin."""
        if self.options.form != AUTO:
            return form.other == self.options.form
        margin = self.options.margin
        return seconds is not None and seconds[form.other] < (1 - margin) * seconds[form]

    def _launches(self, copy: ModuleOp, layer: FuncOp) -> Launches | None:
        return launch_estimates(copy, layer.sym_name.data, self.target, self.following)

    def _remark(self, products: Sequence[Product], choice: GroupChoice) -> None:
        first = products[0]
        names = ", ".join(f"@{each.name}" if each.name else "a product" for each in products)
        scatter, gather = ProductForm.SCATTER, ProductForm.GATHER
        self.sink.remark(
            "interchange",
            f"{names} over {{{axes_text(first.inner)}}}: {choice}",
            first.op,
            declined=not choice.changes,
            scatter_us=choice.seconds(scatter) * 1e6,
            gather_us=choice.seconds(gather) * 1e6,
            scatter_bytes=choice.alone[scatter].sent_bytes,
            gather_bytes=choice.alone[gather].sent_bytes,
        )
