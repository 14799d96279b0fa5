"""Functional execution of packed rows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from starc.backend.assembly import ProgramAssembler
from starc.backend.functional import (
    FunctionalError,
    FunctionalMachine,
    TooManyInstructions,
    execute,
)
from starc.backend.program import Program, Role
from starc.backend.template import DEVICE, TemplateAssembler
from starc.core.element_types import ElementType
from tests.unit.backend.builders import gemm, ring_all_reduce, stream_copy

Array = npt.NDArray[Any]
rng = np.random.default_rng(3)


def test_stream_copy():
    program = stream_copy(workgroups=2, iterations=5, slots=3)
    x = rng.normal(size=program.buffers[0].shape)
    np.testing.assert_array_equal(execute(program, [{"x": x}])[0]["y"], x)


@pytest.mark.parametrize("shape", [(128, 256, 256), (100, 200, 130), (1, 1, 1)])
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_gemm_of_any_shape(shape: tuple[int, int, int], stages: int):
    """Edge tiles read zeros outside the matrices and write nothing there."""
    m, n, k = shape
    a, b = rng.normal(size=(m, k)), rng.normal(size=(k, n))
    result = execute(gemm(m=m, n=n, k=k, stages=stages), [{"a": a, "b": b}])
    np.testing.assert_allclose(result[0]["c"], a @ b, atol=1e-12)


def test_typed_mode_rounds_what_is_stored():
    a, b = rng.normal(size=(64, 64)), rng.normal(size=(64, 64))
    c = execute(gemm(m=64, n=64, k=64), [{"a": a, "b": b}], mode="typed")[0]["c"]
    assert c.dtype == ml_dtypes.bfloat16
    rounded = [x.astype(ml_dtypes.bfloat16).astype(np.float32) for x in (a, b)]
    expected = (rounded[0] @ rounded[1]).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_ring_all_reduce(devices: int):
    program = ring_all_reduce(devices=devices)
    shape = program.buffers[0].shape
    xs = [rng.normal(size=shape) for _ in range(devices)]
    exact = execute(program, [{"x": x} for x in xs])
    typed = execute(program, [{"x": x} for x in xs], mode="typed")
    for device in range(devices):
        np.testing.assert_allclose(exact[device]["y"], sum(xs), atol=1e-12)
        assert typed[device]["y"].tobytes() == typed[0]["y"].tobytes()


def test_deadlock_names_who_waits():
    x = {"x": np.zeros((8, 64))}
    with pytest.raises(FunctionalError, match=r"deadlock: all_reduce \(device 0, workgroup 0\)"):
        execute(ring_all_reduce(extra_wait=1), [x] * 4)


def test_refuses_above_the_limit():
    program = stream_copy(workgroups=1, iterations=5)
    x = {"x": np.zeros(program.buffers[0].shape)}
    execute(program, [x], limit=10)
    with pytest.raises(TooManyInstructions, match="stops after 9 instructions"):
        execute(program, [x], limit=9)


def small(build: Any, *, devices: int = 1) -> Program:
    """A program of two buffers of 2x8 and one kernel."""
    p = ProgramAssembler("small", {}, (("gpu", devices),))
    x = p.buffer("x", (2, 8), ElementType.F32, role=Role.INPUT)
    y = p.buffer("y", (2, 8), ElementType.F32, role=Role.OUTPUT)
    t = p.template("k")
    build(p, t, x, y)
    p.layer("layer")
    p.launch("k", [(p.add(t), 1)])
    return p.finish()


def test_tile_that_nobody_wrote():
    def build(_: ProgramAssembler, t: TemplateAssembler, x: int, y: int) -> None:
        t.store(t.tile(2, 8, ElementType.F32), y, (0, 0))

    with pytest.raises(FunctionalError, match="reads tile 0, which nobody has written"):
        execute(small(build), [{}])


def test_unwritten_memory_is_poison():
    def build(_: ProgramAssembler, t: TemplateAssembler, x: int, y: int) -> None:
        tile = t.tile(1, 8, ElementType.F32)
        t.load(tile, x, (0, 0))
        t.store(tile, y, (0, 0))

    result = execute(small(build), [{}])[0]["y"]
    assert np.isnan(result).all()


def test_overlapping_buffers_destroy_each_other():
    def build(p: ProgramAssembler, t: TemplateAssembler, x: int, y: int) -> None:
        other = p.buffer("z", (2, 8), ElementType.F32, address=p.buffers[x].address + 32)
        tile = t.tile(2, 8, ElementType.F32)
        t.load(tile, x, (0, 0))
        t.store(tile, other, (0, 0))
        t.load(tile, x, (0, 0))

    with pytest.raises(FunctionalError, match="@x of device 0 is used after @z, which overlaps"):
        execute(small(build), [{"x": np.ones((2, 8))}])


def test_device_that_does_not_exist():
    def build(_: ProgramAssembler, t: TemplateAssembler, x: int, y: int) -> None:
        tile = t.tile(2, 8, ElementType.F32)
        t.load(tile, x, (0, 0))
        t.put(tile, y, (0, 0), DEVICE + 1)

    with pytest.raises(FunctionalError, match="there is no device 2"):
        execute(small(build, devices=2), [{"x": np.ones((2, 8))}] * 2)


def test_layers_one_at_a_time_on_memories_that_stay():
    p = ProgramAssembler("two", {}, (("gpu", 1),))
    x = p.buffer("x", (2, 8), ElementType.F32, role=Role.INPUT)
    for name, function in (("double", "add"), ("square", "mul")):
        t = p.template(name)
        tile = t.tile(2, 8, ElementType.F32)
        t.load(tile, x, (0, 0))
        t.vector(function, [tile, tile, tile])
        t.store(tile, x, (0, 0))
        p.layer(name)
        p.launch(name, [(p.add(t), 1)])
    machine = FunctionalMachine(p.finish(), [{"x": np.full((2, 8), 3.0)}])
    machine.run([0, 0])
    assert (machine.buffer(0, "x") == 12).all()
    machine.run([1])
    assert (machine.buffer(0, "x") == 144).all()


def test_pipelined_loop_uses_every_slot_for_its_iteration():
    """A loop of three stages over an outer counter, with an if inside."""

    def build(_: ProgramAssembler, t: TemplateAssembler, x: int, y: int) -> None:
        with t.loop(0, 2) as row:
            tile = t.tile(1, 1, ElementType.F32, slots=3, depth=2)
            with t.loop(2, 8) as col:
                t.load(tile, x, (row, col))
                t.vector("add", [tile, tile, tile], stage=1)
                t.store(tile, y, (row, col), stage=2)

    x = rng.normal(size=(2, 8))
    y = execute(small(build), [{"x": x}])[0]["y"]
    np.testing.assert_allclose(y[:, 2:], 2 * x[:, 2:])
    assert np.isnan(y[:, :2]).all()
