"""The value of an expression: numbers, element types, strings, and tensors in a layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from starc.core.element_types import FORMATS, ElementFormat
from starc.diagnostics import Location
from starc.frontend.problems import Problems
from starc.frontend.syntax import Call, Chain, Expression, Identifier, Negation, Number, String
from starc.quantities import QuantityError, bounded, combine, parse_number

RESERVED_WORDS: Final = ("causal", "sink")
"""Flags of operations; they name nothing else."""


ELEMENT_TYPES: Final[Mapping[str, ElementFormat]] = {
    row.spellings[0]: row for row in FORMATS if row.spellings
}
"""Element types by their name in the language."""

# The name in the IR and what else the field calls them, too.
_SPELLINGS: Final[Mapping[str, ElementFormat]] = {
    spelling: row for row in ELEMENT_TYPES.values() for spelling in (*row.spellings, row.name)
}


def element_type(name: str) -> ElementFormat | None:
    """The element type of this name, or None."""
    return _SPELLINGS.get(name)


@dataclass(frozen=True)
class Unknown:
    """The value of something wrong that has been reported: it causes no further errors."""


UNKNOWN: Final = Unknown()


class TensorLike(Protocol):
    """What an expression in a layer may be beside a constant."""

    @property
    def shape(self) -> tuple[int, ...]: ...


Value: TypeAlias = int | float | str | ElementFormat | TensorLike | Unknown


def describe(value: Value) -> str:
    """A value in a message."""
    match value:
        case bool() | int() | float():
            return f"the number {value}"
        case str():
            return f'the string "{value}"'
        case ElementFormat():
            return f"the element type {value.name}"
        case Unknown():
            return "something wrong"
        case _:
            return f"a tensor {list(value.shape)}"


class Evaluator:
    """Evaluates expressions over ``names``. What is wrong is reported, and its value ``UNKNOWN``.

    This class knows constants; in a layer a subclass adds operations and arithmetic on tensors.
    """

    def __init__(self, names: Mapping[str, Value], problems: Problems) -> None:
        self.names = names
        self.problems = problems

    def evaluate(self, expression: Expression) -> Value:
        """The value of an expression."""
        match expression:
            case Number():
                return self._number(expression)
            case String():
                return expression.text
            case Identifier():
                return self.identifier(expression)
            case Negation():
                return self._negation(expression)
            case Chain():
                return self._chain(expression)
            case Call():
                return self.call(expression)

    def identifier(self, identifier: Identifier) -> Value:
        """What a name stands for."""
        name = identifier.text
        if name in RESERVED_WORDS:
            self.problems.report(
                f"'{name}' is a flag of an operation, not a value", identifier.location
            )
            return UNKNOWN
        if name in self.names:
            return self.names[name]
        type = element_type(name)
        if type is not None:
            return type
        self.problems.unknown_name("name", name, list(self.names), identifier.location)
        return UNKNOWN

    def call(self, call: Call) -> Value:
        """The value of an operation; here there is none."""
        self.problems.report(
            f"the operation '{call.operation}' cannot stand here: operations belong in layers",
            call.location,
        )
        return UNKNOWN

    def combine_tensors(
        self, operator: str, left: Value, right: Value, location: Location
    ) -> Value:
        """``left operator right`` where one is not a number."""
        wrong = left if not isinstance(left, int | float) else right
        self.problems.report(f"'{operator}' needs numbers, got {describe(wrong)}", location)
        return UNKNOWN

    def _number(self, number: Number) -> Value:
        try:
            return parse_number(number.text)
        except QuantityError as error:
            self.problems.report(str(error), number.location)
            return UNKNOWN

    def _negation(self, negation: Negation) -> Value:
        value = self.evaluate(negation.operand)
        if isinstance(value, int | float):
            return bounded(-value)
        if not isinstance(value, Unknown):
            self.problems.report(f"'-' needs a number, got {describe(value)}", negation.location)
        return UNKNOWN

    def _chain(self, chain: Chain) -> Value:
        value = self.evaluate(chain.first)
        for step in chain.steps:
            operand = self.evaluate(step.operand)
            value = self._combine(step.operator, value, operand, step.location)
        return value

    def _combine(self, operator: str, left: Value, right: Value, location: Location) -> Value:
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return UNKNOWN
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            return self.combine_tensors(operator, left, right, location)
        try:
            return combine(operator, left, right)
        except QuantityError as error:
            self.problems.report(str(error), location)
            return UNKNOWN


def as_size(
    value: Value, what: str, problems: Problems, location: Location | None, key: str | None = None
) -> int | None:
    """``value`` as a positive whole number; None, reported, if it is none."""
    match value:
        case Unknown():
            return None
        case int() if value >= 1:
            return value
        case float() if value >= 1 and value.is_integer() and value < 2**53:
            return int(value)
        case int() | float():
            problems.report(
                f"{what} must be a whole number, at least 1, got {value}", location, key=key
            )
        case _:
            problems.report(
                f"{what} must be a whole number, got {describe(value)}", location, key=key
            )
    return None


def as_real(
    value: Value, what: str, problems: Problems, location: Location | None, key: str | None = None
) -> float | None:
    """``value`` as a positive number; None, reported, if it is none."""
    match value:
        case Unknown():
            return None
        case int() | float() if value > 0:
            return float(value)
        case _:
            got = value if isinstance(value, int | float) else describe(value)
            problems.report(f"{what} must be a positive number, got {got}", location, key=key)
            return None


def as_element_type(
    value: Value,
    what: str,
    legal: Mapping[str, ElementFormat],
    problems: Problems,
    location: Location | None,
    key: str | None = None,
) -> ElementFormat | None:
    """``value`` as one of the ``legal`` element types; None, reported, if it is none."""
    if isinstance(value, Unknown):
        return None
    if isinstance(value, str):
        value = element_type(value) or value
    if isinstance(value, ElementFormat) and value in legal.values():
        return value
    names = ", ".join(legal)
    got = f"'{value}'" if isinstance(value, str) else describe(value)
    problems.report(f"{what} must be one of {names}, got {got}", location, key=key)
    return None
