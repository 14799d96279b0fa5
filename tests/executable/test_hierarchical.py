"""Plans with collectives by levels, at every level of the compiler and as programs."""

from __future__ import annotations

import pytest

from starc.checking.harness import check_module, check_program
from starc.interpreter.program_runs import run_stack
from starc.passes.manager import instantiate
from starc.passes.pipeline import OptionValue
from starc.passes.program.pack import pack
from starc.passes.selection import plan_passes
from tests.executable.cases import Case, decode, load, prefill, run_passes, to_run

CASES = (
    decode("gqa", (2, 2), batch=1, context=65),
    decode("mha", (4, 2), batch=2),
    decode("triple", (3, 2), batch=3),
    prefill("gqa", (2, 2), prompt=21),
)
OPTIONS: dict[str, dict[str, OptionValue]] = {
    "by cost": {},
    "ring": {"algorithm": "ring", "transport": "bulk"},
    "one_shot": {"algorithm": "one_shot"},
    "bidirectional_ring": {"algorithm": "bidirectional_ring"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("case", CASES, ids=str)
def test_phases_keep_what_the_model_computes(case: Case, options: dict[str, OptionValue]) -> None:
    run(case, {"select-collective-algorithm": options}, ())


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("case", CASES[:2], ids=str)
def test_phases_in_one_launch_keep_it_too(case: Case, parts: int) -> None:
    enabled = ("merge-collectives", "pipeline-collectives")
    run(case, {"pipeline-collectives": {"parts": parts}}, enabled)


def run(case: Case, options: dict[str, dict[str, OptionValue]], enabled: tuple[str, ...]) -> None:
    loaded = load(case)
    specs = plan_passes("hierarchical", options=options, enable=enabled)
    stages = run_passes(loaded, loaded.module, tuple(instantiate(spec) for spec in specs))
    wrong: list[str] = []
    for number, stage in to_run(stages):
        check = check_module(
            stage.pass_name, stage.module, loaded.data, loaded.reference, interleaving=number
        )
        if not check.ok:
            wrong.append(f"{stage.pass_name}: {check.error} {check.message}")
    assert not wrong
    program = pack(stages[-1].module, loaded.target)
    found = check_program(program, loaded.data, run_stack(loaded.module, loaded.data, "exact"))
    assert found.ok, (found.error, found.message)
