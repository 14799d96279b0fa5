"""The pass ``form-kernels``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation
from xdsl.traits import is_side_effect_free

from starc.dialects import nn
from starc.dialects.kernel import LaunchOp
from starc.passes.base import RemarkSink, StarcPass
from starc.passes.kernel.forming.formed_launches import launch_of
from starc.passes.kernel.forming.group_names import name_groups
from starc.passes.kernel.forming.kernel_groups import KernelGroups
from starc.targets.target import Target


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
                _form(function, sink)


def _form(function: FuncOp, sink: RemarkSink) -> None:
    """Makes the operations of a function launches."""
    block = function.body.block
    _drop_idle(block, sink)
    groups = KernelGroups(sink)
    reads: list[Operation] = []
    for op in block.ops:
        if isinstance(op, nn.ReadOp):
            reads.append(op)
        elif op is not block.last_op and not isinstance(op, LaunchOp):
            groups.place(op)
    if not groups.kernels:
        return
    groups.fold_scales()
    name_groups(groups, function.sym_name.data)
    order = groups.order()
    terminator = block.last_op
    assert terminator is not None
    results = [group.results for group in order]
    for op in (*reads, *(op for group in order for op in group.ops)):
        op.detach()
    for op in reads:
        block.insert_op_before(op, terminator)
    for group, values in zip(order, results, strict=True):
        launch = launch_of(group, values)
        block.insert_op_before(launch, terminator)
        sink.remark(
            "kernel-formed",
            f"launch {group.name} computes {_counts(group.ops)}",
            launch,
            kind=group.kind.value,
            operations=len(group.ops),
        )


def _drop_idle(block: Block, sink: RemarkSink) -> None:
    """Drops operations that nothing uses, and the choice of the last of one token."""
    for op in reversed(list(block.ops)):
        if isinstance(op, nn.LastTokenOp) and op.input.type == op.result.type:
            op.result.replace_all_uses_with(op.input)
        if op is block.last_op or any(result.uses for result in op.results):
            continue
        if is_side_effect_free(op) or isinstance(op, nn.ReadOp):
            sink.remark("unused-dropped", f"nothing uses this {op.name}", op)
            op.detach()
            op.erase()


def _counts(ops: Sequence[Operation]) -> str:
    """``3 nn.linear, nn.norm_scale``: the operations of a launch, in order of the first of each."""
    counts = Counter(op.name for op in ops)
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in counts.items())
