"""What a run found: times of launches and layers, traffic, work of servers, and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from starc.backend.program import Program
from starc.simulator import state as st
from starc.simulator.engine_counts import ENGINE_COUNTS
from starc.simulator.machine import server_layout
from starc.simulator.operation_log import Log
from starc.simulator.state import State
from starc.targets.target import Target

Times: TypeAlias = npt.NDArray[np.int64]
Shares: TypeAlias = npt.NDArray[np.float64]

# Below this share of its time no server of a launch is what bounds it.
_BUSY = 0.5


@dataclass(frozen=True)
class Traffic:
    """Bytes of a launch, a layer or a run over the whole node.

    ``usr_bytes`` are bytes that crossed carrier-to-carrier links, counted once each, ``links`` the
    bytes times the links that they crossed, by class; ``logical`` counts each transfer between
    devices once, under the farthest class that it needs.
    """

    hbm_read_bytes: int
    hbm_write_bytes: int
    hbm_remote_bytes: int  # at memory of another carrier than the die's
    memory_bytes: int  # at memory slices, cache hits included
    mall_hit_bytes: int
    l2_hit_bytes: int
    l2_miss_bytes: int
    usr_bytes: int
    xgmi_bytes: int
    die_bytes: int
    links: Mapping[str, int]
    logical: Mapping[str, int]


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
    caches: str  # cold or warm, before the run
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


def _traffic(counts: Times, target: Target) -> Traffic:
    """The traffic of counters [..., kind], summed over everything else. The classes of links have
    the names that the target gives them."""
    total = counts.reshape(-1, st.COUNTS).sum(axis=0).tolist()
    classes = target.carrier_links_by_class
    links = dict(zip(classes, (total[st.COUNT_USR_LINKS], total[st.COUNT_NOC_LINKS]), strict=False))
    links[target.gpu_link] = total[st.COUNT_XGMI]
    if target.has_l2:
        links["die"] = total[st.COUNT_DIE]
    # Between devices of one carrier nothing but their ports is passed; between PEs links are.
    nearest = "die" if target.has_l2 else classes[0]
    logical = {
        classes[-1]: total[st.COUNT_LOGICAL_USR],
        target.gpu_link: total[st.COUNT_LOGICAL_XGMI],
        nearest: total[st.COUNT_LOGICAL_DIE],
    }
    return Traffic(
        hbm_read_bytes=total[st.COUNT_HBM_READ],
        hbm_write_bytes=total[st.COUNT_HBM_WRITE],
        hbm_remote_bytes=total[st.COUNT_REMOTE],
        memory_bytes=total[st.COUNT_SLICE],
        mall_hit_bytes=total[st.COUNT_MALL_HIT],
        l2_hit_bytes=total[st.COUNT_L2_HIT],
        l2_miss_bytes=total[st.COUNT_L2_MISS],
        usr_bytes=total[st.COUNT_USR],
        xgmi_bytes=total[st.COUNT_XGMI],
        die_bytes=total[st.COUNT_DIE],
        links=links,
        logical=logical,
    )


def _engine_counts(state: State, launches: int, devices: int) -> Times:
    """The counts of engines of launches and devices; none where templates are single streams."""
    return state.engine_counts.reshape(-1, devices, ENGINE_COUNTS)[:launches]


def server_names(target: Target) -> tuple[str, ...]:
    """The names of the kinds of servers: of links, those of their classes."""
    names: list[str] = [*st.SERVER_NAMES]
    names[st.LINK] = target.carrier_links_by_class[0]
    names[st.XGMI] = target.gpu_link
    return tuple(names)


def server_kinds(target: Target) -> list[str]:
    """The kind of every server of a GPU."""
    first, servers = server_layout(target)
    sizes = np.diff([*first.tolist(), servers])
    return [
        name for name, size in zip(server_names(target), sizes, strict=True) for _ in range(size)
    ]


def busiest(work: Times, kinds: list[str]) -> Bound:
    """The busiest server of work [gpu, server]."""
    place = int(np.argmax(work))
    gpu, server = divmod(place, work.shape[1])
    kind = kinds[server]
    return Bound(kind, gpu, server - kinds.index(kind), int(work.flat[place]))


def _peak_shares(target: Target, kinds: list[str]) -> npt.NDArray[np.float64]:
    """Sustained over peak rate of every server: what turns work into time at the vendor's peak."""
    shares = {
        "hbm": target.hbm_stack_rate
        * min(target.hbm_read_share, target.hbm_write_share)
        / target.hbm_stack_peak,
        "mall": target.mall_stack_rate / target.mall_stack_peak,
        "matrix": target.matrix_sustained,
        **{name: rate / target.link_peak[name] for name, rate in target.link_rate.items()},
    }
    return np.array([shares.get(kind, 1.0) for kind in kinds])


