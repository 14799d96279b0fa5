"""Tables that never cut a number: where one is too wide, names get shorter and columns go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_NAME: Final = 24  # cells that the first column keeps while there are columns that can go
_LEAST: Final = 8  # cells that it keeps in any case
_GAP: Final = 2

Cell = str | Text


@dataclass(frozen=True)
class Column:
    """A column; ``rank`` says how early it goes: the highest first, 0 only when nothing else is
    left. ``key`` names it in the note where its header does not."""

    header: str
    justify: str = "right"
    rank: int = 0
    key: str = ""

    @property
    def name(self) -> str:
        return self.key or self.header


@dataclass
class FittedTable:
    """Rows under headers, fitted to the width at hand. Only the first column's cells, names, are
    ever shortened, with ``…``; all other cells are shown whole or their column is left out, which
    a line below says.

    >>> from rich.console import Console
    >>> table = FittedTable([Column("kernel", "left"), Column("time"), Column("puts", rank=1)])
    >>> table.add_row("a_rather_long_name_of_a_kernel", "12.3 us", "1,234,567")
    >>> Console(width=34).print(table)
    kernel                        time
    a_rather_long_name_of_a_…  12.3 us
    not shown for want of room: puts
    """

    columns: Sequence[Column]
    rows: list[tuple[Text, ...]] = field(default_factory=list[tuple[Text, ...]])

    def add_row(self, *cells: Cell) -> None:
        """A row; cells that are missing at its end are empty."""
        texts = [Text.from_markup(cell) if isinstance(cell, str) else cell for cell in cells]
        texts += [Text("")] * (len(self.columns) - len(texts))
        self.rows.append(tuple(texts))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [
            max([len(column.header), *(row[number].cell_len for row in self.rows)])
            for number, column in enumerate(self.columns)
        ]
        shown, first = _fit([column.rank for column in self.columns], widths, options.max_width)
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
        for number in shown:
            column, width = self.columns[number], widths[number] if number else first
            table.add_column(
                column.header,
                justify="left" if column.justify == "left" else "right",
                no_wrap=True,
                width=width,
            )
        for row in self.rows:
            table.add_row(*(row[number] for number in shown))
        yield table
        gone = _unique(
            column.name for number, column in enumerate(self.columns) if number not in shown
        )
        if gone:
            yield Text(f"not shown for want of room: {', '.join(gone)}", style="dim")


def _fit(ranks: Sequence[int], widths: Sequence[int], room: int) -> tuple[list[int], int]:
    """The columns to show and the width of the first.

    >>> _fit((0, 0, 1, 2), (30, 10, 10, 10), 70), _fit((0, 0, 1, 2), (30, 10, 10, 10), 48)
    (([0, 1, 2, 3], 30), ([0, 1, 2], 24))
    >>> _fit((0, 0, 1, 2), (30, 10, 10, 10), 20)
    ([0, 1], 8)
    """
    shown = list(range(len(widths)))

    def left() -> int:
        return room - sum(widths[number] + _GAP for number in shown if number)

    least = min(widths[0], _NAME)
    while left() < least:
        rank, number = max(((ranks[n], n) for n in shown if n), default=(0, 0))
        if not number:
            break
        if not rank and left() >= min(widths[0], _LEAST):
            break
        shown.remove(number)
    return shown, max(min(widths[0], left()), 1)


def _unique(names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name]
