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

from starc.core.streams.stream_accesses import Access, Accesses, Findings, Step
from starc.core.streams.stream_balance import Problem, joined_wrongly, unbalanced
from starc.core.streams.stream_template import (
    Acquire,
    Branch,
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
    problems = execute(template, coordinates, template.window)
    if not problems:
        return []
    try:
        # A shorter loop may break what pairs loops of different lengths: the whole one decides.
        return execute(template, coordinates, None)
    except TooLong:
        return problems


def execute(
    template: StreamTemplate, coordinates: Mapping[str, int], short: Window | None
) -> list[Problem]:
    """The problems that an execution finds, with all trips or with those of a window."""
    return _Execution(template, coordinates, short).run()


@dataclass
class _Stream:
    engine: str
    steps: Iterator[Step]
    next: Step | None
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
        self.whole = template.whole_loops
        self.steps = 0
        self.waited: dict[int, int] = {}  # by stream, when its first wait was complete
        self.findings = Findings(template)
        self.text, self.report = self.findings.text, self.findings.report
        self.accesses = Accesses(template, self.findings)
        self.slots = len(self.accesses.slots)
        # Components of a clock: the streams, then the loads of each slot, then its stores.
        self.width = len(template.streams) + 2 * self.slots
        self.times = [0] * self.width
        self.releases: list[list[Integers]] = [[] for _ in template.semaphores]
        self.acquired = [0] * len(template.semaphores)
        self.streams: list[_Stream] = []
        for engine, body in template.streams:
            steps = self._walk(body, dict(coordinates), (), ())
            clock = np.zeros(self.width, np.int64)
            self.streams.append(_Stream(engine, steps, next(steps, None), clock))

    # Expansion

    def _walk(
        self,
        body: Sequence[Node],
        environment: dict[str, int],
        iteration: tuple[int, ...],
        turns: tuple[int, ...],
    ) -> Iterator[Step]:
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
                    yield Step(node, iteration, turns)

    def _loop(
        self,
        loop: Loop,
        environment: dict[str, int],
        iteration: tuple[int, ...],
        turns: tuple[int, ...],
    ) -> Iterator[Step]:
        lower = int(loop.lower.evaluate(environment))
        all_trips = max(int(loop.upper.evaluate(environment)) - lower, 0)
        if not all_trips:
            return
        short = None if loop_key(loop) in self.whole else self.short
        trips = all_trips if short is None else short.trips(all_trips)
        stages = max((node.stage for node in loop.body), default=0)
        if not stages and not any(isinstance(node, Loop | Branch) for node in loop.body):
            plain = [node for node in loop.body if not isinstance(node, Signal | Loop | Branch)]
            for trip in range(trips):
                turn = trip if short is None else short.trip(all_trips, trip)
                inner_iteration, inner_turns = (*iteration, lower + turn), (*turns, turn)
                for node in plain:
                    yield Step(node, inner_iteration, inner_turns)
            return
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
        return self.findings.problems

    def _execute(self, index: int, stream: _Stream, step: Step) -> bool:
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

    def _release(self, stream: _Stream, step: Step, node: Release) -> None:
        clock = stream.clock.copy()
        for under_way in (stream.arriving, stream.leaving):
            slots = under_way if node.tile is None else (self.accesses.slot_of(node.tile, step),)
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

    def _use(self, index: int, stream: _Stream, step: Step, node: Use) -> None:
        touched = {tile: self.accesses.slot_of(tile, step) for tile in (*node.reads, *node.writes)}
        for slot in touched.values():  # a stream waits for its own loads and stores
            if slot in stream.arriving:
                np.maximum(stream.clock, stream.arriving.pop(slot), out=stream.clock)
        for tile in node.writes:
            if touched[tile] in stream.leaving:
                clock = stream.leaving.pop(touched[tile])
                np.maximum(stream.clock, clock, out=stream.clock)
        if node.received and self.template.waits:
            self._check_received(index, stream, step)
        for tile in node.reads:
            self.accesses.check_read(index, stream.clock, step, tile, touched[tile])
        for tile in node.writes:
            self.accesses.check_write(index, stream.clock, step, tile, touched[tile])
        self.times[index] += 1
        done = Access(index, self.times[index], index, step)
        for tile in node.reads:
            slot, access = touched[tile], done
            if node.in_flight:
                component = len(self.streams) + self.slots + slot
                access = self._begun(component, index, step, stream.clock, stream.leaving, slot)
            self.accesses.read(slot, access)
        for tile in node.writes:
            slot, access = touched[tile], done
            if node.in_flight:
                component = len(self.streams) + slot
                access = self._begun(component, index, step, stream.clock, stream.arriving, slot)
            self.accesses.write(tile, slot, access)
        stream.clock[index] = self.times[index]

    def _begun(
        self,
        component: int,
        index: int,
        step: Step,
        clock: Integers,
        under_way: dict[int, Integers],
        slot: int,
    ) -> Access:
        """A transfer of a slot that ends some time; ``under_way`` gets the clock at its end."""
        self.times[component] += 1
        end = clock.copy()
        end[component] = self.times[component]
        under_way[slot] = np.maximum(end, under_way[slot]) if slot in under_way else end
        return Access(component, self.times[component], index, step)

    def _check_received(self, index: int, stream: _Stream, step: Step) -> None:
        if not any(stream.clock[waiting] >= time for waiting, time in self.waited.items()):
            text = (
                f"{self.text(index, step)} reads what other devices send and knows of no wait "
                "for it"
            )
            self.report("read-before-arrival", text, step, "received")

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
            texts.append(f"{self.text(at, stuck[at])} waits")
            at = producers.get(node.semaphore)
            if at is None:
                texts.append("no stream releases it")
            elif at not in stuck:
                count = len(self.releases[node.semaphore])
                texts.append(f"{self.streams[at].engine} has ended and released it {count} times")
        if at in seen:
            texts.append("which closes the cycle")
        message = f"{self.template.name} hangs: {'; '.join(texts)}"
        self.findings.problems.append(Problem("hang", message, origin))
