"""The pass ``assign-queues``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_kinds import LaunchKind
from starc.passes.base import RemarkSink, StarcPass
from starc.targets.target import Target


class Queue(IntEnum):
    """Launches of one queue run one behind the other."""

    COMPUTE = 0
    COMMUNICATION = 1


@dataclass(frozen=True)
class AssignQueues(StarcPass):
    """Every launch gets its queue: 0 for compute, 1 for communication.

    Launches of one queue run one behind the other. A collective goes to queue 1 when there is work
    to hide it behind: between it and the first launch that needs its result stands one that is not
    a collective itself.
    A collective whose result the next launch reads stays on queue 0, where the order costs nothing.

    After it every ``kernel.launch`` has ``queue``.

    Before:

    ```mlir
    func.func @f(%x : tensor<2x1x64xbf16>) -> tensor<2x1x64xbf16> {
      %y = kernel.launch @f.silu elementwise (%a = %x : tensor<2x1x64xbf16>) -> (tensor<2x1x64xbf16>) {
        %b = nn.silu %a : tensor<2x1x64xbf16> -> tensor<2x1x64xbf16>
        kernel.yield %b : tensor<2x1x64xbf16>
      }
      func.return %y : tensor<2x1x64xbf16>
    }
    ```

    After:

    ```mlir
    func.func @f(%x : tensor<2x1x64xbf16>) -> tensor<2x1x64xbf16> {
      %y = kernel.launch @f.silu elementwise (%a = %x : tensor<2x1x64xbf16>) -> (tensor<2x1x64xbf16>) attributes {queue = 0 : i64} {
        %b = nn.silu %a : tensor<2x1x64xbf16> -> tensor<2x1x64xbf16>
        kernel.yield %b : tensor<2x1x64xbf16>
      }
      func.return %y : tensor<2x1x64xbf16>
    }
    ```
    """  # noqa: E501

    name = "assign-queues"

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        for function in module.body.ops:
            if isinstance(function, FuncOp) and not function.is_declaration:
                _assign(list(function.body.block.ops), sink)


def _assign(ops: list[Operation], sink: RemarkSink) -> None:
    position = {op: index for index, op in enumerate(ops)}
    for op in ops:
        if isinstance(op, LaunchOp):
            queue = Queue.COMPUTE
            if op.kind.data == LaunchKind.COLLECTIVE:
                users = [position[use.operation] for result in op.results for use in result.uses]
                first = min(users, default=len(ops))
                queue = _queue_of_exchange(op, ops[position[op] + 1 : first], sink)
            op.properties["queue"] = IntegerAttr(queue.value, i64)


def _queue_of_exchange(launch: LaunchOp, between: list[Operation], sink: RemarkSink) -> Queue:
    """The queue of a collective, ``between`` which and the first use of its result there are other
    operations."""
    hidden_behind = [
        other
        for other in between
        if isinstance(other, LaunchOp) and other.kind.data != LaunchKind.COLLECTIVE
    ]
    if hidden_behind:
        sink.remark(
            "collective-overlapped",
            f"{launch.sym_name.data} runs beside {hidden_behind[0].sym_name.data}",
            launch,
            launches=len(hidden_behind),
        )
        return Queue.COMMUNICATION
    sink.remark(
        "collective-exposed",
        f"nothing can run beside {launch.sym_name.data} before its result is needed",
        launch,
        declined=True,
    )
    return Queue.COMPUTE
