"""Numbers of a machine that the simulator reads, against what simulations look at."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from starc.api import CompileOptions, compile_model
from starc.command_line.arguments import build_parser
from starc.command_line.machines import changed_machine
from starc.diagnostics import InputError, UsageError
from starc.simulator.machine.recorded import reads
from starc.simulator.options import SimulationOptions
from starc.simulator.run import simulate
from starc.targets.limits import limits
from starc.targets.loader import load_target
from starc.targets.machine_file import Number
from starc.targets.names import numbers
from starc.targets.target import Target

MESHES: Mapping[str, Mapping[str, int]] = {
    "mi300x-cpx": {"gpu": 2, "xcd": 1},
    "h200": {"gpu": 2},
    "ahbm": {"sip": 2, "group": 1, "cube": 1, "pe": 2},
}
FIELDS = {item.name for item in dataclasses.fields(Target)}
# Read where a way leads through ports of carriers, by copy engines and by ways that these programs
# do not have, or by a part of the machine that others have in its place.
BY_OTHERS = {
    "ports_per_carrier",
    "port_carriers",
    "copy_engine_window_bytes",
    "gpu_links",
    "carrier_links",
    "l2_latency_ps",
}
# Of reports, which a program has with its machine.
BY_REPORTS = {"hbm_rate", "hbm_peak", "mall_bytes"}


class Watched(Target):
    """A target that notes which of its fields are read."""

    def __getattribute__(self, name: str) -> Any:
        if name in FIELDS:
            SEEN.add(name)
        return super().__getattribute__(name)


SEEN = set[str]()


@cache
def fields_read(name: str) -> frozenset[str]:
    """The fields of a machine that a simulation of a whole model reads."""
    options = CompileOptions(model="examples/tiny.sa", target=name, mesh=MESHES[name])
    program = compile_model(options).program
    assert program is not None
    target = Target.from_dict(program.target)
    watched = Watched(**{field: getattr(target, field) for field in FIELDS})
    SEEN.clear()
    every = SimulationOptions(target=watched, eager=True, governor=True, page_walk=True)
    simulate(program, every)
    return frozenset(SEEN)


def fields_of(name: str, number: Number) -> set[str]:
    """The fields of a machine that follow from a number."""
    own = load_target(name)
    least, most = limits(number.key, number.unit)
    found = set[str]()
    value = number.value
    for other in (number.low, number.high, 2 * value, value // 2, value + 1, 0.9 * value, least):
        if other is None or not least <= other <= most:
            continue
        try:
            target = load_target(name, overrides={number.key: other})
        except InputError:
            continue
        found |= {f for f in FIELDS if f != "warnings" and getattr(own, f) != getattr(target, f)}
    return found


@pytest.mark.parametrize("name", MESHES)
def test_numbers_that_run_refuses_are_those_that_no_simulation_reads(name: str) -> None:
    target = load_target(name)
    seen = fields_read(name) | BY_OTHERS
    for number in numbers(name):
        fields = fields_of(name, number)
        if not fields:
            continue  # there is one legal value, or another mode has it
        if not reads(target, number.key):
            assert not fields & seen or "issue_ps" in fields, (number.key, fields & seen)
        else:
            assert fields & seen, (number.key, fields)
            assert "issue_ps" not in fields, number.key


def run_with(name: str, *options: str) -> Target | None:
    parsed = build_parser()[0].parse_args(["run", "program.starc", *options])
    return changed_machine(load_target(name), parsed)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("ahbm", ("kernel.gap=0", "kernel.prologue_gemm=0")),
        ("ahbm", ("structure.queue_depth=1",)),
        ("ahbm", ("structure.queue_commands=1", "compute.stateful_composites=1", "issue.load=3")),
        ("ahbm", ("clock.core_mhz=500", "memory.access_bytes=64")),
        ("mi300x-cpx", ("kernel.gap_cpx=0", "transports.bulk.start=0")),
        ("h200", ("structure.register_bytes_per_lane=512", "dispatch.window_bytes_per_wave=4096")),
    ],
)
def test_run_names_every_number_that_a_program_has_in_its_records(
    name: str, keys: tuple[str, ...]
) -> None:
    named = ", ".join(key.partition("=")[0] for key in keys)
    options = [word for key in (*keys, "latency.hbm=300000") for word in ("--machine", key)]
    with pytest.raises(UsageError, match=f"^{named}: the simulator does not read .* again$"):
        run_with(name, *options)


def test_run_takes_what_the_simulator_reads() -> None:
    changed = run_with("mi300x-cpx", "--machine", "clock.core_mhz=1000")
    assert changed is not None
    assert changed.core_clock_mhz == 1000
    changed = run_with("ahbm", "--machine", "compute.tile_cycles=128", "--dram-fraction", "0.7")
    assert changed is not None
    assert changed.matrix_flops_per_clock["bf16"] == 1024
