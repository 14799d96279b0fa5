"""What a run found: times of launches and layers, traffic, work of servers, and bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from starc.simulator.machine.services import server_layout, server_names
from starc.simulator.results.operation_log import Log
from starc.simulator.results.traffic import Times, Traffic
from starc.targets.target import Target

Shares: TypeAlias = npt.NDArray[np.float64]


class Caches(StrEnum):
    """What caches held before a run."""

    COLD = auto()  # nothing
    WARM = auto()  # what a run before it has left there


@dataclass(frozen=True)
class Bound:
    """The busiest server: its kind, where it is, and its work in picoseconds."""

    kind: str
    gpu: int
    index: int
    ps: int


@dataclass(frozen=True)
class LaunchTime:
    """One launch: its time on the slowest device and what bounds it."""

    name: str
    kind: str
    layer: int
    device: int  # the one that ends last
    start_ps: int
    end_ps: int
    spread_ps: int  # between the first and the last device to end
    bound_by: str
    busy: float  # share of the time that the busiest server works
    traffic: Traffic

    @property
    def time_ps(self) -> int:
        return self.end_ps - self.start_ps


@dataclass(frozen=True)
class LayerTime:
    """One layer kind, simulated once behind its predecessor."""

    name: str
    count: int
    device: int
    start_ps: int  # end of the predecessor
    end_ps: int
    spread_ps: int
    lower_bound_ps: int
    peak_bound_ps: int
    bound_by: str
    traffic: Traffic

    @property
    def time_ps(self) -> int:
        return self.end_ps - self.start_ps


@dataclass(frozen=True)
class SimulationResult:
    """Times in picoseconds. ``starts`` and ``ends`` are [launch, device]."""

    launches: tuple[LaunchTime, ...]
    layers: tuple[LayerTime, ...]
    traffic: Traffic
    starts: Times
    ends: Times
    work: Times  # [launch, gpu, server]
    bins: Times  # [gpu, server kind, bin]: work that begins in it
    bin_ps: int
    bins_asked: bool  # whether a report shows them
    time_ps: int
    instructions: int
    requests: int
    events: int
    wall_s: float
    clock_mhz: int  # of the cores
    caches: Caches
    simulated_gpus: int  # all of the node, or one that stands for them
    whole_node: str  # why every GPU was simulated, or nothing
    engine_counts: Times  # [launch, device, count of ``engine_counts``], none without streams
    log: Log | None = None  # of operations, where one was asked for
    warnings: tuple[str, ...] = field(default=())

    def key(self) -> tuple[Any, ...]:
        """Everything that must not depend on how the event core was executed."""
        return (
            self.starts.tolist(),
            self.ends.tolist(),
            self.work.tolist(),
            self.traffic,
            self.instructions,
            self.requests,
            self.events,
            self.engine_counts.tolist(),
            self.log.tolist() if self.log is not None else None,
        )


def busiest(work: Times, kinds: list[str]) -> Bound:
    """The busiest server of work [gpu, server]."""
    place = int(np.argmax(work))
    gpu, server = divmod(place, work.shape[1])
    kind = kinds[server]
    return Bound(kind, gpu, server - kinds.index(kind), int(work.flat[place]))


def utilization(target: Target, result: SimulationResult) -> dict[str, Shares]:
    """Share of its time that the mean server of each kind works, [gpu, bin]: work counts in the bin
    in which it begins, so that a share may exceed 1 where a server's queue is short of the next."""
    first, servers = server_layout(target)
    sizes = np.diff([*first.tolist(), servers])
    work: dict[str, Shares] = {}
    count: dict[str, int] = {}
    for kind, name in enumerate(server_names(target)):
        work[name] = work.get(name, 0.0) + result.bins[:, kind].astype(np.float64)
        count[name] = count.get(name, 0) + int(sizes[kind])
    return {
        name: total / (count[name] * result.bin_ps) for name, total in work.items() if count[name]
    }
