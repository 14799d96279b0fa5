"""Does every access of scratch bytes come in its turn? Streams of one workgroup, joined by
semaphores.

A template's streams are expanded for one device (``starc.core.streams.stream_template``: which
devices differ, and how many trips of a loop stand for all) and executed with vector clocks. A
clock says what is known to be complete: of each stream so many instructions, of each tile slot so
many loads and stores, which end some time after the stream has begun them.
The k-th acquire of a semaphore that starts at n joins the clock of its (k - n)-th release: releases
of a semaphore take effect in the order of their stream. A stream waits by itself only for loads of
its own into the slot that it touches, and for its stores of a slot that it writes.

Two accesses of the same bytes of which one writes must be ordered, and a read must find what its
own tile was given in its own turn. What reads memory that other devices write comes behind a wait.
Whether streams come to an end, and which accesses are ordered,
does not depend on how fast any of them is, so one execution decides. Waits for other devices count
as satisfied here: ``starc.core.streams.happens_before`` checks them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from starc.core.streams.stream_balance import Problem, joined_wrongly, unbalanced
from starc.core.streams.stream_template import (
    Acquire,
    Branch,
    Instruction,
    Integers,
    Loop,
    Node,
    Release,
    Signal,
    StreamTemplate,
    Use,
    Wait,
    Window,
    loop_key,
    nodes,
    whole_loops,
    window,
)

MAX_STEPS: Final = 200_000  # instructions that are executed of a template on one device


class TooLong(ValueError):
    """The streams have more instructions than ``MAX_STEPS``."""


def check(template: StreamTemplate, coordinates: Mapping[str, int]) -> list[Problem]:
    """The problems of a template on one device; none if every access comes in its turn. Raises
    ``TooLong`` where the streams are too long to execute."""
    found = joined_wrongly(template) or unbalanced(template, coordinates)
    if found:
        return found
    problems = execute(template, coordinates, _window(template))
    if not problems:
        return []
    try:
        # A shorter loop may break what pairs loops of different lengths: the whole one decides.
        return execute(template, coordinates, None)
    except TooLong:
        return problems


def _window(template: StreamTemplate) -> Window:
    return window(template.streams, template.semaphores, template.tiles)


def execute(
    template: StreamTemplate, coordinates: Mapping[str, int], short: Window | None
) -> list[Problem]:
    """The problems that an execution finds, with all trips or with those of a window."""
    return _Execution(template, coordinates, short).run()


@dataclass(frozen=True)
class _Step:
    """An instruction in one trip of its loops: the values of their counters, and how many trips
    each has behind it."""

    node: Instruction
    iteration: tuple[int, ...]
    turns: tuple[int, ...]


@dataclass
class _Access:
    """An access that is complete when the clock's ``component`` has reached ``time``."""

    component: int
    time: int
    stream: int
    step: _Step


@dataclass
class _Slot:
    """A slot of a tile: who wrote it last, who has read that, and who took its bytes since."""

    write: _Access | None = None
    reads: dict[int, _Access] = field(default_factory=dict[int, _Access])
    taken: tuple[int, _Access] | None = None


@dataclass
class _Stream:
    engine: str
    steps: Iterator[_Step]
    next: _Step | None
    clock: Integers
    arriving: dict[int, Integers] = field(default_factory=dict[int, Integers])
    leaving: dict[int, Integers] = field(default_factory=dict[int, Integers])


