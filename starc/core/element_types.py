"""The types of elements of tensors, buffers and tiles: one row each for name, code and numpy type.

The name is that of the IR and of disassembled programs; programs store the code. Types without a
code occur in the IR alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    # The names of types are for the command line, too, which does without numpy.
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]


class ElementType(IntEnum):
    """Element types of tiles and buffers of programs, by their codes."""

    BF16 = 0
    F16 = 1
    F32 = 2
    F8E4M3FN = 3
    I32 = 4
    I8 = 5

    @property
    def format(self) -> ElementFormat:
        return _BY_CODE[self]

    @property
    def bytes(self) -> int:
        """The size of an element."""
        return self.format.bytes


@dataclass(frozen=True)
class ElementFormat:
    """A type of elements.

    ``largest``: a type without an infinity saturates there, as the machines' conversion does.
    ``spellings``: what models may call it, the name of the language first; none if no model may.
    ``is_model_option``: whether weights and activations may have it, so that ``--dtype`` offers it;
    ``is_cache_option``: whether ``--kv-cache-dtype`` does. ``tolerance``: the largest error,
    relative to the largest magnitude of the tensor, that checks let pass where values are rounded
    to it.
    """

    name: str
    numpy_name: str
    code: ElementType | None = None
    largest: float | None = None
    spellings: tuple[str, ...] = ()
    is_model_option: bool = False
    is_cache_option: bool = False
    tolerance: float | None = None

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """Its numpy type, one of ml_dtypes where numpy has none."""
        import ml_dtypes
        import numpy as np

        return np.dtype(getattr(ml_dtypes, self.numpy_name, self.numpy_name))

    @property
    def bytes(self) -> int:
        """The size of an element."""
        return self.numpy.itemsize

    def rounded(self, values: Array) -> Array:
        """``values`` as memory of this type holds them: to the nearest, ties to even."""
        import numpy as np

        if self.largest is not None:
            values = np.clip(values.astype(np.float32), -self.largest, self.largest)
        return np.array(values, self.numpy)


# Tolerances: 8 roundings in one direction for bf16 and f16, 2 for fp8, which caches alone are
# stored in; sums of f32 lose more than single roundings.
FORMATS: Final = (
    ElementFormat(
        "bf16",
        "bfloat16",
        ElementType.BF16,
        spellings=("bf16", "bfloat16"),
        is_model_option=True,
        is_cache_option=True,
        tolerance=2.0**-5,
    ),
    ElementFormat(
        "f16",
        "float16",
        ElementType.F16,
        spellings=("f16", "fp16", "float16", "half"),
        is_model_option=True,
        tolerance=2.0**-8,
    ),
    ElementFormat(
        "f32",
        "float32",
        ElementType.F32,
        spellings=("f32", "fp32", "float32", "float"),
        is_model_option=True,
        tolerance=2.0**-16,
    ),
    ElementFormat(
        "f8E4M3FN",
        "float8_e4m3fn",
        ElementType.F8E4M3FN,
        largest=448.0,
        spellings=("fp8", "fp8_e4m3"),
        is_cache_option=True,
        tolerance=2.0**-3,
    ),
    ElementFormat("i32", "int32", ElementType.I32),
    ElementFormat("i8", "int8", ElementType.I8),
    ElementFormat("f64", "float64"),
    ElementFormat("i64", "int64"),
)

BY_NAME: Final[Mapping[str, ElementFormat]] = {row.name: row for row in FORMATS}
_BY_CODE: Final = {row.code: row for row in FORMATS if row.code is not None}
