"""``h200_rms_norm.csv``: root-mean-square norm of M rows of N in bf16.

Fitted are the rows of N = 8192. All others are tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from starc.validation.columns import Column, cases_of, time_column
from starc.validation.context import Context
from starc.validation.rows import Case, Role, Work

COLUMNS: Final = (Column("M"), Column("N"), time_column())
MARGINS: Final[Mapping[str, float]] = {"rms_norm": 0.08}
CONSTANTS: Final = ("kernels.rms_norm.launch",)
COPIES: Final = 3  # buffers in rotation
WAVES: Final = 8  # the measured kernel has a workgroup of so many a row


def read(path: Path) -> list[Case]:
    """The cases of a file."""
    return cases_of(path, "rms_norm", COLUMNS)


def role(case: Case) -> Role:
    """Rows of 8192 are fitted."""
    return "fitted" if case.integer("N") == 8192 else "test"


def work(case: Case) -> Work:
    """Rows in and out; a workgroup a row."""
    m, n = case.integer("M"), case.integer("N")
    return Work(4.0 * m * n, 0.0, m)


def simulate(case: Case, context: Context) -> float:
    """Microseconds from the end of the kernel before to the end of this one.

    Buffers are in rotation: what earlier kernels wrote lies in the L2 and has to go to memory
    before others can take its place. So several norms of rows of their own are simulated, and the
    last one counts.
    """
    m, n = case.integer("M"), case.integer("N")
    target = context.machine("h200")
    x, w = f"tensor<1x{m}x{n}xbf16>", f"tensor<{n}xbf16>"
    inputs = ", ".join(f"%x{i} : {x}" for i in range(COPIES))
    norms = "\n".join(
        f"%y{i} = nn.rms_norm %x{i}, %w {{eps = 1.0e-05 : f64}} : {x}, {w} -> {x}"
        for i in range(COPIES)
    )
    results = ", ".join(f"%y{i}" for i in range(COPIES))
    types = ", ".join([x] * COPIES)
    module = f"""
        nn.parameter @w : {w}
        func.func @norm({inputs}) -> ({types}) {{
          %w = nn.read @w : {w}
          {norms}
          func.return {results} : {types}
        }}"""
    kernels: dict[str, int | tuple[int, ...]] = {"rows-tile": (1, n), "rows-waves": WAVES}
    launches = context.run(module, target, kernels=kernels).launches
    launch = target.kernels.get("rms_norm", {}).get("launch", 0.0)
    return (launches[-1].end_ps - launches[-2].end_ps + launch) * 1e-6
