"""``hierarchical-collectives``: collectives over several levels become phases of one level each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from starc.analysis.fastest_phases import alternatives
from starc.analysis.reencoding import encoding, shape_of
from starc.analysis.sharding_rules import module_mesh
from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.combiners import COMBINERS, ReductionKind
from starc.core.sharding.hierarchy import (
    LinkUse,
    flat_ring_use,
    is_outer_to_inner,
    phase_use,
    split_levels,
)
from starc.core.sharding.mesh import Mesh, axes_text
from starc.core.sharding.phases import Axes, Exchange, Form, Phase, Piece, phases
from starc.diagnostics import counted
from starc.dialects import nn
from starc.dialects.collective import (
    AllGatherOp,
    AllSliceOp,
    CollectiveOp,
    ReduceScatterOp,
    make_collective,
)
from starc.dialects.collective_payload import payload_bytes
from starc.dialects.kernel_buffers import element_bytes
from starc.dialects.sharding import AnyTensor
from starc.passes.base import RemarkSink, StarcPass, with_location
from starc.passes.collective.hierarchy.cancelling import cancel_phases
from starc.targets.target import Target

DIVIDED = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL,
)
"""What has phases."""


@dataclass(frozen=True)
class HierarchicalCollectivesPass(StarcPass):
    """Splits every collective whose group crosses several levels of the mesh into phases.

    - An all-reduce becomes a reduce-scatter inside, an all-reduce between peers and an all-gather
      inside, for any number of levels. The scattered dimension is one that divides over the inner
      devices: one that a slice behind the all-reduce cuts if there is one, else the last. Where no
      dimension divides, ``uneven`` allows pieces of different size; without it the levels are
      reduced one after the other.
    - A reduce-scatter goes inside first, an all-gather between peers first, while pieces are small;
      an all-to-all exchanges inside, then between peers. On machines of cubes the reduce-scatter of
      a partial attention stays whole: the attention's kernel goes through the levels by itself.
    - Phases that cancel with a neighbour disappear: a gather and the slice of what it gathered, a
      slice and the gather of what it cut. A gather whose one use slices another dimension is an
      all-to-all.

    The combiner must be associative and commutative, for phases combine in another order. Several
    operands (the maximum, sum and output of a partial softmax) go through the same phases together,
    cut at the same blocks.

    On a mesh with several axes a level there are many ways to do so: phases may join two
    neighbouring levels, an all-reduce may scatter over some of the inner ones alone and reduce the
    others one after the other, and a reduce-scatter may be an all-reduce of which each device keeps
    its piece. Each is estimated with the fastest algorithm of each phase, and the fastest is taken,
    one exchange included.

    Contract: after this pass no all-reduce, reduce-scatter, all-gather or all-to-all crosses more
    than one level, but for those that a remark names. Needs ``localize``.

    Before:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    func.func @decoder(
        %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"},
                                              global = [2, 1, 64]>>) {
      %0 = collective.all_reduce %x on @node axes = ["gpu", "xcd"] reduction = sum
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"},
                                           global = [2, 1, 64]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
      func.return
    }
    ```

    After:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    func.func @decoder(
        %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"},
                                              global = [2, 1, 64]>>) {
      %0 = collective.reduce_scatter %x on @node axes = ["xcd"] reduction = sum dim = 2
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"},
                                           global = [2, 1, 64]>>
        -> tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"},
                                           global = [2, 1, 64]>>
      %1 = collective.all_reduce %0 on @node axes = ["gpu"] reduction = sum
        : tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"},
                                          global = [2, 1, 64]>>
        -> tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [2, 1, 64]>>
      %2 = collective.all_gather %1 on @node axes = ["xcd"] dim = 2
        : tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [2, 1, 64]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
      func.return
    }
    ```
    """

    name = "hierarchical-collectives"

    uneven: bool = False
    """Pieces may differ in size where no dimension divides."""

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        found = [op for op in module.walk() if isinstance(op, CollectiveOp)]
        if not found:
            return
        mesh = module_mesh(module)
        for op in found:
            if target.engines and (_merges_attention(op) or _gathers_keys(op)):
                continue
            if op.KIND in DIVIDED:
                self._divide(op, mesh, target, sink)
        cancel_phases(module, mesh, sink)

    def _divide(self, op: CollectiveOp, mesh: Mesh, target: Target, sink: RemarkSink) -> None:
        levels = split_levels(mesh, op.axes.data)
        if len(levels) < 2:
            return
        found = self._phases(op, mesh, levels, target)
        if isinstance(found, str):
            _decline(op, found, sink)
            return
        made = _build(op, found)
        _explain(op, made, mesh, sink)
        for old, new in zip(list(op.outputs), made[-1].outputs, strict=True):
            old.replace_all_uses_with(new)
        op.detach()
        op.erase()

    def _phases(
        self, op: CollectiveOp, mesh: Mesh, levels: tuple[Axes, ...], target: Target
    ) -> tuple[Phase, ...] | str:
        """The phases of a collective, or why it stays one exchange."""
        kind = op.reduction_kind
        if kind is not None and (problem := COMBINERS[kind].order_problem):
            return f"{problem}, and phases combine in another order"
        if not is_outer_to_inner(mesh, levels):
            return "its axes are not in the order of the levels"
        exchange = _exchange(op, mesh)
        if mesh.is_nested:
            widths = [element_bytes(cast(AnyTensor, value.type)) for value in op.inputs]
            found = alternatives(exchange, widths, levels, target, uneven=self.uneven)
            if not found or len(found[0].form.levels) == 1:
                return "one exchange is estimated to be faster than phases"
            return found[0].phases
        made = phases(exchange, Form(levels, len(levels) - 1), uneven=self.uneven)
        between = f"{{{axes_text(op.axes.data)}}} hold between phases"
        return made or f"no shard map says which pieces {between}"


def _gathers_keys(op: CollectiveOp) -> bool:
    """Whether caches are put together for an attention: on machines of cubes its kernel does so,
    and keys go around."""
    users = [use.operation for value in op.outputs for use in value.uses]
    return (
        isinstance(op, AllGatherOp)
        and op.number("dim") == 2
        and all(isinstance(user, nn.AttentionOp) for user in users)
    )


def _merges_attention(op: CollectiveOp) -> bool:
    """Whether parts of an attention are reduced to the owners of heads. On machines of cubes they
    are merged in the kernel that makes them, which goes through the levels by itself."""
    return isinstance(op, ReduceScatterOp) and op.reduction_kind is ReductionKind.LSE


def _exchange(op: CollectiveOp, mesh: Mesh) -> Exchange:
    is_all_to_all = op.KIND is CollectiveKind.ALL_TO_ALL
    dim = "split_dim" if is_all_to_all else "dim"
    return Exchange(
        op.KIND,
        op.axes.data,
        tuple(encoding(value, mesh) for value in op.inputs),
        tuple(encoding(value, mesh) for value in op.outputs),
        tuple(shape_of(value) for value in op.inputs),
        op.number(dim) if dim in op.CLAUSES else None,
        op.number("concat_dim") if is_all_to_all else None,
        op.reduction_kind,
        tuple(
            Piece(user.number("dim"), user.axes.data) if isinstance(user, AllSliceOp) else None
            for value in op.outputs
            for user in (use.operation for use in value.uses)
        ),
    )


def _build(op: CollectiveOp, found: Sequence[Phase]) -> list[CollectiveOp]:
    """The collectives of phases in front of ``op``, one behind the other."""
    values: Sequence[SSAValue] = op.inputs
    made: list[CollectiveOp] = []
    for phase in found:
        new = make_collective(
            phase.kind,
            values,
            phase.results,
            phase.axes,
            dim=phase.dim,
            concat_dim=phase.concat_dim,
            reduction=phase.reduction,
        )
        Rewriter.insert_op(with_location(new, op), InsertPoint.before(op))
        for old, result in zip(op.outputs, new.outputs, strict=True):
            result.name_hint = old.name_hint
        values = list(new.outputs)
        made.append(new)
    return made


def _decline(op: CollectiveOp, why: str, sink: RemarkSink) -> None:
    sink.remark(
        "hierarchical-collective",
        f"{op.KIND} over {{{axes_text(op.axes.data)}}} stays one exchange: {why}",
        op,
        declined=True,
    )


def _explain(op: CollectiveOp, made: Sequence[CollectiveOp], mesh: Mesh, sink: RemarkSink) -> None:
    payload = payload_bytes(op)
    axes = op.axes.data
    before = flat_ring_use(mesh, op.KIND, axes, payload)
    after: dict[str, LinkUse] = {}
    for phase in made:
        if not phase.KIND.moves_data:
            continue
        link_class = mesh.link_class(phase.axes.data) or ""
        use = phase_use(mesh, phase.KIND, phase.axes.data, payload_bytes(phase), axes)
        held = after.get(link_class, LinkUse(0.0, 0.0))
        after[link_class] = LinkUse(held.sent + use.sent, held.busiest + use.busiest)
    steps = ", ".join(f"{phase.KIND} over {{{axes_text(phase.axes.data)}}}" for phase in made)
    numbers: dict[str, int] = {}
    words: list[str] = []
    for link_class, use in after.items():
        old = before.get(link_class, LinkUse(0.0, 0.0))
        words.append(
            f"a {mesh.axes[0].name.upper()} sends {use.sent:,.0f} bytes on {link_class} "
            f"(in place of {old.sent:,.0f}), of "
            f"them on the busiest link {use.busiest:,.0f} (in place of {old.busiest:,.0f})"
        )
        numbers[f"{link_class}_before_bytes"] = round(old.sent)
        numbers[f"{link_class}_after_bytes"] = round(use.sent)
        numbers[f"{link_class}_busiest_before_bytes"] = round(old.busiest)
        numbers[f"{link_class}_busiest_after_bytes"] = round(use.busiest)
    sink.remark(
        "hierarchical-collective",
        f"{op.KIND} of {payload:,} bytes over {{{axes_text(axes)}}} in "
        f"{counted(len(made), 'phase')}: {steps}; against a ring over all devices: "
        + "; ".join(words),
        made[0],
        payload_bytes=payload,
        phases=len(made),
        **cast("dict[str, Any]", numbers),
    )
