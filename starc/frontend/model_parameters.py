"""The ``model`` block: named sizes and types that the rest of the file uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from starc.core.element_types import ElementFormat
from starc.diagnostics import InputError, Location, did_you_mean, suggestion
from starc.frontend.evaluation import (
    ELEMENT_TYPES,
    RESERVED_WORDS,
    UNKNOWN,
    Evaluator,
    Value,
    as_element_type,
    as_real,
    as_size,
    element_type,
)
from starc.frontend.parser import parse_expression
from starc.frontend.problems import Problems
from starc.frontend.source import Source
from starc.frontend.syntax import Entry, Expression, Identifier, SourceFile

SIZES: Final = ("hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab")
"""Parameters that operations and shapes use: positive whole numbers."""

REALS: Final = ("eps", "theta")
"""Positive numbers that operations use."""

DTYPES: Final = {name: row for name, row in ELEMENT_TYPES.items() if row.is_model_option}
"""Element types of weights and activations."""

KV_DTYPES: Final = ELEMENT_TYPES
"""Element types of the KV cache."""

DEFAULT_DTYPE: Final = ELEMENT_TYPES["bf16"]


@dataclass
class ModelParameters:
    """The model's name and parameters, evaluated. A wrong one is there as ``UNKNOWN``."""

    name: str
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    dtype: ElementFormat = DEFAULT_DTYPE
    kv_dtype: ElementFormat = DEFAULT_DTYPE


def evaluate_model(
    source: SourceFile,
    default_name: str,
    overrides: Mapping[str, str],
    dtype: str | None,
    kv_dtype: str | None,
    problems: Problems,
) -> ModelParameters:
    """Evaluates the model's entries from the top, each over those above it. An entry of
    ``overrides`` (name to expression) takes the place of the file's value, so that entries below
    follow it."""
    if not source.models:
        problems.report(
            "the file has no model",
            Location(source.file, 1, 1),
            hint='a model is: model "name" { hidden = 4096, heads = 32, ... }',
        )
        return ModelParameters(default_name)
    for again in source.models[1:]:
        problems.report(
            f"a file has one model; the first is in line {source.models[0].location.line}",
            again.location,
        )
    model = source.models[0]
    result = ModelParameters(model.name.text if model.name is not None else default_name)
    first_lines: dict[str, int] = {}
    for entry in model.entries:
        if _declares(entry.name, first_lines, problems):
            result.values[entry.name.text] = _value(entry, result.values, overrides, problems)
    for name in overrides:
        if name not in first_lines:
            problems.report(
                f"the model has no parameter '{name}'",
                key=f"--set {name}",
                hint=did_you_mean(name, list(first_lines)),
            )
    _resolve_types(result, dtype, kv_dtype, problems)
    return result


def _declares(name: Identifier, first_lines: dict[str, int], problems: Problems) -> bool:
    """Whether a name is that of a parameter, and its first one; reported where not."""
    text, location = name.text, name.location
    if text in first_lines:
        problems.report(
            f"the parameter '{text}' is given twice; first in line {first_lines[text]}", location
        )
        return False
    first_lines[text] = location.line
    if text in RESERVED_WORDS or element_type(text) is not None:
        problems.report(f"'{text}' is a reserved word", location)
        return False
    return True


def _value(
    entry: Entry, above: Mapping[str, Value], overrides: Mapping[str, str], problems: Problems
) -> Value:
    """The value of an entry, over those above it: the one that takes its place, or the file's."""
    name = entry.name.text
    if name in overrides:
        value = _override(name, overrides[name], above, problems)
        return _checked(name, value, problems, None, f"--set {name}")
    value = _written(name, entry.value, Evaluator(above, problems))
    return _checked(name, value, problems, entry.value.location, None)


def _written(name: str, expression: Expression, evaluator: Evaluator) -> Value:
    """The value of an entry. An unknown word in the place of an element type is left for the
    check of the type, whose message says what is legal."""
    is_type = name in ("dtype", "kv_dtype")
    if is_type and isinstance(expression, Identifier) and expression.text not in evaluator.names:
        return expression.text
    return evaluator.evaluate(expression)


def _override(name: str, text: str, values: Mapping[str, Value], problems: Problems) -> Value:
    """The value of ``--set name=text``; errors name the option, since no file has the text."""
    key = f"--set {name}"
    inner = Problems(key, text)
    try:
        value = Evaluator(values, inner).evaluate(parse_expression(Source(key, text)))
        inner.raise_if_any()
    except InputError as error:
        for diagnostic in error.diagnostics:
            message = diagnostic.message.replace("end of the file", "end of the value")
            problems.report(message, key=key, hint=diagnostic.hint)
        return UNKNOWN
    return value


def _checked(
    name: str, value: Value, problems: Problems, location: Location | None, key: str | None
) -> Value:
    """The value of a parameter that has a meaning, in its type; any constant for others."""
    checked: Value | None
    if name in SIZES:
        checked = as_size(value, name, problems, location, key)
    elif name in REALS:
        checked = as_real(value, name, problems, location, key)
    elif name == "dtype":
        checked = as_element_type(value, name, DTYPES, problems, location, key)
    elif name == "kv_dtype":
        checked = as_element_type(value, name, KV_DTYPES, problems, location, key)
    else:
        checked = value
    return UNKNOWN if checked is None else checked


def _resolve_types(
    result: ModelParameters, dtype: str | None, kv_dtype: str | None, problems: Problems
) -> None:
    """The element types in force: the caller's, else the model's, else bf16; the KV cache's is
    that of the weights unless it is given."""
    given = result.values.get("dtype", UNKNOWN)
    if dtype is not None and dtype != "auto":
        given = as_element_type(dtype, "dtype", DTYPES, problems, None, "--dtype") or UNKNOWN
    cache = result.values.get("kv_dtype", UNKNOWN)
    if kv_dtype is not None and kv_dtype != "auto":
        key = "--kv-cache-dtype"
        cache = as_element_type(kv_dtype, "kv_dtype", KV_DTYPES, problems, None, key) or UNKNOWN
    result.dtype = given if isinstance(given, ElementFormat) else DEFAULT_DTYPE
    result.kv_dtype = cache if isinstance(cache, ElementFormat) else result.dtype
    # What is in force is also what a later use of the name, or a report, finds.
    for name, type in (("dtype", result.dtype), ("kv_dtype", result.kv_dtype)):
        if name in result.values:
            result.values[name] = type


def report_missing(
    name: str, user: str, model: ModelParameters, problems: Problems, location: Location
) -> None:
    """Reports a parameter that ``user`` needs and the model lacks; a misspelt one is likely to be
    there under a name that has no meaning of its own."""
    others = [given for given in model.values if given not in (*SIZES, *REALS)]
    problems.report(
        f"{user} needs '{name}', which the model does not give",
        location,
        hint=suggestion(name, others) or f"add {name} = ... to the model",
    )


def constants(values: Mapping[str, Value]) -> dict[str, int | float | str]:
    """The parameters as plain values, types by name, for reports."""
    plain: dict[str, int | float | str] = {}
    for name, value in values.items():
        match value:
            case ElementFormat():
                plain[name] = value.name
            case int() | float() | str():
                plain[name] = value
            case _:
                pass
    return plain
