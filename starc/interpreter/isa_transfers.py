"""What one stream of a workgroup has in flight: the tiles that it touches, loads and writes of
memory, and releases that wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from starc.backend.numerics import (
    Array,
    clip_held,
    gather_rows,
    read_region,
    write_region,
)
from starc.interpreter.isa_flight import Load, Released, Sent, Write
from starc.interpreter.isa_streams import (
    Kernel,
    Memory,
    Release,
)
from starc.interpreter.isa_tiles import Contents, SharedTiles, Slot, Use
from starc.interpreter.shared_memory import (
    UNORDERED,
    Access,
    Cells,
    Clock,
    ScheduleError,
    Thread,
)

if TYPE_CHECKING:
    from starc.interpreter.concurrent import ConcurrentMachine


class Transfers:
    """The state of a stream and the transfers that it has issued; ``time`` counts its instructions,
    ``clock`` is what it knows of others."""

    def __init__(
        self,
        machine: ConcurrentMachine,
        kernel: Kernel,
        thread: Thread,
        index: int,
        clock: Clock,
        shared: SharedTiles,
    ) -> None:
        self.machine = machine
        self.numerics = machine.numerics
        self.kernel = kernel
        self.thread = thread
        self.device = thread.lane[0]
        self.time = 0
        self.clock = clock.at(thread, 0)
        coordinates = [*machine.coordinates(self.device), index]
        self.values = coordinates + [0] * (kernel.variables - len(coordinates))
        self.counters: list[int] = []
        self.lowers: list[int] = []
        self.shared = shared
        self.tiles = shared.tiles
        self.loads: list[Load] = []
        self.unneeded: list[tuple[Thread, int, Access]] = []
        self.outbox: list[Write | Sent] = []
        self.released: list[Released] = []
        self.transfers: dict[Slot, Thread] = {}
        self.transferred: dict[Thread, int] = {}

    # Semaphores

    def final_clock(self) -> Clock:
        """What is known when the workgroup has ended; all its reads are over."""
        for _, _, access in self.unneeded:
            access.time = min(access.time, self.time)
        return self.clock

    def _release(self, instruction: Release) -> None:
        if instruction.tile is None:
            # What the stream has issued is complete before it goes on.
            while self.loads:
                self._fetch(self.loads[0])
            while self.outbox:
                self._perform(self.outbox[0])
            self._learn(Clock(self.clock.ended, dict(self.transferred)))
            loads: list[Load] = []
            clock = self.clock
        else:
            slot = self._slot(instruction.tile)
            loads = [load for load in self.loads if load.slot == slot]
            clock = self.clock
            if slot in self.transfers:
                thread = self.transfers[slot]
                clock = clock.at(thread, self.transferred[thread])
        self.released.append(Released(instruction.semaphore, loads, clock))
        self.time += 1
        self.clock = self.clock.at(self.thread, self.time)
        self._drain()

    def _drain(self) -> None:
        """Performs releases whose loads have arrived, those of a semaphore in order."""
        held: set[int] = set()
        for item in self.released[:]:
            if item.loads:
                held.add(item.semaphore)
            elif item.semaphore not in held:
                self.released.remove(item)
                self.shared.semaphores[item.semaphore].append(item.clock)

    def _learn(self, clock: Clock) -> None:
        """Takes what an acquired semaphore tells, also of this stream's own transfers."""
        self.clock = self.clock.joined(clock)
        unneeded: list[tuple[Thread, int, Access]] = []
        for thread, time, access in self.unneeded:
            if self.clock.knows(thread, time):
                access.time = min(access.time, self.time)
            else:
                unneeded.append((thread, time, access))
        self.unneeded = unneeded

    def _transfer(self, slot: Slot, text: str) -> Use:
        """A write of a slot by a load of this stream, which arrives by itself."""
        name = f"{self.thread.name}, loads of {self.shared.name(slot)}"
        thread = self.transfers.get(slot)
        if thread is None:
            thread = Thread(self.thread.lane, self.thread.launch, self.thread.workgroup, name)
            self.transfers[slot] = thread
        self.transferred[thread] = self.transferred.get(thread, -1) + 1
        return Use(self.thread, thread, self.transferred[thread], text)

    # Tiles

    def _iteration(self, tile: int) -> tuple[int, ...]:
        depth = self.kernel.tiles[tile].depth
        return tuple(self.values[variable] for variable in self.counters[:depth])

    def _slot(self, tile: int) -> Slot:
        info = self.kernel.tiles[tile]
        if not info.depth:
            return tile, 0
        counter = self.values[self.counters[info.depth - 1]]
        return tile, (counter - self.lowers[info.depth - 1]) % info.slots

    def _read(self, tile: int, text: str) -> Array:
        slot, info = self._slot(tile), self.kernel.tiles[tile]
        self.shared.check_read(slot, Use(self.thread, self.thread, self.time, text), self.clock)
        self._await(slot)
        contents = self.tiles.get(slot)
        if contents is None:
            raise ScheduleError(
                "unwritten", f"{text} of {self.thread} reads {info.name}, which nobody has written"
            )
        iteration = self._iteration(tile)
        if contents.iteration != iteration:
            raise ScheduleError(
                "stale",
                f"{text} of {self.thread} reads {info.name} for iteration {list(iteration)}, but "
                f"its slot holds iteration {list(contents.iteration)}",
            )
        self._over(contents)
        return contents.values

    def _await(self, slot: Slot) -> None:
        """The stream waits for its own loads into a slot that it touches."""
        for load in [load for load in self.loads if load.slot == slot]:
            self._fetch(load)
        if slot in self.transfers:
            thread = self.transfers[slot]
            self.clock = self.clock.at(thread, self.transferred[thread])

    def _over(self, contents: Contents) -> None:
        """The data has arrived: for this stream, if it loaded it, the read is over from here on."""
        if contents.load is not None and contents.load.thread is self.thread:
            contents.load.time = min(contents.load.time, self.time)
            contents.load = None

    def _write(self, tile: int, values: Array, text: str) -> None:
        slot = self._slot(tile)
        self._clear(slot)
        self.shared.check_write(slot, Use(self.thread, self.thread, self.time, text), self.clock)
        element = self.kernel.tiles[tile].element
        stored = self.numerics.store(values, element)
        self.tiles[slot] = Contents(self._iteration(tile), stored, None)

    def _clear(self, slot: Slot) -> None:
        """Forgets what a slot, and what lies at the same scratch bytes, holds."""
        for other in self.shared.together(slot):
            self._await(other)
            contents = self.tiles.pop(other, None)
            if contents is not None:
                # Overwriting a tile waits for the load that filled it.
                self._over(contents)

    # Memory

    def _peer(self, peer: int, text: str) -> int:
        if not 0 <= peer < self.machine.devices:
            raise ScheduleError("bounds", f"{text} of {self.thread}: there is no device {peer}")
        return peer

    def _cells(self, instruction: Memory) -> Cells:
        device = self.device
        if instruction.peer is not None:
            device = self._peer(instruction.peer(self.values), instruction.text)
        cells = self.machine.memory.cells[device, instruction.buffer]
        if device != self.device and not cells.symmetric:
            raise ScheduleError(
                "private",
                f"{instruction.text} of {self.thread} accesses @{cells.name} of another device, "
                "which is private",
            )
        return cells

    def _issue_load(self, instruction: Memory) -> None:
        cells = self._cells(instruction)
        starts = [evaluate(self.values) for evaluate in instruction.starts]
        rows: Array | None = None
        if instruction.rows is not None and instruction.base is not None:
            indices = self._read(instruction.rows, instruction.text).ravel().astype(np.int64)
            rows = indices - instruction.base(self.values)
            extents = (cells.values.shape[0], instruction.extents[1])
            region = clip_held((0, starts[1]), extents, cells.held)
        else:
            region = clip_held(starts, instruction.extents, cells.held)
        slot = self._slot(instruction.tile)
        self._clear(slot)
        use = self._transfer(slot, instruction.text)
        self.shared.check_write(slot, use, self.clock)
        access = Access(self.thread, UNORDERED, instruction.text)
        self.unneeded.append((use.thread, use.time, access))
        self.loads.append(Load(slot, cells, region, access, self.clock, rows, starts[-1]))
        # The slot belongs to this iteration from now on, its data comes later.
        self.tiles[slot] = Contents(self._iteration(instruction.tile), np.zeros((0, 0)), access)

    def _fetch(self, load: Load) -> None:
        # Own writes of the buffer, all issued before the load, are performed before it.
        for item in self.outbox[:]:
            if isinstance(item, Write) and item.cells is load.cells:
                self._perform(item)
        self.loads.remove(load)
        memory = self.machine.memory
        info = self.kernel.tiles[load.slot[0]]
        cells = load.cells
        memory.read(cells, load.region.boxes, load.access, load.known)
        if load.rows is not None:
            values = gather_rows(cells.values, cells.held, load.rows, load.column, info.shape)
        else:
            values = read_region(cells.values, load.region, info.shape)
        contents = self.tiles[load.slot]
        contents.values = self.numerics.store(values, info.element)
        for item in self.released:
            item.loads = [other for other in item.loads if other is not load]
        self._drain()

    def _issue_write(self, instruction: Memory) -> None:
        cells = self._cells(instruction)
        values = self._read(instruction.tile, instruction.text)
        starts = [evaluate(self.values) for evaluate in instruction.starts]
        region = clip_held(starts, instruction.extents, cells.held)
        # Own loads of the buffer issued before are fetched before.
        for load in [load for load in self.loads if load.cells is cells]:
            self._fetch(load)
        access = Access(self.thread, self.time, instruction.text)
        write = Write(cells, region, values, access, self.clock, instruction.adds)
        self.outbox.append(write)

    def _perform(self, item: Write | Sent) -> None:
        if isinstance(item, Sent):
            self.outbox.remove(item)
            counter = self.machine.counter(item.device, item.counter, item.element, item.text)
            counter.add(item.value, item.clock)
            return
        # Writes of one workgroup to one buffer keep their order.
        for other in self.outbox[:]:
            if other is item:
                break
            if isinstance(other, Write) and other.cells is item.cells:
                self._perform(other)
        self.outbox = [other for other in self.outbox if other is not item]
        memory, cells = self.machine.memory, item.cells
        boxes, values = item.region.boxes, item.values
        before: tuple[int, ...] | None = None
        if item.adds:
            before = memory.check_sum(cells, boxes, item.access, item.known)
            there = read_region(cells.values, item.region, values.shape)
            values = self.numerics.compute(there) + self.numerics.compute(values)
        else:
            memory.check_write(cells, boxes, item.access, item.known)
        write_region(cells.values, item.region, self.numerics.store(values, cells.element))
        memory.record_write(cells, boxes, item.access, before)
