"""Shard maps: which position of a dimension is held by which rank, in closed form.

A map distributes ``extent`` positions over ``ranks`` ranks. Shards may be uneven or empty. Every
map is a bijection between positions and pairs (rank, local index) with local indices in order.

    >>> Cyclic(2).count(1, ranks=3, extent=7), Cyclic(2).positions(1, ranks=3, extent=7).tolist()
    (2, [2, 3])
    >>> [Contiguous().count(rank, ranks=4, extent=9) for rank in range(4)]
    [3, 3, 3, 0]

A map may be *rotated*: then the rank of a position depends on its row, the index along another
dimension, ``by``. ``at_row`` gives the map of one row; without it a map speaks of row 0.

    >>> rotated = Cyclic(1, by=0)
    >>> [rotated.at_row(row).owner(4, ranks=3, extent=7)[0] for row in range(3)]
    [1, 2, 0]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import ClassVar

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]


def even_shares(extent: int, ranks: int) -> tuple[int, ...]:
    """``extent`` in shares that differ by one at most, the larger ones first."""
    share, more = divmod(extent, ranks)
    return tuple(share + (rank < more) for rank in range(ranks))


class ShardMap(ABC):
    """How one dimension is distributed. ``rank`` counts along the dimension's axis list."""

    has_ranges: ClassVar[bool] = False
    """Whether every shard is a range of positions, in the order of the ranks."""

    @abstractmethod
    def count(self, rank: int, ranks: int, extent: int) -> int:
        """How many positions a rank holds."""

    @abstractmethod
    def position(self, rank: int, index: int, ranks: int, extent: int) -> int:
        """The position of a rank's local ``index``; ``0 <= index < count(rank)``."""

    @abstractmethod
    def owner(self, position: int, ranks: int, extent: int) -> tuple[int, int]:
        """The rank that holds a position and its local index there."""

    @abstractmethod
    def positions(self, rank: int, ranks: int, extent: int) -> Positions:
        """The positions that a rank holds, in local order, as int64."""

    def capacity(self, ranks: int, extent: int) -> int:
        """The largest count of any rank: the physical extent of a shard."""
        return max(self.count(rank, ranks, extent) for rank in range(ranks))

    def problem(self, ranks: int, extent: int) -> str | None:
        """Why the map cannot distribute ``extent`` over ``ranks``, or ``None``."""
        del ranks, extent
        return None

    @abstractmethod
    def in_blocks(self, block: int, ranks: int, extent: int) -> ShardMap | None:
        """The same map counted in blocks of ``block`` positions, which must divide ``extent``;
        ``None`` where a shard cuts a block.

            >>> Cyclic(8).in_blocks(4, ranks=2, extent=64), Cyclic(2).in_blocks(4, 2, 64)
            (Cyclic(block=2, offset=0, by=None), None)
        """

    @abstractmethod
    def of_blocks(self, block: int, ranks: int, extent: int) -> ShardMap:
        """The inverse: the map of single positions where this one distributes ``extent`` blocks.

        >>> Contiguous().of_blocks(4, ranks=2, extent=3)
        Offsets(offsets=(0, 8, 12))
        """

    def suffix(self) -> str:
        """How the map prints after the axis list; empty for the default."""
        return ""

    def period(self, ranks: int) -> int | None:
        """After how many positions the ranks come in the same order again, if ever."""
        del ranks
        return None

    def shard_names(self, ranks: int, extent: int) -> tuple[object, ...]:
        """For every rank something that names its positions, in all rows: of two maps equal names
        are equal shards."""
        return tuple(self.positions(rank, ranks, extent).tobytes() for rank in range(ranks))

    def owners(self, ranks: int, extent: int) -> Positions:
        """The rank of every position, as int64."""
        owners = np.empty(extent, dtype=np.int64)
        for rank in range(ranks):
            owners[self.positions(rank, ranks, extent)] = rank
        return owners

    @abstractmethod
    def window(self, start: int, length: int, ranks: int, extent: int) -> ShardMap | None:
        """The map of the positions ``start .. start + length - 1`` alone, which become positions
        ``0 .. length - 1``: every one stays on its rank. ``None`` where no map says that.

            >>> Cyclic(1, by=0).window(13, length=4, ranks=8, extent=64)
            Cyclic(block=1, offset=5, by=0)
            >>> Contiguous().window(6, length=4, ranks=2, extent=16)
            Offsets(offsets=(0, 2, 4))
        """

    @property
    def rotated_by(self) -> int | None:
        """The dimension whose index turns the map, or ``None``."""
        return None

    def at_row(self, row: int) -> ShardMap:
        """The map of the positions of one row, itself not rotated."""
        del row
        return self

    def with_rows(self, by: int | None) -> ShardMap:
        """The same map turned by the index along another dimension; only of a rotated map."""
        del by
        return self


