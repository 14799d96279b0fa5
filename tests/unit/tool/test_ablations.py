"""Every pass of the plan of two levels can be left out of real models, or says what needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from starc.api import CompileOptions, compile_model
from starc.diagnostics import UsageError
from starc.passes.pipeline import STRATEGIES

EXAMPLES = Path(__file__).parents[3] / "examples"
PASSES = tuple(dict.fromkeys(name for name, _ in STRATEGIES["starscream"].passes))
OPTIONAL = (
    "shard-attention-sequence",
    "orthogonalize-gemms",
    "sink-norm-scale",
    "compose-reshards",
    "interchange-collectives",
    "hierarchical-collectives",
    "merge-collectives",
    "fuse-compute-collectives",
    "pipeline-collectives",
    "schedule-commands",
    "pipeline-loops",
)


@pytest.mark.parametrize("model", ["llama3-70b", "gpt-oss-120b"])
@pytest.mark.parametrize("name", OPTIONAL)
def test_optional_passes_can_be_left_out(name: str, model: str) -> None:
    compilation = compile_model(
        CompileOptions(EXAMPLES / f"{model}.sa", batch=1, context=128 * 1024, disable=(name,))
    )
    assert compilation.packed.launches.size > 0
    assert compilation.fits


@pytest.mark.parametrize("name", [name for name in PASSES if name not in OPTIONAL])
def test_others_say_what_needs_them(name: str) -> None:
    if name in ("verify-model", "verify-schedule"):  # checks, on which nothing depends
        return
    with pytest.raises(UsageError, match=f"pass '{name}' cannot be disabled: '.*' needs"):
        compile_model(CompileOptions(EXAMPLES / "tiny.sa", gpus=1, disable=(name,)))
