"""How long one launch takes: medians of event times around graphs of launches.

A graph holds enough launches that the time between two events is well above what an event
resolves, and the launches in it go round a list of buffer sets, so that what a launch reads is not
what the one before it read.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

Launch = Callable[[], None]

GRAPH_US: Final = 2000.0
"""A graph is filled up to this time."""

MOST_LAUNCHES: Final = 256
REPLAYS: Final = 15
LEAST_REPLAYS: Final = 5
REPLAYS_US: Final = 60_000.0
"""Replays end early, at LEAST_REPLAYS or more, when they have taken this long."""


class Clock(Protocol):
    """What a device offers for timing."""

    def elapsed_us(self, work: Launch, *, queued: bool = True) -> float:
        """Microseconds between two events around ``work``, waited for.

        ``queued`` has the device busy with something else until ``work`` is queued behind it, so
        that the time is the device's alone and not that of the launch from the host.
        """
        ...

    def graph(self, work: Launch) -> Launch:
        """Captures what ``work`` launches; the result launches it again."""
        ...


@dataclass(frozen=True)
class Timing:
    """Microseconds of one launch: the median over replays, the fastest and the slowest."""

    us: float
    fastest: float
    slowest: float
    launches: int
    replays: int


def launches_for(single_us: float, buffers: int) -> int:
    """Launches of a graph: whole rounds over the buffers, about GRAPH_US of time."""
    wanted = min(MOST_LAUNCHES, max(1, round(GRAPH_US / max(single_us, 0.1))))
    rounds = max(1, round(wanted / buffers))
    return rounds * buffers


def replays_for(graph_us: float) -> int:
    """How often a graph of so many microseconds is replayed."""
    return max(LEAST_REPLAYS, min(REPLAYS, int(REPLAYS_US / max(graph_us, 1.0))))


def time_launches(clock: Clock, launches: Sequence[Launch], *, graph: bool = True) -> Timing:
    """Times launches that differ in their buffers alone.

    Every launch runs once before anything is timed, which compiles it and fills no cache that the
    next one would profit from.
    """

    def round_of(count: int) -> Launch:
        def work() -> None:
            for index in range(count):
                launches[index % len(launches)]()

        return work

    once = round_of(len(launches))
    once()
    count = launches_for(clock.elapsed_us(once) / len(launches), len(launches))
    work = clock.graph(round_of(count)) if graph else round_of(count)
    warm = clock.elapsed_us(work, queued=graph)
    if graph and count < (more := launches_for(warm / count, len(launches))):
        # Launched one by one, a short kernel seems longer than it is.
        count, work = more, clock.graph(round_of(more))
        warm = clock.elapsed_us(work)
    replays = replays_for(warm)
    times = [clock.elapsed_us(work, queued=graph) / count for _ in range(replays)]
    return Timing(statistics.median(times), min(times), max(times), count, replays)


def buffer_sets(bytes_of_one: int, cache_bytes: int, memory_bytes: int) -> int:
    """Buffer sets to rotate over so that a set has left the cache when its turn comes again.

    At least three caches' worth lies between two uses of a set; at most 64 sets, and no more than
    a third of the memory.
    """
    wanted = -(-3 * cache_bytes // max(bytes_of_one, 1)) + 1
    return max(1, min(64, wanted, memory_bytes // 3 // max(bytes_of_one, 1)))
