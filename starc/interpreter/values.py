"""Values that are spread over a mesh: cut by an encoding, put together again, and checked.

A ``Placement`` says, for every device, which indices of the global tensor it holds; it is all that
an interpreter reads of an encoding. A ``Distributed`` value is one exact-size array per device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from starc.core.sharding.combiners import COMBINERS, Combiner
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.mesh import AxisRef
from starc.interpreter.element_types import Array, load
from starc.interpreter.local_semantics import Indices, SemanticsError, Shard, range_text

BlockKey: TypeAlias = tuple[int, ...]
"""Names the block of a tensor that a device holds: its rank along every dimension."""


@dataclass(frozen=True)
class Placement:
    """Where the parts of a tensor of global shape ``extents`` lie, by ``encoding``.

    Along a rotated dimension a part has slots that some of its rows leave empty. What stands there
    means nothing: a cut poisons them, and nothing here reads them.
    """

    encoding: Encoding
    extents: tuple[int, ...]

    @property
    def devices(self) -> int:
        return self.encoding.mesh.size

    @cached_property
    def turned_by(self) -> tuple[int | None, ...]:
        """For every dimension the one whose index turns its map, if any."""
        return tuple(self.encoding.rotated_by(dim) for dim in range(len(self.extents)))

    @cached_property
    def blocks(self) -> tuple[BlockKey, ...]:
        """For every device the block of the tensor that it holds; replicas have the same."""
        encoding = self.encoding
        return tuple(
            tuple(encoding.rank(dim, coords) for dim in range(len(self.extents)))
            for coords in encoding.mesh.devices()
        )

    @cached_property
    def indices(self) -> tuple[tuple[Indices, ...], ...]:
        """For every device and dimension the global indices that it holds; of a rotated dimension
        a line for every row, see ``Encoding.indices``."""
        known: dict[tuple[int, int, int], Indices] = {}
        held: list[tuple[Indices, ...]] = []
        for block, coords in zip(self.blocks, self.encoding.mesh.devices(), strict=True):
            parts: list[Indices] = []
            for dim, by in enumerate(self.turned_by):
                key = (dim, block[dim], 0 if by is None else block[by])
                if key not in known:
                    known[key] = self.encoding.indices(dim, self.extents, coords)
                parts.append(known[key])
            held.append(tuple(parts))
        return tuple(held)

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The exact shape of every device's part; along a rotated dimension, its slots."""
        return tuple(tuple(held.shape[-1] for held in parts) for parts in self.indices)

    def absent(self, device: int) -> Absent | None:
        """Which elements of a device's part stand in empty slots; ``None`` if none does."""
        return absent_of(self.indices[device], self.turned_by)

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


def distribute(values: Array, placement: Placement, component: int = -1) -> Distributed:
    """Cuts a whole tensor. Of a partial value the first contribution holds the tensor and the
    others the combiner's identity; ``component`` says which one it is of a combiner of several.
    Raises ``SemanticsError`` where the shapes differ."""
    if values.shape != placement.extents:
        raise SemanticsError(f"a tensor of shape {values.shape} is cut as {placement.extents}")
    cut: dict[tuple[BlockKey, int], Array] = {}
    parts: list[Array] = []
    for device, (block, contribution) in enumerate(
        zip(placement.blocks, placement.contributions, strict=True)
    ):
        key = (block, contribution)
        if key not in cut:
            part = cut_part(values, placement.indices[device], placement.turned_by)
            if contribution:
                part = np.full_like(part, _identity(placement, component))
            cut[key] = part
        parts.append(cut[key])
    return Distributed(tuple(parts), placement)


def _identity(placement: Placement, component: int) -> float:
    partial = placement.encoding.partial
    assert partial is not None
    identity = COMBINERS[partial.kind].identity
    return identity[component if len(identity) > 1 else 0]


Absent: TypeAlias = npt.NDArray[np.bool_]
"""Marks the elements of a part that stand in empty slots."""


def poison(dtype: np.dtype[Any]) -> float:
    """What stands where a device holds nothing: a number that shows up if it is used."""
    return float(np.iinfo(dtype).min) if dtype.kind == "i" else float("nan")


def absent_of(indices: Sequence[Indices], turned_by: Sequence[int | None]) -> Absent | None:
    """Which elements of a part with these indices stand in empty slots, in the part's shape."""
    if not any(by is not None and (indices[dim] < 0).any() for dim, by in enumerate(turned_by)):
        return None
    shape = tuple(held.shape[-1] for held in indices)
    absent = np.zeros(shape, np.bool_)
    for dim, by in enumerate(turned_by):
        if by is not None:
            absent |= along(indices[dim] < 0, dim, by, len(shape))
    return absent


