"""The vector functions of a program: one table for meaning, cost and text.

The event core takes a function's cost and which tiles it reads and writes, the executions take its
meaning, the disassembler its name and parameters. The functions lie by family in the files beside
this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starc.core.vector_functions.elementwise import ELEMENTWISE
from starc.core.vector_functions.function import Function
from starc.core.vector_functions.partial_attention import PARTIAL_ATTENTION
from starc.core.vector_functions.rows import ROWS
from starc.core.vector_functions.softmax import SOFTMAX

FUNCTIONS: Final[tuple[Function, ...]] = tuple(
    sorted((*ELEMENTWISE, *ROWS, *SOFTMAX, *PARTIAL_ATTENTION), key=lambda function: function.id)
)
"""By id: the ids have no gap."""

BY_NAME: Final[Mapping[str, Function]] = {function.name: function for function in FUNCTIONS}


def function(key: int | str) -> Function:
    """The function of this id or name. Raises ``KeyError`` for an unknown one."""
    if isinstance(key, str):
        return BY_NAME[key]
    if not 0 <= key < len(FUNCTIONS):
        raise KeyError(key)
    return FUNCTIONS[key]
