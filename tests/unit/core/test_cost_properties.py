"""Estimates of launches and the work that none avoids, from problems and from IR."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest

from starc.analysis.cost import (
    Compulsory,
    Cost,
    attention_cost,
    collective_cost,
    compulsory,
    gemm_cost,
    launch_cost,
    link_bytes,
    rows_cost,
    work_facts,
)
from starc.core.collectives.cost import collective_time, pipelined, strides_of
from starc.core.kernel_schedules.attention_problem import AttentionProblem
from starc.core.kernel_schedules.attention_schedules import choose_attention
from starc.core.kernel_schedules.device_rates import LinkRates
from starc.core.kernel_schedules.gemm_problem import GemmProblem
from starc.core.kernel_schedules.row_schedules import RowProblem, choose_rows
from starc.core.kernel_schedules.tile_schedules import choose_gemm
from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.mesh import AxisRef
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_problems import problem_of
from tests.unit.core.rates import GPU, PARTITION
from tests.unit.core.test_cost import ALL_REDUCE, GPUS
from tests.unit.interpreter.modules import parse
from tests.unit.passes.fused_models import typed
from tests.unit.passes.kernel_level import compile_to_kernels

GATHER = replace(ALL_REDUCE, operation=CollectiveKind.ALL_GATHER)
PER_UNIT = PARTITION.matrix_rate("bf16")


# Estimates


def test_an_estimate_is_the_best_schedule_behind_its_prologue() -> None:
    gemm = GemmProblem(8, 1, (448, 448), 8192)
    schedule = choose_gemm(gemm, PARTITION)[0]
    terms = dict(schedule.terms)
    assert gemm_cost(gemm, PARTITION) == Cost(
        schedule.seconds + PARTITION.prologue_s["gemm"], max(terms, key=lambda name: terms[name])
    )
    attention = AttentionProblem(1, 8192, 1, 1, 128, 0, 8192)
    schedule = choose_attention(attention, PARTITION)[0]
    terms = dict(schedule.terms)
    assert attention_cost(attention, PARTITION) == Cost(
        schedule.seconds + PARTITION.prologue_s["attention"],
        max(terms, key=lambda name: terms[name]),
    )
    rows = RowProblem(8, 1, 8192, read_bytes=262144, written_bytes=131072)
    seconds = choose_rows(rows, PARTITION).seconds
    for kind, given in (("elementwise", {}), ("norm", {"kernel_class": "norm"})):
        expected = Cost(seconds + PARTITION.prologue_s[kind], "memory")
        assert rows_cost(rows, PARTITION, **given) == expected


def test_a_slice_reads_and_writes_its_payload() -> None:
    problem = replace(ALL_REDUCE, operation=CollectiveKind.ALL_SLICE, payload_bytes=4096)
    assert collective_cost(problem, PARTITION) == Cost(8192 / PARTITION.hbm_rate, "memory")


@pytest.mark.parametrize(
    "operation",
    [CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL, CollectiveKind.REDUCE_SCATTER],
)
def test_all_others_are_exchanges(operation: CollectiveKind) -> None:
    problem = replace(ALL_REDUCE, operation=operation, refs=(AxisRef("xcd"),), algorithm="direct")
    expected = collective_time(
        operation, "direct", "bulk", 131072, problem.mesh, problem.refs, PARTITION.machine
    )
    assert collective_cost(problem, PARTITION) == Cost(expected.seconds, expected.bound_by)


def test_a_collective_is_estimated_with_its_rings_and_operands() -> None:
    problem = replace(
        ALL_REDUCE, ranks=8, levels=((8, "xgmi"),), mesh=GPUS, refs=(AxisRef("gpu"),), operands=3
    )
    strides = strides_of("ring", GPUS, problem.refs, GPU.machine)
    assert len(strides) > 2
    for rings in (1, 2, 4):
        expected = collective_time(
            "all_reduce",
            "ring",
            "bulk",
            problem.payload_bytes,
            GPUS,
            problem.refs,
            GPU.machine,
            strides[:rings],
            operands=3,
        )
        found = collective_cost(replace(problem, rings=rings), GPU)
        assert found == Cost(expected.seconds, expected.bound_by)


def test_phases_of_a_launch_hand_on_parts() -> None:
    phases = (
        replace(GATHER, refs=(AxisRef("xcd"),), payload_bytes=1 << 24, algorithm="direct"),
        replace(GATHER, refs=(AxisRef("gpu"),), payload_bytes=1 << 22, algorithm="direct"),
    )
    whole = replace(phases[0], phases=phases, parts=4)
    times = [
        collective_time(
            "all_gather",
            "direct",
            "bulk",
            phase.payload_bytes,
            phase.mesh,
            phase.refs,
            PARTITION.machine,
        )
        for phase in phases
    ]
    expected = pipelined(times, 4)
    assert collective_cost(whole, PARTITION) == Cost(expected.seconds, expected.bound_by)
    (alone,) = (collective_cost(replace(whole, phases=phases[:1]), PARTITION),)
    assert alone == Cost(times[0].seconds, times[0].bound_by)


# Compulsory work


def test_a_bound_is_the_largest_part() -> None:
    hbm, matrix = PARTITION.hbm_rate, PER_UNIT * PARTITION.compute_units
    links = {"usr": LinkRates(1000.0, 0.0, 0.5), "xgmi": LinkRates(100.0, 0.0, 3.0)}
    rates = replace(PARTITION, links=links)
    work = Compulsory()
    assert work.bound(rates) == Cost(0.0, "hbm")
    assert work.hbm_bytes == 0
    assert work == Compulsory(0, 0, 0, {}, "bf16")
    assert Compulsory(read_bytes=5, written_bytes=2).hbm_bytes == 7
    read = Compulsory(read_bytes=3 << 30, written_bytes=1 << 30)
    assert read.bound(rates) == Cost((4 << 30) / hbm, "hbm")
    busy = replace(read, flops=1 << 50)
    assert busy.bound(rates) == Cost((1 << 50) / matrix, "matrix")
    narrow = replace(busy, dtype="f8E4M3FN").bound(rates)
    assert narrow.seconds == (1 << 50) / (
        PARTITION.matrix_rate("f8E4M3FN") * PARTITION.compute_units
    )
    sending = replace(busy, link_bytes={"usr": 1000_001, "other": 1 << 60})
    assert sending.bound(rates) == Cost(1000_001 / (1000.0 * 0.5), "usr")
    assert replace(sending, link_bytes={"xgmi": 10**6, "usr": 1}).bound(rates) == Cost(
        10**6 / (100.0 * 3.0), "xgmi"
    )


@pytest.mark.parametrize(
    ("operation", "rounds"),
    [
        (CollectiveKind.ALL_REDUCE, 2),
        (CollectiveKind.ALL_GATHER, 1),
        (CollectiveKind.REDUCE_SCATTER, 1),
    ],
)
def test_outer_levels_exchange_what_inner_ones_leave(
    operation: CollectiveKind, rounds: int
) -> None:
    problem = replace(
        ALL_REDUCE, operation=operation, payload_bytes=3600, levels=((4, "far"), (3, "near"))
    )
    assert link_bytes(problem) == {"near": rounds * 2400, "far": rounds * 900}
    same = replace(problem, levels=((4, "one"), (3, "one")))
    assert link_bytes(same) == {"one": rounds * 3300}
    # Along an axis of one device nothing is sent.
    assert link_bytes(replace(problem, levels=((4, "far"), (1, "die")))) == {"far": rounds * 2700}
    assert link_bytes(replace(problem, levels=((2, "far"),))) == {"far": rounds * 1800}
    assert link_bytes(replace(problem, levels=())) == {}


def test_phases_send_one_after_the_other() -> None:
    near = replace(GATHER, payload_bytes=3600, levels=((3, "near"),))
    far = replace(GATHER, payload_bytes=800, levels=((4, "far"), (2, "near")))
    both = replace(ALL_REDUCE, phases=(near, far))
    assert link_bytes(both) == {"near": 2400 + 400, "far": 300}


# Launches


@lru_cache(maxsize=1)
def launches() -> dict[str, LaunchOp]:
    """Those of a small model on eight devices, after ``plan-memory``: 64 columns, four heads of 16
    on as many KV heads, a context of 64 positions of which one is new, a batch of 2."""
    level = compile_to_kernels("tiny.sa", gpus=1, batch=2)
    return {op.sym_name.data: op for op in level.module.walk() if isinstance(op, LaunchOp)}


def test_launches_cost_what_their_problems_do() -> None:
    for launch in launches().values():
        problem, found = problem_of(launch), launch_cost(launch, PARTITION)
        if isinstance(problem, GemmProblem):
            assert found == gemm_cost(problem, PARTITION)
        elif isinstance(problem, AttentionProblem):
            assert found == attention_cost(problem, PARTITION)
        elif isinstance(problem, RowProblem):
            assert found == rows_cost(problem, PARTITION, launch.kind.data)
        else:
            assert found == collective_cost(problem, PARTITION)
        assert found.seconds >= compulsory(launch).bound(PARTITION).seconds


def test_work_of_launches_is_closed_form() -> None:
    found = {name: compulsory(launch) for name, launch in launches().items()}
    # Two rows of 64 by 3 x 16 columns.
    assert found["decoder.q_k_v"] == Compulsory(2 * 2 * 64 * 48, 2 * (2 * 64 + 64 * 48), 2 * 2 * 48)
    # Scores and outputs of 16 columns over 64 positions; keys, values, the query.
    assert found["decoder.attention"] == Compulsory(
        4 * 2 * 16 * 64, 2 * 2 * (2 * 64 * 16 + 16), 2 * 2 * 16
    )
    assert found["decoder.add"] == Compulsory(0, 2 * 256, 256)
    assert found["decoder.o_all_reduce"] == Compulsory(0, 256, 256, {"usr": 2 * 256 * 7 // 8})


COLD: dict[str, tuple[dict[str, str], int]] = {
    # Weights, but not the rows of the table that data chooses.
    "embedding.embedding": ({"embedding.table": "weight", "embedding.ids": "input"}, 0),
    "decoder.q_k_v": (
        dict.fromkeys(("decoder.q", "decoder.k", "decoder.v"), "weight"),
        2 * 64 * 48,
    ),
    "decoder.o": ({"decoder.o": "weight", "decoder.attention.out": "value"}, 2 * 16 * 64),
    # Of each cache the 63 positions that were there before.
    "decoder.attention": (
        dict.fromkeys(("decoder.k_cache", "decoder.v_cache"), "state"),
        2 * 2 * 2 * 63 * 16,
    ),
}


@pytest.mark.parametrize("name", COLD)
def test_only_weights_and_what_a_cache_held_are_cold(name: str) -> None:
    roles, cold = COLD[name]
    launch = launches()[name]
    found = work_facts(launch, roles)["cold_bytes"]
    assert found == cold
    assert isinstance(found, int)
    assert work_facts(launch, {})["cold_bytes"] == 0


def test_a_state_is_cold_only_where_attention_reads_it() -> None:
    launch = launches()["decoder.rope_append"]
    roles = dict.fromkeys(launch.read_names, "state")
    assert work_facts(launch, roles)["cold_bytes"] == 0


def test_facts_of_a_launch() -> None:
    assert work_facts(launches()["decoder.o"], {}) == {
        "flops": 4096,
        "bytes": 2112 + 256,
        "dtype": "bf16",
        "cold_bytes": 0,
    }
    assert work_facts(launches()["decoder.o_all_reduce"], {}) == {
        "flops": 0,
        "bytes": 512,
        "cold_bytes": 0,
        "link.usr": 448,
    }


def test_a_fused_launch_sends_what_its_exchanges_do() -> None:
    x, g = typed((4, 1, 64), ("", "", "xcd")), typed((4, 1, 64), ("", "", ""))
    w, y = typed((64, 32), ("", "xcd")), typed((4, 1, 32), ("", "", "xcd"))
    z = typed((4, 1, 32), ("", "", ""))
    module = parse(f"""
sharding.mesh @node = ["gpu"=1 : outer xgmi, "xcd"=8 : inner usr]
func.func @f(%x : {x}, %w : {w}) -> {z} {{
  %r = kernel.launch @f.product gemm (%a = %x : {x}, %b = %w : {w}) -> ({z}) {{
    %g = collective.all_gather %a on @node axes = ["xcd"] dim = 2 : {x} -> {g}
    %y = nn.linear %g, %b : {g}, {w} -> {y}
    %z = collective.all_gather %y on @node axes = ["xcd"] dim = 2 : {y} -> {z}
    kernel.yield %z : {z}
  }}
  func.return %r : {z}
}}
""")
    (launch,) = (op for op in module.walk() if isinstance(op, LaunchOp))
    found = compulsory(launch)
    assert found.link_bytes == {"usr": 2 * 4 * 64 * 7 // 8 + 2 * 4 * 32 * 7 // 8}
    assert found.flops == 2 * 4 * 64 * 32 // 8