def along(held: npt.NDArray[Any], dim: int, by: int | None, rank: int) -> npt.NDArray[Any]:
    """The index array of a dimension, ``[extent]`` or ``[rows of by, extent]``, in the shape that
    broadcasts to a part with ``rank`` dimensions."""
    shape = [1] * rank
    shape[dim] = held.shape[-1]
    if by is None:
        return held.reshape(shape)
    shape[by] = held.shape[0]
    return (held if by < dim else held.T).reshape(shape)


def cut_part(values: Array, indices: Sequence[Indices], turned_by: Sequence[int | None]) -> Array:
    """The part of a tensor with these indices, poisoned in empty slots."""
    if all(by is None for by in turned_by):
        return values[np.ix_(*indices)]
    part = values[_element_index(indices, turned_by)]
    absent = absent_of(indices, turned_by)
    if absent is not None:
        part[absent] = poison(part.dtype)
    return part


def _element_index(
    indices: Sequence[Indices], turned_by: Sequence[int | None]
) -> tuple[Indices, ...]:
    """The index arrays that select a part of a tensor; an empty slot selects element 0."""
    return tuple(
        along(np.maximum(held, 0), dim, by, len(indices))
        for dim, (held, by) in enumerate(zip(indices, turned_by, strict=True))
    )


def put_part(
    whole: Array,
    covered: npt.NDArray[np.bool_],
    part: Array,
    indices: Sequence[Indices],
    turned_by: Sequence[int | None],
) -> None:
    """Writes a part where it stands in a tensor, but for its empty slots, and notes what was
    written."""
    if all(by is None for by in turned_by):
        where = np.ix_(*indices)
        whole[where] = part
        covered[where] = True
        return
    places = np.broadcast_arrays(*_element_index(indices, turned_by))
    absent = absent_of(indices, turned_by)
    present = np.ones(part.shape, np.bool_) if absent is None else ~absent
    chosen = tuple(place[present] for place in places)
    whole[chosen] = part[present]
    covered[chosen] = True


def poisoned(value: Distributed) -> Distributed:
    """The same value with poison in every empty slot."""
    placement = value.placement
    if all(by is None for by in placement.turned_by):
        return value
    known: dict[tuple[int, BlockKey], Array] = {}
    parts: list[Array] = []
    for device, part in enumerate(value.parts):
        key = (id(part), placement.blocks[device])
        if key not in known:
            known[key] = _with_poison(part, placement.absent(device))
        parts.append(known[key])
    return Distributed(tuple(parts), placement)


def _with_poison(part: Array, absent: Absent | None) -> Array:
    if absent is None or absent.shape != part.shape:
        return part
    part = part.copy()
    part[absent] = poison(part.dtype)
    return part


def assemble(value: Distributed) -> Array:
    """The whole tensor that the parts stand for: contributions of a partial are combined in the
    order of their ranks. Raises ``SemanticsError`` if an element is held by no device."""
    return assemble_together((value,), range(value.placement.devices))[0]


def assemble_together(values: Sequence[Distributed], devices: Sequence[int]) -> tuple[Array, ...]:
    """As ``assemble``, from what some devices hold, for values that a combiner of several
    components combines together."""
    wholes = [np.zeros(value.placement.extents, load(value.parts[0]).dtype) for value in values]
    held = [np.zeros(value.placement.extents, np.bool_) for value in values]
    blocks: dict[tuple[BlockKey, ...], dict[int, int]] = {}
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
            placement = value.placement
            put_part(whole, covered, part, placement.indices[ordered[0]], placement.turned_by)
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
        return [
            distribute(whole, to, component)
            for component, (whole, to) in enumerate(zip(wholes, targets, strict=True))
        ]
    ranks = ranks_along(target.encoding, kept)
    parts: list[dict[int, Array]] = [{} for _ in targets]
    for rank in sorted(set(ranks)):
        members = [device for device in range(target.devices) if ranks[device] == rank]
        wholes = assemble_together(values, members)
        for device in members:
            for index, (whole, to) in enumerate(zip(wholes, targets, strict=True)):
                parts[index][device] = cut_part(whole, to.indices[device], to.turned_by)
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
    value = poisoned(value)
    placement = value.placement
    first: dict[tuple[BlockKey, int], int] = {}
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
