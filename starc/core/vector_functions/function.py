"""What a vector function is: its operands, its parameters, its cost, its meaning.

Operands are the tile fields of a record, ``dst a b c d``, as arrays of two dimensions [rows, cols];
one-dimensional quantities of rows are [rows, 1] and of columns [1, cols], and broadcast. Parameters
are integer expressions; a real parameter travels as the bits of its float64 (``real_bits``).

A meaning works in the type of the arrays it is given: float64 in exact mode, float32 in typed
mode. Whoever calls it rounds what it returns to the types of the tiles.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Operands: TypeAlias = Mapping[str, Array]
Parameters: TypeAlias = Sequence[Any]
Meaning: TypeAlias = Callable[[Operands, Parameters], Mapping[str, Array]]

OPERAND_FIELDS: Final = ("dst", "a", "b", "c", "d")
SPECIAL_OPERATIONS: Final = 4
"""Lane operations that an exponential, reciprocal or root counts as."""


def real_bits(value: float) -> int:
    """The bits of a float64 as a signed 64-bit integer: how a real parameter is stored."""
    return struct.unpack("<q", struct.pack("<d", value))[0]


def real_value(bits: int) -> float:
    """The float64 that ``real_bits`` stored."""
    return struct.unpack("<d", struct.pack("<q", bits))[0]


@dataclass(frozen=True)
class Parameter:
    name: str
    kind: Literal["integer", "real"] = "integer"


def integers(*names: str) -> tuple[Parameter, ...]:
    """Integer parameters of these names."""
    return tuple(Parameter(name) for name in names)


@dataclass(frozen=True, kw_only=True)
class Function:
    """One vector function.

    ``id`` is what programs call it. ``reads`` and ``writes`` say which tile fields it reads and
    overwrites. ``lane_operations`` counts the 32-bit lane operations for each element of its
    largest operand; an exponential, reciprocal or root counts as four, and ``specials`` says how
    many of these there are. An ``elementwise`` function takes what lies at an element's place, with
    broadcasts; the others sum over rows or move columns.
    """

    id: int
    name: str
    summary: str
    meaning: Meaning
    lane_operations: int
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ("dst",)
    parameters: tuple[Parameter, ...] = ()
    specials: int = 0
    elementwise: bool = True

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The fields that hold its tiles, in their order."""
        return tuple(f for f in OPERAND_FIELDS if f in self.reads or f in self.writes)

    def work(self, elements: Sequence[int]) -> int:
        """Lane operations where the operands have these numbers of elements."""
        return self.lane_operations * max(elements)

    def operations(self, elements: Sequence[int]) -> tuple[int, int]:
        """Lane operations where the operands have these numbers of elements: plain ones, and
        exponentials, reciprocals and roots."""
        special = self.specials * max(elements)
        return self.work(elements) - SPECIAL_OPERATIONS * special, special

    def decode(self, values: Sequence[int]) -> tuple[int | float, ...]:
        """Parameters as the meaning takes them, from the integers of a record."""
        return tuple(
            real_value(value) if parameter.kind == "real" else int(value)
            for parameter, value in zip(self.parameters, values, strict=True)
        )
