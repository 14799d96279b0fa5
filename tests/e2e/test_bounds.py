"""No simulated time is below the bounds that are reported with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from starc.api import CompileOptions, compile_model
from starc.report.bounds import largest, launch_bound_work, launches, layer_work
from starc.simulator.run import simulate

EXAMPLES = Path(__file__).parents[2] / "examples"
ROUNDING = 1 - 1e-6

CASES = [
    (name, target, gpus, phase)
    for target in ("mi300x-cpx", "mi300x-spx")
    for name, gpus in (("tiny", 1), ("attention", 1), ("llama3-8b", 1), ("llama3-70b", 4))
    for phase in ("decode", "prefill")
    if (name, target) != ("tiny", "mi300x-cpx")  # it has fewer heads than a GPU has dies
] + [("llama3-405b", "mi300x-spx", 8, "decode")]


@pytest.mark.parametrize(("name", "target", "gpus", "phase"), CASES)
def test_time_is_never_below_a_bound(name: str, target: str, gpus: int, phase: str) -> None:
    options = CompileOptions(str(EXAMPLES / f"{name}.sa"), target, gpus, phase=phase)
    if name != "tiny" and phase == "decode":
        options = replace(options, batch=4, context=4096)
    elif name != "tiny":
        options = replace(options, batch=4, prompt=512)
    compilation = compile_model(options)
    program, machine = compilation.program, compilation.target
    assert program is not None
    result = simulate(program)
    for launch, title in enumerate(program.launch_names):
        _, seconds = largest(launch_bound_work(program, launch, machine).times(machine))
        window = int(result.ends[launch].max() - result.starts[launch].min())
        assert window >= seconds * 1e12 * ROUNDING, title
    for layer, time in zip(program.layers, result.layers, strict=True):
        assert time.time_ps >= time.lower_bound_ps
        rows = list(launches(layer))
        window = int(result.ends[rows[-1]].max() - result.starts[rows[0]].min())
        for is_peak in (False, True):
            _, seconds = largest(layer_work(program, layer).times(machine, peak=is_peak))
            assert window >= seconds * 1e12 * ROUNDING, layer.name
