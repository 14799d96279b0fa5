"""Models on machines of memory cubes compute the same before and after their kernels become streams
of engines, in random interleavings, with every schedule of attention."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from starc.checking.harness import check_module, check_program, run_module
from starc.dialects.target import set_target
from starc.frontend.loading import load_model
from starc.interpreter.program_runs import run_stack
from starc.interpreter.seeded_data import seeded_data
from starc.passes.base import RemarkSink
from starc.passes.manager import instantiate
from starc.passes.program.pack import pack
from starc.passes.selection import plan_passes
from starc.passes.verification import verify
from starc.targets.loader import load_target
from tests.executable.models import MODELS

CHECKED = {"lower-to-isa": 1, "schedule-commands": 1, "plan-scratch": 1, "assign-engines": 3}
"""Interleavings that are run behind a pass."""


@dataclass(frozen=True)
class Case:
    """A model on sip x group x cube x pe elements."""

    model: str
    mesh: tuple[int, int, int, int]
    phase: str
    batch: int
    context: int
    prompt: int | None = None
    strategy: str = "naive"
    schedule: str = "pipelined"
    composites: str = "auto"

    def __str__(self) -> str:
        mesh = "x".join(map(str, self.mesh))
        return f"{self.model}-{mesh}-{self.phase}-{self.strategy}-{self.schedule}-{self.composites}"


CASES = (
    Case("gqa", (1, 1, 1, 1), "decode", 1, 37),
    Case("gqa", (1, 1, 2, 2), "decode", 3, 37, schedule="blocking"),
    Case("gqa", (1, 1, 2, 2), "decode", 3, 37, strategy="starscream", schedule="stateful"),
    Case("gqa", (1, 1, 2, 2), "prefill", 1, 21, 21, strategy="starscream"),
    Case("windows", (1, 1, 2, 2), "decode", 2, 40, schedule="stateful", composites="none"),
    Case("deep", (1, 1, 2, 1), "decode", 2, 517, strategy="starscream"),
    Case("mha", (2, 1, 2, 2), "decode", 2, 37, strategy="starscream"),
    Case("alternating", (1, 1, 2, 1), "prefill", 1, 50, 19, composites="none"),
)


@pytest.mark.parametrize("case", CASES, ids=map(str, CASES))
def test_streams_compute_what_the_model_does(case: Case) -> None:
    mesh: dict[str, int] = dict(zip(("sip", "group", "cube", "pe"), case.mesh, strict=True))
    target = replace(load_target("ahbm", mesh=mesh), stateful_composites=True)
    loaded = load_model(
        MODELS[case.model],
        file=f"{case.model}.sa",
        phase=case.phase,
        batch=case.batch,
        context=case.context,
        prompt=case.prompt,
    ).module
    set_target(loaded, target)
    data = seeded_data(loaded)
    reference = run_module(loaded, data)
    module = loaded.clone()
    options = {
        "schedule-commands": {
            "attention-schedule": case.schedule,
            "composites": case.composites,
        }
    }
    for spec in plan_passes(case.strategy, options=options):
        instantiate(spec).run(module, target, RemarkSink(pass_name=spec.name))
        verify(module, locations=False)
        for interleaving in range(CHECKED.get(spec.name, 0)):
            check = check_module(spec.name, module, data, reference, interleaving=interleaving)
            assert check.ok, (spec.name, check.error, check.message)
    program = pack(module, target)
    exact = check_program(program, data, run_stack(loaded, data, "exact"))
    assert exact.ok, (exact.error, exact.message)
