"""The machine as a graph.

Nodes are dies, carriers, memory stacks and GPU ports; edges are the links between them with their
class. Carriers and GPUs may form any connected graph; the tables are its shortest paths.
"""

from __future__ import annotations

from enum import StrEnum, auto
from itertools import pairwise
from typing import Any, TypeAlias

import networkx as nx

from starc.simulator.machine.carriers import carrier_link_class, carrier_link_ps, carrier_links
from starc.targets.cubes import Network
from starc.targets.graph import gpu_neighbours, port_carrier, port_to
from starc.targets.target import Target


class NodeKind(StrEnum):
    """What a node of the graph is."""

    DIE = auto()
    CARRIER = auto()
    STACK = auto()
    PORT = auto()
    SWITCH = auto()


Node: TypeAlias = tuple[NodeKind, int, int]  # with the GPU, and the index in it


def machine_graph(target: Target) -> nx.DiGraph[Node]:
    """The directed graph of a target's node. Edges have ``link`` (class), ``rate`` in bytes per
    second, sustained, and ``latency_ps`` one way."""
    graph: nx.DiGraph[Node] = nx.DiGraph()
    for g in range(target.gpus):
        _add_gpu(graph, target, g)
        for peer in gpu_neighbours(target, g):
            _add_link(graph, target, g, peer)
    return graph


def _add_gpu(graph: nx.DiGraph[Node], target: Target, g: int) -> None:
    """Dies, carriers and stacks of a GPU, and its ports to others."""
    port = target.per_clock(target.die_port_bytes_per_clock)

    def connect(a: Node, carrier: int, link: str, rate: int, latency: int) -> None:
        b = (NodeKind.CARRIER, g, carrier)
        graph.add_edge(a, b, link=link, rate=rate, latency_ps=latency)
        graph.add_edge(b, a, link=link, rate=rate, latency_ps=latency)

    for die in range(target.dies_per_gpu):
        carrier = die // target.dies_per_carrier
        connect((NodeKind.DIE, g, die), carrier, "die", port, target.request_up_ps)
    for stack in range((target.carriers - target.routers) * target.stacks_per_carrier):
        carrier = stack // target.stacks_per_carrier
        connect((NodeKind.STACK, g, stack), carrier, "hbm", target.hbm_stack_rate, 0)
    for a, b in carrier_links(target):
        link = carrier_link_class(target, a, b)
        graph.add_edge(
            (NodeKind.CARRIER, g, a),
            (NodeKind.CARRIER, g, b),
            link=link,
            rate=target.link_rate[link],
            latency_ps=carrier_link_ps(target, a, b),
        )
    for peer in gpu_neighbours(target, g):
        carrier = port_carrier(target, g, peer)
        connect((NodeKind.PORT, g, port_to(target, g, peer)), carrier, "port", port, 0)


def _add_link(graph: nx.DiGraph[Node], target: Target, g: int, peer: int) -> None:
    """The link from a GPU to another, or by way of the switch between them."""
    link = target.gpu_link
    rate, latency = target.link_rate[link], target.link_latency_ps[link]
    way: list[Node] = [(NodeKind.PORT, g, port_to(target, g, peer))]
    if target.network == "switch":
        way.append((NodeKind.SWITCH, 0, 0))
    way.append((NodeKind.PORT, peer, port_to(target, peer, g)))
    for k, (a, b) in enumerate(pairwise(way)):
        graph.add_edge(a, b, link=link, rate=rate, latency_ps=0 if k else latency)


def route(target: Target, gpu: int, source: int, sink: int) -> list[int]:
    """The carriers of a GPU on the way between two of them, where there are several a shortest."""
    if target.grid:
        return Network.of(target).path(source, sink)
    graph = machine_graph(target)
    carriers = [node for node in graph if node[0] is NodeKind.CARRIER and node[1] == gpu]
    ring: Any = graph.subgraph(carriers)
    shortest_path: Any = nx.shortest_path  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    path = shortest_path(ring, (NodeKind.CARRIER, gpu, source), (NodeKind.CARRIER, gpu, sink))
    return [node[2] for node in path]
