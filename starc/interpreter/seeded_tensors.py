"""Test data: tensors that depend on their full name and global shape alone."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, BlockArgument

from starc.dialects import nn
from starc.interpreter.element_types import Array, numpy_dtype, store, tensor_type
from starc.interpreter.global_semantics import layer_function


def seeded_tensor(
    name: str,
    shape: Sequence[int],
    element_type: Attribute | str,
    *,
    mean: float = 0.0,
    deviation: float = 1.0,
) -> Array:
    """Normal values that depend on the full ``name`` and the global ``shape`` alone, as float64
    that ``element_type`` represents exactly, so that both modes start from the same numbers."""
    key = f"{name}:{'x'.join(str(extent) for extent in shape)}"
    seed = int.from_bytes(blake2b(key.encode(), digest_size=16).digest(), "little")
    normal = np.random.Generator(np.random.Philox(key=seed)).standard_normal(tuple(shape))
    return store(mean + deviation * normal, element_type, "typed").astype(np.float64)


def seeded_parameter(name: str, shape: Sequence[int], element_type: Attribute | str) -> Array:
    """Test values of the parameter ``name``: scaled so that activations stay of order one (matrices
    by their input dimension, norms around one, the embedding table not at all)."""
    if len(shape) == 1:
        return seeded_tensor(name, shape, element_type, mean=1.0, deviation=0.25)
    if name == "embedding.table":
        return seeded_tensor(name, shape, element_type)
    return seeded_tensor(name, shape, element_type, deviation=1.0 / np.sqrt(shape[0]))


def seeded_ids(name: str, shape: Sequence[int], vocab: int) -> Array:
    """Token ids in ``0 .. vocab - 1``, from the name and shape alone."""
    normal = seeded_tensor(name, shape, "f64", deviation=float(vocab))
    return (np.floor(np.abs(normal)).astype(np.int64) % vocab).astype(np.int32)


def seeded_parameters(module: ModuleOp) -> dict[str, Array]:
    """Test values of all parameters of a module with global shapes, by full name."""
    return {
        op.sym_name.data: seeded_parameter(
            op.sym_name.data, op.type.get_shape(), op.type.element_type
        )
        for op in module.body.block.ops
        if isinstance(op, nn.ParameterOp)
    }


def seeded_states(module: ModuleOp) -> dict[str, Array]:
    """Test contents of all caches of a module with global shapes, by full name."""
    return {
        op.sym_name.data: seeded_tensor(op.sym_name.data, op.type.get_shape(), op.type.element_type)
        for op in module.body.block.ops
        if isinstance(op, nn.StateOp)
    }


def seeded_inputs(module: ModuleOp, layer: str) -> tuple[Array, ...]:
    """Test arguments of a layer of a module with global shapes. Token ids lie in the rows of the
    table that they index."""
    return tuple(
        _seeded_argument(layer, arg) for arg in layer_function(module, layer).body.block.args
    )


def _seeded_argument(layer: str, argument: BlockArgument) -> Array:
    type = tensor_type(argument.type)
    name = f"{layer}({argument.index})"
    if numpy_dtype(type.element_type).kind != "i":
        return seeded_tensor(name, type.get_shape(), type.element_type)
    vocabularies = [
        tensor_type(use.operation.table.type).get_shape()[0]
        for use in argument.uses
        if isinstance(use.operation, nn.EmbeddingOp)
    ]
    return seeded_ids(name, type.get_shape(), min(vocabularies, default=2))
