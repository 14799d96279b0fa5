"""How schedules of collectives become kernels: numbers of events, templates, pieces, workgroups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.collectives.event_numbers import EventNumbers
from starc.core.collectives.spmd import spmd
from starc.core.collectives.table import unit_schedule
from starc.core.kernel_schedules.exchange_schedules import (
    DEPTH,
    Cutting,
    Exchange,
    Room,
    fit_templates,
    schedule_phase,
)
from starc.core.quasi_affine.expressions import Var


def exchange(algorithm: str, size: int, pieces: int = 64, components: int = 1) -> Exchange:
    schedule = unit_schedule("all_reduce", algorithm, tuple(range(size)), 1, (1,))
    value = Cutting(pieces, ((4, 128),) * components, (2,) * components)
    return Exchange("an exchange", spmd(schedule, "all_reduce"), (value,), False, None)


@given(st.data())
def test_a_number_is_what_its_table_says(data: st.DataObject) -> None:
    ranks, width = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    keys = [(rank, number) for rank in range(ranks) for number in range(width)]
    values = {key: data.draw(st.integers(0, 6)) for key in keys}
    entry = EventNumbers(ranks, Var("rank")).entry(values, width, Var("n"))
    for rank, number in keys:
        assert entry.evaluate({"rank": rank, "n": number}) == values[rank, number]


def test_numbers_that_all_ranks_share_are_linear() -> None:
    values = {(rank, number): 3 * number + 1 for rank in range(4) for number in range(3)}
    assert str(EventNumbers(4, Var("rank")).entry(values, 3, Var("n"))) == "n * 3 + 1"


@given(
    st.sampled_from(["ring", "two_shot", "one_shot", "tree"]), st.integers(2, 8), st.integers(1, 3)
)
def test_templates_hold_all_blocks_in_order(algorithm: str, size: int, components: int) -> None:
    found = exchange(algorithm, size, components=components)
    _, parts = fit_templates(found, Room(54, 64), apart=False)
    assert tuple(block for part in parts for block in part) == found.program.blocks
    _, apart = fit_templates(found, Room(54, 64), apart=True)
    assert all(len(part) == 1 for part in apart)


def test_blocks_without_room_are_refused() -> None:
    with pytest.raises(ValueError, match="an exchange takes more records than a template has"):
        fit_templates(exchange("ring", 4), Room(3, 64), apart=False)


def test_slots_take_turns_where_data_have_more_parts_than_there_are_slots() -> None:
    found = exchange("ring", 4)
    assert schedule_phase(found, DEPTH, Room(54, 64)).depth == 0
    phase = schedule_phase(found, 4, Room(54, 64))
    assert phase.is_credited
    assert phase.slot_pieces(4) == [DEPTH * share for share in phase.shares]
    assert found.divides(4)
    assert phase.shares == (64 // (4 * 4),)
