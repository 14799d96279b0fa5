"""What the fields of a target hold, by the annotation of each, and which values are none of it.

Program files and attributes of modules bring values of any kind; a wrong one is named by its field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, TypeGuard, cast

from starc.diagnostics import Diagnostic
from starc.targets.parts import Transport


class FieldKind(StrEnum):
    """Kinds of values, as messages name them."""

    COUNT = "a whole number, at least 0"
    SIZE = "a whole number, at least 1"
    REAL = "a number, at least 0"
    FLAG = "true or false"
    TEXT = "a string"
    ROWS = "rows of axis, size, level and link class"
    PAIRS = "pairs of whole numbers, at least 0"
    COUNTS = "whole numbers, at least 0"
    NAMES = "names"
    NUMBERS = "names with numbers, at least 0"
    TRANSPORTS = "names with transports"


_OF_ANNOTATION: Final[Mapping[str, FieldKind]] = {
    "Count": FieldKind.COUNT,
    "Size": FieldKind.SIZE,
    "float": FieldKind.REAL,
    "bool": FieldKind.FLAG,
    "str": FieldKind.TEXT,
    "Mapping[str, int]": FieldKind.NUMBERS,
    "Mapping[str, float]": FieldKind.NUMBERS,
    "Mapping[str, Transport]": FieldKind.TRANSPORTS,
    "tuple[tuple[str, int, str, str], ...]": FieldKind.ROWS,
    "tuple[tuple[int, int], ...]": FieldKind.PAIRS,
    "tuple[int, ...]": FieldKind.COUNTS,
    "tuple[str, ...]": FieldKind.NAMES,
}
"""Annotations of fields (the text that stands in the class); others are not checked."""
_UNCHECKED: Final = ("warnings",)


def wrong_fields(target: type[Any], values: Mapping[str, Any]) -> list[Diagnostic]:
    """What is wrong with the kinds of the values that are given for fields of a dataclass."""
    kinds = {
        item.name: _OF_ANNOTATION.get(str(item.type))
        for item in dataclasses.fields(target)
        if item.name not in _UNCHECKED
    }
    # The mesh is looked at first: what others are held against.
    order = ["mesh", *(name for name in kinds if name != "mesh")]
    return [
        Diagnostic(f"the target's '{key}' must be {kind}, got {_shown(values[key])}")
        for key in order
        if key in values and (kind := kinds[key]) is not None and not _CHECKS[kind](values[key])
    ]


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and isinstance(value, int) and value >= 0


def _is_size(value: Any) -> bool:
    return _is_count(value) and value >= 1


def _is_real(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_pair(value: Any) -> bool:
    match value:
        case [int() as a, int() as b]:
            return min(a, b) >= 0 and a != b
        case _:
            return False


def _is_row(value: Any) -> bool:
    match value:
        case [str(), int() as size, str(), str()]:
            return size >= 1
        case _:
            return False


def _is_transport(value: Any) -> bool:
    return isinstance(value, Mapping | Transport)


def _list_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def of_list(value: Any) -> bool:
        return isinstance(value, list | tuple) and all(map(check, cast("Sequence[object]", value)))

    return of_list


def _names_with(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def of_mapping(value: Any) -> bool:
        return isinstance(value, Mapping) and all(
            map(check, cast("Mapping[Any, Any]", value).values())
        )

    return of_mapping


_CHECKS: Final[Mapping[FieldKind, Callable[[Any], bool]]] = {
    FieldKind.COUNT: _is_count,
    FieldKind.SIZE: _is_size,
    FieldKind.REAL: _is_real,
    FieldKind.FLAG: _is_flag,
    FieldKind.TEXT: _is_text,
    FieldKind.ROWS: _list_of(_is_row),
    FieldKind.PAIRS: _list_of(_is_pair),
    FieldKind.COUNTS: _list_of(_is_count),
    FieldKind.NAMES: _list_of(_is_text),
    FieldKind.NUMBERS: _names_with(_is_real),
    FieldKind.TRANSPORTS: _names_with(_is_transport),
}


def _shown(value: Any) -> str:
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
