"""Meshes with several axes a level: every plan computes what the model does after every pass.

Instruction streams run behind the last pass; test_passes.py runs them behind each.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from starc.checking.harness import check_module, check_program, level_of
from starc.interpreter.program_runs import run_stack
from starc.passes.pipeline import STRATEGIES
from starc.passes.program.pack import pack
from tests.executable.cases import NESTED, Case, load, stages, to_run

PLANS = tuple(replace(case, strategy=name) for name in STRATEGIES for case in NESTED)


@pytest.mark.parametrize("case", PLANS, ids=str)
def test_every_pass_keeps_what_the_model_computes(case: Case) -> None:
    loaded = load(case)
    for number, stage in to_run(stages(case)):
        if level_of(stage.module) != "isa" or stage is stages(case)[-1]:
            check = check_module(
                stage.pass_name, stage.module, loaded.data, loaded.reference, interleaving=number
            )
            assert check.ok, (stage.pass_name, check.error, check.message)
    program = pack(stages(case)[-1].module, loaded.target)
    result = check_program(program, loaded.data, run_stack(loaded.module, loaded.data, "exact"))
    assert result.ok, (result.error, result.message)
