"""``h200_gemm.csv``, ``h200_gemm_fp8.csv``: ``C[M,N] = A[M,K] W[N,K]^T`` by a library.

Fitted are the rows of the square shapes (N = K). All others are tests.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Final

from starc.simulator.options import SimulationOptions
from starc.simulator.results.governor import at_clock, govern
from starc.simulator.run import simulate as run
from starc.targets.loader import load_target
from starc.targets.target import Target
from starc.validation.cases.gemm_library import choose
from starc.validation.columns import Column, cases_of, time_column
from starc.validation.context import Context, build
from starc.validation.registry import what_of
from starc.validation.rows import Case, Role, Work

COLUMNS: Final = (Column("M"), Column("N"), Column("K"), Column("name", "text"), time_column())
NEEDS: Final = ("kernels.gemm",)
MARGINS: Final[Mapping[str, float]] = {"gemm": 0.08, "gemm_fp8": 0.08}
CONSTANTS: Final = (
    "kernels.gemm.launch_bf16",
    "kernels.gemm.launch_f8E4M3FN",
    "kernels.gemm.stream",
    "kernels.gemm.matrix_bf16",
    "kernels.gemm.matrix_f8E4M3FN",
    "kernels.gemm.rotation",
    "kernels.gemm.copies",
    "kernels.gemm.burst",
    "power.matrix_bf16",
    "power.matrix_f8E4M3FN",
)


def read(path: Path) -> list[Case]:
    """The cases of a file."""
    return cases_of(path, what_of(path.name), COLUMNS)


def role(case: Case) -> Role:
    """Square weights are fitted."""
    return "fitted" if case.integer("N") == case.integer("K") else "test"


def group(case: Case) -> str:
    """By rows: a stream of weights, between, bound by the matrix engines."""
    m = case.integer("M")
    return "M 1-64" if m <= 64 else "M 65-1024" if m <= 1024 else "M > 1024"


def key(case: Case) -> Hashable:
    """The name of a shape changes nothing."""
    return case.integer("M"), case.integer("N"), case.integer("K")


def effort(case: Case) -> float:
    """FLOP."""
    return 2.0 * case.integer("M") * case.integer("N") * case.integer("K")


def work(case: Case) -> Work:
    """Every operand once; the workgroups of the library's kernel, and the one that adds shares."""
    m, n, k = (case.integer(name) for name in "MNK")
    element, width = ("f8E4M3FN", 1) if case.kind == "gemm_fp8" else ("bf16", 2)
    kernel = choose(m, n, k, width, element, load_target("h200", gpus=1))
    moved = (m * k + n * k) * width + 2 * m * n
    return Work(moved, 2.0 * m * n * k, kernel.workgroups, int(kernel.split > 1))


def simulate(case: Case, context: Context) -> float:
    """Microseconds from the end of the kernel before to the end of this one."""
    m, n, k = (case.integer(name) for name in "MNK")
    element = "f8E4M3FN" if case.kind == "gemm_fp8" else "bf16"
    width = 1 if case.kind == "gemm_fp8" else 2
    target = library_machine(context, element)
    x, w, y = f"1x{m}x{k}x{element}", f"{k}x{n}x{element}", f"1x{m}x{n}xbf16"
    module = f"""
        nn.parameter @w : tensor<{w}>
        func.func @gemm(%x : tensor<{x}>) -> tensor<{y}> {{
          %w = nn.read @w : tensor<{w}>
          %y = nn.linear %x, %w : tensor<{x}>, tensor<{w}> -> tensor<{y}>
          func.return %y : tensor<{y}>
        }}"""
    kernel = choose(m, n, k, width, element, target)
    program = build(module, target, kernels=kernel.options(), tiled=kernel.widen)
    result = run(program)
    constants = target.kernels.get("gemm")
    if constants is None:
        return result.time_ps * 1e-6
    launch = round(constants[f"launch_{element}"])
    if kernel.split > 1:
        # The kernel that adds the shares has a prologue like any other.
        launch += context.machine("h200").prologue_ps["gemm"]
    uncapped = launch + result.time_ps
    # How long the copies in rotation keep the device busy: the power cap acts after a while.
    copies = max(constants["copies"], ceil(constants["rotation"] / (n * k * width)))
    clock = govern(program, target, result) if uncapped * copies > constants["burst"] else None
    if clock is None:
        return uncapped * 1e-6
    result = run(program, options=SimulationOptions(target=at_clock(target, clock)))
    capped = launch + result.time_ps
    share = constants["burst"] / (uncapped * copies)
    return (share * uncapped + (1 - share) * capped) * 1e-6


def library_machine(context: Context, element: str) -> Target:
    """The machine as the library's kernels meet it: the numbers of the table ``kernels.gemm`` stand
    for what the machine's own are with the compiler's kernels."""
    target = context.machine("h200")
    constants = target.kernels.get("gemm")
    if constants is None:
        return target
    matrix = constants[f"matrix_{element}"]
    return replace(
        target,
        matrix_sustained=matrix,
        matrix_sustained_by_type={},
        # What its products wait for scratch memory is part of the fraction above.
        scratch_bytes_per_clock=0,
        l2_bytes_per_clock=int(constants["l2_read"]),
        # Workgroups stay for all of their tiles: there is one prologue, that of the launch.
        prologue_ps={**target.prologue_ps, "gemm": 0},
        hbm_rate=round(target.hbm_rate * constants["stream"]),
        hbm_stack_rate=round(target.hbm_stack_rate * constants["stream"]),
    )
