"""What a GPU does in a time: operations and bytes, from the work of its servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from starc.backend.program import Opcode, Program
from starc.core.element_types import ElementType
from starc.simulator.machine.services import server_layout
from starc.simulator.results.result import SimulationResult
from starc.simulator.results.traffic import Times
from starc.simulator.state.servers import (
    CU_LOAD,
    CU_STORE,
    L2_READ,
    L2_WRITE,
    LINK,
    MATRIX,
    NOC,
    PORT_DOWN,
    PORT_UP,
    VECTOR,
    XGMI,
)
from starc.targets.target import Target

PICO: Final = 1e-12

# Servers of the core clock, of which the busiest is taken to be on a launch's critical path.
_CLOCKED: Final = (
    CU_LOAD,
    CU_STORE,
    MATRIX,
    VECTOR,
    L2_READ,
    L2_WRITE,
    PORT_UP,
    PORT_DOWN,
)


@dataclass(frozen=True)
class Usage:
    """What one GPU does in a time, the mean over the GPUs of a node: seconds, FLOP by element type,
    and bytes at L2s, at ports of dies with the memory slices behind them, over carrier links
    (times links crossed), at memory stacks and to other GPUs. ``clocked_s`` of the seconds are
    those of the busiest servers of the core clock."""

    seconds: float
    clocked_s: float
    flops: Mapping[str, float]
    l2_bytes: float
    fabric_bytes: float
    hop_bytes: float
    hbm_bytes: float
    xgmi_bytes: float

    def times(self, count: float) -> Usage:
        """So many times the same."""
        return Usage(
            self.seconds * count,
            self.clocked_s * count,
            {name: value * count for name, value in self.flops.items()},
            *(
                value * count
                for value in (
                    self.l2_bytes,
                    self.fabric_bytes,
                    self.hop_bytes,
                    self.hbm_bytes,
                    self.xgmi_bytes,
                )
            ),
        )

    def __add__(self, other: Usage) -> Usage:
        names = sorted({*self.flops, *other.flops})
        return Usage(
            self.seconds + other.seconds,
            self.clocked_s + other.clocked_s,
            {name: self.flops.get(name, 0.0) + other.flops.get(name, 0.0) for name in names},
            self.l2_bytes + other.l2_bytes,
            self.fabric_bytes + other.fabric_bytes,
            self.hop_bytes + other.hop_bytes,
            self.hbm_bytes + other.hbm_bytes,
            self.xgmi_bytes + other.xgmi_bytes,
        )


NOTHING: Final = Usage(0.0, 0.0, {}, 0.0, 0.0, 0.0, 0.0, 0.0)


def matrix_types(program: Program, launch: int) -> dict[str, float]:
    """Element types of a launch's matrix operations with their shares of its instructions' work,
    repetitions not counted: a kernel that mixes types does so in one loop."""
    work: dict[str, float] = {}
    row = program.launches[launch]
    first, parts = int(row["first_part"]), int(row["parts"])
    for part in program.parts[first : first + parts]:
        template = program.templates[int(part["template"])]
        begin = template.first_record
        for record in program.records[begin : begin + template.records]:
            if int(record["op"]) == Opcode.MATRIX:
                tile = program.tiles[template.first_tile + int(record["a"])]
                name = ElementType(int(tile["dtype"])).format.name
                amount = float(record["n0"]) * float(record["n1"]) * float(record["n2"])
                work[name] = work.get(name, 0.0) + amount
    total = sum(work.values())
    return {name: amount / total for name, amount in sorted(work.items()) if total}


def usage_of(
    program: Program, target: Target, result: SimulationResult, launch: int, seconds: float
) -> Usage:
    """What a launch does on one GPU, in a time. ``target`` is the machine of the result."""
    first, servers = server_layout(target)
    edges = [*first.tolist(), servers]
    per_gpu: Times = result.work[launch].mean(axis=0)

    def ps(kind: int) -> float:
        return float(per_gpu[edges[kind] : edges[kind + 1]].sum())

    def moved(kind: int, rate: float) -> float:
        return ps(kind) * PICO * rate

    busiest = max(
        float(np.max(per_gpu[edges[kind] : edges[kind + 1]], initial=0.0)) for kind in _CLOCKED
    )
    port = target.per_clock(target.die_port_bytes_per_clock)
    traffic = result.launches[launch].traffic
    return Usage(
        seconds=seconds,
        clocked_s=min(seconds, busiest * PICO),
        flops={
            name: share * moved(MATRIX, target.matrix_rate(name))
            for name, share in matrix_types(program, launch).items()
        },
        l2_bytes=moved(L2_READ, target.per_clock(target.l2_bytes_per_clock))
        + moved(L2_WRITE, target.per_clock(target.l2_write_bytes_per_clock)),
        fabric_bytes=moved(PORT_UP, port) + moved(PORT_DOWN, port),
        hop_bytes=moved(LINK, target.link_rate[target.carrier_links_by_class[0]])
        + moved(NOC, target.link_rate[target.carrier_links_by_class[-1]]),
        hbm_bytes=(traffic.hbm_read_bytes + traffic.hbm_write_bytes) / target.gpus,
        xgmi_bytes=moved(XGMI, target.link_rate[target.gpu_link]),
    )


def steady_usage(program: Program, target: Target, result: SimulationResult) -> Usage:
    """What one GPU does while the whole model runs once: every layer kind as often as it occurs,
    from its predecessor's end to its own."""
    total = NOTHING
    times = {layer.name: layer.time_ps for layer in result.layers}
    for layer in program.layers:
        if layer.name not in times:
            continue
        launches = range(layer.first_launch, layer.first_launch + layer.launches)
        used = NOTHING
        for launch in launches:
            time = result.launches[launch].time_ps * PICO
            used = used + usage_of(program, target, result, launch, time)
        # Launches of two queues overlap, and there are gaps between launches.
        seconds = times[layer.name] * PICO
        used = replace(used, seconds=seconds, clocked_s=min(seconds, used.clocked_s))
        total = total + used.times(layer.count)
    return total
