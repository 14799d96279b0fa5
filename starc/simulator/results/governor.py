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

from starc.backend.program import Program
from starc.simulator.results.result import SimulationResult
from starc.simulator.results.usage import PICO, Usage, steady_usage
from starc.targets.target import Target

# The core clock of a device goes down to this share of the largest, whatever the power.
_LEAST_SHARE: Final = 0.25


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
        one = PICO / seconds
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
        return watts / (rate * PICO * self.voltage(clock_mhz) ** 2)

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
