"""Changing encodings inside a layer that has them: what rewrites at the sharding level share.

A rewrite gives values other encodings and puts ``sharding.reshard`` between; ``refit`` then goes
through the layer once and mends what no longer follows from its operands, as propagation does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from starc.analysis.sharding_rules import has_rule, input_types, rule_of, symbol_type
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.factor_checks import problems_of
from starc.core.sharding.factor_resolution import resolve
from starc.core.sharding.factor_rules import ShardedValue
from starc.core.sharding.mesh import Mesh
from starc.dialects.nn import ParameterOp, ReadOp, StackOp
from starc.dialects.sharding import AnyTensor, ReshardOp, encoding_of, global_shape, global_type


def layers_of(module: ModuleOp) -> list[FuncOp]:
    """The layers of a module that have a body."""
    return [op for op in module.body.ops if isinstance(op, FuncOp) and op.body.blocks]


def layer_counts(module: ModuleOp) -> dict[str, int]:
    """How often the model has each layer, by name, where the module says it."""
    counts: dict[str, int] = {}
    for op in module.body.ops:
        if isinstance(op, StackOp):
            for name, count in op.entries:
                counts[name] = counts.get(name, 0) + count
    return counts


def encoding(value: SSAValue, mesh: Mesh) -> Encoding:
    """The encoding of a value that has one; whole on every device otherwise."""
    found = encoding_of(value.type, mesh)
    if found is not None:
        return found
    return Encoding.replicated(mesh, cast(AnyTensor, value.type).get_num_dims())


def shape_of(value: SSAValue) -> tuple[int, ...]:
    """The global shape of a value."""
    return global_shape(cast(AnyTensor, value.type))


def set_encoding(value: SSAValue, wanted: Encoding) -> SSAValue:
    """Gives a value another type. The value that is returned stands in its place."""
    type = global_type(cast(AnyTensor, value.type), wanted)
    return value if value.type == type else Rewriter.replace_value_with_new_type(value, type)


def reshard_before(user: Operation, value: SSAValue, wanted: Encoding) -> SSAValue:
    """The value under another encoding, by a reshard in front of ``user``; the value itself where
    it has that encoding."""
    mesh = wanted.mesh
    if encoding(value, mesh).canonical() == wanted.canonical():
        return value
    type = global_type(cast(AnyTensor, value.type), wanted)
    reshard = ReshardOp([value], [type])
    origin = value.owner if isinstance(value.owner, Operation) else user
    reshard.location = origin.location
    reshard.results[0].name_hint = value.name_hint
    Rewriter.insert_op(reshard, InsertPoint.before(user))
    return reshard.results[0]


def reshard_after(value: SSAValue, wanted: Encoding) -> SSAValue:
    """A reshard of the value right behind its definition, which all its users get in its place."""
    owner = value.owner
    behind = owner.next_op if isinstance(owner, Operation) else owner.first_op
    assert behind is not None
    users = [(use.operation, use.index) for use in value.uses]
    new = reshard_before(behind, value, wanted)
    if new is not value:
        for user, index in users:
            user.operands[index] = new
    return new


def sharded_inputs(op: Operation, mesh: Mesh) -> list[ShardedValue]:
    """The inputs of an operation as its rule sees them, the symbol it names first."""
    values: list[ShardedValue] = []
    for what, type in input_types(op):
        tensor = cast(AnyTensor, type)
        found = encoding_of(tensor, mesh) or Encoding.replicated(mesh, tensor.get_num_dims())
        values.append(ShardedValue(what, found, global_shape(tensor)))
    return values


def sharded_results(op: Operation, mesh: Mesh) -> list[ShardedValue]:
    """The results of an operation as its rule sees them."""
    return [
        ShardedValue(f"result {index}", encoding(value, mesh), shape_of(value))
        for index, value in enumerate(op.results)
    ]


def is_parameter(value: SSAValue) -> bool:
    """Whether a value is a parameter as it is stored."""
    return isinstance(value.owner, ReadOp)


def refit(layer: FuncOp, mesh: Mesh) -> None:
    """Mends a layer in which some encodings were changed, in the order of its block: operands that
    disagree are resharded, results follow, and reshards keep what they lead to. The results of the
    layer keep their types, the last values of the block are resharded to them."""
    block = layer.body.block
    outputs = list(layer.function_type.outputs)
    for op in list(block.ops):
        if isinstance(op, ReshardOp):
            _refit_reshard(op, mesh)
        elif isinstance(op, ReturnOp):
            for index, (value, type) in enumerate(zip(op.operands, outputs, strict=True)):
                wanted = encoding_of(type, mesh)
                if wanted is not None:
                    op.operands[index] = reshard_before(op, value, wanted)
        elif has_rule(op):
            _refit_operation(op, mesh)


def _refit_reshard(op: ReshardOp, mesh: Mesh) -> None:
    for before, after in zip(op.inputs, op.outputs, strict=True):
        source, target = encoding(before, mesh), encoding(after, mesh)
        if target.partial is None:
            continue
        kept = [ref for ref in target.partial.axes if source.partial and ref in source.partial.axes]
        kind = source.partial.kind if source.partial is not None else None
        set_encoding(after, target.with_partial(kind if kept else None, kept))
    drop_if_idle(op, mesh)


def drop_if_idle(op: ReshardOp, mesh: Mesh) -> bool:
    """Takes a reshard that changes nothing out of the block."""
    pairs = list(zip(op.inputs, op.outputs, strict=True))
    if any(
        encoding(before, mesh).canonical() != encoding(after, mesh).canonical()
        for before, after in pairs
    ):
        return False
    for before, after in pairs:
        after.replace_all_uses_with(before)
    op.detach()
    op.erase()
    return True


def _refit_operation(op: Operation, mesh: Mesh) -> None:
    inputs, results = sharded_inputs(op, mesh), sharded_results(op, mesh)
    if isinstance(op, ReadOp):
        set_encoding(op.result, inputs[0].encoding)
        return
    rule = rule_of(op)
    if not problems_of(rule, inputs, results):
        return
    symbols = 0 if symbol_type(op) is None else 1
    fixed = [True] * symbols + [is_parameter(value) for value in op.operands]
    resolution = resolve(rule, inputs, [value.shape for value in results], fixed)
    for index, wanted in enumerate(resolution.operands[symbols:]):
        op.operands[index] = reshard_before(op, op.operands[index], wanted)
    for value, found in zip(op.results, resolution.results, strict=True):
        set_encoding(value, found)


def update_signature(layer: FuncOp) -> None:
    """Makes the function type of a layer that of its block."""
    block = layer.body.block
    last = block.last_op
    outputs = list(last.operand_types) if isinstance(last, ReturnOp) else []
    layer.function_type = FunctionType.from_lists(list(block.arg_types), outputs)


@dataclass
class ParameterUses:
    """Where each parameter of a module is read, and by which operations, in order."""

    parameters: Mapping[str, ParameterOp]
    reads: dict[str, list[ReadOp]] = field(default_factory=dict[str, list[ReadOp]])

    @classmethod
    def of(cls, module: ModuleOp) -> ParameterUses:
        parameters = {op.sym_name.data: op for op in module.body.ops if isinstance(op, ParameterOp)}
        found = cls(parameters)
        for op in module.walk():
            if isinstance(op, ReadOp):
                found.reads.setdefault(op.parameter.string_value(), []).append(op)
        return found

    def users(self, name: str) -> list[tuple[Operation, int]]:
        """The operations that use a parameter's value, each with the index of the operand."""
        return [
            (use.operation, use.index)
            for read in self.reads.get(name, [])
            for use in read.result.uses
        ]

    def set_encoding(self, name: str, wanted: Encoding) -> None:
        """Stores a parameter under another encoding; what is read follows."""
        parameter = self.parameters[name]
        tensor = cast(AnyTensor, parameter.type)
        parameter.properties["type"] = global_type(tensor, wanted)
        for read in self.reads.get(name, []):
            set_encoding(read.result, wanted)
