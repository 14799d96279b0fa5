"""Quasi-affine expressions: equal values whatever the form."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.quasi_affine import expressions as qa
from starc.core.quasi_affine import parser, simplification
from starc.core.quasi_affine.compilation import compiled
from starc.core.quasi_affine.expressions import Const, Expression, Var, bounds
from starc.core.quasi_affine.parser import parse
from starc.core.quasi_affine.simplification import simplify, substitute

NAMES = ("a", "b", "c")


def table(values: tuple[int, ...], index: Expression) -> Expression:
    return qa.Table(values, qa.Mod(index, len(values)))


def expressions() -> st.SearchStrategy[Expression]:
    leaves = st.one_of(st.integers(-20, 20).map(Const), st.sampled_from(NAMES).map(Var))
    divisors = st.integers(1, 9)

    def extend(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        tables = st.lists(st.integers(-9, 9), min_size=5, max_size=5).map(tuple)
        return st.one_of(
            st.builds(qa.Add, inner, inner),
            st.builds(qa.Mul, inner, st.integers(-4, 4)),
            st.builds(qa.FloorDiv, inner, divisors),
            st.builds(qa.Mod, inner, divisors),
            st.builds(qa.Min, inner, inner),
            st.builds(qa.Max, inner, inner),
            st.builds(table, tables, inner),
        )

    return st.recursive(leaves, extend, max_leaves=12)


values = st.fixed_dictionaries({name: st.integers(-50, 50) for name in NAMES})


@given(expressions(), values)
def test_simplified_text_and_compiled_forms_have_the_same_value(e: Expression, at: dict[str, int]):
    value = e.evaluate(at)
    assert simplify(e).evaluate(at) == value
    assert parse(str(e)).evaluate(at) == value
    assert compiled(e, NAMES)([at[name] for name in NAMES]) == value
    arrays = {name: np.array([number, number]) for name, number in at.items()}
    assert np.broadcast_to(e.evaluate(arrays), 2).tolist() == [value, value]


@given(expressions())
def test_simplified_text_parses_to_the_same_expression(e: Expression):
    simple = simplify(e)
    assert parse(str(simple)) == simple


@given(expressions(), st.data())
def test_bounds_hold_and_simplification_within_them_is_equal(e: Expression, data: st.DataObject):
    ranges: dict[str, tuple[int, int]] = {}
    for name in NAMES:
        low = data.draw(st.integers(-10, 10))
        ranges[name] = (low, low + data.draw(st.integers(0, 12)))
    at = {name: data.draw(st.integers(*ranges[name])) for name in NAMES}
    interval = bounds(e, ranges)
    assert interval is not None
    assert interval[0] <= e.evaluate(at) <= interval[1]
    assert simplify(e, ranges).evaluate(at) == e.evaluate(at)


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("a * 8 floordiv 8", "a"),
        ("(a * 8 + 3) floordiv 8", "a"),
        ("(a * 8 + b) mod 8", "b"),
        ("(a + 17) floordiv 8", "(a + 1) floordiv 8 + 2"),
        ("a + b - a", "b"),
        ("(a floordiv 4) * 4 + a mod 4", "a"),
        ("a floordiv 4 floordiv 2", "a floordiv 8"),
        ("a mod 16 mod 8", "a mod 8"),
        ("min(a, 3)", "min(a, 3)"),
        ("max(b, 0)", "b"),
        ("table<4, 4, 4>[a]", "4"),
        ("table<5, 6>[1]", "6"),
    ],
)
def test_rules(text: str, simple: str):
    assert str(simplify(parse(text), {"b": (0, 7)})) == simple


def test_floor_semantics_of_negative_numbers():
    assert parse("(a - 5) floordiv 4").evaluate({"a": 0}) == -2
    assert parse("(a - 5) mod 4").evaluate({"a": 0}) == 3


def test_substitution():
    e = Var("a") * 8 + Var("b")
    assert str(substitute(e, {"a": Var("c") + 1, "b": 2})) == "c * 8 + 10"


def test_only_products_with_constants():
    with pytest.raises(ValueError, match="not quasi-affine"):
        _ = Var("a") * Var("b")
    with pytest.raises(ValueError, match="must be positive"):
        _ = qa.FloorDiv(Var("a"), 0)


@pytest.mark.parametrize("text", ["", "a +", "a b", "a mod b", "min(a)", "3 $ 4", "(a"])
def test_parse_errors(text: str):
    with pytest.raises(ValueError, match="in '"):
        parse(text)


def test_index_outside_a_table():
    with pytest.raises(IndexError):
        parse("table<1, 2>[a]").evaluate({"a": -1})


def test_examples_of_the_modules():
    for module in (qa, parser, simplification):
        assert doctest.testmod(module).failed == 0
