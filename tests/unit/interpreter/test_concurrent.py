"""The concurrent interpreter computes what schedules mean, and finds what they do wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from starc.interpreter.concurrent import ScheduleError, run_isa
from tests.unit.interpreter.isa_modules import (
    MESH,
    buffer,
    launches,
    parse,
    pipelined_copy,
    ring_all_reduce,
    split_gemm,
)

Array = npt.NDArray[Any]
DEVICES = 4
SEEDS = range(12)


def everywhere(**buffers: Array) -> dict[tuple[int, str], Array]:
    return {(device, name): v for device in range(DEVICES) for name, v in buffers.items()}


def ring_inputs() -> dict[tuple[int, str], Array]:
    generator = np.random.default_rng(1)
    return {(device, "x"): generator.normal(size=(8, 8)) for device in range(DEVICES)}


def error_of(text: str, buffers: Mapping[tuple[int, str], Array]) -> ScheduleError:
    """The error that some seed finds; fails if none does."""
    module = parse(text)
    for seed in range(30):
        try:
            run_isa(module, buffers, seed=seed)
        except ScheduleError as error:
            return error
    pytest.fail("no seed finds the bug")


@pytest.mark.parametrize("seed", SEEDS)
def test_ring_all_reduce_in_any_interleaving(seed: int):
    inputs = ring_inputs()
    result = run_isa(parse(ring_all_reduce()), inputs, seed=seed)
    for device in range(DEVICES):
        np.testing.assert_allclose(result[device, "y"], sum(inputs.values()), rtol=1e-12)


def test_typed_all_reduce_has_the_same_bits_on_every_rank():
    result = run_isa(parse(ring_all_reduce()), ring_inputs(), seed=3, mode="typed")
    assert result[0, "y"].dtype == np.float32
    for device in range(1, DEVICES):
        assert result[device, "y"].tobytes() == result[0, "y"].tobytes()


@pytest.mark.parametrize("seed", SEEDS)
def test_pipelined_loop(seed: int):
    x = np.arange(64.0).reshape(8, 8)
    result = run_isa(parse(pipelined_copy()), everywhere(x=x), seed=seed)
    np.testing.assert_array_equal(result[2, "y"], x)


@pytest.mark.parametrize("seed", SEEDS)
def test_split_gemm(seed: int):
    generator = np.random.default_rng(2)
    a, b = generator.normal(size=(4, 8)), generator.normal(size=(8, 4))
    result = run_isa(parse(split_gemm()), everywhere(a=a, b=b), seed=seed)
    np.testing.assert_allclose(result[1, "c"], a @ b, rtol=1e-12)


def test_same_seed_same_run():
    first = run_isa(parse(ring_all_reduce()), ring_inputs(), seed=5, mode="typed")
    second = run_isa(parse(ring_all_reduce()), ring_inputs(), seed=5, mode="typed")
    assert all(first[key].tobytes() == second[key].tobytes() for key in first)


def test_wait_without_enough_signals_is_a_deadlock_with_its_chain():
    error = error_of(ring_all_reduce(second_wait="%s + 5"), ring_inputs())
    assert error.kind == "deadlock"
    assert "waits for @arrived[" in str(error)
    assert "all_reduce (device" in str(error)


def test_signal_that_leaves_before_its_put():
    error = error_of(ring_all_reduce(signal_before_put=True), ring_inputs())
    assert error.kind in ("race", "unwritten")
    assert "@staging" in str(error)


def test_wait_for_too_few_signals():
    error = error_of(ring_all_reduce(second_wait="%s + 3"), ring_inputs())
    assert error.kind in ("race", "unwritten")


def test_results_that_nobody_waits_for():
    """Every device puts into its neighbour's result, which ends without waiting."""
    text = (
        MESH
        + buffer("x", "1x8xbf16", 4096, 16, role="input")
        + buffer("y", "1x8xbf16", 8192, 16, space="symmetric", role="output")
        + """
isa.counter @arrived count 1
isa.kernel @k coords(%device, %gpu, %xcd, %wg) attributes {kernel_class = "collective"} {
  %t = isa.alloc scratch : !isa.tile<1x8xbf16>
  isa.load %t, @x[0, 0] : !isa.tile<1x8xbf16>
  isa.put %t, @y[0, 0] to [(%device + 1) mod 4] : !isa.tile<1x8xbf16>
  isa.signal @arrived[0] add [1] to [(%device + 1) mod 4]
  isa.wait @arrived[0] until [1]
}
"""
        + launches('isa.launch @k [@k grid 1] queue "compute"')
    )
    x = everywhere(x=np.ones((1, 8)))
    run_isa(parse(text), x)
    error = error_of(text.replace("until [1]", "until [0]"), x)
    assert error.kind == "race"
    assert "whose device ends without waiting for it" in str(error)


def test_put_to_the_wrong_peer():
    error = error_of(ring_all_reduce(peer="(%device + 3) mod 4"), ring_inputs())
    assert error.kind in ("race", "unwritten")


