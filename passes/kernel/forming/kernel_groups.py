"""The operations of a layer in groups, each of which becomes one launch."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import BlockArgument, Operation, OpResult

from starc.dialects import nn
from starc.dialects.kernel_kinds import LaunchKind
from starc.passes.base import RemarkSink
from starc.passes.kernel.forming.grouping_rules import (
    ELEMENTWISE,
    IN_ROWS,
    MOST_JOINED,
    KernelGroup,
    extents_of,
    may_join_rows,
    own_kind,
    rows_of,
)


class KernelGroups:
    """The groups of one function, as operations are placed in them one after the other."""

    def __init__(self, sink: RemarkSink) -> None:
        self.sink = sink
        self.kernels: list[KernelGroup] = []
        self.kernel_of: dict[Operation, KernelGroup] = {}
        self.last_touch: dict[str, set[int]] = {}

    def place(self, op: Operation) -> None:
        """Puts an operation into the group that may compute it, else into one of its own."""
        sources = {kernel.number for kernel in self.producers(op)} | self._state_order(op)
        if isinstance(op, nn.LinearOp):
            kernel = self._sibling_linear(op) or self._new(LaunchKind.GEMM)
        elif isinstance(op, nn.SumSquaresOp):
            kernel = self._rows_home(op, sources) or self._new(LaunchKind.NORM)
            kernel.kind = LaunchKind.NORM
        elif isinstance(op, nn.ScaleRowsOp) and (product := self._product(op, sources)):
            kernel = product
        elif isinstance(op, ELEMENTWISE):
            kernel = self._elementwise_home(op, sources) or self._new(LaunchKind.ELEMENTWISE)
            if isinstance(op, nn.AppendOp):
                kernel.kind = LaunchKind.APPEND
        else:
            kernel = self._new(own_kind(op))
        kernel.ops.append(op)
        kernel.sources |= sources - {kernel.number}
        self.kernel_of[op] = kernel
        self._touch_state(op, kernel)

    def _new(self, kind: LaunchKind) -> KernelGroup:
        kernel = KernelGroup(len(self.kernels), kind, [])
        self.kernels.append(kernel)
        return kernel

    def producers(self, op: Operation) -> list[KernelGroup]:
        """The groups that make the operands of an operation."""
        found: list[KernelGroup] = []
        for operand in op.operands:
            owner = operand.owner
            if isinstance(owner, Operation) and owner in self.kernel_of:
                found.append(self.kernel_of[owner])
        return found

    def _sibling_linear(self, op: nn.LinearOp) -> KernelGroup | None:
        for kernel in self.kernels:
            first = kernel.ops[0]
            if isinstance(first, nn.LinearOp) and first.input is op.input:
                return kernel
        return None

    def _product(self, op: nn.ScaleRowsOp, sources: set[int]) -> KernelGroup | None:
        """The launch of the product whose rows ``op`` scales, if that may do it."""
        linear = op.input.owner
        if not isinstance(linear, nn.LinearOp) or linear not in self.kernel_of:
            return None
        kernel = self.kernel_of[linear]
        if not op.input.has_one_use() or self._would_wait(kernel, sources):
            return None
        return kernel

    def _rows_home(self, op: nn.SumSquaresOp, sources: set[int]) -> KernelGroup | None:
        """The latest kernel that makes what ``op`` sums, or sums the same, and works on whole rows
        then."""
        for kernel in reversed(self.kernels):
            is_same = any(
                isinstance(member, nn.ScaleColumnsOp | nn.SumSquaresOp) and member.input is op.input
                for member in kernel.ops
            )
            if (
                (is_same or kernel.number in sources)
                and all(isinstance(member, (*IN_ROWS, nn.SumSquaresOp)) for member in kernel.ops)
                and all(extents_of(member) == extents_of(op) for member in kernel.ops)
                and len(kernel.ops) < MOST_JOINED
                and not self._would_wait(kernel, sources)
            ):
                return kernel
        return None

    def fold_scales(self) -> None:
        """The scale of a norm that is a launch of its own, and that products of one launch alone
        multiply their rows with, joins that launch."""
        for kernel in list(self.kernels):
            op = kernel.ops[0]
            if len(kernel.ops) > 1 or not isinstance(op, nn.NormScaleOp):
                continue
            users = [use.operation for use in op.result.uses]
            homes = {self.kernel_of[user].number for user in users if user in self.kernel_of}
            if len(homes) != 1 or not all(
                isinstance(user, nn.ScaleRowsOp) and user in self.kernel_of for user in users
            ):
                continue
            home = self.kernels[homes.pop()]
            if home.kind is not LaunchKind.GEMM:
                continue
            home.ops.insert(1, op)  # the product that names the launch stays first
            home.sources |= kernel.sources
            home.sources.discard(kernel.number)
            self.kernel_of[op] = home
            kernel.ops.clear()
        self.kernels = [kernel for kernel in self.kernels if kernel.ops]

    def _elementwise_home(self, op: Operation, sources: set[int]) -> KernelGroup | None:
        """The latest elementwise kernel that ``op`` may join."""
        read = self._origins([op])
        for kernel in reversed(self.kernels):
            if kernel.kind not in (LaunchKind.ELEMENTWISE, LaunchKind.APPEND, LaunchKind.NORM):
                continue
            if kernel.kind is LaunchKind.NORM and not may_join_rows(op, kernel):
                continue
            if not all(
                isinstance(member, (*ELEMENTWISE, nn.SumSquaresOp)) for member in kernel.ops
            ):
                continue
            if len(kernel.ops) >= MOST_JOINED:
                continue
            connected = (
                kernel.number in sources
                or read & self._origins(kernel.ops)
                or (isinstance(op, nn.AppendOp) and kernel.kind is LaunchKind.APPEND)
            )
            if not connected or rows_of(op) != rows_of(kernel.ops[0]):
                continue
            if self._would_wait(kernel, sources):
                members = ", ".join(dict.fromkeys(member.name for member in kernel.ops))
                self.sink.remark(
                    "kernel-not-merged",
                    f"{op.name} does not join the launch of {members}: another operand of it "
                    "comes from a launch that waits for that one",
                    op,
                    declined=True,
                )
                continue
            return kernel
        return None

    def _origins(self, ops: Sequence[Operation]) -> set[int]:
        """The GEMMs that values come from; -1 stands for the arguments of the layer."""
        found: set[int] = set()
        for op in ops:
            for operand in op.operands:
                if isinstance(operand, BlockArgument):
                    found.add(-1)
                elif isinstance(operand, OpResult) and operand.op in self.kernel_of:
                    kernel = self.kernel_of[operand.op]
                    if kernel.kind is LaunchKind.GEMM:
                        found.add(kernel.number)
        return found

    def _would_wait(self, kernel: KernelGroup, sources: set[int]) -> bool:
        """Whether a kernel that took what these make would wait for itself through another one."""
        return any(self._depends(other, kernel.number) for other in sources - {kernel.number})

    def _depends(self, start: int, goal: int) -> bool:
        seen, stack = set[int](), [start]
        while stack:
            number = stack.pop()
            if number == goal:
                return True
            if number not in seen:
                seen.add(number)
                stack.extend(self.kernels[number].sources)
        return False

    def _state_order(self, op: Operation) -> set[int]:
        """Kernels that must run before an append because they wrote or read the same cache."""
        if isinstance(op, nn.AppendOp):
            return set(self.last_touch.get(op.state.string_value(), set()))
        return set()

    def _touch_state(self, op: Operation, kernel: KernelGroup) -> None:
        if isinstance(op, nn.AppendOp):
            self.last_touch[op.state.string_value()] = {kernel.number}
        for operand in op.operands:
            owner = operand.owner
            if isinstance(owner, nn.AppendOp):
                self.last_touch[owner.state.string_value()].add(kernel.number)

    def order(self) -> list[KernelGroup]:
        """The kernels, each behind its sources, else in order of their first operation."""
        order: list[KernelGroup] = []
        done: set[int] = set()
        waiting = list(self.kernels)
        while waiting:
            ready = next(kernel for kernel in waiting if kernel.sources <= done)
            waiting.remove(ready)
            done.add(ready.number)
            order.append(ready)
        return order
