"""Quasi-affine integer expressions: sums, products with constants, floordiv and mod by positive
constants, minima, maxima and integer tables.

They are what loop bounds, tile coordinates and addresses are made of. An expression is a frozen
value over named variables; the operators ``+ - * // %`` build simplified expressions:

>>> wg = Var("wg")
>>> str((wg * 8 + 3) // 8)
'wg'
>>> ((wg + 16) % 8).evaluate({"wg": 9})
1

Division and modulus floor, as in MLIR's affine maps: ``-1 floordiv 4`` is -1, ``-1 mod 4`` is 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

Interval: TypeAlias = tuple[int, int]
"""Inclusive bounds."""


class Arithmetic:
    """Operators that build simplified expressions."""

    def __add__(self, other: Expression | int) -> Expression:
        return _linear_sum((cast(Expression, self), expression(other)), (1, 1))

    __radd__ = __add__

    def __sub__(self, other: Expression | int) -> Expression:
        return _linear_sum((cast(Expression, self), expression(other)), (1, -1))

    def __rsub__(self, other: Expression | int) -> Expression:
        return _linear_sum((expression(other), cast(Expression, self)), (1, -1))

    def __neg__(self) -> Expression:
        return _linear_sum((cast(Expression, self),), (-1,))

    def __mul__(self, other: Expression | int) -> Expression:
        left, right = cast(Expression, self), expression(other)
        if isinstance(right, Const):
            return _linear_sum((left,), (right.value,))
        if isinstance(left, Const):
            return _linear_sum((right,), (left.value,))
        raise ValueError(f"the product of ({left}) and ({right}) is not quasi-affine")

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Expression:
        return floordiv(cast(Expression, self), divisor, {})

    def __mod__(self, divisor: int) -> Expression:
        return mod(cast(Expression, self), divisor, {})

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The value where each variable is a Python integer or an integer array (arrays
        broadcast). Raises ``KeyError`` for a variable without a value."""
        return evaluate(cast(Expression, self), values)

    def __str__(self) -> str:
        return _text(cast(Expression, self), 0)


@dataclass(frozen=True, repr=False)
class Const(Arithmetic):
    value: int

    def __repr__(self) -> str:
        return f"Const({self.value})"


@dataclass(frozen=True)
class Var(Arithmetic):
    name: str


@dataclass(frozen=True)
class Add(Arithmetic):
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Mul(Arithmetic):
    """An expression times a constant."""

    operand: Expression
    factor: int


@dataclass(frozen=True)
class FloorDiv(Arithmetic):
    operand: Expression
    divisor: int

    def __post_init__(self) -> None:
        if self.divisor <= 0:
            raise ValueError(f"floordiv by {self.divisor}: the divisor must be positive")


@dataclass(frozen=True)
class Mod(Arithmetic):
    operand: Expression
    divisor: int

    def __post_init__(self) -> None:
        if self.divisor <= 0:
            raise ValueError(f"mod by {self.divisor}: the divisor must be positive")


@dataclass(frozen=True)
class Min(Arithmetic):
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Max(Arithmetic):
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Table(Arithmetic):
    """``values[index]``: the index must lie within the table."""

    values: tuple[int, ...]
    index: Expression

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("a table needs at least one value")

    @cached_property
    def array(self) -> npt.NDArray[np.int64]:
        return np.asarray(self.values, dtype=np.int64)


Expression: TypeAlias = Const | Var | Add | Mul | FloorDiv | Mod | Min | Max | Table


def expression(value: Expression | int) -> Expression:
    """An integer as a constant; an expression as it is."""
    return Const(int(value)) if isinstance(value, int) else value


def minimum(left: Expression | int, right: Expression | int) -> Expression:
    """Simplified ``min(left, right)``."""
    return extremum(expression(left), expression(right), {}, smaller=True)


def maximum(left: Expression | int, right: Expression | int) -> Expression:
    """Simplified ``max(left, right)``."""
    return extremum(expression(left), expression(right), {}, smaller=False)


def operands(e: Expression) -> tuple[Expression, ...]:
    """The direct sub-expressions, left to right."""
    match e:
        case Const() | Var():
            return ()
        case Add() | Min() | Max():
            return (e.left, e.right)
        case Mul() | FloorDiv() | Mod():
            return (e.operand,)
        case Table():
            return (e.index,)


