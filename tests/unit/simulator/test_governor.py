"""Power follows from what servers do, and the clock from the power cap."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starc.simulator.options import SimulationOptions
from starc.simulator.results.governor import PowerModel, at_clock, govern, power_of, stretched
from starc.simulator.results.usage import Usage, steady_usage
from starc.simulator.run import simulate, simulate_governed
from starc.targets.loader import load_target
from starc.targets.target import Target
from tests.unit.simulator.programs import machine, matrix, run, stream

CONSTANTS = {
    "cap": 100.0,
    "reference_mhz": 1000.0,
    "slope": 0.5,
    "static": 20.0,
    "clock": 10.0,
    "matrix_bf16": 0.5,
    "matrix_f32": 2.0,
    "l2": 8.0,
    "fabric": 12.0,
    "hop": 8.0,
    "hbm": 32.0,
    "xgmi": 10.0,
}
# In a second: 10^14 FLOP and 10^12 bytes of each kind, all of it by the core clock.
USAGE = Usage(1.0, 1.0, {"bf16": 1e14}, 1e12, 1e12, 1e12, 1e12, 1e12)


def capped(target: Target, watts: float) -> Target:
    return replace(target, power={**target.power, "cap": watts})


def test_power_by_hand() -> None:
    parts = PowerModel(CONSTANTS).parts(USAGE, 1000)
    assert parts == pytest.approx(
        {"static": 20, "clock": 10, "matrix": 50, "l2": 8, "fabric": 12, "hops": 8, "hbm": 32,
         "xgmi": 10}
    )  # fmt: skip


def test_voltage_raises_what_the_core_clock_drives() -> None:
    model = PowerModel(CONSTANTS)
    assert model.voltage(2000) == 1.5
    parts = model.parts(stretched(USAGE, 0.5), 2000)
    # Twice the rate, 1.5 x 1.5 the energy; fabric and stacks take twice the power.
    assert parts["matrix"] == pytest.approx(50 * 2 * 2.25)
    assert parts["clock"] == pytest.approx(10 * 2 * 2.25)
    assert parts["hbm"] == pytest.approx(64)
    assert parts["static"] == 20


def test_clock_is_the_largest_under_the_cap() -> None:
    model = PowerModel(CONSTANTS)
    clock = model.clock_mhz(USAGE, 1000)
    assert clock < 1000
    assert model.power_w(stretched(USAGE, 1000 / clock), clock) <= 100
    assert model.power_w(stretched(USAGE, 1000 / (clock + 1)), clock + 1) > 100
    assert PowerModel({**CONSTANTS, "cap": 150.0}).clock_mhz(USAGE, 1000) == 1000


def test_energy_is_solved_from_a_power() -> None:
    model = PowerModel(CONSTANTS)
    watts = model.power_w(USAGE, 1234)
    other = PowerModel({**CONSTANTS, "matrix_bf16": 7.0})
    assert other.matrix_energy(USAGE, "bf16", 1234, watts) == pytest.approx(0.5)


def test_work_of_a_run_is_counted_once() -> None:
    target = machine(gpu=1, xcd=1)
    program = matrix(target, workgroups=38, iterations=200)
    result = run(program, target)
    usage = steady_usage(program, target, result)
    assert usage.flops == {"bf16": pytest.approx(38 * 200 * 2 * 128**3, rel=1e-3)}
    assert usage.seconds == pytest.approx(result.time_ps * 1e-12)
    assert usage.clocked_s == pytest.approx(usage.seconds, rel=0.05)


def test_bytes_of_a_run_are_counted_where_they_go() -> None:
    target = load_target("mi300x-spx", gpus=1)
    program = stream(target, workgroups=64, iterations=4)
    result = run(program, target)
    usage = steady_usage(program, target, result)
    read = result.traffic.hbm_read_bytes
    assert usage.hbm_bytes == read
    assert usage.l2_bytes == pytest.approx(read, rel=1e-3)
    assert usage.fabric_bytes == pytest.approx(read, rel=1e-3)
    assert usage.hop_bytes == pytest.approx(result.traffic.links["usr"], rel=1e-3)
    assert usage.flops == {}


def test_a_run_below_the_cap_is_left_alone() -> None:
    target = machine(gpu=1, xcd=1)
    program = stream(target, workgroups=38, iterations=16)
    plain = run(program, target)
    assert govern(program, target, plain) is None
    governed = simulate_governed(program, SimulationOptions(target=target))
    assert governed.key() == plain.key()
    assert governed.clock_mhz == target.core_clock_mhz


def test_a_run_above_the_cap_is_run_once_more_at_its_clock() -> None:
    whole = machine(gpu=1, xcd=1)
    program = matrix(whole, workgroups=38, iterations=400)
    plain = run(program, whole)
    watts = power_of(program, whole, plain)
    assert watts is not None
    target = capped(whole, 0.8 * watts)
    clock = govern(program, target, plain)
    assert clock is not None
    governed = run(program, target, governor=True)
    assert governed.clock_mhz == clock < whole.core_clock_mhz
    again = simulate(program, SimulationOptions(target=at_clock(target, clock)))
    assert governed.key() == again.key()
    assert governed.time_ps > plain.time_ps
    # The rerun takes the cap: the split of the first run's time was right.
    power = power_of(program, at_clock(target, clock), governed)
    assert power == pytest.approx(0.8 * watts, rel=0.02)


def test_memory_does_not_follow_the_core_clock() -> None:
    target = machine(gpu=1, xcd=2)
    program = stream(target, workgroups=76, iterations=64)
    slow = run(program, at_clock(target, target.core_clock_mhz * 2 // 3))
    assert slow.time_ps == pytest.approx(run(program, target).time_ps, rel=0.03)


def test_a_machine_without_energies_has_no_governor() -> None:
    target = replace(machine(gpu=1, xcd=1), power={})
    program = matrix(target, workgroups=38, iterations=50)
    result = run(program, target, governor=True)
    assert result.clock_mhz == target.core_clock_mhz
    assert power_of(program, target, result) is None


@pytest.mark.parametrize(
    ("dtype", "tflops", "clock"),
    [("bf16", 708, 1207), ("f16", 654, 1115), ("f8E4M3FN", 1273, 1230)],
)
def test_anchors_take_the_cap(dtype: str, tflops: float, clock: int) -> None:
    # What a GEMM of 4096 x 4864 x 32896 moves a FLOP, at most a quarter of the power.
    model = PowerModel.of(load_target("mi300x-spx"))
    assert model is not None
    usage = Usage(1.0, 1.0, {dtype: tflops * 1e12}, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert 0.85 * model.cap_w < model.power_w(usage, clock) < 0.95 * model.cap_w
