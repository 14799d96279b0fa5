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
    # Earlier operations first among equals: the program's order is a topological one.
    order = sorted(range(count), key=lambda i: (i not in on_circuit, -heights[i], i))
    rivals = _rivals(operations)
    before: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    behind: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for d in dependences:
        if d.source != d.target:
            least = d.latency - ii * d.distance
            before[d.target].append((d.source, least))
            behind[d.source].append((d.target, least))
    starts: dict[int, int] = {}
    last: dict[int, int] = {}
    for _ in range(BUDGET * count):
        if len(starts) == count:
            break
        current = next(i for i in order if i not in starts)
        earliest, latest = _room(starts, before[current], behind[current], ii)
        free = _first_free(rivals[current], starts, earliest, ii)
        if free is None or (bounded and earliest <= latest < free):
            free = max(earliest, last[current] + 1) if current in last else earliest
            for other in _in_the_way(rivals[current], starts, free, ii):
                del starts[other]
        starts[current] = last[current] = free
        for other, least in behind[current]:
            if other in starts and starts[other] < free + least:
                del starts[other]
        for other, least in before[current]:
            if other in starts and free < starts[other] + least:
                del starts[other]
    if len(starts) < count:
        return None
    return [starts[i] for i in range(count)]


def _room(
    starts: Mapping[int, int],
    before: Sequence[tuple[int, int]],
    behind: Sequence[tuple[int, int]],
    ii: int,
) -> tuple[int, int]:
    """The first and last start of an operation that placed ones before and behind it allow, within
    one interval."""
    earliest = max((starts[i] + least for i, least in before if i in starts), default=0)
    latest = min((starts[i] - least for i, least in behind if i in starts), default=None)
    earliest = max(earliest, 0)
    last = earliest + ii - 1
    return earliest, last if latest is None else min(latest, last)


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


@dataclass(frozen=True)
class _Rival:
    """An operation ``index`` that needs a resource of another one. Started at s it is in the way of
    a start of the other one from ``s - before`` to ``s + after``, both included: that holds around
    s for each resource that they share, so that the longest reach of any is that of all."""

    index: int
    before: int
    after: int


def _rivals(operations: Sequence[LoopOperation]) -> list[list[_Rival]]:
    """For each operation those that it may stand in the way of."""
    found: list[list[_Rival]] = []
    for i, operation in enumerate(operations):
        row: list[_Rival] = []
        for j, other in enumerate(operations):
            shared = [
                (cycles, held)
                for resource, cycles in operation.uses.items()
                if cycles and (held := other.uses.get(resource, 0))
            ]
            if i != j and shared:
                row.append(_Rival(j, max(c for c, _ in shared) - 1, max(h for _, h in shared) - 1))
        found.append(row)
    return found


def _in_the_way(rivals: Sequence[_Rival], starts: Mapping[int, int], at: int, ii: int) -> list[int]:
    """Placed operations whose resources an operation would need at the same time."""
    return [
        rival.index
        for rival in rivals
        if (start := starts.get(rival.index)) is not None
        and ((start - at) % ii <= rival.before or (at - start) % ii <= rival.after)
    ]


def _first_free(
    rivals: Sequence[_Rival], starts: Mapping[int, int], earliest: int, ii: int
) -> int | None:
    """The first cycle in ``earliest .. earliest + ii - 1`` where the resources are free: the end of
    the times from there on that follow each other without a hole."""
    taken: list[tuple[int, int]] = []
    for rival in rivals:
        start = starts.get(rival.index)
        if start is None:
            continue
        length = rival.before + rival.after + 1
        if length >= ii:
            return None
        first = (start - rival.before - earliest) % ii
        taken.append((first, first + length))
        if first + length > ii:
            taken.append((0, first + length - ii))
    taken.sort()
    at = 0
    for first, end in taken:
        if first > at:
            break
        at = max(at, end)
    return earliest + at if at < ii else None


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
    rivals = _rivals(operations)
    for i in sorted(sinkable, key=lambda i: -starts[i]):
        limits = [
            starts[d.target] - d.latency + ii * d.distance
            for d in dependences
            if d.source == i != d.target
        ]
        if not limits:
            continue
        latest = min(limits)
        others = dict(enumerate(starts))
        candidates = {latest}
        for rival in rivals[i]:
            candidates.add(latest - (latest - (starts[rival.index] - rival.before - 1)) % ii)
        for at in sorted(candidates, reverse=True):
            if at <= starts[i]:
                break
            if not _in_the_way(rivals[i], others, at, ii):
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
    rivals = _rivals(operations)
    for i in sorted(early, key=lambda i: starts[i]):
        limits = [
            starts[d.source] + d.latency - ii * d.distance
            for d in dependences
            if d.target == i != d.source
        ]
        if not limits:
            continue
        at = _first_free(rivals[i], dict(enumerate(starts)), max(limits), ii)
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
    rivals = _rivals(operations)
    for d in dependences:
        if starts[d.target] + ii * d.distance < starts[d.source] + d.latency:
            found.append(f"{operations[d.target].name} starts before {operations[d.source].name}")
    for i, operation in enumerate(operations):
        earlier = {j: starts[j] for j in range(i)}
        found.extend(
            f"{operation.name} and {operations[j].name} use a resource at the same time"
            for j in _in_the_way(rivals[i], earlier, starts[i], ii)
        )
        found.extend(
            f"{operation.name} holds {resource} longer than the interval"
            for resource, cycles in operation.uses.items()
            if cycles > ii
        )
    return found
