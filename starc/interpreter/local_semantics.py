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
    that it holds, in local order. ``extents`` is the global shape."""

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


def _rms_norm(op: Operation, operands: Sequence[Shard]) -> Shard:
    assert isinstance(op, nn.RmsNormOp)
    x, w = operands
    require_same_indices("the features of the input and the weight", x.indices[2], w.indices[0])
    values = global_semantics.rms_norm(x.values, w.values, op.eps.value.data)
    return Shard(values, x.indices, x.extents)


def _rope(op: Operation, operands: Sequence[Shard]) -> Shard:
    assert isinstance(op, nn.RopeOp)
    (x,) = operands
    head_dim = op.head_dim.value.data
    whole_heads(x.indices[2], head_dim)
    positions = op.start.value.data + x.indices[1]
    values = global_semantics.rope(x.values, head_dim, op.theta.value.data, positions)
    return Shard(values, x.indices, x.extents)


def _attention(op: Operation, operands: Sequence[Shard]) -> Shard:
    assert isinstance(op, nn.AttentionOp)
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
    values = global_semantics.attention(
        q.values,
        k.values,
        v.values,
        head_dim,
        op.start.value.data + q.indices[1],
        k.indices[2],
        op.scale.value.data,
        op.causal is not None,
        local_positions(k.indices[1], heads // group, "KV head"),
    )
    return Shard(values, q.indices, q.extents)


def appended(op: nn.AppendOp, state: Shard, new: Shard) -> Array:
    """The cache's values after ``op`` on a device that holds ``state`` of it."""
    require_same_indices(
        "the batches of the new tokens and the cache", new.indices[0], state.indices[0]
    )
    heads = whole_heads(new.indices[2], state.extents[3])
    require_same_indices("the KV heads appended and those of the cache", heads, state.indices[1])
    positions = op.start.value.data + new.indices[1]
    # A device appends the tokens whose positions it holds.
    held = np.isin(positions, state.indices[2])
    slots = local_positions(state.indices[2], positions[held], "position")
    return global_semantics.append(state.values, new.values[:, held], slots)


def _silu(op: Operation, operands: Sequence[Shard]) -> Shard:
    (x,) = operands
    return Shard(global_semantics.silu(x.values), x.indices, x.extents)


def _gelu(op: Operation, operands: Sequence[Shard]) -> Shard:
    (x,) = operands
    return Shard(global_semantics.gelu(x.values), x.indices, x.extents)


def _require_same_place(x: Shard, y: Shard) -> None:
    for dimension, (left, right) in enumerate(zip(x.indices, y.indices, strict=True)):
        require_same_indices(f"the operands' indices of dimension {dimension}", left, right)


def _add(op: Operation, operands: Sequence[Shard]) -> Shard:
    x, y = operands
    _require_same_place(x, y)
    return Shard(global_semantics.add(x.values, y.values), x.indices, x.extents)


def _mul(op: Operation, operands: Sequence[Shard]) -> Shard:
    x, y = operands
    _require_same_place(x, y)
    return Shard(global_semantics.mul(x.values, y.values), x.indices, x.extents)


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


Meaning: TypeAlias = Callable[[Operation, Sequence[Shard]], Shard]

MEANINGS: Final[dict[str, Meaning]] = {
    "nn.linear": _linear,
    "nn.rms_norm": _rms_norm,
    "nn.rope": _rope,
    "nn.attention": _attention,
    "nn.silu": _silu,
    "nn.gelu": _gelu,
    "nn.add": _add,
    "nn.mul": _mul,
    "nn.embedding": _embedding,
    "nn.last_token": _last_token,
}
"""Operations that are functions of their operands alone, by name. Results are not rounded."""
