"""The pass ``form-kernels``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.traits import is_side_effect_free

from starc.dialects import nn
from starc.dialects.collective import CollectiveOp
from starc.dialects.kernel import LaunchOp, YieldOp
from starc.passes.base import RemarkSink, StarcPass, with_location
from starc.targets.target import Target

IN_ROWS: Final = (
    nn.SiluOp,
    nn.GeluOp,
    nn.AddOp,
    nn.MulOp,
    nn.NormScaleOp,
    nn.ScaleColumnsOp,
    nn.ScaleRowsOp,
)
"""Elementwise operations that may stand next to a sum over whole rows."""

ELEMENTWISE: Final = (nn.RopeOp, nn.AppendOp, *IN_ROWS)
MOST_JOINED: Final = 16
"""Operations of a launch of elementwise ones: its kernel has to fit the limit of 64 records."""


@dataclass
class _Kernel:
    """Operations that become one launch; ``sources`` are the kernels whose results they read."""

    number: int
    kind: str
    ops: list[Operation]
    sources: set[int] = field(default_factory=set[int])
    name: str = ""


@dataclass(frozen=True)
class FormKernels(StarcPass):
    """Every operation of a layer becomes part of a kernel launch.

    After it a function holds ``kernel.launch``, the ``nn.read`` of parameters at its top and
    ``func.return``, nothing else; launches stand in an order in which they can run. ``nn.read``
    stays outside: it moves no data, its value names the buffer that a launch reads, and
    ``plan-memory`` removes it.

    Rules:

    - linear operations with the same input become one launch with a result each (q, k and v; gate
      and up);
    - elementwise operations, rope and appends to caches join the launch of an operation whose
      result they read, or of one that reads results of the same launch (rope of q and k with the
      appends of k and v; silu with its product), where rows agree, no launch would come to wait
      for itself, and at most 16 operations are joined;
    - a sum of squares joins elementwise operations that make or read the same rows (a residual
      addition, the scaling of its columns); whoever needs the sum itself is another launch, but for
      ``nn.norm_scale``;
    - ``nn.scale_rows`` of a product that nothing else reads joins the product's launch, and so does
      an ``nn.norm_scale`` that only products of that launch are scaled by;
    - appends join each other wherever their rows come from;
    - a norm, an attention, an embedding and a collective are launches of their own, and a residual
      addition is not merged into the norm behind it: another launch reads it too;
    - ``nn.last_token`` of a single token is that token; operations that nothing uses are dropped.

    A launch is named after its layer and its weights, or its operations; a collective also after
    the launch that computes what is exchanged.

    Before:

    ```mlir
    func.func @mlp(%x : tensor<2x1x64xbf16>) -> tensor<2x1x96xbf16> {
      %0 = nn.read @mlp.gate : tensor<64x96xbf16>
      %1 = nn.linear %x, %0 : tensor<2x1x64xbf16>, tensor<64x96xbf16> -> tensor<2x1x96xbf16>
      %2 = nn.silu %1 : tensor<2x1x96xbf16> -> tensor<2x1x96xbf16>
      %3 = nn.read @mlp.up : tensor<64x96xbf16>
      %4 = nn.linear %x, %3 : tensor<2x1x64xbf16>, tensor<64x96xbf16> -> tensor<2x1x96xbf16>
      %5 = nn.mul %2, %4 : tensor<2x1x96xbf16>, tensor<2x1x96xbf16> -> tensor<2x1x96xbf16>
      func.return %5 : tensor<2x1x96xbf16>
    }
    nn.parameter @mlp.gate : tensor<64x96xbf16>
    nn.parameter @mlp.up : tensor<64x96xbf16>
    ```

    After:

    ```mlir
    func.func @mlp(%x : tensor<2x1x64xbf16>) -> tensor<2x1x96xbf16> {
      %0 = nn.read @mlp.gate : tensor<64x96xbf16>
      %1 = nn.read @mlp.up : tensor<64x96xbf16>
      %2, %3 = kernel.launch @mlp.gate_up gemm (%4 = %x : tensor<2x1x64xbf16>, %5 = %0 : tensor<64x96xbf16>, %6 = %1 : tensor<64x96xbf16>) -> (tensor<2x1x96xbf16>, tensor<2x1x96xbf16>) {
        %7 = nn.linear %4, %5 : tensor<2x1x64xbf16>, tensor<64x96xbf16> -> tensor<2x1x96xbf16>
        %8 = nn.linear %4, %6 : tensor<2x1x64xbf16>, tensor<64x96xbf16> -> tensor<2x1x96xbf16>
        kernel.yield %7, %8 : tensor<2x1x96xbf16>, tensor<2x1x96xbf16>
      }
      %9 = kernel.launch @mlp.silu_mul elementwise (%10 = %2 : tensor<2x1x96xbf16>, %11 = %3 : tensor<2x1x96xbf16>) -> (tensor<2x1x96xbf16>) {
        %12 = nn.silu %10 : tensor<2x1x96xbf16> -> tensor<2x1x96xbf16>
        %13 = nn.mul %12, %11 : tensor<2x1x96xbf16>, tensor<2x1x96xbf16> -> tensor<2x1x96xbf16>
        kernel.yield %13 : tensor<2x1x96xbf16>
      }
      func.return %9 : tensor<2x1x96xbf16>
    }
    nn.parameter @mlp.gate : tensor<64x96xbf16>
    nn.parameter @mlp.up : tensor<64x96xbf16>
    ```
    """  # noqa: E501

    name = "form-kernels"

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        for function in module.body.ops:
            if isinstance(function, FuncOp) and not function.is_declaration:
                _FunctionKernels(function, sink).form()


class _FunctionKernels:
    """Forms the kernels of one function."""

    def __init__(self, function: FuncOp, sink: RemarkSink) -> None:
        self.function = function
        self.block = function.body.block
        self.sink = sink
        self.kernels: list[_Kernel] = []
        self.kernel_of: dict[Operation, _Kernel] = {}
        self.last_touch: dict[str, set[int]] = {}

    def form(self) -> None:
        self._drop_idle()
        reads: list[Operation] = []
        for op in self.block.ops:
            if isinstance(op, nn.ReadOp):
                reads.append(op)
            elif op is not self.block.last_op and not isinstance(op, LaunchOp):
                self._place(op)
        if not self.kernels:
            return
        self._fold_scales()
        self._name()
        order = self._order()
        terminator = self.block.last_op
        assert terminator is not None
        uses = {kernel.number: self._results(kernel) for kernel in order}
        for op in (*reads, *(op for kernel in order for op in kernel.ops)):
            op.detach()
        for op in reads:
            self.block.insert_op_before(op, terminator)
        for kernel in order:
            launch = _launch(kernel, uses[kernel.number])
            self.block.insert_op_before(launch, terminator)
            self.sink.remark(
                "kernel-formed",
                f"launch {kernel.name} computes {_counts(kernel.ops)}",
                launch,
                kind=kernel.kind,
                operations=len(kernel.ops),
            )

    # Which operations

    def _drop_idle(self) -> None:
        for op in reversed(list(self.block.ops)):
            if isinstance(op, nn.LastTokenOp) and op.input.type == op.result.type:
                op.result.replace_all_uses_with(op.input)
            if op is self.block.last_op or any(result.uses for result in op.results):
                continue
            if is_side_effect_free(op) or isinstance(op, nn.ReadOp):
                self.sink.remark("unused-dropped", f"nothing uses this {op.name}", op)
                op.detach()
                op.erase()

    def _place(self, op: Operation) -> None:
        sources = {kernel.number for kernel in self._producers(op)} | self._state_order(op)
        if isinstance(op, nn.LinearOp):
            kernel = self._sibling_linear(op) or self._new("gemm")
        elif isinstance(op, nn.SumSquaresOp):
            kernel = self._rows_home(op, sources) or self._new("norm")
            kernel.kind = "norm"
        elif isinstance(op, nn.ScaleRowsOp) and (product := self._product(op, sources)):
            kernel = product
        elif isinstance(op, ELEMENTWISE):
            kernel = self._elementwise_home(op, sources) or self._new("elementwise")
            if isinstance(op, nn.AppendOp):
                kernel.kind = "append"
        else:
            kernel = self._new(_own_kind(op))
        kernel.ops.append(op)
        kernel.sources |= sources - {kernel.number}
        self.kernel_of[op] = kernel
        self._touch_state(op, kernel)

    def _new(self, kind: str) -> _Kernel:
        kernel = _Kernel(len(self.kernels), kind, [])
        self.kernels.append(kernel)
        return kernel

    def _producers(self, op: Operation) -> list[_Kernel]:
        found: list[_Kernel] = []
        for operand in op.operands:
            owner = operand.owner
            if isinstance(owner, Operation) and owner in self.kernel_of:
                found.append(self.kernel_of[owner])
        return found

    def _sibling_linear(self, op: nn.LinearOp) -> _Kernel | None:
        for kernel in self.kernels:
            first = kernel.ops[0]
            if isinstance(first, nn.LinearOp) and first.input is op.input:
                return kernel
        return None

    def _product(self, op: nn.ScaleRowsOp, sources: set[int]) -> _Kernel | None:
        """The launch of the product whose rows ``op`` scales, if that may do it."""
        linear = op.input.owner
        if not isinstance(linear, nn.LinearOp) or linear not in self.kernel_of:
            return None
        kernel = self.kernel_of[linear]
        if not op.input.has_one_use() or any(
            self._depends(other, kernel.number) for other in sources - {kernel.number}
        ):
            return None
        return kernel

    def _rows_home(self, op: nn.SumSquaresOp, sources: set[int]) -> _Kernel | None:
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
                and all(_extents(member) == _extents(op) for member in kernel.ops)
                and len(kernel.ops) < MOST_JOINED
                and not any(
                    self._depends(other, kernel.number) for other in sources - {kernel.number}
                )
            ):
                return kernel
        return None

    def _fold_scales(self) -> None:
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
            if home.kind != "gemm":
                continue
            home.ops.insert(1, op)  # the product that names the launch stays first
            home.sources |= kernel.sources
            home.sources.discard(kernel.number)
            self.kernel_of[op] = home
            kernel.ops.clear()
        self.kernels = [kernel for kernel in self.kernels if kernel.ops]

    def _elementwise_home(self, op: Operation, sources: set[int]) -> _Kernel | None:
        """The latest elementwise kernel that ``op`` may join."""
        read = self._origins([op])
        for kernel in reversed(self.kernels):
            if kernel.kind not in ("elementwise", "append", "norm"):
                continue
            if kernel.kind == "norm" and not _may_join_rows(op, kernel):
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
                or (isinstance(op, nn.AppendOp) and kernel.kind == "append")
            )
            if not connected or _rows(op) != _rows(kernel.ops[0]):
                continue
            # Merging must not make the kernel wait for itself through another one.
            if any(self._depends(other, kernel.number) for other in sources - {kernel.number}):
                self.sink.remark(
                    "kernel-not-merged",
                    f"{op.name} does not join the launch of "
                    f"{', '.join(_unique(o.name for o in kernel.ops))}: another operand of it "
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
                    if kernel.kind == "gemm":
                        found.add(kernel.number)
        return found

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

    def _touch_state(self, op: Operation, kernel: _Kernel) -> None:
        if isinstance(op, nn.AppendOp):
            self.last_touch[op.state.string_value()] = {kernel.number}
        for operand in op.operands:
            owner = operand.owner
            if isinstance(owner, nn.AppendOp):
                self.last_touch[owner.state.string_value()].add(kernel.number)

    # The launches

    def _order(self) -> list[_Kernel]:
        """The kernels, each behind its sources, else in order of their first operation."""
        order: list[_Kernel] = []
        done: set[int] = set()
        waiting = list(self.kernels)
        while waiting:
            ready = next(kernel for kernel in waiting if kernel.sources <= done)
            waiting.remove(ready)
            done.add(ready.number)
            order.append(ready)
        return order

    def _results(self, kernel: _Kernel) -> list[SSAValue]:
        members = set(kernel.ops)
        return [
            result
            for op in kernel.ops
            for result in op.results
            if isinstance(op, nn.AppendOp)
            or any(use.operation not in members for use in result.uses)
        ]

    def _name(self) -> None:
        layer = self.function.sym_name.data
        taken: dict[str, int] = {}
        for kernel in self.kernels:
            name = f"{layer}.{_stem(kernel, self._computed_by(kernel), layer)}"
            taken[name] = taken.get(name, 0) + 1
            kernel.name = name if taken[name] == 1 else f"{name}_{taken[name]}"

    def _computed_by(self, kernel: _Kernel) -> list[_Kernel]:
        """The kernels that make what a kernel reads, where they only exchange it those that compute
        it."""
        found = self._producers(kernel.ops[0])
        while found and found[0].kind == "collective" and kernel.kind == "collective":
            found = self._producers(found[0].ops[0])
        return found


def _own_kind(op: Operation) -> str:
    if isinstance(op, nn.RmsNormOp):
        return "norm"
    if isinstance(op, nn.AttentionOp | nn.PartialAttentionOp):
        return "attention"
    if isinstance(op, nn.EmbeddingOp | nn.LastTokenOp):
        return "embedding"
    if isinstance(op, nn.LseFinishOp):
        return "elementwise"
    if isinstance(op, CollectiveOp):
        return "collective"
    raise ValueError(f"no kind of kernel runs {op.name}")


def _rows(op: Operation) -> tuple[int, ...]:
    """Leading extents of the value that an elementwise operation works on."""
    type = op.operands[0].type
    assert isinstance(type, TensorType)
    return type.get_shape()[:-1]


def _extents(op: Operation) -> tuple[int, ...]:
    """Extents of the value that an elementwise operation works on."""
    type = op.operands[0].type
    assert isinstance(type, TensorType)
    return type.get_shape()


def _may_join_rows(op: Operation, kernel: _Kernel) -> bool:
    """Whether an elementwise operation can be computed while a launch sums up rows: it works on
    the same rows and needs no sum before the end of its row."""
    sums = {member.results[0] for member in kernel.ops if isinstance(member, nn.SumSquaresOp)}
    known = {member.results[0] for member in kernel.ops if isinstance(member, nn.NormScaleOp)}
    if isinstance(op, nn.NormScaleOp):
        return op.input in sums
    return (
        isinstance(op, IN_ROWS)
        and _extents(op) == _extents(kernel.ops[0])
        and not any(operand in sums | known for operand in op.operands)
    )


def _stem(kernel: _Kernel, producers: Sequence[_Kernel], layer: str) -> str:
    weights = [
        operand.owner.parameter.string_value().removeprefix(f"{layer}.")
        for op in kernel.ops
        for operand in op.operands
        if isinstance(operand.owner, nn.ReadOp)
    ]
    if kernel.kind in ("gemm", "norm") and weights:
        return "_".join(weights)
    operations = _unique(op.name.split(".")[-1] for op in kernel.ops)
    stem = "_".join(operations)
    if kernel.kind == "collective" and producers and producers[0].name:
        return f"{producers[0].name.removeprefix(f'{layer}.')}_{stem}"
    return stem


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _counts(ops: Sequence[Operation]) -> str:
    """``3 nn.linear, nn.norm_scale``: the operations of a launch, in order of the first of each."""
    counts = Counter(op.name for op in ops)
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in counts.items())


def _launch(kernel: _Kernel, results: Sequence[SSAValue]) -> LaunchOp:
    """The launch of detached operations; outside uses of ``results`` become uses of its results."""
    members = set(kernel.ops)
    inputs: dict[SSAValue, None] = {}
    for op in kernel.ops:
        for operand in op.operands:
            if operand.owner not in members:
                inputs[operand] = None
    block = Block(arg_types=[value.type for value in inputs])
    argument: dict[SSAValue, SSAValue] = {}
    for value, inner in zip(inputs, block.args, strict=True):
        inner.name_hint = value.name_hint
        argument[value] = inner
    for op in kernel.ops:
        for index, operand in enumerate(op.operands):
            if operand in argument:
                op.operands[index] = argument[operand]
        block.add_op(op)
    outer_uses = {
        value: [use for use in value.uses if use.operation not in members] for value in results
    }
    block.add_op(YieldOp(*results))
    types: list[Attribute] = [value.type for value in results]
    launch = LaunchOp(kernel.name, kernel.kind, list(inputs), Region(block), result_types=types)
    for value, outer in zip(results, launch.results, strict=True):
        outer.name_hint = value.name_hint
        for use in outer_uses[value]:
            use.operation.operands[use.index] = outer
    return with_location(launch, kernel.ops[0])
