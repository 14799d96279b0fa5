"""Expressions as forms: what depends on the GPU, by how much, and in which range."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starc.backend.program import ExprOp
from starc.simulator.symmetry.forms import Form, Forms

GPUS, DEVICES = 4, 8
DEVICE, WORKGROUP = 5, 0


def constant(value: int) -> tuple[int, int, int, int, int]:
    return (ExprOp.CONST, 0, 0, 0, value)


def variable(number: int) -> tuple[int, int, int, int, int]:
    return (ExprOp.VAR, 0, 0, 0, number)


def forms(nodes: list[tuple[int, int, int, int, int]], tables: list[int] | None = None) -> Forms:
    return Forms(nodes, tables or [], DEVICES, GPUS, (GPUS, DEVICES))


def form_of(nodes: list[tuple[int, int, int, int, int]], workgroups: int = 4) -> tuple[Forms, Form]:
    """The form of the last node, with workgroups as the only other variable."""
    found = forms(nodes)
    workgroup = found.variable((0, workgroups - 1))
    none = found.variable((0, 0))
    return found, found.expression(len(nodes) - 1, (workgroup, none, none, none, none))


def test_the_next_device_around_the_node_turns_by_the_devices_of_a_gpu() -> None:
    nodes = [variable(DEVICE), constant(1), (ExprOp.ADD, 0, 1, 0, 0), (ExprOp.MOD, 2, 0, 0, 32)]
    found, form = form_of(nodes)
    assert found.turns(form)
    assert found.step([(form, 1)], GPUS * DEVICES) == DEVICES
    assert found.exact_span(form) == (0, 31)


def test_the_place_within_a_gpu_does_not_turn() -> None:
    nodes = [variable(DEVICE), constant(3), (ExprOp.ADD, 0, 1, 0, 0), (ExprOp.MOD, 2, 0, 0, 8)]
    found, form = form_of(nodes)
    assert not found.turns(form)


def test_rows_and_columns_of_one_number_are_that_number_again() -> None:
    # (device mod 32) taken apart into rows of 16 columns of 4, and put together.
    nodes = [
        variable(DEVICE),
        (ExprOp.FLOORDIV, 0, 0, 0, 16),
        (ExprOp.MOD, 0, 0, 0, 16),
    ]
    found = forms(nodes)
    none = tuple(found.variable((0, 0)) for _ in range(5))
    row, column = found.expression(1, none), found.expression(2, none)
    assert found.step([(row, 64), (column, 4)], 4 * GPUS * DEVICES) == 4 * DEVICES


@pytest.mark.parametrize(("table", "step"), [([1, 2, 3, 0], 1), ([1, 3, 2, 0], None)])
def test_peers_of_a_table_are_listed(table: list[int], step: int | None) -> None:
    nodes = [variable(DEVICE), (ExprOp.FLOORDIV, 0, 0, 0, DEVICES), (ExprOp.TABLE, 1, 0, 0, 0)]
    found = forms(nodes, table)
    none = tuple(found.variable((0, 0)) for _ in range(5))
    assert found.step([(found.expression(2, none), 1)], GPUS) == step


@st.composite
def expressions(draw: st.DrawFn) -> list[tuple[int, int, int, int, int]]:
    nodes = [variable(DEVICE), variable(WORKGROUP), constant(draw(st.integers(-9, 9)))]
    for _ in range(draw(st.integers(1, 6))):
        left, right = (draw(st.integers(0, len(nodes) - 1)) for _ in range(2))
        op = draw(
            st.sampled_from(
                [ExprOp.ADD, ExprOp.MUL, ExprOp.FLOORDIV, ExprOp.MOD, ExprOp.MIN, ExprOp.MAX]
            )
        )
        least = -3 if op == ExprOp.MUL else 1
        nodes.append((op, left, right, 0, draw(st.integers(least, 12))))
    return nodes


def value(nodes: list[tuple[int, int, int, int, int]], device: int, workgroup: int) -> int:
    found: list[int] = []
    for op, left, right, _, imm in nodes:
        match op:
            case ExprOp.CONST:
                found.append(imm)
            case ExprOp.VAR:
                found.append(device if imm == DEVICE else workgroup)
            case ExprOp.ADD:
                found.append(found[left] + found[right])
            case ExprOp.MUL:
                found.append(found[left] * imm)
            case ExprOp.FLOORDIV:
                found.append(found[left] // imm)
            case ExprOp.MOD:
                found.append(found[left] % imm)
            case ExprOp.MIN:
                found.append(min(found[left], found[right]))
            case _:
                found.append(max(found[left], found[right]))
    return found[-1]


@settings(max_examples=300, deadline=None)
@given(expressions(), st.integers(2, 40))
def test_what_forms_say_holds_for_every_value(
    nodes: list[tuple[int, int, int, int, int]], modulus: int
) -> None:
    found, form = form_of(nodes)
    values = {
        (gpu, device, workgroup): value(nodes, gpu * DEVICES + device, workgroup)
        for gpu, device, workgroup in itertools.product(range(GPUS), range(DEVICES), range(4))
    }
    low, high = found.span(form)
    assert low <= min(values.values())
    assert max(values.values()) <= high
    assert found.exact_span(form) == (min(values.values()), max(values.values()))
    others = [(key, values[0, key[1], key[2]]) for key in values]
    if not found.turns(form):
        assert all(values[key] == first for key, first in others)
    step = found.step([(form, 1)], modulus)
    if step is not None:
        assert all((values[key] - first - key[0] * step) % modulus == 0 for key, first in others)
