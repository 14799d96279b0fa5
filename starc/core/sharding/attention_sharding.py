"""Attention over a cache whose positions are dealt out to the devices that would all keep it.

A cache that is replicated over some axes can be split over them along the sequence. Then either the
queries go where the keys are (every device attends to its own positions, and the parts are merged
by the owners of the heads), or keys and values are put together again where the queries are. This
module has the encodings of both ways and the bytes that they exchange; it changes nothing.

    >>> mesh = Mesh("node", (Axis("gpu", 8, "outer", "xgmi"), Axis("xcd", 8, "inner", "usr")))
    >>> heads = Encoding.replicated(mesh, 3).with_dim(2, mesh.all_axes())
    >>> cache = Encoding.replicated(mesh, 4).with_dim(1, (AxisRef("gpu"),))
    >>> shape = AttentionShape(1, 1, 128, 8, 128, 131071, 131072)
    >>> plan = shard_sequence(shape, heads, cache, heads, shared_axes(cache), "cyclic", 1)
    >>> print(plan.cache)
    [{}, {"gpu"}, {"xcd"} cyclic(1, by = 0), {}]
    >>> print(plan.parts)
    [{}, {}, {"gpu"}], partial = lse{"xcd"}
    >>> plan.query_bytes(2, 2), plan.key_bytes(2)
    ({'usr': 7280}, {'usr': 58720256})
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from starc.core.sharding.combiners import ReductionKind
from starc.core.sharding.encoding import Axis, Encoding, Mesh
from starc.core.sharding.link_bytes import add_bytes, reshard_bytes
from starc.core.sharding.mesh import AxisRef
from starc.core.sharding.shard_map import CONTIGUOUS, Contiguous, Cyclic, Offsets, ShardMap

__all__ = ["AttentionShape", "Axis", "AxisRef", "Mesh", "SequencePlan"]

STATISTIC_BYTES = 4
"""Bytes of a row's maximum, and of its sum: f32."""


@dataclass(frozen=True)
class AttentionShape:
    """Global extents of an attention: ``query`` new tokens from position ``start`` on, a cache of
    ``positions``, a ``window`` and positions kept beside it."""

    batch: int
    query: int
    heads: int
    kv_heads: int
    head_dim: int
    start: int
    positions: int
    causal: bool = True
    window: int | None = None
    keep: int = 0

    @property
    def columns(self) -> tuple[int, int, int]:
        """The shape of queries and of the result."""
        return self.batch, self.query, self.heads * self.head_dim

    @property
    def rows(self) -> tuple[int, int, int]:
        """The shape of maxima and sums."""
        return self.batch, self.query, self.heads

    @property
    def cache(self) -> tuple[int, int, int, int]:
        """The shape of the keys, and of the values."""
        return self.batch, self.kv_heads, self.positions, self.head_dim


@dataclass(frozen=True)
class SequencePlan:
    """The encodings under which a cache is split along its positions.

    ``new`` is that of the new keys and values on their way to their owners, ``queries`` that of the
    gathered queries, ``parts`` and ``part_rows`` those of what a device's positions contribute (the
    values, and maxima and sums), ``owners`` and ``owner_rows`` those of their combinations.
    ``gathered`` is the cache put together.
    """

    shape: AttentionShape
    axes: tuple[AxisRef, ...]
    cache: Encoding
    gathered: Encoding
    new: Encoding
    given: Encoding
    queries: Encoding
    parts: Encoding
    part_rows: Encoding
    owners: Encoding
    owner_rows: Encoding

    @property
    def ranks(self) -> int:
        """Over how many devices the positions are split."""
        return self.cache.mesh.refs_size(self.axes)

    @property
    def query_heads(self) -> int:
        """The most query heads that a device attends with."""
        return self.queries.local_shape(self.shape.columns)[2] // self.shape.head_dim

    @property
    def kv_heads(self) -> int:
        """The most KV heads that a device keeps."""
        return self.cache.local_shape(self.shape.cache)[1]

    def query_bytes(self, width: int, partial_width: int) -> dict[str, int]:
        """Bytes that a device sends where the queries are gathered, of elements of ``width``, and
        the parts merged, by link class; as many arrive."""
        return add_bytes((self.gather_bytes(width), self.merge_bytes(partial_width)))

    def gather_bytes(self, width: int) -> dict[str, int]:
        """Those of the queries alone."""
        return reshard_bytes(self.given, self.queries, self.shape.columns, width)

    def merge_bytes(self, width: int) -> dict[str, int]:
        """Those of the parts alone."""
        rows = reshard_bytes(self.part_rows, self.owner_rows, self.shape.rows, STATISTIC_BYTES)
        return add_bytes(
            (rows, rows, reshard_bytes(self.parts, self.owners, self.shape.columns, width))
        )

    def key_bytes(self, width: int) -> dict[str, int]:
        """Bytes that a device sends where keys and values are gathered."""
        one = reshard_bytes(self.cache, self.gathered, self.shape.cache, width)
        return add_bytes((one, one))


def shared_axes(cache: Encoding) -> tuple[AxisRef, ...]:
    """The axes over which a cache is replicated, outer to inner."""
    return cache.mesh.complement(cache.used_axes())


