"""What the streams of a workgroup share in the concurrent interpreter: tiles and semaphores.

Streams run in any order but for their semaphores. Every use of a slot is kept with the stream that
made it; whoever reads a slot must know, by the clocks that semaphores carry, that what fills it has
arrived, and whoever overwrites it, or scratch bytes that it shares, that all its uses are over.
Whether a run showed wrong data does not matter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from starc.backend.numerics import Array
from starc.interpreter.isa_streams import Kernel
from starc.interpreter.shared_memory import Access, Clock, ScheduleError, Thread

Slot: TypeAlias = tuple[int, int]
"""A tile and one of its slots."""


@dataclass(eq=False)
class Contents:
    """A slot's data and the iteration that it belongs to."""

    iteration: tuple[int, ...]
    values: Array
    load: Access | None


@dataclass(frozen=True)
class Use:
    """A read or write of a slot: ``thread`` is the stream, or for what its engine does behind its
    back (loads that arrive) the transfers of the slot; ``owner`` the stream itself."""

    owner: Thread
    thread: Thread
    time: int
    text: str


@dataclass
class _Uses:
    """The last write of a slot and the last read by each stream since."""

    write: Use | None = None
    reads: dict[Thread, Use] = field(default_factory=dict[Thread, Use])


class SharedTiles:
    """The tiles and semaphores of one workgroup."""

    def __init__(self, kernel: Kernel, start: Clock) -> None:
        self.kernel = kernel
        self.tiles: dict[Slot, Contents] = {}
        self.overlaps = _tile_overlaps(kernel)
        self.semaphores: list[deque[Clock]] = [
            deque([start] * initial) for _, initial in kernel.semaphores
        ]
        self._uses: dict[Slot, _Uses] = {}
        self._several = bool(kernel.streams)

    def together(self, slot: Slot) -> Iterator[Slot]:
        """A slot and those that share bytes of scratch with it."""
        yield slot
        yield from self.overlaps.get(slot, ())

    def name(self, slot: Slot) -> str:
        info = self.kernel.tiles[slot[0]]
        return f"{info.name} slot {slot[1]}" if info.slots > 1 else info.name

    def check_read(self, slot: Slot, use: Use, known: Clock) -> None:
        """The reader knows that what was written has arrived."""
        if not self._several:
            return
        uses = self._uses.setdefault(slot, _Uses())
        if uses.write is not None and not _knows(known, use, uses.write):
            raise ScheduleError(
                "arrival",
                f"{use.text} of {use.owner} reads {self.name(slot)} and does not know of "
                f"{uses.write.text} of {uses.write.owner}: no semaphore orders them",
            )
        uses.reads[use.thread] = use

    def check_write(self, slot: Slot, use: Use, known: Clock) -> None:
        """The writer knows that all uses of the slot, and of the bytes that it shares, are over."""
        if not self._several:
            return
        for other in self.together(slot):
            uses = self._uses.pop(other, None)
            if uses is None:
                continue
            earlier = [*uses.reads.values(), *([] if uses.write is None else [uses.write])]
            for before in earlier:
                if not _knows(known, use, before):
                    where = self.name(slot)
                    if other != slot:
                        where += f", which shares scratch with {self.name(other)},"
                    raise ScheduleError(
                        "recycled",
                        f"{use.text} of {use.owner} overwrites {where} and does not know of "
                        f"{before.text} of {before.owner}: no semaphore orders them",
                    )
        self._uses[slot] = _Uses(use)


def _knows(known: Clock, use: Use, before: Use) -> bool:
    return before.owner is use.owner or known.knows(before.thread, before.time)


def _tile_overlaps(kernel: Kernel) -> dict[Slot, tuple[Slot, ...]]:
    """Slots of different tiles that share bytes of scratch."""
    spans: list[tuple[int, int, Slot]] = []
    for tile, info in enumerate(kernel.tiles):
        if info.offset is not None:
            for slot in range(info.slots):
                start = info.offset + slot * info.slot_bytes
                spans.append((start, start + info.slot_bytes, (tile, slot)))
    return {
        slot: tuple(
            other
            for other_start, other_end, other in spans
            if other[0] != slot[0] and other_start < end and start < other_end
        )
        for start, end, slot in spans
    }
