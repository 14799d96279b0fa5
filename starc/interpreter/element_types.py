"""Element types of the IR as numpy types, and what storing a value in one does to it."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

Array: TypeAlias = npt.NDArray[Any]
Indices: TypeAlias = npt.NDArray[np.int64]

Mode = Literal["exact", "typed"]
"""``exact``: all values are float64 and casts are identities. ``typed``: a stored value is rounded
to its element type and sums accumulate in float32."""

_NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
}
_FLOAT8_LARGEST = 448.0


def numpy_dtype(element_type: Attribute | str) -> np.dtype[Any]:
    """The numpy type of an element type of the IR, or of its printed name (``bf16``). Raises
    ``KeyError`` for a type that no tensor of starc has."""
    return _NUMPY_TYPES[str(element_type)]


def store(value: Array, element_type: Attribute | str, mode: Mode) -> Array:
    """``value`` as it is after a round trip through memory of ``element_type``.

    Exact mode keeps floats as float64. Typed mode rounds to nearest even; float8, which has no
    infinity, saturates as the machines' conversion does. Integers are stored as they are.
    """
    dtype = numpy_dtype(element_type)
    if dtype.kind == "i":
        return value.astype(dtype)
    if mode == "exact":
        return value.astype(np.float64)
    if dtype == _NUMPY_TYPES["f8E4M3FN"]:
        limited = np.clip(value.astype(np.float32), -_FLOAT8_LARGEST, _FLOAT8_LARGEST)
        return limited.astype(dtype)
    return value.astype(dtype)


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
