"""``compose-reshards``: reshards meet, move behind what they commute with, and cancel."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from starc.analysis.communication import communicated_bytes
from starc.analysis.reencoding import (
    ParameterUses,
    drop_if_idle,
    encoding,
    layers_of,
    shape_of,
    update_signature,
)
from starc.analysis.sharding_rules import has_rule, module_mesh, symbol_type
from starc.core.sharding.encoding import is_refinement
from starc.core.sharding.link_bytes import add_bytes, bytes_text, is_no_more
from starc.core.sharding.mesh import Mesh
from starc.dialects.nn import ReadOp
from starc.dialects.sharding import ReshardOp
from starc.passes.base import RemarkSink, StarcPass
from starc.passes.sharding.composing.gathers import sink_gathers
from starc.passes.sharding.composing.reductions import merge_reductions, sink_reduction
from starc.passes.sharding.composing.reshard_costs import ReshardCosts
from starc.targets.target import Target


@dataclass(frozen=True)
class ComposeReshardsPass(StarcPass):
    """Composes reshards, and moves them to where they compose.

    - A reshard of a reshard is one from the first encoding to the last: a gather and the slice that
      takes a part of it cancel, a reduction and a slice are a reduce-scatter. Reshards that change
      nothing, or that nobody uses, vanish; two that do the same are one.
    - A gather moves below an operation on single elements (or rows, or columns), which then runs on
      the finer shards, where its other operands can be had there.
    - A reduction moves below operations that are linear in it, to the reshards behind them: a
      reduce-scatter, a rotary embedding and a gather become an embedding of the partial sum and an
      all-reduce. Reductions of the terms of a sum become one reduction of the sum.
    - A parameter that is always resharded is stored that way.

    Each rewrite is done only where no link class carries more bytes after it than before
    (``starc.analysis.communication``).

    Contract: encodings are legal; values, layers' arguments and results keep their types, and no
    layer communicates more bytes on any link class. Needs ``propagate-shardings``.

    Before:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    func.func @residual(
        %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>,
        %o : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}>>)
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>> {
      %0 = sharding.reshard %x
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
      %1 = sharding.reshard %o
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
      %2 = nn.add %0, %1
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>,
          tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
      %3 = sharding.reshard %2
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
      func.return %3 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
    }
    ```

    After:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    func.func @residual(
        %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>,
        %o : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}>>)
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>> {
      %0 = sharding.reshard %o
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
      %1 = nn.add %x, %0
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>,
          tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
      func.return %1 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
    }
    ```
    """

    name = "compose-reshards"

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        mesh = module_mesh(module)
        for layer in layers_of(module):
            before = communicated_bytes(layer)
            rewrites = _compose(layer, ReshardCosts(mesh))
            update_signature(layer)
            after = communicated_bytes(layer)
            assert is_no_more(after, before), f"@{layer.sym_name.data}: {before} became {after}"
            if rewrites:
                sink.remark(
                    "composed-reshards",
                    f"@{layer.sym_name.data}: a device sends {bytes_text(after)} in place of "
                    f"{bytes_text(before)}",
                    layer,
                    rewrites=rewrites,
                    sent_bytes=sum(after.values()),
                    sent_bytes_before=sum(before.values()),
                )
        _store_as_used(module, mesh)


def _store_as_used(module: ModuleOp, mesh: Mesh) -> None:
    """Stores parameters of which only a reshard is used, always the same, as it leaves them."""
    parameters = ParameterUses.of(module)
    for name, reads in parameters.reads.items():
        users = [op for op, _ in parameters.users(name)]
        wanted = {
            encoding(op.results[0], mesh).canonical() if isinstance(op, ReshardOp) else None
            for op in users
        }
        found = wanted.pop() if len(wanted) == 1 else None
        if found is None:
            continue
        old, shape = encoding(reads[0].result, mesh), shape_of(reads[0].result)
        if not all(
            is_refinement(mesh, coarse, fine, extent)
            for coarse, fine, extent in zip(old.dims, found.dims, shape, strict=True)
        ):
            continue
        parameters.set_encoding(name, found)
        for op in users:
            assert isinstance(op, ReshardOp)
            drop_if_idle(op, mesh)


def _compose(layer: FuncOp, costs: ReshardCosts) -> int:
    """Rewrites a layer until nothing changes, and says how often. Every rewrite removes a reshard
    or moves one towards the end of the block, so this ends."""
    rewrites, before = 0, -1
    while rewrites != before:
        before = rewrites
        for op in list(layer.body.block.ops):
            while op.parent is not None and _rewrite(op, costs):
                rewrites += 1
    return rewrites


def _rewrite(op: Operation, costs: ReshardCosts) -> bool:
    if isinstance(op, ReshardOp):
        if not any(value.first_use for value in op.results):
            op.detach()
            op.erase()
            return True
        return drop_if_idle(op, costs.mesh) or (
            len(op.inputs) == 1 and (_join(op, costs) or _unite(op) or sink_reduction(op, costs))
        )
    if not has_rule(op) or isinstance(op, ReadOp) or len(op.results) != 1:
        return False
    if symbol_type(op) is not None:
        return False
    return merge_reductions(op, costs) or sink_gathers(op, costs)


def _join(op: ReshardOp, costs: ReshardCosts) -> bool:
    """A reshard of a reshard."""
    first = op.inputs[0].owner
    if not isinstance(first, ReshardOp) or len(first.inputs) != 1:
        return False
    source, target = first.inputs[0], encoding(op.results[0], costs.mesh)
    now = costs.cost_of(op)
    if first.results[0].has_one_use():
        now = add_bytes([now, costs.cost_of(first)])
    if not is_no_more(costs.cost(source, encoding(source, costs.mesh), target), now):
        return False
    op.operands[0] = source
    return True


def _unite(op: ReshardOp) -> bool:
    """Two reshards that do the same."""
    for use in op.inputs[0].uses:
        other = use.operation
        if (
            isinstance(other, ReshardOp)
            and other is not op
            and other.result_types == op.result_types
            and other.is_before_in_block(op)
        ):
            op.results[0].replace_all_uses_with(other.results[0])
            op.detach()
            op.erase()
            return True
    return False
