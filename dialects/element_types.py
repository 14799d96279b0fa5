"""Element types of the IR as those of programs."""

from __future__ import annotations

from xdsl.ir import Attribute

from starc.backend.expressions import FormatError
from starc.core.element_types import BY_NAME, ElementType


def element_type(attribute: Attribute) -> ElementType:
    """The packed element type. Raises ``FormatError`` for one that programs do not have."""
    found = BY_NAME.get(str(attribute))
    if found is None or found.code is None:
        raise FormatError(f"elements of type {attribute} cannot be packed")
    return found.code
