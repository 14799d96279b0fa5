"""Reads CSV files whose columns are known, and says everything that is wrong with one at once."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Final, Literal

from starc.diagnostics import Diagnostic, InputError, Location, suggestion
from starc.validation.rows import Case, Scalar

LARGEST_FILE: Final = 16 << 20
LARGEST_NUMBER: Final = 1 << 53
_SHOWN_PROBLEMS: Final = 50


@dataclass(frozen=True)
class Column:
    """A column: its name, what its cells are, and which are legal. A cell of an ``optional`` column
    may be empty, which leaves the parameter out."""

    name: str
    kind: Literal["int", "float", "text"] = "int"
    choices: tuple[str, ...] = ()
    least: float = 1
    optional: bool = False

    def describe(self) -> str:
        """What a cell may hold, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind == "text":
            return "a name"
        noun = "a whole number" if self.kind == "int" else "a number"
        bound = (
            "above 0" if self.kind == "float" and self.least == 0 else f"of at least {self.least:g}"
        )
        return f"{noun} {bound}"

    def parse(self, cell: str) -> Scalar | None:
        """The value of a cell, None for an illegal one."""
        if self.choices:
            return cell if cell in self.choices else None
        if self.kind == "text":
            return cell or None
        try:
            value: Scalar = int(cell) if self.kind == "int" else float(cell)
        except ValueError:
            return None
        number = float(value)
        if not isfinite(number) or number > LARGEST_NUMBER or number < self.least:
            return None
        return None if self.kind == "float" and self.least == 0 and number == 0 else value


def time_column(name: str = "us") -> Column:
    """A measured time: any positive number."""
    return Column(name, "float", least=0)


@dataclass(frozen=True)
class Record:
    """A line of a file: its number and its cells by column."""

    line: int
    cells: dict[str, Scalar]


def read_table(path: Path, columns: Sequence[Column]) -> list[Record]:
    """The rows of a CSV file with exactly these columns, in any order.

    Raises ``InputError`` with every column and number that is wrong, each with its line.
    """
    text, problems = _text(path)
    if problems:
        raise InputError(problems)
    sources = {str(path): text}
    rows = _csv_rows(path, text, sources)
    if not rows:
        legal = ",".join(column.name for column in columns)
        message = f"the file is empty: its first line must be {legal}"
        raise InputError(Diagnostic(message, Location(str(path), 1, 1)), sources)
    line, header = rows[0]
    header = [cell.strip() for cell in header]
    problems = _check_header(path, line, header, columns)
    by_name = {column.name: column for column in columns}
    records: list[Record] = []
    for line, row in rows[1:]:
        if len(row) != len(header):
            place = Location(str(path), line, 1)
            message = f"{len(row)} cells, but the file has {len(header)} columns"
            problems.append(Diagnostic(message, place))
        else:
            cells = _cells(path, line, zip(header, row, strict=True), by_name, problems)
            records.append(Record(line, cells))
    if not records and not problems:
        place = Location(str(path), line, 1)
        problems.append(Diagnostic("the file has a header line and no rows", place))
    if problems:
        more = len(problems) - _SHOWN_PROBLEMS
        if more > 0:
            rest = Diagnostic(f"and {more} more cells like these", Location(str(path), 1, 1))
            problems = [*problems[:_SHOWN_PROBLEMS], rest]
        raise InputError(problems, sources)
    return records


def _csv_rows(path: Path, text: str, sources: dict[str, str]) -> list[tuple[int, list[str]]]:
    """The rows of a CSV file that have cells, each with its line."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        return [(line, row) for line, row in ((reader.line_num, row) for row in reader) if any(row)]
    except csv.Error as error:
        where = Location(str(path), reader.line_num, 1)
        raise InputError(Diagnostic(f"this is no CSV: {error}", where), sources) from error


def _cells(
    path: Path,
    line: int,
    row: Iterable[tuple[str, str]],
    columns: Mapping[str, Column],
    problems: list[Diagnostic],
) -> dict[str, Scalar]:
    """The values of a row by column; what is none is among the problems."""
    cells: dict[str, Scalar] = {}
    position = 1
    for name, raw in row:
        cell, column = raw.strip(), columns.get(name)
        place = Location(str(path), line, position)
        position += len(raw) + 1
        if column is None or (not cell and column.optional):
            continue
        value = column.parse(cell)
        if value is None:
            shown = f"'{cell[:40]}'" if cell else "nothing"
            message = f"column {name}: {shown} must be {column.describe()}"
            problems.append(Diagnostic(message, place))
            continue
        cells[name] = value
    return cells


def _text(path: Path) -> tuple[str, list[Diagnostic]]:
    place = Location(str(path), 1, 1)
    if path.stat().st_size > LARGEST_FILE:
        return "", [Diagnostic("the file has more than 16 MiB", place)]
    try:
        return path.read_text(encoding="utf-8-sig"), []
    except UnicodeDecodeError:
        return "", [Diagnostic("the file is not UTF-8 text", place)]


def _check_header(
    path: Path, line: int, header: Sequence[str], columns: Sequence[Column]
) -> list[Diagnostic]:
    place = Location(str(path), line, 1)
    names = [column.name for column in columns]
    legal = "columns: " + ",".join(names)
    problems = [
        Diagnostic(f"unknown column '{name}'", place, hint=suggestion(name, names) or legal)
        for name in header
        if name not in names
    ]
    problems += [
        Diagnostic(f"column '{name}' is missing", place, hint=legal)
        for name in names
        if name not in header
    ]
    problems += [
        Diagnostic(f"column '{name}' stands there {header.count(name)} times", place)
        for name in dict.fromkeys(header)
        if header.count(name) > 1
    ]
    return problems


def cases_of(
    path: Path,
    kind: str,
    columns: Sequence[Column],
    *,
    measured: str = "us",
    unit: str = "us",
) -> list[Case]:
    """The cases of a file with one measured column; all others are parameters."""
    return [
        Case(
            path.name,
            kind,
            {name: value for name, value in record.cells.items() if name != measured},
            float(record.cells[measured]),
            unit,
            record.line,
        )
        for record in read_table(path, columns)
    ]
