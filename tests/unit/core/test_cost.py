"""Estimates and the work that no schedule avoids."""

from __future__ import annotations

from dataclasses import replace

from starc.analysis.cost import (
    Compulsory,
    attention_cost,
    collective_cost,
    gemm_cost,
    link_bytes,
    rows_cost,
)
from starc.core.kernel_schedules.attention_problem import AttentionProblem
from starc.core.kernel_schedules.gemm_problem import GemmProblem
from starc.core.kernel_schedules.row_schedules import RowProblem
from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.mesh import Axis, AxisRef, Mesh
from starc.dialects.kernel_problems import CollectiveProblem
from tests.unit.core.rates import GPU, PARTITION

NODE = Mesh("node", (Axis("gpu", 8, "outer", "xgmi"), Axis("xcd", 8, "inner", "usr")))
GPUS = Mesh("node", (Axis("gpu", 8, "outer", "xgmi"), Axis("xcd", 1, "inner", "die")))
ALL_REDUCE = CollectiveProblem(
    operation=CollectiveKind.ALL_REDUCE,
    batch=8,
    query=1,
    columns=8192,
    element_bytes=2,
    ranks=64,
    chunks=64,
    payload_bytes=131072,
    levels=((8, "xgmi"), (8, "usr")),
    axes=("gpu", "xcd"),
    algorithm="ring",
    transport="bulk",
    rings=1,
    operands=1,
    mesh=NODE,
    refs=(AxisRef("gpu"), AxisRef("xcd")),
)


def test_every_level_sends_its_own_part() -> None:
    sent = link_bytes(ALL_REDUCE)
    assert sent["usr"] == 2 * 131072 * 7 // 8
    assert sent["xgmi"] == 2 * (131072 // 8) * 7 // 8


def test_a_small_all_reduce_costs_its_steps() -> None:
    transport = PARTITION.transports["bulk"]
    cost = collective_cost(ALL_REDUCE, PARTITION)
    assert cost.bound_by == "latency"
    assert cost.seconds > 126 * transport.step_s
    big = replace(ALL_REDUCE, payload_bytes=1 << 28, query=2048)
    assert collective_cost(big, PARTITION).bound_by == "window"  # of its few channels


def test_several_rings_share_the_bytes() -> None:
    big = replace(
        ALL_REDUCE,
        payload_bytes=1 << 28,
        ranks=8,
        levels=((8, "xgmi"),),
        mesh=GPUS,
        refs=(AxisRef("gpu"),),
    )
    one = collective_cost(big, GPU).seconds
    four = collective_cost(replace(big, rings=4), GPU).seconds
    assert four < 0.4 * one


def test_a_cost_is_never_below_its_bound() -> None:
    gemm = GemmProblem(8, 1, (448, 448), 8192)
    bound = Compulsory(gemm.flops, gemm.compulsory_bytes).bound(PARTITION)
    assert bound.bound_by == "hbm"
    assert gemm_cost(gemm, PARTITION).seconds >= bound.seconds
    attention = AttentionProblem(1, 8192, 1, 1, 128, 0, 8192)
    bound = Compulsory(attention.flops, attention.compulsory_bytes).bound(PARTITION)
    assert bound.bound_by == "matrix"
    assert attention_cost(attention, PARTITION).seconds >= bound.seconds
    rows = RowProblem(8, 1, 8192, read_bytes=262144, written_bytes=131072)
    assert rows_cost(rows, PARTITION).seconds >= 393216 / PARTITION.hbm_rate
