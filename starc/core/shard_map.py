"""Shard maps: which position of a dimension is held by which rank, in closed form.

A map distributes ``extent`` positions over ``ranks`` ranks. Shards may be uneven or empty. Every
map is a bijection between positions and pairs (rank, local index) with local indices in order.

    >>> Cyclic(2).count(1, ranks=3, extent=7), Cyclic(2).positions(1, ranks=3, extent=7).tolist()
    (2, [2, 3])
    >>> [Contiguous().count(rank, ranks=4, extent=9) for rank in range(4)]
    [3, 3, 3, 0]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]


class ShardMap(ABC):
    """How one dimension is distributed. ``rank`` counts along the dimension's axis list."""

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
            (Cyclic(block=2), None)
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


@dataclass(frozen=True)
class Contiguous(ShardMap):
    """Blocks of ``ceil(extent / ranks)`` positions; the last ranks may hold fewer or none."""

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

    def of_blocks(self, block: int, ranks: int, extent: int) -> ShardMap:
        if self.in_blocks(block, ranks, extent * block) is not None:
            return self
        size = -(-extent // ranks)
        return Offsets(tuple(min(rank * size, extent) * block for rank in range(ranks + 1)))


@dataclass(frozen=True)
class Cyclic(ShardMap):
    """Blocks of ``block`` positions dealt to the ranks in turn."""

    block: int = 1

    def __post_init__(self) -> None:
        if self.block < 1:
            raise ValueError(f"block of a cyclic map must be at least 1, got {self.block}")

    def count(self, rank: int, ranks: int, extent: int) -> int:
        rounds = extent // (self.block * ranks)
        left = extent - rounds * self.block * ranks - rank * self.block
        return rounds * self.block + min(max(left, 0), self.block)

    def position(self, rank: int, index: int, ranks: int, extent: int) -> int:
        del extent
        turn, inside = divmod(index, self.block)
        return (turn * ranks + rank) * self.block + inside

    def owner(self, position: int, ranks: int, extent: int) -> tuple[int, int]:
        del extent
        block, inside = divmod(position, self.block)
        turn, rank = divmod(block, ranks)
        return rank, turn * self.block + inside

    def positions(self, rank: int, ranks: int, extent: int) -> Positions:
        index = np.arange(self.count(rank, ranks, extent), dtype=np.int64)
        turn, inside = np.divmod(index, self.block)
        return (turn * ranks + rank) * self.block + inside

    def in_blocks(self, block: int, ranks: int, extent: int) -> ShardMap | None:
        if extent % block or (ranks > 1 and self.block % block):
            return None
        return Cyclic(max(self.block // block, 1))

    def of_blocks(self, block: int, ranks: int, extent: int) -> ShardMap:
        return Cyclic(self.block * block)

    def suffix(self) -> str:
        return f" cyclic({self.block})"


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

    def suffix(self) -> str:
        return " zigzag"


@dataclass(frozen=True)
class Offsets(ShardMap):
    """Explicit boundaries: rank r holds ``offsets[r] .. offsets[r + 1] - 1``. The first offset is
    0 and the last the extent."""

    offsets: tuple[int, ...]

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

    def suffix(self) -> str:
        return f" offsets [{', '.join(str(offset) for offset in self.offsets)}]"


CONTIGUOUS = Contiguous()