def _bins(state: State, target: Target) -> Times:
    """Work over time, to the last bin in which some begins; of one GPU that stands for all, for
    each of them."""
    bins: Times = state.bins.reshape(-1, st.SERVER_KINDS, st.BINS)
    used = int(np.flatnonzero(bins.any(axis=(0, 1))).max(initial=-1)) + 1
    return np.repeat(bins[:, :, :used], target.gpus // len(bins), axis=0)


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


def collect(
    program: Program,
    target: Target,
    state: State,
    wall_s: float,
    *,
    caches: str = "cold",
    simulated_gpus: int | None = None,
    whole_node: str = "",
    log: Log | None = None,
) -> SimulationResult:
    """The result in a state in which every launch has ended."""
    count = len(program.launches)
    devices = target.devices
    starts = state.starts.reshape(-1, devices)[:count]
    ends = state.ends.reshape(-1, devices)[:count]
    work = state.work.reshape(max(1, count), target.gpus, -1)[:count]
    counts = state.counts.reshape(max(1, count), -1)[:count]
    kinds = server_kinds(target)
    peak = _peak_shares(target, kinds)
    warnings: list[str] = []
    launches: list[LaunchTime] = []
    for i in range(count):
        device = int(np.argmax(ends[i]))
        start, end = int(starts[i, device]), int(ends[i, device])
        bound = busiest(work[i], kinds)
        busy = min(1.0, bound.ps / (end - start)) if end > start else 0.0
        if end <= start:
            warnings.append(f"{program.launch_names[i]} takes no time: it does nothing")
        launches.append(
            LaunchTime(
                program.launch_names[i],
                program.launch_kinds[i],
                int(program.launches[i]["layer"]),
                device,
                start,
                end,
                int(ends[i].max() - ends[i].min()),
                bound.kind if busy >= _BUSY else "latency",
                busy,
                _traffic(counts[i], target),
            )
        )
    layers: list[LayerTime] = []
    before = 0
    for layer in program.layers:
        rows = slice(layer.first_launch, layer.first_launch + layer.launches)
        if layer.launches == 0:
            continue
        last = ends[rows].max(axis=0)
        device = int(np.argmax(last))
        end = int(last[device])
        total: Times = work[rows].sum(axis=0)
        bound = busiest(total, kinds)
        time = end - before
        layers.append(
            LayerTime(
                layer.name,
                layer.count,
                device,
                before,
                end,
                int(last.max() - last.min()),
                # Work that is still queued at the end of the layer is not part of its time.
                min(time, bound.ps),
                min(time, int((total * peak).max())),
                bound.kind if 2 * bound.ps >= time else "latency",
                _traffic(counts[rows], target),
            )
        )
        before = end
    if count and int(ends.max()) == 0:
        warnings.append("the program takes no time: this cannot be right")
    return SimulationResult(
        launches=tuple(launches),
        layers=tuple(layers),
        traffic=_traffic(counts, target),
        starts=starts,
        ends=ends,
        work=work,
        bins=_bins(state, target),
        bin_ps=1 << int(state.stats[st.STAT_BIN_SHIFT]),
        bins_asked=False,
        time_ps=int(ends.max()) if count else 0,
        instructions=int(state.stats[st.STAT_INSTRUCTIONS]),
        requests=int(state.stats[st.STAT_REQUESTS]),
        events=int(state.stats[st.STAT_EVENTS]),
        wall_s=wall_s,
        clock_mhz=target.core_clock_mhz,
        caches=caches,
        simulated_gpus=target.gpus if simulated_gpus is None else simulated_gpus,
        whole_node=whole_node,
        engine_counts=_engine_counts(state, count, devices),
        log=log,
        warnings=tuple(warnings),
    )
