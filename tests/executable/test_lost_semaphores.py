"""Decode attention on memory cubes without one of its semaphores: ``verify-schedule`` objects
exactly where the concurrent interpreter finds data that is not there yet or not there any more."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.diagnostics import InputError
from starc.dialects import isa
from starc.interpreter.harness import ExecutionError, run_module
from starc.passes.base import RemarkSink
from starc.passes.verify_schedule import VerifySchedule
from tests.executable.cube_decode import CubeCase, compiled, load

CASE = CubeCase(2, 2, schedule="pipelined", context=37)


def semaphores(module: ModuleOp) -> list[isa.SemaphoreOp]:
    return [op for op in module.walk() if isinstance(op, isa.SemaphoreOp)]


def objects(module: ModuleOp) -> bool:
    try:
        VerifySchedule().run(module, CASE.target, RemarkSink())
    except InputError:
        return True
    return False


def runs(module: ModuleOp) -> bool:
    try:
        run_module(module, load(CASE).data)
    except ExecutionError:
        return False
    return True


def test_every_semaphore_left_out():
    module = compiled(CASE, "assign-engines")
    assert not objects(module)
    assert runs(module)
    needed = 0
    for index in range(len(semaphores(module))):
        mutant = module.clone()
        for use in list(semaphores(mutant)[index].semaphore.uses):
            use.operation.detach()
        found = objects(mutant)
        assert found != runs(mutant), f"semaphore {index}"
        needed += found
    assert needed >= 10


@pytest.mark.parametrize("schedule", ["blocking", "pipelined"])
@pytest.mark.parametrize("cubes", [1, 4])
def test_larger_machines(cubes: int, schedule: str):
    """Tens of elements, some with a key more than others."""
    case = CubeCase(cubes, 8, schedule=schedule, context=cubes * 8 * 40 + 3)
    VerifySchedule().run(compiled(case, "assign-engines"), case.target, RemarkSink())
