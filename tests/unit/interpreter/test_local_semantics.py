"""What one device computes from its shards of an attention, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import BFloat16Type, Float32Type, TensorType
from xdsl.dialects.test import TestOp
from xdsl.ir import Attribute

from starc.dialects import nn
from starc.interpreter.element_types import Array, Indices
from starc.interpreter.local_semantics import (
    SemanticsError,
    Shard,
    appended,
    results_of,
    whole,
)

BATCH, HEADS, POSITIONS, SIZE = 2, 2, 8, 4


def tensor(*shape: int, element: Attribute | None = None) -> TensorType[Attribute]:
    return TensorType(element or BFloat16Type(), shape)


def values(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def append_op(query: int, start: int) -> nn.AppendOp:
    new = TestOp(result_types=[tensor(BATCH, query, HEADS * SIZE)]).results[0]
    return nn.AppendOp("c", new, start, tensor(BATCH, HEADS, POSITIONS, SIZE))  # pyright: ignore[reportArgumentType]


def rotated(rank: int, ranks: int, extent: int, offset: int = 0) -> Indices:
    """The positions of a rank, by sequence: sequence b deals from rank b on."""
    rows = [
        [p for p in range(extent) if (p + offset + row) % ranks == rank] for row in range(BATCH)
    ]
    slots = max(map(len, rows))
    return np.array([row + [-1] * (slots - len(row)) for row in rows], dtype=np.int64)


def cache_shard(rank: int, ranks: int) -> Shard:
    held = rotated(rank, ranks, POSITIONS)
    dims = (np.arange(BATCH), np.arange(HEADS), held, np.arange(SIZE))
    return Shard(
        np.zeros((BATCH, HEADS, held.shape[1], SIZE)), dims, (BATCH, HEADS, POSITIONS, SIZE)
    )


def new_shard(rank: int, ranks: int, query: int, offset: int) -> Shard:
    """The new tokens of a rank: the number of a token is its value."""
    held = rotated(rank, ranks, query, offset)
    tokens = np.broadcast_to(held[:, :, None], (*held.shape, HEADS * SIZE)).astype(np.float64)
    dims = (np.arange(BATCH), held, np.arange(HEADS * SIZE))
    return Shard(np.where(tokens < 0, np.nan, tokens), dims, (BATCH, query, HEADS * SIZE))


@pytest.mark.parametrize("ranks", [1, 3, 4, 8])
@pytest.mark.parametrize("sent", ["whole", "to owners"])
def test_every_owner_stores_its_tokens_and_no_other(ranks: int, sent: str) -> None:
    query, start = 5, 2
    found: list[tuple[int, int, int]] = []
    for rank in range(ranks):
        state = cache_shard(rank, ranks)
        new = new_shard(rank, ranks, query, start % ranks)
        if sent == "whole":
            tokens = np.arange(query, dtype=np.float64)[None, :, None]
            new = whole(np.broadcast_to(tokens, (BATCH, query, HEADS * SIZE)))
        # Token t is stored as t, untouched positions are 0; no poison of absent slots gets in.
        after = appended(append_op(query, start), state, new)
        for row, slot in np.argwhere(state.indices[2] >= 0):
            position = int(state.indices[2][row, slot])
            is_new = start <= position < start + query
            expected = position - start if is_new else 0
            np.testing.assert_array_equal(after[row, :, slot], expected)
            found += [(int(row), position, rank)] if is_new else []
    assert sorted((row, position) for row, position, _ in found) == [
        (row, start + token) for row in range(BATCH) for token in range(query)
    ]


def test_tokens_on_the_wrong_device_are_refused() -> None:
    new = new_shard(1, 4, 5, 2)
    with pytest.raises(SemanticsError, match="is appended on a device without it"):
        appended(append_op(5, 2), cache_shard(0, 4), new)


def test_tokens_that_are_not_sent_are_missed() -> None:
    new = new_shard(0, 2, 5, 0)
    tokens = new.indices[1].copy()
    tokens[:, 1:] = -1
    fewer = Shard(new.values, (new.indices[0], tokens, new.indices[2]), new.extents)
    with pytest.raises(SemanticsError, match="is not appended where the cache has it"):
        appended(append_op(5, 2), cache_shard(0, 2), fewer)


def partial_op() -> nn.PartialAttentionOp:
    q, k = TestOp(
        result_types=[tensor(BATCH, 1, 2 * HEADS * SIZE), tensor(BATCH, HEADS, POSITIONS, SIZE)]
    ).results
    rows = tensor(BATCH, 1, 2 * HEADS, element=Float32Type())
    columns = tensor(BATCH, 1, 2 * HEADS * SIZE, element=Float32Type())
    return nn.PartialAttentionOp(
        q,
        k,
        k,
        head_dim=SIZE,
        start=POSITIONS - 1,
        scale=1.0,
        causal=True,
        types=[rows, rows, columns],  # pyright: ignore[reportArgumentType]
    )


def test_a_device_without_positions_gives_the_identity() -> None:
    state = cache_shard(0, 4)
    empty = Shard(
        np.full((BATCH, HEADS, 1, SIZE), np.nan),
        (state.indices[0], state.indices[1], np.full((BATCH, 1), -1), state.indices[3]),
        state.extents,
    )
    m, l, o = results_of(partial_op(), [whole(values(BATCH, 1, 16)), empty, empty])  # noqa: E741
    assert np.all(np.isneginf(m.values))
    assert not l.values.any()
    assert not o.values.any()
    np.testing.assert_array_equal(m.indices[2], np.arange(2 * HEADS))
    assert (m.extents, o.extents) == ((BATCH, 1, 4), (BATCH, 1, 16))


def test_keys_and_values_of_other_positions_are_refused() -> None:
    k, v = cache_shard(0, 4), cache_shard(1, 4)
    with pytest.raises(SemanticsError, match="positions of keys and values differ"):
        results_of(partial_op(), [whole(values(BATCH, 1, 16)), k, v])


def test_a_sink_of_other_heads_is_refused() -> None:
    o = TestOp(result_types=[tensor(BATCH, 1, 16, element=Float32Type())]).results[0]
    m = TestOp(result_types=[tensor(BATCH, 1, 4, element=Float32Type())]).results[0]
    sink = TestOp(result_types=[tensor(4)]).results[0]
    op = nn.LseFinishOp(m, m, o, head_dim=SIZE, type=tensor(BATCH, 1, 16), sink=sink)  # pyright: ignore[reportArgumentType]
    rows, columns = whole(values(BATCH, 1, 4)), whole(values(BATCH, 1, 16))
    other = Shard(values(4), (np.arange(4, 8),), (8,))
    with pytest.raises(SemanticsError, match="the heads of the sink and those attended differ"):
        results_of(op, [rows, rows, columns, other])
