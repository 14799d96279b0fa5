"""The machine as a graph.

Nodes are dies, carriers, memory stacks and GPU ports; edges are the links between them with their
class. Carriers and GPUs may form any connected graph; the tables are its shortest paths.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import networkx as nx

from starc.simulator.machine.carriers import carrier_link_class, carrier_link_ps, carrier_links
from starc.targets.cubes import Network
from starc.targets.graph import gpu_neighbours, port_carrier, port_to
from starc.targets.target import Target

Node: TypeAlias = tuple[str, int, int]  # kind, GPU, index


def machine_graph(target: Target) -> nx.DiGraph[Node]:
    """The directed graph of a target's node. Edges have ``link`` (class), ``rate`` in bytes per
    second, sustained, and ``latency_ps`` one way."""
    graph: nx.DiGraph[Node] = nx.DiGraph()

    def connect(a: Node, b: Node, link: str, rate: int, latency: int) -> None:
        graph.add_edge(a, b, link=link, rate=rate, latency_ps=latency)
        graph.add_edge(b, a, link=link, rate=rate, latency_ps=latency)

    port = target.per_clock(target.die_port_bytes_per_clock)
    for g in range(target.gpus):
        for die in range(target.dies_per_gpu):
            carrier = die // target.dies_per_carrier
            connect(("die", g, die), ("carrier", g, carrier), "die", port, target.request_up_ps)
        for carrier in range(target.carriers - target.routers):
            for k in range(target.stacks_per_carrier):
                stack = carrier * target.stacks_per_carrier + k
                connect(
                    ("carrier", g, carrier), ("stack", g, stack), "hbm", target.hbm_stack_rate, 0
                )
        for a, b in carrier_links(target):
            name = carrier_link_class(target, a, b)
            graph.add_edge(
                ("carrier", g, a),
                ("carrier", g, b),
                link=name,
                rate=target.link_rate[name],
                latency_ps=carrier_link_ps(target, a, b),
            )
        for peer in range(target.gpus):
            if peer in gpu_neighbours(target, g):
                carrier = port_carrier(target, g, peer)
                own = ("port", g, port_to(target, g, peer))
                connect(own, ("carrier", g, carrier), "port", port, 0)
    kind = target.gpu_link
    rate, latency = target.link_rate[kind], target.link_latency_ps[kind]
    for g in range(target.gpus):
        for h in gpu_neighbours(target, g):
            own, other = ("port", g, port_to(target, g, h)), ("port", h, port_to(target, h, g))
            if target.network == "switch":
                switch: Node = ("switch", 0, 0)
                graph.add_edge(own, switch, link=kind, rate=rate, latency_ps=latency)
                graph.add_edge(switch, other, link=kind, rate=rate, latency_ps=0)
            else:
                graph.add_edge(own, other, link=kind, rate=rate, latency_ps=latency)
    return graph


def route(target: Target, gpu: int, source: int, sink: int) -> list[int]:
    """The carriers of a GPU on the way between two of them, where there are several a shortest."""
    if target.grid:
        return Network.of(target).path(source, sink)
    graph = machine_graph(target)
    carriers = [node for node in graph if node[0] == "carrier" and node[1] == gpu]
    ring: Any = graph.subgraph(carriers)
    shortest_path: Any = nx.shortest_path  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    path = shortest_path(ring, ("carrier", gpu, source), ("carrier", gpu, sink))
    return [node[2] for node in path]
