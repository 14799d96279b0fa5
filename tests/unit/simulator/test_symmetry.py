"""One GPU stands for all, to the picosecond, or the report says what differs."""

from __future__ import annotations

import pytest

from starc.backend.program import Program, Role, Space
from starc.backend.template import DEVICE, WORKGROUP
from starc.core.quasi_affine.expressions import Expression
from starc.simulator.symmetry.proof import find_symmetry
from starc.targets.target import Target
from tests.unit.simulator.programs import BF16, assembler, exchange, machine, run, stream

EIGHT = machine(gpu=8, xcd=1)
PAIRS = machine(gpu=8, xcd=2)
GPUS = 8


def assert_stands_in(program: Program, target: Target) -> None:
    """One GPU and the node have the same times, work and traffic."""
    one = run(program, target)
    all_of_them = run(program, target, full_node=True)
    assert one.whole_node == ""
    assert one.simulated_gpus == 1
    assert all_of_them.simulated_gpus == GPUS
    assert one.key() == all_of_them.key()


def assert_whole_node(program: Program, target: Target, reason: str) -> None:
    assert reason in find_symmetry(program, target).reason


@pytest.mark.parametrize("get", [False, True])
@pytest.mark.parametrize("hop", [1, 3, 7])
def test_an_exchange_at_fixed_addresses(hop: int, get: bool) -> None:
    peer = (DEVICE + hop) % EIGHT.devices
    assert_stands_in(exchange(EIGHT, peer=peer, workgroups=4, iterations=4, get=get), EIGHT)


def test_a_program_without_peers() -> None:
    assert_stands_in(stream(EIGHT, workgroups=8, iterations=4, copy=True), EIGHT)


def test_a_pair_of_dies() -> None:
    program = stream(PAIRS, workgroups=16, iterations=4, copy=True)
    assert_stands_in(program, PAIRS)


def gather(
    target: Target,
    *,
    rows: int,
    first: Expression,
    peer: Expression,
    everything: bool = False,
    kind: str = "collective",
) -> Program:
    """Every device puts ``rows`` rows of 256 bytes to the place ``first`` of a peer's buffer, and
    reads what the one before it has put there, or ``everything``, in kernels of a kind."""
    p = assembler("gather", target)
    x = p.buffer("x", (rows, 128), BF16, role=Role.INPUT)
    y = p.buffer("y", (GPUS * rows, 128), BF16, space=Space.SYMMETRIC)
    arrived = p.counter("arrived", GPUS)
    t = p.template("gather")
    tile = t.tile(16, 128, BF16, slots=2, depth=1)
    with t.loop(0, rows // 16) as i:
        t.load(tile, x, (i * 16, 0))
        t.put(tile, y, (first * rows + i * 16, 0), peer, stage=1)
    t.signal(arrived, first, peer=peer)
    t.wait(arrived, (first + GPUS - 1) % GPUS, 1)
    reads = p.template("reads")
    read = reads.tile(16, 128, BF16)
    if everything:
        reads.load(read, y, (WORKGROUP * 16, 0))
    else:
        place = (first + GPUS - 1) % GPUS
        reads.load(read, y, (place * rows + WORKGROUP * 16, 0), acquire=True)
    p.layer("gather")
    p.launch("gather", [(p.add(t), 1)], kind=kind)
    workgroups = (GPUS if everything else 1) * rows // 16
    p.launch("reads", [(p.add(reads), workgroups)], kind=kind, gap_ps=20_000_000)
    return p.finish()


def test_addresses_that_turn_with_the_gpu() -> None:
    peer = (DEVICE + 1) % GPUS
    assert_stands_in(gather(EIGHT, rows=64, first=DEVICE, peer=peer), EIGHT)


def test_kernels_that_exchange_while_they_compute() -> None:
    peer = (DEVICE + 1) % GPUS
    program = gather(EIGHT, rows=64, first=DEVICE, peer=peer, kind="gemm")
    assert_whole_node(program, EIGHT, "between GPUs while it computes")


def test_what_caches_find_in_part_runs_the_whole_node() -> None:
    peer = (DEVICE + 1) % GPUS
    program = gather(EIGHT, rows=64, first=DEVICE, peer=peer, everything=True)
    result = run(program, EIGHT)
    assert "in the memory-side cache, not all or nothing" in result.whole_node
    assert result.key() == run(program, EIGHT, full_node=True).key()


def test_addresses_on_other_stacks() -> None:
    peer = (DEVICE + 1) % GPUS
    program = gather(EIGHT, rows=16, first=DEVICE, peer=peer)
    assert_whole_node(program, EIGHT, "other memory stacks")
    assert run(program, EIGHT).simulated_gpus == GPUS


def test_a_root_is_no_rotation() -> None:
    program = exchange(EIGHT, peer=0, workgroups=1, iterations=1)
    assert_whole_node(program, EIGHT, "is no rotation of the GPUs")


def test_devices_of_different_roles() -> None:
    program = stream(EIGHT, workgroups=4, iterations=1, idle_from=4)
    assert_whole_node(program, EIGHT, "a condition of @stream depends on the GPU")


def test_a_machine_whose_links_differ() -> None:
    four = machine(gpu=4, xcd=1)
    program = stream(four, workgroups=4, iterations=1)
    assert_whole_node(program, four, "the network of the machine differs from GPU to GPU")


def test_one_gpu_is_the_whole_node() -> None:
    one = machine(gpu=1, xcd=1)
    assert_whole_node(stream(one, workgroups=4, iterations=1), one, "there is one GPU")
