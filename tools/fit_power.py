"""Solves the energies of matrix operations that a machine's file has in its table ``power``.

    python tools/fit_power.py

The rows are the largest GEMM rates that AMD publishes for MI300X with the clocks at which they ran
(ROCm blog, Measuring max-achievable FLOPs part 2). Each GEMM is simulated at its clock; what it
moves a FLOP, at the published rate, takes its share of the cap, and the rest is the operations'.
The same energies then say what a cap of 1000 W leaves (MI325X), which the slope was chosen on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from starc.simulator.options import SimulationOptions
from starc.simulator.results.governor import PowerModel, at_clock, stretched
from starc.simulator.results.usage import Usage, steady_usage
from starc.simulator.run import simulate
from starc.targets.loader import load_target
from starc.validation.context import build


@dataclass(frozen=True)
class Anchor:
    """A GEMM with its rate on MI300X and MI325X in TFLOP/s, and the clock of MI300X in MHz."""

    dtype: str
    m: int
    n: int
    k: int
    tflops: float
    clock_mhz: int
    tflops_mi325x: float


ANCHORS = (
    Anchor("bf16", 4096, 4864, 32896, 708, 1207, 843),
    Anchor("f16", 4096, 4864, 32896, 654, 1115, 794),
    Anchor("f8E4M3FN", 4096, 3648, 32896, 1273, 1230, 1519),
)
MI325X_CAP_W, MI325X_STATIC_W = 1000.0, 215.0


def gemm_text(dtype: str, m: int, n: int, k: int) -> str:
    """A GEMM as a module."""
    out = "f16" if dtype == "f16" else "bf16"
    x, w, y = (f"tensor<{shape}>" for shape in (f"1x{m}x{k}x{dtype}", f"{k}x{n}x{dtype}",
                                                f"1x{m}x{n}x{out}"))  # fmt: skip
    return f"""
        nn.parameter @w : {w}
        func.func @gemm(%x : {x}) -> {y} {{
          %w = nn.read @w : {w}
          %y = nn.linear %x, %w : {x}, {w} -> {y}
          func.return %y : {y}
        }}"""


def measured_usage(anchor: Anchor) -> tuple[Usage, float]:
    """What the GEMM does at its clock in the time that was measured, and the simulated rate."""
    target = load_target("mi300x-spx", gpus=1)
    program = build(gemm_text(anchor.dtype, anchor.m, anchor.n, anchor.k), target)
    machine = at_clock(target, anchor.clock_mhz)
    result = simulate(program, SimulationOptions(target=machine))
    usage = steady_usage(program, machine, result)
    flops = 2.0 * anchor.m * anchor.n * anchor.k
    seconds = flops / (anchor.tflops * 1e12)
    return replace(usage, seconds=seconds, clocked_s=seconds), flops / usage.seconds / 1e12


def main() -> None:
    """Prints energies, the split of the power, and MI325X."""
    model = PowerModel.of(load_target("mi300x-spx"))
    if model is None:
        raise SystemExit("mi300x.toml has no table 'power'")
    constants = dict(model.constants)
    for anchor in ANCHORS:
        usage, simulated = measured_usage(anchor)
        energy = model.matrix_energy(usage, anchor.dtype, anchor.clock_mhz, model.cap_w)
        constants[f"matrix_{anchor.dtype}"] = energy
        solved = PowerModel(constants)
        parts = solved.parts(usage, anchor.clock_mhz)
        print(f"matrix_{anchor.dtype}: {energy:.4f} pJ/FLOP (simulated {simulated:.0f} TFLOP/s)")
        print("   ", ", ".join(f"{name} {watts:.0f} W" for name, watts in parts.items()))
        other = PowerModel({**constants, "cap": MI325X_CAP_W, "static": MI325X_STATIC_W})
        clock = other.clock_mhz(stretched(usage, anchor.clock_mhz / 2100), 2100)
        print(f"    MI325X: {anchor.tflops * clock / anchor.clock_mhz:.0f} TFLOP/s at {clock} MHz, "
              f"published {anchor.tflops_mi325x:.0f}")  # fmt: skip


if __name__ == "__main__":
    main()
