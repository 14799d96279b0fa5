"""A program as the event core reads it: what is resolved before the run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starc.backend.program import Opcode
from starc.simulator.errors import DecodeError
from starc.simulator.program.decode import decode
from starc.simulator.program.launches import orders_of
from starc.simulator.state.program_records import LAUNCH_INFO
from tests.unit.simulator.programs import machine, stream

TARGET = machine(gpu=2, xcd=2)
PROGRAM = stream(TARGET, workgroups=4, iterations=3, copy=True, slots=2, passes=2)


def test_devices_have_the_coordinates_of_their_place_on_the_mesh() -> None:
    coordinates = decode(PROGRAM, TARGET).coordinates.reshape(-1, 4)
    places = np.array(np.unravel_index(np.arange(4), (2, 2))).T
    assert coordinates[:, :2].tolist() == places.tolist()
    assert not coordinates[:, 2:].any()


def test_loops_go_around_and_their_stages_are_those_of_their_direct_instructions() -> None:
    operations = decode(PROGRAM, TARGET).operations
    ops = operations["op"].tolist()
    begins = [i for i, op in enumerate(ops) if op == Opcode.LOOP]
    ends = [i for i, op in enumerate(ops) if op == Opcode.END_LOOP]
    for begin, end in zip(begins, reversed(ends), strict=True):
        assert operations[begin]["end"] == end + 1
        assert operations[end]["end"] == begin + 1
        assert operations[end]["depth"] == operations[begin]["depth"]
    assert operations["stages"][begins].tolist() == [0, 1]


def test_a_record_that_no_engine_executes_is_refused() -> None:
    records = PROGRAM.records.copy()
    records[0]["op"] = 14
    with pytest.raises(DecodeError, match="opcode 14 is not executable"):
        decode(replace(PROGRAM, records=records), TARGET)


def test_a_program_of_another_number_of_devices_is_refused() -> None:
    with pytest.raises(DecodeError, match=r"is for 4 devices, the machine .* has 2"):
        decode(PROGRAM, machine(gpu=1, xcd=2))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 1), max_size=12))
def test_queues_have_their_launches_in_the_order_of_the_program(queues: list[int]) -> None:
    launches = np.zeros(len(queues), LAUNCH_INFO)
    launches["queue"] = queues
    orders, lengths = orders_of(launches)
    for queue, row in enumerate(orders.reshape(2, -1)):
        expected = [i for i, other in enumerate(queues) if other == queue]
        assert row[: lengths[queue]].tolist() == expected
        assert launches["position"][expected].tolist() == [*range(len(expected))]
