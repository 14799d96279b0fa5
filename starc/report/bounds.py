"""Bounds of a layer that follow from what its operations need, whatever the program.

A layer must read its weights, and the part of the KV cache that was there before the step, from
memory, must do its matrix operations, and must exchange what its collectives exchange. Each class
of work over the rate of its servers is a bound, and the largest of them is the layer's. What a
layer's kernels hand to each other need never reach memory, as far as anybody knows who does not
know the order of the work, and does not count.

A single kernel must besides read and write its activations; caches may hold some of them before it
starts and after it has ended, so that what counts is what exceeds them (``launch_bound_work``).

Rates are a device's share of its GPU, so that bounds hold for the devices together: from when the
first one starts to when the last one ends. A device whose neighbours at the same memory are at
something else can be faster by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from starc.backend.program import LayerInfo, Program
from starc.core.kernel_schedules.device_rates import links_per_device
from starc.targets.target import Target


@dataclass
class Work:
    """Compulsory work of one device: FLOP by element type, bytes from memory, bytes sent by link
    class."""

    flops: dict[str, int] = field(default_factory=dict[str, int])
    memory_bytes: int = 0
    link_bytes: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, attributes: dict[str, int | float | str], memory: str) -> None:
        """Adds a launch; ``memory`` names the attribute that counts its bytes."""
        flops = int(attributes.get("flops", 0))
        if flops:
            dtype = str(attributes.get("dtype", "bf16"))
            self.flops[dtype] = self.flops.get(dtype, 0) + flops
        self.memory_bytes += int(attributes.get(memory, 0))
        for key, value in attributes.items():
            if key.startswith("link."):
                name = key.removeprefix("link.")
                self.link_bytes[name] = self.link_bytes.get(name, 0) + int(value)

    def times(self, target: Target, *, peak: bool = False) -> dict[str, float]:
        """Seconds by class of server, at sustained rates or at the vendor's peaks."""
        units = target.dies_per_device * target.cus_per_die
        rates = target.link_peak if peak else target.link_rate
        times = {
            "hbm": self.memory_bytes / (target.hbm_peak if peak else target.hbm_rate),
            "matrix": sum(
                flops / (units * target.matrix_rate(dtype, sustained=not peak))
                for dtype, flops in self.flops.items()
            ),
        }
        for name, sent in self.link_bytes.items():
            if name in rates:
                times[name] = sent / (rates[name] * links_per_device(target, name))
        return times


def layer_work(program: Program, layer: LayerInfo) -> Work:
    """The compulsory work of a layer with cold caches."""
    work = Work()
    for launch in launches(layer):
        work.add(program.launch_attributes[launch], "cold_bytes")
    return work


def launch_work(program: Program, launch: int) -> Work:
    """The compulsory work of one launch: every operand read once, every result written once."""
    work = Work()
    work.add(program.launch_attributes[launch], "bytes")
    return work


def launch_bound_work(program: Program, launch: int, target: Target) -> Work:
    """The work of one launch that takes its time whatever ran before it: what is cold comes from
    memory, and of the other operands and the results all but what the caches of a device hold when
    it starts, and hold back when it ends."""
    attributes = program.launch_attributes[launch]
    work = launch_work(program, launch)
    cold = int(attributes.get("cold_bytes", 0))
    caches = target.l2_bytes_per_die * target.dies_per_device + target.mall_bytes
    work.memory_bytes = cold + max(0, work.memory_bytes - cold - 2 * caches)
    return work


def launches(layer: LayerInfo) -> Iterable[int]:
    """The launches of a layer."""
    return range(layer.first_launch, layer.first_launch + layer.launches)


def largest(times: dict[str, float]) -> tuple[str, float]:
    """The class with the longest time."""
    name = max(times, key=lambda key: times[key])
    return name, times[name]
