"""Ways in the graphs of a machine: carriers of a GPU, GPUs of a node.

Neighbours are in order of their number relative to a node's own, modulo how many there are: in a
ring the next one comes first and the previous one last, from every node alike. Ways are shortest;
where several are, the first and the last of the neighbours that lead on are the two that are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starc.targets.target import Target

NETWORKS: Final = ("direct", "switch", "links")
"""How GPUs of a node are linked."""


def neighbours(count: int, links: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The neighbours of each of ``count`` nodes; without links they form a ring."""
    if not links:
        links = [(node, (node + 1) % count) for node in range(count)] if count > 1 else []
    beside: list[set[int]] = [set() for _ in range(count)]
    for a, b in links:
        beside[a].add(b)
        beside[b].add(a)
    return [
        sorted(found, key=lambda other, node=node: (other - node) % count)
        for node, found in enumerate(beside)
    ]


def distances(beside: Sequence[Sequence[int]]) -> list[list[int]]:
    """Links between any two nodes of a connected graph."""
    result: list[list[int]] = []
    for start in range(len(beside)):
        far = {start: 0}
        front = [start]
        while front:
            following: list[int] = []
            for node in front:
                for other in beside[node]:
                    if other not in far:
                        far[other] = far[node] + 1
                        following.append(other)
            front = following
        result.append([far[node] for node in range(len(beside))])
    return result


def unconnected(count: int, links: Iterable[Sequence[int]]) -> list[int]:
    """The nodes that no way leads to from node 0."""
    pairs = [(a, b) for a, b in links]
    reached = {0}
    while True:
        more = {b for pair in pairs for a, b in (pair, pair[::-1]) if a in reached} - reached
        if not more:
            return sorted(set(range(count)) - reached)
        reached |= more


def next_hops(
    beside: Sequence[Sequence[int]],
) -> tuple[list[list[int]], list[list[int]]]:
    """The neighbour to go to from each node for each other, by the first and by the last of the
    shortest ways; -1 where one is there already."""
    far = distances(beside)
    count = len(beside)
    first = [[-1] * count for _ in range(count)]
    last = [[-1] * count for _ in range(count)]
    for node in range(count):
        for end in range(count):
            on = [other for other in beside[node] if far[other][end] == far[node][end] - 1]
            if on:
                first[node][end], last[node][end] = on[0], on[-1]
    return first, last


def path(beside: Sequence[Sequence[int]], start: int, end: int) -> list[int]:
    """The nodes of the first of the shortest ways between two nodes, both ends included."""
    first, _ = next_hops(beside)
    nodes = [start]
    while nodes[-1] != end:
        nodes.append(first[nodes[-1]][end])
    return nodes


# GPUs of a node


def gpu_neighbours(target: Target, gpu: int) -> list[int]:
    """The GPUs that a GPU reaches without passing through another one."""
    if target.network == "links":
        return neighbours(target.gpus, target.gpu_links)[gpu]
    return [(gpu + k) % target.gpus for k in range(1, target.gpus)]


def gpu_path(target: Target, gpu: int, peer: int) -> list[int]:
    """The GPUs on the way to a peer, both ends included."""
    if target.network == "links":
        return path(neighbours(target.gpus, target.gpu_links), gpu, peer)
    return [gpu, peer]


def port_to(target: Target, gpu: int, peer: int) -> int:
    """The port of a GPU that leads to a neighbour. GPUs linked in pairs have a port for every
    distance (port 0 is the host's); to a switch all have one; with explicit links the neighbours
    have ports in order."""
    if target.network == "switch":
        return 0
    if target.network == "links":
        return gpu_neighbours(target, gpu).index(peer)
    return (peer - gpu) % target.ports


def port_count(target: Target) -> int:
    """The ports of a GPU that has most of them."""
    if target.network == "links":
        return max([1, *(len(gpu_neighbours(target, g)) for g in range(target.gpus))])
    return target.ports


def port_carrier(target: Target, gpu: int, peer: int) -> int:
    """The carrier of the port of a GPU that leads to a neighbour. A switch's port is on all
    carriers: peers take turns."""
    if target.port_carriers:
        return target.port_carriers[port_to(target, gpu, peer)]
    if target.network == "switch":
        return (peer - gpu) % target.gpus % target.carriers
    return min(port_to(target, gpu, peer) // target.ports_per_carrier, target.carriers - 1)
