"""Attention kernels of others as launches of this compiler: what their authors chose is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, ModuleOp, StringAttr, UnitAttr, i64

from starc.backend.program import Program
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_attributes import integers
from starc.targets.target import Target
from starc.validation.context import build

MOST_ORDERED = 4096


@dataclass(frozen=True)
class Attention:
    """One attention in bf16: ``query`` new tokens behind ``context - query`` old ones."""

    batch: int
    kv_heads: int
    group: int
    head_dim: int
    context: int
    query: int = 1

    @property
    def text(self) -> str:
        """The function at the collective level."""
        heads = self.kv_heads * self.group
        q = f"tensor<{self.batch}x{self.query}x{heads * self.head_dim}xbf16>"
        cache = f"tensor<{self.batch}x{self.kv_heads}x{self.context}x{self.head_dim}xbf16>"
        scale = self.head_dim**-0.5
        return f"""
            func.func @attention(%q : {q}, %k : {cache}, %v : {cache}) -> {q} {{
              %o = nn.attention %q, %k, %v {{start = {self.context - self.query} : i64,
                head_dim = {self.head_dim} : i64, scale = {scale:.17e} : f64, causal}}
                : {q}, {cache}, {cache} -> {q}
              func.return %o : {q}
            }}"""


@dataclass(frozen=True)
class Choices:
    """How a kernel was written. ``rows`` and ``keys`` are the extents of a tile; ``stages`` slots
    of tiles, of which ``window`` bytes are under way; ``chain_ps`` a tile's steps one after the
    other; ``combines_one``: the second kernel runs behind a single share too;
    ``combine_prologue_ps`` of its workgroups, where another than that of the first kernel;
    ``first_rows_first``: row tiles start in the order of their numbers, head after head."""

    rows: int
    keys: int
    stages: int
    waves: int
    window: int
    split: int = 1
    chain_ps: int = 0
    combine_stages: int = 2
    combines_one: bool = False
    combine_prologue_ps: int | None = None
    first_rows_first: bool = False


def _set_launch(attention: Attention, choices: Choices) -> Callable[[ModuleOp], None]:
    def prepare(module: ModuleOp) -> None:
        (launch,) = (op for op in module.walk() if isinstance(op, LaunchOp))
        properties = launch.properties
        packed = attention.query == 1
        numbers = {
            "group": attention.group if packed else 1,
            "split": choices.split,
            "stages": choices.stages,
            "waves": choices.waves,
            "window_bytes": choices.window,
            "piece_bytes": 4096,
        }
        if choices.chain_ps:
            numbers["chain"] = choices.chain_ps
        if choices.split > 1 or choices.combines_one:
            properties["combine"] = StringAttr("kernel")
            numbers |= {"combine_rows": 1, "combine_stages": choices.combine_stages}
        properties |= {key: IntegerAttr(value, i64) for key, value in numbers.items()}
        rows = attention.group if packed else choices.rows
        properties["tile"] = integers((rows, choices.keys, attention.head_dim))
        properties["kernel_class"] = StringAttr("attention")
        row_tiles = -(-attention.query // choices.rows)
        if choices.first_rows_first and 1 < row_tiles <= MOST_ORDERED:
            properties["rows_first"] = UnitAttr()
            properties["order"] = DenseArrayBase.from_list(i64, range(row_tiles))

    return prepare


def attention_program(attention: Attention, choices: Choices, target: Target) -> Program:
    """The program of one attention: one launch, and one that combines where there are shares."""
    program = build(attention.text, target, prepare=_set_launch(attention, choices))
    if choices.combine_prologue_ps is not None and len(program.launches) > 1:
        program.launches["prologue_ps"][1:] = choices.combine_prologue_ps
    return program


def implementation(target: Target, name: str) -> Target:
    """The target with what the constants of a kernel say of its engines: ``matrix`` is the fraction
    of the matrix rate, ``prologue`` the time from a workgroup's start to its first load, ``start``
    what the launch takes beside the gap of any."""
    constants = target.kernels[name]
    changed = target
    if "prologue" in constants:
        prologues = {**target.prologue_ps, "attention": round(constants["prologue"])}
        changed = replace(changed, prologue_ps=prologues)
    if "chain" in constants:
        # The chain of a tile has the latencies of its operations in it.
        changed = replace(changed, vector_latency_ps=0, matrix_latency_ps=0)
    if "start" in constants:
        changed = replace(changed, kernel_gap_ps=changed.kernel_gap_ps + round(constants["start"]))
    if "matrix" in constants:
        changed = replace(
            changed, matrix_sustained=constants["matrix"], matrix_sustained_by_type={}
        )
    if "clock" in constants:
        changed = replace(changed, core_clock_mhz=round(constants["clock"]))
    return changed
