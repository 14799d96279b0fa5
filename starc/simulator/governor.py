"""Power of a run, and the clock that a power cap leaves, outside of the event core.

The servers of a run say what it did: their work is operations and bytes. Each has an energy; those
of what the core clock drives grow with the square of the voltage, which rises with the clock:

    power = static + (clock power x f / f0 + operations + L2 bytes) x v^2 + fabric + hops + stacks
    v = 1 + slope x (f / f0 - 1)

A program that is repeated for long runs at the one clock at which its mean power is the cap, or at
the largest if the cap is not reached. ``govern`` finds it from a run at the largest clock, whose
time is split into what the busiest server of the core clock takes, which stretches as the clock
falls, and the rest, which does not; ``simulate_governed`` runs the program once more at that clock.

Constants are in the table ``power`` of a machine's file; a machine without one has no governor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from starc.backend.program import ElementType, Opcode, Program
from starc.simulator import state as st
from starc.simulator.machine import server_layout
from starc.simulator.options import SimulationOptions
from starc.simulator.result import SimulationResult, Times
from starc.targets.target import Target

_PICO: Final = 1e-12
_TYPES: Final[Mapping[int, str]] = {
    ElementType.BF16: "bf16",
    ElementType.F16: "f16",
    ElementType.F32: "f32",
    ElementType.F8E4M3FN: "f8E4M3FN",
}
# The core clock of a device goes down to this share of the largest, whatever the power.
_LEAST_SHARE: Final = 0.25
# Servers of the core clock, of which the busiest is taken to be on a launch's critical path.
_CLOCKED: Final = (
    st.CU_LOAD,
    st.CU_STORE,
    st.MATRIX,
    st.VECTOR,
    st.L2_READ,
    st.L2_WRITE,
    st.PORT_UP,
    st.PORT_DOWN,
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


@dataclass(frozen=True)
class PowerModel:
    """The constants of a machine's table ``power``: watts, and picojoules an operation or byte."""

    constants: Mapping[str, float]

    @classmethod
    def of(cls, target: Target) -> PowerModel | None:
        """The model of a machine, None where its file has none."""
        return cls(target.power) if target.power else None

    @cached_property
    def cap_w(self) -> float:
        """What the device may take."""
        return self.constants["cap"]

    def voltage(self, clock_mhz: float) -> float:
        """The core's voltage relative to that at the reference clock."""
        share = clock_mhz / self.constants["reference_mhz"]
        return 1.0 + self.constants["slope"] * (share - 1.0)

    def matrix_pj(self, dtype: str) -> float:
        """Of one FLOP; a type without an entry costs what f32 does."""
        return self.constants.get(f"matrix_{dtype}", self.constants["matrix_f32"])

    def parts(self, usage: Usage, clock_mhz: float) -> dict[str, float]:
        """Mean power by what takes it, in watts, of a GPU that does this at a clock."""
        square = self.voltage(clock_mhz) ** 2
        share = clock_mhz / self.constants["reference_mhz"]
        seconds = usage.seconds or 1.0
        matrix = sum(flops * self.matrix_pj(name) for name, flops in usage.flops.items())
        one = _PICO / seconds
        return {
            "static": self.constants["static"],
            "clock": self.constants["clock"] * share * square,
            "matrix": matrix * one * square,
            "l2": usage.l2_bytes * self.constants["l2"] * one * square,
            "fabric": usage.fabric_bytes * self.constants["fabric"] * one,
            "hops": usage.hop_bytes * self.constants["hop"] * one,
            "hbm": usage.hbm_bytes * self.constants["hbm"] * one,
            "xgmi": usage.xgmi_bytes * self.constants["xgmi"] * one,
        }

    def power_w(self, usage: Usage, clock_mhz: float) -> float:
        """Mean power of a GPU that does this at a clock."""
        return sum(self.parts(usage, clock_mhz).values())

    def matrix_energy(self, usage: Usage, dtype: str, clock_mhz: float, power_w: float) -> float:
        """The energy of a FLOP of a type, in picojoules, with which this takes so much power."""
        rest = replace(usage, flops={name: value for name, value in usage.flops.items()
                                     if name != dtype})  # fmt: skip
        watts = power_w - self.power_w(rest, clock_mhz)
        rate = usage.flops[dtype] / usage.seconds
        return watts / (rate * _PICO * self.voltage(clock_mhz) ** 2)

    def clock_mhz(self, usage: Usage, largest_mhz: int) -> int:
        """The largest clock at which this, done once at ``largest_mhz``, stays under the cap."""
        low, high = max(1, round(_LEAST_SHARE * largest_mhz)), largest_mhz
        if self.power_w(usage, largest_mhz) <= self.cap_w:
            return largest_mhz
        while low < high:
            middle = (low + high + 1) // 2
            if self.power_w(stretched(usage, largest_mhz / middle), middle) <= self.cap_w:
                low = middle
            else:
                high = middle - 1
        return low


