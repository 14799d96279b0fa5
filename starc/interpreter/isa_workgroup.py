"""One workgroup of the concurrent interpreter: its stream, its tiles and what it has in flight."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from starc.backend.functions import OPERAND_FIELDS
from starc.backend.numerics import (
    Array,
    Region,
    clip_held,
    gather_rows,
    read_region,
    write_region,
)
from starc.interpreter.isa_streams import (
    Branch,
    Delay,
    Instruction,
    Kernel,
    Loop,
    Matrix,
    Memory,
    Signal,
    Vector,
    Wait,
)
from starc.interpreter.shared_memory import (
    UNORDERED,
    Access,
    Cells,
    Clock,
    ScheduleError,
    Thread,
)

if TYPE_CHECKING:
    from starc.interpreter.concurrent import ConcurrentMachine, CounterElement

Slot = tuple[int, int]
"""A tile and one of its slots."""


@dataclass(eq=False)
class _Load:
    """A read in flight. Its data may be fetched at any time until its tile is needed."""

    slot: Slot
    cells: Cells
    region: Region
    access: Access
    known: Clock
    rows: Array | None
    column: int


@dataclass(eq=False)
class _Write:
    """A store or put that has been issued and is not performed yet."""

    cells: Cells
    region: Region
    values: Array
    access: Access
    known: Clock
    adds: bool


@dataclass(eq=False)
class _Sent:
    """A signal that waits for the writes before it."""

    device: int
    counter: str
    element: int
    value: int
    clock: Clock
    text: str


@dataclass(eq=False)
class _Contents:
    """A slot's data and the iteration that it belongs to."""

    iteration: tuple[int, ...]
    values: Array
    load: Access | None


