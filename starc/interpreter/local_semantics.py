"""What an ``nn`` operation computes from the shards that one device holds.

A shard knows which global indices it holds along every dimension, so positions, heads and
vocabulary rows mean the same on every device. An operation sees nothing but its operands' shards:
where a sharding rule was broken it cannot be computed (``SemanticsError``), or its result holds
other indices, or other numbers, than its encoding declares, and the interpreter finds that. The
arithmetic is that of ``global_semantics``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from xdsl.ir import Operation

from starc.dialects import nn
from starc.interpreter import global_semantics
from starc.interpreter.element_types import Array, load

Indices: TypeAlias = npt.NDArray[np.int64]


class SemanticsError(Exception):
    """An operation cannot be computed from what its device holds."""


@dataclass(frozen=True)
class Shard:
    """A device's part of a tensor: ``values`` and, for every dimension, the global ``indices``
    that it holds, in local order. ``extents`` is the global shape.

    Where the indices of a dimension depend on the sequence, which is dimension 0, they are an array
    ``[sequences held, slots]``; -1 is a slot that holds nothing, and whose values mean nothing.
    """

    values: Array
    indices: tuple[Indices, ...]
    extents: tuple[int, ...]


def whole(values: Array) -> Shard:
    """A whole tensor as one device's shard."""
    indices = tuple(np.arange(extent, dtype=np.int64) for extent in values.shape)
    return Shard(values, indices, values.shape)


def local_positions(held: Indices, wanted: Indices, what: str) -> Indices:
    """Where the global indices ``wanted`` stand in ``held``. Raises ``SemanticsError`` if one is
    not held; ``what`` names one of them in the message."""
    if held.ndim > 1:
        raise SemanticsError(f"{what}s are needed in one order, they depend on the sequence")
    if not len(wanted):
        return np.zeros(0, dtype=np.int64)
    if not len(held):
        raise SemanticsError(f"{what} {wanted[0]} is needed on a device that does not hold it")
    order = np.argsort(held, kind="stable")
    found = order[np.minimum(np.searchsorted(held, wanted, sorter=order), len(held) - 1)]
    missing = wanted[held[found] != wanted]
    if len(missing):
        raise SemanticsError(f"{what} {missing[0]} is needed on a device that does not hold it")
    return found


def require_same_indices(what: str, left: Indices, right: Indices) -> None:
    """Raises ``SemanticsError`` unless the same indices stand in the same order."""
    if not np.array_equal(left, right):
        raise SemanticsError(
            f"{what} differ on a device: {range_text(left)} and {range_text(right)}"
        )


def range_text(indices: Indices) -> str:
    """Indices as a reader of a message wants them."""
    if indices.ndim > 1:
        return f"{range_text(indices[indices >= 0])} by sequence"
    if not len(indices):
        return "none"
    contiguous = len(indices) == indices[-1] - indices[0] + 1
    return f"{indices[0]}..{indices[-1]}" + ("" if contiguous else f" ({len(indices)} of them)")


def whole_heads(features: Indices, head_dim: int) -> Indices:
    """The heads whose features these are. Raises ``SemanticsError`` unless every head is there
    from its first to its last feature."""
    if len(features) % head_dim:
        raise SemanticsError(
            f"a device holds {len(features)} features, which are not whole heads of {head_dim}"
        )
    heads = features[::head_dim] // head_dim
    expected = (heads[:, None] * head_dim + np.arange(head_dim)).reshape(-1)
    require_same_indices("the features of whole heads and those held", expected, features)
    return heads


def _linear(op: Operation, operands: Sequence[Shard]) -> Shard:
    x, w = operands
    require_same_indices(
        "the features of the input and the rows of the weight", x.indices[2], w.indices[0]
    )
    return Shard(
        global_semantics.linear(x.values, w.values),
        (x.indices[0], x.indices[1], w.indices[1]),
        (x.extents[0], x.extents[1], w.extents[1]),
    )


def _norm(op: Operation, operands: Sequence[Shard]) -> Shard:
    assert isinstance(op, nn.NormOp)
    x, w = operands
    require_same_indices("the features of the input and the weight", x.indices[2], w.indices[0])
    values = global_semantics.NORMS[type(op)](x.values, w.values, op.eps.value.data)
    return Shard(values, x.indices, x.extents)


def _rope(op: Operation, operands: Sequence[Shard]) -> Shard:
    assert isinstance(op, nn.RopeOp)
    (x,) = operands
    head_dim = op.head_dim.value.data
    whole_heads(x.indices[2], head_dim)
    positions = _at(op.start.value.data, x.indices[1])
    values = global_semantics.rope(x.values, head_dim, op.theta.value.data, positions)
    return Shard(values, x.indices, x.extents)