@dataclass(frozen=True)
class Contiguous(ShardMap):
    """Blocks of ``ceil(extent / ranks)`` positions; the last ranks may hold fewer or none."""

    has_ranges: ClassVar[bool] = True

    def count(self, rank: int, ranks: int, extent: int) -> int:
        block = -(-extent // ranks)
        return min(max(extent - rank * block, 0), block)

    def position(self, rank: int, index: int, ranks: int, extent: int) -> int:
        return rank * -(-extent // ranks) + index

    def owner(self, position: int, ranks: int, extent: int) -> tuple[int, int]:
        return divmod(position, -(-extent // ranks))

    def positions(self, rank: int, ranks: int, extent: int) -> Positions:
        start = rank * -(-extent // ranks)
        return np.arange(start, start + self.count(rank, ranks, extent), dtype=np.int64)

    def capacity(self, ranks: int, extent: int) -> int:
        return -(-extent // ranks)

    def in_blocks(self, block: int, ranks: int, extent: int) -> ShardMap | None:
        # The shards are the same only if the rounding up meets block boundaries.
        same = -(-extent // ranks) == block * -(-(extent // block) // ranks)
        return self if extent % block == 0 and (ranks == 1 or same) else None

    def owners(self, ranks: int, extent: int) -> Positions:
        return np.arange(extent, dtype=np.int64) // max(-(-extent // ranks), 1)

    def window(self, start: int, length: int, ranks: int, extent: int) -> ShardMap | None:
        return self._offsets(ranks, extent).window(start, length, ranks, extent)

    def of_blocks(self, block: int, ranks: int, extent: int) -> ShardMap:
        if self.in_blocks(block, ranks, extent * block) is not None:
            return self
        return self._offsets(ranks, extent).of_blocks(block, ranks, extent)

    def _offsets(self, ranks: int, extent: int) -> Offsets:
        size = -(-extent // ranks)
        return Offsets(tuple(min(rank * size, extent) for rank in range(ranks + 1)))


@dataclass(frozen=True)
class Cyclic(ShardMap):
    """Blocks of ``block`` positions dealt to the ranks in turn.

    Position p lies on rank ``(p + offset) // block mod ranks``, so ``offset`` says where in a round
    the first position stands. With ``by`` the map is rotated: in the row with global index b along
    that dimension it is rank ``((p + offset) // block + b) mod ranks``. ``offset`` is less than
    ``block * ranks``.
    """

    block: int = 1
    offset: int = 0
    by: int | None = None

    def __post_init__(self) -> None:
        if self.block < 1:
            raise ValueError(f"block of a cyclic map must be at least 1, got {self.block}")
        if self.offset < 0:
            raise ValueError(f"offset of a cyclic map must not be negative, got {self.offset}")
        if self.by is not None and self.by < 0:
            raise ValueError(f"by of a cyclic map must be a dimension, got {self.by}")

    def problem(self, ranks: int, extent: int) -> str | None:
        if self.offset >= self.block * ranks:
            return (
                f"offset {self.offset} of a cyclic map must be less than a round of "
                f"{self.block * ranks}"
            )
        return None

    def _before(self, rank: int, ranks: int, end: int) -> int:
        """How many of ``0 .. end - 1`` a rank holds where the rounds start with 0."""
        rounds, left = divmod(end, self.block * ranks)
        return rounds * self.block + min(max(left - rank * self.block, 0), self.block)

    def count(self, rank: int, ranks: int, extent: int) -> int:
        skipped = self._before(rank, ranks, self.offset)
        return self._before(rank, ranks, extent + self.offset) - skipped

    def position(self, rank: int, index: int, ranks: int, extent: int) -> int:
        del extent
        turn, inside = divmod(index + self._before(rank, ranks, self.offset), self.block)
        return (turn * ranks + rank) * self.block + inside - self.offset

    def owner(self, position: int, ranks: int, extent: int) -> tuple[int, int]:
        del extent
        block, inside = divmod(position + self.offset, self.block)
        turn, rank = divmod(block, ranks)
        return rank, turn * self.block + inside - self._before(rank, ranks, self.offset)

    def positions(self, rank: int, ranks: int, extent: int) -> Positions:
        skipped = self._before(rank, ranks, self.offset)
        index = np.arange(self.count(rank, ranks, extent), dtype=np.int64) + skipped
        turn, inside = np.divmod(index, self.block)
        return (turn * ranks + rank) * self.block + inside - self.offset

    def owners(self, ranks: int, extent: int) -> Positions:
        positions = np.arange(self.offset, self.offset + extent, dtype=np.int64)
        return positions // self.block % ranks

    def in_blocks(self, block: int, ranks: int, extent: int) -> ShardMap | None:
        if extent % block or (ranks > 1 and (self.block % block or self.offset % block)):
            return None
        return Cyclic(max(self.block // block, 1), self.offset // block, self.by)

    def of_blocks(self, block: int, ranks: int, extent: int) -> ShardMap:
        return Cyclic(self.block * block, self.offset * block, self.by)

    def window(self, start: int, length: int, ranks: int, extent: int) -> ShardMap | None:
        del length, extent
        return replace(self, offset=(self.offset + start) % (self.block * ranks))

    def period(self, ranks: int) -> int | None:
        return self.block * ranks

    def shard_names(self, ranks: int, extent: int) -> tuple[object, ...]:
        if self.by is None or ranks == 1:
            return super().shard_names(ranks, extent)
        # Where the first position of a rank stands in a round tells its positions in every row.
        turn = self.block * ranks
        starts = ((rank * self.block - self.offset) % turn for rank in range(ranks))
        return tuple((self.block, self.by, ranks, start) for start in starts)

    @property
    def rotated_by(self) -> int | None:
        return self.by

    def at_row(self, row: int) -> ShardMap:
        if self.by is None:
            return self
        return Cyclic(self.block, self.offset + row * self.block)

    def with_rows(self, by: int | None) -> ShardMap:
        return replace(self, by=by)

    def suffix(self) -> str:
        offset = f", offset = {self.offset}" if self.offset else ""
        by = f", by = {self.by}" if self.by is not None else ""
        return f" cyclic({self.block}{offset}{by})"


@dataclass(frozen=True)
class Zigzag(ShardMap):
    """The dimension in ``2 * ranks`` chunks; rank r holds chunks r and ``2 * ranks - 1 - r``, so
    that causal work is the same on every rank."""

    def _pieces(self, rank: int, ranks: int, extent: int) -> tuple[tuple[int, int], ...]:
        chunk = -(-extent // (2 * ranks))
        pieces: list[tuple[int, int]] = []
        for index in (rank, 2 * ranks - 1 - rank):
            start = min(index * chunk, extent)
            pieces.append((start, min(start + chunk, extent)))
        return tuple(pieces)

    def count(self, rank: int, ranks: int, extent: int) -> int:
        return sum(end - start for start, end in self._pieces(rank, ranks, extent))

    def position(self, rank: int, index: int, ranks: int, extent: int) -> int:
        (start, end), (second, _) = self._pieces(rank, ranks, extent)
        first = end - start
        return start + index if index < first else second + index - first

    def owner(self, position: int, ranks: int, extent: int) -> tuple[int, int]:
        chunk = position // -(-extent // (2 * ranks))
        rank = chunk if chunk < ranks else 2 * ranks - 1 - chunk
        (start, end), (second, _) = self._pieces(rank, ranks, extent)
        if chunk < ranks:
            return rank, position - start
        return rank, end - start + position - second

    def positions(self, rank: int, ranks: int, extent: int) -> Positions:
        pieces = self._pieces(rank, ranks, extent)
        return np.concatenate([np.arange(start, end, dtype=np.int64) for start, end in pieces])

    def in_blocks(self, block: int, ranks: int, extent: int) -> ShardMap | None:
        return self if Contiguous().in_blocks(block, 2 * ranks, extent) else None

    def of_blocks(self, block: int, ranks: int, extent: int) -> ShardMap:
        if self.in_blocks(block, ranks, extent * block) is None:
            raise ValueError(f"{extent} blocks of {block} in zigzag order have no map of positions")
        return self

    def window(self, start: int, length: int, ranks: int, extent: int) -> ShardMap | None:
        return self if start == 0 and length == extent else None

    def suffix(self) -> str:
        return " zigzag"


@dataclass(frozen=True)
class Offsets(ShardMap):
    """Explicit boundaries: rank r holds ``offsets[r] .. offsets[r + 1] - 1``. The first offset is
    0 and the last the extent."""

    offsets: tuple[int, ...]

    @classmethod
    def balanced(cls, extent: int, ranks: int) -> Offsets:
        """Shares that differ by one at most, the larger ones first.

        >>> Offsets.balanced(7, 3)
        Offsets(offsets=(0, 3, 5, 7))
        """
        return cls.of_counts(even_shares(extent, ranks))

    @classmethod
    def of_counts(cls, counts: Iterable[int]) -> Offsets:
        """Shards of given sizes.

        >>> Offsets.of_counts((2, 0, 3))
        Offsets(offsets=(0, 2, 2, 5))
        """
        return cls(tuple(accumulate(counts, initial=0)))

    has_ranges: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.offsets or self.offsets[0] != 0:
            raise ValueError("offsets must start with 0")
        if any(a > b for a, b in zip(self.offsets, self.offsets[1:], strict=False)):
            raise ValueError("offsets must not decrease")

    def problem(self, ranks: int, extent: int) -> str | None:
        if len(self.offsets) != ranks + 1:
            return f"{ranks} shards need {ranks + 1} offsets, got {len(self.offsets)}"
        if self.offsets[-1] != extent:
            return f"the last offset is {self.offsets[-1]}, the size of the dimension is {extent}"
        return None

    def count(self, rank: int, ranks: int, extent: int) -> int:
        return self.offsets[rank + 1] - self.offsets[rank]

    def position(self, rank: int, index: int, ranks: int, extent: int) -> int:
        return self.offsets[rank] + index

    def owner(self, position: int, ranks: int, extent: int) -> tuple[int, int]:
        rank = bisect_right(self.offsets, position) - 1
        return rank, position - self.offsets[rank]

    def positions(self, rank: int, ranks: int, extent: int) -> Positions:
        return np.arange(self.offsets[rank], self.offsets[rank + 1], dtype=np.int64)

    def in_blocks(self, block: int, ranks: int, extent: int) -> ShardMap | None:
        if any(offset % block for offset in self.offsets):
            return None
        return Offsets(tuple(offset // block for offset in self.offsets))

    def of_blocks(self, block: int, ranks: int, extent: int) -> ShardMap:
        return Offsets(tuple(offset * block for offset in self.offsets))

    def owners(self, ranks: int, extent: int) -> Positions:
        return np.repeat(np.arange(ranks, dtype=np.int64), np.diff(self.offsets))

    def window(self, start: int, length: int, ranks: int, extent: int) -> ShardMap | None:
        return Offsets(tuple(min(max(end - start, 0), length) for end in self.offsets))

    def suffix(self) -> str:
        return f" offsets [{', '.join(str(offset) for offset in self.offsets)}]"


CONTIGUOUS = Contiguous()
