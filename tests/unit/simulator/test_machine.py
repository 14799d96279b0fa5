"""The machine graph, its routes, the address map, and which pieces a tile is."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from starc.backend.numerics import clip_held
from starc.backend.program import BufferInfo, LayoutKind, Role, Space
from starc.core.element_types import ElementType
from starc.core.extents import LogicalExtents, Rotation
from starc.core.memory.layout import Layout, blocked, row_major, runs
from starc.simulator.core.compiled import interpreted
from starc.simulator.core.streams.pieces import begin_pieces, next_piece
from starc.simulator.machine.address_map import AddressMap
from starc.simulator.machine.carriers import carrier_tables
from starc.simulator.machine.graph import NodeKind, machine_graph, route
from starc.simulator.program.buffers import buffer_rows
from starc.simulator.state.program_records import BUFFER
from starc.simulator.state.stream_records import GROUP
from starc.targets.graph import port_to
from starc.targets.loader import load_target
from tests.unit.simulator.programs import machine


def test_graph_of_a_node() -> None:
    graph = machine_graph(load_target("mi300x-spx"))
    kinds = Counter(kind for kind, _, _ in graph)
    assert kinds == {"die": 64, "carrier": 32, "stack": 64, "port": 56}
    links = Counter(data["link"] for _, _, data in graph.edges(data=True))
    assert links["xgmi"] == 56  # every GPU to every other
    assert links["usr"] == 8 * 8


def test_port_to_a_peer_and_its_carrier() -> None:
    target = load_target("mi300x-cpx")
    assert port_to(target, 0, 1) == 1
    assert port_to(target, 1, 0) == 7
    graph = machine_graph(target)
    assert graph.has_edge((NodeKind.PORT, 0, 7), (NodeKind.CARRIER, 0, 3))


def test_routes_are_shortest() -> None:
    target = load_target("mi300x-cpx")
    assert route(target, 0, 0, 3) == [0, 3]
    assert len(route(target, 0, 0, 2)) == 3
    tables = carrier_tables(target)
    hop = target.hop_latency_ps // 2
    assert tables["ways"].reshape(4, 4)[0].tolist() == [0, hop, 2 * hop, hop]
    routes, ends = tables["routes"], tables["link_ends"]
    # One link onwards and one backwards; across, the address bit chooses.
    assert ends.tolist() == [1, 3, 2, 0, 3, 1, 0, 2]
    assert routes.reshape(2, 4, 4)[:, 0].tolist() == [[0, 0, 0, 1], [0, 0, 1, 1]]


def test_interleave_over_all_stacks_leaves_three_quarters_remote() -> None:
    addresses = AddressMap.of(load_target("mi300x-spx"))
    stacks = [addresses.place(0, page * 4096)[1] for page in range(4096)]
    assert stacks[:9] == [0, 1, 2, 3, 4, 5, 6, 7, 0]
    assert np.mean([stack // 2 != 0 for stack in stacks]) == 0.75


def test_partitions_of_a_carrier_share_its_two_stacks() -> None:
    addresses = AddressMap.of(load_target("mi300x-cpx"))
    for device in range(8):
        stacks = {addresses.place(device, page * 4096)[1] for page in range(64)}
        assert stacks == {device // 2 * 2, device // 2 * 2 + 1}
    granules = [addresses.place(device, 0)[0] for device in range(8)]
    assert len(set(granules)) == 8


@st.composite
def boxes(draw: st.DrawFn) -> tuple[Layout, tuple[int, ...], tuple[int, ...], int]:
    rank = draw(st.integers(1, 4))
    outer = tuple(draw(st.integers(1, 5)) for _ in range(rank - 1))
    shape = (*outer, draw(st.sampled_from([8, 64, 96, 130, 4096])))
    if rank > 1:
        shape = (*shape[:-2], draw(st.integers(1, 70)), shape[-1])
    if draw(st.booleans()) and rank > 1:
        layout = blocked(
            shape, (draw(st.sampled_from([1, 16, 32])), draw(st.sampled_from([8, 64])))
        )
    else:
        layout = row_major(shape)
    starts = tuple(draw(st.integers(-2, extent + 1)) for extent in shape)
    extents = tuple(draw(st.integers(1, 2 * extent)) for extent in shape)
    return layout, starts, extents, draw(st.sampled_from([1, 2, 4]))


def buffer_row(layout: Layout, element: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    shape = (1,) * (4 - len(layout.shape)) + layout.shape
    block = (1,) * (4 - len(layout.block)) + layout.block if layout.block else (1, 1, 1, shape[3])
    grid = (-(-shape[2] // block[2]), -(-shape[3] // block[3]))
    row = (0, *shape, 0, shape[1], block[2], block[3], *grid, element, -1, -1, 0, 0, 0)
    return np.array([row], BUFFER)


@settings(deadline=None)
@given(boxes())
def test_pieces_are_the_runs_of_the_layout(
    box: tuple[Layout, tuple[int, ...], tuple[int, ...], int],
) -> None:
    layout, starts, extents, element = box
    begin, take = interpreted(begin_pieces), interpreted(next_piece)
    group, buffer = np.zeros(1, GROUP)[0], buffer_row(layout, element)[0]
    low = (0,) * (4 - len(starts)) + starts
    size = (1,) * (4 - len(extents)) + extents
    bounds = [bound for a, n in zip(low, size, strict=True) for bound in (a, a + n)]
    found: list[tuple[int, int]] = []
    held = np.zeros(1, np.int32)
    if begin(group, buffer, held, 0, *(np.int64(bound) for bound in bounds)):
        while group["run_left"] > 0:
            address = int(group["run"])
            found.append((address, int(take(group, buffer, held, False, 4096))))
    assert sorted(found) == sorted(runs(layout, starts, extents, element))


@st.composite
def uneven(draw: st.DrawFn) -> tuple[BufferInfo, tuple[int, ...], tuple[int, ...]]:
    """A buffer of two devices that hold parts of it, and an access."""
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 40)), draw(st.sampled_from([8, 64, 96])))
    block = draw(st.sampled_from([(), (1, 16, 64), (2, shape[1], 8), (1, shape[1], 64)]))
    shapes = [tuple(draw(st.integers(0, n)) for n in shape) for _ in range(2)]
    rotation = None
    if draw(st.booleans()):
        turned = draw(st.sampled_from([1, 2]))
        whole = 2 * shape[turned] - draw(st.integers(0, 1))
        rows = tuple(tuple(range(first, first + held[0])) for first, held in enumerate(shapes))
        rotation = Rotation(turned, 0, 1, draw(st.integers(0, 1)), 2, whole, (0, 1), rows, (0, 1))
        shapes = [(*held[:turned], shape[turned], *held[turned + 1 :]) for held in shapes]
    extents = LogicalExtents(tuple(shapes), rotation)
    assert not extents.problems(shape, 2)
    kind = LayoutKind.BLOCKED if block else LayoutKind.ROW_MAJOR
    size = Layout("blocked" if block else "row_major", shape, block).bytes(2)
    info = BufferInfo(
        "x", ElementType.BF16, shape, kind, block, 0, size, Space.PRIVATE, Role.INPUT, "", extents
    )
    starts = tuple(draw(st.integers(-2, extent + 1)) for extent in shape)
    box = tuple(draw(st.integers(1, 2 * extent)) for extent in shape)
    return info, starts, box


@settings(deadline=None)
@given(uneven(), st.integers(0, 1), st.booleans())
def test_pieces_are_what_the_device_holds(
    access: tuple[BufferInfo, tuple[int, ...], tuple[int, ...]], device: int, paired: bool
) -> None:
    info, starts, extents = access
    begin, take = interpreted(begin_pieces), interpreted(next_piece)
    table: list[int] = []
    group, buffer = np.zeros(1, GROUP)[0], buffer_rows([info], table)[0]
    held = np.array(table, np.int32)
    bounds = [bound for a, n in zip(starts, extents, strict=True) for bound in (a, a + n)]
    found: Counter[int] = Counter()
    if begin(group, buffer, held, device, *(np.int64(bound) for bound in (0, 1, *bounds))):
        while group["run_left"] > 0:
            address = int(group["run"])
            found.update(range(address, address + int(take(group, buffer, held, paired, 4096))))
    layout = Layout("blocked" if info.block else "row_major", info.shape, info.block)
    expected: Counter[int] = Counter()
    assert info.extents is not None
    for box in clip_held(starts, extents, info.extents.device(device)).boxes:
        indices = np.ix_(*(np.arange(p.start, p.stop, dtype=np.int64) for p in box.memory))
        first = 2 * layout.offsets(indices).ravel()
        expected.update([*first.tolist(), *(first + 1).tolist()])
    assert found == expected


def test_a_machine_of_a_few_dies_has_their_share_of_memory() -> None:
    assert machine(gpu=4, xcd=2).device_memory_bytes == 24_000_000_000
    addresses = AddressMap.of(machine("mi300x-cpx-nps1", gpu=1, xcd=6))
    assert addresses.domain_stacks == 6
    assert {addresses.place(0, 4096 * k)[1] for k in range(12)} == set(range(6))
