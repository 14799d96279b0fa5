"""``propagate-shardings``: an encoding on every value, and a reshard wherever two disagree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import cast

from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from starc.analysis.sharding_rules import (
    has_rule,
    input_types,
    module_mesh,
    rule_of,
    stack_edges,
)
from starc.core.sharding.combiners import COMBINERS
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.factor_resolution import resolve
from starc.core.sharding.factor_rules import ShardedValue
from starc.core.sharding.mesh import Mesh
from starc.diagnostics import Diagnostic, InputError
from starc.dialects.kernel_buffers import element_bytes
from starc.dialects.locations import location_of
from starc.dialects.nn_storage import ReadOp
from starc.dialects.sharding import AnyTensor, ReshardOp, encoding_of, global_shape, global_type
from starc.passes.base import RemarkSink, StarcPass, with_location
from starc.targets.target import Target


@dataclass(frozen=True)
class PropagateShardingsPass(StarcPass):
    """Gives every value of every layer an encoding that follows from those of its operands.

    In the order of the block, the sharding rule of each operation says what its result is. Where
    operands disagree, parameters and states keep their encodings and activations are resharded;
    activations that disagree are gathered to what they have in common. A partial sum is carried
    through operations that are linear in it and combined before any other. A layer's result gets
    the encoding that the next layer of the stack, and the layer itself where it is repeated, takes;
    the last layer's result stays as it falls, its partial sums combined.

    Contract: after this pass every tensor of a layer has an encoding, ``sharding_rules.check``
    finds nothing, and only ``sharding.reshard`` changes encodings. Needs
    ``assign-tensor-parallel``.

    Before:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    nn.parameter @decoder.down : tensor<256x64xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
    func.func @decoder(%x : tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>,
                       %r : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>)
        -> tensor<2x1x64xbf16> {
      %0 = nn.read @decoder.down : tensor<256x64xbf16>
      %1 = nn.linear %x, %0
        : tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>,
          tensor<256x64xbf16> -> tensor<2x1x64xbf16>
      %2 = nn.add %r, %1
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<2x1x64xbf16>
        -> tensor<2x1x64xbf16>
      func.return %2 : tensor<2x1x64xbf16>
    }
    ```

    After:

    ```mlir
    sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
    nn.parameter @decoder.down : tensor<256x64xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
    func.func @decoder(%x : tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>,
                       %r : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>)
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> {
      %0 = nn.read @decoder.down
        : tensor<256x64xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
      %1 = nn.linear %x, %0
        : tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>,
          tensor<256x64xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}>>
      %2 = sharding.reshard %1
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
      %3 = nn.add %r, %2
        : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>,
          tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
        -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
      func.return %3 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
    }
    ```
    """

    name = "propagate-shardings"

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        mesh = module_mesh(module)
        successors = {before: after for before, after in reversed(stack_edges(module))}
        for op in module.body.ops:
            if isinstance(op, FuncOp) and op.body.blocks:
                wanted = _taken_by(successors.get(op), mesh)
                _LayerPropagation(op, mesh, sink).run(wanted)


def _taken_by(layer: FuncOp | None, mesh: Mesh) -> Encoding | None:
    """The encoding of what a layer takes from the one before it."""
    if layer is None or not layer.function_type.inputs.data:
        return None
    return encoding_of(layer.function_type.inputs.data[0], mesh)


@dataclass
class _LayerPropagation:
    layer: FuncOp
    mesh: Mesh
    sink: RemarkSink
    resharded: dict[tuple[SSAValue, Encoding], SSAValue] = field(
        default_factory=dict[tuple[SSAValue, Encoding], SSAValue]
    )

    def run(self, result: Encoding | None) -> None:
        """Propagates through the layer; ``result`` is what its first result must have."""
        block = self.layer.body.block
        for op in list(block.ops):
            if isinstance(op, ReturnOp):
                self._return(op, result)
            elif any(isinstance(value.type, TensorType) for value in (*op.operands, *op.results)):
                self._operation(op)
        self.layer.function_type = FunctionType.from_lists(
            list(block.arg_types), [value.type for value in _returned(self.layer)]
        )

    def _operation(self, op: Operation) -> None:
        if not has_rule(op):
            raise InputError(Diagnostic(f"'{op.name}' has no sharding rule", location_of(op)))
        rule = rule_of(op)
        inputs = input_types(op)
        operands = [
            ShardedValue(what, self._encoding(type), global_shape(cast(AnyTensor, type)))
            for what, type in inputs
        ]
        symbols = len(inputs) - len(op.operands)
        fixed = [True] * symbols + [_is_parameter(value) for value in op.operands]
        shapes = [global_shape(cast(AnyTensor, value.type)) for value in op.results]
        resolution = resolve(rule, operands, shapes, fixed)
        self._combine_components(op, resolution.operands[symbols:])
        for index, wanted in enumerate(resolution.operands[symbols:]):
            op.operands[index] = self._resharded(op.operands[index], wanted, op)
        for value, encoding in zip(op.results, resolution.results, strict=True):
            self._set_type(value, encoding)

    def _combine_components(self, op: Operation, wanted: Sequence[Encoding]) -> None:
        """Reshards the components of a partial that the operation does not take together."""
        values: list[SSAValue] = []
        encodings: list[Encoding] = []
        for value, after in zip(op.operands, wanted, strict=True):
            partial = self._encoding(value.type).partial
            if partial is None or partial == after.partial or (value, after) in self.resharded:
                continue
            if len(COMBINERS[partial.kind].components) > 1:
                values.append(value)
                encodings.append(after)
        if not values:
            return
        types = [
            global_type(cast(AnyTensor, value.type), after)
            for value, after in zip(values, encodings, strict=True)
        ]
        reshard = with_location(ReshardOp(values, types), op)
        Rewriter.insert_op(reshard, InsertPoint.before(op))
        for value, after, result in zip(values, encodings, reshard.results, strict=True):
            result.name_hint = value.name_hint
            self.resharded[value, after] = result
        self.sink.remark(
            "reshard",
            f"'{op.name}' needs {encodings[0]}, its operands of "
            f"{sum(map(_bytes, values)):,} bytes are {self._encoding(values[0].type)}",
            op,
        )

    def _return(self, op: ReturnOp, result: Encoding | None) -> None:
        for index, value in enumerate(op.operands):
            found = encoding_of(value.type, self.mesh)
            if found is None:
                continue
            wanted = result if index == 0 and result is not None else found.with_partial(None)
            op.operands[index] = self._resharded(value, wanted, op)

    def _encoding(self, type: Attribute) -> Encoding:
        found = encoding_of(type, self.mesh)
        if found is not None:
            return found
        return Encoding.replicated(self.mesh, cast(AnyTensor, type).get_num_dims())

    def _set_type(self, value: SSAValue, encoding: Encoding) -> None:
        Rewriter.replace_value_with_new_type(
            value, global_type(cast(AnyTensor, value.type), encoding)
        )

    def _resharded(self, value: SSAValue, wanted: Encoding, user: Operation) -> SSAValue:
        """The value under another encoding, by one reshard whoever asks for it."""
        found = self._encoding(value.type)
        if encoding_of(value.type, self.mesh) is None:
            self._set_type(value, found)
        if found == wanted:
            return value
        key = (value, wanted)
        if key not in self.resharded:
            type = global_type(cast(AnyTensor, value.type), wanted)
            origin = value.owner if isinstance(value.owner, Operation) else user
            reshard = with_location(ReshardOp([value], [type]), origin)
            reshard.results[0].name_hint = value.name_hint
            Rewriter.insert_op(reshard, InsertPoint.before(user))
            self.resharded[key] = reshard.results[0]
            self.sink.remark(
                "reshard",
                f"'{user.name}' needs {wanted}, its operand of {_bytes(value):,} bytes is {found}",
                user,
            )
        return self.resharded[key]


def _bytes(value: SSAValue) -> int:
    type = cast(AnyTensor, value.type)
    return prod(global_shape(type)) * element_bytes(type)


def _is_parameter(value: SSAValue) -> bool:
    return isinstance(value.owner, ReadOp)


def _returned(layer: FuncOp) -> list[SSAValue]:
    last = layer.body.block.last_op
    return list(last.operands) if isinstance(last, ReturnOp) else []
