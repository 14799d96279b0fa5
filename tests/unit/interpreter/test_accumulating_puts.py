"""Puts that add to what is there: values, order, and time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.backend.disassembler import disassemble
from starc.backend.functional import FunctionalMachine
from starc.backend.program import Opcode, Program
from starc.interpreter.concurrent import run_isa
from starc.interpreter.shared_memory import ScheduleError
from starc.passes.base import RemarkSink
from starc.passes.isa.plan_scratch import PlanScratch
from starc.passes.isa.verify_schedule import VerifySchedule
from starc.passes.program.pack import pack
from starc.simulator.options import SimulationOptions
from starc.simulator.run import simulate
from starc.targets.loader import load_target
from tests.unit.interpreter.isa_modules import MESH, buffer, launches, parse

TARGET = load_target("mi300x-cpx", mesh={"gpu": 2, "xcd": 2})
Array = npt.NDArray[Any]


def module(element: str, *, owner: str = "0", adds: bool = True) -> ModuleOp:
    """Every device adds ``x`` to ``y`` of the device ``owner``, whose workgroup waits for all."""
    attribute = " {accumulate}" if adds else ""
    text = (
        MESH
        + buffer("x", f"8x8x{element}", 0, 256, role="input")
        + buffer("y", f"8x8x{element}", 4096, 256, space="symmetric", role="output")
        + f"""isa.counter @arrived count 1
isa.kernel @push coords(%device, %gpu, %xcd, %wg) attributes {{kernel_class = "collective"}} {{
  %t = isa.alloc register : !isa.tile<8x8x{element}>
  isa.load %t, @x[0, 0] : !isa.tile<8x8x{element}>
  isa.put %t, @y[0, 0] to [{owner}]{attribute} : !isa.tile<8x8x{element}>
  isa.signal @arrived[0] add [1] to [{owner}]
  isa.if [{"%device * -1" if owner == "0" else "0"}] {{
    isa.wait @arrived[0] until [{4 if owner == "0" else 1}]
  }}
}}
"""
        + launches('isa.launch @push [@push grid 1] queue "compute"')
    )
    return parse(f"builtin.module {{\n{text}\n}}")


def inputs(dtype: Any) -> list[dict[str, Array]]:
    rng = np.random.default_rng(1)
    return [
        {name: rng.integers(-50, 50, (8, 8)).astype(dtype) for name in ("x", "y")} for _ in range(4)
    ]


def run(found: ModuleOp, given: list[dict[str, Array]], seed: int) -> dict[tuple[int, str], Array]:
    buffers = {(device, name): v for device, own in enumerate(given) for name, v in own.items()}
    return run_isa(found, buffers, seed=seed)


@pytest.mark.parametrize("seed", range(6))
def test_integers_may_be_added_by_several_in_any_order(seed: int) -> None:
    given = inputs(np.int32)
    result = run(module("i32"), given, seed)
    expected = given[0]["y"] + sum(own["x"] for own in given)
    np.testing.assert_array_equal(result[0, "y"], expected)
    np.testing.assert_array_equal(result[1, "y"], given[1]["y"])


def test_floats_may_be_added_by_one() -> None:
    given = inputs(np.float32)
    result = run(module("f32", owner="(%device + 1) mod 4"), given, 3)
    for device in range(4):
        expected = given[device]["y"] + given[(device - 1) % 4]["x"]
        np.testing.assert_array_equal(result[device, "y"], expected)


def test_floats_of_several_are_a_race() -> None:
    with pytest.raises(ScheduleError, match="add to the same floats in no order") as found:
        run(module("f32"), inputs(np.float32), 0)
    assert found.value.kind == "race"


def test_what_is_added_to_was_written() -> None:
    given = inputs(np.int32)
    for own in given:
        del own["y"]
    with pytest.raises(ScheduleError, match="which nobody has written"):
        run(module("i32"), given, 0)


def test_the_verifier_says_what_floats_depend_on() -> None:
    for element, expected in (("f32", 1), ("i32", 0)):
        found = module(element)
        PlanScratch().run(found, TARGET, RemarkSink())
        sink = RemarkSink()
        VerifySchedule().run(found, TARGET, sink)
        assert sum(remark.id == "float-sums" for _, remark in sink.remarks) == expected


def test_the_packed_program_adds_and_reads_memory_for_it() -> None:
    found = {adds: module("i32", adds=adds) for adds in (True, False)}
    programs: dict[bool, Program] = {}
    for adds, one in found.items():
        PlanScratch().run(one, TARGET, RemarkSink())
        programs[adds] = pack(one, TARGET)
    given = inputs(np.int32)
    machine = FunctionalMachine(programs[True], given)
    machine.run()
    expected = given[0]["y"] + sum(own["x"] for own in given)
    np.testing.assert_array_equal(machine.buffer(0, "y"), expected)
    assert "put accumulate" in disassemble(programs[True])
    assert any(row["op"] == Opcode.PUT for row in programs[True].records)
    options = SimulationOptions(target=TARGET, skew=False)
    adding, plain = (simulate(programs[adds], options) for adds in (True, False))
    assert adding.time_ps > plain.time_ps
    assert adding.traffic.memory_bytes > plain.traffic.memory_bytes
