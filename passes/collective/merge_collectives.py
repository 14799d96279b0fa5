"""``merge-collectives``: equal exchanges side by side become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import is_side_effect_free

from starc.analysis.sharding_rules import module_mesh
from starc.core.collectives.cost import choices
from starc.core.collectives.table import legal_algorithms
from starc.core.sharding.combiners import COMBINERS
from starc.core.sharding.mesh import Mesh, axes_text
from starc.dialects import nn
from starc.dialects.collective import CollectiveOp
from starc.dialects.collective_payload import payload_bytes
from starc.dialects.sharding import AnyTensor
from starc.kernel_bodies.collectives.plan import templates_of
from starc.passes.base import RemarkSink, StarcPass, with_location
from starc.targets.target import Target

MOST_TEMPLATES: Final = 8
"""No collective takes more templates."""


@dataclass(frozen=True)
class MergeCollectivesPass(StarcPass):
    """Joins collectives that do the same over the same axes into one of several operands.

    One launch then takes all of them through the same steps: the steps' latencies and the gap in
    front of a kernel are paid once. Two are joined if they have the same operation, axes, reduction
    and dimensions (and algorithm and transport, if those are chosen), neither needs the other, what
    uses the first (an append, say) can wait for the second, and the estimate of the joint exchange
    is below the sum of both, and if a device runs all workgroups that one exchange takes at once.
    Partial states of several components are left alone, for their operands
    are combined with each other.

    Contract: the values are what they were; no two collectives that may be joined at a gain are
    left side by side. Needs ``localize``.

    Before:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    func.func @decoder(
        %k : tensor<2x8xbf16, #sharding.of<@node, [{}, {}], partial = sum{"xcd"}, global = [2, 8]>>,
        %v : tensor<2x8xbf16, #sharding.of<@node, [{}, {}], partial = sum{"xcd"}, global = [2, 8]>>) {
      %0 = collective.reduce_scatter %k on @node axes = ["xcd"] reduction = sum dim = 1
        : tensor<2x8xbf16, #sharding.of<@node, [{}, {}], partial = sum{"xcd"}, global = [2, 8]>>
        -> tensor<2x1xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [2, 8]>>
      %1 = collective.reduce_scatter %v on @node axes = ["xcd"] reduction = sum dim = 1
        : tensor<2x8xbf16, #sharding.of<@node, [{}, {}], partial = sum{"xcd"}, global = [2, 8]>>
        -> tensor<2x1xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [2, 8]>>
      func.return
    }
    ```

    After:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    func.func @decoder(
        %k : tensor<2x8xbf16, #sharding.of<@node, [{}, {}], partial = sum{"xcd"}, global = [2, 8]>>,
        %v : tensor<2x8xbf16, #sharding.of<@node, [{}, {}], partial = sum{"xcd"}, global = [2, 8]>>) {
      %0, %1 = collective.reduce_scatter %k, %v on @node axes = ["xcd"] reduction = sum dim = 1
        : tensor<2x8xbf16, #sharding.of<@node, [{}, {}], partial = sum{"xcd"}, global = [2, 8]>>,
          tensor<2x8xbf16, #sharding.of<@node, [{}, {}], partial = sum{"xcd"}, global = [2, 8]>>
        -> tensor<2x1xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [2, 8]>>,
           tensor<2x1xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [2, 8]>>
      func.return
    }
    ```
    """  # noqa: E501

    name = "merge-collectives"

    most: int = 4
    """Operands of one exchange at most."""

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        for function in module.body.ops:
            if isinstance(function, FuncOp) and not function.is_declaration:
                self._run_on_block(module, function.body.block, target, sink)

    def _run_on_block(
        self, module: ModuleOp, block: Block, target: Target, sink: RemarkSink
    ) -> None:
        declined: set[tuple[Operation, Operation]] = set()
        while True:
            found = [op for op in block.ops if isinstance(op, CollectiveOp) and op.KIND.moves_data]
            for first, second in combinations(found, 2):
                if (first, second) in declined or not self._may_join(first, second):
                    continue
                mesh = module_mesh(module)
                if _place(first, second) is None:
                    if not _needs(second, first):
                        sink.remark(
                            "collectives-merged",
                            f"{first.KIND} and {second.KIND} over "
                            f"{{{axes_text(first.axes.data)}}} stay apart: what uses the first "
                            "changes a state and cannot wait for the second",
                            second,
                            declined=True,
                        )
                    declined.add((first, second))
                    continue
                if not _has_room(first, second, mesh, target):
                    sink.remark(
                        "collectives-merged",
                        f"{first.KIND} and {second.KIND} over "
                        f"{{{axes_text(first.axes.data)}}} stay apart: together they take more "
                        "workgroups than a device runs at once",
                        first,
                        declined=True,
                    )
                    declined.add((first, second))
                    continue
                if not _gains(first, second, mesh, target, sink):
                    declined.add((first, second))
                    continue
                _join(first, second, mesh)
                break
            else:
                return

    def _may_join(self, first: CollectiveOp, second: CollectiveOp) -> bool:
        if first.name != second.name or first.axes != second.axes:
            return False
        if len(first.inputs) + len(second.inputs) > self.most:
            return False
        kind = first.reduction_kind
        if kind is not None and COMBINERS[kind].is_joint:
            return False
        names = {*first.properties, *second.properties}
        if any(first.properties.get(name) != second.properties.get(name) for name in names):
            return False
        return _element_type(first) == _element_type(second)


def _element_type(op: CollectiveOp) -> object:
    type = op.outputs.types[0]
    return type.element_type


def _place(first: CollectiveOp, second: CollectiveOp) -> tuple[Operation, list[Operation]] | None:
    """In whose place the join of both can stand, and the operations that then move behind it: in
    the first's if the second's operands are there already; in the second's if what needs the
    first's results before it can wait."""
    block = first.parent
    assert block is not None
    ops = list(block.ops)
    order = {op: number for number, op in enumerate(ops)}
    if all(
        not isinstance(value.owner, Operation) or order[value.owner] < order[first]
        for value in second.inputs
    ):
        return first, []
    between = ops[order[first] + 1 : order[second]]
    needing: set[Operation] = {first}
    moved: list[Operation] = []
    for op in between:
        if any(value.owner in needing for value in op.operands):
            needing.add(op)
            moved.append(op)
    if any(value.owner in needing for value in second.inputs):
        return None
    if any(not _may_wait(op, between, moved) for op in moved):
        return None
    return second, moved


