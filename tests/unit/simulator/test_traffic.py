"""Bytes are counted where they go, and every class of links takes time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starc.backend.program import Program, Role, Space
from starc.backend.template import DEVICE
from starc.core.quasi_affine.expressions import Expression
from starc.targets.loader import load_target
from starc.targets.target import Target
from tests.unit.simulator.programs import BF16, KIB, assembler, exchange, machine, run, stream

BYTES = 16 * 16 * 4 * KIB  # of ``exchange``, per device


def test_three_quarters_of_an_interleaved_stream_are_remote() -> None:
    target = load_target("mi300x-spx", gpus=1)
    traffic = run(stream(target, workgroups=64, iterations=4), target).traffic
    assert traffic.hbm_remote_bytes / traffic.hbm_read_bytes == 0.75
    # One hop on average: 1/4 at home, 1/2 one link away, 1/4 two.
    assert traffic.links["usr"] == traffic.hbm_read_bytes


def test_a_partition_reads_only_its_own_carrier() -> None:
    target = machine(gpu=1, xcd=8)
    traffic = run(stream(target, workgroups=16, iterations=4), target).traffic
    assert traffic.hbm_remote_bytes == 0
    assert traffic.links["usr"] == 0


def test_second_pass_hits_the_l2() -> None:
    target = machine(gpu=1, xcd=1)
    traffic = run(stream(target, workgroups=16, iterations=8, passes=2), target).traffic
    assert traffic.l2_hit_bytes == traffic.l2_miss_bytes == traffic.hbm_read_bytes


def test_uncached_loads_pass_the_l2_and_hit_the_cache_of_the_stack() -> None:
    target = machine(gpu=1, xcd=1)
    program = stream(target, workgroups=16, iterations=8, passes=2, acquire=True)
    traffic = run(program, target).traffic
    assert traffic.l2_hit_bytes == 0
    assert traffic.mall_hit_bytes == traffic.hbm_read_bytes


def test_devices_with_several_l2s_write_them_back_at_the_end_of_a_kernel() -> None:
    spx, cpx = load_target("mi300x-spx", gpus=1), machine(gpu=1, xcd=1)
    written = 16 * 4 * 16 * KIB
    program = stream(spx, workgroups=16, iterations=4, copy=True)
    assert run(program, spx).traffic.hbm_write_bytes == written
    program = stream(cpx, workgroups=16, iterations=4, copy=True)
    assert run(program, cpx).traffic.hbm_write_bytes == 0


@pytest.mark.parametrize(
    ("distance", "links"),
    [
        (1, {"die": 8, "usr": 6, "xgmi": 2}),  # device 7's successor is on the other GPU
        (4, {"die": 0, "usr": 8, "xgmi": 8}),
        (8, {"die": 0, "usr": 0, "xgmi": 16}),
    ],
)
def test_transfers_are_counted_once_by_their_class(distance: int, links: dict[str, int]) -> None:
    target = machine(gpu=2, xcd=8)
    program = exchange(target, peer=(DEVICE + distance) % 16)
    logical = run(program, target).traffic.logical
    assert dict(logical) == {key: devices * BYTES for key, devices in links.items()}


def slower(target: Target, link: str) -> Target:
    return replace(target, link_rate={**target.link_rate, link: target.link_rate[link] // 16})


@pytest.mark.parametrize(
    ("link", "peer"),
    [("usr", DEVICE // 8 * 8 + (DEVICE + 4) % 8), ("xgmi", (DEVICE + 8) % 16)],
)
def test_a_slower_link_makes_what_crosses_it_slower(link: str, peer: Expression) -> None:
    target = machine(gpu=2, xcd=8)
    crossing = exchange(target, peer=peer)
    staying = exchange(target, peer=DEVICE)
    assert times(crossing, slower(target, link)) > 1.5 * times(crossing, target)
    assert times(staying, slower(target, link)) == times(staying, target)


def test_a_slower_port_of_the_dies_makes_their_memory_slower() -> None:
    target = machine(gpu=1, xcd=1)
    program = stream(target, workgroups=38, iterations=16)
    narrow = replace(target, die_port_bytes_per_clock=64)
    assert times(program, narrow) > 2 * times(program, target)


def times(program: Program, target: Target) -> int:
    return run(program, target).time_ps


def test_time_is_never_below_the_lower_bound() -> None:
    for target in (machine(gpu=2, xcd=2), load_target("mi300x-spx", gpus=2)):
        for program in (
            stream(target, workgroups=64, iterations=8, copy=True),
            exchange(target, peer=(DEVICE + 1) % target.devices),
        ):
            layer = run(program, target).layers[0]
            assert 0 < layer.peak_bound_ps <= layer.lower_bound_ps <= layer.time_ps


@pytest.mark.parametrize("cached", [False, True])
def test_workgroups_of_a_die_share_the_cached_reads_of_a_peer(cached: bool) -> None:
    target = machine(gpu=1, xcd=8)
    p = assembler("get", target)
    x = p.buffer("x", (64, 128), BF16, block=(16, 128), role=Role.INPUT, space=Space.SYMMETRIC)
    for name in ("first", "second"):
        t = p.template(name)
        tile = t.tile(64, 128, BF16)
        t.get(tile, x, (0, 0), (DEVICE + 1) % 8, cached=cached)
        t.vector("zero", [tile])
        p.add(t, waves=4)
    p.layer("get")
    for index in range(2):
        p.launch(f"get{index}", [(index, 16)])
    result = run(p.finish(), target)
    size = 64 * 128 * 2
    # Each launch reads anew what its peer may have changed, each workgroup or all as one.
    fetched = 2 * size if cached else 2 * 16 * size
    assert result.traffic.links["die"] == 8 * fetched
    assert result.traffic.l2_miss_bytes == (8 * fetched if cached else 0)
    # A hit is no transfer: what is counted once is what arrives from peers.
    logical = result.traffic.logical
    assert logical["usr"] + logical["die"] == 8 * fetched
    assert logical["usr"] <= result.traffic.links["usr"]
