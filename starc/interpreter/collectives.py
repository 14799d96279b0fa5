"""What the collectives do to the values of the devices, by their exact effect on every group.

Groups and their order are those of the operation's axes, and what a device receives follows from
the operation alone: which contributions are combined, along which dimension pieces are joined or
cut. The encodings give the order of elements in a joined or cut dimension. A result that does not
hold what its encoding declares is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from starc.core.mesh import Mesh
from starc.dialects import collective
from starc.interpreter.element_types import Array, load
from starc.interpreter.local_semantics import (
    Indices,
    SemanticsError,
    Shard,
    local_positions,
    require_same_indices,
)
from starc.interpreter.values import Distributed, Placement, check_declared, combine

Parts: TypeAlias = dict[int, Shard]
"""What the devices of a group hold of one value, by device id, in the order of the group."""


def run_collective(
    op: collective.CollectiveOp,
    mesh: Mesh,
    operands: Sequence[Distributed],
    targets: Sequence[Placement],
) -> list[list[Array]]:
    """For every result the arrays of all devices, unrounded. Raises ``SemanticsError`` where a
    result would hold other elements than its placement says."""
    results: list[dict[int, Shard]] = [{} for _ in targets]
    for group in mesh.groups(op.axes.data):
        held = [{device: value.shard(device) for device in group} for value in operands]
        for index, parts in enumerate(_exchange(op, held, targets)):
            results[index].update(parts)
    arrays: list[list[Array]] = []
    for result, target in zip(results, targets, strict=True):
        shards = [result[device] for device in range(mesh.size)]
        check_declared(shards, target)
        arrays.append([shard.values for shard in shards])
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
        {device: Shard(values, own.indices, own.extents) for device in devices}
        for values, own in zip(combined, first, strict=True)
    ]


def _cut(parts: Parts, dim: int, target: Placement) -> Parts:
    """Every device keeps what its target holds along ``dim``."""
    return {
        device: _take(shard, dim, target.indices[device][dim]) for device, shard in parts.items()
    }


def _take(shard: Shard, dim: int, wanted: Indices) -> Shard:
    positions = local_positions(shard.indices[dim], wanted, f"index of dimension {dim}")
    indices = (*shard.indices[:dim], wanted, *shard.indices[dim + 1 :])
    return Shard(np.take(load(shard.values), positions, axis=dim), indices, shard.extents)


def _join(parts: Parts, dim: int, target: Placement) -> Parts:
    """Every device gets the shards of the group joined along ``dim``, in its target's order."""
    joined = _concatenate(list(parts.values()), dim)
    results: dict[bytes, Shard] = {}
    for device in parts:
        wanted = target.indices[device][dim]
        key = wanted.tobytes()
        if key not in results:
            if len(wanted) != len(joined.indices[dim]):
                raise SemanticsError(
                    f"{len(joined.indices[dim])} indices of dimension {dim} are gathered, "
                    f"{len(wanted)} are declared"
                )
            results[key] = _take(joined, dim, wanted)
    return {device: results[target.indices[device][dim].tobytes()] for device in parts}


def _concatenate(shards: Sequence[Shard], dim: int) -> Shard:
    first = shards[0]
    for other in shards[1:]:
        for axis, (left, right) in enumerate(zip(first.indices, other.indices, strict=True)):
            if axis != dim:
                require_same_indices(
                    f"the indices of dimension {axis} of shards that are joined", left, right
                )
    values = np.concatenate([load(shard.values) for shard in shards], axis=dim)
    along = np.concatenate([shard.indices[dim] for shard in shards])
    return Shard(values, (*first.indices[:dim], along, *first.indices[dim + 1 :]), first.extents)


def _all_to_all(parts: Parts, split: int, concat: int, target: Placement) -> Parts:
    results: Parts = {}
    for device in parts:
        wanted = target.indices[device]
        pieces = [_take(shard, split, wanted[split]) for shard in parts.values()]
        results[device] = _take(_concatenate(pieces, concat), concat, wanted[concat])
    return results


def _permute(parts: Parts, target: Placement) -> Parts:
    def key(indices: Sequence[Indices]) -> bytes:
        return b"|".join(held.tobytes() for held in indices)

    by_block = {key(shard.indices): shard for shard in parts.values()}
    results: Parts = {}
    for device in parts:
        found = by_block.get(key(target.indices[device]))
        if found is None:
            raise SemanticsError(f"no device of the group holds the shard of device {device}")
        results[device] = Shard(load(found.values), found.indices, found.extents)
    return results


def _from_root(parts: Parts) -> Parts:
    """The first device keeps the value; what the others hold means nothing and is poisoned."""
    root = next(iter(parts))
    return {
        device: shard
        if device == root
        else Shard(np.full_like(shard.values, np.nan), shard.indices, shard.extents)
        for device, shard in parts.items()
    }


def _broadcast(parts: Parts) -> Parts:
    root = next(iter(parts.values()))
    values = Shard(load(root.values), root.indices, root.extents)
    return dict.fromkeys(parts, values)
