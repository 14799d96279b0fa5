"""The sharding of a tensor as a pure value: per dimension an axis list and a shard map, and the
axes over which it is partial.

    >>> mesh = Mesh("node", (Axis("gpu", 2), Axis("xcd", 4)))
    >>> encoding = Encoding.replicated(mesh, 2).with_dim(1, mesh.all_axes())
    >>> encoding.local_shape((3, 16))
    (3, 2)
    >>> encoding.global_indices(1, 16, {"gpu": 1, "xcd": 0})
    array([8, 9])
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from starc.core.sharding.combiners import ReductionKind
from starc.core.sharding.mesh import Axis, AxisRef, Mesh, axes_text
from starc.core.sharding.shard_map import CONTIGUOUS, Positions, ShardMap

__all__ = ["Axis", "AxisRef", "DimSharding", "Encoding", "Mesh", "Partial"]

AxisRefs: TypeAlias = tuple[AxisRef, ...]


@dataclass(frozen=True)
class DimSharding:
    """The axes that split a dimension, major to minor, and the map of positions to ranks."""

    axes: tuple[AxisRef, ...] = ()
    map: ShardMap = CONTIGUOUS

    def __str__(self) -> str:
        return f"{{{axes_text(self.axes)}}}{self.map.suffix()}"


@dataclass(frozen=True)
class Partial:
    """What the devices along ``axes`` hold must still be combined by the combiner ``kind``."""

    kind: ReductionKind
    axes: tuple[AxisRef, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", ReductionKind(self.kind))
        if not self.axes:
            raise ValueError("a partial needs at least one axis")

    def __str__(self) -> str:
        return f"{self.kind}{{{axes_text(self.axes)}}}"


def is_refinement(mesh: Mesh, coarse: DimSharding, fine: DimSharding, extent: int) -> bool:
    """Whether ``fine`` splits every shard of ``coarse`` further, over the axes that it has after
    those of ``coarse``: what a gather undoes and a slice or scatter does. Order inside a shard
    does not matter, both lists are ascending.

        >>> mesh = Mesh("m", (Axis("x", 2), Axis("y", 2)))
        >>> x, xy = DimSharding((AxisRef("x"),)), DimSharding((AxisRef("x"), AxisRef("y")))
        >>> is_refinement(mesh, x, xy, 8), is_refinement(mesh, x, xy, 10)
        (True, False)
    """
    _, missing, added = mesh.common_prefix(coarse.axes, fine.axes)
    if missing:
        return False
    ranks, parts = mesh.refs_size(coarse.axes), mesh.refs_size(added)
    return refines(coarse.map, fine.map, ranks, parts, extent)


@lru_cache(maxsize=4096)
def refines(coarse: ShardMap, fine: ShardMap, ranks: int, parts: int, extent: int) -> bool:
    """Whether rank r of ``coarse``, of ``ranks`` shards, holds what the ranks
    ``r * parts .. r * parts + parts - 1`` of ``fine`` hold, in every row of a rotated map."""
    if ranks == 1 or (parts == 1 and coarse == fine):
        return True
    if coarse == fine == CONTIGUOUS and extent % (ranks * parts) == 0:
        return True
    first, second = coarse.period(ranks), fine.period(ranks * parts)
    if first is not None and second is not None:
        extent = min(extent, math.lcm(first, second))
    rotated = {coarse.rotated_by, fine.rotated_by} - {None}
    if len(rotated) > 1:
        return False
    return all(
        np.array_equal(
            coarse.at_row(row).owners(ranks, extent),
            fine.at_row(row).owners(ranks * parts, extent) // parts,
        )
        # A rotated map repeats after as many rows as it has ranks.
        for row in range(ranks * parts if rotated else 1)
    )


def _normal(mesh: Mesh, axes: Iterable[AxisRef], shard_map: ShardMap) -> DimSharding:
    axes = mesh.canonical(axes)
    return DimSharding(axes, shard_map) if axes else DimSharding()


@lru_cache(maxsize=4096)
def same_shards(old: Encoding, new: Encoding, shape: tuple[int, ...], axes: AxisRefs) -> bool:
    """Whether two encodings give the devices of every group along ``axes`` the same shards, only
    distributed otherwise: what a permutation does.

        >>> mesh = Mesh("m", (Axis("x", 2), Axis("y", 2)))
        >>> x, y = AxisRef("x"), AxisRef("y")
        >>> xy, yx = (Encoding.replicated(mesh, 1).with_dim(0, refs) for refs in ((x, y), (y, x)))
        >>> same_shards(xy, yx, (8,), (x, y)), same_shards(xy, yx, (8,), (y,))
        (True, False)
    """
    mesh, coords = old.mesh, list(old.mesh.devices())
    keys = [_shard_keys(old, new, dim, shape) for dim in range(len(shape))]
    for group in mesh.groups(axes):
        held, wanted = (
            Counter(
                tuple(
                    keys[dim][side][encoding.rank(dim, coords[device])] for dim in range(len(shape))
                )
                for device in group
            )
            for side, encoding in enumerate((old, new))
        )
        if held != wanted:
            return False
    return True


def _shard_keys(
    old: Encoding, new: Encoding, dim: int, shape: tuple[int, ...]
) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """For both encodings and every rank of a dimension something that names its positions."""
    ranks = old.ranks(dim), new.ranks(dim)
    if ranks[0] == ranks[1] and old.dims[dim].map == new.dims[dim].map:
        return tuple(range(ranks[0])), tuple(range(ranks[0]))
    first, second = (
        side.dims[dim].map.shard_names(count, shape[dim])
        for side, count in zip((old, new), ranks, strict=True)
    )
    return first, second


@dataclass(frozen=True)
class Encoding:
    """How a tensor lies on a mesh. Extents are passed in: the same encoding serves any shape."""

    mesh: Mesh
    dims: tuple[DimSharding, ...]
    partial: Partial | None = None

    @classmethod
    def replicated(cls, mesh: Mesh, rank: int) -> Encoding:
        """Every device holds the whole tensor."""
        return cls(mesh, (DimSharding(),) * rank)

    def __str__(self) -> str:
        dims = ", ".join(str(dim) for dim in self.dims)
        return f"[{dims}]" + (f", partial = {self.partial}" if self.partial else "")

    # Changes

    def with_dim(
        self, dim: int, axes: Iterable[AxisRef], shard_map: ShardMap = CONTIGUOUS
    ) -> Encoding:
        """The encoding with another sharding of one dimension, its axes in canonical form. Where
        they are of one device only, the dimension is whole and has no map."""
        sharding = _normal(self.mesh, axes, shard_map)
        return replace(self, dims=(*self.dims[:dim], sharding, *self.dims[dim + 1 :]))

    def with_partial(self, kind: str | None, axes: Iterable[AxisRef] = ()) -> Encoding:
        """The encoding with another partial state; no axes means none. Axes are kept in the
        order of the mesh, for a partial has no order of its own."""
        ordered = self.mesh_order(axes)
        partial = Partial(ReductionKind(kind), ordered) if kind is not None and ordered else None
        return replace(self, partial=partial)

    def with_partial_of(self, other: Encoding) -> Encoding:
        """The encoding with the partial state of another one."""
        return replace(self, partial=other.partial)

    def mesh_order(self, axes: Iterable[AxisRef]) -> tuple[AxisRef, ...]:
        """A set of references in the order of the mesh, merged where they touch."""
        names = [axis.name for axis in self.mesh.axes]
        return self.mesh.canonical(
            sorted(axes, key=lambda ref: (names.index(ref.name), ref.pre_size))
        )

    # Shapes and indices

    def ranks(self, dim: int) -> int:
        """Over how many ranks a dimension is split."""
        return self.mesh.refs_size(self.dims[dim].axes)

    def rank(self, dim: int, coords: Mapping[str, int]) -> int:
        """The rank of a device along a dimension's axis list."""
        return self.mesh.rank(self.dims[dim].axes, coords)

    def rotated_by(self, dim: int) -> int | None:
        """The dimension whose index turns the map of ``dim``; ``None`` if its map is not rotated
        or does not split anything."""
        sharding = self.dims[dim]
        return sharding.map.rotated_by if self.ranks(dim) > 1 else None

    def local_extent(self, dim: int, extent: int, coords: Mapping[str, int]) -> int:
        """How many of the ``extent`` positions of a dimension a device holds (may be 0). Of a
        rotated dimension it has as many slots as any device, see ``indices``."""
        sharding, ranks = self.dims[dim], self.ranks(dim)
        if self.rotated_by(dim) is not None:
            return sharding.map.capacity(ranks, extent)
        return sharding.map.count(self.rank(dim, coords), ranks, extent)

    def global_indices(self, dim: int, extent: int, coords: Mapping[str, int]) -> Positions:
        """The positions of a dimension that a device holds, in local order, as int64. Raises
        ``ValueError`` for a rotated dimension: ``indices`` has those."""
        if self.rotated_by(dim) is not None:
            raise ValueError(f"the positions of dim {dim}, {self.dims[dim]}, depend on the row")
        return self.dims[dim].map.positions(self.rank(dim, coords), self.ranks(dim), extent)

    def indices(
        self, dim: int, global_shape: Sequence[int], coords: Mapping[str, int]
    ) -> Positions:
        """The positions of a dimension that a device holds, in local order, as int64.

        Of a rotated dimension they are an array ``[rows, capacity]``: a line for every row that the
        device holds along the dimension ``rotated_by``, in its local order. -1 is a slot that the
        row leaves empty; empty slots come last.

            >>> from starc.core.sharding.shard_map import Cyclic
            >>> mesh = Mesh("m", (Axis("x", 2),))
            >>> cache = Encoding.replicated(mesh, 2).with_dim(1, mesh.all_axes(), Cyclic(1, by=0))
            >>> cache.indices(1, (3, 5), {"x": 0}).tolist()
            [[0, 2, 4], [1, 3, -1], [0, 2, 4]]
        """
        extent, by = global_shape[dim], self.rotated_by(dim)
        if by is None:
            return self.global_indices(dim, extent, coords)
        rows = self.global_indices(by, global_shape[by], coords)
        ranks, rank, held = self.ranks(dim), self.rank(dim, coords), self.dims[dim].map
        table = np.full((ranks, held.capacity(ranks, extent)), -1, dtype=np.int64)
        for row in range(ranks):
            found = held.at_row(row).positions(rank, ranks, extent)
            table[row, : len(found)] = found
        return table[rows % ranks]

    def device_shape(
        self, global_shape: Sequence[int], coords: Mapping[str, int]
    ) -> tuple[int, ...]:
        """The exact shape of what a device holds; along a rotated dimension, its slots."""
        return tuple(
            self.local_extent(dim, extent, coords) for dim, extent in enumerate(global_shape)
        )

    def local_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The physical shape of a shard: the largest extent of any device, per dimension."""
        return tuple(
            sharding.map.capacity(self.mesh.refs_size(sharding.axes), extent)
            for sharding, extent in zip(self.dims, global_shape, strict=True)
        )

    # Axes

    def used_axes(self) -> tuple[AxisRef, ...]:
        """Every reference that splits a dimension or is partial."""
        used = [ref for sharding in self.dims for ref in sharding.axes]
        return (*used, *(self.partial.axes if self.partial else ()))

    def replicated_axes(self) -> tuple[AxisRef, ...]:
        """The parts of the mesh over which the value is replicated."""
        return self.mesh.complement(self.used_axes())

    @property
    def replication(self) -> int:
        """How many devices hold the same piece."""
        return self.mesh.refs_size(self.replicated_axes())

    def problems(self, global_shape: Sequence[int]) -> list[str]:
        """Every violated rule of the encoding of a tensor of that shape."""
        if len(self.dims) != len(global_shape):
            rank = len(global_shape)
            return [f"sharding doesn't match tensor rank: {len(self.dims)} != {rank}"]
        unknown = [self.mesh.problem(ref) for ref in self.used_axes()]
        problems = [problem for problem in unknown if problem is not None]
        if problems:
            return problems
        seen: list[AxisRef] = []
        for ref in self.used_axes():
            if ref in seen:
                problems.append(f"duplicate axis ref: {ref}")
            elif any(self.mesh.overlap(ref, other) for other in seen):
                other = next(other for other in seen if self.mesh.overlap(ref, other))
                problems.append(f"overlapping axis refs: {other}, {ref}")
            seen.append(ref)
        for dim, sharding in enumerate(self.dims):
            for left, right in zip(sharding.axes, sharding.axes[1:], strict=False):
                if left.name == right.name and (
                    left.pre_size * self.mesh.ref_size(left) == right.pre_size
                ):
                    problems.append(f"two consecutive sub-axes can be merged: {left}, {right}")
            if not sharding.axes and sharding.map != CONTIGUOUS:
                problems.append(f"dim {dim}: a map needs axes: {sharding}")
                continue
            problem = sharding.map.problem(self.ranks(dim), global_shape[dim])
            if problem:
                problems.append(f"dim {dim}: {problem}")
            problem = self.rotation_problem(dim)
            if problem:
                problems.append(f"dim {dim}: {problem}")
        for ref in self.used_axes():
            if ref.size is not None and ref.size == self.mesh.axis(ref.name).size:
                problems.append(f'sub-axis {ref} is the whole axis "{ref.name}"')
        if not problems and self.partial is not None:
            ordered = self.mesh_order(self.partial.axes)
            if self.mesh.canonical(self.partial.axes) != ordered:
                problems.append(
                    f"partial axes must be in the order of the mesh: {{{axes_text(ordered)}}}"
                )
        return problems

    def rotation_problem(self, dim: int) -> str | None:
        """Why the map of a dimension cannot be rotated as it says, or ``None``."""
        by = self.dims[dim].map.rotated_by
        if by is None:
            return None
        if by >= len(self.dims):
            return f"turned by dim {by}, which a tensor of rank {len(self.dims)} does not have"
        if by == dim:
            return "turned by its own index"
        if self.dims[by].map.rotated_by is not None:
            return f"turned by dim {by}, which is itself turned"
        return None

    def canonical(self) -> Encoding:
        """The same encoding with every axis list in canonical form, for comparison."""
        dims = tuple(_normal(self.mesh, sharding.axes, sharding.map) for sharding in self.dims)
        kept = replace(self, dims=dims)
        if self.partial is None:
            return kept
        return kept.with_partial(self.partial.kind, self.partial.axes)
