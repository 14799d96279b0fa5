"""The sharding rules of a module's operations, and the check that it keeps them.

The verifier of an operation knows nothing of shards, and operations that starc reuses from xDSL
verify clean even when they drop or square a partial sum. So the rules stand in one table
(``operation_rules``): ``check`` walks a module after each pass and reports every value whose
encoding its operation does not give. An encoded operand of an operation without a rule is reported
too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import cast

from xdsl.dialects.builtin import (
    ModuleOp,
    SymbolRefAttr,
    TensorType,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation

from starc.analysis.operation_rules import RULES
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.factor_checks import problems_of
from starc.core.sharding.factor_rules import FactorRule, ShardedValue
from starc.core.sharding.mesh import Mesh
from starc.diagnostics import Diagnostic
from starc.dialects.isa_kernels import KernelOp
from starc.dialects.locations import location_of
from starc.dialects.nn_storage import StackOp
from starc.dialects.sharding import (
    AnyTensor,
    MeshOp,
    global_shape,
    is_local,
    mesh_op,
    spec_of,
)
from starc.dialects.symbols import named

_CHECKED_BY_VERIFIERS = ("sharding.", "collective.")
"""Operations whose verifiers check the encodings: changing them is their whole purpose."""


# ---------------------------------------------------------------------------------------------
# Operations as rules see them
# ---------------------------------------------------------------------------------------------


def symbol_type(op: Operation) -> AnyTensor | None:
    """The type of the parameter, state or buffer that an operation names first."""
    for name in ("parameter", "state"):
        symbol = op.properties.get(name)
        if isinstance(symbol, SymbolRefAttr):
            found = named(op, symbol)
            type = found.properties.get("type") if found is not None else None
            return cast(AnyTensor, type) if isinstance(type, TensorType) else None
    return None


def input_types(op: Operation) -> list[tuple[str, Attribute]]:
    """The types that an operation reads, in the order of its rule, each with its name in
    messages: the parameter or state it names, then its operands."""
    symbol = symbol_type(op)
    types: list[tuple[str, Attribute]] = []
    if symbol is not None:
        types.append(("the state" if "state" in op.properties else "the parameter", symbol))
    types += [(f"operand {index}", value.type) for index, value in enumerate(op.operands)]
    return types


def has_rule(op: Operation) -> bool:
    return op.name in RULES


def rule_of(op: Operation) -> FactorRule:
    """The rule of an operation. Raises ``KeyError`` if the table has none."""
    inputs = tuple(global_shape(cast(AnyTensor, type)) for _, type in input_types(op))
    results = tuple(global_shape(cast(AnyTensor, result.type)) for result in op.results)
    return RULES[op.name](op, inputs, results)


# ---------------------------------------------------------------------------------------------
# The check
# ---------------------------------------------------------------------------------------------


def check(module: ModuleOp) -> list[Diagnostic]:
    """Every violated sharding rule of a module: encodings that do not fit their tensor, operations
    whose results do not follow from their operands, layers whose output cannot be the next
    layer's input. A module without encodings has none. The operations of a layer are checked once
    its values have encodings, and not while only its arguments and parameters have."""
    found = next((op for op in module.body.ops if isinstance(op, MeshOp)), None)
    if found is None:
        return _without_mesh(module)
    mesh = found.mesh
    diagnostics: list[Diagnostic] = []
    assigned = {op for layer in _layers(module) if not is_propagated(layer) for op in layer.walk()}
    for op in _with_encodings(module):
        problems = _value_problems(op, mesh)
        if not problems and op not in assigned:
            problems = _operation_problems(op, mesh)
        diagnostics += [
            Diagnostic(f"'{op.name}': {problem}", location_of(op)) for problem in problems
        ]
    return diagnostics + _stack_problems(module)


def _with_encodings(module: ModuleOp) -> Iterator[Operation]:
    """The operations of a module but for what stands in kernels of the isa level, whose types have
    no encodings."""
    yield module
    for op in module.body.ops:
        if isinstance(op, KernelOp):
            yield op
        else:
            yield from op.walk()


def is_propagated(layer: FuncOp) -> bool:
    """Whether the values of a layer have encodings, not just its arguments and parameters."""
    return any(spec_of(result.type) for op in layer.walk() for result in op.results)


def _layers(module: ModuleOp) -> list[FuncOp]:
    return [op for op in module.body.ops if isinstance(op, FuncOp)]


def _without_mesh(module: ModuleOp) -> list[Diagnostic]:
    for op in module.walk():
        for value in (*op.operands, *op.results):
            spec = spec_of(value.type)
            if spec is not None:
                return [Diagnostic(f"unknown mesh: @{spec.mesh}", location_of(op))]
    return []


def _declared(op: Operation) -> list[tuple[str, Attribute]]:
    """The types that an operation declares: its results, block arguments, and its own type."""
    types = [(f"result {index}", result.type) for index, result in enumerate(op.results)]
    for region in op.regions:
        for block in region.blocks:
            types += [(f"argument {index}", arg.type) for index, arg in enumerate(block.args)]
    own = op.properties.get("type")
    return [*types, ("the type", own)] if own is not None else types


def _value_problems(op: Operation, mesh: Mesh) -> list[str]:
    problems: list[str] = []
    for what, type in _declared(op):
        spec = spec_of(type)
        if spec is None:
            continue
        if spec.mesh != mesh.name:
            problems.append(f"{what}: unknown mesh: @{spec.mesh}")
            continue
        tensor = cast(AnyTensor, type)
        whole = global_shape(tensor)
        encoding = Encoding(mesh, spec.dims, spec.partial)
        found = _encoding_problems(encoding, tuple(whole))
        problems += [f"{what}: {problem}" for problem in found]
        if not found and is_local(tensor) and tensor.get_shape() != encoding.local_shape(whole):
            problems.append(
                f"{what} is local {list(tensor.get_shape())}, its encoding gives "
                f"{list(encoding.local_shape(whole))}"
            )
    return problems


@lru_cache(maxsize=4096)
def _encoding_problems(encoding: Encoding, shape: tuple[int, ...]) -> tuple[str, ...]:
    """The rules of encodings that one breaks; the same few stand on all values."""
    return tuple(encoding.problems(shape))


def _operation_problems(op: Operation, mesh: Mesh) -> list[str]:
    inputs = input_types(op)
    encoded = [what for what, type in inputs if spec_of(type) is not None]
    if not encoded or op.name.startswith(_CHECKED_BY_VERIFIERS):
        return []
    if op.name == "func.return":
        function = op.parent_op()
        expected = function.function_type.outputs.data if isinstance(function, FuncOp) else ()
        return _same_types(op, expected, "the function's result")
    if op.name == "kernel.yield":
        launch = op.parent_op()
        results = launch.result_types if launch is not None else ()
        return _same_types(op, results, "the launch's result") if results else []
    if op.regions:
        arguments = op.regions[0].block.arg_types if op.regions[0].blocks else ()
        return _same_types(op, arguments, "the body's argument")
    if op.name not in RULES:
        return [f"{encoded[0]} is sharded, but the operation has no sharding rule"]
    values = [*inputs, *((f"result {i}", result.type) for i, result in enumerate(op.results))]
    sharded: list[ShardedValue] = []
    for what, type in values:
        spec = spec_of(type)
        if spec is None:
            return [f"{what} has no encoding, {encoded[0]} has one"]
        encoding = Encoding(mesh, spec.dims, spec.partial)
        sharded.append(ShardedValue(what, encoding, global_shape(cast(AnyTensor, type))))
    if len({is_local(type) for _, type in values}) > 1:
        return ["local and global types are mixed"]
    if any(_encoding_problems(value.encoding, tuple(value.shape)) for value in sharded):
        return []  # reported where the value is declared
    count = len(inputs)
    return problems_of(rule_of(op), sharded[:count], sharded[count:])


def _same_types(op: Operation, expected: Sequence[Attribute], what: str) -> list[str]:
    return [
        f"operand {index} is {operand.type}, {what} {index} is {type}"
        for index, (operand, type) in enumerate(zip(op.operands, expected, strict=False))
        if operand.type != type
    ]


def _stack_problems(module: ModuleOp) -> list[Diagnostic]:
    """The loop invariant of the stack: what a layer returns is what the next one takes, and what
    it takes itself where it is repeated."""
    diagnostics: list[Diagnostic] = []
    for before, after in stack_edges(module):
        outputs, inputs = before.function_type.outputs.data, after.function_type.inputs.data
        if not outputs or not inputs:
            continue
        output, input = outputs[0], inputs[0]
        if is_propagated(before) and output != input and (spec_of(output) or spec_of(input)):
            diagnostics.append(
                Diagnostic(
                    f"layer @{before.sym_name.data} returns {output}, but @{after.sym_name.data} "
                    f"behind it takes {input}",
                    location_of(before),
                )
            )
    return diagnostics


def stack_edges(module: ModuleOp) -> list[tuple[FuncOp, FuncOp]]:
    """The pairs of layers that follow one another in the model's stack, each once."""
    functions = {op.sym_name.data: op for op in _layers(module)}
    names: list[str] = []
    for op in module.body.ops:
        if isinstance(op, StackOp):
            for layer, count in op.entries:
                names += [layer] * min(count, 2)
    pairs = dict.fromkeys(itertools.pairwise(names))
    return [
        (functions[before], functions[after])
        for before, after in pairs
        if before in functions and after in functions
    ]


def module_mesh(module: ModuleOp) -> Mesh:
    """The module's mesh. Raises ``ValueError`` if there is none."""
    found = mesh_op(module)
    if found is None:
        raise ValueError("the module has no sharding.mesh")
    return found.mesh
