"""The signals and waits of a layer as the streams of all workgroups of all devices meet them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from starc.core.quasi_affine.expressions import Expression
from starc.core.streams.skeleton import Problem, SkeletonLaunch, pruned, synchronises
from starc.core.streams.stream_template import (
    Acquire,
    Branch,
    Integers,
    Loop,
    LoopKey,
    Node,
    Release,
    Semaphore,
    Signal,
    Use,
    Wait,
    Window,
    loop_key,
    whole_loops,
    window,
)

Mask: TypeAlias = npt.NDArray[np.bool_]

MAX_ENTRIES: Final = 10_000_000  # events of all streams of a layer that are expanded


class TooLarge(ValueError):
    """The skeleton has more events than ``MAX_ENTRIES``."""


@dataclass
class _Event:
    """One signal or wait of a template at one point of its loops, for every stream; of a
    ``semaphore`` if that is not negative."""

    signal: bool
    counter: str
    element: Integers | int
    value: Integers | int
    device: Integers | int
    active: Mask
    semaphore: int = -1


@dataclass
class StreamGroup:
    """The streams of one launch part on all devices, and the events of each, one behind the other:
    those of stream i are ``length[i]`` from ``first[i]`` on, ``at[i]`` of which have happened."""

    launch: int
    name: str
    device: Integers
    workgroup: Integers
    first_workgroup: int
    engine: str = ""
    signal: Mask = field(default_factory=lambda: np.zeros(0, bool))
    slot: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    value: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    first: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    length: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    at: Integers = field(default_factory=lambda: np.zeros(0, np.int64))

    def fill(self, events: Sequence[tuple[Integers, Integers, Integers, bool]]) -> None:
        """Takes events in their order, each as streams, counters, values and whether it signals."""
        count = len(self.device)
        self.at = np.zeros(count, np.int64)
        if events and all(len(event[0]) == count for event in events):
            # All streams meet all events: nothing is to be sorted.
            self.slot = np.stack([event[1] for event in events], axis=1).reshape(-1)
            self.value = np.stack([event[2] for event in events], axis=1).reshape(-1)
            self.signal = np.tile([event[3] for event in events], count)
            self.length = np.full(count, len(events))
            self.first = np.arange(count) * len(events)
            return
        nothing = np.zeros(0, np.int64)
        stream = np.concatenate([nothing, *(event[0] for event in events)])
        order = np.argsort(stream, kind="stable")
        self.slot = np.concatenate([nothing, *(event[1] for event in events)])[order]
        self.value = np.concatenate([nothing, *(event[2] for event in events)])[order]
        signal = [np.full(len(event[0]), event[3]) for event in events]
        self.signal = np.concatenate([nothing.astype(bool), *signal])[order]
        self.length = np.bincount(stream, minlength=count)
        self.first = np.cumsum(self.length) - self.length

    def unfinished(self) -> Mask:
        return self.at < self.length

    def next(self, streams: Any) -> Any:
        """The events that come next in streams."""
        return self.first[streams] + self.at[streams]

    def describe(self, stream: int) -> str:
        workgroup = int(self.workgroup[stream]) + self.first_workgroup
        engine = f", {self.engine}" if self.engine else ""
        return f"{self.name} (device {self.device[stream]}, workgroup {workgroup}{engine})"


def values_of(values: Integers | int, streams: Any) -> Any:
    """The values of some streams: a number is that of all of them."""
    return (
        np.broadcast_to(values, np.shape(streams)) if isinstance(values, int) else values[streams]
    )


class Events:
    """The events of the streams of all launches, in the order in which each stream meets them.

    ``counters`` gives the elements of each counter array. Raises ``TooLarge`` where there are too
    many.
    """

    def __init__(
        self,
        launches: Sequence[SkeletonLaunch],
        counters: Mapping[str, int],
        mesh: Sequence[tuple[str, int]],
    ) -> None:
        self.mesh = mesh
        self.devices = prod(size for _, size in mesh)
        self.sizes = counters
        self.base: dict[str, int] = {}
        total = 0
        for name, count in counters.items():
            self.base[name] = total
            total += count
        self.width = total
        self.entries = 0
        # Semaphores of workgroups stand behind the counters; where those of a part begin.
        self.joined: list[tuple[int, tuple[Semaphore, ...]]] = []
        self.end = self.devices * total
        self.problems: list[Problem] = []
        self.groups = [self._launch(i, launch) for i, launch in enumerate(launches)]

    def _launch(self, index: int, launch: SkeletonLaunch) -> list[StreamGroup]:
        """The streams of a launch, those of each part on all devices together."""
        groups: list[StreamGroup] = []
        first = 0
        for skeleton, grid in launch.parts:
            sequences = tuple((engine, pruned(body)) for engine, body in skeleton.sequences)
            if any(synchronises(body) for _, body in sequences):
                device = np.repeat(np.arange(self.devices, dtype=np.int64), grid)
                workgroup = np.tile(np.arange(grid, dtype=np.int64), self.devices)
                short: Window | None = None
                whole: frozenset[LoopKey] = frozenset()
                if skeleton.streams:
                    short = window(sequences, skeleton.semaphores)
                    whole = whole_loops(sequences, also=(Signal, Wait))
                self.joined.append((self.end, skeleton.semaphores))
                for engine, body in sequences:
                    streams = StreamGroup(index, launch.name, device, workgroup, first, engine)
                    self._expand(streams, body, short, whole)
                    groups.append(streams)
                self.end += len(device) * len(skeleton.semaphores)
            first += grid
        return groups

    def _expand(
        self,
        streams: StreamGroup,
        body: tuple[Node, ...],
        short: Window | None,
        whole: frozenset[LoopKey],
    ) -> None:
        self.short, self.whole = short, whole
        environment: dict[str, Any] = {"wg": streams.workgroup, "device": streams.device}
        rest = streams.device
        for axis, size in reversed(self.mesh):
            environment[axis] = rest % size
            rest = rest // size
        everyone = np.ones(len(streams.device), bool)
        start, semaphores = self.joined[-1]
        acquired = np.zeros((len(semaphores), len(everyone)), np.int64)
        reported: set[tuple[str, bool]] = set()
        events: list[tuple[Integers, Integers, Integers, bool]] = []
        for event in self._events(body, environment, everyone):
            self._check_target(streams, event, reported)
            active = np.flatnonzero(event.active)
            self.entries += len(active)
            if self.entries > MAX_ENTRIES:
                raise TooLarge(f"{streams.name} and the launches before it synchronise too often")
            value = values_of(event.value, active)
            if event.semaphore >= 0:
                slot = start + active * len(semaphores) + event.semaphore
                if not event.signal:
                    acquired[event.semaphore, active] += 1
                    initial = semaphores[event.semaphore].initial
                    value = acquired[event.semaphore, active] - initial
            else:
                slot = values_of(event.device, active) * self.width
                slot = slot + (self.base.get(event.counter, 0) + values_of(event.element, active))
            events.append((active, slot, value, event.signal))
        streams.fill(events)

    def _events(
        self, body: Sequence[Node], environment: dict[str, Any], mask: Mask
    ) -> Iterator[_Event]:
        for node in body:
            yield from self._node(node, environment, mask)

    def _node(self, node: Node, environment: dict[str, Any], mask: Mask) -> Iterator[_Event]:
        def value(e: Expression) -> Integers | int:
            return e.evaluate(environment)

        match node:
            case Signal():
                own = environment["device"]
                device = own if node.peer is None else value(node.peer)
                yield _Event(
                    True, node.counter, value(node.element), value(node.value), device, mask
                )
            case Wait():
                element, least = value(node.element), value(node.value)
                yield _Event(False, node.counter, element, least, environment["device"], mask)
            case Acquire() | Release():
                signal = isinstance(node, Release)
                yield _Event(signal, "", 0, 1, environment["device"], mask, node.semaphore)
            case Use():
                pass
            case Branch():
                condition = value(node.condition)
                if isinstance(condition, int):
                    if condition >= 0:
                        yield from self._events(node.body, environment, mask)
                    return
                taken = mask & (condition >= 0)
                if taken.any():
                    yield from self._events(node.body, environment, taken)
            case Loop():
                yield from self._loop(node, environment, mask)

    def _loop(self, loop: Loop, environment: dict[str, Any], mask: Mask) -> Iterator[_Event]:
        lower, upper = loop.lower.evaluate(environment), loop.upper.evaluate(environment)
        if self.short is not None and loop_key(loop) not in self.whole:
            trips = upper - lower
            trips = max(trips, 0) if isinstance(trips, int) else np.maximum(trips, 0)
            upper = lower + self.short.trips(trips)
        last_stage = max(inner.stage for inner in loop.body)
        if isinstance(lower, int) and isinstance(upper, int):
            # The same trips of all streams.
            for trip in range(max(upper - lower, 0) + last_stage):
                for inner in loop.body:
                    iteration = lower + (trip - inner.stage)
                    if lower <= iteration < upper:
                        inside = environment | {loop.variable: iteration}
                        yield from self._node(inner, inside, mask)
            return
        trips = int(np.max(np.where(mask, upper - lower, 0))) + last_stage
        for trip in range(trips):
            for inner in loop.body:
                iteration = lower + (trip - inner.stage)
                active = mask & (iteration >= lower) & (iteration < upper)
                if np.count_nonzero(active):
                    # Inactive streams keep a legal value, for tables.
                    counter = np.where(active, iteration, lower)
                    inside = environment | {loop.variable: counter}
                    yield from self._node(inner, inside, active)

    def _check_target(
        self, streams: StreamGroup, event: _Event, reported: set[tuple[str, bool]]
    ) -> None:
        """Reports elements and devices that do not exist, and leaves them out of the event."""
        if event.semaphore >= 0:
            return
        count = self.sizes.get(event.counter, 0)
        wrong = event.active & ((event.element < 0) | (event.element >= count))
        nowhere = event.active & ((event.device < 0) | (event.device >= self.devices))
        if not np.count_nonzero(wrong | nowhere):
            return
        what = "signals" if event.signal else "waits for"
        for bad, text in (
            (wrong, f"of {count} elements"),
            (nowhere, f"of a device outside the {self.devices} there are"),
        ):
            if bad.any() and (event.counter, bad is wrong) not in reported:
                reported.add((event.counter, bad is wrong))
                stream = int(np.flatnonzero(bad)[0])
                place = f"@{event.counter}[{values_of(event.element, stream)}]"
                if bad is nowhere:
                    place += f" of device {values_of(event.device, stream)}"
                self.problems.append(
                    Problem(streams.launch, f"{streams.describe(stream)} {what} {place}, {text}")
                )
        event.active = event.active & ~wrong & ~nowhere
