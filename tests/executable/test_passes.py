"""Every pass is run before and after on the grid, and the packed program against the reference."""

from __future__ import annotations

import re

import pytest

from starc.checking.harness import check_module, check_program, level_of
from starc.diagnostics import InputError, render_error
from starc.interpreter.program_runs import run_stack
from starc.passes.base import RemarkSink
from starc.passes.pipeline import PASSES
from starc.passes.program.pack import pack
from tests.executable.cases import (
    ILLEGAL,
    LARGE,
    SMALL,
    SPLIT,
    STARSCREAM,
    Case,
    load,
    passes_of,
    stages,
    to_run,
)


def names(cases: tuple[Case, ...]) -> list[str]:
    return [str(case) for case in cases]


LEVELS = ["nn", "sharding", "collective", "kernel", "isa"]


# All tests of a case follow each other, so that it is compiled once.
of_each_case = pytest.mark.parametrize(
    "case", SMALL + SPLIT, ids=names(SMALL + SPLIT), scope="module"
)


@of_each_case
def test_every_pass_keeps_what_the_model_computes(case: Case) -> None:
    loaded = load(case)
    wrong: list[str] = []
    levels: list[str] = []
    for number, stage in to_run(stages(case)):
        # Instruction streams are interleaved in another way after every pass.
        check = check_module(
            stage.pass_name, stage.module, loaded.data, loaded.reference, interleaving=number
        )
        levels.append(check.level)
        if not check.ok:
            wrong.append(f"{stage.pass_name}: {check.error} {check.message}")
    assert not wrong
    assert list(dict.fromkeys(levels)) == LEVELS


@pytest.mark.parametrize("case", STARSCREAM, ids=names(STARSCREAM))
def test_every_pass_of_two_levels_keeps_what_the_model_computes(case: Case) -> None:
    loaded = load(case)
    wrong: list[str] = []
    levels: list[str] = []
    for number, stage in to_run(stages(case), end_again=False):
        check = check_module(
            stage.pass_name, stage.module, loaded.data, loaded.reference, interleaving=number
        )
        levels.append(check.level)
        if not check.ok:
            wrong.append(f"{stage.pass_name}: {check.error} {check.message}")
    assert not wrong
    assert list(dict.fromkeys(levels)) == LEVELS
    reference = run_stack(loaded.module, loaded.data, "exact")
    program = pack(stages(case)[-1].module, loaded.target)
    for mode in ("exact", "typed"):
        result = check_program(program, loaded.data, reference, mode)
        assert result.ok, (mode, result.error, result.message)


def test_the_grid_runs_every_pass() -> None:
    run = {instance.name for case in (*SMALL, *STARSCREAM) for instance in passes_of(case)}
    assert run >= {entry.name for entry in PASSES}


@pytest.mark.parametrize("case", LARGE, ids=names(LARGE))
def test_passes_up_to_planned_memory_and_the_program_on_64_devices(case: Case) -> None:
    loaded = load(case)
    for _, stage in to_run(stages(case)):
        if level_of(stage.module) != "isa":
            check = check_module(stage.pass_name, stage.module, loaded.data, loaded.reference)
            assert check.ok, (stage.pass_name, check.error, check.message)
    program = pack(stages(case)[-1].module, loaded.target)
    exact = check_program(program, loaded.data, run_stack(loaded.module, loaded.data, "exact"))
    assert exact.ok, (exact.error, exact.message)


@of_each_case
def test_rounding_keeps_replicas_equal_and_results_close(case: Case) -> None:
    loaded = load(case)
    for stage in stages(case):
        if stage.pass_name in ("propagate-shardings", "localize", "plan-memory"):
            check = check_module(
                stage.pass_name, stage.module, loaded.data, loaded.reference, "typed"
            )
            assert check.ok, (stage.pass_name, check.error, check.message)


@of_each_case
def test_the_program_computes_what_the_model_does(case: Case) -> None:
    loaded = load(case)
    program = pack(stages(case)[-1].module, loaded.target)
    reference = run_stack(loaded.module, loaded.data, "exact")
    exact = check_program(program, loaded.data, reference)
    assert exact.ok, (exact.error, exact.message)
    typed = check_program(program, loaded.data, reference, "typed")
    assert typed.ok, (typed.error, typed.message)


@pytest.mark.parametrize(
    ("case", "message"), ILLEGAL, ids=names(tuple(case for case, _ in ILLEGAL))
)
def test_a_plan_that_does_not_divide_is_refused(case: Case, message: str) -> None:
    loaded = load(case)
    verify_model = loaded.passes[0]
    assert verify_model.name == "verify-model"
    with pytest.raises(InputError) as refused:
        verify_model.run(loaded.module.clone(), loaded.target, RemarkSink())
    assert re.search(message, render_error(refused.value))
