"""Collectives of several levels as phases of one level each.

Devices of an inner level are close and have links of their own, those of an outer one share few
slow links. So an exchange over both is done in phases: what can be combined inside is combined
there first, and only a piece of it crosses the outer links (reduce), or crosses them once and is
spread inside (gather).

    >>> from starc.core.sharding.mesh import Axis, AxisRef, Mesh
    >>> mesh = Mesh("m", (Axis("gpu", 8, "outer", "xgmi"), Axis("xcd", 8, "inner", "usr")))
    >>> split_levels(mesh, mesh.all_axes())
    ((AxisRef(name='gpu', pre_size=1, size=None),), (AxisRef(name='xcd', pre_size=1, size=None),))
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.encoding import DimSharding, Encoding, is_refinement
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.core.sharding.shard_map import (
    CONTIGUOUS,
    Contiguous,
    Cyclic,
    Offsets,
    ShardMap,
    even_shares,
)

Axes = tuple[AxisRef, ...]


def split_levels(mesh: Mesh, axes: Sequence[AxisRef]) -> tuple[Axes, ...]:
    """An axis list by the levels of the mesh that it crosses, and inside a level by the classes of
    links, in the order of the list: consecutive references of one level and class stay together.
    References of one device are dropped."""
    groups: list[tuple[tuple[str, str], list[AxisRef]]] = []
    for ref in axes:
        for part, link_class in _link_parts(mesh, ref):
            key = (mesh.axis(ref.name).level, link_class)
            if groups and groups[-1][0] == key:
                groups[-1][1].append(part)
            else:
                groups.append((key, [part]))
    return tuple(mesh.canonical(refs) for _, refs in groups)


def _link_parts(mesh: Mesh, ref: AxisRef) -> Iterator[tuple[AxisRef, str]]:
    """The factors of a reference with the class of their links, major to minor."""
    axis, size = mesh.axis(ref.name), mesh.ref_size(ref)
    position, left = ref.pre_size, size
    start = 1
    for part in axis.parts:
        end = start * part.size
        if position < end and left > 1:
            share = math.gcd(left, end // position) if end % position == 0 else left
            if share > 1:
                yield AxisRef(ref.name, position, share), part.link_class
                position, left = position * share, left // share
        start = end
    if left > 1:
        yield AxisRef(ref.name, position, left), axis.link_class


def is_outer_to_inner(mesh: Mesh, levels: Sequence[Axes]) -> bool:
    """Whether axis lists stand in the order of the mesh's levels, each level once."""
    order = [_depth(mesh, refs[0]) for refs in levels]
    return order == sorted(set(order))


def _depth(mesh: Mesh, ref: AxisRef) -> tuple[int, int]:
    """Where a reference's first factor stands on the mesh, outer to inner."""
    names = [axis.name for axis in mesh.axes]
    return names.index(ref.name), ref.pre_size


def divides(coarse: Encoding, fine: Encoding, dim: int, axes: Axes, extent: int) -> bool:
    """Whether in every group along ``axes`` the pieces of ``dim`` under ``fine`` are together, each
    position once, what every device of the group holds under ``coarse``: what a gather along
    ``axes`` joins and a scatter cuts, in whatever order the axes are listed. Maps that turn from
    row to row are not among them: their shards are cut from whole dimensions alone."""
    mesh = coarse.mesh
    if any(each.rotated_by(dim) is not None for each in (coarse, fine)):
        return False
    coords = list(mesh.devices())
    wholes, pieces = (mesh.device_ranks(each.dims[dim].axes) for each in (coarse, fine))
    seen: set[tuple[tuple[int, int], ...]] = set()
    for group in mesh.groups(axes):
        ranks = tuple((wholes[device], pieces[device]) for device in group)
        if ranks in seen:
            continue
        seen.add(ranks)
        parts = [fine.global_indices(dim, extent, coords[device]) for device in group]
        together = np.sort(np.concatenate(parts))
        held = {wholes[device]: device for device in group}
        for device in held.values():
            if not np.array_equal(coarse.global_indices(dim, extent, coords[device]), together):
                return False
    return True


# ---------------------------------------------------------------------------------------------
# Scatters
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scatter:
    """A dimension along which values are cut over ``axes``, and the encodings that leaves.
    ``is_even`` if all pieces have the same size."""

    dim: int
    results: tuple[Encoding, ...]
    is_even: bool


def scatter(
    encodings: Sequence[Encoding],
    shapes: Sequence[tuple[int, ...]],
    dim: int,
    axes: Axes,
) -> Scatter | None:
    """The encodings with ``dim`` cut further over ``axes``, behind those that cut it already, the
    values' pieces matching each other; ``None`` where the maps of the values allow none.

    Values of different extents along ``dim`` (heads of a maximum against the columns of heads of an
    output) are cut at the same blocks.
    """
    mesh = encodings[0].mesh
    base = min(shape[dim] for shape in shapes)
    if base == 0 or any(shape[dim] % base for shape in shapes):
        return None
    blocks = encodings[[shape[dim] for shape in shapes].index(base)].dims[dim]
    refined = (*blocks.axes, *axes)
    parts = mesh.refs_size(axes)
    fine = _refined_map(blocks.map, mesh.refs_size(blocks.axes), parts, base)
    if fine is None:
        return None
    ranks = mesh.refs_size(refined)
    results: list[Encoding] = []
    for encoding, shape in zip(encodings, shapes, strict=True):
        own = encoding.dims[dim]
        if own.axes != blocks.axes:
            return None
        factor = shape[dim] // base
        map = fine if factor == 1 else fine.of_blocks(factor, ranks, base)
        new = DimSharding(mesh.canonical(refined), map)
        if not is_refinement(mesh, own, new, shape[dim]):
            return None
        results.append(encoding.with_dim(dim, refined, map))
    counts = {fine.count(rank, ranks, base) for rank in range(ranks)}
    return Scatter(dim, tuple(results), len(counts) == 1)


