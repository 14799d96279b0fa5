"""Element types of the IR as those of programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from xdsl.dialects.builtin import (
    BFloat16Type,
    Float8E4M3FNType,
    Float16Type,
    Float32Type,
    i8,
    i32,
)
from xdsl.ir import Attribute

from starc.backend.expressions import FormatError
from starc.backend.program import ElementType

_FLOATS: Final[Mapping[type[Attribute], ElementType]] = {
    BFloat16Type: ElementType.BF16,
    Float16Type: ElementType.F16,
    Float32Type: ElementType.F32,
    Float8E4M3FNType: ElementType.F8E4M3FN,
}


def element_type(attribute: Attribute) -> ElementType:
    """The packed element type. Raises ``FormatError`` for one that programs do not have."""
    if attribute == i32:
        return ElementType.I32
    if attribute == i8:
        return ElementType.I8
    if type(attribute) not in _FLOATS:
        raise FormatError(f"elements of type {attribute} cannot be packed")
    return _FLOATS[type(attribute)]