def _at(start: int, indices: Indices) -> Indices:
    """The positions of tokens that a device holds, -1 for slots that hold none."""
    return np.where(indices < 0, -1, start + indices)


def _attended(
    op: nn.AttentionOp | nn.PartialAttentionOp, operands: Sequence[Shard]
) -> tuple[tuple[Array, Array, Array], Indices]:
    """The parts of the attention over the keys that a device holds, and the heads they are of."""
    q, k, v = operands
    head_dim = op.head_dim.value.data
    names = ("batches", "KV heads", "positions", "head dimensions")
    for name, left, right in zip(names, k.indices, v.indices, strict=True):
        require_same_indices(f"the {name} of keys and values", left, right)
    require_same_indices("the batches of queries and keys", q.indices[0], k.indices[0])
    require_same_indices(
        "the head dimensions of queries and keys", np.arange(head_dim), k.indices[3]
    )
    heads = whole_heads(q.indices[2], head_dim)
    group = (q.extents[2] // head_dim) // k.extents[1]
    parts = global_semantics.partial_attention(
        q.values,
        k.values,
        v.values,
        head_dim,
        _at(op.start.value.data, q.indices[1]),
        k.indices[2],
        op.scale.value.data,
        global_semantics.Visibility.of(op),
        local_positions(k.indices[1], heads // group, "KV head"),
    )
    return parts, heads


def _attention(op: Operation, operands: Sequence[Shard]) -> Shard:
    assert isinstance(op, nn.AttentionOp)
    q, k, v, *sink = operands
    parts, heads = _attended(op, (q, k, v))
    values = global_semantics.lse_finish(*parts, _sink(sink, heads))
    return Shard(values, q.indices, q.extents)


def _sink(sink: Sequence[Shard], heads: Indices) -> Array | None:
    if not sink:
        return None
    require_same_indices("the heads of the sink and those attended", sink[0].indices[0], heads)
    return sink[0].values


def _partial_attention(op: Operation, operands: Sequence[Shard]) -> tuple[Shard, ...]:
    assert isinstance(op, nn.PartialAttentionOp)
    (m, l, o), heads = _attended(op, operands)  # noqa: E741
    q = operands[0]
    rows = (q.indices[0], q.indices[1], heads)
    extents = (q.extents[0], q.extents[1], q.extents[2] // op.head_dim.value.data)
    return Shard(m, rows, extents), Shard(l, rows, extents), Shard(o, q.indices, q.extents)


def _lse_finish(op: Operation, operands: Sequence[Shard]) -> Shard:
    assert isinstance(op, nn.LseFinishOp)
    m, l, o, *sink = operands  # noqa: E741
    _require_same_place(m, l)
    heads = whole_heads(o.indices[2], op.head_dim.value.data)
    for dimension in (0, 1):
        require_same_indices(
            f"the indices of dimension {dimension} of m and o",
            m.indices[dimension],
            o.indices[dimension],
        )
    require_same_indices("the heads of m and o", m.indices[2], heads)
    values = global_semantics.lse_finish(m.values, l.values, o.values, _sink(sink, heads))
    return Shard(values, o.indices, o.extents)


def _sum_squares(op: Operation, operands: Sequence[Shard]) -> Shard:
    (x,) = operands
    return Shard(
        global_semantics.sum_squares(x.values),
        (x.indices[0], x.indices[1], np.zeros(1, dtype=np.int64)),
        (x.extents[0], x.extents[1], 1),
    )


def _norm_scale(op: Operation, operands: Sequence[Shard]) -> Shard:
    assert isinstance(op, nn.NormScaleOp)
    (s,) = operands
    values = global_semantics.norm_scale(s.values, op.eps.value.data, op.count.value.data)
    return Shard(values, s.indices, s.extents)


def _scale_columns(op: Operation, operands: Sequence[Shard]) -> Shard:
    x, w = operands
    require_same_indices("the features of the input and the weight", x.indices[2], w.indices[0])
    return Shard(global_semantics.mul(x.values, w.values), x.indices, x.extents)


def _scale_rows(op: Operation, operands: Sequence[Shard]) -> Shard:
    x, s = operands
    for dimension in (0, 1):
        require_same_indices(
            f"the indices of dimension {dimension} of the input and the scale",
            x.indices[dimension],
            s.indices[dimension],
        )
    return Shard(global_semantics.mul(x.values, s.values), x.indices, x.extents)


def appended(op: nn.AppendOp, state: Shard, new: Shard) -> Array:
    """The cache's values after ``op`` on a device that holds ``state`` of it. Of new tokens that
    are all there it stores those whose positions it holds; where the tokens are split, those that
    it has must be those."""
    require_same_indices(
        "the batches of the new tokens and the cache", new.indices[0], state.indices[0]
    )
    heads = whole_heads(new.indices[2], state.extents[3])
    require_same_indices("the KV heads appended and those of the cache", heads, state.indices[1])
    start, count = op.start.value.data, new.extents[1]
    held, tokens = state.indices[2], new.indices[1]
    by_sequence = held.ndim > 1 or tokens.ndim > 1
    # Without rotated maps all sequences are alike.
    rows = len(state.indices[0]) if by_sequence else 1
    held = np.broadcast_to(held, (rows, held.shape[-1]))
    positions = np.broadcast_to(_at(start, tokens), (rows, tokens.shape[-1]))
    slots = np.full(positions.shape, -1, dtype=np.int64)
    for row in range(rows):
        slots[row] = _slots(held[row], positions[row], (start, count))
    return global_semantics.append(state.values, new.values, slots if by_sequence else slots[0])


def _slots(held: Indices, positions: Indices, new: tuple[int, int]) -> Indices:
    """Where a sequence's tokens at ``positions`` stand in the positions ``held``, -1 for those that
    another device stores; ``new`` are the first and the number of all new positions."""
    start, count = new
    place = np.full(count, -1, dtype=np.int64)
    own = np.flatnonzero((held >= start) & (held < start + count))
    place[held[own] - start] = own
    there = positions[positions >= 0]
    is_whole = len(there) == count
    if not is_whole:
        strangers = there[place[there - start] < 0]
        if len(strangers):
            raise SemanticsError(f"position {strangers[0]} is appended on a device without it")
    lacking = np.setdiff1d(held[own], there)
    if len(lacking):
        raise SemanticsError(f"position {lacking[0]} is not appended where the cache has it")
    return np.where(positions < 0, -1, place[np.maximum(positions - start, 0)])


def _require_same_place(x: Shard, y: Shard) -> None:
    for dimension, (left, right) in enumerate(zip(x.indices, y.indices, strict=True)):
        require_same_indices(f"the operands' indices of dimension {dimension}", left, right)


def _elementwise(op: Operation, operands: Sequence[Shard]) -> Shard:
    assert isinstance(op, nn.ElementwiseOp)
    first, *others = operands
    for other in others:
        _require_same_place(first, other)
    meaning = global_semantics.ELEMENTWISE[type(op)]
    return Shard(meaning(*(x.values for x in operands)), first.indices, first.extents)


def _embedding(op: Operation, operands: Sequence[Shard]) -> Shard:
    ids, table = operands
    rows = np.full(table.extents[0], -1, dtype=np.int64)
    rows[table.indices[0]] = np.arange(len(table.indices[0]))
    return Shard(
        # A row that is not held has the local number -1, for which the lookup gives zeros.
        global_semantics.embedding(rows[load(ids.values)], table.values),
        (*ids.indices, table.indices[1]),
        (*ids.extents, table.extents[1]),
    )


def _last_token(op: Operation, operands: Sequence[Shard]) -> Shard:
    (x,) = operands
    last = local_positions(x.indices[1], np.array([x.extents[1] - 1]), "token")
    return Shard(
        load(x.values)[:, last, :],
        (x.indices[0], np.zeros(1, dtype=np.int64), x.indices[2]),
        (x.extents[0], 1, x.extents[2]),
    )


Meaning: TypeAlias = Callable[[Operation, Sequence[Shard]], Shard | tuple[Shard, ...]]

MEANINGS: Final[dict[str, Meaning]] = {
    "nn.linear": _linear,
    **{operation.name: _norm for operation in global_semantics.NORMS},
    "nn.rope": _rope,
    "nn.attention": _attention,
    "nn.partial_attention": _partial_attention,
    "nn.lse_finish": _lse_finish,
    "nn.sum_squares": _sum_squares,
    "nn.norm_scale": _norm_scale,
    "nn.scale_columns": _scale_columns,
    "nn.scale_rows": _scale_rows,
    **{operation.name: _elementwise for operation in global_semantics.ELEMENTWISE},
    "nn.embedding": _embedding,
    "nn.last_token": _last_token,
}
"""Operations that are functions of their operands alone, by name. Results are not rounded."""


def results_of(op: Operation, operands: Sequence[Shard]) -> tuple[Shard, ...]:
    """What an operation of ``MEANINGS`` computes on one device, a shard for every result."""
    found = MEANINGS[op.name](op, operands)
    return found if isinstance(found, tuple) else (found,)
