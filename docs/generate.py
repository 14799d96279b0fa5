"""Writes the reference pages from the docstrings of the code: ``python docs/generate.py``.

A test compares the committed pages with what this script would write.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from starc.command_line.arguments import build_parser
from starc.command_line.explain import DIALECTS, pass_options
from starc.passes.pipeline import PASSES, STRATEGIES, PassEntry, load_pass
from starc.report.glossary import GLOSSARY
from starc.universe import load_dialect

DOCS = Path(__file__).parent
NOTE = "<!-- Written by docs/generate.py from the code: change the code, then run `make docs`. -->"


def markdown(docstring: str | None) -> str:
    """A docstring as Markdown: indented blocks become code blocks."""
    lines: list[str] = []
    fenced = indented = False

    def end_block() -> None:
        while lines and not lines[-1]:
            lines.pop()
        lines.extend(("```", ""))

    for line in inspect.cleandoc(docstring or "").split("\n"):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            code = line.startswith("    ")
            if code and not indented:
                lines.append("```text")
            elif indented and line and not code:
                end_block()
            indented = code or (indented and not line)
            if not indented:
                # Double backticks and colons are how docstrings write what Markdown writes singly.
                line = re.sub("``", "`", re.sub(r"::$", ":", line))
        lines.append(line.removeprefix("    ") if indented else line)
    if indented:
        end_block()
    return "\n".join(lines).strip()


def passes_page() -> str:
    """The index of the passes, in order, with the strategies that run them."""
    names = list(STRATEGIES)
    parts = [
        NOTE,
        "# Passes",
        "",
        "In the order in which `starc compile` runs them; each has a page",
    ]
    parts[-1] += " with its contract and an example that a test runs."
    parts += ["", f"| pass | level | {' | '.join(names)} | |", "|---" * (3 + len(names)) + "|"]
    for entry in PASSES:
        marks = ("x" if entry.name in _passes_of(name) else "" for name in names)
        link = f"[{entry.name}](passes/{entry.name}.md)"
        parts.append(f"| {link} | {entry.level} | {' | '.join(marks)} | {entry.summary} |")
    parts += ["", "Strategies:", ""]
    parts += [f"- `{name}`: {STRATEGIES[name].summary}" for name in names]
    return "\n".join(parts) + "\n"


def _passes_of(strategy: str) -> set[str]:
    return {name for name, _ in STRATEGIES[strategy].passes}


def pass_page(entry: PassEntry) -> str:
    """A pass: its level, what it needs, its docstring and its options."""
    kind = load_pass(entry.name)
    parts = [NOTE, f"# {entry.name}", "", f"Output level: {entry.level}."]
    if entry.needs:
        parts[-1] += f" Needs what {', '.join(f'`{name}`' for name in entry.needs)} established."
    running = [f"`{name}`" for name in STRATEGIES if entry.name in _passes_of(name)]
    parts[-1] += f" Run by: {', '.join(running)}." if running else " Run on demand (`--enable`)."
    parts += ["", markdown(kind.__doc__)]
    options = list(pass_options(kind))
    if options:
        parts += ["", "| option | type | default |", "|---|---|---|"]
        parts += [
            f"| `{name}` | `{type_text.replace('|', chr(92) + '|')}` | `{default}` |"
            for name, type_text, default in options
        ]
    return "\n".join(parts) + "\n"


def dialects_page() -> str:
    """Every dialect with its operations, attributes and types."""
    parts = [NOTE, "# Dialects", "", "See [ir.md](ir.md) for how they follow each other."]
    for name in DIALECTS:
        module = importlib.import_module(f"starc.dialects.{name}")
        dialect = load_dialect(name)
        parts += ["", f"## {name}", "", markdown(module.__doc__)]
        for operation in dialect.operations:
            parts += [
                "",
                f"### `{operation.name}`",
                "",
                markdown(operation.__dict__.get("__doc__")),
            ]
        for attribute in dialect.attributes:
            text = markdown(attribute.__dict__.get("__doc__"))
            parts += ["", f"### `{attribute.name}` (attribute or type)", "", text]
    return "\n".join(parts) + "\n"


def glossary_page() -> str:
    """Every line of the report."""
    parts = [NOTE, "# Glossary", "", "What `starc explain NAME` says about lines of the report."]
    for name, text in sorted(GLOSSARY.items()):
        parts += ["", f"**{name}**: {text}"]
    return "\n".join(parts) + "\n"


def options_page() -> str:
    """Every command with its options, by topic."""
    parts = [NOTE, "# Commands and options"]
    for name, parser in build_parser()[1].items():
        description = (parser.description or "").replace("\n", " ")
        parts += ["", f"## starc {name}", "", description]
        for title, actions in parser.topics():
            parts += ["", f"| {title} | |", "|---|---|"]
            for action in actions:
                names = ", ".join(f"`{option}`" for option in action.option_strings)
                value = action.metavar or " or ".join(action.choices or ())
                shown = f"{names} `{value}`" if names and value else names or f"`{value}`"
                text = (action.help or "") % {"default": action.default}
                parts.append(f"| {shown} | {text} |")
        if parser.epilog:
            parts += ["", "```text", parser.epilog.rstrip(), "```"]
    return "\n".join(parts) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "options.md": options_page,
    "passes.md": passes_page,
    "dialects.md": dialects_page,
    "glossary.md": glossary_page,
}


def pages() -> Iterator[tuple[Path, str]]:
    """(path, text) of every generated page."""
    for name, make in PAGES.items():
        yield DOCS / name, make()
    for entry in PASSES:
        yield DOCS / "passes" / f"{entry.name}.md", pass_page(entry)


if __name__ == "__main__":
    (DOCS / "passes").mkdir(exist_ok=True)
    written = {page for page, _ in pages()}
    for page in set((DOCS / "passes").glob("*.md")) - written:
        page.unlink()
    for page, text in pages():
        page.write_text(text, encoding="utf-8")
        print(f"wrote {page}")
