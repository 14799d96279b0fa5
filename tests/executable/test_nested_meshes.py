"""Meshes with several axes a level: every plan computes what the model does after every pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starc.checking.harness import check_module, check_program
from starc.interpreter.program_runs import run_stack
from starc.passes.pipeline import STRATEGIES
from starc.passes.program.pack import pack
from tests.executable.cases import NESTED, Case, load, stages

PLANS = tuple(replace(case, strategy=name) for name in STRATEGIES for case in NESTED)


@pytest.mark.parametrize("case", PLANS, ids=str)
def test_every_pass_keeps_what_the_model_computes(case: Case) -> None:
    loaded = load(case)
    before = ""
    for number, stage in enumerate(stages(case)):
        text = str(stage.module)
        if text != before:  # a pass that found something to do
            check = check_module(
                stage.pass_name, stage.module, loaded.data, loaded.reference, interleaving=number
            )
            assert check.ok, (stage.pass_name, check.error, check.message)
        before = text
    program = pack(stages(case)[-1].module, loaded.target)
    result = check_program(program, loaded.data, run_stack(loaded.module, loaded.data, "exact"))
    assert result.ok, (result.error, result.message)
