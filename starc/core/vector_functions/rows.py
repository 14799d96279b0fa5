"""Norms, rotary positions and reductions of rows."""

from __future__ import annotations

from typing import Final

import numpy as np

from starc.core.vector_functions.function import (
    Array,
    Function,
    Operands,
    Parameter,
    Parameters,
    integers,
)


def _row_sum_squares_add(tiles: Operands, _: Parameters) -> dict[str, Array]:
    a = tiles["a"]
    return {"dst": tiles["dst"] + np.sum(a * a, axis=1, keepdims=True)}


def _rms_apply(tiles: Operands, parameters: Parameters) -> dict[str, Array]:
    features, eps = parameters
    a, sum_squares, weight = tiles["a"], tiles["b"], tiles["c"]
    real = a.dtype.type
    return {"dst": a / np.sqrt(sum_squares / real(features) + real(eps)) * weight}


def _norm_scale(tiles: Operands, parameters: Parameters) -> dict[str, Array]:
    features, eps = parameters
    real = tiles["a"].dtype.type
    return {"dst": 1 / np.sqrt(tiles["a"] / real(features) + real(eps))}


def _rope(tiles: Operands, parameters: Parameters) -> dict[str, Array]:
    head_dim, theta, start, query, row = parameters
    a = tiles["a"]
    rows, cols = int(a.shape[0]), int(a.shape[1])
    d = int(head_dim)
    position: Array = start + (row + np.arange(rows)) % query
    frequency = np.float64(theta) ** (-2.0 * np.arange(d // 2) / d)
    angle: Array = position[:, None].astype(np.float64) * frequency
    cos, sin = (f(angle).astype(a.dtype)[:, None, :] for f in (np.cos, np.sin))
    heads = a.reshape(rows, cols // d, d)
    low, high = heads[..., : d // 2], heads[..., d // 2 :]
    rotated = np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
    return {"dst": rotated.reshape(rows, cols)}


def _row_max(tiles: Operands, _: Parameters) -> dict[str, Array]:
    return {"dst": np.max(tiles["a"], axis=1, keepdims=True)}


def _row_sum(tiles: Operands, _: Parameters) -> dict[str, Array]:
    return {"dst": np.sum(tiles["a"], axis=1, keepdims=True)}


ROWS: Final = (
    Function(
        id=9,
        name="row_sum_squares_add",
        summary="dst[rows, 1] += the sum over columns of a * a",
        meaning=_row_sum_squares_add,
        lane_operations=2,
        reads=("dst", "a"),
        elementwise=False,
    ),
    Function(
        id=10,
        name="rms_apply",
        summary=(
            "dst = a / sqrt(b / features + eps) * c; b[rows, 1] sums of squares, c[1, cols] weights"
        ),
        meaning=_rms_apply,
        lane_operations=3,
        reads=("a", "b", "c"),
        parameters=(
            *integers("features"),
            Parameter("eps", "real"),
        ),
    ),
    Function(
        id=20,
        name="norm_scale",
        summary="dst = 1 / sqrt(a / features + eps), of sums of squares",
        meaning=_norm_scale,
        # Two divisions and a root.
        lane_operations=12,
        reads=("a",),
        parameters=(
            *integers("features"),
            Parameter("eps", "real"),
        ),
        specials=3,
    ),
    Function(
        id=11,
        name="rope",
        summary=(
            "rotates pairs (i, i + head_dim / 2) of every head in a row by position * theta ** "
            "(-2 i / head_dim); the position of row r is start + (row + r) mod query"
        ),
        meaning=_rope,
        lane_operations=4,
        reads=("a",),
        parameters=(
            *integers("head_dim"),
            Parameter("theta", "real"),
            *integers("start", "query", "row"),
        ),
        elementwise=False,
    ),
    Function(
        id=27,
        name="row_max",
        summary="dst[rows, 1] = the maximum over columns of a",
        meaning=_row_max,
        lane_operations=1,
        reads=("a",),
        elementwise=False,
    ),
    Function(
        id=28,
        name="row_sum",
        summary="dst[rows, 1] = the sum over columns of a",
        meaning=_row_sum,
        lane_operations=1,
        reads=("a",),
        elementwise=False,
    ),
)
