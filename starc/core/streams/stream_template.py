"""The streams of a template: what its engines do to tiles, semaphores and counters.

The plain form that ``stream_order`` and ``happens_before`` beside it check:
instructions are what they read and write of which tiles, loops and branches are as they stand, and
expressions are over ``device``, the mesh axes, ``wg`` and the variables of loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import lcm
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from starc.core.quasi_affine.expressions import Expression, variables

Integers: TypeAlias = npt.NDArray[np.int64]

MAX_DECISIONS: Final = 100_000  # of a template, by which its devices are told apart


@dataclass(frozen=True)
class Tile:
    """A tile in scratch memory: ``turns`` is the depth of the loop whose iterations take its slots
    in turn, 0 where no loop does. ``offset`` None: its bytes are its own."""

    name: str
    slot_bytes: int
    slots: int = 1
    turns: int = 0
    offset: int | None = None

    def span(self, slot: int) -> tuple[int, int]:
        """First byte of a slot and the one behind its last."""
        first = (self.offset or 0) + slot * self.slot_bytes
        return first, first + self.slot_bytes


@dataclass(frozen=True)
class Semaphore:
    name: str
    initial: int = 0


@dataclass(frozen=True)
class Use:
    """An instruction that reads and writes tiles, by index. ``in_flight``: the stream goes on while
    its tiles arrive or leave, as loads and stores do. ``received``: it reads memory that other
    devices write, once a wait has told that they have. ``text`` is what messages call it,
    ``place`` where it stands; ``origin`` is the caller's."""

    text: str
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    in_flight: bool = False
    received: bool = False
    place: str = ""
    origin: object = field(default=None, compare=False)
    stage: int = 0


@dataclass(frozen=True)
class Acquire:
    semaphore: int
    place: str = ""
    origin: object = field(default=None, compare=False)
    stage: int = 0


@dataclass(frozen=True)
class Release:
    """``tile`` None: when everything earlier of the stream is complete, and the stream waits for
    it; else when the loads into this slot of the tile have arrived, and the stream goes on."""

    semaphore: int
    tile: int | None = None
    place: str = ""
    origin: object = field(default=None, compare=False)
    stage: int = 0


@dataclass(frozen=True)
class Signal:
    """Adds ``value`` to an element of a counter of device ``peer`` (None: the stream's own)."""

    counter: str
    element: Expression
    value: Expression
    peer: Expression | None = None
    stage: int = 0


@dataclass(frozen=True)
class Wait:
    """Until an element of the own device's counter is at least ``value``."""

    counter: str
    element: Expression
    value: Expression
    stage: int = 0
    place: str = ""
    origin: object = field(default=None, compare=False)


@dataclass(frozen=True)
class Loop:
    variable: str
    lower: Expression
    upper: Expression
    body: tuple[Node, ...]
    stage: int = 0

    @cached_property
    def varies(self) -> bool:
        """Whether what it holds decides by its counter."""
        return self.variable in controls(self.body)


@dataclass(frozen=True)
class Branch:
    """The body runs where ``condition`` is not negative."""

    condition: Expression
    body: tuple[Node, ...]
    stage: int = 0


Instruction: TypeAlias = Use | Acquire | Release | Wait
Node: TypeAlias = Instruction | Signal | Loop | Branch


Streams: TypeAlias = tuple[tuple[str, tuple[Node, ...]], ...]
"""The engine and the body of each stream."""


@dataclass(frozen=True)
class StreamTemplate:
    name: str
    tiles: tuple[Tile, ...]
    semaphores: tuple[Semaphore, ...]
    streams: Streams

    @cached_property
    def window(self) -> Window:
        """The trips of its loops that stand for all."""
        return window(self.streams, self.semaphores, self.tiles)

    @cached_property
    def whole_loops(self) -> frozenset[LoopKey]:
        """Its loops all of whose trips count."""
        return whole_loops(self.streams)

    @cached_property
    def waits(self) -> bool:
        """Whether it waits for other devices."""
        return any(isinstance(node, Wait) for _, body in self.streams for node in nodes(body))


def nodes(body: Sequence[Node]) -> Iterator[Node]:
    """All nodes of a body."""
    for node in body:
        yield node
        if isinstance(node, Loop | Branch):
            yield from nodes(node.body)


def controls(body: Sequence[Node]) -> frozenset[str]:
    """The variables by which the loops and branches of a body decide."""
    found: set[str] = set()
    for node in nodes(body):
        if isinstance(node, Loop):
            found |= variables(node.lower) | variables(node.upper)
        elif isinstance(node, Branch):
            found |= variables(node.condition)
    return frozenset(found)


# Trips that are enough

LoopKey: TypeAlias = tuple[str, Expression, Expression]


def loop_key(loop: Loop) -> LoopKey:
    """What the copies of a loop in several streams have in common."""
    return loop.variable, loop.lower, loop.upper


