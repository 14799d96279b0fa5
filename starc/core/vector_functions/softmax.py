"""Steps of online softmax, and masks, over scores [queries, keys] of which some are visible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from starc.core.vector_functions.function import (
    Array,
    Function,
    Meaning,
    Operands,
    Parameter,
    Parameters,
    integers,
)


def _visible(tiles: Operands, parameters: Parameters) -> Array:
    """Where the query of a row sees the key of a column of the scores ``a``."""
    query_start, group, key_start, key_limit = parameters
    rows, keys = (int(extent) for extent in tiles["a"].shape)
    key: Array = key_start + np.arange(keys)
    query: Array = query_start + np.arange(rows) // group
    return (key[None, :] <= query[:, None]) & (key[None, :] < key_limit)


def _visible_sharded(tiles: Operands, parameters: Parameters) -> Array:
    query_start, group, key_start, key_limit, block, ranks, rank = parameters
    rows, keys = (int(extent) for extent in tiles["a"].shape)
    local: Array = key_start + np.arange(keys)
    key: Array = (local // block * ranks + rank) * block + local % block
    query: Array = query_start + np.arange(rows) // group
    return (key[None, :] <= query[:, None]) & (local < key_limit)[None, :]


def _visible_window(tiles: Operands, parameters: Parameters) -> Array:
    query_start, group, key_start, key_limit, ranks, window, keep = parameters
    rows, keys = (int(extent) for extent in tiles["a"].shape)
    local: Array = key_start + np.arange(keys)
    key: Array = (local * ranks)[None, :]
    query: Array = (query_start + np.arange(rows) // group)[:, None]
    seen: Array = (key <= query) & ((query - key < window) | (key < keep))
    return seen & (local < key_limit)[None, :]


_Visibility: TypeAlias = Callable[[Operands, Parameters], Array]
"""Where the query of a row sees the key of a column, by the tiles and integer parameters."""


def _softmax_step(visibility: _Visibility) -> Meaning:
    """The step whose parameters are the scale and those of the visibility."""

    def meaning(tiles: Operands, parameters: Parameters) -> dict[str, Array]:
        scale, *places = parameters
        s, m, total = tiles["a"], tiles["b"], tiles["c"]
        scores = np.where(visibility(tiles, places), s * s.dtype.type(scale), -np.inf)
        s = scores.astype(s.dtype)
        m_new = np.maximum(m, np.max(s, axis=1, keepdims=True))
        # m stays -inf while no key was visible: the identity of the merge. Inside exp it would
        # make -inf - -inf, so there it is replaced.
        shift = np.where(np.isneginf(m_new), 0, m_new).astype(s.dtype)
        p = np.exp(s - shift)
        correction = np.exp(m - shift)
        return {
            "dst": p,
            "b": m_new,
            "c": total * correction + np.sum(p, axis=1, keepdims=True),
            "d": correction,
        }

    return meaning


def _mask(visibility: _Visibility) -> Meaning:
    def meaning(tiles: Operands, parameters: Parameters) -> dict[str, Array]:
        a = tiles["a"]
        return {"dst": np.where(visibility(tiles, parameters), a, -np.inf).astype(a.dtype)}

    return meaning


SOFTMAX: Final = (
    Function(
        id=12,
        name="softmax_step",
        summary=(
            "one step of online softmax: dst[q, keys] = p of the scores a[q, keys]; m = b[q, 1] "
            "and l = c[q, 1] advance, d[q, 1] rescales the output so far. Row r has query "
            "position query_start + r floordiv group; column j has key position key_start + j, "
            "visible up to the query's position and below key_limit"
        ),
        meaning=_softmax_step(_visible),
        # Of a score: compare and select, scale, maximum, subtract, exponential (4), sum.
        lane_operations=10,
        reads=("a", "b", "c"),
        writes=("dst", "b", "c", "d"),
        parameters=(
            Parameter("scale", "real"),
            *integers("query_start", "group", "key_start", "key_limit"),
        ),
        specials=1,
        elementwise=False,
    ),
    Function(
        id=17,
        name="softmax_step_sharded",
        summary=(
            "softmax_step over a shard of the keys: column j is local key i = key_start + j, "
            "below key_limit, of position ((i floordiv block) * ranks + rank) * block + i mod "
            "block"
        ),
        meaning=_softmax_step(_visible_sharded),
        lane_operations=10,
        reads=("a", "b", "c"),
        writes=("dst", "b", "c", "d"),
        parameters=(
            Parameter("scale", "real"),
            *integers("query_start", "group", "key_start", "key_limit", "block", "ranks", "rank"),
        ),
        specials=1,
        elementwise=False,
    ),
    Function(
        id=18,
        name="softmax_step_window",
        summary=(
            "softmax_step where a key is visible only less than window positions before the "
            "query, or below position keep: column j is local key i = key_start + j, below "
            "key_limit, of position i * ranks"
        ),
        meaning=_softmax_step(_visible_window),
        # As softmax_step, and another compare and select.
        lane_operations=12,
        reads=("a", "b", "c"),
        writes=("dst", "b", "c", "d"),
        parameters=(
            Parameter("scale", "real"),
            *integers("query_start", "group", "key_start", "key_limit", "ranks", "window", "keep"),
        ),
        specials=1,
        elementwise=False,
    ),
    Function(
        id=24,
        name="mask",
        summary=(
            "dst = a where the key of the column is visible to the query of the row, else -inf; "
            "positions as those of softmax_step"
        ),
        meaning=_mask(_visible),
        lane_operations=2,
        reads=("a",),
        parameters=integers("query_start", "group", "key_start", "key_limit"),
        elementwise=False,
    ),
    Function(
        id=25,
        name="mask_sharded",
        summary="mask over a shard of the keys; positions as those of softmax_step_sharded",
        meaning=_mask(_visible_sharded),
        lane_operations=2,
        reads=("a",),
        parameters=integers(
            "query_start", "group", "key_start", "key_limit", "block", "ranks", "rank"
        ),
        elementwise=False,
    ),
    Function(
        id=26,
        name="mask_window",
        summary="mask with a window; positions as those of softmax_step_window",
        meaning=_mask(_visible_window),
        # As mask, and another compare and select.
        lane_operations=4,
        reads=("a",),
        parameters=integers(
            "query_start", "group", "key_start", "key_limit", "ranks", "window", "keep"
        ),
        elementwise=False,
    ),
)
