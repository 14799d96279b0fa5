"""Values that are spread over a mesh: cut by an encoding, put together again, and checked.

A ``Placement`` says, for every device, which indices of the global tensor it holds; it is all that
an interpreter reads of an encoding. A ``Distributed`` value is one exact-size array per device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from starc.core.combiners import COMBINERS, Combiner
from starc.core.encoding import Encoding
from starc.core.mesh import AxisRef
from starc.interpreter.element_types import Array, load
from starc.interpreter.local_semantics import Indices, SemanticsError, Shard, range_text


@dataclass(frozen=True)
class Placement:
    """Where the parts of a tensor of global shape ``extents`` lie, by ``encoding``."""

    encoding: Encoding
    extents: tuple[int, ...]

    @property
    def devices(self) -> int:
        return self.encoding.mesh.size

    @cached_property
    def indices(self) -> tuple[tuple[Indices, ...], ...]:
        """For every device and dimension the global indices that it holds."""
        return tuple(
            tuple(
                np.asarray(self.encoding.global_indices(dim, extent, coords), dtype=np.int64)
                for dim, extent in enumerate(self.extents)
            )
            for coords in self.encoding.mesh.devices()
        )

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The exact shape of every device's part."""
        return tuple(tuple(len(held) for held in parts) for parts in self.indices)

    @cached_property
    def blocks(self) -> tuple[bytes, ...]:
        """For every device a key of the block of the tensor that it holds."""
        return tuple(b"|".join(held.tobytes() for held in parts) for parts in self.indices)

    @property
    def partial_axes(self) -> tuple[AxisRef, ...]:
        partial = self.encoding.partial
        return partial.axes if partial is not None else ()

    @cached_property
    def contributions(self) -> tuple[int, ...]:
        """For every device the number of the contribution that it holds to its block: the rank
        along the axes of the partial, 0 for complete values."""
        return ranks_along(self.encoding, self.partial_axes)


@lru_cache(maxsize=4096)
def placement_of(encoding: Encoding, extents: tuple[int, ...]) -> Placement:
    """The placement of an encoding; the same object for the same arguments, so that what it has
    computed is not computed again."""
    return Placement(encoding, extents)


def ranks_along(encoding: Encoding, axes: Sequence[AxisRef]) -> tuple[int, ...]:
    """The rank of every device along an axis list (0 everywhere for an empty one)."""
    mesh = encoding.mesh
    return tuple(mesh.rank(axes, coords) for coords in mesh.devices())


@dataclass(frozen=True)
class Distributed:
    """A value as one exact-size array per device, in the order of device ids."""

    parts: tuple[Array, ...]
    placement: Placement

    def shard(self, device: int) -> Shard:
        """What one device holds, with the indices that it stands for."""
        placement = self.placement
        return Shard(self.parts[device], placement.indices[device], placement.extents)


def distribute(values: Array, placement: Placement) -> Distributed:
    """Cuts a whole tensor. Of a partial value the first contribution holds the tensor and the
    others the combiner's identity. Raises ``SemanticsError`` where the shapes differ."""
    if values.shape != placement.extents:
        raise SemanticsError(f"a tensor of shape {values.shape} is cut as {placement.extents}")
    cut: dict[tuple[bytes, int], Array] = {}
    parts: list[Array] = []
    for device, (block, contribution) in enumerate(
        zip(placement.blocks, placement.contributions, strict=True)
    ):
        key = (block, contribution)
        if key not in cut:
            part = values[np.ix_(*placement.indices[device])]
            cut[key] = np.full_like(part, _identity(placement)) if contribution else part
        parts.append(cut[key])
    return Distributed(tuple(parts), placement)


def _identity(placement: Placement) -> float:
    partial = placement.encoding.partial
    assert partial is not None
    return COMBINERS[partial.kind].identity[-1]


def assemble(value: Distributed) -> Array:
    """The whole tensor that the parts stand for: contributions of a partial are combined in the
    order of their ranks. Raises ``SemanticsError`` if an element is held by no device."""
    return assemble_together((value,), range(value.placement.devices))[0]


