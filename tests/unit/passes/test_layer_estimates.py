"""The cost model and the simulator agree on the launches of whole layers, fused ones too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from starc.analysis.cost import launch_cost
from starc.api import Compilation, CompileOptions, compile_model, simulate
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_fusion import is_fused

EXAMPLES = Path(__file__).parents[3] / "examples"
TOLERANCE = 0.15  # for launches of 20 us and more
KINDS = ("gemm", "attention", "collective")

DECODE = {"phase": "decode", "batch": 8, "context": 128 * 1024}
PREFILL = {"phase": "prefill", "batch": 1, "prompt": 2048}

CASES: dict[str, CompileOptions] = {
    "70b decode": CompileOptions(EXAMPLES / "llama3-70b.sa", **DECODE),  # type: ignore[arg-type]
    "405b decode": CompileOptions(EXAMPLES / "llama3-405b.sa", **DECODE),  # type: ignore[arg-type]
    "70b prefill": CompileOptions(EXAMPLES / "llama3-70b.sa", **PREFILL),  # type: ignore[arg-type]
}

COARSER = {("405b decode", "decoder.o"): 0.2}
"""Launches whose estimate is farther off, and by how much at most: a push to all peers of few rows,
with a norm behind the sums, is faster than estimated."""


def estimates(kernels: Compilation) -> dict[str, float]:
    """Microseconds of every launch: what its fusion was worth, or the cost of its kernel."""
    fused: dict[str, float] = {}
    for _, remark in kernels.driver.sink.remarks:
        if remark.id == "fused" and "fused_us" in remark.numbers:
            assert remark.launch is not None
            fused[remark.launch] = float(remark.numbers["fused_us"])
    rates = DeviceRates.of(kernels.target)
    found: dict[str, float] = {}
    for op in kernels.module.walk():
        if isinstance(op, LaunchOp):
            name = op.sym_name.data
            is_product = op.kind.data == "gemm" and is_fused(op)
            found[name] = fused[name] if is_product else launch_cost(op, rates).seconds * 1e6
    return found


@pytest.mark.parametrize("name", CASES)
def test_launches_of_a_layer_take_what_was_estimated(name: str) -> None:
    options = CASES[name]
    expected = estimates(compile_model(replace(options, compile_to="kernel")))
    result = simulate(compile_model(options).packed)
    compared = 0
    for launch in result.launches:
        microseconds = launch.time_ps * 1e-6
        if launch.kind in KINDS and microseconds >= 20:
            compared += 1
            ratio = expected[launch.name] / microseconds
            tolerance = COARSER.get((name, launch.name), TOLERANCE)
            assert abs(ratio - 1) <= tolerance, (launch.name, ratio, microseconds)
    assert compared >= 3
