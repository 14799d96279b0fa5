"""``starc explain`` and ``starc passes``: what the docstrings of the code say."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator

from starc.diagnostics import UsageError, did_you_mean
from starc.passes.pipeline import PASSES, STRATEGIES, PassEntry, load_pass, unknown_name
from starc.report.glossary import ALIASES, GLOSSARY, entry_for

DIALECTS = ("nn", "sharding", "collective", "kernel", "isa")


def explain(name: str) -> str:
    """The text about a pass, dialect, operation, strategy, or line of the report.

    Raises ``UsageError`` with the closest name if there is none.
    """
    name = name.removeprefix("--")
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
    key = entry_for(name)
    if key is not None:
        return f"{key}: " + textwrap.fill(GLOSSARY[key], 96, initial_indent="").strip()
    entry = _remarking_pass(name)
    if entry is not None:
        return f"{name}: a remark of the pass {entry.name}\n\n{pass_text(entry)}"
    hint = did_you_mean(name, topics())
    raise UsageError(f"nothing is known about '{name}'" + (f" ({hint})" if hint else ""))


def _remarking_pass(identifier: str) -> PassEntry | None:
    """The pass that makes a remark of this identifier."""
    for entry in PASSES:
        module = importlib.import_module(entry.module_name)
        if f'"{identifier}"' in inspect.getsource(module):
            return entry
    return None


def topics() -> tuple[str, ...]:
    """Everything that ``explain`` knows, without the operations of dialects."""
    return (*(entry.name for entry in PASSES), *DIALECTS, *STRATEGIES, *GLOSSARY, *ALIASES)


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
            wrapped("lines of the report", sorted(GLOSSARY)),
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
    """(name, type, default) of each option of a pass."""
    for field in dataclasses.fields(kind):
        required = field.default is dataclasses.MISSING
        default = "required" if required else str(field.default)
        type_text = field.type if isinstance(field.type, str) else str(field.type)
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
    names = {name for name, _ in STRATEGIES[strategy].passes}
    lines: list[str] = [f"Passes of strategy '{strategy}', in order:", ""]
    level = ""
    for entry in PASSES:
        if entry.name not in names:
            continue
        if entry.level != level:
            level = entry.level
            lines.append(f"to the {level} level")
        lines.append(f"  {entry.name:28s} {entry.summary}")
        for name, type_text, default in pass_options(load_pass(entry.name)):
            lines.append(f"  {'':28s}   {name}: {type_text} = {default}")
    lines += ["", "then 'pack' makes the program; 'starc explain PASS' says more."]
    return "\n".join(lines)
