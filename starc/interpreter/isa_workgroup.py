"""One stream of a workgroup in the concurrent interpreter: where it is and what it does."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from starc.backend.numerics import (
    Array,
)
from starc.core.vector_functions.function import OPERAND_FIELDS
from starc.interpreter.isa_flight import Load, Sent, Write
from starc.interpreter.isa_streams import (
    Acquire,
    Branch,
    Delay,
    Instruction,
    Kernel,
    Loop,
    Matrix,
    Memory,
    Release,
    Signal,
    Vector,
    Wait,
)
from starc.interpreter.isa_tiles import SharedTiles
from starc.interpreter.isa_transfers import Transfers
from starc.interpreter.shared_memory import (
    Clock,
    ScheduleError,
    Thread,
)

if TYPE_CHECKING:
    from starc.interpreter.concurrent import ConcurrentMachine, CounterElement


class Workgroup(Transfers):
    """Executes one stream of a workgroup of a kernel, an instruction at a ``step``. What the
    streams of one workgroup have in common is ``shared``."""

    def __init__(
        self,
        machine: ConcurrentMachine,
        kernel: Kernel,
        body: Sequence[Instruction],
        thread: Thread,
        index: int,
        clock: Clock,
        shared: SharedTiles,
    ) -> None:
        super().__init__(machine, kernel, thread, index, clock, shared)
        self.wait: Wait | Acquire | None = None
        self.counter: CounterElement | None = None
        self.element = self.awaited = 0
        self.ended = False
        self.body = body
        self.stream = self._run(body)

    # Scheduling

    @property
    def pending(self) -> bool:
        """Whether something is in flight."""
        return bool(self.loads or self.outbox)

    def blocked(self) -> bool:
        """Whether the stream is at its end or at a wait that is not satisfied."""
        if self.ended:
            return True
        if isinstance(self.wait, Acquire):
            return not self.shared.semaphores[self.wait.semaphore]
        return self.counter is not None and self.counter.value < self.awaited

    def step(self) -> bool:
        """Executes one instruction; false at the end of the stream."""
        if self.counter is not None:
            self.clock = self.clock.joined(self.counter.known_at(self.awaited))
        if isinstance(self.wait, Acquire):
            self._learn(self.shared.semaphores[self.wait.semaphore].popleft())
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
        """What the stream waits for."""
        assert self.wait is not None
        if isinstance(self.wait, Acquire):
            name, _ = self.kernel.semaphores[self.wait.semaphore]
            return f"{self.thread} waits for a release of {name}"
        assert self.counter is not None
        return (
            f"{self.thread} waits for @{self.wait.counter}[{self.element}] to reach "
            f"{self.awaited} (it is at {self.counter.value})"
        )

    def may_help(self, other: Workgroup) -> bool:
        """Whether this stream has an instruction of the kind that another waits for."""
        wait = other.wait

        def helps(instruction: Instruction) -> bool:
            match instruction:
                case Loop() | Branch():
                    return any(helps(inner) for inner in instruction.body)
                case Signal():
                    return isinstance(wait, Wait) and wait.counter == instruction.counter
                case Release():
                    return (
                        isinstance(wait, Acquire)
                        and self.shared is other.shared
                        and wait.semaphore == instruction.semaphore
                    )
                case _:
                    return False

        return any(helps(instruction) for instruction in self.body)

    def deliver(self, random: Random) -> bool:
        """Performs one thing in flight, any that its order allows; whether it was a signal."""
        choices: list[Load | Write | Sent] = list(self.loads)
        for position, item in enumerate(self.outbox):
            # A signal follows all writes before it; writes after it may overtake it.
            if isinstance(item, Write) or position == 0:
                choices.append(item)
        item = random.choice(choices)
        if isinstance(item, Load):
            self._fetch(item)
        else:
            self._perform(item)
        return isinstance(item, Sent)

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
                case Acquire():
                    self.wait = instruction
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

    def _execute(self, instruction: Memory | Matrix | Vector | Signal | Release | Delay) -> None:
        match instruction:
            case Memory():
                if instruction.reads:
                    self._issue_load(instruction)
                else:
                    self._issue_write(instruction)
            case Matrix():
                self._matrix(instruction)
            case Vector():
                self._vector(instruction)
            case Signal():
                self._signal(instruction)
            case Release():
                self._release(instruction)
            case Delay():
                pass

    def _matrix(self, instruction: Matrix) -> None:
        text = instruction.text
        accumulator, a, b = (
            self._read(tile, text)
            for tile in (instruction.accumulator, instruction.a, instruction.b)
        )
        columns, inner = (
            None if window is None else window(self.values)
            for window in (instruction.columns, instruction.inner)
        )
        try:
            result = self.numerics.multiply_add(
                accumulator,
                a,
                b,
                transposed=instruction.transposed,
                columns=columns,
                inner=inner,
            )
        except IndexError as error:
            raise ScheduleError("bounds", f"{text} of {self.thread}: {error}") from error
        self._write(instruction.accumulator, result, text)

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
            self._write(instruction.tiles[key], values, instruction.text)

    def _signal(self, instruction: Signal) -> None:
        device = self.device
        if instruction.peer is not None:
            device = self._peer(instruction.peer(self.values), instruction.text)
        element = instruction.element(self.values)
        self.machine.counter(device, instruction.counter, element, instruction.text)
        value = instruction.value(self.values)
        # What the signal tells: everything of this workgroup up to here.
        self.outbox.append(
            Sent(device, instruction.counter, element, value, self.clock, instruction.text)
        )
        self.time += 1
        self.clock = self.clock.at(self.thread, self.time)
