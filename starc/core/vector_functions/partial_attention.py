"""Partial attentions of some keys: maxima ``m``, sums ``l`` and weighted values ``o`` of rows."""

from __future__ import annotations

from typing import Final

import numpy as np

from starc.core.vector_functions.function import Array, Function, Operands, Parameters


def _lse_pack(tiles: Operands, _: Parameters) -> dict[str, Array]:
    return {"dst": np.concatenate([tiles["c"], tiles["b"], tiles["a"]], axis=1)}


def _lse_merge(tiles: Operands, _: Parameters) -> dict[str, Array]:
    o, m, total, other = tiles["dst"], tiles["a"], tiles["b"], tiles["c"]
    d = o.shape[1]
    o2, l2, m2 = other[:, :d], other[:, d : d + 1], other[:, d + 1 : d + 2]
    m_new = np.maximum(m, m2)
    shift = np.where(np.isneginf(m_new), 0, m_new).astype(m.dtype)
    first, second = np.exp(m - shift), np.exp(m2 - shift)
    return {"dst": o * first + o2 * second, "a": m_new, "b": total * first + l2 * second}


def _lse_weights(tiles: Operands, _: Parameters) -> dict[str, Array]:
    m, other = tiles["a"], tiles["b"]
    m_new = np.maximum(m, other)
    shift = np.where(np.isneginf(m_new), 0, m_new).astype(m.dtype)
    return {"dst": np.exp(other - shift), "a": m_new, "c": np.exp(m - shift)}


def _lse_blend(tiles: Operands, _: Parameters) -> dict[str, Array]:
    return {"dst": tiles["dst"] * tiles["a"] + tiles["b"] * tiles["c"]}


def _lse_finish(tiles: Operands, _: Parameters) -> dict[str, Array]:
    total, o = tiles["a"], tiles["b"]
    return {"dst": _normalised(total, o)}


def _lse_finish_sink(tiles: Operands, _: Parameters) -> dict[str, Array]:
    total, o, m, sink = tiles["a"], tiles["b"], tiles["c"], tiles["d"]
    logits = np.tile(sink.reshape(-1), m.size // sink.size).reshape(m.shape)
    # The largest of the two is finite unless the logit is -inf too: then nothing is seen at all.
    largest = np.maximum(m, logits)
    shift = np.where(np.isneginf(largest), 0, largest).astype(m.dtype)
    scale = np.exp(m - shift)
    heads = o.reshape(m.size, -1) * scale.reshape(-1, 1)
    return {"dst": _normalised(total * scale + np.exp(logits - shift), heads.reshape(o.shape))}


def _normalised(total: Array, o: Array) -> Array:
    """o / l, 0 where l is 0; ``total`` has an element for each head of a row of ``o``."""
    sums = total.reshape(-1, 1)
    heads = o.reshape(sums.shape[0], -1)
    result = np.where(sums > 0, heads / np.where(sums > 0, sums, 1), 0)
    return result.reshape(o.shape).astype(o.dtype)


PARTIAL_ATTENTION: Final = (
    Function(
        id=13,
        name="lse_pack",
        summary="dst[q, width + 2] = (o | l | m) of m = a, l = b, o = c",
        meaning=_lse_pack,
        lane_operations=1,
        reads=("a", "b", "c"),
        elementwise=False,
    ),
    Function(
        id=14,
        name="lse_merge",
        summary="merges the packed partial c into o = dst, m = a, l = b",
        meaning=_lse_merge,
        lane_operations=3,
        reads=("dst", "a", "b", "c"),
        writes=("dst", "a", "b"),
        elementwise=False,
    ),
    Function(
        id=22,
        name="lse_weights",
        summary=(
            "the weights of two partials with maxima a and b: m = max(a, b), c = exp(a - m), dst "
            "= exp(b - m), a = m"
        ),
        meaning=_lse_weights,
        # A maximum and two subtractions with exponentials.
        lane_operations=11,
        reads=("a", "b"),
        writes=("dst", "a", "c"),
        specials=2,
    ),
    Function(
        id=23,
        name="lse_blend",
        summary="dst = dst * a + b * c, a[rows, 1] and c[rows, 1] weights of the rows",
        meaning=_lse_blend,
        lane_operations=3,
        reads=("dst", "a", "b", "c"),
    ),
    Function(
        id=15,
        name="lse_finish",
        summary="dst = o / l where l > 0, else 0; l = a[q, heads], o = b[q, heads * width]",
        meaning=_lse_finish,
        lane_operations=5,
        reads=("a", "b"),
        specials=1,
    ),
    Function(
        id=19,
        name="lse_finish_sink",
        summary=(
            "lse_finish after (d, 1, 0) is merged in: l = a, o = b, m = c[q, heads]; d has a "
            "logit for each head, or for each of the first rows, which repeat"
        ),
        meaning=_lse_finish_sink,
        lane_operations=5,
        reads=("a", "b", "c", "d"),
        specials=1,
    ),
)
