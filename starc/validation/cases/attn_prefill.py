"""``h200_attn_prefill.csv``: causal attention of a whole prompt by two libraries.

Both start the row tiles of a head in the order of their numbers, short before long. ``flash`` has
tiles of 128 rows and 64 keys for four warps, two workgroups on a compute unit; ``cudnn`` the same
tiles with two warp groups and a slot more. What fraction of the matrix rate their inner loops reach
is fitted, and the time before the first tile, of each workgroup or of the launch.

Fitted are the rows of 8 heads (HK * G). All others are tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from starc.simulator.run import simulate as run
from starc.validation.attention import Attention, Choices, attention_program, implementation
from starc.validation.columns import Column, cases_of, time_column
from starc.validation.context import Context
from starc.validation.rows import Case, Role, Work

IMPLEMENTATIONS: Final[Mapping[str, tuple[int, int, int, int]]] = {
    "flash": (128, 64, 2, 4),
    "cudnn": (128, 64, 3, 8),
}
"""Rows, keys, stages and waves."""
COLUMNS: Final = (
    *(Column(name) for name in ("HK", "G", "D", "S")),
    Column("impl", "text", choices=tuple(IMPLEMENTATIONS)),
    time_column(),
)
NEEDS: Final = ("kernels.flash", "kernels.cudnn")
MARGINS: Final[Mapping[str, float]] = {"attn_prefill": 0.1}
CONSTANTS: Final = (
    "kernels.flash.matrix",
    "kernels.flash.prologue",
    "kernels.cudnn.matrix",
    "kernels.cudnn.start",
)


def read(path: Path) -> list[Case]:
    """The cases of a file."""
    return cases_of(path, "attn_prefill", COLUMNS)


def role(case: Case) -> Role:
    """8 heads are fitted."""
    return "fitted" if case.integer("HK") * case.integer("G") == 8 else "test"


def group(case: Case) -> str:
    """By library."""
    return case.text("impl")


def work(case: Case) -> Work:
    """Half of the score matrix; queries, keys, values and results once."""
    heads, kv, dim, length = _numbers(case)
    flops = 2.0 * heads * dim * length * (length + 1)
    return Work(4.0 * (heads + kv) * dim * length, flops, heads * -(-length // 128))


def effort(case: Case) -> float:
    """FLOP."""
    return work(case).flops


def _numbers(case: Case) -> tuple[int, int, int, int]:
    kv = case.integer("HK")
    return kv * case.integer("G"), kv, case.integer("D"), case.integer("S")


def simulate(case: Case, context: Context) -> float:
    """Microseconds of the kernel in a graph."""
    _, kv, dim, length = _numbers(case)
    name = case.text("impl")
    rows, keys, stages, waves = IMPLEMENTATIONS[name]
    target = implementation(context.machine("h200"), name)
    choices = Choices(rows, keys, stages, waves, 2 * keys * dim * 2, first_rows_first=True)
    attention = Attention(1, kv, case.integer("G"), dim, length, query=length)
    return run(attention_program(attention, choices, target)).time_ps * 1e-6
