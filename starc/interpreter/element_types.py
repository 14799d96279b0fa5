"""Element types of the IR as numpy types, and what storing a value in one does to it."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from starc.core.element_types import BY_NAME

Array: TypeAlias = npt.NDArray[Any]
Indices: TypeAlias = npt.NDArray[np.int64]

Mode = Literal["exact", "typed"]
"""``exact``: all values are float64 and casts are identities. ``typed``: a stored value is rounded
to its element type and sums accumulate in float32."""


def numpy_dtype(element_type: Attribute | str) -> np.dtype[Any]:
    """The numpy type of an element type of the IR, or of its printed name (``bf16``). Raises
    ``KeyError`` for a type that no tensor of starc has."""
    return BY_NAME[str(element_type)].numpy


def store(value: Array, element_type: Attribute | str, mode: Mode) -> Array:
    """``value`` as it is after a round trip through memory of ``element_type``.

    Exact mode keeps floats as float64. Typed mode rounds to nearest even; float8, which has no
    infinity, saturates as the machines' conversion does. Integers are stored as they are.
    """
    stored = BY_NAME[str(element_type)]
    if mode == "exact" and stored.numpy.kind != "i":
        return value.astype(np.float64)
    return stored.rounded(value)


def load(value: Array) -> Array:
    """``value`` in the type that arithmetic is done in: float64 stays, every narrower float
    becomes float32, integers stay."""
    if value.dtype.kind == "i" or value.dtype == np.float64:
        return value
    return value.astype(np.float32)


def tensor_type(value_type: Attribute) -> TensorType[Attribute]:
    """``value_type`` as a tensor type. Raises ``TypeError`` for others."""
    if not isinstance(value_type, TensorType):
        raise TypeError(f"expected a tensor type, got {value_type}")
    return value_type  # pyright: ignore[reportUnknownVariableType]
