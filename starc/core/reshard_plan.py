"""A reshard as a sequence of collectives.

The steps, in order: combine partial states (by a reduce-scatter where the result is split over the
same axes, else by an all-reduce), move axes from one dimension to another by an all-to-all where
one loses what another gains, keep pieces that need no exchange (slices), gather, slice again.
"""

from __future__ import annotations

from dataclasses import dataclass

from starc.core.encoding import DimSharding, Encoding, is_refinement
from starc.core.mesh import AxisRef
from starc.core.shard_map import Contiguous, ShardMap


@dataclass(frozen=True)
class ReshardStep:
    """One collective: its name in the dialect, its axes, and the encoding that it leaves."""

    operation: str
    axes: tuple[AxisRef, ...]
    result: Encoding
    dim: int | None = None
    concat_dim: int | None = None
    reduction: str | None = None


def plan_reshard(
    source: Encoding, target: Encoding, shape: tuple[int, ...]
) -> tuple[ReshardStep, ...]:
    """The collectives that turn ``source`` into ``target`` for a tensor of a global shape. Raises
    ``ValueError`` if the target is partial where the source is not."""
    source, target = source.canonical(), target.canonical()
    plan = _Plan(source, target, shape)
    plan.reduce()
    plan.move_between_dims()
    plan.slice(only_free=True)
    plan.gather()
    plan.slice(only_free=False)
    assert plan.current == target, f"{source} to {target} ends as {plan.current}"
    return tuple(plan.steps)


class _Plan:
    def __init__(self, source: Encoding, target: Encoding, shape: tuple[int, ...]) -> None:
        self.mesh = source.mesh
        self.target = target
        self.shape = shape
        self.steps: list[ReshardStep] = []
        self.current = source

    def add(
        self, operation: str, axes: tuple[AxisRef, ...], result: Encoding, **how: object
    ) -> None:
        dim, concat_dim, reduction = (how.get(key) for key in ("dim", "concat_dim", "reduction"))
        assert dim is None or isinstance(dim, int)
        assert concat_dim is None or isinstance(concat_dim, int)
        assert reduction is None or isinstance(reduction, str)
        self.steps.append(ReshardStep(operation, axes, result, dim, concat_dim, reduction))
        self.current = result

    def changes(self, dim: int) -> tuple[tuple[AxisRef, ...], tuple[AxisRef, ...]]:
        """The axes that a dimension must lose and gain, each at the end of its list. All of them
        where what is in common is not a coarser form of both."""
        old, new = self.current.dims[dim], self.target.dims[dim]
        if old == new:
            return (), ()
        prefix, lost, gained = self.mesh.common_prefix(old.axes, new.axes)
        for sharding in (old, new):
            outer = DimSharding(prefix, self.outer_map(sharding, prefix))
            if not is_refinement(self.mesh, outer, sharding, self.shape[dim]):
                return old.axes, new.axes
        if self.outer_map(old, prefix) != self.outer_map(new, prefix):
            return old.axes, new.axes
        return lost, gained

    @staticmethod
    def outer_map(sharding: DimSharding, prefix: tuple[AxisRef, ...]) -> ShardMap:
        return sharding.map if prefix == sharding.axes else Contiguous()

    def reduce(self) -> None:
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
            if removed or not scattered:
                continue
            new = self.target.dims[dim]
            rest = self.mesh.complement((*self.mesh.complement(lost), *gained))
            result = self.current.with_dim(dim, (*old.axes, *gained), new.map).with_partial(
                partial.kind, (*kept, *rest)
            )
            self.add("reduce_scatter", gained, result, dim=dim, reduction=partial.kind)
            lost = rest
        if lost:
            result = self.current.with_partial(partial.kind, kept)
            self.add("all_reduce", lost, result, reduction=partial.kind)

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
                self.add("all_to_all", lost, result, dim=split_dim, concat_dim=concat_dim)

    def with_target_dim(self, encoding: Encoding, dim: int) -> Encoding:
        new = self.target.dims[dim]
        return encoding.with_dim(dim, new.axes, new.map)

    def slice(self, *, only_free: bool) -> None:
        for dim in range(len(self.shape)):
            lost, gained = self.changes(dim)
            used = self.current.used_axes()
            busy = any(self.mesh.overlap(a, b) for a in gained for b in used)
            if gained and not lost and not (only_free and busy):
                self.add("all_slice", gained, self.with_target_dim(self.current, dim), dim=dim)

    def gather(self) -> None:
        for dim in range(len(self.shape)):
            lost, _ = self.changes(dim)
            if not lost:
                continue
            old = self.current.dims[dim]
            prefix = self.mesh.common_prefix(old.axes, self.target.dims[dim].axes)[0]
            rest = prefix if lost != old.axes else ()
            shard_map = self.target.dims[dim].map if rest == self.target.dims[dim].axes else None
            result = self.current.with_dim(
                dim, rest, shard_map if rest and shard_map else Contiguous()
            )
            self.add("all_gather", lost, result, dim=dim)


def _within(encoding: Encoding, axis: AxisRef, axes: tuple[AxisRef, ...]) -> bool:
    """Whether ``axis`` is covered by ``axes``."""
    mesh = encoding.mesh
    rest = mesh.complement((*mesh.complement(axes), axis))
    return mesh.refs_size(rest) * mesh.ref_size(axis) == mesh.refs_size(axes) and any(
        mesh.overlap(axis, other) for other in axes
    )
