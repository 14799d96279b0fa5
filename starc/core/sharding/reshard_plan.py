"""A reshard as a sequence of collectives.

The steps, in order: combine partial states (by a reduce-scatter where the result is split over the
same axes, else by an all-reduce), exchange whole shards where the same shards only lie on other
devices (a permutation), move axes from one dimension to another by an all-to-all where one loses
what another gains, change the map of a dimension by way of another dimension (two all-to-alls),
keep pieces that need no exchange (slices), gather, slice again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.combiners import ReductionKind
from starc.core.sharding.encoding import DimSharding, Encoding, is_refinement, same_shards
from starc.core.sharding.mesh import AxisRef
from starc.core.sharding.shard_map import Contiguous


@dataclass(frozen=True)
class ReshardStep:
    """One collective of one value: its axes, and the encoding that it leaves."""

    kind: CollectiveKind
    axes: tuple[AxisRef, ...]
    result: Encoding
    dim: int | None = None
    concat_dim: int | None = None
    reduction: ReductionKind | None = None


def plan_reshard(
    source: Encoding, target: Encoding, shape: tuple[int, ...], *, scatters: bool = True
) -> tuple[ReshardStep, ...]:
    """The collectives that turn ``source`` into ``target`` for a tensor of a global shape. Without
    ``scatters`` partial states are combined by all-reduces alone. Raises ``ValueError`` if the
    target is partial where the source is not."""
    source, target = source.canonical(), target.canonical()
    plan = _Plan(source, target, shape)
    plan.reduce(scatters=scatters)
    plan.permute()
    plan.move_between_dims()
    plan.remap()
    plan.slice(only_free=True)
    plan.gather()
    plan.slice(only_free=False)
    assert plan.current == target, f"{source} to {target} ends as {plan.current}"
    return tuple(plan.steps)


@dataclass(frozen=True)
class JointStep:
    """One collective of several values: ``steps`` has what it does to each of ``values``."""

    values: tuple[int, ...]
    steps: tuple[ReshardStep, ...]


def plan_together(
    sources: Sequence[Encoding], targets: Sequence[Encoding], shapes: Sequence[tuple[int, ...]]
) -> tuple[JointStep, ...]:
    """The collectives of values that are resharded together, as the components of one partial
    are: every reduction has all of them. A later step that is not the same for all of them is
    done for each by itself."""
    cases = list(zip(sources, targets, shapes, strict=True))
    plans = [plan_reshard(*case) for case in cases]
    if len({_effects(_reductions(plan)) for plan in plans}) > 1:
        plans = [plan_reshard(*case, scatters=False) for case in cases]
    every = tuple(range(len(plans)))
    if len({_effects(plan) for plan in plans}) == 1:
        return tuple(JointStep(every, steps) for steps in zip(*plans, strict=True))
    count = len(_reductions(plans[0]))
    together = zip(*(plan[:count] for plan in plans), strict=True)
    return (
        *(JointStep(every, steps) for steps in together),
        *(JointStep((value,), (step,)) for value in every for step in plans[value][count:]),
    )


def _reductions(plan: tuple[ReshardStep, ...]) -> tuple[ReshardStep, ...]:
    return tuple(step for step in plan if step.reduction is not None)


def _effects(plan: tuple[ReshardStep, ...]) -> tuple[object, ...]:
    return tuple((step.kind, step.axes, step.dim, step.concat_dim) for step in plan)


class _Plan:
    def __init__(self, source: Encoding, target: Encoding, shape: tuple[int, ...]) -> None:
        self.mesh = source.mesh
        self.target = target
        self.shape = shape
        self.steps: list[ReshardStep] = []
        self.current = source

    def add(
        self,
        kind: CollectiveKind,
        axes: tuple[AxisRef, ...],
        result: Encoding,
        *,
        dim: int | None = None,
        concat_dim: int | None = None,
        reduction: ReductionKind | None = None,
    ) -> None:
        self.steps.append(ReshardStep(kind, axes, result, dim, concat_dim, reduction))
        self.current = result

    def changes(self, dim: int) -> tuple[tuple[AxisRef, ...], tuple[AxisRef, ...]]:
        """The axes that a dimension must lose and gain, each at the end of its list. All of them
        where what is in common is not a coarser form of both."""
        old, new = self.current.dims[dim], self.target.dims[dim]
        if old == new:
            return (), ()
        prefix, lost, gained = self.mesh.common_prefix(old.axes, new.axes)
        if not lost and not gained:
            return old.axes, new.axes
        # The side that has no more axes says how what both have in common is cut.
        whole = next((side for side in (old, new) if side.axes == prefix), None)
        outer = DimSharding(prefix, whole.map if whole is not None else Contiguous())
        if all(is_refinement(self.mesh, outer, side, self.shape[dim]) for side in (old, new)):
            return lost, gained
        if not self.mesh.is_nested:
            return old.axes, new.axes
        # Pieces that lie unevenly on some level may be even on those around it.
        count = len(prefix)
        while count and (old.axes[:count] != new.axes[:count] or not self._is_even(dim, count)):
            count -= 1
        return old.axes[count:], new.axes[count:]

    def _is_even(self, dim: int, count: int) -> bool:
        """Whether the first axes of a dimension cut it evenly, before and behind."""
        old, new = self.current.dims[dim], self.target.dims[dim]
        outer = DimSharding(old.axes[:count], Contiguous())
        return all(is_refinement(self.mesh, outer, side, self.shape[dim]) for side in (old, new))

    def reduce(self, *, scatters: bool) -> None:
        partial = self.current.partial
        if partial is None:
            if self.target.partial is not None:
                raise ValueError(f"a reshard cannot introduce partial {self.target.partial}")
            return
        kept = self.target.partial.axes if self.target.partial else ()
        lost = self.mesh.complement((*self.mesh.complement(partial.axes), *kept))
        for dim in range(len(self.shape)):
            old = self.current.dims[dim]
            removed, gained = self.changes(dim)
            scattered = gained and all(_within(self.current, axis, lost) for axis in gained)
            if removed or not scattered or not scatters:
                continue
            new = self.target.dims[dim]
            rest = self.mesh.complement((*self.mesh.complement(lost), *gained))
            result = self.current.with_dim(dim, (*old.axes, *gained), new.map).with_partial(
                partial.kind, (*kept, *rest)
            )
            if not _is_legal(result):
                continue
            self.add(CollectiveKind.REDUCE_SCATTER, gained, result, dim=dim, reduction=partial.kind)
            lost = rest
        if lost:
            result = self.current.with_partial(partial.kind, kept)
            self.add(CollectiveKind.ALL_REDUCE, lost, result, reduction=partial.kind)

    def permute(self) -> None:
        moved: list[AxisRef] = []
        for dim in range(len(self.shape)):
            lost, gained = self.changes(dim)
            moved += [*lost, *gained]
        # What several of them cover, in the order of the mesh.
        axes = self.mesh.complement(self.mesh.complement(moved))
        if axes and same_shards(self.current, self.target, self.shape, axes):
            self.add(CollectiveKind.PERMUTE, axes, self.target)

    def remap(self) -> None:
        for dim in range(len(self.shape)):
            old, new = self.current.dims[dim], self.target.dims[dim]
            lost, gained = self.changes(dim)
            if lost != old.axes or gained != new.axes or lost != gained:
                continue
            ranks = self.mesh.refs_size(lost)
            way = next((each for each in range(len(self.shape)) if self.is_free(each, ranks)), None)
            # Two devices exchange as much by a gather.
            if ranks <= 2 or way is None or way == dim:
                continue
            free = self.current.dims[way]
            there = self.current.with_dim(dim, ()).with_dim(way, lost)
            back = self.with_target_dim(there, dim).with_dim(way, free.axes, free.map)
            if not _is_legal(back):
                continue
            self.add(CollectiveKind.ALL_TO_ALL, lost, there, dim=way, concat_dim=dim)
            self.add(CollectiveKind.ALL_TO_ALL, lost, back, dim=dim, concat_dim=way)

    def is_free(self, dim: int, ranks: int) -> bool:
        """Whether a dimension is whole, stays whole and has a piece for every rank."""
        whole = not self.current.dims[dim].axes and not self.target.dims[dim].axes
        return whole and self.shape[dim] > 0 and self.shape[dim] % ranks == 0

    def move_between_dims(self) -> None:
        for concat_dim in range(len(self.shape)):
            for split_dim in range(len(self.shape)):
                lost, lost_gained = self.changes(concat_dim)
                gained_lost, gained = self.changes(split_dim)
                if not lost or lost != gained or lost_gained or gained_lost:
                    continue
                result = self.with_target_dim(
                    self.with_target_dim(self.current, split_dim), concat_dim
                )
                if _is_legal(result):
                    self.add(
                        CollectiveKind.ALL_TO_ALL,
                        lost,
                        result,
                        dim=split_dim,
                        concat_dim=concat_dim,
                    )

    def with_target_dim(self, encoding: Encoding, dim: int) -> Encoding:
        new = self.target.dims[dim]
        return encoding.with_dim(dim, new.axes, new.map)

    def slice(self, *, only_free: bool) -> None:
        for dim in range(len(self.shape)):
            lost, gained = self.changes(dim)
            used = self.current.used_axes()
            busy = any(self.mesh.overlap(a, b) for a in gained for b in used)
            result = self.with_target_dim(self.current, dim)
            if gained and not lost and not (only_free and (busy or not _is_legal(result))):
                self.add(CollectiveKind.ALL_SLICE, gained, result, dim=dim)

    def gather(self) -> None:
        for dim in range(len(self.shape)):
            lost, _ = self.changes(dim)
            if not lost:
                continue
            old = self.current.dims[dim]
            prefix = self.mesh.common_prefix(old.axes, self.target.dims[dim].axes)[0]
            rest = prefix if lost != old.axes else ()
            if self.mesh.is_nested and old.axes[-len(lost) :] == lost:
                rest = old.axes[: -len(lost)]
            shard_map = self.target.dims[dim].map if rest == self.target.dims[dim].axes else None
            result = self.current.with_dim(
                dim, rest, shard_map if rest and shard_map else Contiguous()
            )
            self.add(CollectiveKind.ALL_GATHER, lost, result, dim=dim)


def _is_legal(encoding: Encoding) -> bool:
    """Whether no dimension of a step on the way is turned by one that is itself turned."""
    return all(encoding.rotation_problem(dim) is None for dim in range(len(encoding.dims)))


def _within(encoding: Encoding, axis: AxisRef, axes: tuple[AxisRef, ...]) -> bool:
    """Whether ``axis`` is covered by ``axes``."""
    mesh = encoding.mesh
    rest = mesh.complement((*mesh.complement(axes), axis))
    return mesh.refs_size(rest) * mesh.ref_size(axis) == mesh.refs_size(axes) and any(
        mesh.overlap(axis, other) for other in axes
    )
