"""``localize``: global shapes become one device's, reshards become collectives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import cast

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from starc.analysis.communication import moving_steps
from starc.analysis.reencoding import encoding, sharded_inputs, sharded_results
from starc.analysis.sharding_rules import module_mesh, rule_of
from starc.core.sharding.factor_checks import problems_of
from starc.core.sharding.mesh import Mesh, axes_text
from starc.core.sharding.reshard_plan import plan_together
from starc.dialects.collective import make_collective
from starc.dialects.nn import AppendOp
from starc.dialects.sharding import (
    AnyTensor,
    ReshardOp,
    encoding_of,
    global_shape,
    localized,
)
from starc.passes.base import RemarkSink, StarcPass, with_location
from starc.targets.target import Target


@dataclass(frozen=True)
class LocalizePass(StarcPass):
    """Turns a module of whole tensors into the program of one device.

    Every type becomes the physical shape of a shard and keeps the whole in its encoding's
    ``global``. A ``sharding.reshard`` becomes the collectives of
    ``starc.core.sharding.reshard_plan``: a partial sum is combined by an all-reduce, or a
    reduce-scatter where its result is split. A reshard that only chooses the new tokens that a
    device stores is left to ``nn.append``.

    Contract: after this pass no ``sharding.reshard`` remains and every encoding has ``global``.

    Before:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    func.func @decoder(
        %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}>>)
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>> {
      %0 = sharding.reshard %x
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
      func.return %0 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
    }
    ```

    After:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    func.func @decoder(
        %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"},
                                              global = [2, 1, 64]>>)
        -> tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [2, 1, 64]>> {
      %0 = collective.reduce_scatter %x on @node axes = ["xcd"] reduction = sum dim = 2
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"},
                                           global = [2, 1, 64]>>
        -> tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"},
                                           global = [2, 1, 64]>>
      %1 = collective.all_reduce %0 on @node axes = ["gpu"] reduction = sum
        : tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"},
                                          global = [2, 1, 64]>>
        -> tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [2, 1, 64]>>
      func.return %1
        : tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [2, 1, 64]>>
    }
    ```
    """

    name = "localize"

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        mesh = module_mesh(module)
        formed: dict[Operation | None, Counter[str]] = {}
        for op in list(module.walk()):
            if isinstance(op, ReshardOp) and not _drop_for_appends(op, mesh):
                layer = op.parent_op()
                formed.setdefault(layer, Counter()).update(_expand(op, mesh))
        for layer, names in formed.items():
            if isinstance(layer, FuncOp) and names:
                text = ", ".join(f"{count} {name}" for name, count in sorted(names.items()))
                sink.remark(
                    "collectives-formed",
                    f"@{layer.sym_name.data}: its reshards become {text}",
                    layer,
                    collectives=names.total(),
                )
        for op in module.walk():
            _localize_types(op, mesh)


def _drop_for_appends(reshard: ReshardOp, mesh: Mesh) -> bool:
    """Leaves out a reshard that only chooses, of new keys or values that every device has, those
    whose positions it holds: ``nn.append`` stores no others."""
    source, target = reshard.inputs[0], reshard.outputs[0]
    users = [use.operation for use in target.uses]
    if len(reshard.inputs) > 1 or not users:
        return False
    if moving_steps(encoding(source, mesh), encoding(target, mesh), global_shape(target.type)):
        return False
    for user in users:
        if not isinstance(user, AppendOp):
            return False
        *state, new = sharded_inputs(user, mesh)
        whole = replace(new, encoding=encoding(source, mesh))
        if problems_of(rule_of(user), [*state, whole], sharded_results(user, mesh)):
            return False
    target.replace_all_uses_with(source)
    reshard.detach()
    reshard.erase()
    return True


def _expand(reshard: ReshardOp, mesh: Mesh) -> list[str]:
    """Replaces a reshard by collectives on global types, which become local with all others, and
    returns their names, as ``all_reduce over {"xcd"}``."""
    names: list[str] = []
    values: list[SSAValue] = list(reshard.inputs)
    plan = plan_together(
        [encoding(source, mesh) for source in reshard.inputs],
        [encoding(target, mesh) for target in reshard.outputs],
        [global_shape(target.type) for target in reshard.outputs],
    )
    for step in plan:
        first = step.steps[0]
        op = make_collective(
            first.kind,
            [values[index] for index in step.values],
            [each.result for each in step.steps],
            first.axes,
            dim=first.dim,
            concat_dim=first.concat_dim,
            reduction=first.reduction,
        )
        with_location(op, reshard)
        for index, result in zip(step.values, op.results, strict=True):
            result.name_hint = reshard.outputs[index].name_hint
            values[index] = result
        Rewriter.insert_op(op, InsertPoint.before(reshard))
        names.append(f"{op.KIND} over {{{axes_text(op.axes.data)}}}")
    for old, new in zip(list(reshard.outputs), values, strict=True):
        old.replace_all_uses_with(new)
    reshard.detach()
    reshard.erase()
    return names


def _localize_types(op: Operation, mesh: Mesh) -> None:
    for result in op.results:
        _localize_value(result, mesh)
    for region in op.regions:
        for block in region.blocks:
            for argument in block.args:
                _localize_value(argument, mesh)
    own = op.properties.get("type")
    if own is not None:
        op.properties["type"] = _localized(own, mesh)
    if isinstance(op, FuncOp):
        function = op.function_type
        op.function_type = FunctionType.from_lists(
            [_localized(type, mesh) for type in function.inputs],
            [_localized(type, mesh) for type in function.outputs],
        )


def _localize_value(value: SSAValue, mesh: Mesh) -> None:
    new = _localized(value.type, mesh)
    if new != value.type:
        Rewriter.replace_value_with_new_type(value, new)


def _localized(type: Attribute, mesh: Mesh) -> Attribute:
    encoding = encoding_of(type, mesh)
    return type if encoding is None else localized(cast(AnyTensor, type), mesh)
