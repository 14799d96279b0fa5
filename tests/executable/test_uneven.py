"""Uneven plans compute what the model does, on shards of different sizes and empty ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starc.analysis.sharding_rules import check
from starc.api import CompileOptions, passes_of
from starc.checking.harness import check_module, check_program, level_of
from starc.interpreter.program_runs import run_stack
from starc.passes.manager import instantiate
from starc.passes.program.pack import pack
from tests.executable.cases import (
    UNEVEN,
    Case,
    decode,
    load,
    prefill,
    run_passes,
    stages,
    to_run,
)
from tests.executable.test_passes import LEVELS

# Both tests of a case follow each other, so that it is compiled once.
of_each_case = pytest.mark.parametrize("case", UNEVEN, ids=str, scope="module")


@of_each_case
def test_uneven_shards_compute_what_the_model_does(case: Case) -> None:
    loaded = load(case)
    levels: list[str] = []
    for number, stage in to_run(stages(case)):
        assert check(stage.module) == []
        result = check_module(
            stage.pass_name, stage.module, loaded.data, loaded.reference, interleaving=number
        )
        assert result.ok, (stage.pass_name, result.error, result.message)
        levels.append(result.level)
    assert list(dict.fromkeys(levels)) == LEVELS


@of_each_case
def test_the_program_of_an_uneven_plan_computes_what_the_model_does(case: Case) -> None:
    loaded = load(case)
    program = pack(stages(case)[-1].module, loaded.target)
    reference = run_stack(loaded.module, loaded.data, "exact")
    for mode in ("exact", "typed"):
        result = check_program(program, loaded.data, reference, mode)
        assert result.ok, (result.error, result.message)


OF_EVERY_STRATEGY = [case for case in UNEVEN if case.devices <= 8 and case.batch > 1]


@pytest.mark.parametrize("strategy", ["hierarchical", "starscream"])
@pytest.mark.parametrize("case", OF_EVERY_STRATEGY, ids=[str(case) for case in OF_EVERY_STRATEGY])
def test_every_strategy_has_uneven_plans(case: Case, strategy: str) -> None:
    loaded = load(case)
    options = CompileOptions(
        "", strategy=strategy, uneven=True, tensor_parallel=case.tensor_parallel
    )
    found = run_passes(loaded, loaded.module, [instantiate(spec) for spec in passes_of(options)])
    for _, stage in to_run(found):
        assert check(stage.module) == []
        # The interleaved run is of the finished streams alone.
        if level_of(stage.module) != "isa" or stage is found[-1]:
            result = check_module(stage.pass_name, stage.module, loaded.data, loaded.reference)
            assert result.ok, (stage.pass_name, result.error, result.message)
    program = pack(found[-1].module, loaded.target)
    reference = run_stack(loaded.module, loaded.data, "exact")
    result = check_program(program, loaded.data, reference)
    assert result.ok, (result.error, result.message)


# KV heads over parts of both axes, query heads over what is left of both.
CROSSED = [
    replace(case, uneven=True)
    for case in (
        decode("groups", (6, 4), batch=2, context=17),
        prefill("fours", (6, 4), prompt=3, context=9),
    )
]


@pytest.mark.parametrize("case", CROSSED, ids=[str(case) for case in CROSSED])
def test_heads_over_parts_of_both_axes(case: Case) -> None:
    loaded = load(case)
    options = CompileOptions("", strategy="starscream", uneven=True, compile_to="collective")
    found = run_passes(loaded, loaded.module, [instantiate(spec) for spec in passes_of(options)])
    for _, stage in to_run(found):
        assert check(stage.module) == []
        result = check_module(stage.pass_name, stage.module, loaded.data, loaded.reference)
        assert result.ok, (stage.pass_name, result.error, result.message)
