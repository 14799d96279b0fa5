"""Schedules that the cost model does not choose for small models, forced: every split, every way to
combine the shares, more and fewer slots, tiles that leave edges in every dimension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64

from starc.checking.harness import check_module, check_program
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_attributes import integers
from starc.interpreter.program_runs import run_stack
from starc.passes.program.pack import pack
from tests.executable.cases import Case, decode, load, prefill, run_passes


@dataclass(frozen=True)
class Tiling:
    """What every launch of a kind gets instead of its schedule."""

    name: str
    gemm: tuple[int, int, int] = (16, 32, 16)
    keys: int = 16
    rows: int | None = None
    split: int = 1
    combine: str = "owner"
    stages: int = 3
    streams: int = 0
    whole_rounds: int | None = None
    multicast: int = 1
    dealt: int = 1


TILINGS = (
    Tiling("one-stage", stages=1),
    Tiling("two-stages", stages=2, gemm=(16, 16, 32)),
    Tiling("five-stages", stages=5, keys=16),
    Tiling("owner", split=2),
    Tiling("owner-many", split=4, stages=2, keys=32),
    Tiling("kernel", split=3, combine="kernel"),
    Tiling("kernel-edges", split=2, combine="kernel", gemm=(2, 48, 16), keys=24),
    Tiling("stream-k", streams=5, whole_rounds=0),
    Tiling("stream-k-rounds", streams=4, stages=2, gemm=(2, 16, 16)),
    Tiling("stream-k-many", streams=37, gemm=(16, 48, 16), multicast=2),
    Tiling("query-tiles", gemm=(4, 64, 64), rows=4, keys=8),
    Tiling("heads-dealt", rows=4, keys=8, dealt=2),
)

CASES = (
    decode("gqa", (2, 2), batch=3),
    decode("mqa", (2, 1), batch=1, context=50),
    prefill("gqa", (1, 1), batch=2, prompt=11),
    prefill("mha", (1, 2), batch=1, prompt=3, context=21),
)


def force(module: ModuleOp, tiling: Tiling) -> None:
    """Gives every GEMM and attention of a tiled module another schedule."""
    for op in module.walk():
        if not isinstance(op, LaunchOp):
            continue
        if op.kind.data == "gemm":
            _set(op, tiling, tiling.gemm)
        elif op.kind.data == "attention":
            rows, _, depth = op.integers("tile")
            if tiling.rows is not None and op.integer("group") == 1:
                rows = min(rows, tiling.rows)
                if tiling.dealt > 1:
                    op.properties["swizzle"] = integers((1, tiling.dealt))
            _set(op, tiling, (rows, tiling.keys, depth))


def _set(op: LaunchOp, tiling: Tiling, tile: tuple[int, int, int]) -> None:
    op.properties["tile"] = integers(tile)
    numbers: Mapping[str, int] = {"split": tiling.split, "stages": tiling.stages}
    for key, value in numbers.items():
        op.properties[key] = IntegerAttr(value, i64)
    if tiling.streams and op.kind.data == "gemm":
        op.properties["streams"] = IntegerAttr(tiling.streams, i64)
        op.properties["multicast"] = IntegerAttr(tiling.multicast, i64)
        if tiling.whole_rounds is not None:
            op.properties["whole_rounds"] = IntegerAttr(tiling.whole_rounds, i64)
    op.properties.pop("combine", None)
    op.properties.pop("combine_rows", None)
    if tiling.split > 1:
        op.properties["combine"] = StringAttr(tiling.combine)
        if tiling.combine == "kernel":
            op.properties["combine_rows"] = IntegerAttr(max(1, tile[0] // 2), i64)


@pytest.mark.parametrize("tiling", TILINGS, ids=lambda tiling: tiling.name)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_forced_schedule_computes_the_same(case: Case, tiling: Tiling) -> None:
    loaded = load(case)
    index = [instance.name for instance in loaded.passes].index("tile-kernels") + 1
    tiled = run_passes(loaded, loaded.module, loaded.passes[:index])[-1].module
    force(tiled, tiling)
    found = run_passes(loaded, tiled, loaded.passes[index:])
    for stage in found:
        if stage.pass_name in ("plan-memory", "verify-schedule"):
            check = check_module(
                stage.pass_name, stage.module, loaded.data, loaded.reference, interleaving=3
            )
            assert check.ok, (stage.pass_name, check.error, check.message)
    program = pack(found[-1].module, loaded.target)
    check = check_program(program, loaded.data, run_stack(loaded.module, loaded.data, "exact"))
    assert check.ok, (check.error, check.message)
