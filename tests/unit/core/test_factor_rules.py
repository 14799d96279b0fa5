"""Rules with rotated maps, windows of a cache, and combiners of what is summed over."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starc.core.sharding.combiners import ReductionKind
from starc.core.sharding.encoding import Axis, AxisRef, Encoding, Mesh
from starc.core.sharding.factor_checks import problems_of
from starc.core.sharding.factor_resolution import resolve
from starc.core.sharding.factor_rules import FactorRule, ShardedValue, factors
from starc.core.sharding.shard_map import Contiguous, Cyclic, Offsets, ShardMap, Zigzag

MESH = Mesh("node", (Axis("gpu", 2), Axis("xcd", 4)))
GPU, XCD = AxisRef("gpu"), AxisRef("xcd")
WHOLE = {rank: Encoding.replicated(MESH, rank) for rank in range(1, 5)}

LINEAR = FactorRule(
    (factors("batch query k"), factors("k n")),
    (factors("batch query n"),),
    linear=frozenset({0, 1}),
)
CACHE = factors("batch kv_head position d")
ROWS = factors("batch query head")


def attention(head_dim: int) -> FactorRule:
    columns = factors("batch query head", head=head_dim)
    return FactorRule(
        (columns, CACHE, CACHE),
        (ROWS, ROWS, columns),
        whole=frozenset({"d"}),
        nested=("head", "kv_head"),
        kinds={"position": ReductionKind.LSE},
    )


def append(start: int, head_dim: int) -> FactorRule:
    new = factors("batch query head", head=head_dim)
    return FactorRule(
        (factors("batch head position d"), new),
        (factors("batch head position d"),),
        whole=frozenset({"d"}),
        window=("query", "position", start),
    )


def named(
    encodings: Sequence[Encoding], shapes: Sequence[tuple[int, ...]], what: str
) -> list[ShardedValue]:
    return [
        ShardedValue(f"{what} {index}", encoding, shape)
        for index, (encoding, shape) in enumerate(zip(encodings, shapes, strict=True))
    ]


def check_resolution(
    rule: FactorRule,
    encodings: Sequence[Encoding],
    shapes: Sequence[tuple[int, ...]],
    results: Sequence[tuple[int, ...]],
) -> tuple[Encoding, ...]:
    """The encodings that ``resolve`` gives obey the rule; returns those of the results."""
    operands = named(encodings, shapes, "operand")
    found = resolve(rule, operands, results, [False] * len(shapes))
    after = named(found.operands, shapes, "operand"), named(found.results, results, "result")
    assert problems_of(rule, *after) == []
    for value in (*after[0], *after[1]):
        assert value.encoding.problems(value.shape) == []
    return found.results


def test_rows_of_a_rotated_map_go_through_a_product() -> None:
    rows = WHOLE[3].with_dim(1, (XCD,), Cyclic(1, 3, by=0))
    weight = WHOLE[2].with_dim(1, (GPU,))
    (result,) = check_resolution(LINEAR, [rows, weight], [(5, 1, 8), (8, 6)], [(5, 1, 6)])
    assert result == rows.with_dim(2, (GPU,))


def test_a_map_turned_by_a_dimension_that_the_weight_does_not_have_is_dropped_there() -> None:
    rows = WHOLE[3].with_dim(2, (XCD,), Cyclic(1, by=0))
    operands = named(
        [rows, WHOLE[2].with_dim(0, (XCD,), Cyclic(1))], [(5, 1, 8), (8, 6)], "operand"
    )
    result = named([WHOLE[3].with_partial("sum", (XCD,))], [(5, 1, 6)], "result")
    (problem,) = problems_of(LINEAR, operands, result)
    assert problem == (
        'dim 0 of operand 1 is split over {"xcd"} cyclic(1), dim 2 of operand 0 over {"xcd"} '
        "cyclic(1) by batch: they must agree"
    )


def test_positions_of_a_cache_leave_a_partial_softmax() -> None:
    cache = WHOLE[4].with_dim(1, (GPU,)).with_dim(2, (XCD,), Cyclic(1, by=0))
    queries = WHOLE[3].with_dim(2, (GPU,))
    m, total, output = check_resolution(
        attention(4),
        [queries, cache, cache],
        [(3, 2, 32), (3, 2, 10, 4), (3, 2, 10, 4)],
        [(3, 2, 8), (3, 2, 8), (3, 2, 32)],
    )
    assert m == total == output == WHOLE[3].with_dim(2, (GPU,)).with_partial("lse", (XCD,))


def test_two_kinds_of_partial_do_not_mix() -> None:
    cache = WHOLE[4].with_dim(2, (XCD,))
    rule = FactorRule(
        (factors("batch query f"), CACHE),
        (factors("batch query d"),),
        kinds={"position": ReductionKind.LSE},
    )
    operands = named([WHOLE[3].with_dim(2, (GPU,)), cache], [(2, 1, 8), (2, 2, 8, 4)], "operand")
    result = named([WHOLE[3].with_partial("sum", (GPU, XCD))], [(2, 1, 4)], "result")
    (problem,) = problems_of(rule, operands, result)
    assert problem == "the result would be partial sum and lse at once"


@pytest.mark.parametrize("kind", ["sum", "lse"])
def test_queries_that_are_partial_are_combined_before_a_softmax(kind: str) -> None:
    operands = named(
        [WHOLE[3].with_partial(kind, (GPU,)), WHOLE[4], WHOLE[4]],
        [(3, 2, 32), (3, 2, 10, 4), (3, 2, 10, 4)],
        "operand",
    )
    shapes = [(3, 2, 8), (3, 2, 8), (3, 2, 32)]
    results = named([WHOLE[3]] * 3, shapes, "result")
    (problem,) = problems_of(attention(4), operands, results)
    assert "the operation needs its value: an all-reduce was lost" in problem
    found = resolve(attention(4), operands, shapes, [False] * 3)
    assert found.operands[0] == WHOLE[3]


@given(st.data(), st.integers(0, 13), st.integers(0, 3))
def test_new_tokens_lie_with_their_positions_or_are_whole(
    data: st.DataObject, start: int, length: int
) -> None:
    extent = 16
    maps: list[ShardMap] = [
        Contiguous(),
        Zigzag(),
        Offsets((0, 3, 3, 9, 16)),
        Cyclic(1, by=0),
        Cyclic(2, 5),
    ]
    cache_map = data.draw(st.sampled_from(maps))
    token_map = data.draw(
        st.sampled_from([*maps, cache_map.window(start, length, 4, extent) or Contiguous()])
    )
    if isinstance(token_map, Offsets) and token_map.offsets[-1] != length:
        return
    cache = WHOLE[4].with_dim(2, (XCD,), cache_map)
    tokens = WHOLE[3].with_dim(1, (XCD,), token_map)
    shapes = [(3, 2, extent, 4), (3, length, 8)]
    operands = named([cache, tokens], shapes, "operand")
    result = named([cache], shapes[:1], "result")
    together = all(
        token_map.at_row(row).owner(token, 4, length)[0]
        == cache_map.at_row(row).owner(start + token, 4, extent)[0]
        for row in range(4)
        for token in range(length)
    )
    legal = problems_of(append(start, 4), operands, result) == []
    if legal:
        assert together
    if together and length and cache_map.rotated_by is None and not isinstance(cache_map, Zigzag):
        assert legal
    whole = named([cache, WHOLE[3]], shapes, "operand")
    assert problems_of(append(start, 4), whole, result) == []


def test_propagation_leaves_tokens_with_their_positions() -> None:
    cache = WHOLE[4].with_dim(2, (XCD,), Cyclic(1, by=0))
    tokens = WHOLE[3].with_dim(1, (XCD,), Cyclic(1, 1, by=0))
    shapes = [(3, 2, 16, 4), (3, 1, 8)]
    for start, wanted in ((5, tokens), (6, WHOLE[3])):
        operands = named([cache, tokens], shapes, "operand")
        found = resolve(append(start, 4), operands, shapes[:1], [True, False])
        assert found.operands == (cache, wanted)
        assert found.results == (cache,)
