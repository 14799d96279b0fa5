"""Memory of all devices with race detection: who wrote and read which element, and whether the
accesses are ordered.

Order is *happens-before*: within a workgroup; from a signal to the wait that it satisfies; from the
end of a launch to the start of the next on its queue. A vector clock says what a workgroup knows to
have happened; two accesses of one element, one of them a write, that no such chain orders are a
race, whether or not this run's interleaving showed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from starc.backend.numerics import Array, Box, Numerics, held_mask
from starc.core.element_types import ElementType
from starc.core.extents import DeviceExtents

Lane: TypeAlias = tuple[int, str]
"""Device and queue."""

EXACT: Final = (ElementType.I32, ElementType.I8)
"""Types whose sums do not depend on the order."""

UNORDERED: Final = 1 << 60
"""The time of a read whose data nobody has needed yet: nothing is known to follow it."""


class ScheduleError(RuntimeError):
    """A bug in a schedule: ``kind`` is ``race``, ``unwritten``, ``stale``, ``overwritten``,
    ``bounds``, ``private``, ``deadlock``, or between engine streams ``arrival`` (a tile is read
    before what fills it is known to have arrived) or ``recycled`` (it is overwritten before its
    uses are known to be over)."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, eq=False)
class Thread:
    """A workgroup of a launch, itself its identity; ``launch`` counts the launches of its lane."""

    lane: Lane
    launch: int
    workgroup: int
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name} (device {self.lane[0]}, workgroup {self.workgroup})"


@dataclass(frozen=True)
class Clock:
    """What is known to have happened: launches of lanes that have ended, and how far single
    workgroups have come."""

    ended: Mapping[Lane, int] = field(default_factory=dict[Lane, int])
    reached: Mapping[Thread, int] = field(default_factory=dict[Thread, int])

    def knows(self, thread: Thread, time: int) -> bool:
        if self.ended.get(thread.lane, 0) > thread.launch:
            return True
        return self.reached.get(thread, -1) >= time

    def joined(self, other: Clock) -> Clock:
        if other is self:
            return self
        if other.ended == self.ended:
            known = self.reached
            newer = {t: n for t, n in other.reached.items() if known.get(t, -1) < n}
            return Clock(self.ended, {**known, **newer}) if newer else self
        ended, know_more = dict(self.ended), False
        for lane, count in other.ended.items():
            if ended.get(lane, 0) < count:
                ended[lane], know_more = count, True
        # A clock has no workgroups of launches that it knows to have ended.
        reached = dict(self.reached)
        if know_more:
            reached = {t: n for t, n in reached.items() if ended.get(t.lane, 0) <= t.launch}
        for thread, time in other.reached.items():
            if reached.get(thread, -1) < time and ended.get(thread.lane, 0) <= thread.launch:
                reached[thread] = time
        return Clock(ended, reached)

    def at(self, thread: Thread, time: int) -> Clock:
        return Clock(self.ended, {**self.reached, thread: time})

    def after(self, lane: Lane, launches: int) -> Clock:
        """What is known when so many launches of a lane have ended."""
        reached = {t: n for t, n in self.reached.items() if t.lane != lane or t.launch >= launches}
        return Clock({**self.ended, lane: launches}, reached)


@dataclass(eq=False)
class Access:
    """A read or write: the workgroup, its time, and the instruction in words."""

    thread: Thread
    time: int
    text: str

    def __str__(self) -> str:
        return f"{self.text} of {self.thread}"


@dataclass(eq=False)
class _Read:
    """A read and the reads of the same elements before it that are not ordered before it."""

    box: Box
    access: Access
    before: tuple[int, ...]


@dataclass(eq=False)
class Cells:
    """One buffer of one device. For every element: whether it was written, and the indices of the
    last write and of the last read since (-1 for none). What the device does not ``held`` is
    never written."""

    name: str
    device: int
    element: ElementType
    symmetric: bool
    kept: bool
    values: Array
    written: npt.NDArray[np.bool_]
    writer: npt.NDArray[np.int32]
    reader: npt.NDArray[np.int32]
    held: DeviceExtents
    overwritten: str | None = None

    def __str__(self) -> str:
        return f"@{self.name} of device {self.device}"


