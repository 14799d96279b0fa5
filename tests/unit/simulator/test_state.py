"""The arrays of a run: one table says what they are, and from it they are made and grow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starc.simulator.allocation import allocate
from starc.simulator.core.state_type import handle
from starc.simulator.growth import grow, warmed
from starc.simulator.options import SimulationOptions
from starc.simulator.program.decode import decode
from starc.simulator.state import numbers
from starc.simulator.state.arrays import FIELDS, Array, By, State
from starc.simulator.state.counts import STAT_LOGGED, STAT_LOW
from starc.simulator.state.phases import LOW
from tests.unit.simulator.programs import machine, stream


def fresh(*, log: bool = False) -> State:
    target = machine(gpu=1, xcd=2)
    decoded = decode(stream(target, workgroups=4, iterations=2), target)
    return allocate(decoded, target, SimulationOptions(log=log))


def free(pool: Array, first: int) -> list[int]:
    """The entries of a list of free ones, in the order in which they are taken."""
    found: list[int] = []
    while first >= 0:
        found.append(first)
        first = int(pool["next"][first])
    return found


def test_numbers_of_the_configuration_have_a_place_each() -> None:
    names = [name for name in vars(numbers) if name.isupper()]
    begin, end = names.index("GPUS"), names.index("CONFIGURATION")
    places = [getattr(numbers, name) for name in names[begin:end]]
    assert len(set(places)) == len(places)
    assert set(places) < set(range(numbers.CONFIGURATION))


def test_every_array_has_the_type_and_length_that_the_table_says() -> None:
    state = fresh()
    assert tuple(FIELDS) == State._fields
    handle(state)
    assert len(state.events) == len(state.heap) == int(state.cfg[numbers.ENTITIES])
    assert len(state.heads) == numbers.BUCKETS
    assert len(state.shared_tiles) == int(state.cfg[numbers.TILE_SLOTS])


def test_arrays_begin_on_cache_lines_of_the_host() -> None:
    assert {array.ctypes.data % 64 for array in fresh() if len(array)} == {0}


def test_a_handle_refuses_an_array_of_another_type() -> None:
    state = fresh()
    with pytest.raises(TypeError, match=r"state field counts: int32, \(\d+,\)"):
        handle(state._replace(counts=state.counts.astype(np.int32)))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 4096), st.integers(0, 4096))
def test_pools_of_twice_the_size_give_their_old_entries_first(requests: int, messages: int) -> None:
    state = fresh()
    for kind, taken, pool in (
        ("request", requests, state.requests),
        ("message", messages, state.messages),
    ):
        left = free(pool, 0)[taken:]
        state.gpus[f"free_{kind}"] = left[0] if left else -1
        state.gpus[f"free_{kind}s"] = len(left)
    state.stats[STAT_LOW] = 1
    grown = grow(state)
    assert grown.stats[STAT_LOW] == 0
    assert free(grown.requests, int(grown.gpus[0]["free_request"])) == [*range(requests, 8192)]
    assert free(grown.messages, int(grown.gpus[0]["free_message"])) == [*range(messages, 8192)]
    assert int(grown.gpus[0]["free_requests"]) == 8192 - requests
    assert len(grown.events) - len(state.events) == 2 * 4096
    assert state.cfg[numbers.POOL] == 4096


def test_what_grows_is_what_is_indexed_by_requests_or_entities() -> None:
    state = fresh()
    grown = grow(state)
    longer = {name for name in FIELDS if len(getattr(grown, name)) > len(getattr(state, name))}
    assert longer == {
        name for name, field in FIELDS.items() if {By.REQUEST, By.ENTITY} & {*field.by}
    }


def test_a_log_grows_alone_where_only_it_runs_low() -> None:
    state = fresh(log=True)
    state.stats[STAT_LOGGED] = len(state.log)
    grown = grow(state)
    assert len(grown.log) == int(grown.cfg[numbers.LOG]) == 2 * len(state.log)
    assert len(grown.requests) == len(state.requests)
    state.gpus["free_requests"] = LOW - 1
    assert len(grow(state).requests) == 2 * len(state.requests)


def test_a_warm_run_begins_with_lines_that_nothing_is_filling() -> None:
    used = fresh()
    used.l2_lines["valid"][:4] = 7
    used.l2_lines["filler"][:4] = 1
    used.l2_lines["acquired"][:4] = 3
    used.mall_lines["filled"][:4] = 1000
    state = warmed(fresh(), used)
    assert state.l2_lines["valid"][:4].tolist() == [7] * 4
    assert set(state.l2_lines["filler"].tolist()) == {-1}
    assert not state.l2_lines["acquired"].any()
    assert not state.mall_lines["filled"].any()
