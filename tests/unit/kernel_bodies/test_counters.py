"""The counters of a launch are those that its templates signal or await, on every machine."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.core.sharding.shard_map import Cyclic
from starc.dialects.isa import CounterOp
from starc.dialects.isa_counters import SignalOp, WaitOp
from tests.executable.cube_decode import CubeCase, compiled
from tests.unit.passes.test_owner_merge import merged
from tests.unit.passes.test_sharded_attention import Case

CASE = Case(
    batch=2, kv_heads=2, group=4, context=29, mesh=(1, 2), axes=("xcd",), map=Cyclic(1, by=0)
)


def unused(module: ModuleOp) -> set[str]:
    declared = {op.sym_name.data for op in module.ops if isinstance(op, CounterOp)}
    assert declared
    used = {op.counter.string_value() for op in module.walk() if isinstance(op, SignalOp | WaitOp)}
    assert used <= declared
    return declared - used


@pytest.mark.parametrize("output", ["root", "scatter"])
def test_cubes_merge_along_trees_without_the_counters_of_owners(output: str):
    assert not unused(compiled(CubeCase(2, 4, output=output), "lower-to-isa"))


@pytest.mark.parametrize("owners", [2, None])
def test_owners_count_what_arrives(owners: int | None):
    assert not unused(merged(CASE, owners).lowered())
