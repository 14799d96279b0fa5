"""``interchange-collectives``: a product and the exchange beside it change places, by cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, Final, Literal, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from starc.analysis.cost import gemm_cost
from starc.analysis.orthogonality import TwoLevels, outer_shards, violations
from starc.analysis.reencoding import (
    ParameterUses,
    encoding,
    layers_of,
    refit,
    reshard_after,
    reshard_before,
    set_encoding,
    shape_of,
    update_signature,
)
from starc.analysis.sharding_rules import has_rule, module_mesh, rule_of
from starc.core.collectives.cost import choices
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.fused_schedules import FusedProblem, choose_fused
from starc.core.kernel_schedules.gemm_problem import GemmProblem
from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.encoding import DimSharding, Encoding, is_refinement
from starc.core.sharding.link_bytes import sent_bytes
from starc.core.sharding.mesh import AxisRef, Mesh, axes_text
from starc.diagnostics import InputError
from starc.dialects.kernel_buffers import element_bytes
from starc.dialects.nn import LinearOp, ParameterOp, ReadOp, StackOp, StateOp
from starc.dialects.sharding import AnyTensor, ReshardOp, local_shape
from starc.passes.base import OptionValues, RemarkSink, StarcPass
from starc.passes.layer_costs import (
    Launches,
    different_seconds,
    launch_estimates,
    passes_to_launches,
)
from starc.passes.pipeline import PassSpec
from starc.targets.target import Target

Form = Literal["scatter", "gather"]
"""``scatter``: product, then reduce-scatter (K split over the inner level). ``gather``: all-gather,
then product (N split over it)."""

FORMS: Final[tuple[Form, ...]] = ("scatter", "gather")

USABLE: float = 0.9
"""The share of a device's memory that buffers may fill with what is resident."""


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
    VALUES: ClassVar[OptionValues] = {"form": ("auto", *FORMS)}

    exact: bool = False
    """Keep the order in which sums are added, so that results are the same to the last bit."""

    form: str = "auto"
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

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        if problems := self.wrong_values():
            raise InputError(problems)
        mesh = module_mesh(module)
        levels = TwoLevels.of(mesh)
        if levels is None:
            return
        limit = _free_bytes(module, mesh, target) if self.buffer_bytes is None else None
        interchange = _Interchange(
            module,
            mesh,
            levels,
            ParameterUses.of(module),
            target,
            self.exact,
            self.fused,
            passes_to_launches(self.name, fused=self.fused, uneven=self.uneven),
            self.form,
            self.margin,
            limit if limit is not None else self.buffer_bytes or 0,
            sink,
        )
        flipped: dict[Operation, str] = {}
        for layer in layers_of(module):
            flipped |= {member.op: member.name for member in interchange.layer(layer)}
        for violation in violations(module):
            if violation.op in flipped:
                sink.remark(
                    "not-orthogonal",
                    f"@{flipped[violation.op]}: {violation}, because its exchange is faster "
                    "in this form",
                    violation.op,
                )


def _free_bytes(module: ModuleOp, mesh: Mesh, target: Target) -> int:
    """The memory of a device that weights and caches leave."""
    counts: dict[str, int] = {}
    for op in module.body.ops:
        if isinstance(op, StackOp):
            for name, count in op.entries:
                counts[name] = counts.get(name, 0) + count
    resident = 0
    for op in module.body.ops:
        if isinstance(op, ParameterOp | StateOp):
            held = prod(local_shape(op.type, mesh)) * element_bytes(op.type)
            resident += held * counts.get(op.sym_name.data.split(".")[0], 1)
    return int(target.device_memory_bytes * USABLE) - resident


@dataclass(frozen=True)
class ExchangeCost:
    """What a group of products costs in one form: seconds of the products, seconds of the exchange,
    seconds of both in one kernel (``None`` where they stay two), bytes that a device sends and the
    bytes of the buffer that it needs whole."""

    products_s: float
    exchange_s: float
    fused_s: float | None
    sent_bytes: int
    buffer_bytes: int
    outer_s: float = 0.0
    """Of the reduction over outer levels that is left behind the products."""
    whole_s: float | None = None
    """Of one kernel that does this reduction, too."""

    @property
    def seconds(self) -> float:
        separate = self.products_s + self.exchange_s
        both = separate if self.fused_s is None else min(separate, self.fused_s)
        both += self.outer_s
        return both if self.whole_s is None else min(both, self.whole_s)

    def __str__(self) -> str:
        fused = "" if self.fused_s is None else f", in one kernel {self.fused_s * 1e6:.1f} us"
        if self.outer_s:
            fused += f", outer all-reduce {self.outer_s * 1e6:.1f} us"
        if self.whole_s is not None:
            fused += f", all in one kernel {self.whole_s * 1e6:.1f} us"
        return (
            f"{self.seconds * 1e6:.1f} us (products {self.products_s * 1e6:.1f} us, "
            f"{self.sent_bytes:,} bytes sent in {self.exchange_s * 1e6:.1f} us{fused})"
        )


