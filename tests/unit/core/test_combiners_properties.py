"""Combiners: a partial softmax may be cut and merged in any way."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.sharding.combiners import COMBINERS, Array, Combiner, Parts, ReductionKind

LSE = COMBINERS[ReductionKind.LSE]
SCORES = st.lists(st.one_of(st.floats(-80, 80), st.just(-np.inf)), min_size=1, max_size=9)


def state(scores: Array, values: Array) -> Parts:
    """The partial softmax of one row: m and l are numbers, o has the columns of ``values``."""
    m: Array = np.max(scores, initial=-np.inf, keepdims=True)
    safe = np.where(m > -np.inf, m, 0.0)
    shifted: Array = np.exp(scores - safe)
    return m, np.sum(shifted, keepdims=True), shifted @ values


@given(SCORES, st.integers(1, 4), st.randoms(use_true_random=False))
def test_shards_merge_to_the_softmax_in_any_order_and_any_tree(
    scores: list[float], columns: int, random: Random
) -> None:
    pieces = np.array(scores)
    values = np.arange(len(scores) * columns, dtype=float).reshape(len(scores), columns) % 7 - 3
    cuts = sorted(random.randrange(len(scores) + 1) for _ in range(3))
    ends = [0, *cuts, len(scores)]
    parts = [state(pieces[a:b], values[a:b]) for a, b in pairwise(ends)]
    while len(parts) > 1:
        left = parts.pop(random.randrange(len(parts)))
        right = parts.pop(random.randrange(len(parts)))
        parts.append(LSE.combine(left, right))
    weights: Array = np.exp(pieces)
    total = weights.sum()
    expected = weights @ values / total if total > 0 else np.zeros(columns)
    np.testing.assert_allclose(LSE.finalise(parts[0]), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(parts[0][0], np.max(pieces, keepdims=True))


def test_merging_weighs_each_side_by_its_maximum() -> None:
    low = (np.array([0.0]), np.array([2.0]), np.array([6.0, 8.0]))
    high = (np.array([np.log(4.0)]), np.array([3.0]), np.array([1.0, 2.0]))
    for m, total, output in (LSE.combine(low, high), LSE.combine(high, low)):
        np.testing.assert_allclose(m, [np.log(4.0)])
        np.testing.assert_allclose(total, [2.0 / 4 + 3.0])
        np.testing.assert_allclose(output, [6.0 / 4 + 1.0, 8.0 / 4 + 2.0])


@pytest.mark.parametrize("output", [(2, 6), (2, 3, 2), (2, 3)])
def test_a_value_per_head_covers_the_columns_of_its_head(output: tuple[int, ...]) -> None:
    """Outputs are (..., h * d), (..., h, d) or, with heads of one column, (..., h)."""
    total = np.array([[0.5, 2.0, 4.0], [0.0, 8.0, 16.0]])
    found = LSE.finalise((np.zeros((2, 3)), total, np.ones(output)))
    expected = np.array([[2, 1 / 2, 1 / 4], [0, 1 / 8, 1 / 16]])
    stretched = expected[..., None] if len(output) == 3 else expected
    if output == (2, 6):
        stretched = np.repeat(expected, 2, axis=1)
    np.testing.assert_allclose(found, np.broadcast_to(stretched, output))


def test_kinds_and_their_combiners() -> None:
    one, two = (np.array([1.0, 5.0]),), (np.array([3.0, 2.0]),)
    results = {
        kind: COMBINERS[kind].combine(one, two)[0].tolist()
        for kind in (ReductionKind.SUM, ReductionKind.MAX, ReductionKind.ROOT)
    }
    assert results == {"sum": [4.0, 7.0], "max": [3.0, 5.0], "root": [1.0, 5.0]}
    assert all(COMBINERS[kind].finalise(two) is two[0] for kind in results)
    assert {kind: combiner.identity for kind, combiner in COMBINERS.items()} == {
        "sum": (0.0,),
        "max": (-np.inf,),
        "lse": (-np.inf, 0.0, 0.0),
        "root": (0.0,),
    }
    assert [kind for kind, combiner in COMBINERS.items() if combiner.linear] == ["sum"]
    assert [kind for kind, combiner in COMBINERS.items() if combiner.is_joint] == ["lse"]
    assert all(combiner.associative for combiner in COMBINERS.values())


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(
        ValueError, match='unknown reduction "mean", expected one of: sum, max, lse'
    ):
        ReductionKind("mean")


def test_only_an_order_that_matters_is_a_problem() -> None:
    problems = {kind: combiner.order_problem for kind, combiner in COMBINERS.items()}
    assert problems == {"sum": None, "max": None, "lse": None, "root": "root is not commutative"}
    loose = Combiner("mean", ("a", "b"), (0.0, 0.0), LSE.combine, LSE.finalise, associative=False)
    assert loose.order_problem == "mean is not associative"
    assert loose.is_joint
    assert not loose.linear


@pytest.mark.parametrize(
    ("shapes", "shared"),
    [
        ([(4, 8), (4, 8), (4, 8)], (0, 1)),
        ([(4, 8), (4, 8), (4, 24)], (0, 1)),
        ([(4, 8), (4, 8), (4, 20)], (0,)),
        ([(4, 8), (4, 4), (4, 8)], (0,)),
        ([(4, 4), (4, 8), (4, 8)], (0,)),
        ([(4, 2), (4, 2), (4, 6)], (0, 1)),
        ([(4, 1), (4, 1), (4, 6)], (0,)),
        ([(4, 6), (4, 6), (4, 2)], (0,)),
        ([(4, 8), (4,), (4, 8)], ()),
    ],
)
def test_components_are_scattered_together_where_their_blocks_are(
    shapes: list[tuple[int, ...]], shared: tuple[int, ...]
) -> None:
    assert LSE.shared_dims(shapes) == shared
