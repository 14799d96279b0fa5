"""What goes wrong because of the input: errors as values with a location, printed together.

Errors are collected as ``Diagnostic`` values and raised once, in an ``InputError`` (the command
ends with exit code 1) or a ``UsageError`` (exit code 2). Any other exception is a bug in starc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

Severity = Literal["error", "warning", "note"]

# A line longer than this is cut around the caret: a terminal shows it on one row.
_SHOWN_COLUMNS = 100


@dataclass(frozen=True, order=True)
class Location:
    """A place in a source file. ``line`` and ``column`` count from 1, columns in characters."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Diagnostic:
    """One thing that the user must change, or should know.

    ``key`` is the path of a configuration key (``text_config.hidden_size``) where the input has
    keys instead of lines; ``hint`` is a second sentence that says what would be right.
    """

    message: str
    location: Location | None = None
    key: str | None = None
    hint: str | None = None
    severity: Severity = "error"

    def __str__(self) -> str:
        return self.text()

    def text(self, *, severity: bool = True) -> str:
        """``file:line:column: error: key: message``, without ``error: `` where the reader has the
        ``severity`` from elsewhere."""
        place = f"{self.location}: " if self.location is not None else ""
        key = f"{self.key}: " if self.key is not None else ""
        return f"{place}{f'{self.severity}: ' if severity else ''}{key}{self.message}"


class InputError(Exception):
    """The input is wrong. ``sources`` has the text of the files that the locations name, as far
    as the raiser knows it; ``render`` shows lines from it."""

    def __init__(
        self,
        diagnostics: Diagnostic | Sequence[Diagnostic],
        sources: Mapping[str, str] | None = None,
    ) -> None:
        found = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        super().__init__("\n".join(str(diagnostic) for diagnostic in found))
        self.diagnostics: tuple[Diagnostic, ...] = found
        self.sources: dict[str, str] = dict(sources or {})

    def __reduce__(self) -> tuple[type[InputError], tuple[object, ...]]:
        """As what it was made from: worker processes hand errors on."""
        return InputError, (self.diagnostics, self.sources)


class UsageError(Exception):
    """The command line, or a call of the API, makes no sense."""


def _source_excerpt(location: Location, text: str) -> str | None:
    """The source line of ``location`` with a caret below its column; None where the text has no
    such line."""
    lines = text.split("\n")
    if not 1 <= location.line <= len(lines):
        return None
    line = lines[location.line - 1].rstrip("\r")
    caret = min(max(location.column, 1), len(line) + 1) - 1
    start = max(0, min(caret - _SHOWN_COLUMNS // 2, len(line) - _SHOWN_COLUMNS))
    shown = "".join(
        character if character == "\t" or character.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for character in line[start : start + _SHOWN_COLUMNS]
    )
    # Tabs are kept, so that the caret lands below its character whatever a tab's width.
    padding = "".join("\t" if character == "\t" else " " for character in shown[: caret - start])
    return f"  {shown}\n  {padding}^"


def render(
    diagnostics: Sequence[Diagnostic], sources: Mapping[str, str], *, severity: bool = True
) -> str:
    """The diagnostics as a user reads them: ``file:line:column: error: message``, the source line
    with a caret where ``sources`` (file name to text) has it, and the hint; the first one without
    its ``severity`` where the reader has it from elsewhere."""
    blocks: list[str] = []
    for index, diagnostic in enumerate(diagnostics):
        parts = [diagnostic.text(severity=severity or index > 0)]
        location = diagnostic.location
        if location is not None and location.file in sources:
            excerpt = _source_excerpt(location, sources[location.file])
            if excerpt is not None:
                parts.append(excerpt)
        if diagnostic.hint is not None:
            parts.append(f"  hint: {diagnostic.hint}")
        blocks.append("\n".join(parts))
    return "\n".join(blocks)


def render_error(
    error: InputError, sources: Mapping[str, str] | None = None, *, severity: bool = True
) -> str:
    """``render`` with the error's own sources and those given."""
    return render(error.diagnostics, {**error.sources, **(sources or {})}, severity=severity)


def closest(name: str, known: Sequence[str]) -> str | None:
    """The one of the ``known`` names that a misspelt ``name`` is closest to, if one is close."""
    return next(iter(get_close_matches(name, known, n=1, cutoff=0.6)), None)


def suggestion(name: str, known: Sequence[str]) -> str | None:
    """The hint for a misspelt ``name``: the closest of the ``known`` names, if one is close."""
    close = closest(name, known)
    return f"did you mean '{close}'?" if close is not None else None


def did_you_mean(name: str, known: Sequence[str]) -> str | None:
    """The hint for a ``name`` that means nothing: the closest of the ``known`` names, else all of
    them if they are few."""
    if (close := suggestion(name, known)) is not None:
        return close
    return "known: " + ", ".join(sorted(known)) if known and len(known) <= 24 else None


def counted(number: int, noun: str) -> str:
    """``1 die``, ``8 dies``, ``0 replicas``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