@dataclass(frozen=True)
class ProductGroup:
    """Products of one input, as they are without the inner level: ``rows`` is [batch, query] of a
    device, ``k`` and ``columns`` what the outer levels leave of the loops. ``width`` is the bytes
    of an element of the input, ``partial_width`` those of a partial sum."""

    rows: tuple[int, int]
    k: int
    columns: tuple[int, ...]
    dtype: str
    width: int
    partial_width: int

    def cost(
        self,
        form: Form,
        mesh: Mesh,
        inner: tuple[AxisRef, ...],
        target: Target,
        *,
        fused: bool = True,
        outer: tuple[AxisRef, ...] = (),
    ) -> ExchangeCost:
        """The cost in one form, with the inner level's part of K or N on each device. The
        exchanges of a group count as one, by the algorithm and transport that are fastest for
        it. With ``fused`` products may pull their input and push their results themselves. Results
        that are partial sums over ``outer`` are all-reduced over it: by a launch behind the
        products, or, where nothing else is behind them, by the products themselves."""
        rates = DeviceRates.of(target)
        size = mesh.refs_size(inner)
        m = prod(self.rows)
        if form == "scatter":
            k, columns = -(-self.k // size), self.columns
            operation, payload = (
                CollectiveKind.REDUCE_SCATTER,
                m * sum(self.columns) * self.partial_width,
            )
        else:
            k, columns = self.k, tuple(-(-n // size) for n in self.columns)
            operation, payload = CollectiveKind.ALL_GATHER, m * self.k * self.width
        problem = GemmProblem(*self.rows, columns, k, self.dtype, self.width)
        products = gemm_cost(problem, rates).seconds
        if form == "scatter":
            # Partial sums that are wider than the results of the estimate.
            wider = max(self.partial_width - self.width, 0)
            products += m * sum(columns) * wider / rates.hbm_rate
        exchange = choices(operation, payload, mesh, inner, target)[0].time.seconds
        sent = sum(sent_bytes(mesh, operation, inner, payload).values())
        exchange += rates.gap_s
        both = self._fused(form, problem, mesh, inner, rates) if fused else None
        outer_s, whole = 0.0, None
        if outer:
            left = m * sum(-(-n // size) for n in self.columns) * self.partial_width
            outer_s = choices(CollectiveKind.ALL_REDUCE, left, mesh, outer, target)[0].time.seconds
            outer_s += rates.gap_s
            if fused and form == "gather":
                whole = self._fused(form, problem, mesh, inner, rates, outer)
        return ExchangeCost(products, exchange, both, sent, payload, outer_s, whole)

    def _fused(
        self,
        form: Form,
        gemm: GemmProblem,
        mesh: Mesh,
        inner: tuple[AxisRef, ...],
        rates: DeviceRates,
        outer: tuple[AxisRef, ...] = (),
    ) -> float | None:
        """Seconds of products that exchange what they need or give themselves, if they can; with
        ``outer`` they send what they give to all over it."""
        size, scatters = mesh.refs_size(inner), form == "scatter"
        link = rates.links.get(mesh.link_class(inner) or "")
        if link is None:
            return None
        if outer:
            far = rates.links.get(mesh.link_class(outer) or "")
            if far is None:
                return None
            found = choose_fused(
                FusedProblem(
                    gemm=gemm,
                    pull_ranks=size,
                    push_ranks=mesh.refs_size(outer),
                    scattered=gemm.columns,
                    partial_bytes=self.partial_width,
                    link_rate=link.bytes_per_s * link.per_device,
                    link_latency_s=link.latency_s,
                    push_rate=far.bytes_per_s * far.per_device,
                    push_latency_s=far.latency_s,
                    to_all=(True,) * len(gemm.columns),
                ),
                rates,
            )
            return found[0].seconds + rates.prologue("gemm") if found else None
        found = choose_fused(
            FusedProblem(
                gemm=gemm,
                pull_ranks=0 if scatters else size,
                push_ranks=size if scatters else 0,
                scattered=tuple(-(-n // size) if scatters else 0 for n in gemm.columns),
                partial_bytes=self.partial_width,
                link_rate=link.bytes_per_s * link.per_device,
                link_latency_s=link.latency_s,
            ),
            rates,
        )
        return found[0].seconds + rates.prologue("gemm") if found else None


@dataclass(frozen=True)
class _Member:
    """A product of a group: its weight, the axes of the inner level that split it, and the
    shardings of K and N without and with them."""

    op: LinearOp
    name: str
    form: Form
    inner: tuple[AxisRef, ...]
    k: DimSharding
    n: DimSharding
    k_cut: DimSharding
    n_cut: DimSharding


@dataclass
class _Interchange:
    module: ModuleOp
    mesh: Mesh
    levels: TwoLevels
    parameters: ParameterUses
    target: Target
    exact: bool
    fused: bool
    following: tuple[PassSpec, ...]
    form: str
    margin: float
    limit: int
    sink: RemarkSink
    launches: Launches | None = None
    """Those of the layer as it is, once they are known."""

    def layer(self, layer: FuncOp) -> list[_Member]:
        """Chooses the forms of all groups of a layer. Returns the products that changed."""
        groups: dict[tuple[SSAValue, Form], list[_Member]] = {}
        for op in layer.body.block.ops:
            if isinstance(op, LinearOp) and (member := self._member(op)) is not None:
                groups.setdefault((op.input, member.form), []).append(member)
        changed: list[_Member] = []
        self.launches = None
        for members in groups.values():
            if self._choose(layer, members):
                self.flip(layer, members)
                changed += members
        return changed

    def _member(self, op: LinearOp) -> _Member | None:
        """A product with the inner level on one of K and N; ``None`` for any other."""
        weight = encoding(op.weight, self.mesh)
        rows, columns = weight.dims
        on_rows, on_columns = (self.levels.inner_of(dim.axes) for dim in weight.dims)
        if bool(on_rows) == bool(on_columns):
            return None
        k, n = (
            self._outer(dim, extent)
            for dim, extent in zip(weight.dims, shape_of(op.weight), strict=True)
        )
        name = next(
            (
                name
                for name, reads in self.parameters.reads.items()
                if any(op.weight is read.result for read in reads)
            ),
            "",
        )
        if on_rows:
            end = self._scatter_of(op)
            found = encoding(end.results[0], self.mesh).dims[2] if end is not None else n
            return _Member(op, name, "scatter", on_rows, k, n, rows, found)
        source = self._gathered(op)
        found = encoding(source, self.mesh).dims[2] if source is not None else k
        return _Member(op, name, "gather", on_columns, k, n, found, columns)

    def _outer(self, sharding: DimSharding, extent: int) -> DimSharding:
        """The sharding of a weight's dimension without the inner level."""
        found = outer_shards(self.mesh, self.levels, sharding, extent)
        return found or DimSharding(self.levels.outer_of(sharding.axes))

    def _gathered(self, op: LinearOp) -> SSAValue | None:
        """What a product's input was gathered from."""
        gather = op.input.owner
        if isinstance(gather, ReshardOp) and len(gather.inputs) == 1:
            return gather.inputs[0]
        return None

    def _scatter_of(self, op: LinearOp) -> ReshardOp | None:
        """The reshard that a product's partial sum leads to through linear operations."""
        value: SSAValue = op.result
        while (use := value.get_unique_use()) is not None:
            user = use.operation
            if isinstance(user, ReshardOp):
                return user if len(user.inputs) == 1 else None
            if not _passes_on(user, use.index):
                return None
            value = user.results[0]
        return None

    # The conditions

    def problem(self, member: _Member, buffer_bytes: int) -> str | None:
        """The first of the nine conditions that a product breaks, or ``None``."""
        op = member.op
        scatters = member.form == "scatter"
        k, n = shape_of(op.weight)
        input = encoding(op.input, self.mesh)
        source = self._gathered(op)
        if not scatters:
            if source is None:
                return "1: its input was not gathered for it"
            before = encoding(source, self.mesh)
            if before.dims[:2] != input.dims[:2] or before.partial != input.partial:
                return "1: its input changes in more than its features on the way"
        if not self._cuts(member.k, member.k_cut, member.inner, k):
            return (
                f"1: the input's features are split over {member.k_cut}, the weight's rows over "
                f"{member.k} without the inner level"
            )
        if input.partial is not None:
            return f"7: its input is partial {input.partial}"
        if scatters and (found := self._chain_problem(op)) is not None:
            return found
        if scatters and (found := self._scatter_problem(member, n)) is not None:
            return found
        if not self._cuts(member.n, member.n_cut, member.inner, n):
            return (
                f"3: the result's columns are split over {member.n_cut}, the weight's over "
                f"{member.n} without the inner level"
            )
        if not member.name or len(self.parameters.users(member.name)) != 1:
            return "5: its weight is not a parameter of this product alone"
        if self.exact:
            return "8: the sums would be added in another order"
        if buffer_bytes > self.limit:
            return (
                f"9: {buffer_bytes} bytes do not fit the {self.limit} bytes of memory that are left"
            )
        return None

    def _cuts(
        self,
        coarse: DimSharding,
        fine: DimSharding,
        inner: tuple[AxisRef, ...],
        extent: int,
    ) -> bool:
        """Whether ``fine`` is ``coarse`` cut further over the inner level."""
        axes = self.mesh.canonical((*coarse.axes, *inner))
        return fine.axes == axes and is_refinement(self.mesh, coarse, fine, extent)

    def _chain_problem(self, op: LinearOp) -> str | None:
        """What stands between a product and its reduce-scatter."""
        value: SSAValue = op.result
        while True:
            users = [(use.operation, use.index) for use in value.uses]
            if len(users) != 1:
                return f"6: its partial sum has {len(users)} uses"
            user, index = users[0]
            if isinstance(user, ReshardOp):
                return None if len(user.inputs) == 1 else "4: it is reduced with other values"
            if not _passes_on(user, index):
                return f"4: '{user.name}' stands between it and its reduction"
            value = user.results[0]

    def _scatter_problem(self, member: _Member, n: int) -> str | None:
        end = self._scatter_of(member.op)
        assert end is not None
        before = encoding(end.inputs[0], self.mesh)
        after = encoding(end.results[0], self.mesh)
        partial = before.partial
        if partial is None or partial.kind != "sum" or not set(member.inner) <= set(partial.axes):
            return "7: it is no partial sum over the inner level"
        if before.dims[:2] != after.dims[:2]:
            return "2: its reduction cuts tokens, not columns"
        if not set(member.inner) & set(after.dims[2].axes):
            return "2: its reduction does not cut the columns over the inner level"
        return None

    # The choice

    def _choose(self, layer: FuncOp, members: Sequence[_Member]) -> bool:
        """Whether a group changes its form, with a remark."""
        first = members[0]
        other: Form = "gather" if first.form == "scatter" else "scatter"
        alone = self._costs(members)
        problems = [self.problem(member, alone[other].buffer_bytes) for member in members]
        problem = next((found for found in problems if found is not None), None)
        launches: dict[Form, float] | None = None
        flipped: Launches | None = None
        if problem is None:
            if self.launches is None:
                name = layer.sym_name.data
                copy = self.module.clone()
                self.launches = launch_estimates(copy, name, self.target, self.following)
            flipped = self._flipped(layer, members)
            if self.launches is not None and flipped is not None:
                seconds = different_seconds(self.launches, flipped)
                launches = dict(zip((first.form, other), seconds, strict=True))
        changes = problem is None and self._is_better(first.form, other, launches)
        if changes:
            self.launches = flipped
        names = ", ".join(f"@{member.name}" if member.name else "a product" for member in members)
        verb = "changed to" if changes else "kept as"
        chosen: Form = other if changes else first.form
        rejected: Form = first.form if changes else other
        words = {"scatter": "reduce-scatter behind", "gather": "all-gather in front"}
        text = f"{names} over {{{axes_text(first.inner)}}}: {verb} {words[chosen]}"
        if launches is not None:
            text += (
                f", {launches[chosen] * 1e6:.1f} us in its launches; {words[rejected]} would be "
                f"{launches[rejected] * 1e6:.1f} us"
            )
            if not changes and launches[rejected] < launches[chosen]:
                text += f", less than {self.margin:.0%} faster"
        text += (
            f"; alone {alone[chosen]}, {words[rejected]} {alone[rejected]}"
            if launches is not None
            else f", {alone[chosen]}; {words[rejected]} would be {alone[rejected]}"
        )
        if problem is not None:
            text += f"; {words[other]} is not legal by condition {problem}"
        elif launches is None:
            text += "; the launches of the layer are not known"
        seconds = launches or {form: alone[form].seconds for form in FORMS}
        self.sink.remark(
            "interchange",
            text,
            first.op,
            declined=not changes,
            scatter_us=seconds["scatter"] * 1e6,
            gather_us=seconds["gather"] * 1e6,
            scatter_bytes=alone["scatter"].sent_bytes,
            gather_bytes=alone["gather"].sent_bytes,
        )
        return changes

    def _is_better(self, form: Form, other: Form, launches: dict[Form, float] | None) -> bool:
        """Whether the other form is the wanted one, or faster by more than the margin."""
        if self.form != "auto":
            return other == self.form
        return launches is not None and launches[other] < (1 - self.margin) * launches[form]

    def _costs(self, members: Sequence[_Member]) -> dict[Form, ExchangeCost]:
        """What a group costs in both forms, with its exchange over the inner level alone."""
        first = members[0]
        batch, query, _ = local_shape(cast(AnyTensor, first.op.input.type), self.mesh)
        k, _ = shape_of(first.op.weight)
        group = ProductGroup(
            (batch, query),
            -(-k // self.mesh.refs_size(first.k.axes)),
            tuple(
                -(-shape_of(member.op.weight)[1] // self.mesh.refs_size(member.n.axes))
                for member in members
            ),
            str(cast(AnyTensor, first.op.input.type).element_type),
            element_bytes(cast(AnyTensor, first.op.input.type)),
            element_bytes(cast(AnyTensor, first.op.result.type)),
        )
        result = encoding(first.op.result, self.mesh)
        partial = result.partial.axes if result.partial is not None else ()
        outer = tuple(
            ref for ref in partial if not any(self.mesh.overlap(ref, own) for own in first.inner)
        )
        return {
            form: group.cost(
                form, self.mesh, first.inner, self.target, fused=self.fused, outer=outer
            )
            for form in FORMS
        }

    def _flipped(self, layer: FuncOp, members: Sequence[_Member]) -> Launches | None:
        """The launches of a layer with the other form of a group."""
        name = layer.sym_name.data
        order = {op: number for number, op in enumerate(layer.body.block.ops)}
        module = self.module.clone()
        copy = next(found for found in layers_of(module) if found.sym_name.data == name)
        ops = list(copy.body.block.ops)
        trial = replace(self, module=module, parameters=ParameterUses.of(module), launches=None)
        trial.flip(copy, [_copied(member, ops[order[member.op]]) for member in members])
        return launch_estimates(module, name, self.target, self.following)

    def flip(self, layer: FuncOp, members: Sequence[_Member]) -> None:
        """Gives a group of a layer its other form."""
        if members[0].form == "scatter":
            self._gather_first(members)
        else:
            self._scatter_last(members)
        refit(layer, self.mesh)
        update_signature(layer)

    def _gather_first(self, members: Sequence[_Member]) -> None:
        first = members[0].op
        input = first.input
        found = encoding(input, self.mesh)
        gathered = reshard_before(first, input, _with(found, 2, members[0].k))
        for member in members:
            member.op.operands[0] = gathered
            weight = Encoding(self.mesh, (member.k, member.n_cut))
            self.parameters.set_encoding(member.name, weight)
            self._set_result(member.op, member.n_cut, member.k.axes)

    def _scatter_last(self, members: Sequence[_Member]) -> None:
        for member in members:
            source = self._gathered(member.op)
            assert source is not None
            gather = member.op.input.owner
            member.op.operands[0] = source
            if isinstance(gather, ReshardOp) and not any(r.uses for r in gather.results):
                Rewriter.erase_op(gather)
            weight = Encoding(self.mesh, (member.k_cut, member.n))
            self.parameters.set_encoding(member.name, weight)
            old = encoding(member.op.result, self.mesh)
            new = self._set_result(member.op, member.n, member.k_cut.axes)
            reshard_after(new, old)

    def _set_result(
        self, op: LinearOp, columns: DimSharding, summed: tuple[AxisRef, ...]
    ) -> SSAValue:
        found = encoding(op.result, self.mesh)
        return set_encoding(op.result, _with(found, 2, columns).with_partial("sum", summed))


def _with(encoding: Encoding, dim: int, sharding: DimSharding) -> Encoding:
    dims = (*encoding.dims[:dim], sharding, *encoding.dims[dim + 1 :])
    return replace(encoding, dims=dims)


def _passes_on(op: Operation, index: int) -> bool:
    """Whether an operation passes a partial sum on, its other operands being whole values."""
    if not has_rule(op) or isinstance(op, ReadOp) or len(op.results) != 1:
        return False
    rule = rule_of(op)
    alone = len(op.operands) == 1 and (rule.additive or rule.transparent)
    return alone or index in rule.linear


def _copied(member: _Member, op: Operation) -> _Member:
    """A product of a copy of its layer."""
    assert isinstance(op, LinearOp)
    return replace(member, op=op)