def stretched(usage: Usage, factor: float) -> Usage:
    """The same at a core clock that is lower by a factor."""
    more = usage.clocked_s * (factor - 1.0)
    return replace(usage, seconds=usage.seconds + more, clocked_s=usage.clocked_s + more)


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
                name = _TYPES.get(int(tile["dtype"]), "f32")
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
        return ps(kind) * _PICO * rate

    busiest = max(
        float(np.max(per_gpu[edges[kind] : edges[kind + 1]], initial=0.0)) for kind in _CLOCKED
    )
    port = target.per_clock(target.die_port_bytes_per_clock)
    traffic = result.launches[launch].traffic
    return Usage(
        seconds=seconds,
        clocked_s=min(seconds, busiest * _PICO),
        flops={
            name: share * moved(st.MATRIX, target.matrix_rate(name))
            for name, share in matrix_types(program, launch).items()
        },
        l2_bytes=moved(st.L2_READ, target.per_clock(target.l2_bytes_per_clock))
        + moved(st.L2_WRITE, target.per_clock(target.l2_write_bytes_per_clock)),
        fabric_bytes=moved(st.PORT_UP, port) + moved(st.PORT_DOWN, port),
        hop_bytes=moved(st.LINK, target.link_rate[target.carrier_links_by_class[0]])
        + moved(st.NOC, target.link_rate[target.carrier_links_by_class[-1]]),
        hbm_bytes=(traffic.hbm_read_bytes + traffic.hbm_write_bytes) / target.gpus,
        xgmi_bytes=moved(st.XGMI, target.link_rate[target.gpu_link]),
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
            time = result.launches[launch].time_ps * _PICO
            used = used + usage_of(program, target, result, launch, time)
        # Launches of two queues overlap, and there are gaps between launches.
        seconds = times[layer.name] * _PICO
        used = replace(used, seconds=seconds, clocked_s=min(seconds, used.clocked_s))
        total = total + used.times(layer.count)
    return total


def power_of(program: Program, target: Target, result: SimulationResult) -> float | None:
    """Mean power of a GPU in watts while the model is run again and again, None where the machine's
    file has no constants or nothing ran. ``target`` is the machine of the result."""
    model = PowerModel.of(target)
    if model is None or not result.layers:
        return None
    usage = steady_usage(program, target, result)
    return model.power_w(usage, target.core_clock_mhz) if usage.seconds else None


def govern(program: Program, target: Target, result: SimulationResult) -> int | None:
    """The core clock in MHz that the power cap leaves a program which ran on ``target`` with this
    result; None where the cap does not limit it, or is not known."""
    model = PowerModel.of(target)
    if model is None or not result.layers:
        return None
    usage = steady_usage(program, target, result)
    if not usage.seconds:
        return None
    clock = model.clock_mhz(usage, target.core_clock_mhz)
    return clock if clock < target.core_clock_mhz else None


def at_clock(target: Target, clock_mhz: int) -> Target:
    """The machine at another core clock: compute units, matrix and vector engines, L2s and the
    ports of compute units and dies follow it, fabric and memory do not."""
    if clock_mhz == target.core_clock_mhz:
        return target
    port = target.die_port_bytes_per_clock * clock_mhz * 1_000_000
    return replace(
        target,
        core_clock_mhz=clock_mhz,
        link_rate={**target.link_rate} | ({"die": port} if target.has_l2 else {}),
        link_peak={**target.link_peak} | ({"die": port} if target.has_l2 else {}),
    )


def simulate_governed(
    program: Program, options: SimulationOptions | None = None
) -> SimulationResult:
    """Runs a program as ``simulate`` does, and once more at the clock that the power cap leaves if
    that is lower. Raises what ``simulate`` raises."""
    from starc.simulator.run import simulate

    return simulate(program, replace(options or SimulationOptions(), governor=True))
