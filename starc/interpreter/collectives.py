"""What the collectives do to the values of the devices, by their exact effect on every group.

Groups and their order are those of the operation's axes, and what a device receives follows from
the operation alone: which contributions are combined, along which dimension pieces are joined or
cut. The encodings give the order of elements in a joined or cut dimension. A result that does not
hold what its encoding declares is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from starc.core.sharding.mesh import Mesh
from starc.dialects import collective
from starc.interpreter.element_types import Array, load
from starc.interpreter.local_semantics import (
    Indices,
    SemanticsError,
    Shard,
    local_positions,
    require_same_indices,
)
from starc.interpreter.values import (
    Distributed,
    Placement,
    absent_of,
    along,
    check_declared,
    combine,
    cut_part,
    poison,
    put_part,
)


@dataclass(frozen=True)
class Piece:
    """What a device holds of one value, as a ``Shard``, and for every dimension the one whose
    index turns its map, along which its indices are ``[rows, slots]``."""

    values: Array
    indices: tuple[Indices, ...]
    turned_by: tuple[int | None, ...]

    def with_dim(self, dim: int, values: Array, held: Indices, by: int | None) -> Piece:
        """The piece with other values and other indices of one dimension."""
        return Piece(
            values,
            (*self.indices[:dim], held, *self.indices[dim + 1 :]),
            (*self.turned_by[:dim], by, *self.turned_by[dim + 1 :]),
        )


Parts: TypeAlias = dict[int, Piece]
"""What the devices of a group hold of one value, by device id, in the order of the group."""


def run_collective(
    op: collective.CollectiveOp,
    mesh: Mesh,
    operands: Sequence[Distributed],
    targets: Sequence[Placement],
) -> list[list[Array]]:
    """For every result the arrays of all devices, unrounded. Raises ``SemanticsError`` where a
    result would hold other elements than its placement says."""
    results: list[Parts] = [{} for _ in targets]
    for group in mesh.groups(op.axes.data):
        held = [
            {
                device: Piece(
                    value.parts[device],
                    value.placement.indices[device],
                    value.placement.turned_by,
                )
                for device in group
            }
            for value in operands
        ]
        for index, parts in enumerate(_exchange(op, held, targets)):
            results[index].update(parts)
    arrays: list[list[Array]] = []
    for result, value, target in zip(results, operands, targets, strict=True):
        pieces = [result[device] for device in range(mesh.size)]
        extents = value.placement.extents
        check_declared([Shard(piece.values, piece.indices, extents) for piece in pieces], target)
        arrays.append([piece.values for piece in pieces])
    return arrays


def _exchange(
    op: collective.CollectiveOp, held: Sequence[Parts], targets: Sequence[Placement]
) -> list[Parts]:
    match op:
        case collective.AllReduceOp():
            return _all_reduce(op.reduction.data, held)
        case collective.ReduceScatterOp():
            dim = op.number("dim")
            reduced = _all_reduce(op.reduction.data, held)
            return [_cut(parts, dim, to) for parts, to in zip(reduced, targets, strict=True)]
        case collective.AllGatherOp():
            dim = op.number("dim")
            return [_join(parts, dim, to) for parts, to in zip(held, targets, strict=True)]
        case collective.AllSliceOp():
            dim = op.number("dim")
            return [_cut(parts, dim, to) for parts, to in zip(held, targets, strict=True)]
        case collective.AllToAllOp():
            split, concat = op.number("split_dim"), op.number("concat_dim")
            return [
                _all_to_all(parts, split, concat, to)
                for parts, to in zip(held, targets, strict=True)
            ]
        case collective.PermuteOp():
            return [_permute(parts, to) for parts, to in zip(held, targets, strict=True)]
        case collective.ReduceToRootOp():
            return [_from_root(parts) for parts in _all_reduce(op.reduction.data, held)]
        case collective.BroadcastOp():
            return [_broadcast(parts) for parts in held]
        case _:
            raise SemanticsError("the lockstep interpreter does not know this collective")


def _all_reduce(kind: str, held: Sequence[Parts]) -> list[Parts]:
    devices = list(held[0])
    first = [parts[devices[0]] for parts in held]
    for parts, own in zip(held, first, strict=True):
        for device in devices:
            for dim, indices in enumerate(parts[device].indices):
                require_same_indices(
                    f"the indices of dimension {dim} that devices combine",
                    own.indices[dim],
                    indices,
                )
    contributions = [tuple(parts[device].values for parts in held) for device in devices]
    combined = combine(kind, contributions)
    return [
        {device: Piece(values, own.indices, own.turned_by) for device in devices}
        for values, own in zip(combined, first, strict=True)
    ]


def _cut(parts: Parts, dim: int, target: Placement) -> Parts:
    """Every device keeps what its target holds along ``dim``."""
    return {
        device: _take(piece, dim, target.indices[device][dim], target.turned_by[dim])
        for device, piece in parts.items()
    }


def _take(piece: Piece, dim: int, wanted: Indices, by: int | None) -> Piece:
    """The positions ``wanted`` of a dimension; they are turned by the dimension ``by``."""
    held, held_by = piece.indices[dim], piece.turned_by[dim]
    values = load(piece.values)
    what = f"index of dimension {dim}"
    rows = by if by is not None else held_by
    if rows is None:
        slots = local_positions(held, wanted, what)
        taken = piece.with_dim(dim, np.take(values, slots, axis=dim), wanted, None)
        return _rows_taken(taken, dim, slots)
    if by is not None and held_by not in (None, by):
        raise SemanticsError(f"{what} {dim} turns with dimension {held_by} and with {by}")
    count = len(piece.indices[rows])
    lines = (
        np.broadcast_to(held, (count, held.shape[-1])),
        np.broadcast_to(wanted, (count, wanted.shape[-1])),
    )
    slots = np.full(lines[1].shape, -1, dtype=np.int64)
    for row, (there, line) in enumerate(zip(*lines, strict=True)):
        present = np.flatnonzero(there >= 0)
        needed = line >= 0
        slots[row, needed] = present[local_positions(there[present], line[needed], what)]
    index = along(np.maximum(slots, 0), dim, rows, values.ndim)
    if not values.shape[dim]:
        shape = (*values.shape[:dim], wanted.shape[-1], *values.shape[dim + 1 :])
        chosen = np.full(shape, poison(values.dtype), values.dtype)
    else:
        chosen = np.take_along_axis(values, index, axis=dim)
        absent = along(slots < 0, dim, rows, values.ndim)
        chosen = np.where(absent, np.array(poison(values.dtype), values.dtype), chosen)
    return piece.with_dim(dim, chosen, wanted, by)


def _rows_taken(piece: Piece, dim: int, slots: Indices) -> Piece:
    """The indices of dimensions that ``dim`` turns follow its rows."""
    indices = tuple(
        held[slots] if by == dim else held
        for held, by in zip(piece.indices, piece.turned_by, strict=True)
    )
    return replace(piece, indices=indices)


def _join(parts: Parts, dim: int, target: Placement) -> Parts:
    """Every device gets the shards of the group joined along ``dim``, in its target's order."""
    joined = _concatenate(list(parts.values()), dim)
    by = target.turned_by[dim]
    results: dict[bytes, Piece] = {}
    for device in parts:
        wanted = target.indices[device][dim]
        key = wanted.tobytes()
        if key not in results:
            found, declared = (
                np.count_nonzero(held >= 0, axis=-1) for held in (joined.indices[dim], wanted)
            )
            if np.any(found != declared):
                raise SemanticsError(
                    f"{np.max(found)} indices of dimension {dim} are gathered, "
                    f"{np.max(declared)} are declared"
                )
            results[key] = _take(joined, dim, wanted, by)
    return {device: results[target.indices[device][dim].tobytes()] for device in parts}