def whole_loops(streams: Streams, *, also: tuple[type, ...] = ()) -> frozenset[LoopKey]:
    """The loops all of whose trips count: in some stream what they hold decides by their counter,
    or there is an instruction of one of the types ``also``."""
    return frozenset(
        loop_key(loop)
        for _, body in streams
        for loop in nodes(body)
        if isinstance(loop, Loop)
        and (loop.varies or any(isinstance(node, also) for node in nodes(loop.body)))
    )


@dataclass(frozen=True)
class Window:
    """How many trips of a long loop stand for all.

    The trips of a loop whose body decides nothing by its counter are alike but for the slots that
    they take, which come round with ``period``, the least common multiple of the slots. A semaphore
    that starts at n joins trips at most n apart and stages shift an instruction by as many trips,
    so behind the first ``lead`` trips every order edge is that of ``period`` trips before, until
    the last ``lead`` trips. Accesses that touch the same slot recur after at most ``period`` trips,
    and what is ordered with the next such access is ordered with all later ones, because streams
    run in order. A loop of at least ``length`` trips therefore shows every pair of accesses that a
    longer one has, if the trips that are left out are a multiple of the period.
    """

    period: int
    lead: int

    @property
    def length(self) -> int:
        return 2 * self.lead + 2 * self.period

    def trips(self, trips: Any) -> Any:
        """The trips that are expanded of an integer or an array of trips."""
        length, period = self.length, self.period
        short = length + (trips - length) % period
        if isinstance(trips, int):
            return trips if trips < length + period else short
        return cast("Integers", np.where(trips < length + period, trips, short))

    def trip(self, trips: int, index: int) -> int:
        """The trip that the ``index``-th expanded one is: those left out are in the middle."""
        left_out = trips - self.trips(trips)
        return index if index < self.lead + self.period else index + left_out


def window(streams: Streams, semaphores: Sequence[Semaphore], tiles: Sequence[Tile] = ()) -> Window:
    """The window of streams. Without tiles, only their semaphores count."""
    stages = [node.stage for _, body in streams for node in nodes(body)]
    initial = max((semaphore.initial for semaphore in semaphores), default=0)
    period = lcm(*(tile.slots for tile in tiles))
    return Window(period, initial + max(stages, default=0) + period + 1)


# Roles


def roles(template: StreamTemplate, coordinates: Mapping[str, Integers]) -> list[int]:
    """One row of the coordinates for every way in which the template's loops and branches go: rows
    that take the same branches and as many trips have the same streams. Raises ``OverflowError``
    where they decide more than ``MAX_DECISIONS`` times."""
    partition = _Partition(len(next(iter(coordinates.values()))))
    for _, body in template.streams:
        partition.walk(body, dict(coordinates), np.arange(len(partition.role)))
    _, first = np.unique(partition.role, return_index=True)
    return sorted(int(row) for row in first)


class _Partition:
    """Rows by what they have decided so far."""

    def __init__(self, count: int) -> None:
        self.role = np.zeros(count, np.int64)
        self.decisions = 0

    def _decide(self, members: Integers, values: Integers) -> None:
        """Parts rows that decide differently. Those that do not come here are apart already."""
        self.decisions += 1
        if self.decisions > MAX_DECISIONS:
            raise OverflowError
        if (values == values[0]).all():
            return
        known, mine = np.unique(values, return_inverse=True)
        role = self.role * (len(known) + 1)
        role[members] += mine.reshape(-1) + 1
        self.role = np.unique(role, return_inverse=True)[1].reshape(-1)

    def walk(
        self, body: Sequence[Node], environment: Mapping[str, Integers], members: Integers
    ) -> None:
        """Follows a body with those rows that come to it; the environment has their values."""

        def value(e: Expression) -> Integers:
            return np.broadcast_to(np.asarray(e.evaluate(environment), np.int64), members.shape)

        def inside(part: Sequence[Node], chosen: Any, more: Mapping[str, Integers]) -> None:
            if chosen.any():
                inner = {name: values[chosen] for name, values in {**environment, **more}.items()}
                self.walk(part, inner, members[chosen])

        for node in body:
            if isinstance(node, Branch):
                taken = value(node.condition) >= 0
                self._decide(members, taken.astype(np.int64))
                if any(isinstance(inner, Loop | Branch) for inner in node.body):
                    inside(node.body, taken, {})
            elif isinstance(node, Loop):
                lower = value(node.lower)
                trips = np.maximum(value(node.upper) - lower, 0)
                self._decide(members, trips)
                if not any(isinstance(inner, Loop | Branch) for inner in node.body):
                    continue
                for trip in range(int(trips.max()) if node.varies else 1):
                    inside(node.body, trips > trip, {node.variable: lower + trip})
