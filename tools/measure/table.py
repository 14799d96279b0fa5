"""Rows of measurements and the CSV files that they are written to.

A file has fixed columns and is rewritten whole after every row, so that a run that is cut short
leaves complete files behind.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

Value = int | float | str

SIGNIFICANT: Final = 6


def shown(value: Value | None) -> str:
    """A cell: floats with six significant digits and no exponent, None as nothing."""
    if value is None:
        return ""
    if isinstance(value, float):
        if not value:
            return "0"
        digits = max(0, SIGNIFICANT - 1 - _exponent(value))
        text = f"{value:.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return str(value)


def _exponent(value: float) -> int:
    return int(f"{abs(value):e}".split("e")[1])


@dataclass
class Table:
    """One CSV file: its columns, in order, and the rows so far."""

    columns: Sequence[str]
    rows: list[Mapping[str, Value | None]] = field(default_factory=list[Mapping[str, Value | None]])

    def add(self, row: Mapping[str, Value | None]) -> None:
        """Adds a row. Raises ``ValueError`` when its keys are not the file's columns."""
        if set(row) != set(self.columns):
            raise ValueError(f"row has {sorted(row)}, the file {sorted(self.columns)}")
        self.rows.append(row)

    def text(self) -> str:
        """The file's text."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        for row in self.rows:
            writer.writerow([shown(row[column]) for column in self.columns])
        return out.getvalue()


class Results:
    """The files of one run, in a directory, each named after the device and what it holds."""

    def __init__(self, directory: Path, prefix: str, files: Mapping[str, Sequence[str]]) -> None:
        self._directory = directory
        self._prefix = prefix
        self._tables = {name: Table(columns) for name, columns in files.items()}

    def add(self, file: str, row: Mapping[str, Value | None]) -> None:
        """Adds a row to a file and writes the file."""
        table = self._tables[file]
        table.add(row)
        self.path(file).write_text(table.text())

    def path(self, file: str) -> Path:
        """Where a file is written."""
        return self._directory / f"{self._prefix}_{file}.csv"

    def counts(self) -> dict[str, int]:
        """Rows of each file that has some."""
        return {name: len(table.rows) for name, table in self._tables.items() if table.rows}