def _concatenate(pieces: Sequence[Piece], dim: int) -> Piece:
    first = pieces[0]
    indices = list(first.indices)
    for axis, by in enumerate(first.turned_by):
        lines = [piece.indices[axis] for piece in pieces]
        if axis == dim:
            indices[axis] = np.concatenate(lines, axis=-1)
        elif by == dim:
            indices[axis] = np.concatenate(lines)
        else:
            for other in lines[1:]:
                require_same_indices(
                    f"the indices of dimension {axis} of shards that are joined", lines[0], other
                )
    values = np.concatenate([load(piece.values) for piece in pieces], axis=dim)
    return Piece(values, tuple(indices), first.turned_by)


def _all_to_all(parts: Parts, split: int, concat: int, target: Placement) -> Parts:
    """Every device gets, from all devices of its group, what its target holds along ``split`` and
    ``concat``; the other dimensions stay."""
    extents = target.extents
    first = next(iter(parts.values()))
    whole = np.zeros(extents, load(first.values).dtype)
    covered = np.zeros(extents, np.bool_)
    for piece in parts.values():
        put_part(whole, covered, load(piece.values), piece.indices, piece.turned_by)
    results: Parts = {}
    for device, piece in parts.items():
        wanted = target.indices[device]
        for dim in range(len(extents)):
            if dim not in (split, concat) and piece.turned_by[dim] not in (split, concat):
                require_same_indices(
                    f"the indices of dimension {dim}", piece.indices[dim], wanted[dim]
                )
        there = cut_part(covered, wanted, target.turned_by)
        absent = absent_of(wanted, target.turned_by)
        if not (there if absent is None else there | absent).all():
            raise SemanticsError(f"no device of the group holds what device {device} needs")
        results[device] = Piece(cut_part(whole, wanted, target.turned_by), wanted, target.turned_by)
    return results


def _permute(parts: Parts, target: Placement) -> Parts:
    def key(indices: Sequence[Indices]) -> bytes:
        return b"|".join(held.tobytes() for held in indices)

    by_block = {key(piece.indices): piece for piece in parts.values()}
    results: Parts = {}
    for device in parts:
        found = by_block.get(key(target.indices[device]))
        if found is None:
            raise SemanticsError(f"no device of the group holds the shard of device {device}")
        results[device] = replace(found, values=load(found.values))
    return results


def _from_root(parts: Parts) -> Parts:
    """The first device keeps the value; what the others hold means nothing and is poisoned."""
    root = next(iter(parts))
    return {
        device: piece
        if device == root
        else replace(piece, values=np.full_like(piece.values, poison(piece.values.dtype)))
        for device, piece in parts.items()
    }


def _broadcast(parts: Parts) -> Parts:
    root = next(iter(parts.values()))
    return dict.fromkeys(parts, replace(root, values=load(root.values)))