def _needs(op: Operation, source: Operation) -> bool:
    """Whether an operation needs results of another, directly or not."""
    seen: set[Operation] = set()
    stack = [op]
    while stack:
        for value in stack.pop().operands:
            owner = value.owner
            if owner is source:
                return True
            if isinstance(owner, Operation) and owner not in seen:
                seen.add(owner)
                stack.append(owner)
    return False


def _may_wait(op: Operation, between: Sequence[Operation], moved: Sequence[Operation]) -> bool:
    """Whether nothing that stays would see another state if ``op`` ran later."""
    if is_side_effect_free(op):
        return True
    if not isinstance(op, nn.AppendOp):
        return False
    return not any(
        isinstance(other, nn.AppendOp) and other.state == op.state
        for other in between
        if other not in moved
    )


def _has_room(first: CollectiveOp, second: CollectiveOp, mesh: Mesh, target: Target) -> bool:
    """Whether some algorithm of both together has no more templates, whose workgroups wait for each
    other, than the device has compute units."""
    units = target.dies_per_device * target.cus_per_die
    if units > MOST_TEMPLATES:
        return True
    inputs = [*first.inputs, *second.inputs]
    types: Sequence[AnyTensor] = [value.type for value in (*first.outputs, *second.outputs)]
    trial = type(first)(inputs, types, mesh.name, first.axes.data)
    trial.properties = dict(first.properties)
    try:
        if first.algorithm is not None:
            return _templates(trial, mesh, target) <= units
        for name in legal_algorithms(first.KIND, mesh, first.axes.data, target):
            trial.algorithm = StringAttr(name)
            if _templates(trial, mesh, target) <= units:
                return True
        return False
    finally:
        trial.erase()


def _templates(op: CollectiveOp, mesh: Mesh, target: Target) -> int:
    try:
        return templates_of(op, mesh, target)
    except ValueError:  # more records than a template has
        return MOST_TEMPLATES + 1


def _gains(
    first: CollectiveOp, second: CollectiveOp, mesh: Mesh, target: Target, sink: RemarkSink
) -> bool:
    def best(payload: int, operands: int) -> float:
        algorithm, transport = first.algorithm, first.transport
        found = choices(
            first.KIND,
            payload,
            mesh,
            first.axes.data,
            target,
            algorithms=None if algorithm is None else [algorithm.data],
            transports=None if transport is None else [transport.data],
            operands=operands,
        )
        return found[0].time.seconds + target.kernel_gap_ps * 1e-12

    one, other = (payload_bytes(op) for op in (first, second))
    counts = len(first.inputs), len(second.inputs)
    apart = best(one, counts[0]) + best(other, counts[1])
    together = best(one + other, sum(counts))
    text = (
        f"{first.KIND} of {one:,} and of {other:,} bytes over "
        f"{{{axes_text(first.axes.data)}}}: {together * 1e6:.1f} us as one exchange, "
        f"{apart * 1e6:.1f} us apart, gaps between kernels included"
    )
    gains = together < apart
    sink.remark(
        "collectives-merged",
        text if gains else f"{text}; they stay apart",
        first,
        declined=not gains,
        together_us=together * 1e6,
        apart_us=apart * 1e6,
    )
    return gains


def _join(first: CollectiveOp, second: CollectiveOp, mesh: Mesh) -> None:
    inputs = [*first.inputs, *second.inputs]
    results = [*first.outputs, *second.outputs]
    types: Sequence[AnyTensor] = [value.type for value in results]
    new = type(first)(inputs, types, mesh.name, first.axes.data)
    new.properties = dict(first.properties)
    found = _place(first, second)
    assert found is not None
    place, moved = found
    Rewriter.insert_op(with_location(new, first), InsertPoint.before(place))
    behind: Operation = second
    for op in moved:
        op.detach()
        Rewriter.insert_op(op, InsertPoint.after(behind))
        behind = op
    for old, made in zip(results, new.outputs, strict=True):
        made.name_hint = old.name_hint
        old.replace_all_uses_with(made)
    for op in (first, second):
        op.detach()
        op.erase()