def _refined_map(map: ShardMap, ranks: int, parts: int, extent: int) -> ShardMap | None:
    """A map that cuts every shard of ``map`` in ``parts`` of about the same size."""
    if ranks == 1:
        return CONTIGUOUS
    if not map.has_ranges:
        return None
    counts = [map.count(rank, ranks, extent) for rank in range(ranks)]
    if isinstance(map, Contiguous) and all(count == counts[0] for count in counts):
        if counts[0] % parts == 0:
            return CONTIGUOUS
    return Offsets.of_counts(piece for count in counts for piece in even_shares(count, parts))


def without_partial(encoding: Encoding, axes: Axes) -> Encoding:
    """The encoding with ``axes`` no longer among those that it is partial over."""
    assert encoding.partial is not None
    mesh = encoding.mesh
    rest = mesh.complement((*mesh.complement(encoding.partial.axes), *axes))
    return encoding.with_partial(encoding.partial.kind, rest)


# ---------------------------------------------------------------------------------------------
# Values that are split over several levels
# ---------------------------------------------------------------------------------------------


def split_over_inner(
    whole: Encoding, split: Encoding, dim: int, inner: Axes, extent: int
) -> Encoding | None:
    """Between a value whose ``dim`` is whole over two levels and one that is split over them, outer
    axes first: the encoding that is split over the inner ones alone, so that each device of an
    outer group holds a part of what the group shares. ``None`` where no shard map says it.

        >>> from starc.core.sharding.mesh import Axis, Mesh
        >>> mesh = Mesh("m", (Axis("gpu", 2), Axis("xcd", 4)))
        >>> whole = Encoding.replicated(mesh, 1)
        >>> split = whole.with_dim(0, mesh.all_axes())
        >>> str(split_over_inner(whole, split, 0, (AxisRef("xcd"),), 64))
        '[{"xcd"} cyclic(8)]'
    """
    mesh = whole.mesh
    own = split.dims[dim]
    ranks = mesh.refs_size(own.axes)
    candidates: list[ShardMap] = [own.map]
    if isinstance(own.map, Contiguous):
        candidates.append(Cyclic(max(1, -(-extent // ranks))))
    outer = mesh.complement((*mesh.complement(own.axes), *whole.dims[dim].axes, *inner))
    for map in candidates:
        axes = (*whole.dims[dim].axes, *inner)
        between = whole.with_dim(dim, axes, map)
        if map.problem(mesh.refs_size(axes), extent):
            continue
        if divides(whole, between, dim, inner, extent) and divides(
            between, split, dim, outer, extent
        ):
            return between
    return None


# ---------------------------------------------------------------------------------------------
# Bytes on links
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinkUse:
    """Bytes of a collective over one class of links: what an outermost unit (a GPU) sends, and the
    most that one directed link between two of the class's devices or units carries."""

    sent: float
    busiest: float


def flat_ring_use(mesh: Mesh, kind: CollectiveKind, axes: Axes, payload: int) -> dict[str, LinkUse]:
    """A ring over all devices of a group in the order of ranks: one of its links leaves each inner
    group, so that everything crosses one link of every class."""
    size = mesh.refs_size(axes)
    amount = kind.rounds * payload * (size - 1) / size
    uses: dict[str, LinkUse] = {}
    inside = size
    levels = split_levels(mesh, axes)
    for number, refs in enumerate(levels):
        extent = mesh.refs_size(refs)
        inside //= extent
        # Links of this class that leave the devices of one outermost unit.
        units = math.prod(mesh.refs_size(other) for other in levels[1:number]) if number else 1
        hops = 1 if number == 0 else units * (extent - 1)
        link_class = mesh.link_class(refs) or ""
        before = uses.get(link_class, LinkUse(0.0, 0.0))
        uses[link_class] = LinkUse(before.sent + amount * hops, max(before.busiest, amount))
    return uses


def phase_use(mesh: Mesh, kind: CollectiveKind, axes: Axes, payload: int, whole: Axes) -> LinkUse:
    """A phase of one level, in which every device talks to every other of its group; devices of the
    levels inside do the same at once over the same links. ``whole`` are the axes of all phases."""
    size = mesh.refs_size(axes)
    amount = kind.rounds * payload * (size - 1) / size
    levels = split_levels(mesh, whole)
    number = next(
        (n for n, refs in enumerate(levels) if any(mesh.overlap(a, b) for a in refs for b in axes)),
        0,
    )
    inner = math.prod(mesh.refs_size(refs) for refs in levels[number + 1 :])
    per_unit = inner if number == 0 else math.prod(mesh.refs_size(refs) for refs in levels[1:])
    peers = max(size - 1, 1)
    return LinkUse(amount * per_unit, amount * inner / peers)
