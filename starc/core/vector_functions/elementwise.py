"""Functions of single elements."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from starc.core.vector_functions.function import Array, Function, Operands, Parameter, Parameters


def _zero(tiles: Operands, _: Parameters) -> dict[str, Array]:
    return {"dst": np.zeros_like(tiles["dst"])}


def _fill_neg_inf(tiles: Operands, _: Parameters) -> dict[str, Array]:
    return {"dst": np.full_like(tiles["dst"], -np.inf)}


def _copy(tiles: Operands, _: Parameters) -> dict[str, Array]:
    return {"dst": np.broadcast_to(tiles["a"], tiles["dst"].shape)}


def _add(tiles: Operands, _: Parameters) -> dict[str, Array]:
    return {"dst": tiles["a"] + tiles["b"]}


def _mul(tiles: Operands, _: Parameters) -> dict[str, Array]:
    return {"dst": tiles["a"] * tiles["b"]}


def _maximum(tiles: Operands, _: Parameters) -> dict[str, Array]:
    return {"dst": np.maximum(tiles["a"], tiles["b"])}


def _scale(tiles: Operands, parameters: Parameters) -> dict[str, Array]:
    return {"dst": tiles["a"] * tiles["a"].dtype.type(parameters[0])}


def _rescale(tiles: Operands, _: Parameters) -> dict[str, Array]:
    return {"dst": tiles["dst"] * tiles["a"]}


def _silu_of(x: Array) -> Array:
    # exp of a large positive argument would overflow: both branches use exp(-|x|).
    e = np.exp(-np.abs(x))
    return x * np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def _silu(tiles: Operands, _: Parameters) -> dict[str, Array]:
    return {"dst": _silu_of(tiles["a"])}


def _silu_mul(tiles: Operands, _: Parameters) -> dict[str, Array]:
    return {"dst": _silu_of(tiles["a"]) * tiles["b"]}


def _gelu(tiles: Operands, _: Parameters) -> dict[str, Array]:
    x = tiles["a"]
    # The tanh form, as nn.gelu has it.
    inner = x.dtype.type(math.sqrt(2 / math.pi)) * (x + x.dtype.type(0.044715) * x**3)
    return {"dst": x.dtype.type(0.5) * x * (1 + np.tanh(inner))}


def _exp_difference(tiles: Operands, _: Parameters) -> dict[str, Array]:
    a, b = tiles["a"], tiles["b"]
    # Where the maximum is -inf nothing was visible, and -inf - -inf is no number.
    return {"dst": np.exp(a - np.where(np.isneginf(b), 0, b).astype(a.dtype))}


ELEMENTWISE: Final = (
    Function(
        id=0,
        name="zero",
        summary="dst = 0",
        meaning=_zero,
        lane_operations=1,
    ),
    Function(
        id=1,
        name="fill_neg_inf",
        summary="dst = -inf",
        meaning=_fill_neg_inf,
        lane_operations=1,
    ),
    Function(
        id=2,
        name="copy",
        summary="dst = a, rounded to the type of dst",
        meaning=_copy,
        lane_operations=1,
        reads=("a",),
    ),
    Function(
        id=3,
        name="add",
        summary="dst = a + b",
        meaning=_add,
        lane_operations=1,
        reads=("a", "b"),
    ),
    Function(
        id=4,
        name="mul",
        summary="dst = a * b",
        meaning=_mul,
        lane_operations=1,
        reads=("a", "b"),
    ),
    Function(
        id=21,
        name="maximum",
        summary="dst = max(a, b)",
        meaning=_maximum,
        lane_operations=1,
        reads=("a", "b"),
    ),
    Function(
        id=8,
        name="scale",
        summary="dst = a * factor",
        meaning=_scale,
        lane_operations=1,
        reads=("a",),
        parameters=(Parameter("factor", "real"),),
    ),
    Function(
        id=16,
        name="rescale",
        summary="dst *= a[q, 1], an accumulator",
        meaning=_rescale,
        # A product, and the way through the registers of the matrix engine.
        lane_operations=2,
        reads=("dst", "a"),
    ),
    Function(
        id=5,
        name="silu",
        summary="dst = a / (1 + exp(-a))",
        meaning=_silu,
        lane_operations=11,
        reads=("a",),
        specials=2,
    ),
    Function(
        id=6,
        name="silu_mul",
        summary="dst = silu(a) * b",
        meaning=_silu_mul,
        lane_operations=12,
        reads=("a", "b"),
        specials=2,
    ),
    Function(
        id=7,
        name="gelu",
        summary="dst = a * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))) / 2",
        meaning=_gelu,
        lane_operations=14,
        reads=("a",),
        specials=2,
    ),
    Function(
        id=29,
        name="exp_difference",
        summary="dst = exp(a - b); exp(a) where b is -inf",
        meaning=_exp_difference,
        # A subtraction and an exponential.
        lane_operations=5,
        reads=("a", "b"),
        specials=1,
    ),
)