def without(mesh: Mesh, axes: Sequence[AxisRef], removed: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
    """The parts of an axis list that no other reference covers, in its order.

    >>> mesh = Mesh("m", (Axis("x", 2), Axis("y", 8)))
    >>> from starc.core.sharding.mesh import axes_text
    >>> axes_text(without(mesh, mesh.all_axes(), (AxisRef("y", 4, 2),)))
    '"x", "y":(1)4'
    """
    kept: list[AxisRef] = []
    for ref in axes:
        kept += mesh.complement((*mesh.complement((ref,)), *removed))
    return mesh.canonical(kept)


def shard_sequence(
    shape: AttentionShape,
    queries: Encoding,
    cache: Encoding,
    result: Encoding,
    axes: tuple[AxisRef, ...],
    map_name: str,
    block: int,
    *,
    rotated: bool = True,
) -> SequencePlan:
    """The encodings where the positions of ``cache`` are split over ``axes``, over which it is
    replicated.

    ``queries``, ``cache`` and ``result`` are the encodings that the attention has. A map ``cyclic``
    deals out blocks of ``block`` positions, from another device on for every sequence
    where it is ``rotated``, so that
    equal sequences do not write to one device; ``contiguous`` gives every device a stretch. Heads
    stay where the result has them.
    """
    mesh = cache.mesh
    ranks = mesh.refs_size(axes)
    positions: ShardMap = (
        Cyclic(block, by=0 if rotated else None) if map_name == "cyclic" else CONTIGUOUS
    )
    window = positions.window(shape.start, shape.query, ranks, shape.positions)
    assert window is not None
    kv_heads = cache.dims[1]
    features = kv_heads.map.of_blocks(shape.head_dim, mesh.refs_size(kv_heads.axes), shape.kv_heads)
    new = (
        Encoding.replicated(mesh, 3)
        .with_dim(0, cache.dims[0].axes, cache.dims[0].map)
        .with_dim(1, axes, window)
        .with_dim(2, kv_heads.axes, features)
    )
    gathered = _gathered_heads(queries, axes, shape)
    return SequencePlan(
        shape=shape,
        axes=axes,
        cache=cache.with_dim(2, axes, positions),
        gathered=cache,
        new=new,
        given=queries,
        queries=gathered,
        parts=gathered.with_partial(ReductionKind.LSE, axes),
        part_rows=_rows(gathered, shape).with_partial(ReductionKind.LSE, axes),
        owners=result,
        owner_rows=_rows(result, shape),
    )


def with_owners(plan: SequencePlan, ranks: Sequence[int]) -> SequencePlan | None:
    """The plan with each head of a group finished by one device: ``ranks`` has its rank along the
    plan's axes, in order of the group's heads. ``None`` where groups have different heads.

    >>> mesh = Mesh("node", (Axis("cube", 2, "inner", "noc"), Axis("pe", 2, "inner", "pe_mesh")))
    >>> heads, cache = Encoding.replicated(mesh, 3), Encoding.replicated(mesh, 4)
    >>> shape = AttentionShape(1, 1, 4, 1, 8, 63, 64)
    >>> plan = shard_sequence(shape, heads, cache, heads, shared_axes(cache), "cyclic", 1)
    >>> root = with_owners(plan, (1, 1, 1, 1))
    >>> print(root.owner_rows)
    [{}, {}, {"cube", "pe"} offsets [0, 0, 4, 4, 4]]
    """
    mesh, heads = plan.cache.mesh, plan.parts.dims[2]
    groups, size = mesh.refs_size(heads.axes), mesh.refs_size(plan.axes)
    if not isinstance(heads.map, Contiguous) or plan.shape.heads != groups * len(ranks):
        return None
    counts = [ranks.count(rank) for rank in range(size)] * groups
    whole = plan.parts.with_partial(None)
    shard_map = (
        CONTIGUOUS
        if len(set(counts)) == 1
        else Offsets.of_counts(count * plan.shape.head_dim for count in counts)
    )
    owners = whole.with_dim(2, (*heads.axes, *plan.axes), shard_map)
    return replace(plan, owners=owners, owner_rows=_rows(owners, plan.shape))


def _gathered_heads(queries: Encoding, axes: Sequence[AxisRef], shape: AttentionShape) -> Encoding:
    """The queries with all heads that the devices along ``axes`` have together. Where heads do not
    divide evenly and other axes stand behind those, their devices have each other's heads too."""
    mesh, heads = queries.mesh, queries.dims[2]
    kept = without(mesh, heads.axes, axes)
    leading = mesh.common_prefix(heads.axes, kept)[0]
    if kept != leading:
        if isinstance(heads.map, Contiguous) and shape.heads % mesh.refs_size(heads.axes) == 0:
            return queries.with_dim(2, kept)
        kept = leading
    ranks, fewer = mesh.refs_size(heads.axes), mesh.refs_size(kept)
    extent = shape.heads * shape.head_dim
    if isinstance(heads.map, Contiguous) and extent % ranks == 0:
        return queries.with_dim(2, kept)
    counts = [heads.map.count(rank, ranks, extent) for rank in range(ranks)]
    parts = ranks // fewer
    joined = Offsets.of_counts(sum(counts[rank : rank + parts]) for rank in range(0, ranks, parts))
    return queries.with_dim(2, kept, joined if kept else CONTIGUOUS)


def _rows(columns: Encoding, shape: AttentionShape) -> Encoding:
    """The encoding of one value a head beside that of a head's columns."""
    heads = columns.dims[2]
    ranks = columns.mesh.refs_size(heads.axes)
    extent = shape.heads * shape.head_dim
    shard_map = heads.map.in_blocks(shape.head_dim, ranks, extent)
    if shard_map is None:
        raise ValueError(f"queries are split over {heads} inside a head of {shape.head_dim}")
    return columns.with_dim(2, heads.axes, shard_map)


def cache_bytes(shape: AttentionShape, cache: Encoding, width: int) -> int:
    """Bytes of keys and values that a device keeps."""
    return 2 * math.prod(cache.local_shape(shape.cache)) * width
