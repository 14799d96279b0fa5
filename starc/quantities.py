"""Numbers as the language writes them: units, bounds, exact arithmetic."""

from __future__ import annotations

import math
import re

UNITS: dict[str, int] = {"": 1, "k": 2**10, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
"""Suffixes of a number and their factors: ``k`` is 1024 wherever it stands."""

LARGEST = 2**63 - 1
"""No whole number, and no size in bytes, may be larger: it has to fit in 63 bits."""

_LITERAL = re.compile(
    r"(?P<digits>[0-9][0-9_]*)(?P<fraction>\.[0-9]+)?(?P<exponent>[eE][+-]?[0-9]+)?"
    r"(?P<unit>[A-Za-z_]*)"
)
_LONGEST_LITERAL = 40


class QuantityError(ValueError):
    """A number that cannot be used; the text is a message for the user."""


def bounded(value: int | float) -> int | float:
    """``value`` itself. Raises ``QuantityError`` if it is out of bounds or not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        raise QuantityError("the number is too large")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise QuantityError("the number does not fit in 63 bits")
    return value


def parse_number(text: str) -> int | float:
    """The value of a literal: whole unless it has a fraction or an exponent, times its unit.

    Raises ``QuantityError`` for an unknown unit and for numbers out of bounds.
    """
    if len(text) > _LONGEST_LITERAL:
        raise QuantityError(f"a number has at most {_LONGEST_LITERAL} characters")
    match = _LITERAL.fullmatch(text)
    if match is None:
        raise QuantityError(f"'{text}' is not a number")
    unit = match["unit"]
    if unit not in UNITS:
        known = ", ".join(name for name in UNITS if name)
        raise QuantityError(f"unknown unit '{unit}': a number may end in {known}")
    digits = match["digits"].replace("_", "")
    if match["fraction"] is None and match["exponent"] is None:
        return bounded(int(digits) * UNITS[unit])
    real = float(digits + (match["fraction"] or "") + (match["exponent"] or ""))
    value = bounded(real * UNITS[unit])
    # 1.5k is 1536: a unit makes a size, and a size is whole.
    return int(value) if unit and value == int(value) else value


def parse_size(text: str) -> int:
    """A positive whole number with an optional unit, as command-line options take it (``128k``).

    Raises ``QuantityError``.
    """
    value = parse_number(text.strip())
    if not isinstance(value, int) or value < 1:
        raise QuantityError(f"'{text}' is not a positive whole number")
    return value


def combine(operator: str, left: int | float, right: int | float) -> int | float:
    """``left operator right`` for ``+ - * /``. Whole numbers stay whole: a division of two that
    leaves a rest is an error, since sizes must not be rounded silently. Raises ``QuantityError``.
    """
    match operator:
        case "+":
            return bounded(left + right)
        case "-":
            return bounded(left - right)
        case "*":
            return bounded(left * right)
        case "/":
            if right == 0:
                raise QuantityError("division by zero")
            if isinstance(left, int) and isinstance(right, int):
                if left % right:
                    raise QuantityError(f"{left} is not a multiple of {right}")
                return left // right
            return bounded(left / right)
        case _:
            raise AssertionError(operator)
