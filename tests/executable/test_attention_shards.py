"""Attention with windows and sinks, and over sequence-sharded caches, at the lockstep levels."""

from __future__ import annotations

import pytest

from starc.interpreter.harness import check_module
from starc.passes.base import RemarkSink
from tests.executable.cases import Case, decode, load, prefill

WINDOWS = (
    decode("windows", (1, 1), batch=2),
    decode("windows", (2, 2), batch=3, context=37),
    decode("windows", (4, 2), batch=1, context=1),
    decode("windows", (2, 2), batch=4, tp=2),
    prefill("windows", (4, 2), batch=2, prompt=21),
    prefill("windows", (2, 2), prompt=7, context=40),
)


@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_windows_and_sinks_in_the_naive_plan(case: Case) -> None:
    loaded = load(case)
    module = loaded.module.clone()
    for instance in loaded.passes:
        if instance.name == "form-kernels":
            break
        instance.run(module, loaded.target, RemarkSink(pass_name=instance.name))
        for mode in ("exact", "typed"):
            check = check_module(instance.name, module, loaded.data, loaded.reference, mode)
            assert check.ok, (instance.name, mode, check.error, check.message)
