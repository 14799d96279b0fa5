"""What the schedule of a collective puts on the links, and asks of devices, in every step.

Loads are those of all groups of the mesh at once, on the ways that the machine has: a device's puts
to another GPU go over the carriers to the port that leads there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from starc.core.collectives.link_ways import Link, Machine, Ways, link_classes, ways_of
from starc.core.collectives.schedules import Action, Schedule, Transfer
from starc.core.collectives.table import mates_for, unit_schedule
from starc.core.sharding.mesh import AxisRef, Mesh

if TYPE_CHECKING:
    from starc.targets.target import Target


@dataclass(frozen=True)
class Step:
    """Loads of ``times`` equal steps, as shares of the payload (what one device holds in full).

    ``links`` are what the busiest directed link of each class carries, ``sent`` and ``received``
    what the busiest device puts and gets, ``reduced`` what it gets to combine; ``way_ps`` and
    ``mean_way_ps`` are the longest and the mean way of a put, ``peers`` and ``arrivals`` to how
    many a device puts and how many contributions it combines. ``pulled`` data are read where they
    are instead of being put and staged. Of what a device puts ``read`` is different data, in
    ``chunks`` parts.
    """

    times: int
    links: tuple[tuple[str, float], ...]
    sent: float
    received: float
    reduced: float
    way_ps: int
    mean_way_ps: float
    peers: int
    arrivals: int
    pulled: bool
    read: float
    chunks: int

    def load(self, link_class: str) -> float:
        """What the busiest directed link of a class carries."""
        return dict(self.links).get(link_class, 0.0)


def steps_of(
    operation: str,
    algorithm: str,
    mesh: Mesh,
    axes: Sequence[AxisRef],
    target: Target,
    strides: tuple[int, ...] = (1,),
) -> tuple[Step, ...]:
    """The steps of a collective that runs in all groups along ``axes`` at once."""
    return _steps_of(operation, algorithm, mesh, tuple(axes), Machine(target), strides)


@lru_cache(maxsize=1024)
def _steps_of(
    operation: str,
    algorithm: str,
    mesh: Mesh,
    axes: tuple[AxisRef, ...],
    machine: Machine,
    strides: tuple[int, ...],
) -> tuple[Step, ...]:
    groups = mesh.groups(axes)
    size = len(groups[0])
    if size < 2:
        return ()
    mates = mates_for(algorithm, mesh, axes, machine.target)
    schedule = unit_schedule(operation, algorithm, tuple(range(size)), mates, strides)
    between = ways_of(machine)
    groups = _unlike(groups, machine.target.devices_per_gpu)
    known: dict[_StepTraffic, Step] = {}
    found: list[Step] = []
    for traffic in _traffic(schedule):
        if traffic not in known:
            known[traffic] = _step(traffic, schedule, groups, between, machine.target)
        found.append(known[traffic])
    return tuple(_joined(found))


def _unlike(groups: Sequence[Sequence[int]], per_gpu: int) -> Sequence[Sequence[int]]:
    """The groups whose loads count: where none leaves its GPU and all GPUs have the same ones,
    those of the first GPU, for all GPUs are built alike."""
    by_gpu: dict[int, set[tuple[int, ...]]] = {}
    for group in groups:
        gpu = group[0] // per_gpu
        if any(device // per_gpu != gpu for device in group):
            return groups
        by_gpu.setdefault(gpu, set()).add(tuple(device % per_gpu for device in group))
    first, *others = by_gpu.values()
    if any(other != first for other in others):
        return groups
    return [group for group in groups if group[0] // per_gpu == groups[0][0] // per_gpu]


@dataclass(frozen=True)
class _StepTraffic:
    """What the devices of a group send in a step: (source, target, elements, whether they are
    combined); of what the busiest one sends ``read`` elements are different data, in ``chunks``
    parts."""

    transfers: tuple[tuple[int, int, int, bool], ...]
    read: int
    chunks: int


def _traffic(schedule: Schedule) -> Iterator[_StepTraffic]:
    """The traffic of every step."""
    by_step: list[list[Transfer]] = [[] for _ in range(schedule.steps)]
    for transfer in schedule.transfers:
        by_step[transfer.step].append(transfer)
    for transfers in by_step:
        distinct: dict[int, dict[int, int]] = {}
        sent: list[tuple[int, int, int, bool]] = []
        for transfer in transfers:
            amount = schedule.chunk_size(transfer.chunk)
            reduces = transfer.action is Action.REDUCE
            sent.append((transfer.source, transfer.target, amount, reduces))
            distinct.setdefault(transfer.source, {})[transfer.chunk] = amount
        read = max((sum(chunks.values()) for chunks in distinct.values()), default=0)
        yield _StepTraffic(tuple(sent), read, max(map(len, distinct.values()), default=0))


def _step(
    traffic: _StepTraffic,
    schedule: Schedule,
    groups: Sequence[Sequence[int]],
    between: Ways,
    target: Target,
) -> Step:
    """The loads of one step."""
    links: Counter[Link] = Counter()
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    reduced: Counter[int] = Counter()
    peers: dict[int, set[int]] = {}
    arrivals: Counter[int] = Counter()
    ways: list[int] = []
    for source, sink, amount, is_reduced in traffic.transfers:
        sent[source] += amount
        received[sink] += amount
        reduced[sink] += amount if is_reduced else 0
        arrivals[sink] += is_reduced
        peers.setdefault(source, set()).add(sink)
        for group in groups:
            crossed, time = between[group[source], group[sink]]
            ways.append(time)
            for link in crossed:
                links[link] += amount
    whole = schedule.elements
    busiest: Counter[str] = Counter()
    for link, amount in links.items():
        busiest[link[0]] = max(busiest[link[0]], amount)
    return Step(
        times=1,
        links=tuple((name, busiest[name] / whole) for name in link_classes(target)),
        sent=max(sent.values(), default=0) / whole,
        received=max(received.values(), default=0) / whole,
        reduced=max(reduced.values(), default=0) / whole,
        way_ps=max(ways, default=0),
        mean_way_ps=sum(ways) / max(len(ways), 1),
        peers=max(map(len, peers.values()), default=0),
        arrivals=max(arrivals.values(), default=0),
        pulled=schedule.pulled,
        read=traffic.read / whole,
        chunks=traffic.chunks,
    )


def _joined(steps: Sequence[Step]) -> list[Step]:
    """Equal steps in a row as one."""
    result: list[Step] = []
    for step in steps:
        if result and replace(result[-1], times=1) == step:
            result[-1] = replace(step, times=result[-1].times + 1)
        else:
            result.append(step)
    return result