def assemble_together(values: Sequence[Distributed], devices: Sequence[int]) -> tuple[Array, ...]:
    """As ``assemble``, from what some devices hold, for values that a combiner of several
    components combines together."""
    wholes = [np.zeros(value.placement.extents, load(value.parts[0]).dtype) for value in values]
    held = [np.zeros(value.placement.extents, np.bool_) for value in values]
    blocks: dict[tuple[bytes, ...], dict[int, int]] = {}
    for device in devices:
        key = tuple(value.placement.blocks[device] for value in values)
        contributors = blocks.setdefault(key, {})
        contributors.setdefault(values[0].placement.contributions[device], device)
    partial = values[0].placement.encoding.partial
    for contributors in blocks.values():
        ordered = [contributors[rank] for rank in sorted(contributors)]
        parts = [tuple(value.parts[device] for value in values) for device in ordered]
        combined = combine(partial.kind if partial is not None else "root", parts)
        for value, whole, covered, part in zip(values, wholes, held, combined, strict=True):
            where = np.ix_(*value.placement.indices[ordered[0]])
            whole[where] = part
            covered[where] = True
    for covered in held:
        if not covered.all():
            first = [int(index) for index in np.argwhere(~covered)[0]]
            raise SemanticsError(f"no device holds element {first}")
    return tuple(wholes)


def combine(kind: str, contributions: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
    """The combination of contributions, in order, unrounded: one array per component, or as many
    as there are for a combiner of one component. Raises ``SemanticsError`` for another number."""
    combiner = COMBINERS[kind]
    loaded = [tuple(load(part) for part in parts) for parts in contributions]
    if len(combiner.components) == 1:
        columns = list(zip(*loaded, strict=True))
        return tuple(_fold(combiner, [(part,) for part in column])[0] for column in columns)
    if len(loaded[0]) != len(combiner.components):
        names = ", ".join(combiner.components)
        raise SemanticsError(f"a partial of kind {kind} is {names}, not {len(loaded[0])} values")
    return _fold(combiner, loaded)


def _fold(combiner: Combiner, contributions: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
    total = contributions[0]
    for part in contributions[1:]:
        total = combiner.combine(total, part)
    return total


def reshard(values: Sequence[Distributed], targets: Sequence[Placement]) -> list[Distributed]:
    """Values under other placements, by the exact effect of a reshard: the contributions over axes
    that the target is not partial over are combined, the tensors are put together and cut."""
    target = targets[0]
    source = values[0].placement.encoding.partial
    kept = target.partial_axes
    mesh = target.encoding.mesh
    covered = source.axes if source is not None else ()
    keeps = bool(kept) and mesh.refs_size(kept) * mesh.refs_size(
        mesh.complement((*mesh.complement(covered), *kept))
    ) == mesh.refs_size(covered)
    if not keeps:
        wholes = assemble_together(values, range(target.devices))
        return [distribute(whole, to) for whole, to in zip(wholes, targets, strict=True)]
    ranks = ranks_along(target.encoding, kept)
    parts: list[dict[int, Array]] = [{} for _ in targets]
    for rank in sorted(set(ranks)):
        members = [device for device in range(target.devices) if ranks[device] == rank]
        wholes = assemble_together(values, members)
        for device in members:
            for index, (whole, to) in enumerate(zip(wholes, targets, strict=True)):
                parts[index][device] = whole[np.ix_(*to.indices[device])]
    return [
        Distributed(tuple(held[device] for device in range(target.devices)), to)
        for held, to in zip(parts, targets, strict=True)
    ]


def check_declared(parts: Sequence[Shard], target: Placement) -> None:
    """Raises ``SemanticsError`` unless every device holds the indices that the placement says."""
    for device, part in enumerate(parts):
        if part.extents != target.extents:
            raise SemanticsError(
                f"a tensor of shape {part.extents} is declared as {target.extents}"
            )
        for dim, (held, declared) in enumerate(
            zip(part.indices, target.indices[device], strict=True)
        ):
            if not np.array_equal(held, declared):
                raise SemanticsError(
                    f"device {device} holds {range_text(held)} of dimension {dim}, "
                    f"but the encoding declares {range_text(declared)}"
                )


def check_replicas(value: Distributed) -> None:
    """Raises ``SemanticsError`` if two devices that should hold the same numbers do not, bit for
    bit: they computed them in the same way from the same numbers."""
    placement = value.placement
    first: dict[tuple[bytes, int], int] = {}
    for device, part in enumerate(value.parts):
        if part.shape != placement.shapes[device]:
            raise SemanticsError(
                f"device {device} holds an array of shape {part.shape} instead of "
                f"{placement.shapes[device]}"
            )
        key = (placement.blocks[device], placement.contributions[device])
        other = first.setdefault(key, device)
        if other != device and not _same_bits(value.parts[other], part):
            raise SemanticsError(
                f"devices {other} and {device} hold replicas that differ by "
                f"{_difference(value.parts[other], part):.3g}"
            )


def _same_bits(left: Array, right: Array) -> bool:
    return left.shape == right.shape and left.tobytes() == right.tobytes()


def _difference(left: Array, right: Array) -> float:
    return float(np.max(np.abs(load(left).astype(np.float64) - load(right))))
