"""What the L2s of a device with several keep from one kernel to the next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starc.backend.program import Program, Role
from starc.backend.template import WORKGROUP
from starc.targets.loader import load_target
from starc.targets.target import Target
from tests.unit.simulator.programs import BF16, KIB, assembler, run

WORKGROUPS = 16
BYTES = WORKGROUPS * 16 * KIB


def kernels(target: Target, *accesses: tuple[str, int]) -> Program:
    """A kernel for each access: every workgroup loads or stores its tile, or that of the workgroup
    ``shift`` further, which is on another die."""
    p = assembler("kernels", target)
    x = p.buffer("x", (WORKGROUPS * 64, 128), BF16, block=(16, 128), role=Role.INPUT)
    p.layer("kernels")
    for k, (what, shift) in enumerate(accesses):
        t = p.template(f"kernel{k}")
        tile = t.tile(64, 128, BF16)
        start = ((WORKGROUP + shift) % WORKGROUPS * 64, 0)
        if what == "load":
            t.load(tile, x, start)
            t.vector("zero", [tile])
        else:
            t.store(tile, x, start)
        p.launch(f"kernel{k}", [(p.add(t, waves=4), WORKGROUPS)])
    return p.finish()


def machines() -> tuple[Target, Target]:
    """A device of several L2s that are emptied after each kernel, and one that keeps lines."""
    spx = load_target("mi300x-spx", gpus=1)
    return spx, replace(spx, l2_retains=True)


@pytest.mark.parametrize(
    ("accesses", "emptied", "kept"),
    [
        # Read twice: the second kernel finds all of it.
        ((("load", 0), ("load", 0)), 0, BYTES),
        # Written, written back and read: the copy is clean and valid.
        ((("store", 0), ("load", 0)), 0, BYTES),
        # Read by one die, written by another: the copy of the first is taken out of its L2.
        ((("load", 0), ("store", 1), ("load", 0)), 0, 0),
        # Read by another die than before: it has no copy.
        ((("load", 0), ("load", 1)), 0, 0),
    ],
)
def test_hits_in_the_last_kernel(
    accesses: tuple[tuple[str, int], ...], emptied: int, kept: int
) -> None:
    for target, expected in zip(machines(), (emptied, kept), strict=True):
        result = run(kernels(target, *accesses), target)
        assert result.launches[-1].traffic.l2_hit_bytes == expected
        assert result.launches[-1].traffic.memory_bytes == BYTES - expected


def test_dirty_lines_are_written_once() -> None:
    for target in machines():
        traffic = run(kernels(target, ("store", 0), ("load", 0), ("load", 0)), target).traffic
        assert traffic.hbm_write_bytes == BYTES


def test_traffic_that_retention_saves() -> None:
    emptied, kept = machines()
    accesses = [("load", 0)] * 4
    saved = [
        run(kernels(target, *accesses), target).traffic.memory_bytes for target in (emptied, kept)
    ]
    assert saved == [4 * BYTES, BYTES]


def test_mi350_keeps_lines_and_mi300_does_not() -> None:
    assert load_target("mi355x-spx").l2_retains
    assert not load_target("mi300x-spx").l2_retains
