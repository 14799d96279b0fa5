"""Legality of encodings: each way to break a rule, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.sharding.combiners import ReductionKind
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.factor_checks import problems_of
from starc.core.sharding.factor_rules import (
    DimFactor,
    FactorRule,
    FactorSharding,
    ShardedValue,
    carried_partial,
    factor_sharding,
    factors,
    units_of,
)
from starc.core.sharding.mesh import Axis, AxisRef, Mesh
from starc.core.sharding.shard_map import CONTIGUOUS, Cyclic, Offsets, ShardMap, Zigzag

MESH = Mesh("node", (Axis("x", 2), Axis("y", 4), Axis("z", 1)))
X, Y, Z = AxisRef("x"), AxisRef("y"), AxisRef("z")

PRODUCT = FactorRule(
    (factors("row k"), factors("k column")),
    (factors("row column"),),
    linear=frozenset({0, 1}),
)
SUM = FactorRule((factors("row column"),) * 2, (factors("row column"),), additive=True)
MOVE = FactorRule((factors("row column"),), (factors("row column"),), transparent=True)
SCALE = FactorRule(
    (factors("row column"), factors("column")), (factors("row column"),), linear=frozenset({0})
)
NORM = FactorRule((factors("row column"),), (factors("row column"),), whole=frozenset({"column"}))


def value(what: str, shape: tuple[int, ...], *dims: tuple[AxisRef, ...]) -> ShardedValue:
    """A value whose first dimensions are split contiguously over these axes."""
    encoding = Encoding.replicated(MESH, len(shape))
    for dim, axes in enumerate(dims):
        encoding = encoding.with_dim(dim, axes)
    return ShardedValue(what, encoding, shape)


def mapped(of: ShardedValue, dim: int, axes: tuple[AxisRef, ...], map: ShardMap) -> ShardedValue:
    return replace(of, encoding=of.encoding.with_dim(dim, axes, map))


def partial(of: ShardedValue, kind: str, *axes: AxisRef) -> ShardedValue:
    return replace(of, encoding=of.encoding.with_partial(kind, axes))


# Factors


def test_factors_are_of_single_positions_unless_a_block_is_given() -> None:
    assert factors("b head", head=128) == (DimFactor("b", 1), DimFactor("head", 128))
    assert DimFactor("b") == DimFactor("b", 1)


def test_what_no_result_mentions_is_summed_over() -> None:
    assert PRODUCT.summed() == ("k",)
    assert MOVE.summed() == ()
    assert replace(PRODUCT, whole=frozenset({"k"})).summed() == ()
    assert replace(PRODUCT, nested=("k", "row")).summed() == ()
    assert replace(PRODUCT, nested=("row", "k")).summed() == ()
    # The new tokens of a window run along with the positions; these may be summed over.
    assert replace(PRODUCT, window=("k", "row", 0)).summed() == ()
    assert replace(PRODUCT, window=("row", "k", 0)).summed() == ("k",)


def test_what_is_summed_over_is_in_the_order_of_the_operands_each_once() -> None:
    rule = FactorRule((factors("b c"), factors("c b a")), (factors("r"),))
    assert rule.summed() == ("b", "c", "a")


def test_a_summed_factor_leaves_a_sum_unless_another_kind_is_named() -> None:
    rule = replace(PRODUCT, kinds={"k": ReductionKind.LSE})
    assert rule.kind_of("k") == "lse"
    assert rule.kind_of("row") == PRODUCT.kind_of("k") == "sum"


def test_rules_are_keys_whatever_kinds_they_leave() -> None:
    named = replace(PRODUCT, kinds={"k": ReductionKind.LSE})
    assert named != PRODUCT
    assert len({PRODUCT, named}) == 2


def test_a_factor_prints_its_axes_its_map_and_what_turns_it() -> None:
    assert str(FactorSharding()) == "{}"
    assert str(FactorSharding((X, Y))) == '{"x", "y"}'
    turned = FactorSharding((Y,), Cyclic(2, by=0), "row")
    assert str(turned) == '{"y"} cyclic(2) by row'


def test_a_dimension_is_split_as_its_factor_in_whole_blocks() -> None:
    dims = factors("row head", head=4)
    whole, split = value("a", (3, 32)), value("a", (3, 32), (), (Y,))
    assert factor_sharding(whole, dims, 1) == FactorSharding()
    assert factor_sharding(split, dims, 1) == FactorSharding((Y,))
    assert factor_sharding(split, factors("row head", head=16), 1) is None
    dealt = mapped(whole, 1, (Y,), Cyclic(8))
    assert factor_sharding(dealt, dims, 1) == FactorSharding((Y,), Cyclic(2))


def test_rows_that_turn_a_map_are_single_positions() -> None:
    turned = mapped(value("a", (4, 32)), 1, (Y,), Cyclic(4, by=0))
    assert factor_sharding(turned, factors("row head", head=4), 1) == FactorSharding(
        (Y,), Cyclic(1, by=0), "row"
    )
    assert factor_sharding(turned, factors("row head", row=2, head=4), 1) is None
    other = mapped(value("a", (4, 32, 5)), 1, (Y,), Cyclic(4, by=2))
    assert factor_sharding(other, factors("row head turn", head=4), 1) == FactorSharding(
        (Y,), Cyclic(1, by=0), "turn"
    )


def test_the_extent_of_a_factor_is_that_of_the_first_operand_that_has_it() -> None:
    rule = FactorRule((factors("row head", head=4), factors("head other")), (factors("row head"),))
    operands = [value("a", (3, 32)), value("b", (8, 5))]
    assert [units_of(rule, operands, name) for name in ("row", "head", "other")] == [3, 8, 5]


def test_a_rule_has_a_row_for_every_value() -> None:
    a, b, c = (value(what, (8, 8)) for what in "abc")
    assert problems_of(PRODUCT, [a, b], [c]) == []
    for operands, results in (([a], [c]), ([a, b, c], [c]), ([a, b], []), ([a, b], [c, c])):
        with pytest.raises(ValueError, match="zip"):
            problems_of(PRODUCT, operands, results)
    with pytest.raises(ValueError, match="zip"):
        units_of(PRODUCT, [a], "column")


# Splits


def test_a_shard_does_not_cut_a_block() -> None:
    rule = FactorRule((factors("row head", head=16),), (factors("row head", head=16),))
    whole, split = value("operand 0", (3, 32)), value("operand 0", (3, 32), (), (Y,))
    assert problems_of(rule, [whole], [whole]) == []
    found = problems_of(rule, [split], [replace(whole, what="result 0")])
    assert found == ['dim 1 of operand 0 of size 32 is split over {"y"} inside a block of 16']
    # The other dimensions are judged all the same.
    both = value("operand 0", (4, 32), (X,), (Y,))
    found = problems_of(rule, [both], [value("result 0", (4, 32))])
    assert found[1:] == [
        'dim 0 of result 0 is split over {}, dim 0 of operand 0 over {"x"}: they must agree'
    ]


def test_a_whole_factor_is_not_split() -> None:
    split, whole = value("operand 0", (4, 8), (), (Y,)), value("operand 0", (4, 8), (X,))
    assert problems_of(NORM, [whole], [whole]) == []
    assert problems_of(NORM, [split], [split])[0] == (
        'dim 1 of operand 0 is split over {"y"}, but must be whole'
    )


def test_values_agree_on_every_factor() -> None:
    left, right = value("left", (4, 8), (X,)), value("right", (8, 8))
    assert problems_of(PRODUCT, [left, right], [value("sum", (4, 8), (X,))]) == []
    assert problems_of(PRODUCT, [left, right], [value("sum", (4, 8))]) == [
        'dim 0 of sum is split over {}, dim 0 of left over {"x"}: they must agree'
    ]
    other = mapped(value("sum", (4, 8)), 0, (X,), Cyclic(1))
    assert problems_of(PRODUCT, [left, right], [other]) == [
        'dim 0 of sum is split over {"x"} cyclic(1), dim 0 of left over {"x"}: they must agree'
    ]


def test_an_axis_of_one_device_splits_nothing() -> None:
    left, right = value("left", (4, 8), (Z,), (Z,)), value("right", (8, 8))
    assert problems_of(PRODUCT, [left, right], [value("sum", (4, 8))]) == []


AXES = st.sampled_from([(), (X,), (Y,), (X, Y)])


@given(AXES, AXES, AXES, AXES, AXES, AXES, AXES)
def test_a_product_is_legal_where_factors_agree_and_what_is_summed_is_partial(
    row: tuple[AxisRef, ...],
    k: tuple[AxisRef, ...],
    k_again: tuple[AxisRef, ...],
    column: tuple[AxisRef, ...],
    row_again: tuple[AxisRef, ...],
    column_again: tuple[AxisRef, ...],
    left: tuple[AxisRef, ...],
) -> None:
    operands = [value("a", (8, 8), row, k), value("b", (8, 8), k_again, column)]
    result = partial(value("c", (8, 8), row_again, column_again), "sum", *left)
    legal = (row, column, k, left) == (row_again, column_again, k_again, k)
    assert (problems_of(PRODUCT, operands, [result]) == []) == legal


# Partial values


def test_a_split_sum_is_partial_over_its_axes() -> None:
    operands = [value("a", (8, 8), (), (X, Y)), value("b", (8, 8), (X, Y))]
    result = value("c", (8, 8))
    assert problems_of(PRODUCT, operands, [partial(result, "sum", X, Y)]) == []
    assert problems_of(PRODUCT, operands, [partial(result, "sum", X)]) == [
        'c is partial sum{"x"}, expected partial sum{"x", "y"}'
    ]
    assert problems_of(PRODUCT, operands, [partial(result, "max", X, Y)]) == [
        'c is partial max{"x", "y"}, expected partial sum{"x", "y"}'
    ]
    assert problems_of(PRODUCT, operands, [result]) == [
        'c is not partial, but the operation leaves partial sum{"x", "y"}'
    ]


def test_nothing_is_partial_without_a_reason() -> None:
    whole = value("a", (8, 8))
    assert problems_of(MOVE, [whole], [partial(whole, "sum", X)]) == [
        'a is partial sum{"x"}, but nothing makes it so'
    ]


def test_every_result_is_judged() -> None:
    rule = replace(MOVE, results=MOVE.results * 2)
    whole = value("a", (8, 8))
    results = [partial(replace(whole, what=what), "sum", X) for what in ("b", "c")]
    assert [found.split()[0] for found in problems_of(rule, [whole], results)] == ["b", "c"]


def test_a_linear_operation_keeps_one_partial_operand() -> None:
    a, b = value("a", (8, 8)), value("b", (8, 8))
    result = partial(value("c", (8, 8)), "sum", X)
    assert problems_of(PRODUCT, [partial(a, "sum", X), b], [result]) == []
    assert problems_of(PRODUCT, [a, partial(b, "sum", X)], [result]) == []
    lost = 'a is partial sum{"x"}, the operation needs its value: an all-reduce was lost'
    both = [partial(a, "sum", X), partial(b, "sum", X)]
    assert problems_of(PRODUCT, both, [result]) == [lost]
    # It is linear in the first operand only.
    column = value("b", (8,))
    assert problems_of(SCALE, [partial(a, "sum", X), column], [result]) == []
    assert problems_of(SCALE, [a, partial(column, "sum", X)], [result]) == [
        lost.replace("a is", "b is", 1)
    ]
    # A maximum does not go through a product.
    assert problems_of(PRODUCT, [partial(a, "max", X), b], [partial(result, "max", X)]) == [
        lost.replace("sum", "max")
    ]


def test_partial_sums_and_what_is_summed_over_add_up() -> None:
    a = partial(value("a", (8, 8), (), (Y,)), "sum", X)
    b = value("b", (8, 8), (Y,))
    result = value("c", (8, 8))
    assert problems_of(PRODUCT, [a, b], [partial(result, "sum", X, Y)]) == []
    assert problems_of(PRODUCT, [a, b], [partial(result, "sum", Y)]) != []


def test_addends_are_partial_in_the_same_way() -> None:
    a, b, result = value("a", (8, 8)), value("b", (8, 8)), value("c", (8, 8))
    both = [partial(a, "sum", X), partial(b, "sum", X)]
    assert problems_of(SUM, both, [partial(result, "sum", X)]) == []
    assert problems_of(SUM, [both[0], b], [result]) == [
        'a is partial sum{"x"}, b is not: an all-reduce was lost'
    ]
    assert problems_of(SUM, [both[0], partial(b, "sum", Y)], [result]) == [
        'a is partial sum{"x"}, b is partial sum{"y"}: an all-reduce was lost'
    ]
    assert problems_of(SUM, [a, both[1]], [result]) == [
        'b is partial sum{"x"}, a is not: an all-reduce was lost'
    ]
    # The sum of maxima is not the maximum of sums.
    most = [partial(a, "max", X), partial(b, "max", X)]
    assert problems_of(SUM, most, [partial(result, "max", X)]) == [
        'a is partial max{"x"}, the operation needs its value: an all-reduce was lost'
    ]


@pytest.mark.parametrize("kind", ["sum", "max", "lse", "root"])
def test_what_only_moves_data_carries_any_kind(kind: str) -> None:
    held = partial(value("a", (8, 8)), kind, X)
    assert problems_of(MOVE, [held], [held]) == []
    assert problems_of(MOVE, [held], [value("b", (8, 8))]) == [
        f'b is not partial, but the operation leaves partial {kind}{{"x"}}'
    ]
    assert carried_partial(MOVE, [held]) == (held.encoding, None)
    assert carried_partial(MOVE, [value("a", (8, 8))]) == (None, None)


def test_other_operations_need_values() -> None:
    held = partial(value("a", (8, 8)), "sum", X)
    assert problems_of(NORM, [held], [held]) == [
        'a is partial sum{"x"}, the operation needs its value: an all-reduce was lost'
    ]


def test_kinds_do_not_mix() -> None:
    rule = replace(PRODUCT, kinds={"k": ReductionKind.LSE})
    a, b = partial(value("a", (8, 8), (), (Y,)), "sum", X), value("b", (8, 8), (Y,))
    assert problems_of(rule, [a, b], [value("c", (8, 8))]) == [
        "the result would be partial lse and sum at once"
    ]


# Nested factors and windows

NESTED = FactorRule(
    (factors("row head", head=2), factors("group k")),
    (factors("row head", head=2),),
    nested=("head", "group"),
)


@pytest.mark.parametrize(
    ("heads", "groups", "legal"),
    [
        ((), (), True),
        ((X,), (), True),
        ((X,), (X,), True),
        ((X, Y), (X,), True),
        ((Y, X), (X,), False),
        ((), (X,), False),
        ((Y,), (X,), False),
    ],
)
def test_heads_lie_with_their_groups(
    heads: tuple[AxisRef, ...], groups: tuple[AxisRef, ...], legal: bool
) -> None:
    """Sixteen heads of two columns in four groups."""
    queries, cache = value("q", (3, 32), (), heads), value("cache", (4, 5), groups)
    found = problems_of(NESTED, [queries, cache], [replace(queries, what="result")])
    if legal:
        assert found == []
    else:
        inner, outer = (FactorSharding(axes) for axes in (heads, groups))
        assert found == [
            f"dim 1 of q is split over {inner}, dim 0 of cache over {outer}: the axes of the "
            "second must come first in the first, and its shards cover those of the first"
        ]


def test_heads_of_uneven_groups_are_dealt_like_them() -> None:
    """Twelve heads in three groups, of which the first device has two."""
    groups = mapped(value("cache", (3, 5)), 0, (X,), Offsets((0, 2, 3)))
    for ends, legal in (((0, 8, 12), True), ((0, 6, 12), False)):
        queries = mapped(value("q", (3, 24)), 1, (X,), Offsets(ends).of_blocks(2, 2, 12))
        found = problems_of(NESTED, [queries, groups], [queries])
        assert (found == []) == legal


def window(start: int) -> FactorRule:
    return FactorRule(
        (factors("position"), factors("token")),
        (factors("position"),),
        window=("token", "position", start),
    )


@pytest.mark.parametrize(
    ("start", "tokens", "map", "legal"),
    [
        (0, 4, Offsets((0, 4, 4, 4, 4)), True),
        (4, 4, Offsets((0, 0, 4, 4, 4)), True),
        (2, 4, Offsets((0, 2, 4, 4, 4)), True),
        (2, 4, Offsets((0, 1, 4, 4, 4)), False),
        (0, 16, CONTIGUOUS, True),
        (2, 4, CONTIGUOUS, False),
        (2, 14, Cyclic(1), False),
    ],
)
def test_tokens_lie_with_their_positions(
    start: int, tokens: int, map: ShardMap, legal: bool
) -> None:
    """Of sixteen positions four on each device."""
    cache, new = value("cache", (16,), (Y,)), mapped(value("new", (tokens,)), 0, (Y,), map)
    found = problems_of(window(start), [cache, new], [cache])
    assert problems_of(window(start), [cache, value("new", (tokens,))], [cache]) == []
    if legal:
        assert found == []
    else:
        expected = FactorSharding((Y,), CONTIGUOUS.window(start, tokens, 4, 16) or CONTIGUOUS)
        assert found == [
            f'dim 0 of new is split over {FactorSharding((Y,), map)}, dim 0 of cache over {{"y"}}: '
            f"tokens {start}..{start + tokens - 1} must be whole, or split over {expected}"
        ]


def test_tokens_are_split_over_the_axes_of_their_positions() -> None:
    cache = value("cache", (16,), (Y,))
    for axes, legal in (((Y,), True), ((X,), False), ((X, Y), False)):
        new = value("new", (16,), axes)
        assert (problems_of(window(0), [cache, new], [cache]) == []) == legal


def test_tokens_of_maps_without_windows_are_whole() -> None:
    cache = mapped(value("cache", (16,)), 0, (Y,), Zigzag())
    new = mapped(value("new", (8,)), 0, (Y,), Zigzag())
    assert problems_of(window(4), [cache, new], [cache]) == [
        'dim 0 of new is split over {"y"} zigzag, dim 0 of cache over {"y"} zigzag: tokens 4..11 '
        "must be whole, no map gives its positions"
    ]
