"""Modulo schedules keep dependences and resources, and reach their bounds where they can."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starc.core.streams.modulo_schedule import (
    Dependence,
    LoopOperation,
    ModuloSchedule,
    recurrence_bound,
    resource_bound,
    schedule_loop,
    violations,
)

GEMM = (
    LoopOperation("load a", {"port": 128}),
    LoopOperation("load b", {"port": 128}),
    LoopOperation("matrix", {"matrix": 300}),
)
GEMM_DEPENDENCES = (
    Dependence(0, 2, 1000),
    Dependence(1, 2, 1000),
    Dependence(2, 2, 300, 1),
)


def test_a_gemm_loop_reaches_the_bound_of_its_matrix_engine():
    schedule = schedule_loop(GEMM, GEMM_DEPENDENCES)
    assert (schedule.ii, schedule.res_mii, schedule.rec_mii) == (300, 300, 300)
    assert violations(GEMM, GEMM_DEPENDENCES, schedule) == []
    assert schedule.stages[2] - schedule.stages[0] >= 3  # 1000 cycles are over 3 intervals


def test_loads_are_as_late_as_their_latency_allows():
    schedule = schedule_loop(GEMM, GEMM_DEPENDENCES)
    assert max(schedule.starts[:2]) == schedule.starts[2] - 1000


def test_early_loads_start_when_their_slot_is_free():
    slots = 4
    dependences = (*GEMM_DEPENDENCES, Dependence(2, 0, 300, slots), Dependence(2, 1, 300, slots))
    schedule = schedule_loop(GEMM, dependences, early=(0, 1))
    freed = schedule.starts[2] + 300 - slots * schedule.ii
    assert sorted(schedule.starts[:2]) == [freed, freed + 128]  # one after the other on the port
    assert violations(GEMM, dependences, schedule) == []


def test_a_loop_with_too_few_slots_waits_for_its_loads():
    dependences = (*GEMM_DEPENDENCES, Dependence(2, 0, 300, 2), Dependence(2, 1, 300, 2))
    schedule = schedule_loop(GEMM, dependences, early=(0, 1))
    assert schedule.rec_mii == 650  # (1000 + 300) cycles over 2 slots
    assert schedule.ii >= 650


def test_resource_bound_is_the_busiest_resource():
    assert resource_bound(GEMM) == 300
    assert resource_bound([LoopOperation("x", {"port": 500}), *GEMM]) == 756
    assert resource_bound([LoopOperation("free")]) == 1


def test_recurrence_bound_is_latency_over_distance():
    circuit = [Dependence(0, 1, 5), Dependence(1, 0, 4, 2)]
    assert recurrence_bound(2, circuit) == 5  # 9 cycles over 2 iterations, rounded up
    assert recurrence_bound(1, [Dependence(0, 0, 7, 1)]) == 7
    assert recurrence_bound(2, [Dependence(0, 1, 100)]) == 1


def test_a_circle_within_one_iteration_has_no_schedule():
    with pytest.raises(ValueError, match="in a circle"):
        recurrence_bound(2, [Dependence(0, 1, 1), Dependence(1, 0, 1)])


def test_order_of_issue_is_by_slot():
    schedule = ModuloSchedule(10, 10, 1, (3, 25, 11))
    assert schedule.stages == (0, 2, 1)
    assert schedule.order == (2, 0, 1)


def test_attention_overlaps_the_scores_of_the_next_step_with_the_softmax():
    operations = (
        LoopOperation("load k", {"port": 256}),
        LoopOperation("load v", {"port": 256}),
        LoopOperation("scores", {"matrix": 128}),
        LoopOperation("softmax", {"vector": 400}),
        LoopOperation("output", {"matrix": 128}),
    )
    dependences = (
        Dependence(0, 2, 1000),
        Dependence(1, 4, 1000),
        Dependence(2, 3, 128),
        Dependence(3, 4, 400),
        Dependence(4, 3, 128, 1),
    )
    schedule = schedule_loop(operations, dependences)
    assert violations(operations, dependences, schedule) == []
    assert schedule.ii == schedule.rec_mii == 528
    assert schedule.stages[4] > schedule.stages[2]


@st.composite
def loops(draw: st.DrawFn) -> tuple[list[LoopOperation], list[Dependence]]:
    count = draw(st.integers(1, 8))
    resources = st.dictionaries(st.sampled_from(["port", "matrix", "vector"]), st.integers(1, 40))
    operations = [LoopOperation(f"op{i}", draw(resources)) for i in range(count)]
    dependences: list[Dependence] = []
    for _ in range(draw(st.integers(0, 12))):
        source, target = draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))
        distance = draw(st.integers(0, 3)) if source < target else draw(st.integers(1, 3))
        dependences.append(Dependence(source, target, draw(st.integers(0, 100)), distance))
    return operations, dependences


@given(loops())
@settings(max_examples=100, deadline=None)
def test_schedules_keep_every_dependence_and_resource(
    loop: tuple[list[LoopOperation], list[Dependence]],
):
    operations, dependences = loop
    schedule = schedule_loop(operations, dependences, early=range(0, len(operations), 2))
    assert violations(operations, dependences, schedule) == []
    assert schedule.ii >= max(schedule.res_mii, schedule.rec_mii)
    assert all(start >= 0 for start in schedule.starts)
    assert sorted(schedule.order) == list(range(len(operations)))
