"""A pass that is broken on purpose is found by running the module: at least one way a pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.backend.program import Opcode, Program, Rows
from starc.checking.harness import Check, check_module, check_pass, check_program
from starc.interpreter.program_runs import run_stack
from starc.passes.base import RemarkSink, StarcPass
from starc.passes.pipeline import PASSES
from starc.passes.program.pack import pack
from starc.targets.target import Target
from tests.executable.cases import load, run_passes, stages
from tests.executable.engine_mutations import MUTATIONS as OF_ENGINES
from tests.executable.mutations import DEEP, MHA, Mutation, lose_the_residual
from tests.executable.mutations import MUTATIONS as OF_ONE_LEVEL
from tests.executable.two_level_mutations import CHAIN, TWO_LEVELS
from tests.executable.two_level_mutations import MUTATIONS as OF_TWO_LEVELS

MUTATIONS = OF_ONE_LEVEL + OF_TWO_LEVELS + OF_ENGINES


def checked(mutation: Mutation, break_it: bool) -> Check:
    """The module after the pass and those that follow, with or without the change."""
    loaded = load(mutation.case)
    names = [instance.name for instance in loaded.passes]
    index = len(names) - names[::-1].index(mutation.pass_name)  # where it runs for the last time
    broken = stages(mutation.case)[index].module.clone()
    if break_it:
        mutation.change(broken)
    if mutation.until is not None:
        last = names.index(mutation.until)
        # What would refuse the module is left out: the run itself must find what is wrong.
        rest = [p for p in loaded.passes[index : last + 1] if p.name != "verify-schedule"]
        broken = run_passes(loaded, broken, rest)[-1].module
    return check_module(mutation.pass_name, broken, loaded.data, loaded.reference)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_broken_pass_is_found(mutation: Mutation) -> None:
    check = checked(mutation, break_it=True)
    assert not check.ok
    assert mutation.message in check.message


def test_every_pass_is_broken_somewhere() -> None:
    assert {mutation.pass_name for mutation in MUTATIONS} == {entry.name for entry in PASSES}


@pytest.mark.parametrize("case", [MHA, DEEP, TWO_LEVELS, CHAIN], ids=str)
def test_the_unbroken_passes_are_right(case: object) -> None:
    unchanged = [m for m in MUTATIONS if m.case == case and m.pass_name == "lower-to-isa"]
    assert checked(unchanged[0], break_it=False).ok


@dataclasses.dataclass(frozen=True)
class LosesResidual(StarcPass):
    """A pass as a user might write it, with a mistake."""

    name = "loses-residual"

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        lose_the_residual(module)


def test_check_pass_reports_the_pass_and_the_tensor() -> None:
    loaded = load(MHA)
    _, check = check_pass(loaded.module, LosesResidual(), loaded.target)
    assert not check.ok
    assert check.subject == "loses-residual"
    assert check.level == "nn"
    assert check.message == "result 0 of @decoder"


# The packed rows


def _rows(program: Program, template: str, opcode: Opcode) -> list[Rows]:
    """The rows of an instruction in a template, as views."""
    info = next(info for info in program.templates if template in info.name)
    rows = program.records[info.first_record : info.first_record + info.records]
    return [row for row in rows if row["op"] == opcode]


def _row(program: Program, template: str, opcode: Opcode) -> Rows:
    return _rows(program, template, opcode)[0]


def _wrong_extent(program: Program) -> None:
    _row(program, "decoder.down", Opcode.STORE)["n2"] -= 8


def _wrong_buffer(program: Program) -> None:
    names = [info.name for info in program.buffers]
    row = _row(program, "decoder.gate_up.0", Opcode.LOAD)
    row["buffer"] = names.index("decoder.add.out")


def _wrong_function(program: Program) -> None:
    _row(program, "decoder.silu_mul", Opcode.VECTOR)["fn"] = _row(
        program, "decoder.add", Opcode.VECTOR
    )["fn"]


def _lost_signal(program: Program) -> None:
    row = _row(program, "decoder.o_all_reduce", Opcode.SIGNAL)
    row["op"], row["work"] = Opcode.DELAY, 0


def _wrong_stage(program: Program) -> None:
    _row(program, "decoder.down", Opcode.MATRIX)["stage"] = 0
    for row in _rows(program, "decoder.down", Opcode.LOAD):
        row["stage"] = 1


def _too_few_workgroups(program: Program) -> None:
    program.parts["workgroups"][np.argmax(program.parts["workgroups"])] -= 1


def _transposed_product(program: Program) -> None:
    _row(program, "decoder.attention", Opcode.MATRIX)["flags"] ^= 1


@pytest.mark.parametrize(
    "change",
    [
        _wrong_extent,
        _wrong_buffer,
        _wrong_function,
        _lost_signal,
        _wrong_stage,
        _too_few_workgroups,
        _transposed_product,
    ],
    ids=lambda change: change.__name__.strip("_"),
)
def test_a_broken_pack_is_found(change: Callable[[Program], None]) -> None:
    loaded = load(DEEP)
    program = pack(stages(DEEP)[-1].module, loaded.target)
    reference = run_stack(loaded.module, loaded.data, "exact")
    assert check_program(program, loaded.data, reference).ok
    copy = dataclasses.replace(program, records=program.records.copy(), parts=program.parts.copy())
    change(copy)
    assert not check_program(copy, loaded.data, reference).ok
