"""Machines of memory cubes: ways, channels, links, scratch memories."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from starc.backend.program import BufferMemory, Program, Role, Space
from starc.backend.template import DEVICE
from starc.simulator.machine.carriers import (
    carrier_links,
    carrier_tables,
    channel_lines,
    die_places,
)
from starc.simulator.machine.graph import NodeKind, machine_graph
from starc.simulator.machine.services import server_layout
from starc.simulator.results.result import SimulationResult
from starc.simulator.state import servers
from starc.targets.cubes import Network
from starc.targets.loader import load_target
from starc.targets.target import Target
from tests.unit.simulator.programs import BF16, assembler, exchange, run

LINE_PS = 5000  # 128 B at 25.6 GB/s
CPU_PS = 1000  # a piece is issued a clock


def cubes(sip: int = 1, group: int = 1, cube: int = 1, pe: int = 1, **numbers: float) -> Target:
    mesh = {"sip": sip, "group": group, "cube": cube, "pe": pe}
    return load_target("ahbm", mesh=mesh, overrides={"dispatch.skew": 0, **numbers})


def plain(program: Program, target: Target, **options: Any) -> SimulationResult:
    """A run of a few events, which need no compiled core."""
    return run(program, target, jit=False, **options)


def reads(target: Target, size: int, offsets: list[int], *, bytes_between: int = 0) -> Program:
    """Every device reads pieces of ``size`` bytes at these offsets, one behind the other without
    waiting for them."""
    p = assembler("reads", target)
    x = p.buffer("x", ((max(offsets) + size) // 2 + 4096,), BF16, role=Role.INPUT)
    t = p.template("reads")
    tiles = [t.tile(1, size // 2, BF16) for _ in offsets]
    for tile, offset in zip(tiles, offsets, strict=True):
        t.load(tile, x, (offset // 2,))
    p.layer("reads")
    p.launch("reads", [(p.add(t), 1)])
    return p.finish()


def channel_work(target: Target, result: SimulationResult, pe: int = 0) -> list[int]:
    """Work of the channels of a PE."""
    first, _ = server_layout(target)
    begin = int(first[servers.HBM]) + pe * target.channels
    return result.work.sum(axis=(0, 1))[begin : begin + target.channels].tolist()


def test_all_ways_are_along_the_row_first_and_shortest() -> None:
    target = cubes(group=2, cube=8, pe=8)
    network = Network.of(target)
    for start in range(network.nodes):
        for end in range(network.nodes):
            path = network.path(start, end)
            assert (path[0], path[-1]) == (start, end)
            places = [_place(network, node) for node in path]
            if path and all(node < 128 for node in path):
                assert len({network.cubes[node] for node in path}) == 1
                _check_xy([pe for _, pe in places], 4)
            else:
                _check_xy([cube for cube, pe in places if pe < 0], 4)
                assert all(node >= 128 for node in path[1:-1])


def _place(network: Network, node: int) -> tuple[int, int]:
    """Cube of a node and its PE, -1 for the router."""
    if node < len(network.cubes):
        return network.cubes[node], network.pes[node]
    return node - len(network.cubes), -1


def _check_xy(nodes: list[int], columns: int) -> None:
    """Steps to neighbours, along the row and then along the column, and no more than need be."""
    ends = [divmod(node, columns) for node in (nodes[0], nodes[-1])]
    far = sum(abs(a - b) for a, b in zip(*ends, strict=True))
    assert len(nodes) == far + 1
    is_down = [abs(a - b) == columns for a, b in pairwise(nodes)]
    assert is_down == sorted(is_down)


def test_tables_follow_the_ways() -> None:
    target = cubes(group=2, cube=4, pe=4)
    network, graph = Network.of(target), machine_graph(target)
    tables, links = carrier_tables(target), carrier_links(target)
    shape = (2, target.carriers, target.carriers)
    routes = tables["routes"].reshape(shape)
    ways = tables["ways"].reshape(shape[1:])
    for start in range(target.carriers):
        for end in range(target.carriers):
            path, at, far = network.path(start, end), start, 0
            for following in path[1:]:
                assert routes[0, at, end] == routes[1, at, end]
                link = int(routes[0, at, end])
                assert links[link] == (at, following)
                edge = graph.edges[(NodeKind.CARRIER, 0, at), (NodeKind.CARRIER, 0, following)]
                assert edge["latency_ps"] == tables["link_ps"][link]
                far += int(tables["link_ps"][link])
                at = following
            assert ways[start, end] == far


@pytest.mark.parametrize("cube", [1, 2, 4, 8, 16])
def test_groups_are_rectangles_that_fill_the_mesh(cube: int) -> None:
    target = cubes(group=16 // cube, cube=cube, pe=1)
    places = die_places(target).reshape(-1, cube)
    assert sorted(places.ravel().tolist()) == list(range(16))
    for group in places:
        rows, columns = np.divmod(group, 4)
        height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
        assert height * width == cube
        assert width >= height


def test_channels_take_turns_of_256_bytes() -> None:
    masks = channel_lines(cubes())
    assert masks[0] == 0b11 | 0b11 << 16
    assert masks[7] == 0b11 << 14 | 0b11 << 30
    assert sum(masks.tolist()) == (1 << 32) - 1


def test_an_aligned_access_takes_all_channels_for_the_same_time() -> None:
    target = cubes()
    assert channel_work(target, plain(reads(target, 2048, [0]), target)) == [2 * LINE_PS] * 8
    assert channel_work(target, plain(reads(target, 4096, [4096]), target)) == [4 * LINE_PS] * 8


def test_one_granule_takes_one_channel() -> None:
    target = cubes()
    work = channel_work(target, plain(reads(target, 256, [512]), target))
    assert work == [0, 0, 2 * LINE_PS, 0, 0, 0, 0, 0]


def test_channels_serve_granules_side_by_side_and_one_channel_serves_them_in_turn() -> None:
    target = cubes()
    apart = plain(reads(target, 256, [256 * k for k in range(8)]), target).time_ps
    same = plain(reads(target, 256, [2048 * k for k in range(8)]), target).time_ps
    # The eighth is issued seven clocks behind the first, and waits for seven before it.
    assert same - apart == 7 * 2 * LINE_PS - 7 * CPU_PS


def test_a_misaligned_access_takes_a_channel_twice() -> None:
    target = cubes()
    work = channel_work(target, plain(reads(target, 2048, [128]), target))
    assert work == [2 * LINE_PS] * 8  # a line of the first granule, and of the next round one
    work = channel_work(target, plain(reads(target, 2048, [64]), target))
    assert work == [3 * LINE_PS, *[2 * LINE_PS] * 7]  # 17 lines
    # Bytes of less than a line cost a line.
    assert sum(channel_work(target, plain(reads(target, 64, [0]), target))) == LINE_PS


def stream(target: Target, tiles: int, size: int = 4096, slots: int = 16) -> Program:
    """Every device reads its memory from front to back."""
    p = assembler("stream", target)
    x = p.buffer("x", (tiles * size // 2,), BF16, role=Role.INPUT)
    t = p.template("stream")
    tile = t.tile(1, size // 2, BF16, slots=slots, depth=1)
    with t.loop(0, tiles) as i:
        t.load(tile, x, (i * (size // 2),))
        t.vector("zero", [tile], stage=slots - 1)
    p.layer("stream")
    p.launch("stream", [(p.add(t, window_bytes=65536), 1)])
    return p.finish()


@pytest.mark.parametrize("pe", [1, 8])
def test_pes_stream_their_own_memory_at_its_sustained_rate(pe: int) -> None:
    target = cubes(pe=pe, **{"compute.vector_lanes": 4096})
    tiles = 96
    result = plain(stream(target, tiles), target)
    rate = pe * tiles * 4096 / (result.time_ps * 1e-12)
    startup = (target.memory_latency_ps + target.prologue_ps["elementwise"]) * 1e-12
    assert rate <= pe * 204.8e9
    assert pe * tiles * 4096 / (result.time_ps * 1e-12 - startup) > 0.97 * pe * 204.8e9
    assert not any(result.traffic.links.values())


def message(
    target: Target,
    pairs: list[tuple[int, int]],
    size: int,
    *,
    memory: BufferMemory = BufferMemory.SCRATCH,
) -> Program:
    """Devices put a tile into a buffer of another one and signal it; those wait for it."""
    p = assembler("message", target)
    y = p.buffer(
        "y", (len(pairs) * size // 2,), BF16, space=Space.SYMMETRIC, memory=memory, address=0
    )
    flags = p.counter("flags", len(pairs))
    t = p.template("message")
    tile = t.tile(1, size // 2, BF16)
    for number, (source, sink) in enumerate(pairs):
        with t.if_(DEVICE - source), t.if_(DEVICE * -1 + source):
            t.put(tile, y, (number * (size // 2),), peer=sink)
            t.signal(flags, number, peer=sink, attached=True)
        with t.if_(DEVICE - sink), t.if_(DEVICE * -1 + sink):
            t.wait(flags, number)
    p.layer("message")
    p.launch("message", [(p.add(t), 1)], kind="collective")
    return p.finish()


def latency(target: Target, source: int, sink: int, size: int = 64) -> int:
    """When a device has what another one sends it, from the begin of the kernels."""
    result = plain(message(target, [(source, sink)], size), target)
    return int(result.ends[0, sink] - result.starts[0, sink])


def links_between(target: Target, source: int, sink: int) -> int:
    return len(Network.of(target).path(source, sink)) - 1


def test_a_message_takes_as_long_as_its_way() -> None:
    target = cubes(group=2, cube=8, pe=8)
    hop = target.hop_latency_ps // 2
    near = latency(target, 0, 1)
    # Along the row, down the column, to the other corner of the cube.
    for sink in (2, 3, 4, 7):
        assert latency(target, 0, sink) - near == (links_between(target, 0, sink) - 1) * hop
    # To the router, over routers, and to the PE.
    for cube in (1, 3, 4, 15):
        links = links_between(target, 0, 8 * cube)
        assert links == 2 + cube // 4 + cube % 4
        assert latency(target, 0, 8 * cube) - near == (links - 1) * hop


def test_links_of_routers_have_a_latency_of_their_own() -> None:
    slow = cubes(cube=4, pe=2, **{"latency.noc_hop": 108000})
    fast = cubes(cube=4, pe=2)
    assert latency(slow, 0, 1) == latency(fast, 0, 1)
    assert latency(slow, 0, 2) - latency(fast, 0, 2) == 50_000
    assert latency(slow, 0, 6) - latency(fast, 0, 6) == 2 * 50_000


def test_a_crossing_to_another_sip_adds_two_ports() -> None:
    target = cubes(sip=2, cube=1, pe=1)
    later = cubes(sip=2, cube=1, pe=1, **{"latency.ucie": 9000})
    assert target.link_latency_ps["ucie"] == 16_000
    assert latency(later, 0, 1) - latency(target, 0, 1) == 2 * 1000
    # Cube 0 to the port of cube 7 and from that of cube 4 to cube 0, and the PEs' links.
    links = links_between(target, 0, target.port_carriers[1])
    links += links_between(target, target.port_carriers[3], 0)
    inside = cubes(cube=2, pe=1)
    within = links_between(inside, 0, 1)
    hop = target.hop_latency_ps // 2
    # The port passes on whole messages: 64 bytes at 128 GB/s.
    expected = latency(inside, 0, 1) + (links - within) * hop + 16_000
    assert latency(target, 0, 1) - expected in range(500, 1001)


def test_messages_on_one_link_share_it() -> None:
    size = 64 * 1024
    target = cubes(cube=2, pe=4, **{"caches.scratch_port": 4096, "caches.cu_port": 4096})
    # PE 0 to 2 and PE 1 to 3 share the link from 1 to 2; PE 0 to 1 and PE 2 to 3 share nothing.
    shared = plain(message(target, [(0, 2), (1, 3)], size), target)
    apart = plain(message(target, [(0, 1), (2, 3)], size), target)
    alone = plain(message(target, [(0, 2)], size), target)
    own = size / 256e9 * 1e12
    assert shared.time_ps - alone.time_ps == pytest.approx(own, rel=0.06)
    assert apart.time_ps - alone.time_ps < 0.06 * own
    assert shared.traffic.links == {"pe_mesh": 4 * (size + 64), "noc": 0, "ucie": 0}
    assert shared.traffic.logical == {"pe_mesh": 2 * size, "noc": 0, "ucie": 0}


def test_counters_are_by_class_of_link() -> None:
    target = cubes(sip=2, cube=2, pe=2)
    size = 4096
    inside = plain(message(target, [(0, 2)], size), target).traffic
    assert inside.links == {"pe_mesh": 0, "noc": 3 * (size + 64), "ucie": 0}
    assert inside.logical == {"pe_mesh": 0, "noc": size, "ucie": 0}
    outside = plain(message(target, [(0, 4)], size), target).traffic
    assert outside.links["ucie"] == size + 64
    links = links_between(target, 0, target.port_carriers[1])
    links += links_between(target, target.port_carriers[3], 0)
    assert (links, outside.links["noc"]) == (7, links * (size + 64))
    assert outside.logical == {"pe_mesh": 0, "noc": 0, "ucie": size}


def test_what_is_put_into_scratch_memory_does_not_touch_the_memory() -> None:
    target = cubes(cube=2, pe=2)
    size = 8192
    first, _ = server_layout(target)
    result = plain(message(target, [(0, 3)], size), target)
    assert result.traffic.hbm_write_bytes == result.traffic.hbm_read_bytes == 0
    assert result.traffic.memory_bytes == result.traffic.hbm_remote_bytes == 0
    work = result.work.sum(axis=(0, 1))
    scratch = work[first[servers.SCRATCH_ACCESS] : first[servers.SCRATCH_ACCESS] + 4].tolist()
    assert scratch == [0, 0, 0, (size + 64) * 1000 // 256]
    assert not work[first[servers.HBM] : first[servers.HBM] + 4 * target.channels].any()
    memory = plain(message(target, [(0, 3)], size, memory=BufferMemory.HBM), target)
    assert memory.traffic.hbm_write_bytes == memory.traffic.hbm_remote_bytes == size
    assert channel_work(target, memory, 3) == [8 * LINE_PS] * 8


def test_stores_go_to_the_memory_and_copies_of_scratch_memory_stay_there() -> None:
    target = cubes()
    p = assembler("copies", target)
    x = p.buffer("x", (2048,), BF16)
    slot = p.buffer("slot", (2048,), BF16, space=Space.SYMMETRIC, memory=BufferMemory.SCRATCH)
    t = p.template("copies")
    tile = t.tile(1, 2048, BF16)
    t.load(tile, slot, (0,))
    t.store(tile, x, (0,))
    p.layer("copies")
    p.launch("copies", [(p.add(t), 1)])
    result = plain(p.finish(), target)
    assert result.traffic.hbm_read_bytes == 0
    assert result.traffic.hbm_write_bytes == 4096
    assert channel_work(target, result) == [4 * LINE_PS] * 8
    first, _ = server_layout(target)
    assert result.work.sum(axis=(0, 1))[first[servers.SCRATCH_ACCESS]] == 16_000


def test_no_byte_is_there_before_a_slow_link_has_passed_it_on() -> None:
    size = 4096
    slow = cubes(pe=2, **{"fabric.pe_rate": 64_000_000_000})
    fast = cubes(pe=2)
    assert latency(slow, 0, 1, size) - latency(fast, 0, 1, size) == size * 3000 // 256


@pytest.mark.parametrize("jit", [False, True])
def test_order_of_execution_changes_nothing(jit: bool) -> None:
    target = cubes(sip=2, cube=2, pe=2, **{"dispatch.skew": 16000})
    pairs = [(0, 3), (1, 2), (4, 0), (2, 7), (6, 5)]
    keys = [
        run(message(target, pairs, 6000, memory=memory), target, jit=jit, engine=engine).key()
        for memory in BufferMemory
        for engine in ("calendar", "heap")
    ]
    assert keys[0] == keys[1]
    assert keys[2] == keys[3]
    if jit:
        for key, memory in zip(keys[::2], BufferMemory, strict=True):
            assert key == plain(message(target, pairs, 6000, memory=memory), target).key()


@pytest.mark.parametrize("get", [False, True])
@pytest.mark.parametrize("hop", [4, 8])
def test_one_sip_stands_for_all(hop: int, get: bool) -> None:
    target = cubes(sip=4, cube=2, pe=2)
    program = exchange(
        target, peer=(DEVICE + hop) % target.devices, workgroups=1, iterations=2, get=get
    )
    alone = plain(program, target)
    assert alone.simulated_gpus == 1
    node = plain(program, target, full_node=True)
    assert node.simulated_gpus == 4
    assert (alone.starts.tolist(), alone.ends.tolist()) == (
        node.starts.tolist(),
        node.ends.tolist(),
    )
    assert (alone.traffic, alone.events) == (node.traffic, node.events)


@pytest.mark.parametrize(
    ("key", "factor", "classes"),
    [("fabric.pe_rate", 0.25, {"pe_mesh"}), ("fabric.noc_rate", 0.25, {"noc", "ucie"}),
     ("fabric.ucie_rate", 0.25, {"ucie"})],
)  # fmt: skip
def test_each_class_of_links_has_its_rate(key: str, factor: float, classes: set[str]) -> None:
    fast = cubes(sip=2, cube=2, pe=2)
    number = 128e9 if key == "fabric.ucie_rate" else 256e9
    slow = cubes(2, 1, 2, 2, **{key: number * factor})
    for sink, kind in ((1, "pe_mesh"), (2, "noc"), (4, "ucie")):
        size = 4096
        assert (latency(slow, 0, sink, size) > latency(fast, 0, sink, size)) == (kind in classes)
