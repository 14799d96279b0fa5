"""Can every wait be satisfied? Deadlock of kernels that wait for each other's signals.

Counters only grow and a wait asks for "at least", so whether a schedule ends does not depend on the
order in which streams advance: letting every stream run as far as it can, again and again, either
ends or finds the streams that no order can finish. That is done here on the synchronisation
skeleton of a layer: its launches with all but signals and waits left out, loops expanded, for all
workgroups of all devices at once (numpy arrays over streams, one event of the template at a time).

A template of several engines has a sequence for each of them, joined by semaphores of the
workgroup: its waits may stand in another stream than its signals. Those streams count as streams,
and a semaphore as a counter that nobody else sees: its k-th acquire waits until it has been
released k times, less what it starts with. Long loops that neither signal nor wait are shortened
(``starc.core.streams.stream_template.Window``): what follows them waits for the same.

Launches of a queue start on a device when its earlier launches of that queue have ended there;
devices do not wait for each other in any other way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from starc.core.quasi_affine.expressions import Expression
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
    Streams,
    Use,
    Wait,
    Window,
    loop_key,
    nodes,
    whole_loops,
    window,
)

Mask: TypeAlias = npt.NDArray[np.bool_]

MAX_ENTRIES: Final = 10_000_000  # events of all streams of a layer that are expanded


@dataclass(frozen=True)
class Skeleton:
    """The signals and waits of a template, over ``device``, the mesh axes, ``wg`` and loops: of
    its one stream, or of ``streams`` that ``semaphores`` join."""

    name: str
    body: tuple[Node, ...]
    streams: Streams = ()
    semaphores: tuple[Semaphore, ...] = ()

    @property
    def sequences(self) -> Streams:
        """The streams; one without a name where there are no others."""
        return self.streams or (("", self.body),)


@dataclass(frozen=True)
class SkeletonLaunch:
    """A launch: (template, workgroups) of its parts; ``depends`` is the index of a launch of
    another queue that must have ended on the device."""

    name: str
    parts: tuple[tuple[Skeleton, int], ...]
    queue: int = 0
    depends: int | None = None


@dataclass(frozen=True)
class Problem:
    """A wait that no order satisfies, or a signal to nowhere; ``launch`` is an index."""

    launch: int
    message: str
    hint: str | None = None


class TooLarge(ValueError):
    """The skeleton has more events than ``MAX_ENTRIES``."""


def synchronises(body: Sequence[Node]) -> bool:
    """Whether a body signals or waits at all."""
    return any(isinstance(node, Signal | Wait) for node in nodes(body))


def pruned(body: Sequence[Node]) -> tuple[Node, ...]:
    """A body without what does not synchronise."""
    kept: list[Node] = []
    for node in body:
        match node:
            case Loop() | Branch():
                inner = pruned(node.body)
                if inner:
                    kept.append(replace(node, body=inner))
            case Use():
                pass
            case _:
                kept.append(node)
    return tuple(kept)


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
class _Streams:
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
        nothing = np.zeros(0, np.int64)
        stream = np.concatenate([nothing, *(event[0] for event in events)])
        order = np.argsort(stream, kind="stable")
        self.slot = np.concatenate([nothing, *(event[1] for event in events)])[order]
        self.value = np.concatenate([nothing, *(event[2] for event in events)])[order]
        signal = [np.full(len(event[0]), event[3]) for event in events]
        self.signal = np.concatenate([nothing.astype(bool), *signal])[order]
        self.length = np.bincount(stream, minlength=count)
        self.first = np.cumsum(self.length) - self.length
        self.at = np.zeros(count, np.int64)

    def unfinished(self) -> Mask:
        return self.at < self.length

    def next(self, streams: Any) -> Any:
        """The events that come next in streams."""
        return self.first[streams] + self.at[streams]

    def describe(self, stream: int) -> str:
        workgroup = int(self.workgroup[stream]) + self.first_workgroup
        engine = f", {self.engine}" if self.engine else ""
        return f"{self.name} (device {self.device[stream]}, workgroup {workgroup}{engine})"


def _of(values: Integers | int, streams: Any) -> Any:
    """The values of some streams: a number is that of all of them."""
    return (
        np.broadcast_to(values, np.shape(streams)) if isinstance(values, int) else values[streams]
    )


def check(
    launches: Sequence[SkeletonLaunch],
    counters: Mapping[str, int],
    mesh: Sequence[tuple[str, int]],
) -> list[Problem]:
    """The problems of a layer's launches; none if every stream ends.

    ``counters`` gives the elements of each counter array; all are zero at the start.
    Raises ``TooLarge`` where the skeleton is too large to expand.
    """
    return _Checker(launches, counters, mesh).run()


class _Checker:
    def __init__(
        self,
        launches: Sequence[SkeletonLaunch],
        counters: Mapping[str, int],
        mesh: Sequence[tuple[str, int]],
    ) -> None:
        self.launches = launches
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
        # The launch before each one in its queue: where it has ended, all before it have.
        last: dict[int, int] = {}
        self.before: list[int | None] = []
        for index, launch in enumerate(launches):
            self.before.append(last.get(launch.queue))
            last[launch.queue] = index
        self.groups = [self._streams(i, launch) for i, launch in enumerate(launches)]
        self.done = np.zeros((len(launches), self.devices), bool)
        self.counts = np.zeros(self.end, np.int64)

    # Expansion

    def _streams(self, index: int, launch: SkeletonLaunch) -> list[_Streams]:
        groups: list[_Streams] = []
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
                    streams = _Streams(index, launch.name, device, workgroup, first, engine)
                    self._expand(streams, body, short, whole)
                    groups.append(streams)
                self.end += len(device) * len(skeleton.semaphores)
            first += grid
        return groups

    def _expand(
        self,
        streams: _Streams,
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
            value = _of(event.value, active)
            if event.semaphore >= 0:
                slot = start + active * len(semaphores) + event.semaphore
                if not event.signal:
                    acquired[event.semaphore, active] += 1
                    initial = semaphores[event.semaphore].initial
                    value = acquired[event.semaphore, active] - initial
            else:
                slot = _of(event.device, active) * self.width
                slot = slot + (self.base.get(event.counter, 0) + _of(event.element, active))
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
                yield _Event(
                    False,
                    node.counter,
                    value(node.element),
                    value(node.value),
                    environment["device"],
                    mask,
                )
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
                lower, upper = value(node.lower), value(node.upper)
                if self.short is not None and loop_key(node) not in self.whole:
                    trips = upper - lower
                    trips = max(trips, 0) if isinstance(trips, int) else np.maximum(trips, 0)
                    upper = lower + self.short.trips(trips)
                last_stage = max(inner.stage for inner in node.body)
                if isinstance(lower, int) and isinstance(upper, int):
                    # The same trips of all streams.
                    for trip in range(max(upper - lower, 0) + last_stage):
                        for inner in node.body:
                            iteration = lower + (trip - inner.stage)
                            if lower <= iteration < upper:
                                yield from self._node(
                                    inner, environment | {node.variable: iteration}, mask
                                )
                    return
                trips = int(np.max(np.where(mask, upper - lower, 0))) + last_stage
                for trip in range(trips):
                    for inner in node.body:
                        iteration = lower + (trip - inner.stage)
                        active = mask & (iteration >= lower) & (iteration < upper)
                        if np.count_nonzero(active):
                            # Inactive streams keep a legal value, for tables.
                            counter = np.where(active, iteration, lower)
                            yield from self._node(
                                inner, environment | {node.variable: counter}, active
                            )

    def _check_target(
        self, streams: _Streams, event: _Event, reported: set[tuple[str, bool]]
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
                place = f"@{event.counter}[{_of(event.element, stream)}]"
                if bad is nowhere:
                    place += f" of device {_of(event.device, stream)}"
                self.problems.append(
                    Problem(streams.launch, f"{streams.describe(stream)} {what} {place}, {text}")
                )
        event.active = event.active & ~wrong & ~nowhere

    # Execution

    def run(self) -> list[Problem]:
        if self.problems:
            return self.problems
        progress = True
        left = list(range(len(self.launches)))
        while progress:
            progress = False
            left = [index for index in left if not self.done[index].all()]
            for index in left:
                ready = self._ready(index) & ~self.done[index]
                if not ready.any():
                    continue
                for streams in self.groups[index]:
                    progress |= self._advance(streams, ready)
                ended = ready & self._ended(index)
                if ended.any():
                    self.done[index] |= ended
                    progress = True
        if not self.done.all():
            self._explain()
        return self.problems

    def _ready(self, index: int) -> Mask:
        """Devices on which the launch has started."""
        launch, before = self.launches[index], self.before[index]
        ready = np.ones(self.devices, bool) if before is None else self.done[before].copy()
        if launch.depends is not None:
            ready &= self.done[launch.depends]
        return ready

    def _ended(self, index: int) -> Mask:
        ended = np.ones(self.devices, bool)
        for streams in self.groups[index]:
            ended[streams.device[streams.unfinished()]] = False
        return ended

    def _advance(self, streams: _Streams, ready: Mask) -> bool:
        """Runs the streams on ready devices as far as they get."""
        advanced = False
        while True:
            live = np.flatnonzero(ready[streams.device] & streams.unfinished())
            moved = False
            while len(live):
                at = streams.next(live)
                slot, value, signal = streams.slot[at], streams.value[at], streams.signal[at]
                if np.count_nonzero(signal):
                    np.add.at(self.counts, slot[signal], value[signal])
                live = live[signal | (self.counts[slot] >= value)]
                if len(live):
                    moved = True
                    streams.at[live] += 1
                    live = live[streams.at[live] < streams.length[live]]
            if not moved:
                return advanced
            advanced = True

    # Explanation

    def _blocked(self, index: int, total: Integers) -> tuple[_Streams, int] | None:
        """A stream of the launch that has started and not ended, if possible one that waits for
        more than there will be."""
        ready = self._ready(index)
        blocked: list[tuple[_Streams, int]] = []
        for streams in self.groups[index]:
            stuck = np.flatnonzero(ready[streams.device] & streams.unfinished())
            if not len(stuck):
                continue
            at = streams.next(stuck)
            short = total[streams.slot[at]] < streams.value[at]
            if short.any():
                return streams, int(stuck[short][0])
            blocked.append((streams, int(stuck[0])))
        return blocked[0] if blocked else None

    def _total(self) -> Integers:
        """What each counter reaches if every stream ends."""
        total = np.zeros_like(self.counts)
        for streams in (streams for group in self.groups for streams in group):
            np.add.at(total, streams.slot[streams.signal], streams.value[streams.signal])
        return total

    def _wait_text(self, streams: _Streams, stream: int) -> str:
        at = int(streams.next(stream))
        slot = int(streams.slot[at])
        if slot >= self.devices * self.width:
            start, semaphores = next((b, s) for b, s in reversed(self.joined) if b <= slot)
            semaphore = semaphores[(slot - start) % len(semaphores)]
            return f"%{semaphore.name}, released {self.counts[slot]} times"
        element = slot % self.width
        name = max(
            (name for name in self.base if self.base[name] <= element),
            key=lambda name: self.base[name],
        )
        return (
            f"@{name}[{element - self.base[name]}] to reach {streams.value[at]} "
            f"(it is at {self.counts[slot]})"
        )

    def _signaller(self, slot: int) -> tuple[_Streams, int] | None:
        """A stream that has yet to signal a counter."""
        for streams in (streams for group in self.groups for streams in group):
            stream = np.repeat(np.arange(len(streams.device)), streams.length)
            ahead = np.arange(len(stream)) >= streams.next(stream)
            found = stream[streams.signal & (streams.slot == slot) & ahead]
            if len(found):
                return streams, int(found.min())
        return None

    def _explain(self) -> None:
        total = self._total()
        for index in range(len(self.launches)):
            blocked = self._blocked(index, total)
            if blocked is None:
                continue
            streams, stream = blocked
            at = int(streams.next(stream))
            slot, value = int(streams.slot[at]), int(streams.value[at])
            if total[slot] < value:
                message = (
                    f"{streams.describe(stream)} waits forever for "
                    f"{self._wait_text(streams, stream)}"
                )
                hint = f"all signals to it add up to {total[slot]}"
                self.problems.append(Problem(index, message, hint))
            else:
                cycle = self._cycle(streams, stream)
                self.problems.append(Problem(index, "deadlock: " + "; ".join(cycle)))
            return

    def _cycle(self, streams: _Streams, stream: int) -> list[str]:
        """Who waits for whom, until someone occurs twice."""
        seen: list[tuple[int, int, int, str]] = []
        texts: list[str] = []
        while True:
            device, workgroup = int(streams.device[stream]), int(streams.workgroup[stream])
            key = (streams.launch, device, workgroup, streams.engine)
            if key in seen:
                first = seen.index(key)
                return [*texts[first:], "which closes the cycle"]
            seen.append(key)
            who = streams.describe(stream)
            if not self._ready(streams.launch)[key[1]]:
                texts.append(f"{who} cannot start before the launches ahead of it end")
                following = self._ahead(streams.launch, key[1])
            else:
                texts.append(f"{who} waits for {self._wait_text(streams, stream)}")
                slot = int(streams.slot[streams.next(stream)])
                following = self._signaller(slot)
            if following is None:
                return texts
            streams, stream = following

    def _ahead(self, index: int, device: int) -> tuple[_Streams, int] | None:
        """A stuck stream of an earlier launch on the device."""
        for before in range(index):
            for streams in self.groups[before]:
                stuck = (streams.device == device) & streams.unfinished()
                if stuck.any():
                    return streams, int(np.flatnonzero(stuck)[0])
        return None


def resident_workgroups(
    *,
    compute_units: int,
    max_waves: int,
    scratch_bytes: int,
    register_bytes: int,
    kernel_waves: int,
    kernel_scratch_bytes: int,
    kernel_register_bytes: int,
) -> int:
    """Workgroups of a kernel that a device holds at once: the first four arguments are what it has
    (waves, scratch and registers of one compute unit), the rest what one workgroup takes."""
    per_unit = max_waves // max(kernel_waves, 1)
    if kernel_scratch_bytes:
        per_unit = min(per_unit, scratch_bytes // kernel_scratch_bytes)
    if kernel_register_bytes:
        per_unit = min(per_unit, register_bytes // kernel_register_bytes)
    return per_unit * compute_units
