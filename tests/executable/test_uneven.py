"""Uneven plans compute what the model does, on shards of different sizes and empty ones."""

from __future__ import annotations

import pytest

from starc.core.sharding_rules import check
from starc.interpreter.harness import check_module, check_program
from starc.interpreter.program_runs import run_stack
from starc.passes.pack import pack
from tests.executable.cases import UNEVEN, Case, load, stages
from tests.executable.test_passes import LEVELS


@pytest.mark.parametrize("case", UNEVEN, ids=[str(case) for case in UNEVEN])
def test_uneven_shards_compute_what_the_model_does(case: Case) -> None:
    loaded = load(case)
    levels: list[str] = []
    for number, stage in enumerate(stages(case)):
        assert check(stage.module) == []
        result = check_module(
            stage.pass_name, stage.module, loaded.data, loaded.reference, interleaving=number
        )
        assert result.ok, (stage.pass_name, result.error, result.message)
        levels.append(result.level)
    assert list(dict.fromkeys(levels)) == LEVELS


@pytest.mark.parametrize("case", UNEVEN, ids=[str(case) for case in UNEVEN])
def test_the_program_of_an_uneven_plan_computes_what_the_model_does(case: Case) -> None:
    loaded = load(case)
    program = pack(stages(case)[-1].module, loaded.target)
    reference = run_stack(loaded.module, loaded.data, "exact")
    for mode in ("exact", "typed"):
        result = check_program(program, loaded.data, reference, mode)
        assert result.ok, (result.error, result.message)
