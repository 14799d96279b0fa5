"""The links that data cross from one device to the memory of another, and the time of the way.

A link is (class, GPU or -1, from, to). Within a GPU data cross the links between carriers by the
first of the shortest ways, or, between cubes of memory, go XY; to another GPU they leave by the
port that leads there.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from starc.targets.cubes import NOC, PE_MESH, UCIE, Network
from starc.targets.graph import gpu_path, neighbours, path, port_carrier, port_to

if TYPE_CHECKING:
    from starc.targets.target import Target

Link = tuple[str, int, int, int]


class Machine:
    """A target as a key: two are equal if data take the same ways in them."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._key = (
            target.devices_per_gpu,
            target.dies_per_device,
            target.dies_per_carrier,
            target.carriers,
            target.mesh[1:] if target.grid else (),
            target.grid,
            target.ports,
            target.ports_per_carrier,
            target.port_carriers,
            target.network,
            target.carrier_links,
            target.gpu_links,
            target.gpus,
            target.hop_latency_ps,
            target.noc_hop_latency_ps,
            target.mall_latency_ps,
            target.link_latency_ps[target.gpu_link],
        )
        self._hash = hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Machine) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash


def link_classes(target: Target) -> tuple[str, ...]:
    """The classes of links between the devices of a target, the nearest first."""
    return (*target.carrier_links_by_class, target.gpu_link)


Way = tuple[tuple[Link, ...], int]
"""The links that bytes from one device to the memory of another cross, and the picoseconds of the
way."""


class Ways(dict[tuple[int, int], Way]):
    """The ways of a machine by (source, sink), each found when it is first asked for."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine

    def __missing__(self, ends: tuple[int, int]) -> Way:
        found = self[ends] = _way(self.machine, *ends)
        return found


@lru_cache(maxsize=8)
def ways_of(machine: Machine) -> Ways:
    """The ways of a machine: equal machines share them."""
    return Ways(machine)


def way(machine: Machine, source: int, sink: int) -> Way:
    """The way from one device to the memory of another."""
    return ways_of(machine)[source, sink]


def _way(machine: Machine, source: int, sink: int) -> Way:
    target = machine.target
    links = (_between_cubes if target.grid else _between_carriers)(machine, source, sink)
    routers = target.carriers - target.routers
    crossings = hops = router_hops = 0
    for name, _, start, end in links:
        if name == target.gpu_link:
            crossings += start >= 0  # by way of a switch the first link has all of the latency
        elif min(start, end) >= routers:
            router_hops += 1
        else:
            hops += 1
    latency = crossings * target.link_latency_ps[target.gpu_link]
    latency += hops * target.hop_latency_ps // 2 + router_hops * target.noc_hop_latency_ps // 2
    return tuple(links), latency + target.mall_latency_ps


def _between_carriers(machine: Machine, source: int, sink: int) -> list[Link]:
    target = machine.target
    gpu, peer = source // target.devices_per_gpu, sink // target.devices_per_gpu
    start, end = (_carrier(target, device) for device in (source, sink))
    if gpu == peer:
        return _around(target, gpu, start, end)
    links: list[Link] = []
    for a, b in pairwise(gpu_path(target, gpu, peer)):
        links += _around(target, a, start, port_carrier(target, a, b))
        links += _between_gpus(target, a, b)
        start = port_carrier(target, b, a)
    return links + _around(target, peer, start, end)


def _between_gpus(target: Target, gpu: int, peer: int) -> list[Link]:
    """The links between two neighbouring GPUs: one, or one to the switch and one from it."""
    if target.network == "switch":
        return [(target.gpu_link, -1, gpu, -1), (target.gpu_link, -1, -1, peer)]
    return [(target.gpu_link, -1, gpu, peer)]


def _carrier(target: Target, device: int) -> int:
    """The carrier of the first die of a device."""
    die = device % target.devices_per_gpu * target.dies_per_device
    return die // target.dies_per_carrier


def _around(target: Target, gpu: int, start: int, end: int) -> list[Link]:
    """The directed links of the first of the shortest ways between two carriers."""
    if start == end:
        return []
    nodes = path(neighbours(target.carriers, target.carrier_links), start, end)
    return [("usr", gpu, a, b) for a, b in pairwise(nodes)]


@lru_cache(maxsize=16)
def _network(machine: Machine) -> Network:
    return Network.of(machine.target)


def _between_cubes(machine: Machine, source: int, sink: int) -> list[Link]:
    target, network = machine.target, _network(machine)
    (gpu, start), (peer, end) = (divmod(d, target.devices_per_gpu) for d in (source, sink))

    def inside(sip: int, first: int, last: int) -> list[Link]:
        pes = len(network.cubes)
        return [
            (PE_MESH if max(a, b) < pes else NOC, sip, a, b)
            for a, b in pairwise(network.path(first, last))
        ]

    if gpu == peer:
        return inside(gpu, start, end)
    leaves = target.port_carriers[port_to(target, gpu, peer)]
    arrives = target.port_carriers[port_to(target, peer, gpu)]
    crossing = (UCIE, -1, gpu, peer)
    return [*inside(gpu, start, leaves), crossing, *inside(peer, arrives, end)]
