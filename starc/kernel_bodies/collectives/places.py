"""Where the pieces of an exchanged value lie: on the device that has it whole, and on its owner.

What devices exchange is cut into *pieces*, boxes of one shape that are numbered row-major over the
part of one owner. A ``Cut`` says where along a dimension the pieces of every owner lie in the
coarser value, and which pieces an owner does not have: shards may be uneven, cyclic or rotated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import gcd, prod

import numpy as np
import numpy.typing as npt

from starc.core.memory.layout import BLOCK_COLUMNS, BLOCKED_ROWS
from starc.core.quasi_affine.expressions import Const, Expression, Table, expression
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.core.sharding.shard_map import Cyclic
from starc.core.tiling import divisors
from starc.kernel_bodies.context import DEVICE
from starc.kernel_bodies.shards import Shard

MOST_TABLED = 1 << 14
"""Places of pieces that a table may list where they follow no formula."""

Place = list[Expression | int]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cut:
    """How a dimension of a value is cut into the shards of a group.

    ``extent`` is that of a shard. A piece takes ``fits(e)`` positions, which are consecutive in the
    coarser value and all of one shard, or all absent.
    """

    extent: int
    mesh: Mesh
    axes: tuple[AxisRef, ...]
    coarse: Encoding
    fine: Encoding
    dim: int
    whole: int  # global extent of the dimension

    @property
    def rotated_by(self) -> int | None:
        """The dimension whose index turns the shards."""
        return self.fine.rotated_by(self.dim)

    def fits(self, extent: int) -> bool:
        """Whether pieces of this extent are possible."""
        if self.extent % extent:
            return False
        return extent == 1 if self.rotated_by is not None else self._grain % extent == 0

    @cached_property
    def _grain(self) -> int:
        """What divides the lengths of all stretches of consecutive places; 0 where there are no
        places."""
        return _grain(self.mesh, self.axes, self.coarse, self.fine, self.dim, self.whole)

    @cached_property
    def places(self) -> Mapping[tuple[int, int], Integers]:
        """By device and owner, the places in the coarser value of what the owner holds; equal ones
        are one object."""
        return _places(self.mesh, self.axes, self.coarse, self.fine, self.dim, self.whole)

    def at(
        self, owner: Expression, index: Expression, extent: int, row: Expression | None
    ) -> tuple[Expression, list[Expression]]:
        """The start in the coarser value of piece ``index`` (of ``extent`` positions) of a shard,
        and what must not be negative for there to be one."""
        if self.rotated_by is not None:
            return self._rotated(owner, index, row)
        size = self.mesh.refs_size(self.axes)
        shards = {id(found): found[::extent] for found in self.places.values()}
        most = self.extent // extent
        conditions: list[Expression] = []
        if any(len(found) != most for found in shards.values()):
            lengths = {name: len(found) for name, found in shards.items()}
            counts = {key: lengths[id(found)] for key, found in self.places.items()}
            conditions.append(_lookup(counts, size, owner) - 1 - index)
        steps = {int(step) for found in shards.values() for step in np.unique(np.diff(found))}
        if len(steps) > 1:
            places = {key: shards[id(found)] for key, found in self.places.items()}
            return self._listed(places, owner, index, most), conditions
        starts = {name: int(found[0]) if len(found) else 0 for name, found in shards.items()}
        first = {key: starts[id(found)] for key, found in self.places.items()}
        step = steps.pop() if steps else 0
        return _lookup(first, size, owner) + index * step, conditions

    def _listed(
        self,
        places: Mapping[tuple[int, int], Integers],
        owner: Expression,
        index: Expression,
        most: int,
    ) -> Expression:
        devices, size = self.mesh.size, self.mesh.refs_size(self.axes)
        if devices * size * most > MOST_TABLED:
            return self._listed_by_owner(places, owner, index, most)
        values = np.zeros((devices, size, most), np.int64)
        for (device, rank), found in places.items():
            values[device, rank, : len(found)] = found
        number = (DEVICE * size + owner) * most + index
        return Table(tuple(int(value) for value in values.ravel()), number)

    def _listed_by_owner(
        self,
        places: Mapping[tuple[int, int], Integers],
        owner: Expression,
        index: Expression,
        most: int,
    ) -> Expression:
        """The same table where all devices have the parts of an owner at the same places."""
        devices, size = self.mesh.size, self.mesh.refs_size(self.axes)
        values = np.zeros((size, most), np.int64)
        for rank in range(size):
            found = places[0, rank]
            values[rank, : len(found)] = found
            if any(places[d, rank] is not found for d in range(1, devices)) and not all(
                np.array_equal(places[d, rank], found) for d in range(1, devices)
            ):
                raise ValueError(f"the places of {devices * size * most} pieces follow no formula")
        return Table(tuple(int(value) for value in values.ravel()), owner * most + index)

    def _rotated(
        self, owner: Expression, index: Expression, row: Expression | None
    ) -> tuple[Expression, list[Expression]]:
        dealt = self.fine.dims[self.dim]
        if self.coarse.ranks(self.dim) > 1 or row is None or not isinstance(dealt.map, Cyclic):
            raise ValueError("rotated shards are cut from whole dimensions alone")
        ranks = self.fine.ranks(self.dim)
        shard = Shard(dealt.map, ranks, self.whole, owner).at_row(row)
        # Whole rounds give everybody as much, whoever is the first.
        is_even = self.whole % (ranks * dealt.map.block) == 0
        return shard.position(index), [] if is_even else [shard.count - 1 - index]


@lru_cache(maxsize=256)
def _places(
    mesh: Mesh, axes: tuple[AxisRef, ...], coarse: Encoding, fine: Encoding, dim: int, whole: int
) -> Mapping[tuple[int, int], Integers]:
    result: dict[tuple[int, int], Integers] = {}
    coordinates = list(mesh.devices())
    ranks = [(coarse.rank(dim, found), fine.rank(dim, found)) for found in coordinates]
    held: dict[tuple[int, int], Integers] = {}
    for group in mesh.groups(axes):
        for device in group:
            for owner, member in enumerate(group):
                key = (ranks[device][0], ranks[member][1])
                if key not in held:
                    own = np.asarray(coarse.global_indices(dim, whole, coordinates[device]))
                    wanted = np.asarray(fine.global_indices(dim, whole, coordinates[member]))
                    found = np.searchsorted(own, wanted)
                    if len(wanted) and (
                        found[-1] >= len(own) or not np.array_equal(own[found], wanted)
                    ):
                        raise ValueError("shards are not parts of what they are cut from")
                    held[key] = found.astype(np.int64)
                result[device, owner] = held[key]
    return result


@lru_cache(maxsize=256)
def _grain(
    mesh: Mesh, axes: tuple[AxisRef, ...], coarse: Encoding, fine: Encoding, dim: int, whole: int
) -> int:
    grain = 0
    places = _places(mesh, axes, coarse, fine, dim, whole)
    for found in {id(found): found for found in places.values()}.values():
        starts = np.flatnonzero(np.diff(found) != 1) + 1
        grain = gcd(grain, len(found), *map(int, starts))
    return grain


def _lookup(values: Mapping[tuple[int, int], int], size: int, owner: Expression) -> Expression:
    """A number by (device, owner)."""
    devices = max(device for device, _ in values) + 1
    by_owner = [[values[d, rank] for d in range(devices)] for rank in range(size)]
    if all(len(set(row)) == 1 for row in by_owner):
        column = [row[0] for row in by_owner]
        step = column[1] - column[0] if size > 1 else 0
        if all(value == column[0] + step * rank for rank, value in enumerate(column)):
            return owner * step + column[0]
        return Table(tuple(column), owner)
    flat = tuple(values[d, rank] for d in range(devices) for rank in range(size))
    return Table(flat, DEVICE * size + owner)


@dataclass(frozen=True)
class Box:
    """The pieces of a part of a value; ``extents`` divide its ``shape``. Pieces are numbered
    row-major, but those that lie one below the other in a block of an activation follow each other,
    so that consecutive numbers are consecutive in memory."""

    shape: tuple[int, ...]
    extents: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(s // e for s, e in zip(self.shape, self.extents, strict=True))

    @property
    def count(self) -> int:
        return prod(self.counts)

    @property
    def columns(self) -> int:
        return self.extents[-1]

    @property
    def rows(self) -> int:
        return prod(self.extents[:-1])

    @property
    def band(self) -> int:
        """How many pieces lie one below the other in a block."""
        tall = [count for count in self.counts[:-1] if count > 1]
        if len(tall) != 1 or self.columns != BLOCK_COLUMNS or BLOCKED_ROWS % self.rows:
            return 1
        band = BLOCKED_ROWS // self.rows
        return band if tall[0] % band == 0 else 1

    def indices(self, number: Expression) -> list[Expression]:
        """The coordinates of a piece in pieces."""
        if self.band > 1:
            return self._banded(number)
        result: list[Expression] = []
        inner = 1
        for dim, count in reversed(list(enumerate(self.counts))):
            if count == 1:
                result.append(Const(0))
            else:
                index = number // inner if inner > 1 else number
                outermost = prod(self.counts[:dim]) == 1
                result.append(index if outermost else index % count)
            inner *= count
        return result[::-1]

    def _banded(self, number: Expression) -> list[Expression]:
        band, across = self.band, self.counts[-1]
        row, column = number % band, number // band
        if self.count > band * across:
            row = number // (band * across) * band + row
            column = column % across
        last = len(self.shape) - 1
        return [
            column if dim == last else row if count > 1 else Const(0)
            for dim, count in enumerate(self.counts)
        ]


def box_of(shape: Sequence[int], tile: tuple[int, int], cuts: Mapping[int, Sequence[Cut]]) -> Box:
    """The largest pieces of at most ``tile`` rows x columns whose extents divide ``shape`` and fit
    the cuts of its dimensions. A dimension that turns shards is taken one index at a time."""
    single = {
        cut.rotated_by for found in cuts.values() for cut in found if cut.rotated_by is not None
    }

    def largest(dim: int, limit: int) -> int:
        if dim in single:
            return 1
        own = cuts.get(dim, ())
        legal = (
            d
            for d in reversed(divisors(shape[dim]))
            if d <= max(1, limit) and all(cut.fits(d) for cut in own)
        )
        return next(legal, 1)

    extents = [1] * len(shape)
    last = len(shape) - 1
    extents[last] = largest(last, tile[1])
    room = tile[0]
    for dim in range(last - 1, -1, -1):
        extents[dim] = largest(dim, room)
        room //= extents[dim]
        if extents[dim] < shape[dim]:
            break
    return Box(tuple(shape), tuple(extents))


@dataclass(frozen=True)
class Places:
    """Where the pieces of one value lie in the operand and in the result: along the dimensions of
    ``operand`` and ``result`` at an owner's part of the whole, else where they lie in a part."""

    box: Box
    operand: Mapping[int, Cut]
    result: Mapping[int, Cut]
    rows: Mapping[int, Callable[[Expression], Expression]] = field(
        default_factory=dict[int, Callable[[Expression], Expression]]
    )

    def in_operand(self, owner: Expression, number: Expression) -> tuple[Place, list[Expression]]:
        """Start coordinates of a piece of an owner's part in an operand, and the conditions (not
        negative) under which there is one."""
        return self._in(self.operand, owner, number)

    def in_result(self, owner: Expression, number: Expression) -> tuple[Place, list[Expression]]:
        """The same in a result."""
        return self._in(self.result, owner, number)

    def _in(
        self, cuts: Mapping[int, Cut], owner: Expression, number: Expression
    ) -> tuple[Place, list[Expression]]:
        indices = self.box.indices(number)
        starts: Place = [
            index * extent for index, extent in zip(indices, self.box.extents, strict=True)
        ]
        conditions: list[Expression] = []
        for dim, cut in cuts.items():
            row: Expression | None = None
            if cut.rotated_by is not None:
                row = self.rows[cut.rotated_by](expression(starts[cut.rotated_by]))
            starts[dim], found = cut.at(owner, indices[dim], self.box.extents[dim], row)
            conditions += found
        return starts, conditions
