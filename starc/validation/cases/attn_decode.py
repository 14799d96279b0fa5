"""``h200_attn_decode.csv`` and ``h200_attn_decode_fixed_splits.csv``: attention of one new token.

A split-KV kernel and one that combines, behind a single share too: a workgroup takes a share of the
keys of a sequence and KV head, in tiles of 64 with two slots (70 KiB of shared memory, three
workgroups on a compute unit), its four warps one step after the other. One of the second kernel
holds all shares of a head in registers. The split count is a parameter of the row.

Fitted are the rows of 8192 positions, and of the held splits those of one sequence. All others are
tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from starc.simulator.run import simulate as run
from starc.targets.target import Target
from starc.validation.attention import Attention, Choices, attention_program, implementation
from starc.validation.columns import Column, cases_of, time_column
from starc.validation.context import Context
from starc.validation.registry import what_of
from starc.validation.rows import Case, Role, Work

_WAVES: Final = 4
FIXED: Final = "attn_decode_fixed_splits"
NEEDS: Final = ("kernels.decode",)
COLUMNS: Final = (*(Column(name) for name in ("B", "HK", "G", "D", "S", "splits")), time_column())
MARGINS: Final[Mapping[str, float]] = {"attn_decode": 0.08}
CONSTANTS: Final = tuple(
    f"kernels.decode.{name}" for name in ("chain", "window", "prologue", "combine_spilled")
)


def read(path: Path) -> list[Case]:
    """The cases of a file."""
    return cases_of(path, "attn_decode", COLUMNS)


def role(case: Case) -> Role:
    """8192 positions, or one sequence with held splits, are fitted."""
    fitted = case.integer("B") == 1 if what_of(case.file) == FIXED else case.integer("S") == 8192
    return "fitted" if fitted else "test"


def group(case: Case) -> str:
    """The held splits apart."""
    return "splits held" if what_of(case.file) == FIXED else "best splits"


def work(case: Case) -> Work:
    """Keys and values once, a workgroup a share; combining is a second kernel."""
    batch, heads, queries, dim, length, splits = _numbers(case)
    caches = 4.0 * batch * heads * dim * length
    flops = 4.0 * batch * heads * queries * dim * length
    return Work(caches, flops, batch * heads * splits, int(splits > 1))


def effort(case: Case) -> float:
    """Bytes."""
    return work(case).bytes


def _numbers(case: Case) -> tuple[int, ...]:
    return tuple(case.integer(name) for name in ("B", "HK", "G", "D", "S", "splits"))


def _combine_stages(splits: int, dim: int, target: Target) -> int:
    """Shares that a workgroup of the second kernel has under way: it loads all into registers at
    once, as many as the next power of two; of more than these hold most go to memory and back."""
    held = _WAVES * target.wave_size * target.register_bytes_per_lane
    shares = 1 << (splits - 1).bit_length()
    spills = shares * dim * 4 > held
    return round(target.kernels["decode"]["combine_spilled"]) if spills else shares


def simulate(case: Case, context: Context) -> float:
    """Microseconds of both kernels in a graph."""
    batch, heads, queries, dim, length, splits = _numbers(case)
    target = context.machine("h200")
    constants = target.kernels["decode"]
    keys = int(constants["keys"])
    steps = -(-length // keys)
    choices = Choices(
        rows=queries,
        keys=keys,
        stages=2,
        waves=_WAVES,
        window=round(constants["window"]),
        split=min(splits, steps),
        chain_ps=round(constants["chain"]),
        combine_stages=_combine_stages(min(splits, steps), dim, target),
        combines_one=True,
        combine_prologue_ps=round(constants["combine_prologue"]),
    )
    attention = Attention(batch, heads, queries, dim, length)
    program = attention_program(attention, choices, implementation(target, "decode"))
    return run(program).time_ps * 1e-6
