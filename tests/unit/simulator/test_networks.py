"""Machines of any graph: routes against networkx, networks of GPUs, what each class of links does,
and memory of any number of stacks, granule, ways and sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starc.backend.program import Program, Role, Space
from starc.backend.template import DEVICE, WORKGROUP
from starc.simulator.core.compiled import interpreted
from starc.simulator.core.memory.addresses import slice_block, slice_lines, stack_of
from starc.simulator.machine.address_map import AddressMap
from starc.simulator.machine.carriers import carrier_links, carrier_tables
from starc.simulator.machine.configuration import configuration
from starc.simulator.machine.graph import NodeKind, machine_graph
from starc.simulator.machine.networks import network_tables
from starc.targets.graph import distances, gpu_path, neighbours, next_hops
from starc.targets.loader import load_target
from starc.targets.target import Target
from tests.unit.simulator.programs import BF16, assembler, exchange, machine, run, stream

HOUSE = ((0, 1), (1, 2), (2, 3), (0, 3), (1, 3))


def three(**changes: Any) -> Target:
    return replace(machine("mi300x-spx", gpu=3), name="toy", **changes)


SWITCH = three(network="switch", ports=1)
LINE = three(network="links", gpu_links=((0, 1), (1, 2)))
FULL = three(network="links", gpu_links=((0, 1), (1, 2), (0, 2)))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, tuple[tuple[int, int], ...]]:
    """A connected graph: a tree and some more links."""
    count = draw(st.integers(1, 8))
    tree = [(draw(st.integers(0, node - 1)), node) for node in range(1, count)]
    more = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))))
    return count, tuple(tree + [(a, b) for a, b in more if a != b])


@settings(deadline=None)
@given(graphs())
def test_ways_are_the_shortest(graph: tuple[int, tuple[tuple[int, int], ...]]) -> None:
    count, links = graph
    graph_of: Any = nx.Graph
    known = graph_of()
    known.add_nodes_from(range(count))
    known.add_edges_from(links or [(0, 1)] if count == 2 else links)
    lengths = dict(nx.all_pairs_shortest_path_length(known))
    beside = neighbours(count, links)
    far = distances(beside)
    for table in next_hops(beside):
        for a in range(count):
            for b in range(count):
                assert far[a][b] == lengths[a][b]
                at, steps = a, 0
                while at != b:
                    assert known.has_edge(at, table[at][b])
                    at, steps = table[at][b], steps + 1
                assert steps == far[a][b]


@settings(deadline=None, max_examples=25)
@given(graphs())
def test_carriers_of_any_graph_route_by_its_links(
    graph: tuple[int, tuple[tuple[int, int], ...]],
) -> None:
    count, links = graph
    if not links:
        return
    target = three(
        carriers=count, dies_per_gpu=count, dies_per_carrier=1, carrier_links=tuple(links)
    )
    tables = carrier_tables(target)
    ways, routes, ends = tables["ways"], tables["routes"], tables["link_ends"]
    edges = carrier_links(target)
    machine = machine_graph(target)
    shape = (2, count, count)
    for turn in range(2):
        for a in range(count):
            for b in range(count):
                if a == b:
                    continue
                link = int(routes.reshape(shape)[turn, a, b])
                assert edges[link][0] == a
                assert edges[link][1] == ends[link]
                assert machine.has_edge(
                    (NodeKind.CARRIER, 0, a), (NodeKind.CARRIER, 0, int(ends[link]))
                )
                onwards = int(ends[link]) * count + b
                assert ways[onwards] == ways[a * count + b] - target.hop_latency_ps // 2


@pytest.mark.parametrize("gpus", [2, 3, 5, 8])
def test_gpu_networks_have_their_ports_and_ways(gpus: int) -> None:
    base = load_target("mi300x-spx", gpus=gpus)
    ring = tuple((g, (g + 1) % gpus) for g in range(gpus if gpus > 2 else 1))
    for target in (
        base,
        replace(base, network="switch", ports=1),
        replace(base, network="links", gpu_links=ring),
    ):
        tables = {name: table.reshape(gpus, gpus) for name, table in network_tables(target).items()}
        graph = machine_graph(target)
        xgmi = target.link_latency_ps["xgmi"]
        for g in range(gpus):
            for h in range(gpus):
                if g == h:
                    continue
                path = gpu_path(target, g, h)
                assert tables["next_gpus"][g, h] == path[1]
                assert tables["gpu_ways"][g, h] >= (len(path) - 1) * xgmi
                if target.network == "links":
                    assert len(path) - 1 == min((g - h) % gpus, (h - g) % gpus)
                else:
                    assert path == [g, h]
                assert nx.has_path(graph, (NodeKind.DIE, g, 0), (NodeKind.DIE, h, 0))


def both(target: Target, *, peer: int = 2) -> list[Any]:
    """Puts to and gets from a peer, by both engines."""
    results: list[Any] = []
    for get in (False, True):
        program = exchange(
            target, peer=(DEVICE + peer) % target.devices, workgroups=2, iterations=4, get=get
        )
        first = run(program, target, full_node=True)
        assert run(program, target, engine="heap", full_node=True).time_ps == first.time_ps
        assert run(program, target).time_ps == first.time_ps
        results.append(first)
    return results


def test_what_passes_through_a_gpu_takes_both_links() -> None:
    direct, line, full = both(three()), both(LINE), both(FULL)
    for near, far, same in zip(direct, line, full, strict=True):
        assert far.time_ps > near.time_ps + 2 * 700_000
        # Of three transfers to the GPU before, one goes the long way: from GPU 0 to GPU 2.
        assert 3 * far.traffic.xgmi_bytes == 4 * near.traffic.xgmi_bytes
        assert same.traffic.xgmi_bytes == near.traffic.xgmi_bytes
        assert far.traffic.hbm_write_bytes == near.traffic.hbm_write_bytes


def test_a_switch_has_one_link_out_and_one_in() -> None:
    # All devices put to device 0: its one link from the switch bounds them.
    def gathered(target: Target) -> int:
        p = assembler("gather", target)
        x = p.buffer("x", (1024, 128), BF16, block=(16, 128), role=Role.INPUT)
        y = p.buffer("y", (1024, 128), BF16, block=(16, 128), space=Space.SYMMETRIC)
        t = p.template("gather")
        tile = t.tile(16, 128, BF16, slots=4, depth=1)
        with t.loop(0, 8) as i:
            start = (WORKGROUP * 8 + i) * 16
            t.load(tile, x, (start, 0))
            t.put(tile, y, (start, 0), 0, stage=3)
        p.layer("gather")
        p.launch("gather", [(p.add(t), 8)], kind="collective")
        return run(p.finish(), target, full_node=True).time_ps

    rate = 50_000_000_000
    fast = three(link_rate={**three().link_rate, "xgmi": rate})
    bytes_in = 2 * 8 * 8 * 16 * 128 * 2
    assert gathered(replace(fast, network="switch", ports=1)) > bytes_in / rate * 1e12
    assert gathered(fast) < bytes_in / rate * 1e12


# Removing or slowing a class of links changes what crosses it, on any machine.

MACHINES = {
    "ring": three(),
    "switch": SWITCH,
    "line": LINE,
    "house": three(carrier_links=HOUSE),
    "cpx": machine("mi300x-cpx", gpu=2, xcd=4),
    "b200": load_target("b200", gpus=2),
    "mi300a": load_target("mi300a-cpx", gpus=1),
}


def slowed(target: Target, link: str) -> Target:
    rates = {**target.link_rate, link: target.link_rate[link] // 2000}
    if link == "die":
        slower = max(1, target.die_port_bytes_per_clock // 2000)
        return replace(target, link_rate=rates, die_port_bytes_per_clock=slower)
    return replace(target, link_rate=rates)


def examples(target: Target) -> list[Program]:
    peer = (DEVICE + 1) % target.devices
    return [
        stream(target, workgroups=16, iterations=4, copy=True),
        exchange(target, peer=peer, workgroups=8, iterations=4),
        exchange(target, peer=peer, workgroups=8, iterations=4, get=True),
    ]


@pytest.mark.parametrize("name", MACHINES)
def test_a_slower_class_of_links_slows_what_crosses_it(name: str) -> None:
    target = MACHINES[name]
    crossed = 0
    for program in examples(target):
        first = run(program, target)
        for link, size in first.traffic.links.items():
            other = run(program, slowed(target, link))
            if size:
                crossed += 1
                assert other.time_ps > first.time_ps, link
            else:
                assert other.time_ps == first.time_ps, link
            assert other.traffic.links[link] == size
    assert crossed > 2


@pytest.mark.parametrize(
    ("name", "kept"),
    [("ring", ((0, 1), (1, 2), (2, 3))), ("house", ((0, 1), (1, 2), (2, 3), (0, 3)))],
)
def test_a_link_less_changes_ways(name: str, kept: tuple[tuple[int, int], ...]) -> None:
    target = MACHINES[name]
    less = replace(target, carrier_links=kept)
    times: list[bool] = []
    for program in examples(target):
        first, other = run(program, target), run(program, less)
        assert other.traffic.links["usr"] > first.traffic.links["usr"]
        times.append(other.time_ps > first.time_ps)
    assert any(times)


# Memory


def test_any_number_of_stacks_any_granule_any_ways() -> None:
    target = machine("mi300x-spx", gpu=1)
    program = stream(target, workgroups=16, iterations=4, copy=True)
    base = run(program, target)
    for changes in (
        {"stacks_per_carrier": 3},
        {"interleave_granule": 65536},
        {"interleave_granule": 256},
        {"interleave_granule": 512, "stacks_per_carrier": 5, "interleave_hashed": True},
        {"interleave_hashed": True},
        {"l2_ways": 3, "mall_ways": 5, "l2_bytes_per_die": 3_000_000},
        {"mall_bytes": 0, "mall_bytes_per_stack": 0},
    ):
        other = run(program, replace(target, **changes))
        assert other.traffic.hbm_read_bytes == base.traffic.hbm_read_bytes, changes
        assert other.traffic.hbm_write_bytes == base.traffic.hbm_write_bytes, changes
        assert 0.6 < other.time_ps / base.time_ps < 1.7, changes


def test_small_granules_leave_write_backs_and_times_alike_in_both_engines() -> None:
    target = replace(machine("mi300x-spx", gpu=1), interleave_granule=256, l2_bytes_per_die=262144)
    program = stream(target, workgroups=16, iterations=6, copy=True, passes=2)
    first = run(program, target)
    assert run(program, target, engine="heap").time_ps == first.time_ps
    copied = 16 * 6 * 64 * 128 * 2
    assert first.traffic.hbm_write_bytes >= copied


def test_a_cache_of_fewer_ways_holds_less() -> None:
    target = machine("mi300x-spx", gpu=1)
    program = stream(target, workgroups=8, iterations=8, passes=3)
    small = replace(target, l2_bytes_per_die=4 * 4096, l2_ways=1)
    assert run(program, target).traffic.mall_hit_bytes == 0
    assert run(program, small).traffic.mall_hit_bytes > 0
    none = replace(small, mall_bytes=0, mall_bytes_per_stack=0)
    size = 8 * 8 * 64 * 128 * 2
    assert run(program, none).traffic.hbm_read_bytes > 2 * size
    assert run(program, small).traffic.hbm_read_bytes == size


class Configured:
    """What address functions read of a state."""

    def __init__(self, cfg: np.ndarray[Any, Any]) -> None:
        self.cfg = cfg


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from([256, 512, 4096, 16384, 65536]),
    st.integers(1, 7),
    st.booleans(),
    st.integers(0, 1 << 30),
)
def test_stacks_share_memory_without_overlap(
    granule: int, stacks: int, hashed: bool, start: int
) -> None:
    target = replace(
        load_target("mi300x-cpx-nps1", gpus=1),
        interleave_granule=granule,
        stacks_per_carrier=stacks,
        interleave_hashed=hashed,
    )
    s = Configured(configuration(target, slots=1, tile_slots=1, counters=0, launches=1, skew=False))
    addresses = AddressMap.of(target)
    find: Callable[..., Any] = interpreted(stack_of)
    block_of: Callable[..., Any] = interpreted(slice_block)
    lines_of: Callable[..., Any] = interpreted(slice_lines)
    seen: set[tuple[int, int, int]] = set()
    counts = np.zeros(4 * stacks, int)
    step = min(granule, 4096)
    first = start // (4 * stacks * granule) * 4 * stacks * granule
    for address in range(first, first + 4 * stacks * max(granule, 4096), step):
        block, offset = divmod(address, 4096)
        stack = int(find(s, 0, block, offset))
        assert addresses.place(0, address) == (block, stack)
        mask = ((1 << (step // 128)) - 1) << (offset // 128)
        local = int(block_of(s, stack, block, mask))
        lines = int(lines_of(s, stack, block, mask))
        assert 0 < lines < 1 << 32
        assert lines.bit_count() == step // 128
        key = (stack, local, lines)
        assert key not in seen
        seen.add(key)
        counts[stack] += 1
    assert counts.min() == counts.max()