class Workgroup:
    """Executes one stream of a kernel, an instruction at a ``step``."""

    def __init__(
        self,
        machine: ConcurrentMachine,
        kernel: Kernel,
        thread: Thread,
        index: int,
        clock: Clock,
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
        self.tiles: dict[Slot, _Contents] = {}
        self.loads: list[_Load] = []
        self.unneeded: list[tuple[Slot, Access]] = []
        self.outbox: list[_Write | _Sent] = []
        self.wait: Wait | None = None
        self.counter: CounterElement | None = None
        self.element = self.awaited = 0
        self.ended = False
        self.overlaps = _tile_overlaps(kernel)
        self.stream = self._run(kernel.body)

    # Scheduling

    @property
    def pending(self) -> bool:
        """Whether something is in flight."""
        return bool(self.loads or self.outbox)

    def blocked(self) -> bool:
        """Whether the stream is at its end or at a wait that is not satisfied."""
        if self.ended:
            return True
        return self.counter is not None and self.counter.value < self.awaited

    def step(self) -> bool:
        """Executes one instruction; false at the end of the stream."""
        if self.counter is not None:
            self.clock = self.clock.joined(self.counter.known_at(self.awaited))
            self.counter = self.wait = None
        if next(self.stream, None) is None:
            self.ended = True
            return False
        return True

    def _reach_wait(self, wait: Wait) -> None:
        self.wait = wait
        self.element = wait.element(self.values)
        self.awaited = wait.value(self.values)
        self.counter = self.machine.counter(self.device, wait.counter, self.element, wait.text)

    def wait_text(self) -> str:
        """What the workgroup waits for."""
        assert self.wait is not None
        assert self.counter is not None
        return (
            f"{self.thread} waits for @{self.wait.counter}[{self.element}] to reach "
            f"{self.awaited} (it is at {self.counter.value})"
        )

    def may_signal(self, counter: str) -> bool:
        """Whether the kernel has a signal to a counter."""

        def inside(body: Sequence[Instruction]) -> bool:
            return any(
                (isinstance(i, Signal) and i.counter == counter)
                or (isinstance(i, Loop | Branch) and inside(i.body))
                for i in body
            )

        return inside(self.kernel.body)

    def deliver(self, random: Random) -> bool:
        """Performs one thing in flight, any that its order allows; whether it was a signal."""
        choices: list[_Load | _Write | _Sent] = list(self.loads)
        for position, item in enumerate(self.outbox):
            # A signal follows all writes before it; writes after it may overtake it.
            if isinstance(item, _Write) or position == 0:
                choices.append(item)
        item = random.choice(choices)
        if isinstance(item, _Load):
            self._fetch(item)
        else:
            self._perform(item)
        return isinstance(item, _Sent)

    def final_clock(self) -> Clock:
        """What is known when the workgroup has ended; all its reads are over."""
        for _, access in self.unneeded:
            access.time = min(access.time, self.time)
        return self.clock

    # The stream

    def _run(self, body: Sequence[Instruction]) -> Generator[bool, None, None]:
        for instruction in body:
            match instruction:
                case Loop():
                    yield from self._loop(instruction)
                case Branch():
                    if instruction.condition(self.values) >= 0:
                        yield from self._run(instruction.body)
                case Wait():
                    self._reach_wait(instruction)
                    yield True
                case _:
                    self._execute(instruction)
                    yield True

    def _loop(self, loop: Loop) -> Generator[bool, None, None]:
        lower, upper = loop.lower(self.values), loop.upper(self.values)
        stages = max((inner.stage for inner in loop.body), default=0)
        self.counters.append(loop.variable)
        self.lowers.append(lower)
        for trip in range(lower, upper + stages if upper > lower else lower):
            for inner in loop.body:
                iteration = trip - inner.stage
                if lower <= iteration < upper:
                    self.values[loop.variable] = iteration
                    yield from self._run((inner,))
        self.counters.pop()
        self.lowers.pop()

    def _execute(self, instruction: Memory | Matrix | Vector | Signal | Delay) -> None:
        match instruction:
            case Memory():
                if instruction.reads:
                    self._issue_load(instruction)
                else:
                    self._issue_write(instruction)
            case Matrix():
                text = instruction.text
                accumulator, a, b = (
                    self._read(tile, text)
                    for tile in (instruction.accumulator, instruction.a, instruction.b)
                )
                result = self.numerics.multiply_add(
                    accumulator, a, b, transposed=instruction.transposed
                )
                self._write(instruction.accumulator, result)
            case Vector():
                self._vector(instruction)
            case Signal():
                self._signal(instruction)
            case Delay():
                pass

    def _vector(self, instruction: Vector) -> None:
        operands: dict[str, Array] = {}
        real = np.float64 if self.numerics.mode == "exact" else np.float32
        for key in OPERAND_FIELDS[: len(instruction.tiles)]:
            tile = instruction.tiles[key]
            if key in instruction.function.reads:
                operands[key] = self.numerics.compute(self._read(tile, instruction.text))
            else:
                operands[key] = np.empty(self.kernel.tiles[tile].shape, real)
        parameters = instruction.function.decode(
            [evaluate(self.values) for evaluate in instruction.parameters]
        )
        for key, values in instruction.function.meaning(operands, parameters).items():
            self._write(instruction.tiles[key], values)

    def _peer(self, peer: int, text: str) -> int:
        if not 0 <= peer < self.machine.devices:
            raise ScheduleError("bounds", f"{text} of {self.thread}: there is no device {peer}")
        return peer

    def _signal(self, instruction: Signal) -> None:
        device = self.device
        if instruction.peer is not None:
            device = self._peer(instruction.peer(self.values), instruction.text)
        element = instruction.element(self.values)
        self.machine.counter(device, instruction.counter, element, instruction.text)
        value = instruction.value(self.values)
        # What the signal tells: everything of this workgroup up to here.
        self.outbox.append(
            _Sent(device, instruction.counter, element, value, self.clock, instruction.text)
        )
        self.time += 1
        self.clock = self.clock.at(self.thread, self.time)

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
        for load in [load for load in self.loads if load.slot == slot]:
            self._fetch(load)
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
        if contents.load is not None:
            # The data has arrived: from here on the read is over.
            contents.load.time = min(contents.load.time, self.time)
            contents.load = None
        return contents.values

    def _write(self, tile: int, values: Array, load: Access | None = None) -> None:
        slot = self._slot(tile)
        self._clear(slot)
        element = self.kernel.tiles[tile].element
        stored = self.numerics.store(values, element)
        self.tiles[slot] = _Contents(self._iteration(tile), stored, load)

    def _clear(self, slot: Slot) -> None:
        """Forgets what a slot, and what lies at the same scratch bytes, holds."""
        for other in (slot, *self.overlaps.get(slot, ())):
            for load in [load for load in self.loads if load.slot == other]:
                self._fetch(load)
            contents = self.tiles.pop(other, None)
            if contents is not None and contents.load is not None:
                # Overwriting a tile waits for the load that filled it.
                contents.load.time = min(contents.load.time, self.time)

    # Memory

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
        access = Access(self.thread, UNORDERED, instruction.text)
        self.unneeded.append((slot, access))
        self.loads.append(_Load(slot, cells, region, access, self.clock, rows, starts[-1]))
        # The slot belongs to this iteration from now on, its data comes later.
        self.tiles[slot] = _Contents(self._iteration(instruction.tile), np.zeros((0, 0)), access)

    def _fetch(self, load: _Load) -> None:
        # Own writes of the buffer, all issued before the load, are performed before it.
        for item in self.outbox[:]:
            if isinstance(item, _Write) and item.cells is load.cells:
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

    def _issue_write(self, instruction: Memory) -> None:
        cells = self._cells(instruction)
        values = self._read(instruction.tile, instruction.text)
        starts = [evaluate(self.values) for evaluate in instruction.starts]
        region = clip_held(starts, instruction.extents, cells.held)
        # Own loads of the buffer issued before are fetched before.
        for load in [load for load in self.loads if load.cells is cells]:
            self._fetch(load)
        access = Access(self.thread, self.time, instruction.text)
        write = _Write(cells, region, values, access, self.clock, instruction.adds)
        self.outbox.append(write)

    def _perform(self, item: _Write | _Sent) -> None:
        if isinstance(item, _Sent):
            self.outbox.remove(item)
            counter = self.machine.counter(item.device, item.counter, item.element, item.text)
            counter.add(item.value, item.clock)
            return
        # Writes of one workgroup to one buffer keep their order.
        for other in self.outbox[:]:
            if other is item:
                break
            if isinstance(other, _Write) and other.cells is item.cells:
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
