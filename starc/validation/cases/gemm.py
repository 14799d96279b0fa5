"""``h200_gemm.csv``, ``h200_gemm_fp8.csv``: ``C[M,N] = A[M,K] W[N,K]^T`` by a library.

Fitted are the rows of the square shapes (N = K). All others are tests.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Final

from starc.validation.columns import Column, cases_of, time_column
from starc.validation.context import Context
from starc.validation.rows import Case, Role, Work

COLUMNS: Final = (Column("M"), Column("N"), Column("K"), Column("name", "text"), time_column())
KINDS: Final = {"h200_gemm.csv": "gemm", "h200_gemm_fp8.csv": "gemm_fp8"}
MARGINS: Final[Mapping[str, float]] = {"gemm": 0.08, "gemm_fp8": 0.08}
CONSTANTS: Final = ("kernel.prologue_gemm",)

_TILE: Final = 128  # rows and columns of a tile, for the number of workgroups of a roofline


def read(path: Path) -> list[Case]:
    """The cases of a file."""
    return cases_of(path, KINDS[path.name], COLUMNS)


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
    """Every operand once; tiles of 128 x 128."""
    m, n, k = (case.integer(name) for name in "MNK")
    width = 1 if case.kind == "gemm_fp8" else 2
    tiles = -(-m // _TILE) * -(-n // _TILE)
    return Work((m * k + n * k) * width + 2 * m * n, 2.0 * m * n * k, tiles)


def simulate(case: Case, context: Context) -> float:
    """Microseconds from the end of the kernel before to the end of this one."""
    m, n, k = (case.integer(name) for name in "MNK")
    element = "f8E4M3FN" if case.kind == "gemm_fp8" else "bf16"
    target = context.machine("h200")
    x, w, y = (
        f"tensor<1x{m}x{k}x{element}>",
        f"tensor<{k}x{n}x{element}>",
        f"tensor<1x{m}x{n}xbf16>",
    )
    module = f"""
        nn.parameter @w : {w}
        func.func @gemm(%x : {x}) -> {y} {{
          %w = nn.read @w : {w}
          %y = nn.linear %x, %w : {x}, {w} -> {y}
          func.return %y : {y}
        }}"""
    return context.run(module, target).time_ps * 1e-6
