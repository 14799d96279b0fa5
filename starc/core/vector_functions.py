"""The vector functions of a program: one table for meaning, cost and text.

The event core takes a function's cost and which tiles it reads and writes, the executions take its
meaning, the disassembler its name and parameters.

Operands are the tile fields of a record, ``dst a b c d``, as arrays of two dimensions [rows, cols];
one-dimensional quantities of rows are [rows, 1] and of columns [1, cols], and broadcast. Parameters
are integer expressions; a real parameter travels as the bits of its float64 (``real_bits``).

A meaning works in the type of the arrays it is given: float64 in exact mode, float32 in typed
mode. Whoever calls it rounds what it returns to the types of the tiles.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Operands: TypeAlias = Mapping[str, Array]
Parameters: TypeAlias = Sequence[Any]
Meaning: TypeAlias = Callable[[Operands, Parameters], Mapping[str, Array]]

OPERAND_FIELDS: Final = ("dst", "a", "b", "c", "d")
SPECIAL_OPERATIONS: Final = 4
"""Lane operations that an exponential, reciprocal or root counts as."""


def real_bits(value: float) -> int:
    """The bits of a float64 as a signed 64-bit integer: how a real parameter is stored."""
    return struct.unpack("<q", struct.pack("<d", value))[0]


def real_value(bits: int) -> float:
    """The float64 that ``real_bits`` stored."""
    return struct.unpack("<d", struct.pack("<q", bits))[0]


@dataclass(frozen=True)
class Parameter:
    name: str
    kind: Literal["integer", "real"] = "integer"


@dataclass(frozen=True)
class Function:
    """One vector function.

    ``operands`` name its tiles in the order ``dst a b c d``; ``reads`` and ``writes`` say which of
    these fields it reads and overwrites. ``lane_operations`` counts the 32-bit lane operations for
    each element of its largest operand; an exponential, reciprocal or root counts as four, and
    ``specials`` says how many of these there are. An ``elementwise`` function takes what lies at an
    element's place, with broadcasts; the others sum over rows or move columns.
    """

    id: int
    name: str
    operands: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    lane_operations: int
    meaning: Meaning
    parameters: tuple[Parameter, ...] = ()
    summary: str = ""
    specials: int = 0
    elementwise: bool = True

    def work(self, elements: Sequence[int]) -> int:
        """Lane operations where the operands have these numbers of elements."""
        return self.lane_operations * max(elements)

    def operations(self, elements: Sequence[int]) -> tuple[int, int]:
        """Lane operations where the operands have these numbers of elements: plain ones, and
        exponentials, reciprocals and roots."""
        special = self.specials * max(elements)
        return self.work(elements) - SPECIAL_OPERATIONS * special, special

    def decode(self, values: Sequence[int]) -> tuple[int | float, ...]:
        """Parameters as the meaning takes them, from the integers of a record."""
        return tuple(
            real_value(value) if parameter.kind == "real" else int(value)
            for parameter, value in zip(self.parameters, values, strict=True)
        )


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


def _scale(tiles: Operands, parameters: Parameters) -> dict[str, Array]:
    return {"dst": tiles["a"] * tiles["a"].dtype.type(parameters[0])}


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


def _softmax_step(tiles: Operands, parameters: Parameters) -> dict[str, Array]:
    return _online_softmax(tiles, parameters[0], _visible(tiles, parameters[1:]))


def _softmax_step_sharded(tiles: Operands, parameters: Parameters) -> dict[str, Array]:
    return _online_softmax(tiles, parameters[0], _visible_sharded(tiles, parameters[1:]))


def _softmax_step_window(tiles: Operands, parameters: Parameters) -> dict[str, Array]:
    return _online_softmax(tiles, parameters[0], _visible_window(tiles, parameters[1:]))


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


def _mask(tiles: Operands, parameters: Parameters) -> dict[str, Array]:
    return _masked(tiles, _visible(tiles, parameters))


def _mask_sharded(tiles: Operands, parameters: Parameters) -> dict[str, Array]:
    return _masked(tiles, _visible_sharded(tiles, parameters))


def _mask_window(tiles: Operands, parameters: Parameters) -> dict[str, Array]:
    return _masked(tiles, _visible_window(tiles, parameters))


def _masked(tiles: Operands, visible: Array) -> dict[str, Array]:
    a = tiles["a"]
    return {"dst": np.where(visible, a, -np.inf).astype(a.dtype)}


def _row_max(tiles: Operands, _: Parameters) -> dict[str, Array]:
    return {"dst": np.max(tiles["a"], axis=1, keepdims=True)}


def _row_sum(tiles: Operands, _: Parameters) -> dict[str, Array]:
    return {"dst": np.sum(tiles["a"], axis=1, keepdims=True)}


def _exp_difference(tiles: Operands, _: Parameters) -> dict[str, Array]:
    a, b = tiles["a"], tiles["b"]
    # Where the maximum is -inf nothing was visible, and -inf - -inf is no number.
    return {"dst": np.exp(a - np.where(np.isneginf(b), 0, b).astype(a.dtype))}


def _online_softmax(tiles: Operands, scale: float, visible: Array) -> dict[str, Array]:
    s, m, total = tiles["a"], tiles["b"], tiles["c"]
    s = np.where(visible, s * s.dtype.type(scale), -np.inf).astype(s.dtype)
    m_new = np.maximum(m, np.max(s, axis=1, keepdims=True))
    # m stays -inf while no key was visible: the identity of the merge. Inside exp it would make
    # -inf - -inf, so there it is replaced.
    shift = np.where(np.isneginf(m_new), 0, m_new).astype(s.dtype)
    p = np.exp(s - shift)
    correction = np.exp(m - shift)
    return {
        "dst": p,
        "b": m_new,
        "c": total * correction + np.sum(p, axis=1, keepdims=True),
        "d": correction,
    }


def _rescale(tiles: Operands, _: Parameters) -> dict[str, Array]:
    return {"dst": tiles["dst"] * tiles["a"]}


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


def _maximum(tiles: Operands, _: Parameters) -> dict[str, Array]:
    return {"dst": np.maximum(tiles["a"], tiles["b"])}


def _lse_weights(tiles: Operands, _: Parameters) -> dict[str, Array]:
    m, other = tiles["a"], tiles["b"]
    m_new = np.maximum(m, other)
    shift = np.where(np.isneginf(m_new), 0, m_new).astype(m.dtype)
    return {"dst": np.exp(other - shift), "a": m_new, "c": np.exp(m - shift)}


def _lse_blend(tiles: Operands, _: Parameters) -> dict[str, Array]:
    return {"dst": tiles["dst"] * tiles["a"] + tiles["b"] * tiles["c"]}


def _integers(*names: str) -> tuple[Parameter, ...]:
    return tuple(Parameter(name) for name in names)


_DST, _DST_A, _DST_A_B = ("dst",), ("dst", "a"), ("dst", "a", "b")

FUNCTIONS: Final[tuple[Function, ...]] = (
    Function(0, "zero", _DST, (), _DST, 1, _zero, summary="dst = 0"),
    Function(1, "fill_neg_inf", _DST, (), _DST, 1, _fill_neg_inf, summary="dst = -inf"),
    Function(
        2, "copy", _DST_A, ("a",), _DST, 1, _copy, summary="dst = a, rounded to the type of dst"
    ),
    Function(3, "add", _DST_A_B, ("a", "b"), _DST, 1, _add, summary="dst = a + b"),
    Function(4, "mul", _DST_A_B, ("a", "b"), _DST, 1, _mul, summary="dst = a * b"),
    Function(
        5, "silu", _DST_A, ("a",), _DST, 11, _silu, summary="dst = a / (1 + exp(-a))", specials=2
    ),
    Function(
        6,
        "silu_mul",
        _DST_A_B,
        ("a", "b"),
        _DST,
        12,
        _silu_mul,
        summary="dst = silu(a) * b",
        specials=2,
    ),
    Function(
        7,
        "gelu",
        _DST_A,
        ("a",),
        _DST,
        14,
        _gelu,
        summary="dst = a * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))) / 2",
        specials=2,
    ),
    Function(
        8,
        "scale",
        _DST_A,
        ("a",),
        _DST,
        1,
        _scale,
        (Parameter("factor", "real"),),
        "dst = a * factor",
    ),
    Function(
        9,
        "row_sum_squares_add",
        _DST_A,
        _DST_A,
        _DST,
        2,
        _row_sum_squares_add,
        summary="dst[rows, 1] += the sum over columns of a * a",
        elementwise=False,
    ),
    Function(
        10,
        "rms_apply",
        ("dst", "a", "b", "c"),
        ("a", "b", "c"),
        _DST,
        3,
        _rms_apply,
        (Parameter("features"), Parameter("eps", "real")),
        "dst = a / sqrt(b / features + eps) * c; b[rows, 1] sums of squares, c[1, cols] weights",
    ),
    Function(
        11,
        "rope",
        _DST_A,
        ("a",),
        _DST,
        4,
        _rope,
        (Parameter("head_dim"), Parameter("theta", "real"), *_integers("start", "query", "row")),
        "rotates pairs (i, i + head_dim / 2) of every head in a row by position * theta ** "
        "(-2 i / head_dim); the position of row r is start + (row + r) mod query",
        elementwise=False,
    ),
    Function(
        12,
        "softmax_step",
        OPERAND_FIELDS,
        ("a", "b", "c"),
        ("dst", "b", "c", "d"),
        # Of a score: compare and select, scale, maximum, subtract, exponential (4), sum.
        10,
        _softmax_step,
        (
            Parameter("scale", "real"),
            *_integers("query_start", "group", "key_start", "key_limit"),
        ),
        "one step of online softmax: dst[q, keys] = p of the scores a[q, keys]; m = b[q, 1] and "
        "l = c[q, 1] advance, d[q, 1] rescales the output so far. Row r has query position "
        "query_start + "
        "r floordiv group; column j has key position key_start + j, visible up to the query's "
        "position and below key_limit",
        specials=1,
        elementwise=False,
    ),
    Function(
        13,
        "lse_pack",
        ("dst", "a", "b", "c"),
        ("a", "b", "c"),
        _DST,
        1,
        _lse_pack,
        summary="dst[q, width + 2] = (o | l | m) of m = a, l = b, o = c",
        elementwise=False,
    ),
    Function(
        14,
        "lse_merge",
        ("dst", "a", "b", "c"),
        ("dst", "a", "b", "c"),
        _DST_A_B,
        3,
        _lse_merge,
        summary="merges the packed partial c into o = dst, m = a, l = b",
        elementwise=False,
    ),
    Function(
        15,
        "lse_finish",
        _DST_A_B,
        ("a", "b"),
        _DST,
        5,
        _lse_finish,
        summary="dst = o / l where l > 0, else 0; l = a[q, heads], o = b[q, heads * width]",
        specials=1,
    ),
    # A product, and the way through the registers of the matrix engine.
    Function(
        16, "rescale", _DST_A, _DST_A, _DST, 2, _rescale, summary="dst *= a[q, 1], an accumulator"
    ),
    Function(
        17,
        "softmax_step_sharded",
        OPERAND_FIELDS,
        ("a", "b", "c"),
        ("dst", "b", "c", "d"),
        10,
        _softmax_step_sharded,
        (
            Parameter("scale", "real"),
            *_integers("query_start", "group", "key_start", "key_limit", "block", "ranks", "rank"),
        ),
        "softmax_step over a shard of the keys: column j is local key i = key_start + j, below "
        "key_limit, of position ((i floordiv block) * ranks + rank) * block + i mod block",
        specials=1,
        elementwise=False,
    ),
    Function(
        18,
        "softmax_step_window",
        OPERAND_FIELDS,
        ("a", "b", "c"),
        ("dst", "b", "c", "d"),
        # As softmax_step, and another compare and select.
        12,
        _softmax_step_window,
        (
            Parameter("scale", "real"),
            *_integers("query_start", "group", "key_start", "key_limit"),
            *_integers("ranks", "window", "keep"),
        ),
        "softmax_step where a key is visible only less than window positions before the query, or "
        "below position keep: column j is local key i = key_start + j, below key_limit, of "
        "position i * ranks",
        specials=1,
        elementwise=False,
    ),
    Function(
        19,
        "lse_finish_sink",
        OPERAND_FIELDS,
        ("a", "b", "c", "d"),
        _DST,
        5,
        _lse_finish_sink,
        summary="lse_finish after (d, 1, 0) is merged in: l = a, o = b, m = c[q, heads]; d has a "
        "logit for each head, or for each of the first rows, which repeat",
        specials=1,
    ),
    Function(
        20,
        "norm_scale",
        _DST_A,
        ("a",),
        _DST,
        # Two divisions and a root.
        12,
        _norm_scale,
        (Parameter("features"), Parameter("eps", "real")),
        "dst = 1 / sqrt(a / features + eps), of sums of squares",
        specials=3,
    ),
    Function(21, "maximum", _DST_A_B, ("a", "b"), _DST, 1, _maximum, summary="dst = max(a, b)"),
    Function(
        22,
        "lse_weights",
        ("dst", "a", "b", "c"),
        ("a", "b"),
        ("dst", "a", "c"),
        # A maximum and two subtractions with exponentials.
        11,
        _lse_weights,
        summary="the weights of two partials with maxima a and b: m = max(a, b), c = exp(a - m), "
        "dst = exp(b - m), a = m",
        specials=2,
    ),
    Function(
        23,
        "lse_blend",
        ("dst", "a", "b", "c"),
        ("dst", "a", "b", "c"),
        _DST,
        3,
        _lse_blend,
        summary="dst = dst * a + b * c, a[rows, 1] and c[rows, 1] weights of the rows",
    ),
    Function(
        24,
        "mask",
        _DST_A,
        ("a",),
        _DST,
        2,
        _mask,
        _integers("query_start", "group", "key_start", "key_limit"),
        "dst = a where the key of the column is visible to the query of the row, else -inf; "
        "positions as those of softmax_step",
        elementwise=False,
    ),
    Function(
        25,
        "mask_sharded",
        _DST_A,
        ("a",),
        _DST,
        2,
        _mask_sharded,
        _integers("query_start", "group", "key_start", "key_limit", "block", "ranks", "rank"),
        "mask over a shard of the keys; positions as those of softmax_step_sharded",
        elementwise=False,
    ),
    Function(
        26,
        "mask_window",
        _DST_A,
        ("a",),
        _DST,
        # As mask, and another compare and select.
        4,
        _mask_window,
        _integers("query_start", "group", "key_start", "key_limit", "ranks", "window", "keep"),
        "mask with a window; positions as those of softmax_step_window",
        elementwise=False,
    ),
    Function(
        27,
        "row_max",
        _DST_A,
        ("a",),
        _DST,
        1,
        _row_max,
        summary="dst[rows, 1] = the maximum over columns of a",
        elementwise=False,
    ),
    Function(
        28,
        "row_sum",
        _DST_A,
        ("a",),
        _DST,
        1,
        _row_sum,
        summary="dst[rows, 1] = the sum over columns of a",
        elementwise=False,
    ),
    # A subtraction and an exponential.
    Function(
        29,
        "exp_difference",
        _DST_A_B,
        ("a", "b"),
        _DST,
        5,
        _exp_difference,
        summary="dst = exp(a - b); exp(a) where b is -inf",
        specials=1,
    ),
)

BY_NAME: Final[Mapping[str, Function]] = {function.name: function for function in FUNCTIONS}


def function(key: int | str) -> Function:
    """The function of this id or name. Raises ``KeyError`` for an unknown one."""
    if isinstance(key, str):
        return BY_NAME[key]
    if not 0 <= key < len(FUNCTIONS):
        raise KeyError(key)
    return FUNCTIONS[key]
