"""Meshes of ranks: of the cubes of a group, and of the processing elements of a cube."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

COLUMNS: Final = 4
"""Columns of the mesh of elements of a cube, and at most of cubes of a group."""


def cube_shape(cubes: int) -> tuple[int, int]:
    """Rows and columns of the rectangle of so many cubes; a number that no rectangle of the machine
    has is a row.

    >>> [cube_shape(cubes) for cubes in (1, 2, 4, 8, 16)]
    [(1, 1), (1, 2), (2, 2), (2, 4), (4, 4)]
    """
    columns = 1
    while columns < COLUMNS and columns * columns < cubes:
        columns *= 2
    return (1, cubes) if cubes % columns else (cubes // columns, columns)


def element_shape(elements: int) -> tuple[int, int]:
    """The same of the elements of a cube, which fill rows of four."""
    columns = min(elements, COLUMNS)
    return (1, elements) if elements % columns else (elements // columns, columns)


@dataclass(frozen=True)
class Rectangle:
    """A mesh of ranks that count row by row."""

    rows: int
    columns: int

    @property
    def size(self) -> int:
        return self.rows * self.columns

    def place(self, rank: int) -> tuple[int, int]:
        return divmod(rank, self.columns)

    def rank(self, row: int, column: int) -> int:
        return row * self.columns + column

    def hops(self, source: int, target: int) -> int:
        """Links of the way along the row and then along the column."""
        (r0, c0), (r1, c1) = self.place(source), self.place(target)
        return abs(r0 - r1) + abs(c0 - c1)

    @property
    def center(self) -> int:
        """The rank to which the longest way is shortest, the first of them."""
        return self.rank((self.rows - 1) // 2, (self.columns - 1) // 2)

    def ring(self) -> tuple[int, ...]:
        """All ranks, each a neighbour of the one before; the last is one of the first where there
        is such a ring: one of the extents is even, or there is but one row."""
        if min(self.rows, self.columns) == 1 or self.size % 2:
            return tuple(
                self.rank(row, column if row % 2 == 0 else self.columns - 1 - column)
                for row in range(self.rows)
                for column in range(self.columns)
            )
        if self.rows % 2:
            turned = Rectangle(self.columns, self.rows).ring()
            return tuple(self.rank(r % self.rows, r // self.rows) for r in turned)
        # Down the rows behind the first column, back in the first column.
        inner = [
            self.rank(row, column)
            for row in range(self.rows)
            for column in _turning(range(1, self.columns), row)
        ]
        back = [self.rank(row, 0) for row in range(self.rows - 1, 0, -1)]
        return (0, *inner, *back)


def _turning(columns: range, row: int) -> Sequence[int]:
    return columns if row % 2 == 0 else columns[::-1]
