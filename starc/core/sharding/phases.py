"""A collective over several levels as phases of one level each: which ones there can be.

An ``Exchange`` is a collective as plain data, a ``Form`` one way to divide it over levels, and
``phases`` the collectives of that form, with the encodings that each leaves.

    >>> from starc.core.sharding.hierarchy import split_levels
    >>> from starc.core.sharding.mesh import Axis, Mesh
    >>> mesh = Mesh("m", (Axis("gpu", 2, "outer", "xgmi"), Axis("xcd", 4, "inner", "usr")))
    >>> whole = Encoding.replicated(mesh, 1)
    >>> partial = whole.with_partial(ReductionKind.SUM, mesh.all_axes())
    >>> exchange = Exchange(
    ...     CollectiveKind.ALL_REDUCE, mesh.all_axes(), (partial,), (whole,), ((64,),),
    ...     reduction=ReductionKind.SUM)
    >>> levels = split_levels(mesh, exchange.axes)
    >>> [str(phase) for phase in phases(exchange, Form(levels, 1))]
    ['reduce_scatter over {"xcd"}', 'all_reduce over {"gpu"}', 'all_gather over {"xcd"}']
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.combiners import COMBINERS, ReductionKind
from starc.core.sharding.encoding import Encoding, is_refinement
from starc.core.sharding.hierarchy import (
    Scatter,
    scatter,
    split_over_inner,
    without_partial,
)
from starc.core.sharding.mesh import AxisRef, Mesh, axes_text

Axes: TypeAlias = tuple[AxisRef, ...]
Encodings: TypeAlias = tuple[Encoding, ...]
Shapes: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Phase:
    """One collective and the encodings that it leaves; of an all-to-all ``dim`` is split and
    ``concat_dim`` joined."""

    kind: CollectiveKind
    axes: Axes
    results: Encodings
    dim: int | None = None
    concat_dim: int | None = None
    reduction: ReductionKind | None = None

    def __str__(self) -> str:
        return f"{self.kind} over {{{axes_text(self.axes)}}}"


@dataclass(frozen=True)
class Piece:
    """A piece of a dimension over some axes that a use of a value keeps."""

    dim: int
    axes: Axes


@dataclass(frozen=True)
class Exchange:
    """A collective: the encodings of its values before and after, their global ``shapes``, and of
    every use of its results the piece that it keeps, ``None`` where it needs more than one."""

    kind: CollectiveKind
    axes: Axes
    before: Encodings
    after: Encodings
    shapes: Shapes
    dim: int | None = None
    concat_dim: int | None = None
    reduction: ReductionKind | None = None
    uses: tuple[Piece | None, ...] = ()

    @property
    def mesh(self) -> Mesh:
        return self.before[0].mesh

    @property
    def whole(self) -> Phase:
        """The exchange in one."""
        return Phase(self.kind, self.axes, self.after, self.dim, self.concat_dim, self.reduction)

    def is_cut(self, dim: int, axes: Axes) -> bool:
        """Whether a use keeps a piece of ``dim`` over ``axes``, and perhaps others behind them."""
        return any(use and use.dim == dim and use.axes[: len(axes)] == axes for use in self.uses)

    def is_only_cut(self, dim: int, axes: Axes) -> bool:
        """Whether every use keeps a piece of ``dim`` over just ``axes``."""
        return bool(self.uses) and all(use == Piece(dim, axes) for use in self.uses)


@dataclass(frozen=True)
class Form:
    """Phases of a collective: the axes of each, outer to inner, and how many of the inner ones an
    all-reduce scatters over and gathers again. The others are reduced one after the other. Where
    it is ``sliced``, a reduce-scatter is an all-reduce of which each device keeps its piece."""

    levels: tuple[Axes, ...]
    scattered: int
    sliced: bool = False


def forms(kind: CollectiveKind, mesh: Mesh, levels: Sequence[Axes]) -> Iterator[tuple[int, Form]]:
    """The forms of a collective, each with the number of its partition, the finest first. A phase
    crosses two neighbouring levels at most."""
    for number, parts in enumerate(partitions(levels)):
        groups = tuple(mesh.canonical([ref for refs in part for ref in refs]) for part in parts)
        most = len(groups) - 1
        if kind is CollectiveKind.ALL_REDUCE:
            yield from ((number, Form(groups, scattered)) for scattered in range(most + 1))
            continue
        yield number, Form(groups, most)
        if kind is CollectiveKind.REDUCE_SCATTER and most:
            for scattered in range(most + 1):
                yield number, Form(groups, scattered, sliced=True)


def partitions(levels: Sequence[Axes]) -> list[tuple[tuple[Axes, ...], ...]]:
    """The ways to join neighbouring levels by one or two, the finest first.

    >>> [len(parts) for parts in partitions(((), (), ()))]
    [3, 2, 2]
    """
    if not levels:
        return [()]
    found = [((levels[0],), *rest) for rest in partitions(levels[1:])]
    if len(levels) > 1:
        found += [((levels[0], levels[1]), *rest) for rest in partitions(levels[2:])]
    return found


def phases(exchange: Exchange, form: Form, *, uneven: bool = False) -> tuple[Phase, ...]:
    """The phases of an exchange in one form; none where no shard map says what devices hold between
    them. With ``uneven`` pieces of an all-reduce may differ in size."""
    match exchange.kind:
        case CollectiveKind.ALL_REDUCE:
            return _all_reduce(exchange, form, uneven)
        case CollectiveKind.REDUCE_SCATTER if form.sliced:
            slice = Phase(CollectiveKind.ALL_SLICE, exchange.axes, exchange.after, exchange.dim)
            return (*_all_reduce(exchange, form, uneven), slice)
        case CollectiveKind.REDUCE_SCATTER:
            return _reduce_scatter(exchange, form.levels)
        case CollectiveKind.ALL_GATHER:
            return _all_gather(exchange, form.levels)
        case CollectiveKind.ALL_TO_ALL:
            return _all_to_all(exchange, form.levels)
        case _:
            return ()


# ---------------------------------------------------------------------------------------------
# Reductions
# ---------------------------------------------------------------------------------------------


class _Reduction:
    """Phases of a reduction, one behind the other, and what is held after the last."""

    def __init__(self, exchange: Exchange) -> None:
        self.kind = exchange.reduction
        self.held = exchange.before
        self.phases: list[Phase] = []

    def reduce(self, axes: Axes) -> None:
        results = tuple(without_partial(encoding, axes) for encoding in self.held)
        self._add(Phase(CollectiveKind.ALL_REDUCE, axes, results, reduction=self.kind))

    def scatter(self, axes: Axes, dim: int, split: Sequence[Encoding]) -> None:
        """To pieces of ``split``, partial over the axes that are left."""
        results = tuple(
            encoding.with_partial_of(without_partial(now, axes))
            for encoding, now in zip(split, self.held, strict=True)
        )
        self._add(Phase(CollectiveKind.REDUCE_SCATTER, axes, results, dim, reduction=self.kind))

    def gather(self, axes: Axes, dim: int, whole: Sequence[Encoding]) -> None:
        results = tuple(
            encoding.with_partial_of(now) for encoding, now in zip(whole, self.held, strict=True)
        )
        self._add(Phase(CollectiveKind.ALL_GATHER, axes, results, dim))

    def _add(self, phase: Phase) -> None:
        self.phases.append(phase)
        self.held = phase.results


def _all_reduce(exchange: Exchange, form: Form, uneven: bool) -> tuple[Phase, ...]:
    split_at = len(form.levels) - form.scattered
    inner, outer = form.levels[split_at:][::-1], form.levels[:split_at][::-1]
    chosen = _scatters(exchange, inner, uneven) if inner else None
    made = _Reduction(exchange)
    if chosen is None:
        for refs in (*inner, *outer):
            made.reduce(refs)
        return tuple(made.phases)
    before: list[Encodings] = []
    for refs, step in zip(inner, chosen, strict=True):
        before.append(made.held)
        made.scatter(refs, step.dim, step.results)
    for refs in outer:
        made.reduce(refs)
    for refs, step, whole in reversed(list(zip(inner, chosen, before, strict=True))):
        made.gather(refs, step.dim, whole)
    return tuple(made.phases)


def _scatters(exchange: Exchange, inner: Sequence[Axes], uneven: bool) -> list[Scatter] | None:
    """The scatter of every inner level, inner ones first, along one dimension."""
    shapes = exchange.shapes
    assert exchange.reduction is not None
    combiner = COMBINERS[exchange.reduction]
    rank = min(len(shape) for shape in shapes)
    shared = combiner.shared_dims(shapes) if combiner.is_joint else range(rank)
    local = [
        encoding.local_shape(shape) for encoding, shape in zip(exchange.before, shapes, strict=True)
    ]
    ranks = exchange.mesh.refs_size([ref for refs in inner for ref in refs])
    options: list[tuple[tuple[bool, bool, int], list[Scatter]]] = []
    for dim in shared:
        steps = _scatters_of(exchange, dim, inner) if dim < rank else None
        if steps is None:
            continue
        is_even = all(step.is_even for step in steps)
        if not is_even and (not uneven or min(shape[dim] for shape in local) < ranks):
            continue
        options.append(((is_even, exchange.is_cut(dim, inner[0]), dim), steps))
    return max(options, key=lambda option: option[0])[1] if options else None


def _scatters_of(exchange: Exchange, dim: int, inner: Sequence[Axes]) -> list[Scatter] | None:
    """The scatters along one dimension, if its maps allow them."""
    steps: list[Scatter] = []
    encodings = exchange.before
    for refs in inner:
        step = scatter(encodings, exchange.shapes, dim, refs)
        if step is None:
            return None
        steps.append(step)
        encodings = step.results
    return steps


def _reduce_scatter(exchange: Exchange, levels: Sequence[Axes]) -> tuple[Phase, ...]:
    dim, whole, final = exchange.dim, exchange.before, exchange.after
    assert dim is not None
    made = _Reduction(exchange)
    chain = _chain(exchange, whole, final, dim, levels)
    if chain is not None:
        for refs, split in zip(reversed(levels), chain[1:], strict=True):
            made.scatter(refs, dim, split)
        return tuple(made.phases)
    # Scattered inner axes first, then put to the devices that the result names.
    steps = _inner_first(final, whole, dim, levels)
    if not _are_refined(whole, steps, dim, exchange.shapes):
        return ()
    for refs, split in zip(reversed(levels), steps, strict=True):
        made.scatter(refs, dim, split)
    return (*made.phases, Phase(CollectiveKind.PERMUTE, exchange.axes, final))


# ---------------------------------------------------------------------------------------------
# Exchanges that only move
# ---------------------------------------------------------------------------------------------


def _all_gather(exchange: Exchange, levels: Sequence[Axes]) -> tuple[Phase, ...]:
    dim, split, whole = exchange.dim, exchange.before, exchange.after
    assert dim is not None
    chain = _chain(exchange, whole, split, dim, levels)
    made: list[Phase] = []
    if chain is None:
        # Put to the devices whose inner neighbours have what follows, then gathered.
        steps = _inner_first(split, whole, dim, levels)
        if not _are_refined(whole, steps, dim, exchange.shapes):
            return ()
        made.append(Phase(CollectiveKind.PERMUTE, exchange.axes, steps[-1]))
        chain = [whole, *steps]
    for refs, results in zip(levels, reversed(chain[:-1]), strict=True):
        made.append(Phase(CollectiveKind.ALL_GATHER, refs, results, dim))
    return tuple(made)


def _all_to_all(exchange: Exchange, levels: Sequence[Axes]) -> tuple[Phase, ...]:
    split, concat, old, new = exchange.dim, exchange.concat_dim, exchange.before, exchange.after
    assert split is not None
    assert concat is not None
    cut = _chain(exchange, old, new, split, levels)
    if cut is None:
        return ()
    # The dimension that is joined loses inner axes first: what is left is its outer axes.
    joined: list[Encodings] = []
    for number in range(len(levels) - 1, 0, -1):
        outer = tuple(ref for refs in levels[:number] for ref in refs)
        step: list[Encoding] = []
        for source, result, shape in zip(old, new, exchange.shapes, strict=True):
            axes = (*result.dims[concat].axes, *outer)
            left = result.with_dim(concat, axes, source.dims[concat].map)
            extent = shape[concat]
            if left.dims[concat].map.problem(left.ranks(concat), extent):
                return ()
            if not is_refinement(left.mesh, left.dims[concat], source.dims[concat], extent):
                return ()
            step.append(left)
        joined.append(tuple(step))
    joined.append(new)
    made: list[Phase] = []
    for refs, cuts, joins in zip(reversed(levels), cut[1:], joined, strict=True):
        results = tuple(
            encoding.with_dim(concat, other.dims[concat].axes, other.dims[concat].map)
            for encoding, other in zip(cuts, joins, strict=True)
        )
        made.append(Phase(CollectiveKind.ALL_TO_ALL, refs, results, split, concat))
    return tuple(made)


# ---------------------------------------------------------------------------------------------
# Encodings between phases
# ---------------------------------------------------------------------------------------------


def _chain(
    exchange: Exchange, whole: Encodings, split: Encodings, dim: int, levels: Sequence[Axes]
) -> list[Encodings] | None:
    """Encodings from ``whole`` to ``split`` with one more level each, inner levels first."""
    steps = [whole]
    for number in range(len(levels) - 1, 0, -1):
        inner = tuple(ref for refs in levels[number:] for ref in refs)
        between: list[Encoding] = []
        for coarse, fine, shape in zip(whole, split, exchange.shapes, strict=True):
            found = split_over_inner(coarse, fine, dim, inner, shape[dim])
            if found is None:
                return None
            between.append(found)
        steps.append(tuple(between))
    return [*steps, split]


def _inner_first(
    split: Encodings, whole: Encodings, dim: int, levels: Sequence[Axes]
) -> list[Encodings]:
    """The shards of ``split`` on other devices, the axes of inner levels first: cut over the axes
    of the innermost level, of the two innermost and so on."""
    steps: list[Encodings] = []
    axes: list[AxisRef] = []
    for refs in reversed(levels):
        axes += refs
        steps.append(
            tuple(
                fine.with_dim(dim, (*coarse.dims[dim].axes, *axes), fine.dims[dim].map)
                for fine, coarse in zip(split, whole, strict=True)
            )
        )
    return steps


def _are_refined(whole: Encodings, steps: Sequence[Encodings], dim: int, shapes: Shapes) -> bool:
    """Whether each step cuts the shards of the one before it."""
    for index, shape in enumerate(shapes):
        chain = [whole[index], *(step[index] for step in steps)]
        for coarse, fine in itertools.pairwise(chain):
            if fine.dims[dim].map.problem(fine.ranks(dim), shape[dim]):
                return False
            if not is_refinement(coarse.mesh, coarse.dims[dim], fine.dims[dim], shape[dim]):
                return False
    return True
