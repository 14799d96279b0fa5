"""Buffers, their lifetimes and the memory of whole models."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from xdsl.dialects.func import FuncOp

from starc.analysis.memory_report import memory_plan
from starc.dialects import nn
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_buffers import BufferOp
from starc.passes.verification import verify
from tests.unit.passes.kernel_level import KernelLevel, compile_to_kernels

CASES = [
    ("tiny.sa", "mi300x-cpx", 1, "decode"),
    ("tiny.sa", "mi300x-spx", 2, "prefill"),
    ("llama3-8b.sa", "mi300x-cpx", 4, "decode"),
    ("llama3-70b.sa", "mi300x-cpx", 8, "prefill"),
    ("llama3-70b.sa", "mi300x-spx", 8, "decode"),
    ("attention.sa", "mi300x-cpx", 8, "decode"),
]


def buffers(level: KernelLevel) -> dict[str, BufferOp]:
    return {op.sym_name.data: op for op in level.module.body.ops if isinstance(op, BufferOp)}


def launches(level: KernelLevel) -> list[LaunchOp]:
    return [op for op in level.module.walk() if isinstance(op, LaunchOp)]


def names(launch: LaunchOp) -> set[str]:
    return {
        *launch.read_names,
        *launch.written_names,
        *launch.workspace_names,
        *launch.staging_names,
    }


@pytest.mark.parametrize("case", CASES, ids=[f"{c[0]}-{c[1]}-{c[3]}" for c in CASES])
def test_buffers_that_are_live_together_do_not_overlap(case: tuple[str, str, int, str]) -> None:
    level = compile_to_kernels(case[0], case[1], gpus=case[2], phase=case[3])
    verify(level.module)
    uses: dict[str, list[int]] = {}
    for step, launch in enumerate(launches(level)):
        for name in names(launch):
            uses.setdefault(name, []).append(step)
    found = buffers(level)
    assert set(uses) <= set(found)
    for a, b in combinations(found.values(), 2):
        first, second = uses.get(a.sym_name.data, []), uses.get(b.sym_name.data, [])
        is_permanent = "activation" not in (a.role.data, b.role.data)
        live_together = is_permanent or (
            first and second and first[0] <= second[-1] and second[0] <= first[-1]
        )
        if live_together:
            low, high = sorted((a, b), key=lambda op: op.address.value.data)
            end = low.address.value.data + low.bytes.value.data
            assert end <= high.address.value.data, (low.sym_name.data, high.sym_name.data)


def test_no_value_remains_outside_launches() -> None:
    level = compile_to_kernels("tiny.sa", gpus=1)
    for op in level.module.body.ops:
        assert not isinstance(op, nn.ParameterOp | nn.StateOp)
        if isinstance(op, FuncOp):
            assert not op.body.block.args
            *inner, last = op.body.block.ops
            assert all(isinstance(each, LaunchOp) and not each.results for each in inner)
            assert not last.operands


def test_layers_chain_by_their_buffers() -> None:
    level = compile_to_kernels("tiny.sa", gpus=1)
    chain = [
        (op.attributes["kernel.arguments"], op.attributes["kernel.results"])
        for op in level.module.body.ops
        if isinstance(op, FuncOp)
    ]
    for (_, results), (arguments, _) in pairwise(chain):
        assert results == arguments
    assert all(arguments != results for arguments, results in chain)
    roles = [buffer.role.data for buffer in buffers(level).values()]
    assert roles.count("input") == 1
    assert roles.count("output") == 1


def test_a_cache_is_written_in_place() -> None:
    level = compile_to_kernels("tiny.sa", gpus=1)
    (append,) = [op for op in launches(level) if op.kind.data == "append"]
    (attention,) = [op for op in launches(level) if op.kind.data == "attention"]
    states = {name for name, op in buffers(level).items() if op.role.data == "state"}
    assert len(states) == 2
    assert states <= set(append.written_names)
    assert states == set(attention.read_names[1:])


def test_staging_has_a_slot_per_reducing_step() -> None:
    level = compile_to_kernels("llama3-70b.sa", batch=8, context=16384)
    found = buffers(level)
    reductions = [op for op in launches(level) if op.kind.data == "collective"]
    assert len(reductions) == 3
    assert {op.staging_names for op in reductions} == {("all_reduce.staging",)}
    staging = found["all_reduce.staging"]
    assert staging.shape[0] == 63
    assert staging.space.data == "symmetric"
    assert all(found[op.written_names[0]].space.data == "symmetric" for op in reductions)


def test_the_caches_of_llama_70b_are_5_37_gb_a_partition() -> None:
    level = compile_to_kernels("llama3-70b.sa", batch=8, context=16384)
    plan = memory_plan(level.module, level.target)
    assert plan.kv_bytes == 80 * 2 * 16384 * 128 * 2 * 8 == 5_368_709_120
    assert plan.kv_replication == 8.0
    assert plan.capacity_bytes == 24_000_000_000
    assert plan.usable_bytes == 21_600_000_000
    assert plan.fits
    # Columns of K and V are held by the eight partitions that share their head.
    attention = 8192 * (8192 // 64 + 2 * 128) + 8192 // 64 * 8192
    mlp = 3 * 8192 * 28672 // 64
    layer = attention + mlp + 2 * 8192
    ends = 2 * (128256 // 64) * 8192 + 8192
    assert plan.weights_bytes == 2 * (80 * layer + ends)


def test_a_whole_gpu_holds_each_head_once() -> None:
    level = compile_to_kernels("llama3-70b.sa", "mi300x-spx", batch=8, context=16384)
    plan = memory_plan(level.module, level.target)
    assert plan.kv_replication == 1.0
    assert plan.kv_bytes == 80 * 2 * 16384 * 128 * 2 * 8


def test_batch_64_at_128k_does_not_fit_and_says_what_would() -> None:
    level = compile_to_kernels("llama3-70b.sa", batch=64, context=131072)
    plan = memory_plan(level.module, level.target)
    assert not plan.fits
    assert plan.excess_bytes > 0
    assert 0 < plan.max_batch < 64
    assert any(remark.id == "memory-exceeded" for _, remark in level.remarks)
    smaller = compile_to_kernels("llama3-70b.sa", batch=plan.max_batch, context=131072)
    assert memory_plan(smaller.module, smaller.target).fits


def test_data_parallel_groups_hold_their_own_sequences() -> None:
    level = compile_to_kernels("llama3-8b.sa", gpus=4, batch=16, context=4096)
    plan = memory_plan(level.module, level.target)
    assert plan.kv_replication == 4.0
    assert plan.kv_tokens * 32 * 2 * 128 * 2 <= plan.usable_bytes
