"""The forms that interchange-collectives chooses are the faster ones in the simulator, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from starc.api import CompileOptions, compile_model, simulate

EXAMPLES = Path(__file__).parents[3] / "examples"
PASS: Final = "interchange-collectives"
TOLERANCE: Final = 0.05

SMALL_70B: Final[Mapping[str, str]] = {
    "hidden": "2048",
    "heads": "16",
    "kv_heads": "2",
    "ffn": "7168",
    "vocab": "8192",
}
"""Llama-3-70B with a quarter of its features, for the devices of a quarter of its machine."""


def options(model: str, gpu: int, xcd: int, **more: object) -> CompileOptions:
    mesh = {"gpu": gpu, "xcd": xcd}
    return CompileOptions(EXAMPLES / f"{model}.sa", mesh=mesh, **more)  # type: ignore[arg-type]


CASES: dict[str, CompileOptions] = {
    "walkthrough": options("walkthrough", 2, 4),
    "walkthrough prefill": options("walkthrough", 2, 4, phase="prefill", prompt=128),
    "tiny 2x2": options("tiny", 2, 2),
    "tiny 2x4": options("tiny", 2, 4),
    "small 70B": options("llama3-70b", 2, 4, batch=8, context=2048, settings=SMALL_70B),
    "small 70B prefill": options(
        "llama3-70b", 2, 4, phase="prefill", batch=1, prompt=256, settings=SMALL_70B
    ),
}

SLOWER: dict[str, float] = {}
"""Layers whose chosen forms are known to be slower than other ones, and by how much at most."""


def seconds(case: CompileOptions, spec: str | None) -> float:
    """Simulated seconds of the layers with the pass and its options, or without it."""
    if spec is None:
        chosen = replace(case, disable=(PASS,))
    else:
        chosen = replace(case, enable=(spec,))
    return simulate(compile_model(chosen).packed).time_ps * 1e-12


@pytest.mark.parametrize("name", CASES)
def test_chosen_forms_are_no_slower_than_given_ones(name: str) -> None:
    case = CASES[name]
    chosen = seconds(case, PASS)
    forced = {form: seconds(case, f"{PASS}{{form={form}}}") for form in ("scatter", "gather")}
    forced["none"] = seconds(case, None)
    limit = (1 + SLOWER.get(name, TOLERANCE)) * min(forced.values())
    assert chosen <= limit, {form: chosen / other for form, other in forced.items()}
