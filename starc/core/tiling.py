"""Arithmetic that schedules share: extents in tiles, row tiles, times that overlap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

OVERLAP_NORM: Final = 4


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


def pad(extent: int, multiple: int) -> int:
    """The next multiple."""
    return ceil_div(extent, multiple) * multiple


def covering_power_of_two(extent: int) -> int:
    """The smallest power of two that is at least ``extent``."""
    return 1 << max(0, extent - 1).bit_length()


def power_of_two_divisor(extent: int) -> int:
    """The largest power of two that divides ``extent``."""
    return extent & -extent


def overlapped(seconds: Iterable[float]) -> float:
    """The time of work on several resources at once: the 4-norm of their times."""
    times = list(seconds)
    largest = max(times)
    if largest == 0.0:
        return 0.0
    return largest * sum((t / largest) ** OVERLAP_NORM for t in times) ** (1 / OVERLAP_NORM)


@dataclass(frozen=True)
class RowTiling:
    """How ``rows`` rows of a [batch, query, feature] value are taken at a time: ``sequences`` x
    ``positions``, so that a tile never straddles sequences unevenly."""

    sequences: int
    positions: int
    sequence_tiles: int
    position_tiles: int

    @property
    def tiles(self) -> int:
        """Row tiles; tile i covers sequences ``i // position_tiles`` and positions
        ``i % position_tiles`` (in tiles)."""
        return self.sequence_tiles * self.position_tiles

    @property
    def rows(self) -> int:
        """Rows of one tile."""
        return self.sequences * self.positions


def row_tiling(batch: int, query: int, rows: int) -> RowTiling:
    """The row tiles of a value with ``batch`` sequences of ``query`` positions."""
    positions = min(query, rows)
    sequences = max(1, min(batch, rows // positions)) if positions == query else 1
    return RowTiling(sequences, positions, ceil_div(batch, sequences), ceil_div(query, positions))


def divisors(number: int) -> list[int]:
    """The divisors of a number, ascending."""
    return [d for d in range(1, number + 1) if number % d == 0]
