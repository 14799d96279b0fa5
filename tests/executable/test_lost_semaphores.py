"""Attention on memory cubes without one of its semaphores: ``verify-schedule`` objects exactly
where the concurrent interpreter finds data that is not there yet or not there any more."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.checking.harness import ExecutionError, run_module
from starc.diagnostics import InputError
from starc.dialects import isa
from starc.interpreter.seeded_data import ModelData
from starc.passes.base import RemarkSink
from starc.passes.isa.verify_schedule import VerifySchedule
from starc.targets.target import Target
from tests.executable import cube_decode, test_ring_prefill

DECODE = cube_decode.CubeCase(2, 2, schedule="pipelined", context=37)
PREFILL = test_ring_prefill.Case(4, 1, query=32)


def semaphores(module: ModuleOp) -> list[isa.SemaphoreOp]:
    return [op for op in module.walk() if isinstance(op, isa.SemaphoreOp)]


def objects(module: ModuleOp, target: Target) -> bool:
    try:
        VerifySchedule().run(module, target, RemarkSink())
    except InputError:
        return True
    return False


def runs(module: ModuleOp, data: ModelData) -> bool:
    try:
        run_module(module, data)
    except ExecutionError:
        return False
    return True


def decode() -> tuple[ModuleOp, Target, ModelData]:
    module = cube_decode.compiled(DECODE, "assign-engines")
    return module, DECODE.target, cube_decode.load(DECODE).data


def prefill() -> tuple[ModuleOp, Target, ModelData]:
    module = test_ring_prefill.compiled(PREFILL, "assign-engines")
    return module, PREFILL.target, test_ring_prefill.load(PREFILL).data


@pytest.mark.parametrize(("make", "least"), [(decode, 10), (prefill, 6)])
def test_every_semaphore_left_out(
    make: Callable[[], tuple[ModuleOp, Target, ModelData]], least: int
) -> None:
    module, target, data = make()
    assert not objects(module, target)
    assert runs(module, data)
    needed = 0
    for index in range(len(semaphores(module))):
        mutant = module.clone()
        for use in list(semaphores(mutant)[index].semaphore.uses):
            use.operation.detach()
        found = objects(mutant, target)
        assert found != runs(mutant, data), f"semaphore {index}"
        needed += found
    assert needed >= least


@pytest.mark.parametrize("schedule", ["blocking", "pipelined"])
@pytest.mark.parametrize("cubes", [1, 4])
def test_larger_machines(cubes: int, schedule: str) -> None:
    """Tens of elements, some with a key more than others."""
    case = cube_decode.CubeCase(cubes, 8, schedule=schedule, context=cubes * 8 * 40 + 3)
    module = cube_decode.compiled(case, "assign-engines")
    VerifySchedule().run(module, case.target, RemarkSink())
