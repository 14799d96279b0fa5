"""The result in a state in which every launch has ended."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from starc.backend.program import LayerInfo, Program
from starc.simulator.machine.services import server_kinds
from starc.simulator.results.operation_log import Log
from starc.simulator.results.result import (
    Caches,
    LaunchTime,
    LayerTime,
    Shares,
    SimulationResult,
    busiest,
)
from starc.simulator.results.traffic import Times, traffic_of
from starc.simulator.state.arrays import State
from starc.simulator.state.counts import (
    BINS,
    STAT_BIN_SHIFT,
    STAT_EVENTS,
    STAT_INSTRUCTIONS,
    STAT_REQUESTS,
)
from starc.simulator.state.engine_counts import ENGINE_COUNTS
from starc.simulator.state.servers import SERVER_KINDS
from starc.targets.target import Target

# Below this share of its time no server of a launch is what bounds it.
_BUSY = 0.5


def _engine_counts(state: State, launches: int, devices: int) -> Times:
    """The counts of engines of launches and devices; none where templates are single streams."""
    return state.engine_counts.reshape(-1, devices, ENGINE_COUNTS)[:launches]


def _peak_shares(target: Target, kinds: list[str]) -> Shares:
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
    bins: Times = state.bins.reshape(-1, SERVER_KINDS, BINS)
    used = int(np.flatnonzero(bins.any(axis=(0, 1))).max(initial=-1)) + 1
    return np.repeat(bins[:, :, :used], target.gpus // len(bins), axis=0)


def collect(
    program: Program,
    target: Target,
    state: State,
    wall_s: float,
    *,
    caches: Caches = Caches.COLD,
    simulated_gpus: int | None = None,
    whole_node: str = "",
    log: Log | None = None,
) -> SimulationResult:
    """The result in a state in which every launch has ended."""
    found = _Found.of(program, target, state)
    launches = tuple(found.launch(i) for i in range(len(program.launches)))
    warnings = [
        f"{launch.name} takes no time: it does nothing"
        for launch in launches
        if launch.time_ps <= 0
    ]
    time = int(found.ends.max(initial=0))
    if launches and not time:
        warnings.append("the program takes no time: this cannot be right")
    return SimulationResult(
        launches=launches,
        layers=found.layers(),
        traffic=traffic_of(found.counts, target),
        starts=found.starts,
        ends=found.ends,
        work=found.work,
        bins=_bins(state, target),
        bin_ps=1 << int(state.stats[STAT_BIN_SHIFT]),
        bins_asked=False,
        time_ps=time,
        instructions=int(state.stats[STAT_INSTRUCTIONS]),
        requests=int(state.stats[STAT_REQUESTS]),
        events=int(state.stats[STAT_EVENTS]),
        wall_s=wall_s,
        clock_mhz=target.core_clock_mhz,
        caches=caches,
        simulated_gpus=target.gpus if simulated_gpus is None else simulated_gpus,
        whole_node=whole_node,
        engine_counts=_engine_counts(state, len(launches), target.devices),
        log=log,
        warnings=tuple(warnings),
    )


@dataclass(frozen=True)
class _Found:
    """What a run has found, by launch: [launch, device], [launch, GPU, server], [launch, counter of
    a GPU]."""

    program: Program
    target: Target
    starts: Times
    ends: Times
    work: Times
    counts: Times
    kinds: list[str]  # of servers

    @classmethod
    def of(cls, program: Program, target: Target, state: State) -> _Found:
        count, rows = len(program.launches), max(1, len(program.launches))
        return cls(
            program,
            target,
            state.starts.reshape(-1, target.devices)[:count],
            state.ends.reshape(-1, target.devices)[:count],
            state.work.reshape(rows, target.gpus, -1)[:count],
            state.counts.reshape(rows, -1)[:count],
            server_kinds(target),
        )

    def launch(self, i: int) -> LaunchTime:
        """The time of a launch on the device that ends last, and what bounds it."""
        ends = self.ends[i]
        device = int(np.argmax(ends))
        start, end = int(self.starts[i, device]), int(ends[device])
        bound = busiest(self.work[i], self.kinds)
        busy = min(1.0, bound.ps / (end - start)) if end > start else 0.0
        return LaunchTime(
            self.program.launch_names[i],
            self.program.launch_kinds[i],
            int(self.program.launches[i]["layer"]),
            device,
            start,
            end,
            int(ends.max() - ends.min()),
            bound.kind if busy >= _BUSY else "latency",
            busy,
            traffic_of(self.counts[i], self.target),
        )

    def layers(self) -> tuple[LayerTime, ...]:
        """The times of the layers that launch something, one behind the other."""
        layers: list[LayerTime] = []
        before = 0
        peak = _peak_shares(self.target, self.kinds)
        for layer in self.program.layers:
            if layer.launches:
                layers.append(self._layer(layer, before, peak))
                before = layers[-1].end_ps
        return tuple(layers)

    def _layer(self, layer: LayerInfo, before: int, peak: Shares) -> LayerTime:
        rows = slice(layer.first_launch, layer.first_launch + layer.launches)
        last = self.ends[rows].max(axis=0)
        device = int(np.argmax(last))
        end = int(last[device])
        total: Times = self.work[rows].sum(axis=0)
        bound = busiest(total, self.kinds)
        time = end - before
        return LayerTime(
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
            traffic_of(self.counts[rows], self.target),
        )
