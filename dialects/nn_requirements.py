"""Types of the operands of ``nn`` operations, and what their verifiers require.

A requirement that does not hold raises ``VerifyException``; its first argument names what it is
about in the message."""

from __future__ import annotations

from typing import cast

from xdsl.dialects.builtin import (
    AnyFloat,
    AnyFloatConstr,
    Float32Type,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    NoneAttr,
    TensorType,
    i32,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

FloatTensor = TensorType[AnyFloat]
I32Tensor = TensorType[IntegerType]

FLOAT_TENSOR = TensorType.constr(AnyFloatConstr)
I32_TENSOR = TensorType.constr(i32)
I64 = IntegerAttr.constr(type=IntegerType(64))
F64 = FloatAttr.constr(type=Float64Type())


def shape_text(type: TensorType[Attribute]) -> str:
    return "[" + ", ".join(str(extent) for extent in type.get_shape()) + "]"


def tensor(value: SSAValue) -> TensorType[Attribute]:
    return cast(TensorType[Attribute], value.type)


def require_rank(what: str, type: TensorType[Attribute], rank: int, dimensions: str) -> None:
    if type.get_num_dims() != rank:
        raise VerifyException(f"{what} must be {dimensions}, got shape {shape_text(type)}")


def require_same(
    what: str, type: TensorType[Attribute], other_what: str, other: TensorType[Attribute]
) -> None:
    """The same shape and element type; encodings may differ (sharding rules judge them)."""
    if type.get_shape() != other.get_shape() or type.element_type != other.element_type:
        raise VerifyException(
            f"{what} must have the shape and element type of {other_what}: "
            f"{shape_text(type)} of {type.element_type} and "
            f"{shape_text(other)} of {other.element_type}"
        )


def are_whole(*types: TensorType[Attribute]) -> bool:
    """Whether no type has an encoding, so that every shape is that of a whole tensor."""
    return all(isinstance(type.encoding, NoneAttr) for type in types)


def require_multiple(what: str, extent: int, head_dim: int) -> None:
    if extent % head_dim:
        raise VerifyException(f"{what} is {extent}, not a multiple of head_dim = {head_dim}")


def require_positive(what: str, attribute: IntegerAttr, least: int = 1) -> None:
    if attribute.value.data < least:
        raise VerifyException(f"{what} must be at least {least}, got {attribute.value.data}")


def require_row_values(what: str, type: TensorType[Attribute], rows: tuple[int, ...]) -> None:
    if type.get_shape() != (*rows, 1) or not isinstance(type.element_type, Float32Type):
        raise VerifyException(
            f"{what} must be {[*rows, 1]} of f32, got {shape_text(type)} of {type.element_type}"
        )


def require_row_weight(x: TensorType[Attribute], weight: TensorType[Attribute]) -> None:
    """A weight a feature of the rows ``x[batch, query, feature]``."""
    require_rank("the input", x, 3, "[batch, query, feature]")
    require_rank("the weight", weight, 1, "[feature]")
    if x.get_shape()[-1] != weight.get_shape()[0]:
        raise VerifyException(
            f"the input has {x.get_shape()[-1]} features, the weight {weight.get_shape()[0]}"
        )
