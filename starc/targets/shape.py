"""How many of what a GPU has, and a device of it, in one partition mode of a machine file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from starc.targets.cube_rules import grid_of
from starc.targets.cubes import Grid
from starc.targets.graph import distances, neighbours, unconnected
from starc.targets.machine_numbers import MachineNumbers

Links = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Shape:
    """A GPU of the product (``all_dies``, ``all_carriers``) and what an illustration mesh leaves
    of it (``dies``, ``carriers``)."""

    grid: Grid | None
    gpus: int
    devices_per_gpu: int
    dies_per_device: int
    dies_per_carrier: int
    all_dies: int
    all_carriers: int
    carriers: int
    memory_domains: int
    channels: int  # a channel, where stacks are modelled as several, is a stack to the simulator
    stacks_per_carrier: int
    carrier_links: Links
    gpu_links: Links
    whole_hops: float  # mean distance of dies to the stacks of a whole GPU
    mean_hops: float  # the same to those of a memory domain

    @property
    def dies(self) -> int:
        return self.devices_per_gpu * self.dies_per_device

    @property
    def stack_share(self) -> Fraction:
        """A device's share of the stacks of its GPU, which need not be a whole number."""
        stacks = self.all_carriers * self.stacks_per_carrier
        return Fraction(stacks * self.dies_per_device, self.all_dies)

    def of_device(self, amount: int) -> int:
        """A device's share of what a whole GPU has."""
        return amount * self.dies_per_device // self.all_dies

    @property
    def inner_link(self) -> str:
        """The link class of the inner axis: its slowest links."""
        if self.devices_per_gpu == 1 or self.dies <= self.dies_per_carrier:
            return "die"
        return "usr"


def shape_of(
    numbers: MachineNumbers, mode: Mapping[str, Any], gpus: int, devices_per_gpu: int
) -> Shape:
    """The shape of ``gpus`` GPUs of ``devices_per_gpu`` devices in a mode of a machine file."""
    grid = grid_of(numbers.values())
    each, per_device = numbers.count("structure.dies_per_carrier"), int(mode["dies_per_device"])
    all_dies, dies = numbers.count("structure.dies"), devices_per_gpu * per_device
    all_carriers = numbers.count("structure.carriers", default=-(-all_dies // each))
    carriers = all_carriers if dies == all_dies else -(-dies // each)
    domains = min(int(mode["memory_domains"]), carriers)
    channels = numbers.count("memory.channels", default=1)
    every_link = numbers.pairs("fabric", "carrier_links")
    links = tuple(pair for pair in every_link if max(pair) < carriers)
    gpu_links = tuple(pair for pair in numbers.pairs("fabric", "gpu_links") if max(pair) < gpus)
    if _leave_some(numbers, "carrier_links", carriers, links) | _leave_some(
        numbers, "gpu_links", gpus, gpu_links
    ):
        links, gpu_links = (), ()

    def hops(count: int, between: Links, standing: int, parts: int) -> float:
        # PEs have memory of their own, which all of their loads reach.
        homes = sorted({die // each for die in range(standing)})
        return 0.0 if grid is not None else _mean_hops(count, between, homes, parts)

    return Shape(
        grid=grid,
        gpus=gpus,
        devices_per_gpu=devices_per_gpu,
        dies_per_device=per_device,
        dies_per_carrier=each,
        all_dies=all_dies,
        all_carriers=all_carriers,
        carriers=carriers,
        memory_domains=domains,
        channels=channels,
        stacks_per_carrier=numbers.count("structure.stacks_per_carrier") * channels,
        carrier_links=links,
        gpu_links=gpu_links,
        whole_hops=hops(all_carriers, every_link, all_dies, 1),
        mean_hops=hops(carriers, links, dies, domains),
    )


def _leave_some(numbers: MachineNumbers, key: str, count: int, links: Links) -> bool:
    """Notes where the links that a mesh keeps do not reach all that it has."""
    if not numbers.pairs("fabric", key) or not (away := unconnected(count, links)):
        return False
    message = f"the first {count} of them leave {away[0]} without a way"
    numbers.wrong(f"fabric.{key}", message)
    return True


def _mean_hops(carriers: int, links: Links, homes: Sequence[int], domains: int) -> float:
    """Mean distance between the carriers that dies stand on, ``homes``, and those whose stacks the
    memory of the dies' domain lies on; domains are runs of carriers."""
    far = distances(neighbours(carriers, links))
    size = carriers // domains
    pairs = [
        far[a][b]
        for a in homes
        for b in range(carriers)
        if min(a // size, domains - 1) == min(b // size, domains - 1)
    ]
    return sum(pairs) / len(pairs)
