"""Accesses reach as far as devices hold a buffer: in program files, execution and simulation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from starc.backend.disassembler import disassemble
from starc.backend.files import from_bytes, to_bytes
from starc.backend.functional import FunctionalMachine
from starc.backend.program import Program, Role, Space
from starc.backend.template import DEVICE, WORKGROUP
from starc.backend.validation import problems
from starc.core.extents import LogicalExtents, Rotation
from starc.targets.target import Target
from tests.unit.simulator.programs import BF16, assembler, machine, run

PAIR = machine(gpu=1, xcd=2)
UNEVEN = LogicalExtents(((8, 64), (3, 48)))
EMPTY = LogicalExtents(((8, 64), (0, 64)))
TURNED = LogicalExtents(
    ((4, 4, 64), (4, 4, 64)), Rotation(1, 0, 1, 1, 2, 7, (0, 1), ((0, 1, 2, 3),), (0, 0))
)


def copy(
    extents: LogicalExtents | None,
    shape: tuple[int, ...] = (8, 64),
    *,
    target: Target = PAIR,
    push: bool = False,
) -> Program:
    """``y = x``, of the own device or (``push``) of the other one, a few tiles for all."""
    p = assembler("copy", target)
    x = p.buffer("x", shape, BF16, role=Role.INPUT, extents=extents)
    y = p.buffer("y", shape, BF16, role=Role.OUTPUT, space=Space.SYMMETRIC, extents=extents)
    t = p.template("copy")
    rows = 8
    for extent in shape[1:-1]:
        rows *= extent
    tile = t.tile(rows // 2, 64, BF16)
    starts = (WORKGROUP * 4, *(0 for _ in shape[1:]))
    box = (4, *shape[1:])
    t.load(tile, x, starts, box)
    if push:
        t.put(tile, y, starts, DEVICE * -1 + 1, box)
    else:
        t.store(tile, y, starts, box)
    p.layer("copy")
    p.launch("copy", [(p.add(t), -(-shape[0] // 4))])
    return p.finish()


@pytest.mark.parametrize("extents", [UNEVEN, EMPTY])
def test_files_keep_extents(extents: LogicalExtents) -> None:
    program = copy(extents)
    again = from_bytes(to_bytes(program))
    assert [info.extents for info in again.buffers] == [extents, extents]
    assert to_bytes(again) == to_bytes(program)


def test_files_keep_rotations() -> None:
    program = copy(TURNED, (4, 4, 64))
    again = from_bytes(to_bytes(program))
    assert [info.extents for info in again.buffers] == [TURNED, TURNED]
    assert b'"extents"' not in to_bytes(copy(None))


def test_extents_that_do_not_fit_are_a_problem() -> None:
    program = copy(None)
    info = dataclasses.replace(program.buffers[0], extents=LogicalExtents(((9, 64), (8, 64))))
    broken = dataclasses.replace(program, buffers=(info, program.buffers[1]))
    assert problems(broken) == ["buffer x: extents [9, 64] exceed the shape [8, 64]"]


def test_the_text_says_what_devices_hold() -> None:
    assert "held 8x64, 3x48" in disassemble(copy(UNEVEN))
    assert (
        "held 4x4x64 x 2, of dim 1 positions p with ((p + 1) floordiv 1 + row of dim 0) mod 2"
        in disassemble(copy(TURNED, (4, 4, 64)))
    )


@pytest.mark.parametrize("push", [False, True])
def test_loads_and_stores_are_clipped(push: bool) -> None:
    program = copy(UNEVEN, push=push)
    x = np.arange(8 * 64.0).reshape(8, 64)
    machine = FunctionalMachine(program, [{"x": x}, {"x": x}])
    machine.run()
    first, second = machine.buffer(0, "y"), machine.buffer(1, "y")
    expected = x.copy()
    if push:  # of the other device, which holds zeros beyond its part
        expected[3:], expected[:, 48:] = 0, 0
    np.testing.assert_array_equal(first, expected)
    np.testing.assert_array_equal(second[:3, :48], x[:3, :48])
    assert np.isnan(second[3:]).all()
    assert np.isnan(second[:, 48:]).all()


def test_rows_hold_different_positions() -> None:
    program = copy(TURNED, (4, 4, 64))
    x = np.arange(4 * 4 * 64.0).reshape(4, 4, 64)
    machine = FunctionalMachine(program, [{"x": x}, {"x": x}])
    machine.run()
    for device in range(2):
        y = machine.buffer(device, "y")
        held = TURNED.device(device).rows
        assert sorted(set(held)) == [3, 4]
        for row, count in enumerate(held):
            np.testing.assert_array_equal(y[row, :count], x[row, :count])
            assert np.isnan(y[row, count:]).all()


@pytest.mark.parametrize("push", [False, True])
@pytest.mark.parametrize(
    ("extents", "shape", "elements"),
    [
        (None, (8, 64), 2 * 8 * 64),
        (UNEVEN, (8, 64), 8 * 64 + 3 * 48),
        (EMPTY, (8, 64), 8 * 64),
        (TURNED, (4, 4, 64), (4 * 7) * 64),
    ],
)
def test_only_what_is_held_moves(
    extents: LogicalExtents | None, shape: tuple[int, ...], elements: int, push: bool
) -> None:
    result = run(copy(extents, shape, push=push), PAIR)
    traffic = result.traffic
    if push:
        assert traffic.logical["die"] == 2 * elements
    assert traffic.l2_miss_bytes + traffic.l2_hit_bytes == 2 * elements
    assert result.time_ps > 0


def test_compiled_and_interpreted_cores_agree() -> None:
    for program in (copy(UNEVEN), copy(TURNED, (4, 4, 64), push=True)):
        assert run(program, PAIR).key() == run(program, PAIR, jit=False).key()
