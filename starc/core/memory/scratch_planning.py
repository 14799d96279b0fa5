"""Where the tiles of a kernel lie in the scratch memory of an element with engines of its own.

Tiles that share bytes wait for each other: what comes later in a pipeline may not start before the
tile that lay there is used up. So they share only as far as they must to fit (``Sharing``), the
tiles of later scopes with those of scopes that have ended before anything else, and the tiles that
keep a pipeline full last of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class Sharing(IntEnum):
    """Which tiles share bytes, if they are never alive at the same time."""

    NONE = 0
    SCOPES = 1  # tiles of different scopes, of which neither is in the other
    TILES = 2  # all but those of several slots or stages
    ALL = 3


@dataclass(frozen=True)
class ScratchTile:
    """A tile with all its slots, alive from position ``first`` to ``last``. ``scopes`` are the
    scopes around it, the outermost first; ``pipelined``: it has several slots or stages."""

    bytes: int
    first: int
    last: int
    scopes: tuple[int, ...] = ()
    pipelined: bool = False

    def may_share(self, other: ScratchTile, sharing: Sharing) -> bool:
        """Whether two tiles may lie on the same bytes."""
        if self.first <= other.last and other.first <= self.last:
            return False
        if sharing == Sharing.SCOPES:
            common = min(len(self.scopes), len(other.scopes))
            if self.scopes[:common] == other.scopes[:common]:
                return False
        plain = not (self.pipelined or other.pipelined)
        return sharing == Sharing.ALL or (sharing != Sharing.NONE and plain)


@dataclass(frozen=True)
class ScratchPlan:
    """First bytes of the tiles, in their order, and the end of the highest."""

    offsets: tuple[int, ...]
    bytes: int
    sharing: Sharing


def plan_scratch(tiles: Sequence[ScratchTile], available: int) -> ScratchPlan:
    """The plan with the least sharing that fits ``available`` bytes, the smallest where none does.
    Larger tiles are placed first, each at the lowest place that is free during its life."""
    plans = (_placed(tiles, sharing) for sharing in Sharing)
    smallest: ScratchPlan | None = None
    for plan in plans:
        if plan.bytes <= available:
            return plan
        if smallest is None or plan.bytes < smallest.bytes:
            smallest = plan
    assert smallest is not None
    return smallest


def _placed(tiles: Sequence[ScratchTile], sharing: Sharing) -> ScratchPlan:
    order = sorted(range(len(tiles)), key=lambda i: (-tiles[i].bytes, tiles[i].first, i))
    offsets: dict[int, int] = {}
    for i in order:
        tile = tiles[i]
        taken = sorted(
            (offsets[j], offsets[j] + tiles[j].bytes)
            for j in offsets
            if not tile.may_share(tiles[j], sharing)
        )
        offset = 0
        for start, end in taken:
            if offset + tile.bytes <= start:
                break
            offset = max(offset, end)
        offsets[i] = offset
    end = max((offsets[i] + tile.bytes for i, tile in enumerate(tiles)), default=0)
    return ScratchPlan(tuple(offsets[i] for i in range(len(tiles))), end, sharing)
