"""``select-collective-algorithm``: how every collective is executed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, StringAttr, i64

from starc.core.collective_schedules import ring_strides, ring_time
from starc.core.combiners import COMBINERS
from starc.core.mesh import AxisRef, Mesh, axes_text
from starc.core.sharding_rules import module_mesh
from starc.diagnostics import Diagnostic, InputError, counted, location_of
from starc.dialects.collective import (
    AllGatherOp,
    AllReduceOp,
    CollectiveOp,
    ReduceScatterOp,
)
from starc.dialects.sharding import AnyTensor
from starc.passes.base import RemarkSink, StarcPass
from starc.targets.target import Target


@dataclass(frozen=True)
class SelectCollectiveAlgorithmPass(StarcPass):
    """Writes the algorithm, the transport and the rings into every collective.

    All-reduce, all-gather and reduce-scatter become rings over the flattened group, as collective
    libraries run them on many ranks. Where the group lies on one axis whose devices are all linked
    to each other, several rings with strides coprime to its size share the data, each on links of
    its own. Other exchanges are direct. A remark gives the alpha-beta cost.

    Contract: after this pass every collective that moves data has ``algorithm`` and ``transport``,
    and a ring has the strides of its ``rings``. A ring needs an associative and commutative
    combiner. Needs ``localize``.

    Before:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    func.func @decoder(
        %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"},
                                              global = [2, 1, 64]>>) {
      %0 = collective.all_reduce %x on @node axes = ["gpu"] reduction = sum
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"},
                                           global = [2, 1, 64]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
      func.return
    }
    ```

    After:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    func.func @decoder(
        %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"},
                                              global = [2, 1, 64]>>) {
      %0 = collective.all_reduce %x on @node axes = ["gpu"] reduction = sum
        {algorithm = "ring", transport = "bulk", rings = array<i64: 1, 3, 5, 7>}
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"},
                                           global = [2, 1, 64]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
      func.return
    }
    ```
    """

    name = "select-collective-algorithm"

    transport: str = "bulk"
    """The transport of the target that all collectives use."""

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        if self.transport not in target.transports:
            raise InputError(
                Diagnostic(
                    f"{target.name} has no transport '{self.transport}'",
                    key="transport",
                    hint=f"transports: {', '.join(sorted(target.transports))}",
                )
            )
        diagnostics: list[Diagnostic] = []
        for op in module.walk():
            if not isinstance(op, CollectiveOp) or not op.MOVES_DATA:
                continue
            if isinstance(op, AllReduceOp | AllGatherOp | ReduceScatterOp):
                problem = _ring_problem(op)
                if problem is not None:
                    diagnostics.append(Diagnostic(problem, location_of(op)))
                else:
                    self._ring(op, module_mesh(module), target, sink)
            else:
                op.algorithm = StringAttr("direct")
            op.transport = StringAttr(self.transport)
        if diagnostics:
            raise InputError(diagnostics)

    def _ring(self, op: CollectiveOp, mesh: Mesh, target: Target, sink: RemarkSink) -> None:
        axes = op.axes.data
        size = mesh.refs_size(axes)
        strides = ring_strides(size) if is_fully_connected(mesh, axes, target) else (1,)
        op.algorithm = StringAttr("ring")
        op.rings = DenseArrayBase.from_list(i64, strides)
        link_class = mesh.link_class(axes)
        if link_class is None:
            return
        operation = op.name.removeprefix("collective.")
        payload = sum(_bytes(cast(AnyTensor, type)) for type in _larger_side(op))
        seconds = ring_time(
            operation,
            size,
            payload,
            (target.transports[self.transport].step_ps + target.link_latency_ps[link_class])
            * 1e-12,
            target.link_rate[link_class],
            len(strides),
        )
        sink.remark(
            "collective-algorithm",
            f"{operation} of {payload} bytes over {{{axes_text(axes)}}}: ring of {size} devices on "
            f"{link_class}, {counted(len(strides), 'ring')}, {seconds * 1e6:.1f} us",
            op,
            devices=size,
            rings=len(strides),
            payload_bytes=payload,
            cost_us=seconds * 1e6,
        )


def is_fully_connected(mesh: Mesh, axes: tuple[AxisRef, ...], target: Target) -> bool:
    """Whether every device of a group has a link of its own to every other: the group lies on one
    axis of the outermost level, and a device has as many ports as that axis has devices."""
    names = {axis.name for axis in axes}
    if len(names) != 1:
        return False
    axis = mesh.axis(names.pop())
    return axis.level == mesh.levels()[0] and axis.size <= target.ports


def _ring_problem(op: CollectiveOp) -> str | None:
    kind = op.reduction_kind
    if kind is None:
        return None
    combiner = COMBINERS[kind]
    if combiner.associative and combiner.commutative:
        return None
    return f"a ring needs an associative and commutative reduction, {kind} is not"


def _larger_side(op: CollectiveOp) -> tuple[object, ...]:
    """The types of the whole data: results of a gather, operands of anything else."""
    return tuple(op.outputs.types if isinstance(op, AllGatherOp) else op.inputs.types)


def _bytes(type: AnyTensor) -> int:
    bits = getattr(type.element_type, "bitwidth", 32)
    return math.prod(type.get_shape()) * bits // 8
