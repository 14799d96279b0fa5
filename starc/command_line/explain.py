"""``starc explain`` and ``starc passes``: what the docstrings of the code say."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from starc.command_line.machines import machine_text
from starc.diagnostics import UsageError, did_you_mean
from starc.passes.pipeline import (
    PASSES,
    STRATEGIES,
    PassEntry,
    entry_of,
    load_pass,
    unknown_name,
)
from starc.report.glossary import GLOSSARY, entry_for
from starc.report.glossary_aliases import ALIASES
from starc.report.remarks import PASSES_OF_REMARKS, REMARKS
from starc.targets.machine_file import products
from starc.targets.names import aliases

DIALECTS = ("nn", "sharding", "collective", "kernel", "isa")


def explain(name: str) -> str:
    """The text about a pass, dialect, operation, strategy, or line of the report.

    Raises ``UsageError`` with the closest name if there is none.
    """
    name = name.removeprefix("--")
    if name.replace("_", "-") in REMARKS:
        name = name.replace("_", "-")
    for entry in PASSES:
        if entry.name == name:
            return pass_text(entry)
    if name in DIALECTS:
        return dialect_text(name)
    dialect, dot, _ = name.partition(".")
    if dot and dialect in DIALECTS:
        for operation_name, text in operations(dialect):
            if operation_name == name:
                return text
    if name in STRATEGIES:
        strategy = STRATEGIES[name]
        passes = "\n".join(f"  {pass_name}" for pass_name, _ in strategy.passes)
        return f"{name}: {strategy.summary}\n\n{passes}"
    if (text := machine_text(name.lower())) is not None:
        return text
    # What a report prints is explained as it stands there: 'bound by scratch'.
    key = entry_for(name) or entry_for(re.sub(r"^bound[ _-]by[ _-]", "", name))
    found = [textwrap.fill(f"{key}: {GLOSSARY[key]}", 96)] if key is not None else []
    if name in REMARKS:
        found.append(textwrap.fill(f"{name}, a remark: {REMARKS[name]}", 96))
        passes = " or ".join(f"starc explain {maker}" for maker in PASSES_OF_REMARKS[name])
        found.append(f"more: {passes}")
    if found:
        return "\n\n".join(found)
    hint = did_you_mean(name, topics())
    raise UsageError(f"nothing is known about '{name}'" + (f" ({hint})" if hint else ""))


def topics() -> tuple[str, ...]:
    """Everything that ``explain`` knows, without the operations of dialects."""
    names = (entry.name for entry in PASSES)
    return (*names, *DIALECTS, *STRATEGIES, *GLOSSARY, *ALIASES, *REMARKS, *products(), *aliases())


def topics_text() -> str:
    """The list that ``starc explain`` prints without a name."""

    def wrapped(title: str, names: list[str]) -> str:
        body = textwrap.fill(
            ", ".join(names),
            96,
            initial_indent="  ",
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
        return f"{title}\n{body}"

    return "\n".join(
        (
            wrapped("passes", [entry.name for entry in PASSES]),
            wrapped("dialects (and their operations, as nn.linear)", list(DIALECTS)),
            wrapped("strategies", list(STRATEGIES)),
            wrapped("terms, and lines of the report", sorted(GLOSSARY)),
            wrapped("remarks", sorted(REMARKS)),
        )
    )


def pass_text(entry: PassEntry) -> str:
    """A pass's place, options and docstring."""
    kind = load_pass(entry.name)
    lines = [f"{entry.name} ({entry.level} level)", "", inspect.cleandoc(kind.__doc__ or "")]
    options = list(pass_options(kind))
    if options:
        lines += ["", "Options:"]
        lines += [f"  {name}: {type_text} = {default}" for name, type_text, default in options]
    return "\n".join(lines)


def pass_options(kind: type) -> Iterator[tuple[str, str, str]]:
    """(name, type or legal values, default) of each option of a pass."""
    values: Mapping[str, Sequence[str]] = getattr(kind, "VALUES", {})
    for field in dataclasses.fields(kind):
        required = field.default is dataclasses.MISSING
        default = "required" if required else str(field.default)
        type_text = field.type if isinstance(field.type, str) else str(field.type)
        if field.name in values:
            several = ", ..." if type_text.startswith("tuple") else ""
            type_text = " | ".join(values[field.name]) + several
        yield field.name.replace("_", "-"), type_text, default


def dialect_text(name: str) -> str:
    """A dialect's docstring and its operations with their first lines."""
    module = importlib.import_module(f"starc.dialects.{name}")
    lines = [f"dialect {name}", "", inspect.cleandoc(module.__doc__ or ""), "", "Operations:"]
    for operation_name, text in operations(name):
        paragraph = " ".join(text.split("\n\n")[1].split()) if "\n\n" in text else ""
        summary = re.split(r"(?<=[.:;]) ", paragraph)[0].rstrip(".:;")
        lines.append(f"  {operation_name:26s} {textwrap.shorten(summary, 70, placeholder=' ...')}")
    return "\n".join(lines)


def operations(dialect: str) -> Iterator[tuple[str, str]]:
    """(name, name and docstring) of each operation of a dialect."""
    from starc.universe import load_dialect

    for operation in load_dialect(dialect).operations:
        doc = inspect.cleandoc(operation.__dict__.get("__doc__") or "")
        yield operation.name, f"{operation.name}\n\n{doc}"


def passes_text(strategy: str) -> str:
    """The passes of a strategy in order with their levels, summaries and options."""
    if strategy not in STRATEGIES:
        raise unknown_name("strategy", strategy, tuple(STRATEGIES))
    lines: list[str] = [f"Passes of strategy '{strategy}', in order:", ""]
    level = ""
    for pass_name, chosen in STRATEGIES[strategy].passes:
        entry = entry_of(pass_name)
        if entry.level != level:
            level = entry.level
            lines.append(f"to the {level} level")
        lines.append(f"  {entry.name:28s} {entry.summary}")
        if any(line.startswith(f"  {pass_name} ") for line in lines[:-1]):
            continue
        for name, type_text, default in pass_options(load_pass(entry.name)):
            lines.append(f"  {'':28s}   {name}: {type_text} = {chosen.get(name, default)}")
    lines += ["", "then 'pack' makes the program; 'starc explain PASS' says more."]
    return "\n".join(lines)
