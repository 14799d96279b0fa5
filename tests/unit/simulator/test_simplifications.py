"""What docs/simulator.md says that the model leaves out, each in a program that shows it."""

from __future__ import annotations

import pytest

from starc.backend.program import Program, Role, Space
from starc.backend.template import DEVICE
from starc.targets.graph import neighbours, next_hops
from starc.targets.loader import load_target
from starc.targets.target import Target
from tests.unit.simulator.programs import (
    BF16,
    MIB,
    assembler,
    chase,
    exchange,
    machine,
    run,
    stream,
)


def test_lines_far_apart_take_a_granule_of_a_cache_each() -> None:
    target = machine(gpu=1, xcd=1)
    loads = 2048  # lines: 256 KiB of an L2 of 4 MiB, which has 1,024 granules
    near = run(chase(target, loads=loads, stride=128, passes=2), target).traffic
    far = run(chase(target, loads=loads, stride=4096, passes=2), target).traffic
    assert near.l2_hit_bytes == loads * 128
    assert far.l2_hit_bytes < 0.1 * loads * 128


def test_a_cache_that_is_read_round_and_twice_too_small_finds_nothing() -> None:
    target = machine(gpu=1, xcd=1)
    program = stream(target, workgroups=1, iterations=512, passes=2)  # 8 MiB of 4
    assert run(program, target).traffic.l2_hit_bytes < 0.05 * 8 * MIB


def test_requests_and_acknowledgements_take_no_bandwidth() -> None:
    target = machine(gpu=2, xcd=1)
    moved, signals = 16 * 16 * 16 * 256, 16 * 64  # of each of two devices
    for get in (False, True):
        program = exchange(target, peer=(DEVICE + 1) % 2, get=get)
        assert run(program, target).traffic.xgmi_bytes == 2 * (moved + signals)


def _half_a_line(target: Target, *, store: bool) -> Program:
    p = assembler("half", target)
    x = p.buffer("x", (64, 128), BF16, role=Role.INPUT)
    y = p.buffer("y", (64, 128), BF16, space=Space.SYMMETRIC)
    t = p.template("half")
    tile = t.tile(1, 32, BF16)
    if store:
        t.store(tile, y, (0, 0))
    else:
        t.load(tile, x, (0, 0))
    p.layer("half")
    p.launch("half", [(p.add(t), 1)])
    return p.finish()


def test_a_miss_fills_a_whole_line_and_a_partly_written_one_is_written_whole() -> None:
    target = load_target("mi300x-spx", gpus=1)
    assert run(_half_a_line(target, store=False), target).traffic.hbm_read_bytes == 128
    assert run(_half_a_line(target, store=True), target).traffic.hbm_write_bytes == 128


def test_a_coherent_device_leaves_its_last_writes_in_the_l2() -> None:
    target = machine(gpu=1, xcd=1)
    assert run(_half_a_line(target, store=True), target).traffic.hbm_write_bytes == 0


def test_of_three_equal_ways_two_are_used() -> None:
    # 0 and 1 are linked by way of 2, 3 and 4.
    beside = neighbours(5, [(0, 2), (0, 3), (0, 4), (2, 1), (3, 1), (4, 1)])
    assert len({table[0][1] for table in next_hops(beside)}) == 2


@pytest.mark.parametrize("name", ["b200", "h200"])
def test_coherence_in_hardware_moves_nothing(name: str) -> None:
    target = load_target(name, gpus=1)
    program = stream(target, workgroups=8, iterations=2, copy=True)
    traffic = run(program, target).traffic
    assert traffic.hbm_write_bytes == 0
    assert traffic.hbm_read_bytes == 8 * 2 * 64 * 256
