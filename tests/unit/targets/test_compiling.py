"""Models compile, compute what they should and run on every machine and mode."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from starc.api import CompileOptions, compile_model, load, simulate
from starc.checking.harness import check_program
from starc.interpreter.program_runs import run_stack
from starc.interpreter.seeded_data import seeded_data
from starc.targets.loader import load_target
from starc.targets.names import target_names

TINY = Path(__file__).parents[3] / "examples" / "tiny.sa"
SETTINGS = {"heads": "16", "kv_heads": "16", "head_dim": "8", "ffn": "256", "hidden": "128"}
MESHES = {"ahbm": {"sip": 2, "group": 2, "cube": 4, "pe": 4}}
"""A part of a machine, with more elements than heads: all 256 of two SIPs would each execute the
rows of exchanges with 255 others."""
OTHER_NUMBERS = ("mi325x", "mi350x")
"""Products that are those of another file with other numbers: test_products.py runs all."""


def check(options: CompileOptions) -> None:
    module = load(options).module
    data = seeded_data(module)
    compilation = compile_model(options)
    found = check_program(compilation.packed, data, run_stack(module, data, "exact"))
    assert found.ok, (found.error, found.message)
    assert simulate(compilation.packed, None) is not None


@pytest.mark.parametrize("strategy", ["naive", "hierarchical"])
@pytest.mark.parametrize(
    "name", [name for name in target_names() if not name.startswith(OTHER_NUMBERS)]
)
def test_every_mode(name: str, strategy: str) -> None:
    # Sixteen heads over the six or twelve devices of two MI300A.
    uneven = 16 % (2 * load_target(name, gpus=1).devices) != 0
    mesh = MESHES.get(name.split("-")[0])
    options = CompileOptions(TINY, name, strategy=strategy, settings=SETTINGS, uneven=uneven)
    check(replace(options, gpus=2) if mesh is None else replace(options, mesh=mesh))


@pytest.mark.parametrize("strategy", ["naive", "hierarchical"])
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_the_mesh_of_the_paper(strategy: str, phase: str) -> None:
    check(
        CompileOptions(
            TINY,
            "mi300x-cpx",
            mesh={"gpu": 4, "xcd": 2},
            strategy=strategy,
            phase=phase,
            settings=SETTINGS,
        )
    )


@pytest.mark.parametrize("strategy", ["naive", "hierarchical"])
@pytest.mark.parametrize("name", ["mi300x-cpx", "mi300x-spx", "mi355x-dpx"])
def test_one_gpu(name: str, strategy: str) -> None:
    check(CompileOptions(TINY, name, gpus=1, strategy=strategy, settings=SETTINGS))
