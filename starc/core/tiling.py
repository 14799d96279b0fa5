"""Arithmetic that schedules share: extents in tiles, row tiles, times that overlap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from typing import Final

OVERLAP_NORM: Final = 4
LARGEST_FACTOR: Final = 1 << 16


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


@dataclass(frozen=True)
class Slice:
    """The part of a tile that a workgroup takes which merges shares: ``outer`` x ``inner`` of
    its rows, ``count`` such parts a tile."""

    outer: int
    inner: int
    count: int

    @property
    def rows(self) -> int:
        return self.outer * self.inner


def slice_rows(outer: int, inner: int, limit: int) -> Slice:
    """Cuts ``outer`` x ``inner`` rows, numbered row-major, into equal parts of at most ``limit``
    rows that are boxes: some whole rows of the outer dimension or a piece of one.

        >>> slice_rows(8, 4, 10), slice_rows(8, 12, 5)
        (Slice(outer=2, inner=4, count=4), Slice(outer=1, inner=4, count=24))
    """
    if inner <= limit:
        taken = largest_divisor(outer, limit // inner)
        return Slice(taken, inner, outer // taken)
    piece = largest_divisor(inner, max(1, limit))
    return Slice(1, piece, outer * inner // piece)


def largest_divisor(extent: int, limit: int) -> int:
    """The largest divisor of ``extent`` up to ``limit``."""
    return next(d for d in range(min(extent, limit), 0, -1) if extent % d == 0)


@lru_cache(maxsize=1024)
def divisors(number: int) -> tuple[int, ...]:
    """The divisors of a number, ascending; of a very large one those that have, or are, a factor
    of at most 65536."""
    small = [d for d in range(1, min(isqrt(number), LARGEST_FACTOR) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def shares(steps: int, most: int) -> Iterator[tuple[int, int]]:
    """The ways to share out ``steps`` without empty shares: (steps of a share, shares), at most
    ``most`` of them, from many to one. Each number of shares comes once.

    >>> list(shares(10, 6))
    [(2, 5), (3, 4), (4, 3), (5, 2), (10, 1)]
    """
    share = ceil_div(steps, most)
    while True:
        count = ceil_div(steps, share)
        yield share, count
        if count == 1:
            return
        share = ceil_div(steps, count - 1)


def floor_sum(count: int, step: int, offset: int, divisor: int) -> int:
    """The sum of ``(step * i + offset) // divisor`` for i below ``count``, in logarithmic time.

    >>> floor_sum(4, 3, 1, 2) == sum((3 * i + 1) // 2 for i in range(4))
    True
    """
    total = 0
    while count > 0:
        total += count * (count - 1) // 2 * (step // divisor) + count * (offset // divisor)
        step, offset = step % divisor, offset % divisor
        highest = step * count + offset
        if highest < divisor:
            break
        count, offset = divmod(highest, divisor)
        step, divisor = divisor, step
    return total
