"""Simplification of expressions with bounds of their variables, and substitution.

>>> from starc.core.quasi_affine.expressions import Var
>>> str(simplify((Var("wg") + 16) % 8, {"wg": (0, 7)}))
'wg'
"""

from __future__ import annotations

from collections.abc import Mapping

from starc.core.quasi_affine.expressions import (
    Add,
    Const,
    Expression,
    FloorDiv,
    Interval,
    Max,
    Min,
    Mod,
    Mul,
    Table,
    Var,
    bounds,
    expression,
    extremum,
    floordiv,
    mod,
)


def substitute(e: Expression, replacements: Mapping[str, Expression | int]) -> Expression:
    """The expression with variables replaced, simplified."""
    return _rebuild(e, replacements, {})


def simplify(e: Expression, ranges: Mapping[str, Interval] | None = None) -> Expression:
    """An equal expression, shorter where rules apply; ``ranges`` bound the variables.

    Rules: sums are collected into one linear form in order of first appearance; multiples of a
    divisor leave floordiv and mod; nested divisions and moduli join; bounds remove moduli,
    divisions, minima and maxima that do nothing.
    """
    return _rebuild(e, {}, ranges or {})


def _rebuild(
    e: Expression, names: Mapping[str, Expression | int], ranges: Mapping[str, Interval]
) -> Expression:
    match e:
        case Const():
            result: Expression = e
        case Var():
            result = expression(names.get(e.name, e))
        case Add():
            result = _rebuild(e.left, names, ranges) + _rebuild(e.right, names, ranges)
        case Mul():
            result = _rebuild(e.operand, names, ranges) * e.factor
        case FloorDiv():
            result = floordiv(_rebuild(e.operand, names, ranges), e.divisor, ranges)
        case Mod():
            result = mod(_rebuild(e.operand, names, ranges), e.divisor, ranges)
        case Min() | Max():
            left, right = _rebuild(e.left, names, ranges), _rebuild(e.right, names, ranges)
            result = extremum(left, right, ranges, smaller=isinstance(e, Min))
        case Table():
            index = _rebuild(e.index, names, ranges)
            if isinstance(index, Const) and 0 <= index.value < len(e.values):
                result = Const(e.values[index.value])
            elif len(set(e.values)) == 1:
                result = Const(e.values[0])
            else:
                result = Table(e.values, index)
    interval = bounds(result, ranges)
    if interval is not None and interval[0] == interval[1]:
        return Const(interval[0])
    return result
