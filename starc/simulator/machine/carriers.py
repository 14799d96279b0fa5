"""The carriers of a GPU and their links, as tables of shortest ways."""

from __future__ import annotations

import numpy as np

from starc.simulator.state.arrays import Array
from starc.simulator.state.servers import CLASS_LINK, CLASS_NOC
from starc.targets.cubes import NOC, PE_MESH, Network
from starc.targets.graph import distances, neighbours, next_hops
from starc.targets.target import Target


def carrier_links(target: Target) -> list[tuple[int, int]]:
    """The directed links of the carriers of a GPU, in the order of their servers."""
    if target.grid:
        return [(a, b) for a, b, _ in Network.of(target).links]
    beside = neighbours(target.carriers, target.carrier_links)
    return [(a, b) for a, others in enumerate(beside) for b in others]


def carrier_link_class(target: Target, a: int, b: int) -> str:
    """The class of a link between two carriers."""
    if not target.grid:
        return "usr"
    return NOC if max(a, b) >= target.carriers - target.routers else PE_MESH


def carrier_link_ps(target: Target, a: int, b: int) -> int:
    """Picoseconds one way over a link between two carriers."""
    if min(a, b) >= target.carriers - target.routers:
        return target.noc_hop_latency_ps // 2
    return target.hop_latency_ps // 2


def _next_carriers(target: Target) -> tuple[list[list[int]], list[list[int]]]:
    """The carrier to go to from each for each other, for either value of the address bit that
    chooses among equal ways."""
    if target.grid:
        table = Network.of(target).next_nodes
        return table, table
    return next_hops(neighbours(target.carriers, target.carrier_links))


def die_carriers(target: Target) -> Array:
    """The carrier of each die; behind these the carriers, where copy engines stand."""
    dies = np.arange(target.dies_per_gpu, dtype=np.int32) // target.dies_per_carrier
    return np.concatenate([dies, np.arange(target.carriers, dtype=np.int32)])


def die_places(target: Target) -> Array:
    """The same, with the cube that a die stands in for its carrier where carriers are PEs."""
    if target.grid:
        return np.array(Network.of(target).cubes, np.int32)
    return die_carriers(target)


def stack_carriers(target: Target) -> Array:
    """The carriers of stacks, and of the scratch memories of dies where others use these."""
    stacks = np.arange(target.stacks, dtype=np.int32) // target.stacks_per_carrier
    if not target.scratch_port_bytes_per_clock:
        return stacks
    dies = np.arange(target.dies_per_gpu, dtype=np.int32) // target.dies_per_carrier
    return np.concatenate([stacks, dies])


def channel_lines(target: Target) -> Array:
    """The lines of a granule that each channel of a stack has."""
    each = max(1, target.channel_granule // 128)
    masks = [0] * target.channels
    for line in range(32):
        masks[line // each % target.channels] |= 1 << line
    return np.array(masks, np.int64)


def carrier_tables(target: Target) -> dict[str, Array]:
    """Picoseconds between carriers; the links to take, for either value of the address bit that
    chooses among equal ways; the carriers that the links lead to, the service classes of links and
    the picoseconds over them."""
    links = carrier_links(target)
    number = {link: k for k, link in enumerate(links)}
    routes = np.zeros((2, target.carriers, target.carriers), np.int32)
    for turn, table in enumerate(_next_carriers(target)):
        for a, row in enumerate(table):
            for b, following in enumerate(row):
                if following >= 0:
                    routes[turn, a, b] = number[a, following]
    classes = [
        CLASS_NOC if carrier_link_class(target, *link) == NOC else CLASS_LINK for link in links
    ]
    return {
        "ways": np.array(carrier_ways(target), np.int32).ravel(),
        "routes": routes.ravel(),
        "link_ends": np.array([b for _, b in links] or [0], np.int32),
        "link_classes": np.array(classes or [0], np.int32),
        "link_ps": np.array([carrier_link_ps(target, *link) for link in links] or [0], np.int32),
    }


def carrier_ways(target: Target) -> list[list[int]]:
    """Picoseconds one way between any two carriers."""
    if target.grid:
        near, far = target.hop_latency_ps // 2, target.noc_hop_latency_ps // 2
        return Network.of(target).weights(near, far)
    hop = target.hop_latency_ps // 2
    far = distances(neighbours(target.carriers, target.carrier_links))
    return [[links * hop for links in row] for row in far]