def test_second_launch_reuses_counters_and_staging_too_early():
    error = error_of(ring_all_reduce(repeat=True), ring_inputs())
    assert error.kind == "race"


def test_split_without_wait_is_a_race():
    buffers = everywhere(a=np.ones((4, 8)), b=np.ones((8, 4)))
    error = error_of(split_gemm(wait=False), buffers)
    assert error.kind in ("race", "unwritten")
    assert "@part" in str(error)


def test_too_few_slots_show_as_a_stale_tile():
    x = everywhere(x=np.ones((8, 8)))
    error = error_of(pipelined_copy(slots=2, store_stage=2), x)
    assert error.kind == "stale"
    assert "%t" in str(error)


def kernel(body: str, *, buffers: str, grid: int = 1) -> str:
    return (
        MESH
        + buffers
        + "isa.counter @ready count 1\n"
        + 'isa.kernel @k coords(%device, %gpu, %xcd, %wg) attributes {kernel_class = "norm"} {\n'
        + "%t = isa.alloc scratch : !isa.tile<1x8xbf16>\n"
        + body
        + "\n}\n"
        + launches(f'isa.launch @k [@k grid {grid}] queue "compute"')
    )


X = buffer("x", "2x8xbf16", 4096, 32, role="input")
Y = buffer("y", "2x8xbf16", 8192, 32, role="output")


def test_unwritten_memory():
    body = "isa.load %t, @y[0, 0] : !isa.tile<1x8xbf16>"
    error = error_of(kernel(body, buffers=X + Y), everywhere(x=np.ones((2, 8))))
    assert error.kind == "unwritten"
    assert "reads @y of device" in str(error)


def test_unwritten_tile():
    body = "isa.store %t, @y[0, 0] : !isa.tile<1x8xbf16>"
    error = error_of(kernel(body, buffers=X + Y), {})
    assert error.kind == "unwritten"
    assert "reads %t, which nobody has written" in str(error)


def test_two_workgroups_write_the_same_rows():
    body = (
        'isa.vector "zero"(%t) : !isa.tile<1x8xbf16>\nisa.store %t, @y[0, 0] : !isa.tile<1x8xbf16>'
    )
    error = error_of(kernel(body, buffers=X + Y, grid=2), {})
    assert error.kind == "race"


def test_private_buffer_of_another_device():
    body = "isa.get %t, @x[0, 0] from [(%device + 1) mod 4] : !isa.tile<1x8xbf16>"
    error = error_of(kernel(body, buffers=X + Y), everywhere(x=np.ones((2, 8))))
    assert error.kind == "private"


def test_overlapping_buffers_destroy_each_other():
    body = (
        "isa.load %t, @x[0, 0] : !isa.tile<1x8xbf16>\n"
        "isa.store %t, @y[0, 0] : !isa.tile<1x8xbf16>\n"
        "isa.load %t, @x[1, 0] : !isa.tile<1x8xbf16>"
    )
    overlapping = X + buffer("y", "2x8xbf16", 4096, 32, role="output")
    error = error_of(kernel(body, buffers=overlapping), everywhere(x=np.ones((2, 8))))
    assert error.kind == "overwritten"


def test_counter_and_device_bounds():
    error = error_of(kernel("isa.signal @ready[1] add [1]", buffers=X + Y), {})
    assert error.kind == "bounds"
    body = "isa.signal @ready[0] add [1] to [%device + 1]"
    assert error_of(kernel(body, buffers=X + Y), {}).kind == "bounds"


def test_gather_leaves_zeros_for_rows_it_does_not_have():
    text = (
        MESH
        + buffer("ids", "2x1xi32", 4096, 8, role="input")
        + buffer("table", "4x8xbf16", 8192, 64, role="weight")
        + buffer("y", "2x8xbf16", 12288, 32, role="output")
        + """
isa.kernel @k coords(%device, %gpu, %xcd, %wg) attributes {kernel_class = "embedding"} {
  %ids = isa.alloc register : !isa.tile<2x1xi32>
  %t = isa.alloc scratch : !isa.tile<2x8xbf16>
  isa.load %ids, @ids[0, 0] : !isa.tile<2x1xi32>
  isa.gather %t, @table[0] rows %ids - [%device * 4] : !isa.tile<2x8xbf16>, !isa.tile<2x1xi32>
  isa.store %t, @y[0, 0] : !isa.tile<2x8xbf16>
}
"""
        + launches('isa.launch @k [@k grid 1] queue "compute"')
    )
    table = np.arange(1.0, 33.0).reshape(4, 8)
    result = run_isa(parse(text), everywhere(ids=np.array([[2], [5]]), table=table))
    np.testing.assert_array_equal(result[0, "y"], np.stack([table[2], np.zeros(8)]))
    np.testing.assert_array_equal(result[1, "y"], np.stack([np.zeros(8), table[1]]))
