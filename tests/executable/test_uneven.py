"""Uneven plans compute what the model does, on shards of different sizes and empty ones."""

from __future__ import annotations

import pytest

from starc.core.sharding_rules import check
from starc.interpreter.harness import check_module, level_of
from tests.executable.cases import UNEVEN, Case, load, run_passes

LOCKSTEP = ("verify-model", "assign-tensor-parallel", "propagate-shardings", "localize")


@pytest.mark.parametrize("case", UNEVEN, ids=[str(case) for case in UNEVEN])
def test_uneven_shards_compute_what_the_model_does(case: Case) -> None:
    loaded = load(case)
    passes = [instance for instance in loaded.passes if instance.name in LOCKSTEP]
    found = run_passes(loaded, loaded.module, passes)
    for stage in found:
        assert check(stage.module) == []
        result = check_module(stage.pass_name, stage.module, loaded.data, loaded.reference)
        assert result.ok, (stage.pass_name, result.error, result.message)
    assert [level_of(stage.module) for stage in found[-2:]] == ["sharding", "collective"]
