"""The devices that a kernel speaks to: those of its group, by rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starc.core.quasi_affine.expressions import Expression, Table, expression
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.kernel_bodies.body import Body
from starc.kernel_bodies.context import DEVICE
from starc.kernel_bodies.shards import rank_expression


@dataclass(frozen=True)
class Group:
    """The group of a device along some axes: its size and the device's own rank."""

    mesh: Mesh
    axes: tuple[AxisRef, ...]
    rank: Expression

    @classmethod
    def of(cls, body: Body, mesh: Mesh, axes: Sequence[AxisRef]) -> Group:
        """The group, its rank a named value of ``body``."""
        return cls(mesh, tuple(axes), body.index("rank", rank_expression(mesh, axes)))

    @property
    def size(self) -> int:
        return self.mesh.refs_size(self.axes)

    def start(self, starts: Sequence[Sequence[int]], rank: Expression) -> Expression:
        """Where the slice of a rank begins, of ``starts`` by device and rank."""
        first = starts[0]
        if any(tuple(row) != tuple(first) for row in starts):
            flat = tuple(start for row in starts for start in row)
            return Table(flat, DEVICE * self.size + rank)
        if all(start == first[1] * i for i, start in enumerate(first)):
            return rank * first[1]
        return Table(tuple(first), rank)

    def turned(self, hops: Expression | int) -> Expression:
        """The rank that lies ``hops`` behind the own one, around the group."""
        return (self.rank + hops) % self.size

    def member(self, rank: Expression) -> Expression:
        """The device of a rank, which it is itself where the group is all devices in order."""
        if self.size == 1:
            return DEVICE
        (first, *others) = self.mesh.groups(self.axes)
        if not others and list(first) == list(range(self.size)):
            return rank
        return self.device(rank)

    def device(self, rank: Expression | int) -> Expression:
        """The device of a rank: a fixed distance for each rank where there is one, else a
        table."""
        groups = self.mesh.groups(self.axes)
        distances = {(group[i + 1] - group[i]) for group in groups for i in range(self.size - 1)}
        if len(distances) == 1:
            (distance,) = distances
            return DEVICE + (expression(rank) - self.rank) * distance
        members = {device: group for group in groups for device in group}
        flat = tuple(member for d in range(self.mesh.size) for member in members[d])
        return Table(flat, DEVICE * self.size + rank)
