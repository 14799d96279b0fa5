"""Packing a module: rows say what the module says."""

from __future__ import annotations

import numpy as np
import pytest

from starc.backend.disassembler import disassemble
from starc.backend.files import to_bytes
from starc.backend.functional import execute
from starc.backend.program import Opcode, Role
from starc.diagnostics import InputError
from starc.interpreter.concurrent import run_isa
from starc.passes.program.pack import pack
from starc.targets.loader import load_target
from tests.unit.interpreter.isa_modules import (
    MESH,
    buffer,
    launches,
    parse,
    pipelined_copy,
    ring_all_reduce,
    split_gemm,
)

TARGET = load_target("mi300x-cpx", gpus=1)


@pytest.mark.parametrize("text", [ring_all_reduce(), pipelined_copy(), split_gemm()])
def test_rows_compute_what_the_module_computes(text: str):
    """Two executions that share no decoding: the concurrent interpreter reads the IR."""
    module = parse(text)
    program = pack(module, TARGET)
    generator = np.random.default_rng(0)
    inputs = [
        {
            info.name: generator.normal(size=info.shape)
            for info in program.buffers
            if info.role in (Role.INPUT, Role.WEIGHT)
        }
        for _ in range(4)
    ]
    given = {(device, name): v for device, bufs in enumerate(inputs) for name, v in bufs.items()}
    for mode in ("exact", "typed"):
        rows = execute(program, inputs, mode=mode)
        streams = run_isa(module, given, mode=mode, seed=4)
        for (device, name), values in streams.items():
            np.testing.assert_array_equal(rows[device][name], values)


def test_equal_expressions_are_one_node():
    program = pack(parse(ring_all_reduce()), TARGET)
    nodes = [tuple(int(row[key]) for key in ("op", "l", "r", "imm")) for row in program.expressions]
    assert len(set(nodes)) == len(nodes)
    assert to_bytes(program) == to_bytes(pack(parse(ring_all_reduce()), TARGET))


def test_costs_come_from_the_target():
    program = pack(parse(ring_all_reduce()), TARGET)
    launch = program.launches[0]
    assert launch["gap_ps"] == TARGET.kernel_gap_ps
    assert launch["prologue_ps"] == TARGET.prologue_ps["collective"]
    assert launch["waits"] == 1
    assert program.target == TARGET.to_dict()
    assert program.mesh == (("gpu", 2), ("xcd", 2))


def test_counters_lie_behind_the_buffers():
    program = pack(parse(ring_all_reduce()), TARGET)
    end = max(info.address + info.bytes for info in program.buffers)
    assert program.counters[0].address >= end


def test_locations_reach_the_records():
    text = (
        MESH
        + buffer("x", "1x8xbf16", 4096, 16, role="input")
        + """
isa.kernel @k coords(%device, %gpu, %xcd, %wg) attributes {kernel_class = "norm"} {
  %t = isa.alloc scratch : !isa.tile<1x8xbf16>
  "isa.load"(%t) <{buffer = @x, starts = [#isa.expression<"0">, #isa.expression<"0">]}>
    : (!isa.tile<1x8xbf16>) -> () loc("model.sa":3:7)
}
"""
        + launches('isa.launch @k [@k grid 1] queue "compute"')
    )
    program = pack(parse(text), TARGET)
    assert program.records[0]["op"] == Opcode.LOAD
    assert program.locations[program.records[0]["location"]] == ("model.sa", 3, 7)
    assert "; model.sa:3:7" in disassemble(program)


def test_every_kernel_that_does_not_fit_is_named():
    kernels = "".join(
        f"""
isa.kernel @{name} coords(%device, %gpu, %xcd, %wg) attributes {{kernel_class = "norm"}} {{
  %t = isa.alloc scratch : !isa.tile<1x8xf64>
}}
"""
        for name in ("first", "second")
    )
    with pytest.raises(InputError) as caught:
        pack(parse(MESH + kernels), TARGET)
    assert [d.message for d in caught.value.diagnostics] == [
        "kernel first: elements of type f64 cannot be packed",
        "kernel second: elements of type f64 cannot be packed",
    ]


def test_deadlock_of_the_rows_is_refused():
    with pytest.raises(InputError, match="deadlock"):
        pack(parse(ring_all_reduce(second_wait="%s + 5")), TARGET)


def test_a_schedule_that_has_been_checked_is_not_checked_again():
    text = ring_all_reduce(second_wait="%s + 5")
    assert pack(parse(text), TARGET, schedule_is_checked=True).templates
