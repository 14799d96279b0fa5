"""The machine as a graph, and as the numbers and tables that the event core works with.

Nodes are dies, carriers, memory stacks and GPU ports; edges are the links between them with their
class. Carriers and GPUs may form any connected graph; the tables are its shortest paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, TypeAlias

import networkx as nx
import numpy as np

from starc.simulator import state as st
from starc.simulator.addresses import turned
from starc.simulator.state import Array
from starc.targets.cubes import NOC, PE_MESH, Network
from starc.targets.graph import (
    NETWORKS,
    distances,
    gpu_neighbours,
    gpu_path,
    neighbours,
    next_hops,
    port_carrier,
    port_count,
    port_to,
)
from starc.targets.target import Target

BLOCK = 4096
"""Bytes that one tag of a cache stands for."""

Node: TypeAlias = tuple[str, int, int]  # kind, GPU, index


class MachineError(ValueError):
    """A machine that the simulator cannot model."""


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


@dataclass(frozen=True)
class AddressMap:
    """Where the memory of devices lies: granule by granule over the stacks of a domain. Domains
    and devices are counted in blocks of 4 KiB."""

    granule: int
    domain_stacks: int
    domain_blocks: int
    device_blocks: int
    devices_per_domain: int
    hashed: bool = False

    @classmethod
    def of(cls, target: Target) -> AddressMap:
        """The map of a target."""
        stacks = target.stacks // target.memory_domains
        devices = -(-target.devices_per_gpu // target.memory_domains)
        # Devices begin with a whole granule.
        step = max(BLOCK, target.interleave_granule)
        blocks = target.device_memory_bytes // step * step // BLOCK
        return cls(
            target.interleave_granule,
            stacks,
            blocks * devices,
            blocks,
            devices,
            target.interleave_hashed,
        )

    def place(self, device: int, address: int) -> tuple[int, int]:
        """The block of the GPU and the stack that hold a byte of a device's memory; the device
        is counted within its GPU."""
        domain, k = divmod(device, self.devices_per_domain)
        inside = k * self.device_blocks * BLOCK + address
        return (
            domain * self.domain_blocks + inside // BLOCK,
            domain * self.domain_stacks + self._turn(inside // self.granule) % self.domain_stacks,
        )

    def _turn(self, unit: int) -> int:
        if not self.hashed:
            return unit
        return int(turned(unit, self.domain_stacks))


def _log2(value: int) -> int:
    return max(0, value.bit_length() - 1)


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _mask(sets: int) -> int:
    """What a set index is masked with, 0 where it takes a remainder. A single set has any."""
    return sets - 1 if _is_power_of_two(sets) else 0


def service_table(target: Target) -> Array:
    """Picoseconds for 0 .. 64 units of 64 bytes, per service class, rounded up."""
    clocked = target.per_clock
    rates = {
        st.CLASS_CU: clocked(target.cu_port_bytes_per_clock),
        st.CLASS_L2_READ: clocked(target.l2_bytes_per_clock),
        st.CLASS_L2_WRITE: clocked(target.l2_write_bytes_per_clock),
        st.CLASS_PORT: clocked(target.die_port_bytes_per_clock),
        st.CLASS_LINK: target.link_rate[target.carrier_links_by_class[0]],
        st.CLASS_NOC: target.link_rate[target.carrier_links_by_class[-1]],
        st.CLASS_SLICE: target.mall_stack_rate,
        st.CLASS_HBM: round(target.hbm_stack_rate * target.hbm_read_share / target.channels),
        st.CLASS_HBM_WRITE: round(target.hbm_stack_rate * target.hbm_write_share / target.channels),
        st.CLASS_XGMI: target.link_rate[target.gpu_link],
        st.CLASS_SCRATCH: clocked(
            target.scratch_port_bytes_per_clock or target.cu_port_bytes_per_clock
        ),
        st.CLASS_ENGINE: target.copy_engine_rate or clocked(target.cu_port_bytes_per_clock),
    }
    table = np.zeros((st.CLASSES, st.UNITS), np.int64)
    for kind, rate in rates.items():
        ps, size = target.service(rate)
        table[kind] = [-(-64 * units * ps // size) for units in range(st.UNITS)]
    return table.ravel()


def _queue_ps(size: int, rate: int) -> int:
    """How far a server of a rate lies behind when so many bytes wait for it; 0 is no bound."""
    return ceil(Fraction(size * 1_000_000_000_000, rate)) if size else st.NEVER


def server_layout(target: Target) -> tuple[Array, int]:
    """First server of each kind within a GPU, and the number of servers."""
    cus = target.dies_per_gpu * target.cus_per_die
    sizes = [0] * st.SERVER_KINDS
    for kind in (st.CU_LOAD, st.CU_STORE, st.MATRIX, st.VECTOR, st.SCRATCH_ACCESS):
        sizes[kind] = cus
    for kind in (st.ENGINE_LOAD, st.ENGINE_STORE):
        sizes[kind] = target.devices_per_gpu * target.copy_engines
    for kind in (st.L2_READ, st.L2_WRITE, st.PORT_UP, st.PORT_DOWN):
        sizes[kind] = target.dies_per_gpu if target.has_l2 else 0
    sizes[st.NOC] = sum(carrier_link_class(target, *link) == NOC for link in carrier_links(target))
    sizes[st.LINK] = len(carrier_links(target)) - sizes[st.NOC]
    sizes[st.SLICE] = target.stacks
    sizes[st.HBM] = target.stacks * target.channels
    # A switch has one link from a GPU and one to it.
    sizes[st.XGMI] = 2 if target.network == "switch" else port_count(target)
    first = np.concatenate(([0], np.cumsum(sizes)))
    return first[:-1].astype(np.int64), int(first[-1])


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


def die_places(target: Target) -> Array:
    """Of each die, the carrier, or the cube, that it stands in; behind these the carriers, where
    copy engines stand."""
    if target.grid:
        return np.array(Network.of(target).cubes, np.int32)
    dies = np.arange(target.dies_per_gpu, dtype=np.int32) // target.dies_per_carrier
    return np.concatenate([dies, np.arange(target.carriers, dtype=np.int32)])


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
        st.CLASS_NOC if carrier_link_class(target, *link) == NOC else st.CLASS_LINK
        for link in links
    ]
    return {
        "ways": np.array(_carrier_ways(target), np.int32).ravel(),
        "routes": routes.ravel(),
        "link_ends": np.array([b for _, b in links] or [0], np.int32),
        "link_classes": np.array(classes or [0], np.int32),
        "link_ps": np.array([carrier_link_ps(target, *link) for link in links] or [0], np.int32),
    }


def _carrier_ways(target: Target) -> list[list[int]]:
    """Picoseconds one way between any two carriers."""
    if target.grid:
        near, far = target.hop_latency_ps // 2, target.noc_hop_latency_ps // 2
        return Network.of(target).weights(near, far)
    hop = target.hop_latency_ps // 2
    far = distances(neighbours(target.carriers, target.carrier_links))
    return [[links * hop for links in row] for row in far]


def network_tables(target: Target) -> dict[str, Array]:
    """For every GPU and peer: the server that the way begins with, the carrier of its port, the
    carrier of the peer where the way ends, the next GPU, and the picoseconds from port to port."""
    count = target.gpus
    shape = (count, count)
    ports, carriers, arrivals, following = (np.zeros(shape, np.int32) for _ in range(4))
    ways = np.zeros(shape, np.int64)
    far = _carrier_ways(target)
    for g in range(count):
        for h in range(count):
            if g == h:
                continue
            path = gpu_path(target, g, h)
            ports[g, h] = 0 if target.network == "switch" else port_to(target, g, path[1])
            carriers[g, h] = port_carrier(target, g, path[1])
            arrivals[g, h] = port_carrier(target, h, path[-2])
            following[g, h] = path[1]
            ways[g, h] = (len(path) - 1) * target.link_latency_ps[target.gpu_link]
            for before, at, after in zip(path, path[1:], path[2:], strict=False):
                ways[g, h] += far[port_carrier(target, at, before)][port_carrier(target, at, after)]
    return {
        "ports": ports.ravel(),
        "port_carriers": carriers.ravel(),
        "arrivals": arrivals.ravel(),
        "next_gpus": following.ravel(),
        "gpu_ways": ways.ravel(),
    }


def configuration(
    target: Target,
    *,
    slots: int,
    tile_slots: int,
    counters: int,
    launches: int,
    skew: bool,
    page_walk: bool = False,
) -> Array:
    """The configuration vector of the event core; pool and calendar are set with the state."""
    cfg = np.zeros(st.CONFIGURATION, np.int64)
    addresses = AddressMap.of(target)
    granule = target.interleave_granule
    if not _is_power_of_two(granule) or granule < 256 or target.l2_line != 128:
        raise MachineError("the simulator models granules of 256 bytes and more, and lines of 128")
    if not 1 <= target.l2_ways <= 16 or not 1 <= target.mall_ways <= 16:
        raise MachineError("the simulator models caches of 1 to 16 ways")
    # Tags of caches have 27 bits for a block.
    most = 1 << 27 if target.has_l2 else 1 << 31
    if addresses.domain_blocks * target.memory_domains >= most:
        raise MachineError("a GPU has more memory than the simulator can address (512 GiB)")
    if not 1 <= target.gpus <= 8:
        raise MachineError("a node has 1 to 8 GPUs")
    first_line = ceil(Fraction(128, target.cu_port_bytes_per_clock) * target.cycle_ps)
    _, servers = server_layout(target)
    cus = target.dies_per_gpu * target.cus_per_die
    engines = target.devices_per_gpu * target.copy_engines
    l2_sets = max(1, target.l2_bytes_per_die // (target.l2_ways * BLOCK))
    mall_sets = max(1, target.mall_bytes_per_stack // (target.mall_ways * BLOCK))
    is_plain = (
        granule == BLOCK
        and _is_power_of_two(addresses.domain_stacks)
        and not target.interleave_hashed
    )
    values = {
        st.GPUS: target.gpus,
        st.GROUPS: cus * slots + engines,
        st.CONTROLS: (2 * target.devices_per_gpu + target.dies_per_gpu) * st.QUEUES,
        st.SERVERS: servers,
        st.TILE_SLOTS: tile_slots,
        st.DIES: target.dies_per_gpu,
        st.DEVICES: target.devices_per_gpu,
        st.DIES_PER_DEVICE: target.dies_per_device,
        st.CUS: target.cus_per_die,
        st.PLACES: cus + engines,
        st.ENGINES: target.copy_engines,
        st.SLOTS: slots,
        st.CARRIERS: target.carriers,
        st.DIES_PER_CARRIER: target.dies_per_carrier,
        st.STACKS_PER_CARRIER: target.stacks_per_carrier,
        st.NETWORK: NETWORKS.index(target.network),
        st.DOMAIN_STACKS: addresses.domain_stacks,
        st.DOMAIN_SHIFT: _log2(addresses.domain_stacks),
        st.DOMAIN_BLOCKS: addresses.domain_blocks,
        st.DEVICE_BLOCKS: addresses.device_blocks,
        st.DEVICES_PER_DOMAIN: addresses.devices_per_domain,
        st.GRANULE_SHIFT: _log2(granule) - _log2(BLOCK),
        st.PLAIN: int(is_plain),
        st.PIECE: min(granule, BLOCK),
        st.HASHED: int(target.interleave_hashed),
        st.L2_SETS: l2_sets,
        st.L2_SHIFT: max(1, _log2(l2_sets)),
        st.L2_MASK: _mask(l2_sets),
        st.L2_WAYS: target.l2_ways,
        st.MALL_SETS: mall_sets,
        st.MALL_SHIFT: max(1, _log2(mall_sets)),
        st.MALL_MASK: _mask(mall_sets),
        st.MALL_WAYS: target.mall_ways if target.mall_bytes_per_stack else 0,
        st.COUNTERS: counters,
        st.LAUNCHES: max(1, launches),
        st.COHERENT: int(target.coherent),
        st.ISSUE_PS: ceil(target.cycle_ps),
        # A single line also takes its time at the CU's port: the published latencies include it.
        st.L2_PS: target.l2_latency_ps - first_line if target.has_l2 else target.port_to_cu_ps,
        st.UP_PS: target.request_up_ps,
        st.SLICE_PS: target.mall_latency_ps - target.request_up_ps - target.port_to_cu_ps,
        st.HBM_PS: target.hbm_extra_ps,
        st.DOWN_PS: target.port_to_cu_ps - first_line,
        st.HOP_PS: target.hop_latency_ps // 2,
        st.XGMI_PS: target.link_latency_ps[target.gpu_link],
        st.STORE_PS: target.store_latency_ps,
        st.POLL_PS: target.mall_latency_ps if target.has_l2 else target.scratch_latency_ps,
        st.SKEW_PS: target.start_skew_ps if skew else 0,
        st.LOOKAHEAD_PS: max(1024, target.link_latency_ps[target.gpu_link]),
        st.STACKS: target.stacks,
        st.HAS_L2: int(target.has_l2),
        st.CHANNELS: target.channels,
        st.SCRATCH_PS: target.scratch_latency_ps,
        st.WAVES: target.max_waves_per_cu,
        st.SCRATCH: target.scratch_bytes_per_cu,
        st.REGISTERS: target.registers_bytes_per_cu,
        st.TURN_PS: target.hbm_turnaround_ps,
        st.WRITE_BATCH: target.hbm_write_batch_bytes,
        st.WRITE_BACK_PS: target.write_back_queue_ps or st.NEVER,
        st.RETAINS: int(target.l2_retains and not target.coherent),
        st.TLB_ENTRIES: target.tlb_entries if page_walk else 0,
        st.TLB_SHIFT: max(0, _log2(target.tlb_page_bytes // BLOCK)),
        st.WALK_PS: target.page_walk_ps,
        st.LINK_QUEUE_PS: _queue_ps(
            target.usr_queue_bytes, target.link_rate[target.carrier_links_by_class[0]]
        ),
        st.PORT_QUEUE_PS: _queue_ps(
            target.die_port_queue_bytes, target.per_clock(target.die_port_bytes_per_clock)
        ),
        st.XGMI_QUEUE_PS: _queue_ps(target.xgmi_queue_bytes, target.link_rate[target.gpu_link]),
    }
    for key, value in values.items():
        cfg[key] = value
    queues = (st.LINK_QUEUE_PS, st.PORT_QUEUE_PS, st.XGMI_QUEUE_PS)
    cfg[st.CREDITS] = int(any(cfg[key] < st.NEVER for key in queues))
    cfg[st.FIRST_MISS_PS] = cfg[st.UP_PS] + cfg[st.SLICE_PS] + cfg[st.DOWN_PS]
    if min(cfg[st.L2_PS], cfg[st.SLICE_PS], cfg[st.DOWN_PS]) < 0:
        raise MachineError("the parts of the memory latency exceed the whole")
    if target.gpus > 1 and target.link_latency_ps[target.gpu_link] < 1024:
        raise MachineError("links between GPUs need a latency of at least 1024 ps")
    return cfg
