"""Test data of a whole module: parameters, states and the inputs of every layer, as whole tensors.

The values depend on names and global shapes alone, so that a module and what a pass makes of it are
given the same numbers whatever the mesh and the level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final, cast

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, SymbolRefAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from starc.dialects import nn
from starc.dialects.kernel_buffers import BufferOp
from starc.dialects.sharding import global_shape
from starc.interpreter.element_types import Array, numpy_dtype
from starc.interpreter.seeded_tensors import seeded_ids, seeded_parameter, seeded_tensor

EMBEDDING_TABLE: Final = "embedding.table"


@dataclass(frozen=True)
class ModelData:
    """Whole tensors: parameters and states by full name, inputs by layer, in order."""

    parameters: Mapping[str, Array]
    states: Mapping[str, Array]
    inputs: Mapping[str, tuple[Array, ...]]


def layers_of(module: ModuleOp) -> tuple[FuncOp, ...]:
    """The kinds of layers of a module, in order."""
    return tuple(op for op in module.body.block.ops if isinstance(op, FuncOp))


def seeded_data(module: ModuleOp, seed: int = 0) -> ModelData:
    """Test data for a module of any level above the instruction streams. Another ``seed`` gives
    other numbers."""
    types = storage_types(module)
    parameters = {
        name: _seeded_parameter(name, type, seed)
        for name, (role, type) in types.items()
        if role == "weight"
    }
    states = {
        name: seeded_tensor(_seeded_name(name, seed), global_shape(type), str(type.element_type))
        for name, (role, type) in types.items()
        if role == "state"
    }
    inputs = {
        func.sym_name.data: _seeded_inputs(func, argument_types(module, func), seed)
        for func in layers_of(module)
    }
    return ModelData(parameters, states, inputs)


def _seeded_name(name: str, seed: int) -> str:
    return f"{name}#{seed}" if seed else name


def _seeded_parameter(name: str, type: TensorType[Attribute], seed: int) -> Array:
    shape, element = global_shape(type), str(type.element_type)
    if not seed:
        return seeded_parameter(name, shape, element)
    if name == EMBEDDING_TABLE:
        return seeded_tensor(_seeded_name(name, seed), shape, element)
    return seeded_parameter(_seeded_name(name, seed), shape, element)


def element_count(module: ModuleOp) -> int:
    """How many numbers the test data of a module would have, values inside layers included."""
    types = [type for _, type in storage_types(module).values()]
    for func in layers_of(module):
        values = (value for op in func.walk() for value in op.results)
        types += [
            cast("TensorType[Attribute]", value.type)
            for value in (*func.body.block.args, *values)
            if value.type.name == TensorType.name
        ]
    return sum(prod(global_shape(type)) for type in types)


def storage_types(module: ModuleOp) -> dict[str, tuple[str, TensorType[Attribute]]]:
    """Role and type of parameters, states and buffers, by name."""
    found: dict[str, tuple[str, TensorType[Attribute]]] = {}
    for op in module.body.block.ops:
        match op:
            case nn.ParameterOp():
                found[op.sym_name.data] = ("weight", cast("TensorType[Attribute]", op.type))
            case nn.StateOp():
                found[op.sym_name.data] = ("state", cast("TensorType[Attribute]", op.type))
            case BufferOp():
                found[op.sym_name.data] = (op.role.data, op.type)
            case _:
                pass
    return found


def argument_types(module: ModuleOp, func: FuncOp) -> tuple[TensorType[Attribute], ...]:
    """The types of a layer's inputs: its arguments, or the buffers that stand for them."""
    planned = func.attributes.get("kernel.arguments")
    if planned is None:
        return tuple(cast("TensorType[Attribute]", type) for type in func.body.block.arg_types)
    types = storage_types(module)
    symbols = cast("ArrayAttr[SymbolRefAttr]", planned)
    return tuple(types[symbol.string_value()][1] for symbol in symbols)


def _seeded_inputs(
    func: FuncOp, types: tuple[TensorType[Attribute], ...], seed: int
) -> tuple[Array, ...]:
    layer = func.sym_name.data
    tables = [
        global_shape(cast("TensorType[Attribute]", op.table.type))[0]
        for op in func.walk()
        if isinstance(op, nn.EmbeddingOp)
    ]
    inputs: list[Array] = []
    for index, type in enumerate(types):
        name, shape = _seeded_name(f"{layer}({index})", seed), global_shape(type)
        if numpy_dtype(type.element_type).kind == "i":
            inputs.append(seeded_ids(name, shape, min(tables, default=2)))
        else:
            inputs.append(seeded_tensor(name, shape, str(type.element_type)))
    return tuple(inputs)
