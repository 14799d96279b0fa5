"""The syntax tree of a ``.sa`` file. Every node knows where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from starc.diagnostics import Location


@dataclass(frozen=True)
class Identifier:
    """A name where it is written: of a parameter, a layer, a value."""

    text: str
    location: Location


@dataclass(frozen=True)
class Number:
    """A literal as written (``16k``, ``1e-5``); ``quantities`` gives its value."""

    text: str
    location: Location


@dataclass(frozen=True)
class String:
    """The text between the quotes."""

    text: str
    location: Location


@dataclass(frozen=True)
class Negation:
    """``- operand``."""

    operand: Expression
    location: Location


@dataclass(frozen=True)
class Step:
    """``operator operand`` of a chain; the location is the operator's."""

    operator: str
    operand: Expression
    location: Location


@dataclass(frozen=True)
class Chain:
    """``first`` and steps of one precedence, evaluated from the left: a loop, not a recursion,
    however long it is."""

    first: Expression
    steps: tuple[Step, ...]
    location: Location


@dataclass(frozen=True)
class Argument:
    """An argument of a call; ``keyword`` is None for a positional one."""

    keyword: Identifier | None
    value: Expression


@dataclass(frozen=True)
class Call:
    """``operation(arguments)``; the location is the operation's name."""

    operation: str
    arguments: tuple[Argument, ...]
    location: Location


Expression: TypeAlias = Identifier | Number | String | Negation | Chain | Call


@dataclass(frozen=True)
class Entry:
    """``name = value`` of a model or a phase."""

    name: Identifier
    value: Expression


@dataclass(frozen=True)
class Assignment:
    """``target = value`` in a layer."""

    target: Identifier
    value: Expression


@dataclass(frozen=True)
class Return:
    """``return value`` in a layer."""

    value: Expression
    location: Location


@dataclass(frozen=True)
class Model:
    """``model "name" { entries }``."""

    name: String | None
    entries: tuple[Entry, ...]
    location: Location


@dataclass(frozen=True)
class Layer:
    """``layer name(inputs) { statements }``."""

    name: Identifier
    inputs: tuple[Identifier, ...]
    statements: tuple[Assignment | Return, ...]


@dataclass(frozen=True)
class Repeat:
    """``layer``, ``layer * count`` or ``(layers) * count`` in a stack."""

    layers: tuple[Identifier, ...]
    count: Expression | None


@dataclass(frozen=True)
class Stack:
    """``stack { entries }``."""

    entries: tuple[Repeat, ...]
    location: Location


@dataclass(frozen=True)
class Phase:
    """``phase name { entries }``."""

    name: Identifier
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class SourceFile:
    """The blocks of a file, in order."""

    file: str
    models: tuple[Model, ...]
    layers: tuple[Layer, ...]
    stacks: tuple[Stack, ...]
    phases: tuple[Phase, ...]
