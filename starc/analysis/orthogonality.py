"""The orthogonality of a matrix product: no loop is split by two levels of the machine at once.

Among the loops (M, N, K) of a product as it is executed, a level of the mesh should have loops of
its own: what the outer level splits, the inner one leaves whole. A loop that both split gives
tiles that are thin in one direction; split two ways, the same tile has more arithmetic an output.
M are the batch and query dimensions together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from starc.core.sharding.encoding import DimSharding, is_refinement
from starc.core.sharding.mesh import AxisRef, Mesh, axes_text
from starc.core.sharding.shard_map import Offsets
from starc.dialects.nn import EmbeddingOp, LinearOp
from starc.dialects.sharding import AnyTensor, encoding_of, global_shape, mesh_op


@dataclass(frozen=True)
class TwoLevels:
    """The axes of the innermost level of more than one device, and those of all levels around it,
    both outer to inner."""

    outer: tuple[AxisRef, ...]
    inner: tuple[AxisRef, ...]

    @classmethod
    def of(cls, mesh: Mesh) -> TwoLevels | None:
        """The two levels of a mesh; ``None`` where only one has more than one device."""
        levels = {
            level: tuple(ref for ref in mesh.level_axes(level) if mesh.ref_size(ref) > 1)
            for level in mesh.levels()
        }
        used = [axes for axes in levels.values() if axes]
        if len(used) < 2:
            return None
        outer = tuple(ref for axes in used[:-1] for ref in axes)
        return cls(mesh.canonical(outer), mesh.canonical(used[-1]))

    def outer_of(self, axes: Iterable[AxisRef]) -> tuple[AxisRef, ...]:
        """Those of some references that are on the outer levels, in their order."""
        names = {ref.name for ref in self.outer}
        return tuple(ref for ref in axes if ref.name in names)

    def inner_of(self, axes: Iterable[AxisRef]) -> tuple[AxisRef, ...]:
        """Those of some references that are on the inner level, in their order."""
        names = {ref.name for ref in self.inner}
        return tuple(ref for ref in axes if ref.name in names)

    def splits_twice(self, axes: Iterable[AxisRef]) -> bool:
        """Whether both levels are among some references."""
        found = tuple(axes)
        return bool(self.outer_of(found)) and bool(self.inner_of(found))


def outer_shards(
    mesh: Mesh, levels: TwoLevels, sharding: DimSharding, extent: int
) -> DimSharding | None:
    """The shards of the outer levels that the inner one cuts further in ``sharding``, with
    boundaries of their own where they differ in size; ``None`` where the inner level does not come
    last, or shards are not ranges.

        >>> from starc.core.sharding.mesh import Axis
        >>> mesh = Mesh("m", (Axis("gpu", 2, "outer"), Axis("xcd", 2, "inner")))
        >>> levels = TwoLevels.of(mesh)
        >>> str(outer_shards(mesh, levels, DimSharding(mesh.all_axes()), 8))
        '{"gpu"}'
        >>> str(outer_shards(mesh, levels, DimSharding(mesh.all_axes()), 7))
        '{"gpu"}'
        >>> str(outer_shards(mesh, levels, DimSharding(mesh.all_axes()), 5))
        '{"gpu"} offsets [0, 4, 5]'
    """
    outer, inner = levels.outer_of(sharding.axes), levels.inner_of(sharding.axes)
    if sharding.axes != mesh.canonical((*outer, *inner)):
        return None
    if not sharding.map.has_ranges:
        return None
    plain = DimSharding(mesh.canonical(outer))
    if is_refinement(mesh, plain, sharding, extent):
        return plain
    ranks, parts = mesh.refs_size(sharding.axes), mesh.refs_size(inner)
    counts = [sharding.map.count(rank, ranks, extent) for rank in range(ranks)]
    joined = Offsets.of_counts(sum(counts[rank : rank + parts]) for rank in range(0, ranks, parts))
    return DimSharding(plain.axes, joined)


@dataclass(frozen=True)
class Gemm:
    """A matrix product with the axes that split each of its loops and the loops' extents."""

    op: Operation
    axes: tuple[tuple[str, tuple[AxisRef, ...]], ...]
    extents: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, op: Operation, mesh: Mesh) -> Gemm | None:
        """The product that an operation is: a linear one, or the look-up of rows of a table, whose
        K is the vocabulary. ``None`` for any other operation or one without encodings."""
        if isinstance(op, LinearOp):
            rows, weight = op.input, op.weight
        elif isinstance(op, EmbeddingOp):
            rows, weight = op.ids, op.table
        else:
            return None
        left, right = encoding_of(rows.type, mesh), encoding_of(weight.type, mesh)
        if left is None or right is None:
            return None
        m = left.dims[0].axes + left.dims[1].axes
        shape = global_shape(cast(AnyTensor, rows.type))
        k, n = global_shape(cast(AnyTensor, weight.type))
        axes = (("M", m), ("N", right.dims[1].axes), ("K", right.dims[0].axes))
        return cls(op, axes, (("M", shape[0] * shape[1]), ("N", n), ("K", k)))

    def local_extent(self, loop: str, mesh: Mesh) -> int:
        """The largest extent of a loop on a device."""
        return -(-dict(self.extents)[loop] // mesh.refs_size(dict(self.axes)[loop]))


@dataclass(frozen=True)
class Violation:
    """A loop of a product that two levels split."""

    op: Operation
    loop: str
    axes: tuple[AxisRef, ...]

    def __str__(self) -> str:
        return f"{self.loop} is split by two levels: {{{axes_text(self.axes)}}}"


def gemms(module: Operation, mesh: Mesh) -> list[Gemm]:
    """Every matrix product with encodings inside a module or layer, in order."""
    found = [Gemm.of(op, mesh) for op in module.walk()]
    return [gemm for gemm in found if gemm is not None]


def violations(module: ModuleOp) -> list[Violation]:
    """Every loop of a matrix product that an outer and an inner level split; empty for a module
    whose mesh has one level."""
    found = mesh_op(module)
    levels = TwoLevels.of(found.mesh) if found is not None else None
    if found is None or levels is None:
        return []
    return [
        Violation(gemm.op, loop, axes)
        for gemm in gemms(module, found.mesh)
        for loop, axes in gemm.axes
        if levels.splits_twice(axes)
    ]


def unexplained(module: ModuleOp, explained: Sequence[Operation]) -> list[Violation]:
    """The violations at operations other than those that a remark explains."""
    known = set(explained)
    return [violation for violation in violations(module) if violation.op not in known]