def walk(e: Expression) -> Iterator[Expression]:
    """Every sub-expression, operands first."""
    for operand in operands(e):
        yield from walk(operand)
    yield e


def variables(e: Expression) -> frozenset[str]:
    return frozenset(node.name for node in walk(e) if isinstance(node, Var))


def evaluate(e: Expression, values: Mapping[str, Any]) -> Any:
    """See :meth:`Arithmetic.evaluate`. An index outside a table raises ``IndexError``."""
    match e:
        case Const():
            return e.value
        case Var():
            return values[e.name]
        case Add():
            return evaluate(e.left, values) + evaluate(e.right, values)
        case Mul():
            return evaluate(e.operand, values) * e.factor
        case FloorDiv():
            return evaluate(e.operand, values) // e.divisor
        case Mod():
            return evaluate(e.operand, values) % e.divisor
        case Min() | Max():
            left, right = evaluate(e.left, values), evaluate(e.right, values)
            if isinstance(left, int) and isinstance(right, int):
                return min(left, right) if isinstance(e, Min) else max(left, right)
            return (np.minimum if isinstance(e, Min) else np.maximum)(left, right)
        case Table():
            index = evaluate(e.index, values)
            if np.count_nonzero(np.less(index, 0) | np.greater_equal(index, len(e.values))):
                raise IndexError(f"index {index} lies outside a table of {len(e.values)} values")
            return e.values[index] if isinstance(index, int) else e.array[index]