def _intersect(a: Box, b: Box) -> bool:
    return all(
        x.start < y.stop and y.start < x.stop for x, y in zip(a.memory, b.memory, strict=True)
    )


def _distinct(indices: npt.NDArray[np.int32]) -> list[int]:
    """The indices that occur, without -1."""
    if not indices.size:
        return []
    first = int(indices.flat[0])
    if (indices == first).all():
        return [first] if first >= 0 else []
    return [int(index) for index in np.unique(indices) if index >= 0]


class SharedMemory:
    """The buffers of all devices. Overlapping buffers destroy each other when written."""

    def __init__(self, numerics: Numerics, overlaps: Mapping[str, Iterable[str]]) -> None:
        self.numerics = numerics
        self.overlaps = {name: tuple(others) for name, others in overlaps.items()}
        self.cells: dict[tuple[int, str], Cells] = {}
        self.writes: list[Access] = []
        self.sums: dict[int, tuple[int, ...]] = {}
        """Of writes that add: the others before them of the same elements that do not know of
        them, nor they of those."""
        self.reads: list[_Read] = []

    def add(
        self,
        device: int,
        name: str,
        shape: tuple[int, ...],
        element: ElementType,
        *,
        symmetric: bool,
        kept: bool,
        contents: Array | None,
        held: DeviceExtents | None = None,
    ) -> None:
        """A buffer with its contents, poisoned where there are none. What a layer leaves in a
        ``kept`` one is used afterwards. ``held`` is what of its shape the device holds."""
        values = (
            self.numerics.poison(shape, element)
            if contents is None
            else self.numerics.store(contents, element)
        )
        held = held or DeviceExtents(shape)
        written = held_mask(shape, held) & (contents is not None)
        writer, reader = np.full(shape, -1, np.int32), np.full(shape, -1, np.int32)
        self.cells[device, name] = Cells(
            name, device, element, symmetric, kept, values, written, writer, reader, held
        )

    def check_end(self, device: int, known: Clock) -> None:
        """Whatever others wrote into results of a device is known to it when its layer has ended:
        somebody has waited for the puts."""
        for (owner, _), cells in self.cells.items():
            if owner != device or not cells.kept:
                continue
            for index in _distinct(cells.writer):
                write = self.writes[index]
                if not known.knows(write.thread, write.time):
                    raise ScheduleError(
                        "race", f"{write} writes {cells}, whose device ends without waiting for it"
                    )

    def meet(self) -> None:
        """All devices have met: nothing before is unordered with anything after."""
        self.writes.clear()
        self.sums.clear()
        self.reads.clear()
        for cells in self.cells.values():
            cells.writer[...] = -1
            cells.reader[...] = -1

    def read(self, cells: Cells, boxes: Sequence[Box], access: Access, known: Clock) -> None:
        """The elements were written, by writes that the reader knows of; notes the read."""
        for box in boxes:
            self._read(cells, box, access, known)

    def _read(self, cells: Cells, box: Box, access: Access, known: Clock) -> None:
        if cells.overwritten is not None:
            raise ScheduleError(
                "overwritten",
                f"{access} reads {cells} after @{cells.overwritten}, which overlaps it, was "
                "written",
            )
        written = cells.written[box.memory]
        if not written.all():
            where = np.argwhere(~written)[0] + [part.start for part in box.memory]
            raise ScheduleError(
                "unwritten",
                f"{access} reads {cells} at {where.tolist()}, which nobody has written",
            )
        self._check_writers(cells, box, access, known)
        before = tuple(
            index
            for index in _distinct(cells.reader[box.memory])
            if not known.knows(self.reads[index].access.thread, self.reads[index].access.time)
        )
        cells.reader[box.memory] = len(self.reads)
        self.reads.append(_Read(box, access, before))

    def _check_writers(self, cells: Cells, box: Box, access: Access, known: Clock) -> None:
        for index in self._unknown(cells, box, access, known):
            raise ScheduleError(
                "race", f"race on {cells}: {access} is not ordered with {self.writes[index]}"
            )

    def _unknown(self, cells: Cells, box: Box, access: Access, known: Clock) -> list[int]:
        """The last writes of the elements, and sums beside them, that are not known."""
        pending = _distinct(cells.writer[box.memory])
        seen = set(pending)
        found: list[int] = []
        while pending:
            index = pending.pop()
            earlier = [other for other in self.sums.get(index, ()) if other not in seen]
            pending.extend(earlier)
            seen.update(earlier)
            other = self.writes[index]
            if other.thread is not access.thread and not known.knows(other.thread, other.time):
                found.append(index)
        return found

    def check_sum(
        self, cells: Cells, boxes: Sequence[Box], access: Access, known: Clock
    ) -> tuple[int, ...]:
        """Somebody has written the elements that a write adds to, and reads of them are known;
        other sums need not be where their order makes no difference, for integers. Returns those
        that are not."""
        others: set[int] = set()
        for box in boxes:
            if cells.overwritten is not None or not cells.written[box.memory].all():
                raise ScheduleError(
                    "unwritten", f"{access} adds to {cells}, which nobody has written"
                )
            for index in self._unknown(cells, box, access, known):
                other = self.writes[index]
                if index not in self.sums:
                    raise ScheduleError(
                        "race", f"race on {cells}: {access} is not ordered with {other}"
                    )
                if cells.element not in EXACT:
                    raise ScheduleError(
                        "race",
                        f"race on {cells}: {access} and {other} add to the same floats in no "
                        "order, and their sum depends on it",
                    )
                others.add(index)
            self._check_readers(cells, box, access, known)
            cells.reader[box.memory] = -1
        return tuple(sorted(others))

    def _check_readers(self, cells: Cells, box: Box, access: Access, known: Clock) -> None:
        pending = _distinct(cells.reader[box.memory])
        seen = set(pending)
        while pending:
            read = self.reads[pending.pop()]
            earlier = [index for index in read.before if index not in seen]
            pending.extend(earlier)
            seen.update(earlier)
            other = read.access
            if other.thread is access.thread or known.knows(other.thread, other.time):
                continue
            if _intersect(box, read.box):
                raise ScheduleError(
                    "race", f"race on {cells}: {access} is not ordered with {other}"
                )

    def check_write(self, cells: Cells, boxes: Sequence[Box], access: Access, known: Clock) -> None:
        """Earlier reads and writes of the elements, and of everything that the buffer overlaps,
        are known to the writer."""
        for box in boxes:
            self._check_writers(cells, box, access, known)
            self._check_readers(cells, box, access, known)
            # Whoever conflicts with these reads conflicts with this write, too.
            cells.reader[box.memory] = -1
        if not boxes:
            return
        for name in self.overlaps.get(cells.name, ()):
            other = self.cells[cells.device, name]
            if other.overwritten is None:
                whole = Box(tuple(slice(0, n) for n in other.values.shape), (), ())
                self._check_writers(other, whole, access, known)
                self._check_readers(other, whole, access, known)
                other.overwritten = cells.name
                other.written[...] = False
                other.writer[...] = -1
                other.reader[...] = -1
        cells.overwritten = None

    def record_write(
        self, cells: Cells, boxes: Sequence[Box], access: Access, before: tuple[int, ...] | None
    ) -> None:
        """Notes the write; the caller has changed the values. ``before`` are the sums that one
        which adds does not know of, None for other writes."""
        if before is not None:
            self.sums[len(self.writes)] = before
        self.writes.append(access)
        for box in boxes:
            cells.written[box.memory] = True
            cells.writer[box.memory] = len(self.writes) - 1
