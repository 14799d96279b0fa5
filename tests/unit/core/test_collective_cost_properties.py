"""Estimates of collectives: one resource at a time, on a machine where all others cost nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starc.core.collectives.cost import (
    CollectiveTime,
    choices,
    collective_time,
    is_fully_connected,
    pipelined,
    strides_of,
    transports_of,
)
from starc.core.collectives.engine_exchanges import phase_time, phases_of
from starc.core.collectives.step_loads import Step, steps_of
from starc.core.collectives.table import legal_algorithms
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.targets.loader import load_target
from starc.targets.parts import Transport
from starc.targets.target import Target

NODE = load_target("mi300x-cpx")
MESH = Mesh.from_rows("node", NODE.mesh)
GPU, XCD = (AxisRef("gpu"),), (AxisRef("xcd"),)
FREE = 10**18
PS = 1e-12
PUT = Transport(start_ps=3, step_ps=0, workgroups=4, window_bytes=FREE, share_bytes=1 << 30)
MACHINE = replace(
    NODE,
    l2_latency_ps=1_000,
    mall_latency_ps=20_000,
    store_latency_ps=300_000,
    memory_latency_ps=4_000_000,
    copy_engine_start_ps=50_000_000,
    copy_engine_rate=FREE,
    hbm_rate=FREE,
    mall_bytes=1 << 40,
    cus_per_die=38,
    link_rate=dict.fromkeys(NODE.link_rate, FREE),
    prologue_ps={"collective": 70},
    transports={"put": PUT},
)
"""Its latencies are told from a sum by their digits."""


def time(
    operation: str,
    algorithm: str,
    payload: int = 8,
    machine: Target = MACHINE,
    how: Transport = PUT,
    *,
    operands: int = 1,
) -> CollectiveTime:
    machine = replace(machine, transports={"put": how})
    return collective_time(
        operation, algorithm, "put", payload, MESH, GPU, machine, operands=operands
    )


def only_step(operation: str, algorithm: str) -> Step:
    (step,) = steps_of(operation, algorithm, MESH, GPU, MACHINE)
    return step


# What a step puts on the links


def test_a_direct_gather_puts_its_part_to_all_others() -> None:
    step = only_step("all_gather", "direct")
    # Of a GPU's eight partitions each puts an eighth to every other GPU: a link carries it all.
    assert step.links == (("usr", 2.75), ("xgmi", 1.0))
    assert step.load("xgmi") == 1.0
    assert step.load("none") == 0.0
    assert (step.times, step.sent, step.received, step.reduced) == (1, 7 / 8, 7 / 8, 0.0)
    assert (step.peers, step.arrivals, step.pulled) == (7, 0, False)
    assert (step.read, step.chunks) == (1 / 8, 1)
    assert 0 < step.mean_way_ps <= step.way_ps


def test_a_scatter_sends_different_data_to_all_others() -> None:
    pushed, pulled = (only_step("reduce_scatter", how) for how in ("one_shot", "direct"))
    assert pushed == replace(pulled, pulled=False)
    assert pulled.pulled
    assert (pushed.sent, pushed.received, pushed.reduced) == (7 / 8, 7 / 8, 7 / 8)
    assert (pushed.peers, pushed.arrivals, pushed.read, pushed.chunks) == (7, 7, 7 / 8, 7)


def test_equal_steps_of_a_ring_are_one() -> None:
    reducing, gathering = steps_of("all_reduce", "ring", MESH, GPU, MACHINE)
    assert reducing == replace(gathering, reduced=1 / 8, arrivals=1)
    assert gathering.times == 7
    assert (gathering.sent, gathering.received, gathering.read) == (1 / 8, 1 / 8, 1 / 8)
    assert (gathering.peers, gathering.arrivals, gathering.chunks) == (1, 0, 1)
    assert gathering.links == (("usr", 1.0), ("xgmi", 1.0))


def test_rings_both_ways_begin_and_end_with_a_half() -> None:
    first, middle, last = steps_of("all_gather", "bidirectional_ring", MESH, GPU, MACHINE)
    assert [step.times for step in (first, middle, last)] == [1, 2, 1]
    assert [step.sent for step in (first, middle, last)] == [1 / 4, 1 / 4, 1 / 8]
    assert [step.read for step in (first, middle, last)] == [1 / 8, 1 / 4, 1 / 8]
    assert [step.chunks for step in (first, middle, last)] == [2, 4, 2]
    assert all(step.peers == 2 for step in (first, middle, last))


def test_rings_of_other_strides_use_other_links() -> None:
    (step,) = steps_of("all_gather", "ring", MESH, GPU, MACHINE, (1, 3, 5, 7))
    assert (step.times, step.sent, step.peers, step.chunks) == (7, 1 / 8, 4, 4)
    assert step.load("xgmi") == 1 / 4
    assert step.load("usr") == 3 / 8


def test_a_ring_over_both_levels_crosses_few_links_between_gpus() -> None:
    (step,) = steps_of("all_gather", "ring", MESH, (*GPU, *XCD), MACHINE)
    assert (step.times, step.sent) == (63, 1 / 64)
    assert step.load("xgmi") == 1 / 64
    assert step.load("usr") == 2 / 64
    # Nearly all ways stay within a GPU.
    assert step.mean_way_ps < step.way_ps / 3


def test_two_devices_exchange_in_one_step() -> None:
    machine = load_target("mi300x-cpx", gpus=2)
    mesh = Mesh.from_rows("node", machine.mesh)
    for algorithm in ("direct", "ring"):
        (step,) = steps_of("all_gather", algorithm, mesh, GPU, machine)
        assert (step.times, step.sent, step.peers) == (1, 1 / 2, 1)


def test_the_mean_way_is_that_of_all_puts() -> None:
    # On four carriers with two dies each: one other die beside, four a hop away, two two hops.
    near, one, two = steps_of("all_reduce", "tree", MESH, XCD, NODE)[:3]
    (step,) = steps_of("all_gather", "direct", MESH, XCD, NODE)
    assert step.way_ps == two.way_ps
    assert step.mean_way_ps == pytest.approx(
        (near.way_ps + 4 * one.way_ps + 2 * two.way_ps) / 7, rel=1e-15
    )


@pytest.mark.parametrize("gpus", [2, 3, 5, 8])
@pytest.mark.parametrize("operation", ["all_gather", "all_reduce", "reduce_scatter", "all_to_all"])
def test_something_is_sent_in_every_step(operation: str, gpus: int) -> None:
    machine = load_target("mi300x-cpx", gpus=gpus)
    mesh = Mesh.from_rows("node", machine.mesh)
    for algorithm in legal_algorithms(operation, mesh, GPU, machine):
        for step in steps_of(operation, algorithm, mesh, GPU, machine):
            assert min(step.sent, step.received, step.read, step.peers, step.chunks) > 0
            assert (step.reduced > 0) == (step.arrivals > 0)


def test_one_device_exchanges_nothing() -> None:
    machine = replace(load_target("mi300x-cpx", gpus=1), hbm_rate=1000)
    mesh = Mesh.from_rows("node", machine.mesh)
    assert steps_of("all_gather", "direct", mesh, GPU, machine) == ()
    machine = replace(machine, transports={"put": PUT}, prologue_ps={"collective": 70})
    found = collective_time("all_gather", "direct", "put", 500, mesh, GPU, machine)
    # It copies what it has.
    assert found.seconds == pytest.approx(1.0 + 73 * PS, rel=1e-15)
    assert (found.bound_by, found.fixed) == ("memory", 73 * PS)
    assert steps_of("all_gather", "direct", MESH, XCD, MACHINE) != ()


# Seconds that do not depend on the bytes

START_PS = 73
GATHER_PS = 1_000 + 6 * (1_000 + 300_000)
REDUCE_PS = 21_000 + 6 * (1_000 + 300_000) + 6 * 20_000


def test_a_step_reads_puts_and_waits_until_its_puts_are_acknowledged() -> None:
    for algorithm, operation, read in (
        ("direct", "all_gather", GATHER_PS),
        ("one_shot", "reduce_scatter", REDUCE_PS),
    ):
        step = only_step(operation, algorithm)
        way, mean = step.way_ps, step.mean_way_ps
        assert 3 * way > 3 * mean
        found = time(operation, algorithm)
        assert found.fixed == pytest.approx((START_PS + read + 3 * way) * PS, rel=1e-12)
        assert found.seconds == pytest.approx(found.fixed, rel=1e-9)
        assert found.bound_by == "latency"


def test_parts_that_are_pulled_are_asked_for() -> None:
    way = only_step("reduce_scatter", "direct").way_ps
    found = time("reduce_scatter", "direct")
    expected = START_PS + REDUCE_PS + 20_000 + way + 3 * way
    assert found.fixed == pytest.approx(expected * PS, rel=1e-12)


def test_flags_beside_the_data_need_no_acknowledgement() -> None:
    way = only_step("all_gather", "direct").way_ps
    for factor, ways in ((1.0, 2), (2.0, 1)):
        found = time("all_gather", "direct", how=replace(PUT, payload_factor=factor))
        expected = START_PS + GATHER_PS + (ways + 1) * way
        assert found.fixed == pytest.approx(expected * PS, rel=1e-12)


def test_the_time_of_a_transport_passes_while_puts_are_under_way() -> None:
    way = only_step("all_gather", "direct").way_ps
    found = time("all_gather", "direct", how=replace(PUT, step_ps=9 * way))
    assert found.fixed == pytest.approx((START_PS + GATHER_PS + 10 * way) * PS, rel=1e-12)


def test_every_operand_is_read_and_every_copy_is_a_descriptor() -> None:
    one, three = (time("all_gather", "direct", operands=n).fixed for n in (1, 3))
    assert three - one == pytest.approx(2 * 1_000 * PS)
    engines = replace(PUT, copy_engines=1)
    one, three = (time("all_gather", "direct", how=engines, operands=n).fixed for n in (1, 3))
    assert three - one == pytest.approx(2 * (1_000 + 7 * 50_000_000) * PS)
    plain = time("all_gather", "direct").fixed
    assert one - plain == pytest.approx((7 * 50_000_000 + 4_000_000 - 1_000) * PS)


def test_steps_of_a_ring_keep_the_pace_of_the_slowest_device() -> None:
    (step,) = steps_of("all_gather", "ring", MESH, GPU, MACHINE)
    slowest = 7 * (1_000 + 2 * step.way_ps) + step.way_ps
    together = 7 * (1_000 + 2 * step.mean_way_ps + step.mean_way_ps)
    assert together > slowest
    found = time("all_gather", "ring")
    assert found.fixed == pytest.approx((START_PS + together) * PS, rel=1e-12)
    # Where the transport is slower than all ways they differ by the last way only.
    found = time("all_gather", "ring", how=replace(PUT, step_ps=4 * step.way_ps))
    slow = 7 * (1_000 + 4 * step.way_ps)
    assert found.fixed == pytest.approx((START_PS + slow + 7 * step.mean_way_ps) * PS, rel=1e-12)


def test_a_reducing_ring_reads_what_came_behind_the_cache() -> None:
    (gather,) = steps_of("all_gather", "ring", MESH, GPU, MACHINE)
    found = time("reduce_scatter", "ring").fixed - time("all_gather", "ring").fixed
    assert gather.times == 7
    assert found == pytest.approx(7 * 20_000 * PS, rel=1e-6)


# Seconds of the bytes


@pytest.mark.parametrize(("link_class", "load"), [("xgmi", 1.0), ("usr", 2.75)])
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_bytes_take_their_time_on_the_busiest_link(
    link_class: str, load: float, factor: float
) -> None:
    machine = replace(MACHINE, link_rate={**MACHINE.link_rate, link_class: 1000})
    found = time("all_gather", "direct", 8000, machine, replace(PUT, payload_factor=factor))
    assert found.bound_by == link_class
    assert found.seconds - found.fixed == pytest.approx(load * factor * 8)


@pytest.mark.parametrize(
    ("workgroups", "share", "expected"), [(4, 1 << 30, 4), (4, 100, 10), (4, 10, 38), (1, 5000, 1)]
)
@pytest.mark.parametrize("engines", [0, 1])
def test_a_window_is_in_flight_for_a_way_and_back(
    workgroups: int, share: int, expected: int, engines: int
) -> None:
    way = only_step("all_gather", "direct").way_ps
    how = replace(
        PUT,
        workgroups=workgroups,
        share_bytes=share,
        window_bytes=1,
        payload_factor=3.0,
        copy_engines=engines,
    )
    found = time("all_gather", "direct", 8000, how=how)
    # Copy engines keep bytes in flight from their read on.
    round_trip = (2 * way + 4_000_000 * (1 + engines)) * PS
    assert found.bound_by == ("window" if 2 * found.fixed < found.seconds else "latency")
    assert found.seconds - found.fixed == pytest.approx(
        7 / 8 * 8000 * 3 * round_trip / expected, rel=1e-6
    )


def test_copy_engines_have_a_rate() -> None:
    machine = replace(MACHINE, copy_engine_rate=10)
    found = time("all_gather", "direct", 8000, machine, replace(PUT, copy_engines=1))
    assert found.bound_by == "copy_engine"
    assert found.seconds - found.fixed == pytest.approx(7 / 8 * 8000 / (4 * 10))
    assert time("all_gather", "direct", 8000, machine).bound_by == "latency"


@pytest.mark.parametrize(
    ("operation", "algorithm", "mall_bytes", "share"),
    [
        ("all_gather", "direct", 1 << 40, 7 / 8),  # stored
        ("reduce_scatter", "direct", 0, 7 / 8),  # read where it is
        ("reduce_scatter", "one_shot", 1 << 40, 14 / 8),  # read and stored
        ("reduce_scatter", "one_shot", 28000, 14 / 8),
        ("reduce_scatter", "one_shot", 14000, 14 / 8 + 7 / 16),  # half of it read once more
        ("reduce_scatter", "one_shot", 7000, 21 / 8),
        ("reduce_scatter", "one_shot", 0, 21 / 8),
    ],
)
def test_memory_stores_what_came_and_reads_what_left_the_cache(
    operation: str, algorithm: str, mall_bytes: int, share: float
) -> None:
    machine = replace(MACHINE, hbm_rate=1000, mall_bytes=mall_bytes)
    found = time(operation, algorithm, 8000, machine)
    assert found.bound_by == "memory"
    # And a device's own part once in and once out.
    assert found.seconds - found.fixed == pytest.approx(share * 8 + 2 * 8 / 8)


@pytest.mark.parametrize(("operation", "filled"), [("all_gather", 0.5), ("reduce_scatter", 1.0)])
def test_workgroups_ahead_fill_the_gaps_of_others(operation: str, filled: float) -> None:
    machine = replace(MACHINE, link_rate={**MACHINE.link_rate, "xgmi": 1000})
    latency = time(operation, "ring").fixed - START_PS * PS
    found = time(operation, "ring", 8000, machine)
    assert found.bound_by == "xgmi"
    hidden = filled * 6 / 7 * latency
    assert found.seconds - found.fixed == pytest.approx(7 * 8 - hidden, rel=1e-12)
    # Nothing hides more than there is: seven steps of less than their latencies.
    small = time(
        operation, "ring", 8, replace(machine, link_rate=dict.fromkeys(NODE.link_rate, 8 * 10**12))
    )
    busy = 7 * 1.0 * PS
    assert small.seconds - small.fixed == pytest.approx(busy * (1 - filled * 6 / 7), abs=1e-17)


def test_what_is_busy_in_several_steps_adds_up() -> None:
    machine = replace(MACHINE, link_rate={**MACHINE.link_rate, "usr": 1000})
    found = time("all_reduce", "two_shot", 8000, machine)
    assert found.seconds - found.fixed == pytest.approx(2 * 2.75 * 8)
    assert found.bound_by == "usr"


def test_an_estimate_is_latency_where_that_is_more_than_half() -> None:
    way = only_step("all_gather", "direct").way_ps
    latency = (START_PS + GATHER_PS + 3 * way) * PS
    for share, bound in ((0.9, "latency"), (1.1, "xgmi")):
        rate = round(8000 / (share * latency))
        machine = replace(MACHINE, link_rate={**MACHINE.link_rate, "xgmi": rate})
        assert time("all_gather", "direct", 8000, machine).bound_by == bound


def test_nothing_in_no_time_is_no_latency() -> None:
    machine = replace(load_target("mi300x-cpx", gpus=1), prologue_ps={})
    machine = replace(machine, transports={"put": replace(PUT, start_ps=0)})
    mesh = Mesh.from_rows("node", machine.mesh)
    found = collective_time("all_gather", "direct", "put", 0, mesh, GPU, machine)
    assert found == CollectiveTime(0.0, "memory", 0.0)


@pytest.mark.parametrize("operation", ["all_gather", "all_reduce", "reduce_scatter"])
def test_more_bytes_and_operands_never_take_less_time(operation: str) -> None:
    for algorithm in legal_algorithms(operation, MESH, GPU, NODE):
        for transport in transports_of(operation, NODE):
            payloads = [1 << bits for bits in range(10, 30, 3)]
            times = [
                collective_time(operation, algorithm, transport, payload, MESH, GPU, NODE)
                for payload in payloads
            ]
            seconds = [found.seconds for found in times]
            assert seconds == sorted(seconds)
            assert len({found.fixed for found in times}) == 1
            # What leaves a device for the others crosses seven links at best.
            assert all(
                found.seconds >= 7 / 8 * payload / (7 * NODE.link_rate["xgmi"])
                for found, payload in zip(times, payloads, strict=True)
            )


# Machines of engines


@pytest.mark.parametrize("algorithm", ["ring", "bidirectional_ring", "two_shot"])
def test_phases_of_engines_add_up(algorithm: str) -> None:
    machine = load_target("ahbm")
    machine = replace(machine, prologue_ps={"collective": 11_000_000})
    mesh, axes = Mesh.from_rows("node", machine.mesh), (AxisRef("cube"),)
    how = machine.transports["bulk"]
    steps = steps_of("all_reduce", algorithm, mesh, axes, machine)
    # Kernels that go round both ways do not run ahead.
    ahead = algorithm != "bidirectional_ring"
    found = collective_time(
        "all_reduce", algorithm, "bulk", 1 << 20, mesh, axes, machine, operands=2
    )
    start = (how.start_ps + 11_000_000) * PS
    times = [
        (phase.times, phase_time(phase, 1 << 20, machine, how, 2, ahead=ahead))
        for phase in phases_of(steps)
    ]
    assert found.seconds == pytest.approx(start + sum(n * one.seconds() for n, one in times))
    assert found.fixed == pytest.approx(start + sum(n * one.fixed for n, one in times))
    busy: dict[str, float] = {}
    for count, one in times:
        busy[one.bound_by()] = busy.get(one.bound_by(), 0.0) + count * one.busy[one.bound_by()]
    assert 2 * found.fixed < found.seconds
    assert found.bound_by == max(busy, key=lambda name: busy[name])


def test_phases_of_engines_are_bound_by_what_is_busy_longest_in_all() -> None:
    machine = load_target("ahbm")
    mesh, axes = Mesh.from_rows("node", machine.mesh), (AxisRef("pe"),)
    steps = steps_of("reduce_scatter", "one_shot", mesh, axes, machine)
    how = machine.transports["bulk"]
    bounds = [
        phase_time(phase, 1 << 24, machine, how, 1, ahead=True).bound_by()
        for phase in phases_of(steps)
    ]
    assert sorted(bounds) == ["memory", "vector"]
    found = collective_time("reduce_scatter", "one_shot", "bulk", 1 << 24, mesh, axes, machine)
    assert found.bound_by == "memory"


@pytest.mark.parametrize("name", ["mi300x-cpx", "ahbm"])
def test_a_machine_may_have_no_prologue(name: str) -> None:
    machine = load_target(name)
    mesh = Mesh.from_rows("node", machine.mesh)
    axes = (AxisRef(mesh.axes[-1].name),)
    without, with_one = (
        collective_time(
            "all_gather", "ring", "bulk", 8, mesh, axes, replace(machine, prologue_ps=prologue)
        )
        for prologue in ({}, {"collective": 1})
    )
    assert with_one.fixed - without.fixed == pytest.approx(PS, rel=1e-3, abs=0)
    assert with_one.seconds - without.seconds == pytest.approx(PS, rel=1e-3, abs=0)


def test_small_exchanges_of_engines_are_latency() -> None:
    machine = load_target("ahbm")
    mesh, axes = Mesh.from_rows("node", machine.mesh), (AxisRef("pe"),)
    for payload, bound in ((64, "latency"), (1 << 24, "memory")):
        found = collective_time("all_reduce", "two_shot", "bulk", payload, mesh, axes, machine)
        assert found.bound_by == bound


# Choices


def test_phases_side_by_side_keep_the_pace_of_the_slowest() -> None:
    phases = [CollectiveTime(10.0, "a", 4.0), CollectiveTime(7.0, "b", 1.0)]
    assert pipelined(phases, 1) == CollectiveTime(17.0, "a", 5.0)
    # Parts take 7 and 4 seconds: the second part comes 7 behind the first.
    assert pipelined(phases, 2) == CollectiveTime(18.0, "a", 5.0)
    assert pipelined(phases, 3) == CollectiveTime(9.0 + 2 * 6.0, "a", 5.0)
    assert pipelined(phases[::-1], 2) == CollectiveTime(18.0, "a", 5.0)


def test_copy_engines_only_move() -> None:
    names = sorted(NODE.transports)
    for operation in ("all_gather", "all_to_all", "broadcast", "permute"):
        assert transports_of(operation, NODE) == tuple(names)
    for operation in ("all_reduce", "reduce_scatter"):
        assert transports_of(operation, NODE) == tuple(name for name in names if name != "dma")


def test_gpus_with_a_port_for_each_other_are_fully_connected() -> None:
    assert is_fully_connected(MESH, GPU, NODE)
    assert is_fully_connected(MESH, GPU, replace(NODE, ports=9))
    assert not is_fully_connected(MESH, GPU, replace(NODE, ports=7))
    assert not is_fully_connected(MESH, XCD, NODE)
    assert not is_fully_connected(MESH, (*GPU, *XCD), NODE)
    switched = load_target("h200")
    mesh = Mesh.from_rows("node", switched.mesh)
    assert switched.network == "switch"
    assert is_fully_connected(mesh, GPU, replace(switched, ports=1))
    pairs = tuple((a, b) for a in range(8) for b in range(8) if a != b)
    linked = replace(NODE, network="links", gpu_links=pairs)
    assert is_fully_connected(MESH, GPU, linked)
    fewer = replace(linked, gpu_links=tuple(pair for pair in pairs if set(pair) != {0, 1}))
    assert not is_fully_connected(MESH, GPU, fewer)


def test_only_gpus_of_the_outermost_level_have_ports_whatever_it_is_called() -> None:
    for outer, inner in (("a", "z"), ("z", "a")):
        names = {"outer": outer, "inner": inner}
        mesh = Mesh("node", tuple(replace(axis, level=names[axis.level]) for axis in MESH.axes))
        assert is_fully_connected(mesh, GPU, NODE)
        assert not is_fully_connected(mesh, XCD, NODE)


def test_only_rings_of_fully_connected_devices_have_several_strides() -> None:
    assert strides_of("ring", MESH, GPU, NODE) == (1, 3, 5, 7)
    assert strides_of("ring", MESH, XCD, NODE) == (1,)
    assert strides_of("two_shot", MESH, GPU, NODE) == (1,)
    assert strides_of("ring", MESH, GPU, replace(NODE, ports=1)) == (1,)


def test_choices_are_all_legal_ways_the_cheapest_first() -> None:
    found = choices("all_gather", 1 << 20, MESH, GPU, NODE)
    ways = {(choice.algorithm, choice.transport) for choice in found}
    assert ways == {
        (algorithm, transport)
        for algorithm in legal_algorithms("all_gather", MESH, GPU, NODE)
        for transport in NODE.transports
    }
    order = [(choice.time.seconds, choice.algorithm, choice.transport) for choice in found]
    assert order == sorted(order)
    for choice in found:
        assert choice.strides == strides_of(choice.algorithm, MESH, GPU, NODE)
        assert choice.time == collective_time(
            "all_gather",
            choice.algorithm,
            choice.transport,
            1 << 20,
            MESH,
            GPU,
            NODE,
            choice.strides,
        )


def test_equal_choices_are_in_the_order_of_their_names() -> None:
    machine = replace(MACHINE, transports={"b": PUT, "a": PUT})
    found = choices("all_gather", 8, MESH, GPU, machine, algorithms=["direct"])
    assert [choice.transport for choice in found] == ["a", "b"]


def test_choices_keep_to_what_is_asked_for_and_legal() -> None:
    found = choices(
        "all_reduce",
        1 << 20,
        MESH,
        GPU,
        NODE,
        algorithms=["ring", "direct", "two_shot"],
        transports=["ll", "dma"],
        operands=2,
    )
    assert {(choice.algorithm, choice.transport) for choice in found} == {
        ("ring", "ll"),
        ("two_shot", "ll"),
    }
    (one,) = choices(
        "all_reduce", 1 << 20, MESH, GPU, NODE, algorithms=["two_shot"], transports=["ll"]
    )
    assert one.time.fixed < min(choice.time.fixed for choice in found if choice.algorithm != "ring")
