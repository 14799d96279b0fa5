"""No wait and no signal of a compiled model can be lost unnoticed.

The naive plan: fused kernels have waits that an exchange before them makes needless, as where the
squares of a norm are added up over the devices whose rows the next kernel reads. What they cannot
lose is tested kernel by kernel.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.api import Compilation, CompileOptions, compile_model
from starc.diagnostics import InputError
from starc.dialects import isa
from starc.interpreter.isa_runs import run_streams
from starc.interpreter.seeded_data import ModelData, seeded_data
from starc.interpreter.spmd import ExecutionError
from starc.passes.base import RemarkSink
from starc.passes.isa.verify_schedule import VerifySchedule

TINY = str(Path(__file__).parents[3] / "examples" / "tiny.sa")
MESH = {"gpu": 2, "xcd": 2}
SEEDS = range(8)


@pytest.fixture(scope="module")
def compiled() -> Compilation:
    return compile_model(CompileOptions(TINY, mesh=MESH, strategy="naive", compile_to="isa"))


@pytest.fixture(scope="module")
def data() -> ModelData:
    return seeded_data(compile_model(CompileOptions(TINY, mesh=MESH, compile_to="nn")).module)


def without(module: ModuleOp, index: int) -> ModuleOp:
    """A copy of the module without its operation of this number."""
    changed = module.clone()
    operation = list(changed.walk())[index]
    operation.detach()
    operation.erase()
    return changed


def run_seeds(module: ModuleOp, data: ModelData) -> None:
    for seed in SEEDS:
        run_streams(module, data, "exact", seed)


def positions(module: ModuleOp, kind: type) -> list[int]:
    return [i for i, op in enumerate(module.walk()) if isinstance(op, kind)]


def test_the_schedule_as_it_is(compiled: Compilation, data: ModelData):
    VerifySchedule().run(compiled.module, compiled.target, RemarkSink())
    run_seeds(compiled.module, data)


def test_a_lost_signal_is_found_without_running(compiled: Compilation):
    signals = positions(compiled.module, isa.SignalOp)
    assert signals
    for index in signals:
        with pytest.raises(InputError, match=r"waits forever|deadlock"):
            VerifySchedule().run(without(compiled.module, index), compiled.target, RemarkSink())


def test_a_lost_wait_is_found_by_interleaving(compiled: Compilation, data: ModelData):
    waits = positions(compiled.module, isa.WaitOp)
    assert waits
    for index in waits:
        changed = without(compiled.module, index)
        with pytest.raises(ExecutionError, match=r"race|nobody has written|without waiting"):
            run_seeds(changed, data)