class _Execution:
    """The streams of a template on one device, until all have ended or none can go on."""

    def __init__(
        self, template: StreamTemplate, coordinates: Mapping[str, int], short: Window | None
    ) -> None:
        self.template = template
        self.short = short
        self.whole = whole_loops(template.streams)
        self.steps = 0
        self.waits = any(isinstance(n, Wait) for _, body in template.streams for n in nodes(body))
        self.waited: dict[int, int] = {}  # by stream, when its first wait was complete
        self.problems: list[Problem] = []
        self.known: set[tuple[object, ...]] = set()
        self.first = [0]  # of each tile, its first slot among all slots
        for tile in template.tiles:
            self.first.append(self.first[-1] + tile.slots)
        self.slots = [_Slot() for _ in range(self.first[-1])]
        self.beside = self._beside()
        # Components of a clock: the streams, then the loads of each slot, then its stores.
        self.width = len(template.streams) + 2 * len(self.slots)
        self.times = [0] * self.width
        self.releases: list[list[Integers]] = [[] for _ in template.semaphores]
        self.acquired = [0] * len(template.semaphores)
        self.streams: list[_Stream] = []
        for engine, body in template.streams:
            steps = self._walk(body, dict(coordinates), (), ())
            clock = np.zeros(self.width, np.int64)
            self.streams.append(_Stream(engine, steps, next(steps, None), clock))

    def _beside(self) -> list[list[tuple[int, int]]]:
        """For each slot the (tile, slot) of others that lie on some of its bytes."""
        spans = [
            (tile, self.first[tile] + slot, *info.span(slot))
            for tile, info in enumerate(self.template.tiles)
            if info.offset is not None
            for slot in range(info.slots)
        ]
        found: list[list[tuple[int, int]]] = [[] for _ in self.slots]
        for _, slot, first, end in spans:
            found[slot] += [
                (other, other_slot)
                for other, other_slot, other_first, other_end in spans
                if slot != other_slot and first < other_end and other_first < end
            ]
        return found

    # Expansion

    def _walk(
        self,
        body: Sequence[Node],
        environment: dict[str, int],
        iteration: tuple[int, ...],
        turns: tuple[int, ...],
    ) -> Iterator[_Step]:
        for node in body:
            match node:
                case Branch():
                    if node.condition.evaluate(environment) >= 0:
                        yield from self._walk(node.body, environment, iteration, turns)
                case Loop():
                    yield from self._loop(node, environment, iteration, turns)
                case Signal():
                    pass
                case _:
                    yield _Step(node, iteration, turns)

    def _loop(
        self,
        loop: Loop,
        environment: dict[str, int],
        iteration: tuple[int, ...],
        turns: tuple[int, ...],
    ) -> Iterator[_Step]:
        lower = int(loop.lower.evaluate(environment))
        all_trips = max(int(loop.upper.evaluate(environment)) - lower, 0)
        if not all_trips:
            return
        short = None if loop_key(loop) in self.whole else self.short
        trips = all_trips if short is None else short.trips(all_trips)
        stages = max((node.stage for node in loop.body), default=0)
        for trip in range(trips + stages):
            # Without stages a trip is the whole body, else its instructions work for several.
            for part in [(node,) for node in loop.body] if stages else [loop.body]:
                index = trip - (part[0].stage if stages else 0)
                if 0 <= index < trips:
                    turn = index if short is None else short.trip(all_trips, index)
                    inner = {**environment, loop.variable: lower + turn}
                    yield from self._walk(part, inner, (*iteration, lower + turn), (*turns, turn))

    # Execution

    def run(self) -> list[Problem]:
        moved = True
        while moved:
            moved = False
            for index, stream in enumerate(self.streams):
                while stream.next is not None and self._execute(index, stream, stream.next):
                    stream.next = next(stream.steps, None)
                    moved = True
                    self.steps += 1
                    if self.steps > MAX_STEPS:
                        raise TooLong(
                            f"the streams of {self.template.name} have more than {MAX_STEPS:,} "
                            "instructions on one device"
                        )
        if any(stream.next is not None for stream in self.streams):
            self._hang()
        return self.problems

    def _execute(self, index: int, stream: _Stream, step: _Step) -> bool:
        """Executes the next instruction of a stream; false where it has to wait."""
        node = step.node
        match node:
            case Acquire():
                number = self.acquired[node.semaphore]
                number -= self.template.semaphores[node.semaphore].initial
                done = self.releases[node.semaphore]
                if number >= len(done):
                    return False
                self.acquired[node.semaphore] += 1
                if number >= 0:
                    np.maximum(stream.clock, done[number], out=stream.clock)
            case Release():
                self._release(stream, step, node)
            case Use():
                self._use(index, stream, step, node)
            case Wait():
                self.times[index] += 1
                stream.clock[index] = self.times[index]
                self.waited.setdefault(index, self.times[index])
        return True

    def _release(self, stream: _Stream, step: _Step, node: Release) -> None:
        clock = stream.clock.copy()
        for under_way in (stream.arriving, stream.leaving):
            slots = under_way if node.tile is None else (self._slot(node.tile, step),)
            for slot in slots:
                if slot in under_way:
                    np.maximum(clock, under_way[slot], out=clock)
        if node.tile is None:  # the stream waits
            np.maximum(stream.clock, clock, out=stream.clock)
            stream.arriving.clear()
            stream.leaving.clear()
        done = self.releases[node.semaphore]
        if done:
            np.maximum(clock, done[-1], out=clock)
        done.append(clock)

    def _use(self, index: int, stream: _Stream, step: _Step, node: Use) -> None:
        touched = {tile: self._slot(tile, step) for tile in (*node.reads, *node.writes)}
        for slot in touched.values():  # a stream waits for its own loads and stores
            if slot in stream.arriving:
                np.maximum(stream.clock, stream.arriving.pop(slot), out=stream.clock)
        for tile in node.writes:
            if touched[tile] in stream.leaving:
                clock = stream.leaving.pop(touched[tile])
                np.maximum(stream.clock, clock, out=stream.clock)
        if node.received and self.waits:
            self._check_received(index, stream, step)
        for tile in node.reads:
            self._check_read(index, stream, step, tile, touched[tile])
        for tile in node.writes:
            self._check_write(index, stream, step, tile, touched[tile])
        self.times[index] += 1
        done = _Access(index, self.times[index], index, step)
        for tile in node.reads:
            slot, access = touched[tile], done
            if node.in_flight:
                component = len(self.streams) + len(self.slots) + slot
                access = self._begun(component, index, step, stream.clock, stream.leaving, slot)
            self.slots[slot].reads[access.component] = access
        for tile in node.writes:
            slot, access = touched[tile], done
            if node.in_flight:
                component = len(self.streams) + slot
                access = self._begun(component, index, step, stream.clock, stream.arriving, slot)
            self.slots[slot] = _Slot(access)
            for _, other in self.beside[slot]:
                self.slots[other].taken = (tile, access)
        stream.clock[index] = self.times[index]

    def _begun(
        self,
        component: int,
        index: int,
        step: _Step,
        clock: Integers,
        under_way: dict[int, Integers],
        slot: int,
    ) -> _Access:
        """A transfer of a slot that ends some time; ``under_way`` gets the clock at its end."""
        self.times[component] += 1
        end = clock.copy()
        end[component] = self.times[component]
        under_way[slot] = np.maximum(end, under_way[slot]) if slot in under_way else end
        return _Access(component, self.times[component], index, step)

    def _slot(self, tile: int, step: _Step) -> int:
        info = self.template.tiles[tile]
        turn = step.turns[info.turns - 1] % info.slots if info.turns else 0
        return self.first[tile] + turn

    # Checks

    def _check_received(self, index: int, stream: _Stream, step: _Step) -> None:
        if not any(stream.clock[waiting] >= time for waiting, time in self.waited.items()):
            text = (
                f"{self._text(index, step)} reads what other devices send and knows of no wait "
                "for it"
            )
            self._report("read-before-arrival", text, step, "received")

    def _check_read(self, index: int, stream: _Stream, step: _Step, tile: int, slot: int) -> None:
        info, state = self.template.tiles[tile], self.slots[slot]
        for other, beside in self.beside[slot]:
            access = self.slots[beside].write
            if access is not None and not self._is_before(access, stream):
                self._recycled(index, step, tile, other, access, "is still to write")
        if state.write is None:
            text = f"{self._text(index, step)} reads %{info.name} before anything has written it"
            self._report("read-before-arrival", text, step, tile)
            return
        written = state.write.step.iteration
        held, wanted = written[: info.turns], step.iteration[: info.turns]
        in_turn = self._is_before(state.write, stream) and held == wanted
        if in_turn and state.taken is None:
            return
        reader = self._text(index, step)
        writer = self._text(state.write.stream, state.write.step)
        if not in_turn:
            common = min(len(written), len(step.iteration))
            if written[:common] > step.iteration[:common]:
                text = f"{writer} overwrites %{info.name} before {reader} has read it"
                self._report("overwrite", text, state.write.step, tile)
            elif held == wanted:
                text = f"{reader} reads %{info.name} before {writer} has written it"
                self._report("read-before-arrival", text, step, tile)
            else:
                text = (
                    f"{reader} reads %{info.name}, whose slot still holds iteration {list(held)}, "
                    f"which {writer} has written"
                )
                self._report("read-before-arrival", text, step, tile)
        elif state.taken is not None:
            other, access = state.taken
            text = (
                f"{reader} reads %{info.name}, whose bytes have become those of "
                f"%{self.template.tiles[other].name}, which "
                f"{self._text(access.stream, access.step)} has written"
            )
            self._report("use-after-recycle", text, step, (tile, other))

    def _check_write(self, index: int, stream: _Stream, step: _Step, tile: int, slot: int) -> None:
        info, state = self.template.tiles[tile], self.slots[slot]
        if state.write is not None and not self._is_before(state.write, stream):
            other = self._text(state.write.stream, state.write.step)
            text = f"{self._text(index, step)} and {other} write %{info.name} in any order"
            self._report("unordered-writes", text, step, tile)
        for access in state.reads.values():
            if self._is_before(access, stream):
                continue
            reader, writer = self._text(access.stream, access.step), self._text(index, step)
            if self._is_meant(access, step, state):
                text = f"{reader} reads %{info.name} before {writer} has written it"
                self._report("read-before-arrival", text, access.step, tile)
            else:
                text = f"{writer} overwrites %{info.name} before {reader} has read it"
                self._report("overwrite", text, step, tile)
        for other, beside in self.beside[slot]:
            there = self.slots[beside]
            for access in there.reads.values():
                if not self._is_before(access, stream):
                    self._recycled(index, step, tile, other, access, "is still to read")
            if there.write is not None and not self._is_before(there.write, stream):
                self._recycled(index, step, tile, other, there.write, "is still to write")

    def _is_meant(self, read: _Access, writing: _Step, state: _Slot) -> bool:
        """Whether a read that is not ordered with a write should have seen what it writes: both
        are of one iteration, or the write of an earlier one, and the slot held nothing that its
        iteration had written before."""
        common = min(len(read.step.iteration), len(writing.iteration))
        mine, its = read.step.iteration[:common], writing.iteration[:common]
        if mine != its:
            return mine > its
        held = state.write
        return held is None or held.step.iteration[:common] < mine

    def _is_before(self, access: _Access, stream: _Stream) -> bool:
        """Whether an access is complete before the next instruction of a stream."""
        return bool(stream.clock[access.component] >= access.time)

    def _recycled(
        self, index: int, step: _Step, tile: int, other: int, access: _Access, what: str
    ) -> None:
        mine, its = self.template.tiles[tile], self.template.tiles[other]
        verb = "writes" if tile in _written(step.node) else "reads"
        text = (
            f"{self._text(index, step)} {verb} %{mine.name}, while "
            f"{self._text(access.stream, access.step)} {what} %{its.name}, which lies on the "
            "same bytes"
        )
        self._report("use-after-recycle", text, step, (tile, other))

    def _report(self, kind: str, message: str, step: _Step, about: object) -> None:
        key = (kind, id(step.node), about)
        if key not in self.known:
            self.known.add(key)
            self.problems.append(
                Problem(kind, f"{self.template.name}: {message}", step.node.origin)
            )

    def _text(self, index: int, step: _Step) -> str:
        node = step.node
        match node:
            case Use():
                text = node.text
            case Wait():
                text = f"wait for @{node.counter}"
            case Acquire():
                text = f"acquire of %{self.template.semaphores[node.semaphore].name}"
            case Release():
                text = f"release of %{self.template.semaphores[node.semaphore].name}"
        engine = self.streams[index].engine
        iteration = f" of iteration {list(step.iteration)}" if step.iteration else ""
        place = f" ({node.place})" if node.place else ""
        return f"{engine}'s {text}{iteration}{place}"

    def _hang(self) -> None:
        """Says who waits for whom, from the first stream that cannot go on."""
        stuck = {i: s.next for i, s in enumerate(self.streams) if s.next is not None}
        producers = {
            node.semaphore: index
            for index, (_, body) in enumerate(self.template.streams)
            for node in nodes(body)
            if isinstance(node, Release)
        }
        texts: list[str] = []
        seen: list[int] = []
        at: int | None = next(iter(stuck))
        origin = stuck[at].node.origin
        while at is not None and at in stuck and at not in seen:
            seen.append(at)
            node = stuck[at].node
            assert isinstance(node, Acquire)
            texts.append(f"{self._text(at, stuck[at])} waits")
            at = producers.get(node.semaphore)
            if at is None:
                texts.append("no stream releases it")
            elif at not in stuck:
                count = len(self.releases[node.semaphore])
                texts.append(f"{self.streams[at].engine} has ended and released it {count} times")
        if at in seen:
            texts.append("which closes the cycle")
        message = f"{self.template.name} hangs: {'; '.join(texts)}"
        self.problems.append(Problem("hang", message, origin))


def _written(node: Instruction) -> tuple[int, ...]:
    return node.writes if isinstance(node, Use) else ()
