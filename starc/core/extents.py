"""Logical extents: how much of a buffer's physical shape each device really holds.

A buffer has one shape on every device, the largest shard of any. Where shards are uneven or empty,
a device holds a prefix of each dimension; where a shard map rotates the ranks by the row (requests
whose tokens are dealt out from another rank each), how many positions it holds depends on the row
as well, and is a prefix again, for local order is ascending.

    >>> mesh = Mesh("node", (Axis("x", 4),))
    >>> of_encoding(Encoding.replicated(mesh, 1).with_dim(0, mesh.all_axes()), (9,)).shapes
    ((3,), (3,), (3,), (0,))
    >>> of_encoding(Encoding.replicated(mesh, 1).with_dim(0, mesh.all_axes()), (8,)) is None
    True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from starc.core.sharding.encoding import Axis, Encoding, Mesh
from starc.core.sharding.shard_map import Cyclic

__all__ = ["Axis", "DeviceExtents", "Encoding", "LogicalExtents", "Mesh", "Rotation"]


@dataclass(frozen=True)
class DeviceExtents:
    """What one device holds of a buffer: a prefix of each dimension (``shape``). With ``rows``, how
    much of dimension ``dim`` depends on the local index along dimension ``by``."""

    shape: tuple[int, ...]
    dim: int = -1
    by: int = -1
    rows: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the device holds nothing of the buffer."""
        return 0 in self.shape or (bool(self.rows) and not any(self.rows))


@dataclass(frozen=True)
class Rotation:
    """A dimension whose ranks turn with the row: position p of a row whose global index along
    dimension ``by`` is b lies on rank ((p + offset) // block + b) mod ranks.

    ``extent`` is the size of the whole dimension, ``rank`` each device's rank along it. Device d
    holds the rows whose global indices are ``rows[held[d]]``, in local order.
    """

    dim: int
    by: int
    block: int
    offset: int
    ranks: int
    extent: int
    rank: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]
    held: tuple[int, ...]

    def counts(self, device: int) -> tuple[int, ...]:
        """How many positions of each of its rows a device holds."""
        dealt, rank = Cyclic(self.block), self.rank[device]
        found: dict[int, int] = {}

        def count(row: int) -> int:
            turned = (rank - row) % self.ranks
            if turned not in found:
                found[turned] = dealt.count(
                    turned, self.ranks, self.offset + self.extent
                ) - dealt.count(turned, self.ranks, self.offset)
            return found[turned]

        return tuple(count(row) for row in self.rows[self.held[device]])


@dataclass(frozen=True)
class LogicalExtents:
    """The extents of a buffer on every device, in the order of device ids. Where a dimension is
    rotated, ``shapes`` has its physical extent and ``rotation`` tells what of it is held."""

    shapes: tuple[tuple[int, ...], ...]
    rotation: Rotation | None = None

    def device(self, device: int) -> DeviceExtents:
        """The extents on one device."""
        shape, rotation = self.shapes[device], self.rotation
        if rotation is None:
            return DeviceExtents(shape)
        return DeviceExtents(shape, rotation.dim, rotation.by, rotation.counts(device))

    def problems(self, shape: Sequence[int], devices: int) -> list[str]:
        """What makes these extents no extents of a buffer of a physical ``shape``."""
        if len(self.shapes) != devices:
            return [f"extents of {len(self.shapes)} devices, the mesh has {devices}"]
        for extents in self.shapes:
            if len(extents) != len(shape):
                return [f"extents of {len(extents)} dimensions, the buffer has {len(shape)}"]
            if any(not 0 <= held <= most for held, most in zip(extents, shape, strict=True)):
                return [f"extents {list(extents)} exceed the shape {list(shape)}"]
        rotation = self.rotation
        if rotation is None:
            return []
        rank = len(shape)
        if not (0 <= rotation.by < rank and 0 <= rotation.dim < rank) or (
            rotation.by == rotation.dim
        ):
            return ["a dimension is rotated by one that does not exist"]
        if min(rotation.block, rotation.ranks) < 1 or min(rotation.offset, rotation.extent) < 0:
            return ["a rotation of no blocks or ranks"]
        if len(rotation.rank) != devices or len(rotation.held) != devices:
            return ["a rotation without a rank and rows of every device"]
        for device in range(devices):
            if not 0 <= rotation.held[device] < len(rotation.rows):
                return ["a rotation names rows that do not exist"]
            counts = rotation.counts(device)
            if len(counts) != self.shapes[device][rotation.by]:
                return ["a rotation has not as many rows as its device holds"]
            if max(counts, default=0) > shape[rotation.dim]:
                return ["a rotation holds more than the shape has room for"]
        return []


@lru_cache(maxsize=4096)
def of_encoding(encoding: Encoding, extents: tuple[int, ...]) -> LogicalExtents | None:
    """The logical extents of a tensor of global shape ``extents``; ``None`` where every device
    holds the whole physical shape. Raises ``ValueError`` where two dimensions are rotated."""
    physical = encoding.local_shape(extents)
    devices = tuple(encoding.mesh.devices())
    rotated = [dim for dim in range(len(extents)) if encoding.rotated_by(dim) is not None]
    if len(rotated) > 1:
        raise ValueError(f"dims {rotated[0]} and {rotated[1]} are both turned by the row")
    turned = rotated[0] if rotated else None
    shapes = tuple(
        tuple(
            physical[dim] if dim == turned else encoding.local_extent(dim, extent, coords)
            for dim, extent in enumerate(extents)
        )
        for coords in devices
    )
    if turned is not None:
        rotation = _rotation(encoding, turned, extents)
        rows = [rotation.counts(device) for device in range(len(devices))]
        if any(count != physical[turned] for counts in rows for count in counts):
            return LogicalExtents(shapes, rotation)
    return None if all(shape == physical for shape in shapes) else LogicalExtents(shapes)


def _rotation(encoding: Encoding, dim: int, extents: Sequence[int]) -> Rotation:
    dealt, by = encoding.dims[dim].map, encoding.rotated_by(dim)
    assert isinstance(dealt, Cyclic)
    assert by is not None
    rows: dict[tuple[int, ...], int] = {}
    held: list[int] = []
    ranks: list[int] = []
    for coords in encoding.mesh.devices():
        own = tuple(int(row) for row in encoding.global_indices(by, extents[by], coords))
        held.append(rows.setdefault(own, len(rows)))
        ranks.append(encoding.rank(dim, coords))
    return Rotation(
        dim=dim,
        by=by,
        block=dealt.block,
        offset=dealt.offset,
        ranks=encoding.ranks(dim),
        extent=extents[dim],
        rank=tuple(ranks),
        rows=tuple(rows),
        held=tuple(held),
    )
