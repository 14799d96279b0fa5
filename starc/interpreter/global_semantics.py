"""The numpy meaning of the ``nn`` operations on whole tensors: the reference of every check.

The functions are pure. They load their arguments (float64 stays, narrower floats become float32),
compute there and return the result unrounded; whoever stores a result rounds it with
``element_types.store``. Positions of tokens and rows of tables are explicit arguments, so that the
same functions hold on the shards of one device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.traits import SymbolTable

from starc.core.sharding.combiners import COMBINERS
from starc.dialects import nn
from starc.interpreter.element_types import (
    Array,
    Indices,
    Mode,
    load,
    store,
    tensor_type,
)

# ---------------------------------------------------------------------------------------------
# Operations
# ---------------------------------------------------------------------------------------------


def _range(start: int, length: int) -> Indices:
    return np.arange(start, start + length, dtype=np.int64)


def linear(x: Array, w: Array) -> Array:
    """``x[..., k] @ w[k, n]``."""
    return np.matmul(load(x), load(w))


def rms_norm(x: Array, w: Array, eps: float) -> Array:
    """Rows of ``x[..., feature]`` over their root mean square, times ``w[feature]``."""
    x = load(x)
    mean_square = np.mean(x * x, axis=-1, keepdims=True)
    return x / np.sqrt(mean_square + eps) * load(w)


NORMS: Final[Mapping[type[nn.NormOp], Callable[..., Array]]] = {nn.RmsNormOp: rms_norm}
"""Norms of whole rows, as functions of rows, weights and epsilon."""


def rope(x: Array, head_dim: int, theta: float, positions: Indices) -> Array:
    """Rotates ``x[batch, query, head * head_dim]``: dimension ``i`` of a head with dimension
    ``i + head_dim / 2``, by ``position * theta ** (-2 i / head_dim)``. ``positions[query]`` may
    have a row for every sequence of the batch."""
    x = load(x)
    batch, query, features = x.shape
    half = head_dim // 2
    frequencies = theta ** (-2.0 * np.arange(half) / head_dim)
    # Angles are float64 in both modes: kernels read a table that was made with care.
    angles = np.atleast_2d(positions)[:, :, None] * frequencies
    cos = np.cos(angles).astype(x.dtype)[:, :, None, :]
    sin = np.sin(angles).astype(x.dtype)[:, :, None, :]
    heads = x.reshape(batch, query, features // head_dim, head_dim)
    low, high = heads[..., :half], heads[..., half:]
    rotated = np.concatenate((low * cos - high * sin, high * cos + low * sin), axis=-1)
    return rotated.reshape(batch, query, features)


def append(state: Array, x: Array, slots: Indices) -> Array:
    """A copy of ``state[batch, kv_head, position, head_dim]`` with the new tokens
    ``x[batch, query, kv_head * head_dim]``, of the same element type, at the positions
    ``slots[query]`` of the array, or ``slots[batch, query]`` where they depend on the row. A token
    whose slot is -1 is not stored."""
    batch, kv_heads, _, head_dim = state.shape
    result = state.copy()
    heads = x.reshape(batch, slots.shape[-1], kv_heads, head_dim).transpose(0, 2, 1, 3)
    if slots.ndim == 1 and np.all(slots >= 0):
        result[:, :, slots, :] = heads
        return result
    for row, places in enumerate(np.broadcast_to(slots, (batch, slots.shape[-1]))):
        kept = places >= 0
        result[row][:, places[kept]] = heads[row][:, kept]
    return result


@dataclass(frozen=True)
class Visibility:
    """Which keys a query sees, by positions in the sequence.

    With ``causal`` those up to its own; with ``window``, of these, the nearest ``window`` and the
    first ``keep`` of the sequence.
    """

    causal: bool = True
    window: int | None = None
    keep: int = 0

    @classmethod
    def of(cls, op: nn.AttentionOp | nn.PartialAttentionOp) -> Visibility:
        """What an operation says."""
        window = op.window.value.data if op.window is not None else None
        keep = op.keep.value.data if op.keep is not None else 0
        return cls(op.causal is not None, window, keep)

    def mask(self, q_positions: Indices, k_positions: Indices) -> npt.NDArray[np.bool_]:
        """``mask[row, query, position]``: whether a key is visible, with one row where neither the
        queries' nor the keys' positions depend on it. A negative position is a key that is not
        there."""
        q = np.atleast_2d(q_positions)[:, :, None]
        k = np.atleast_2d(k_positions)[:, None, :]
        visible = np.broadcast_to(k >= 0, np.broadcast_shapes(q.shape, k.shape)).copy()
        if self.causal:
            visible &= k <= q
        if self.window is not None:
            visible &= (q - k < self.window) | (k < self.keep)
        return visible


def partial_attention(
    q: Array,
    k: Array,
    v: Array,
    head_dim: int,
    q_positions: Indices,
    k_positions: Indices,
    scale: float,
    visibility: Visibility,
    kv_head_of: Indices | None = None,
) -> tuple[Array, Array, Array]:
    """What some keys contribute to the attention of ``q[batch, query, head * head_dim]`` over
    ``k, v[batch, kv_head, position, head_dim]``: the largest score and the sum of the weights,
    ``[batch, query, head]``, and the weighted values ``[batch, query, head * head_dim]``.

    ``q_positions`` and ``k_positions`` are positions in the sequence, ``[query]`` and
    ``[position]``, or with a row for every sequence of the batch; -1 marks a slot that holds
    nothing. ``kv_head_of[head]`` is the KV head (an index into ``k``) that a query head reads; by
    default consecutive heads share one. A query that sees no key gives ``(-inf, 0, 0)``.
    """
    q, k, v = load(q), load(k), load(v)
    batch, query, features = q.shape
    heads = features // head_dim
    if kv_head_of is None:
        kv_head_of = _range(0, heads) // (heads // k.shape[1])
    queries = q.reshape(batch, query, heads, head_dim).transpose(0, 2, 1, 3)
    keys = k[:, kv_head_of].transpose(0, 1, 3, 2)
    scores: Array = np.matmul(queries, keys) * scale
    visible = visibility.mask(q_positions, k_positions)[:, None]
    scores = np.where(visible, scores, -np.inf)
    largest = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    # A row that sees nothing: exp(-inf - 0) is 0, exp(-inf - -inf) would not be a number.
    weights = np.exp(scores - np.where(largest == -np.inf, 0, largest))
    total = np.sum(weights, axis=-1)
    if np.any(k_positions < 0):
        # What is not there may be anything; a weight of 0 does not silence what is not a number.
        absent: Array = np.atleast_2d(k_positions)[:, None, :, None] < 0
        v = np.where(absent, np.zeros((), v.dtype), v)
    output = np.matmul(weights, v[:, kv_head_of])
    return (
        largest[..., 0].transpose(0, 2, 1),
        total.transpose(0, 2, 1),
        output.transpose(0, 2, 1, 3).reshape(batch, query, features),
    )


def lse_finish(m: Array, l: Array, o: Array, sink: Array | None = None) -> Array:  # noqa: E741
    """The attention of merged parts: ``o[batch, query, head * head_dim]`` over the sums
    ``l[batch, query, head]``, to which ``sink[head]`` adds its weight; 0 where the sum is 0."""
    m, l, o = load(m), load(l), load(o)  # noqa: E741
    if sink is not None:
        ones = np.ones_like(l)
        logits = np.broadcast_to(load(sink), m.shape).astype(m.dtype)
        m, l, o = COMBINERS["lse"].combine((m, l, o), (logits, ones, np.zeros_like(o)))  # noqa: E741
    return COMBINERS["lse"].finalise((m, l, o))


def attention(
    q: Array,
    k: Array,
    v: Array,
    head_dim: int,
    q_positions: Indices,
    k_positions: Indices,
    scale: float,
    visibility: Visibility,
    kv_head_of: Indices | None = None,
    sink: Array | None = None,
) -> Array:
    """Softmax attention, as ``[batch, query, head * head_dim]``; the arguments are those of
    ``partial_attention``. ``sink[head]`` is a logit that takes part in the softmax and has no
    value. A query that sees no key gets zeros."""
    parts = partial_attention(
        q, k, v, head_dim, q_positions, k_positions, scale, visibility, kv_head_of
    )
    return lse_finish(*parts, sink)


def sum_squares(x: Array) -> Array:
    """The sum of squares of the rows of ``x[..., feature]``, as ``[..., 1]``."""
    x = load(x)
    return np.sum(x * x, axis=-1, keepdims=True)


def norm_scale(s: Array, eps: float, count: int) -> Array:
    """One over the root mean square of rows with the sums of squares ``s``."""
    return 1 / np.sqrt(load(s) / count + eps)


def silu(x: Array) -> Array:
    """``x * sigmoid(x)``."""
    x = load(x)
    # exp of a non-positive number cannot overflow.
    small = np.exp(-np.abs(x))
    return x * np.where(x >= 0, 1, small) / (1 + small)


def gelu(x: Array) -> Array:
    """The Gaussian error linear unit in its tanh form."""
    x = load(x)
    inner = float(np.sqrt(2 / np.pi)) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + np.tanh(inner))


def add(x: Array, y: Array) -> Array:
    """``x + y``."""
    return load(x) + load(y)


def mul(x: Array, y: Array) -> Array:
    """``x * y``; one may have fewer or shorter dimensions, as numpy stretches them."""
    return load(x) * load(y)


ELEMENTWISE: Final[Mapping[type[nn.ElementwiseOp], Callable[..., Array]]] = {
    nn.SiluOp: silu,
    nn.GeluOp: gelu,
    nn.AddOp: add,
    nn.MulOp: mul,
}
"""What elementwise operations compute, on whole tensors and on shards. Written apart from the
vector functions that kernels use: checks compare the two."""


def embedding(ids: Array, table: Array, first_row: int = 0) -> Array:
    """Rows of ``table[row, hidden]``, which holds the rows ``first_row ..`` of the whole table,
    for ``ids[batch, query]``. Ids outside of it give zeros."""
    rows = ids.astype(np.int64) - first_row
    held = (rows >= 0) & (rows < table.shape[0])
    if not table.shape[0]:
        return np.zeros((*ids.shape, table.shape[1]))
    return load(table)[np.where(held, rows, 0)] * held[..., None]


def last_token(x: Array) -> Array:
    """The last query token of ``x[batch, query, feature]``, as ``[batch, 1, feature]``."""
    return load(x)[:, -1:, :]


# ---------------------------------------------------------------------------------------------
# Layers
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerRun:
    """What one run of a layer returned, and all states of the module after it."""

    outputs: tuple[Array, ...]
    states: dict[str, Array]


def evaluate(op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    """The unrounded results of a pure ``nn`` operation on whole tensors. Raises ``ValueError`` for
    an operation without a meaning here."""
    if isinstance(op, nn.PartialAttentionOp):
        q, k, v = operands
        return partial_attention(
            q,
            k,
            v,
            op.head_dim.value.data,
            _range(op.start.value.data, q.shape[1]),
            _range(0, k.shape[2]),
            op.scale.value.data,
            Visibility.of(op),
        )
    return (_evaluate_one(op, operands),)


def _evaluate_one(op: Operation, operands: Sequence[Array]) -> Array:
    match op:
        case nn.LinearOp():
            return linear(*operands)
        case nn.NormOp():
            x, w = operands
            return NORMS[type(op)](x, w, op.eps.value.data)
        case nn.RopeOp():
            (x,) = operands
            positions = _range(op.start.value.data, x.shape[1])
            return rope(x, op.head_dim.value.data, op.theta.value.data, positions)
        case nn.AttentionOp():
            q, k, v, *sink = operands
            return attention(
                q,
                k,
                v,
                op.head_dim.value.data,
                _range(op.start.value.data, q.shape[1]),
                _range(0, k.shape[2]),
                op.scale.value.data,
                Visibility.of(op),
                sink=sink[0] if sink else None,
            )
        case nn.LseFinishOp():
            return lse_finish(*operands)
        case nn.SumSquaresOp():
            return sum_squares(*operands)
        case nn.NormScaleOp():
            (s,) = operands
            return norm_scale(s, op.eps.value.data, op.count.value.data)
        case nn.ScaleColumnsOp() | nn.ScaleRowsOp():
            return mul(*operands)
        case nn.ElementwiseOp():
            return ELEMENTWISE[type(op)](*operands)
        case nn.EmbeddingOp():
            ids, table = operands
            return embedding(ids, table)
        case nn.LastTokenOp():
            return last_token(*operands)
        case _:
            raise ValueError(f"{op.name} has no meaning on whole tensors")


def run_layer(
    module: ModuleOp,
    layer_name: str,
    inputs: Sequence[Array],
    parameters: Mapping[str, Array],
    states: Mapping[str, Array],
    mode: Mode,
) -> LayerRun:
    """Runs a layer of a module of the nn level.

    ``inputs`` are the arguments in order; ``parameters`` and ``states`` are whole tensors by full
    name (``decoder.q``) and are not changed. Raises ``ValueError`` for shapes that are not those
    of the module and for operations of other levels.
    """
    func = layer_function(module, layer_name)
    values: dict[SSAValue, Array] = {}
    current = dict(states)

    def define(value: SSAValue, array: Array) -> None:
        type = tensor_type(value.type)
        if array.shape != type.get_shape():
            raise ValueError(f"{value} has shape {array.shape}, declared {type.get_shape()}")
        values[value] = store(array, type.element_type, mode)

    if len(inputs) != len(func.body.block.args):
        raise ValueError(f"@{layer_name} takes {len(func.body.block.args)} inputs")
    for argument, array in zip(func.body.block.args, inputs, strict=True):
        define(argument, array)
    for op in func.body.block.ops:
        match op:
            case ReturnOp():
                return LayerRun(tuple(values[operand] for operand in op.operands), current)
            case nn.ReadOp():
                define(op.result, parameters[op.parameter.string_value()])
            case nn.AppendOp():
                name = op.state.string_value()
                positions = _range(op.start.value.data, values[op.input].shape[1])
                cache = tensor_type(op.result.type).element_type
                new = store(values[op.input], cache, mode)
                define(op.result, append(store(current[name], cache, mode), new, positions))
                current[name] = values[op.result]
            case _:
                operands = [values[operand] for operand in op.operands]
                for result, array in zip(op.results, evaluate(op, operands), strict=True):
                    define(result, array)
    raise ValueError(f"@{layer_name} does not return")


def layer_function(module: ModuleOp, layer: str) -> FuncOp:
    """The function of a kind of layer. Raises ``ValueError`` where there is none."""
    found = SymbolTable.lookup_symbol(module, layer)
    if not isinstance(found, FuncOp):
        raise ValueError(f"no layer @{layer} in the module")
    return found
