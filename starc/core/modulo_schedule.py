"""Iterative modulo scheduling of a loop body.

A loop is run as a pipeline: a new iteration starts every ``ii`` cycles (the initiation interval),
and every operation has one fixed start within its iteration. A resource does one thing at a time,
so the times at which it is busy, taken modulo ``ii``, must not overlap; a dependence of distance d
holds between an iteration and the d-th one after it. Two numbers bound the interval from below:

- ``res_mii``: the work of the busiest resource in one iteration;
- ``rec_mii``: the largest, over the circuits of dependences, of latency over distance.

The method is Rau's (B. R. Rau, "Iterative modulo scheduling", MICRO-27, 1994): operations are
placed by decreasing height; one that finds no free slot takes the place of those in its way, which
are placed again; when the budget of placements is spent, the interval grows. Then operations that
nothing precedes are moved as late as possible, for what they produce occupies memory from their
start on; those asked for as early as possible (loads into slots that are reserved anyway) start as
soon as what precedes them in earlier iterations allows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final

BUDGET: Final = 16  # placements per operation before the interval grows


@dataclass(frozen=True)
class LoopOperation:
    """One operation: ``uses`` gives the cycles, from its start on, for which it occupies each
    resource that it needs."""

    name: str
    uses: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Dependence:
    """Operation ``target`` of an iteration starts at least ``latency`` cycles after ``source`` of
    the iteration ``distance`` before it. Operations are named by their index."""

    source: int
    target: int
    latency: int
    distance: int = 0


@dataclass(frozen=True)
class ModuloSchedule:
    """Start cycles of operations; iteration i of operation o starts at ``i * ii + starts[o]``."""

    ii: int
    res_mii: int
    rec_mii: int
    starts: tuple[int, ...]

    @property
    def stages(self) -> tuple[int, ...]:
        """The stage of each operation: how many iterations have started before it does."""
        return tuple(start // self.ii for start in self.starts)

    @property
    def order(self) -> tuple[int, ...]:
        """The operations in the order in which one trip of the pipelined loop issues them; at the
        same cycle those of earlier iterations come first."""
        slots = [(start % self.ii, -(start // self.ii), i) for i, start in enumerate(self.starts)]
        return tuple(i for _, _, i in sorted(slots))


def resource_bound(operations: Sequence[LoopOperation]) -> int:
    """Cycles that the busiest resource works in an iteration, at least 1."""
    busy: dict[str, int] = {}
    for operation in operations:
        for resource, cycles in operation.uses.items():
            busy[resource] = busy.get(resource, 0) + cycles
    return max(1, *busy.values()) if busy else 1


def recurrence_bound(count: int, dependences: Sequence[Dependence]) -> int:
    """The smallest interval at which no circuit of dependences is too slow, at least 1.

    Raises ``ValueError`` where a circuit has latency but no distance: such a loop has no schedule.
    """
    upper = max(1, sum(max(0, d.latency) for d in dependences))
    if _has_positive_circuit(count, dependences, upper):
        raise ValueError("operations of one iteration depend on each other in a circle")
    lower = 1
    while lower < upper:
        middle = (lower + upper) // 2
        if _has_positive_circuit(count, dependences, middle):
            lower = middle + 1
        else:
            upper = middle
    return lower


def _has_positive_circuit(count: int, dependences: Sequence[Dependence], ii: int) -> bool:
    """Whether some circuit asks for more than ``ii`` times its distance (Bellman-Ford)."""
    longest = [0] * count
    for _ in range(count + 1):
        changed = False
        for d in dependences:
            start = longest[d.source] + d.latency - ii * d.distance
            if start > longest[d.target]:
                longest[d.target] = start
                changed = True
        if not changed:
            return False
    return True


def schedule_loop(
    operations: Sequence[LoopOperation],
    dependences: Sequence[Dependence],
    *,
    early: Collection[int] = (),
) -> ModuloSchedule:
    """A schedule of least interval found; the operations ``early`` start as early as they can.

    Raises ``ValueError`` where a circuit of dependences has latency but no distance.
    """
    res_mii = resource_bound(operations)
    rec_mii = recurrence_bound(len(operations), dependences)
    ii = max(res_mii, rec_mii)
    while True:
        for bounded, circuits_first in product((False, True), repeat=2):
            starts = _attempt(operations, dependences, ii, bounded, circuits_first)
            if starts is not None:
                _sink_sources(operations, dependences, ii, starts, early)
                _hoist(operations, dependences, ii, starts, early)
                return ModuloSchedule(ii, res_mii, rec_mii, tuple(starts))
        ii += max(1, ii // 64)


def _heights(count: int, dependences: Sequence[Dependence], ii: int) -> list[int]:
    """The longest path from each operation to any other, in cycles."""
    heights = [0] * count
    for _ in range(count):
        changed = False
        for d in dependences:
            height = heights[d.target] + d.latency - ii * d.distance
            if height > heights[d.source]:
                heights[d.source] = height
                changed = True
        if not changed:
            break
    return heights


def _attempt(
    operations: Sequence[LoopOperation],
    dependences: Sequence[Dependence],
    ii: int,
    bounded: bool,
    circuits_first: bool,
) -> list[int] | None:
    """Start cycles at this interval, or None when the budget is spent.

    ``bounded``: an operation that must also precede placed ones does not look further than they
    allow; it drives away what holds its resources instead. ``circuits_first``: operations on
    circuits of dependences are placed before others. Each helps some loops and hinders others.
    """
    count = len(operations)
    heights = _heights(count, dependences, ii)
    on_circuit = _on_circuits(count, dependences) if circuits_first else set[int]()
    starts: dict[int, int] = {}
    last: dict[int, int] = {}
    for _ in range(BUDGET * count):
        waiting = [i for i in range(count) if i not in starts]
        if not waiting:
            break
        # Earlier operations first among equals: the program's order is a topological one.
        current = max(waiting, key=lambda i: (i in on_circuit, heights[i], -i))
        earliest = max(
            [0]
            + [
                starts[d.source] + d.latency - ii * d.distance
                for d in dependences
                if d.target == current and d.source in starts and d.source != current
            ]
        )
        latest = min(
            [earliest + ii - 1]
            + [
                starts[d.target] - d.latency + ii * d.distance
                for d in dependences
                if d.source == current and d.target in starts and d.target != current
            ]
        )
        free = _first_free(operations, starts, current, earliest, ii)
        if free is None or (bounded and earliest <= latest < free):
            free = max(earliest, last[current] + 1) if current in last else earliest
            for other in _in_the_way(operations, starts, current, free, ii):
                del starts[other]
        starts[current] = last[current] = free
        for d in dependences:
            if d.source == current != d.target and d.target in starts:
                if starts[d.target] < free + d.latency - ii * d.distance:
                    del starts[d.target]
            elif d.target == current != d.source and d.source in starts:
                if free < starts[d.source] + d.latency - ii * d.distance:
                    del starts[d.source]
    if len(starts) < count:
        return None
    return [starts[i] for i in range(count)]


def _on_circuits(count: int, dependences: Sequence[Dependence]) -> set[int]:
    """Operations that depend on themselves through at least one other."""
    reach = [[False] * count for _ in range(count)]
    for d in dependences:
        if d.source != d.target:
            reach[d.source][d.target] = True
    for via, source, target in product(range(count), repeat=3):
        if reach[source][via] and reach[via][target]:
            reach[source][target] = True
    return {i for i in range(count) if reach[i][i]}


def _overlap(a: int, a_cycles: int, b: int, b_cycles: int, ii: int) -> bool:
    """Whether two busy times overlap modulo ``ii``."""
    return (b - a) % ii < a_cycles or (a - b) % ii < b_cycles


def _in_the_way(
    operations: Sequence[LoopOperation], starts: Mapping[int, int], current: int, at: int, ii: int
) -> list[int]:
    """Placed operations whose resources ``current`` would need at the same time."""
    uses = operations[current].uses
    return [
        other
        for other, start in starts.items()
        if other != current
        and any(
            cycles and held and _overlap(at, cycles, start, held, ii)
            for resource, cycles in uses.items()
            if (held := operations[other].uses.get(resource, 0))
        )
    ]


def _first_free(
    operations: Sequence[LoopOperation],
    starts: Mapping[int, int],
    current: int,
    earliest: int,
    ii: int,
) -> int | None:
    """The first cycle in ``earliest .. earliest + ii - 1`` where its resources are free. Only the
    earliest cycle and the ends of other busy times need to be tried."""
    uses = operations[current].uses
    candidates = {earliest}
    for other, start in starts.items():
        for resource in uses:
            held = operations[other].uses.get(resource, 0)
            if held:
                candidates.add(earliest + (start + held - earliest) % ii)
    for at in sorted(candidates):
        if not _in_the_way(operations, starts, current, at, ii):
            return at
    return None


def _sink_sources(
    operations: Sequence[LoopOperation],
    dependences: Sequence[Dependence],
    ii: int,
    starts: list[int],
    early: Collection[int],
) -> None:
    """Moves operations that nothing precedes as late as their successors and resources allow."""
    sinkable = [
        i
        for i in range(len(operations))
        if i not in early and not any(d.target == i and d.source != i for d in dependences)
    ]
    for i in sorted(sinkable, key=lambda i: -starts[i]):
        limits = [
            starts[d.target] - d.latency + ii * d.distance
            for d in dependences
            if d.source == i != d.target
        ]
        if not limits:
            continue
        latest = min(limits)
        others = {j: start for j, start in enumerate(starts) if j != i}
        candidates = {latest}
        for other, start in others.items():
            for resource, cycles in operations[i].uses.items():
                if operations[other].uses.get(resource, 0):
                    candidates.add(latest - (latest - (start - cycles)) % ii)
        for at in sorted(candidates, reverse=True):
            if at <= starts[i]:
                break
            if not _in_the_way(operations, others, i, at, ii):
                starts[i] = at
                break


def _hoist(
    operations: Sequence[LoopOperation],
    dependences: Sequence[Dependence],
    ii: int,
    starts: list[int],
    early: Collection[int],
) -> None:
    """Moves operations as early as what precedes them and resources allow, earliest first, and
    numbers cycles from the first one's interval on."""
    for i in sorted(early, key=lambda i: starts[i]):
        limits = [
            starts[d.source] + d.latency - ii * d.distance
            for d in dependences
            if d.target == i != d.source
        ]
        if not limits:
            continue
        others = {j: start for j, start in enumerate(starts) if j != i}
        at = _first_free(operations, others, i, max(limits), ii)
        if at is not None and at < starts[i]:
            starts[i] = at
    first = min(starts, default=0) // ii * ii
    starts[:] = [start - first for start in starts]


def violations(
    operations: Sequence[LoopOperation],
    dependences: Sequence[Dependence],
    schedule: ModuloSchedule,
) -> list[str]:
    """What is wrong with a schedule: dependences not respected, resources used twice at a time."""
    found: list[str] = []
    ii, starts = schedule.ii, schedule.starts
    for d in dependences:
        if starts[d.target] + ii * d.distance < starts[d.source] + d.latency:
            found.append(f"{operations[d.target].name} starts before {operations[d.source].name}")
    for i, operation in enumerate(operations):
        earlier = {j: starts[j] for j in range(i)}
        found.extend(
            f"{operation.name} and {operations[j].name} use a resource at the same time"
            for j in _in_the_way(operations, earlier, i, starts[i], ii)
        )
        found.extend(
            f"{operation.name} holds {resource} longer than the interval"
            for resource, cycles in operation.uses.items()
            if cycles > ii
        )
    return found
