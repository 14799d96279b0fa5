"""Combiners: identity, order and the finaliser."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from starc.core.sharding.combiners import COMBINERS, Array, Parts

LSE = COMBINERS["lse"]


def partial_softmax(scores: Array, values: Array) -> Parts:
    """m, l and o of a shard of the keys: scores [rows, keys], values [keys, d]."""
    if scores.shape[1] == 0:
        rows, d = len(scores), values.shape[1]
        minus_infinity: Array = np.full(rows, -np.inf)
        return minus_infinity, np.zeros(rows), np.zeros((rows, d))
    m: Array = np.max(scores, axis=1)
    p: Array = np.exp(scores - m[:, None])
    l: Array = np.sum(p, axis=1)  # noqa: E741
    o: Array = p @ values
    return m, l, o


@pytest.mark.parametrize("cuts", [(0, 5, 9), (0, 0, 9), (0, 9, 9), (0, 3, 3, 9)])
def test_merged_partial_softmax_is_softmax(cuts: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    scores, values = rng.normal(size=(3, 9)) * 50, rng.normal(size=(9, 4))
    shards = [partial_softmax(scores[:, a:b], values[a:b]) for a, b in itertools.pairwise(cuts)]
    merged = shards[0]
    for shard in shards[1:]:
        merged = LSE.combine(merged, shard)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = weights / weights.sum(axis=1, keepdims=True) @ values
    np.testing.assert_allclose(LSE.finalise(merged), expected, rtol=1e-12)


def test_empty_shards_combine_to_zero_without_warnings() -> None:
    empty = partial_softmax(np.zeros((2, 0)), np.zeros((0, 4)))
    with np.errstate(all="raise"):
        merged = LSE.combine(empty, empty)
        assert np.array_equal(LSE.finalise(merged), np.zeros((2, 4)))
        assert np.all(np.isneginf(merged[0]))


def test_a_masked_row_does_not_hide_a_very_small_one() -> None:
    # A rank whose row is all masked publishes m = -inf, not 0: others may be at m = -200.
    seen = partial_softmax(np.full((1, 2), -200.0), np.ones((2, 1)))
    masked = partial_softmax(np.zeros((1, 0)), np.ones((0, 1)))
    np.testing.assert_allclose(LSE.finalise(LSE.combine(masked, seen)), [[1.0]])


@pytest.mark.parametrize("kind", ["sum", "max", "lse"])
def test_the_identity_changes_nothing_and_order_does_not_matter(kind: str) -> None:
    combiner = COMBINERS[kind]
    rng = np.random.default_rng(2)
    shapes = [(2, 3), (2, 3), (2, 12)][: len(combiner.components)]
    a, b, c = (tuple(rng.normal(size=shape) for shape in shapes) for _ in range(3))
    identity = tuple(np.full(s, v) for s, v in zip(shapes, combiner.identity, strict=True))
    for found, expected in [
        (combiner.combine(a, identity), a),
        (combiner.combine(identity, a), a),
        (combiner.combine(a, b), combiner.combine(b, a)),
        (combiner.combine(combiner.combine(a, b), c), combiner.combine(a, combiner.combine(b, c))),
    ]:
        for left, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-12)


def test_heads_are_shared_by_the_components_head_size_is_not() -> None:
    assert LSE.shared_dims([(2, 1, 8), (2, 1, 8), (2, 1, 1024)]) == (0, 1, 2)
    assert LSE.shared_dims([(2, 8, 1), (2, 8, 1), (2, 8, 128)]) == (0, 1)
    assert LSE.shared_dims([(2, 8), (2, 8), (2, 8, 128)]) == ()