def bounds(e: Expression, ranges: Mapping[str, Interval]) -> Interval | None:
    """Inclusive bounds by interval analysis, or None where a variable has no range.

    Sound, not always tight: ``wg - wg mod 4`` is bounded as if both terms were independent.
    """
    match e:
        case Const():
            return (e.value, e.value)
        case Var():
            return ranges.get(e.name)
        case Add() | Min() | Max():
            left, right = bounds(e.left, ranges), bounds(e.right, ranges)
            if left is None or right is None:
                return None
            if isinstance(e, Add):
                return (left[0] + right[0], left[1] + right[1])
            pick = min if isinstance(e, Min) else max
            return (pick(left[0], right[0]), pick(left[1], right[1]))
        case Mul():
            inner = bounds(e.operand, ranges)
            if inner is None:
                return None
            low, high = inner[0] * e.factor, inner[1] * e.factor
            return (min(low, high), max(low, high))
        case FloorDiv():
            inner = bounds(e.operand, ranges)
            return None if inner is None else (inner[0] // e.divisor, inner[1] // e.divisor)
        case Mod():
            inner = bounds(e.operand, ranges)
            if inner is not None and inner[0] // e.divisor == inner[1] // e.divisor:
                return (inner[0] % e.divisor, inner[1] % e.divisor)
            return (0, e.divisor - 1)
        case Table():
            inner = bounds(e.index, ranges)
            low, high = inner if inner is not None else (0, len(e.values) - 1)
            part = e.values[max(low, 0) : high + 1] or e.values
            return (min(part), max(part))


def _terms(e: Expression) -> Iterator[tuple[Expression, int]]:
    """The linear form of a sum as (term, coefficient); the constant's term is ``Const(1)``."""
    match e:
        case Const():
            yield Const(1), e.value
        case Add():
            yield from _terms(e.left)
            yield from _terms(e.right)
        case Mul():
            for term, coefficient in _terms(e.operand):
                yield term, coefficient * e.factor
        case _:
            yield e, 1


def _collect(e: Expression) -> dict[Expression, int]:
    linear: dict[Expression, int] = {}
    for term, coefficient in _terms(e):
        linear[term] = linear.get(term, 0) + coefficient
    return linear


def _from_linear(linear: Mapping[Expression, int]) -> Expression:
    result: Expression | None = None
    for term, coefficient in linear.items():
        if coefficient == 0 or term == Const(1):
            continue
        part = term if coefficient == 1 else Mul(term, coefficient)
        result = part if result is None else Add(result, part)
    constant = linear.get(Const(1), 0)
    if result is None:
        return Const(constant)
    return result if constant == 0 else Add(result, Const(constant))


def _linear_sum(parts: tuple[Expression, ...], factors: tuple[int, ...]) -> Expression:
    linear: dict[Expression, int] = {}
    for part, factor in zip(parts, factors, strict=True):
        for term, coefficient in _terms(part):
            linear[term] = linear.get(term, 0) + coefficient * factor
    # (x floordiv d) * d + x mod d is x.
    for term in tuple(linear):
        if isinstance(term, Mod) and linear.get(term):
            whole = FloorDiv(term.operand, term.divisor)
            if linear.get(whole) == linear[term] * term.divisor:
                factor = linear[term]
                linear[term] = linear[whole] = 0
                for inner, coefficient in _terms(term.operand):
                    linear[inner] = linear.get(inner, 0) + coefficient * factor
    return _from_linear(linear)


def floordiv(e: Expression, divisor: int, ranges: Mapping[str, Interval]) -> Expression:
    if divisor == 1:
        return e
    linear = _collect(e)
    whole = {t: c // divisor for t, c in linear.items() if c % divisor == 0}
    rest = {t: c for t, c in linear.items() if c % divisor}
    if Const(1) in rest and rest[Const(1)] // divisor:
        constant = rest[Const(1)]
        whole[Const(1)], rest[Const(1)] = constant // divisor, constant % divisor
    remainder = _from_linear(rest)
    interval = bounds(remainder, ranges)
    if interval is not None and interval[0] // divisor == interval[1] // divisor:
        tail: Expression = Const(interval[0] // divisor)
    elif isinstance(remainder, FloorDiv):
        tail = FloorDiv(remainder.operand, remainder.divisor * divisor)
    else:
        tail = FloorDiv(remainder, divisor)
    return _linear_sum((_from_linear(whole), tail), (1, 1))


def mod(e: Expression, divisor: int, ranges: Mapping[str, Interval]) -> Expression:
    if divisor == 1:
        return Const(0)
    linear: dict[Expression, int] = {}
    for term, coefficient in _collect(e).items():
        if (
            isinstance(term, Mod)
            and (term.divisor * coefficient) % divisor == 0
            and (coefficient == 1)
        ):  # (x mod 16) mod 8 is x mod 8
            for inner, factor in _terms(term.operand):
                linear[inner] = linear.get(inner, 0) + factor
        else:
            linear[term] = linear.get(term, 0) + coefficient
    # A coefficient keeps its sign, so that bounds stay as they are where possible.
    linear = {t: c for t, c in linear.items() if c % divisor}
    if Const(1) in linear:
        linear[Const(1)] %= divisor
    operand = _from_linear(linear)
    interval = bounds(operand, ranges)
    if interval is not None and interval[0] // divisor == interval[1] // divisor:
        return operand + Const(-(interval[0] // divisor) * divisor)
    return Const(operand.value % divisor) if isinstance(operand, Const) else Mod(operand, divisor)


def extremum(
    left: Expression, right: Expression, ranges: Mapping[str, Interval], *, smaller: bool
) -> Expression:
    difference = bounds(left - right, ranges)
    if difference is not None:
        if difference[1] <= 0:
            return left if smaller else right
        if difference[0] >= 0:
            return right if smaller else left
    return Min(left, right) if smaller else Max(left, right)


# Printing. Precedence: 0 sum, 1 product-like, 2 atom.


def _text(e: Expression, level: int) -> str:
    match e:
        case Const():
            return str(e.value)
        case Var():
            return e.name
        case Add():
            left = _text(e.left, 0)
            if isinstance(e.right, Const) and e.right.value < 0:
                text = f"{left} - {-e.right.value}"
            elif isinstance(e.right, Mul) and e.right.factor < 0:
                negated = (
                    e.right.operand
                    if e.right.factor == -1
                    else Mul(e.right.operand, -e.right.factor)
                )
                text = f"{left} - {_text(negated, 1)}"
            else:
                text = f"{left} + {_text(e.right, 1)}"
            return f"({text})" if level > 0 else text
        case Mul():
            text = f"{_text(e.operand, 2)} * {e.factor}"
        case FloorDiv():
            text = f"{_text(e.operand, 2)} floordiv {e.divisor}"
        case Mod():
            text = f"{_text(e.operand, 2)} mod {e.divisor}"
        case Min():
            return f"min({_text(e.left, 0)}, {_text(e.right, 0)})"
        case Max():
            return f"max({_text(e.left, 0)}, {_text(e.right, 0)})"
        case Table():
            return f"table<{', '.join(map(str, e.values))}>[{_text(e.index, 0)}]"
    return f"({text})" if level > 1 else text
