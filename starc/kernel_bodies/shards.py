"""Where the positions of a sharded dimension lie, as expressions of the device.

A ``Shard`` is one dimension of a value as each device holds it. Counts and positions are
quasi-affine in the device (and, of rotated maps, in the row), so that the bodies of kernels bound
their loops and place their accesses by them.

    >>> from starc.core.quasi_affine.expressions import Var
    >>> cache = Shard(Cyclic(1), ranks=4, extent=10, rank=Var("r"))
    >>> str(cache.position(Var("i")))
    'i * 4 + r'
    >>> str(cache.count_below(10))
    '(r * -1 + 1) floordiv 4 + 3'
    >>> [cache.count_below(10).evaluate({"r": r}) for r in range(4)]
    [3, 3, 2, 2]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from xdsl.ir import SSAValue

from starc.core.quasi_affine.expressions import (
    Const,
    Expression,
    Min,
    Table,
    expression,
    maximum,
    minimum,
)
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.core.sharding.shard_map import CONTIGUOUS, Contiguous, Cyclic, Offsets, ShardMap, Zigzag
from starc.dialects.sharding import encoding_of, global_shape
from starc.kernel_bodies.context import DEVICE

ZERO: Final = Const(0)


@dataclass(frozen=True)
class Run:
    """Local indices ``begin .. end - 1`` of a shard whose positions follow one formula: index i has
    position ``((i + shift) floordiv block * ranks + rank) * block + (i + shift) mod block -
    offset``."""

    begin: Expression
    end: Expression
    block: int = 1
    ranks: int = 1
    rank: Expression = ZERO
    shift: Expression = ZERO
    offset: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether a local index is the position."""
        return self.ranks == self.block == 1 and self.rank == ZERO and self.shift == ZERO

    def position(self, index: Expression | int) -> Expression:
        """The position of a local index."""
        moved = expression(index) + self.shift
        turn = (moved // self.block * self.ranks + self.rank) * self.block
        return turn + moved % self.block - self.offset


@dataclass(frozen=True)
class Shard:
    """A dimension of ``extent`` positions over ``ranks`` ranks; ``rank`` is the device's.

    A rotated map has to be taken ``at_row`` before it says where anything lies.
    """

    map: ShardMap
    ranks: int
    extent: int
    rank: Expression

    @property
    def is_whole(self) -> bool:
        """Whether every device holds every position."""
        return self.ranks == 1

    @property
    def is_rotated(self) -> bool:
        return self.map.rotated_by is not None and self.ranks > 1

    @property
    def capacity(self) -> int:
        """The physical extent of a shard."""
        return self.map.capacity(self.ranks, self.extent)

    def of_rank(self, rank: Expression | int) -> Shard:
        """The shard of another rank."""
        return replace(self, rank=expression(rank))

    def at_row(self, row: Expression | int) -> Shard:
        """The shard in the row with this global index: what rank r holds there, rank ``r - row``
        holds in row 0."""
        if not isinstance(self.map, Cyclic) or not self.is_rotated:
            return self
        turned = replace(self.map, by=None)
        return replace(self, map=turned, rank=(self.rank - row) % self.ranks)

    def count_below(self, end: Expression | int) -> Expression:
        """How many of the positions ``0 .. end - 1`` the device holds; ``end`` is not negative."""
        self._require_row()
        end = _capped(expression(end), self.extent)
        if self.is_whole:
            return end
        match self.map:
            case Cyclic():
                offset = self.map.offset
                return self._dealt(end + offset) - self._dealt(Const(offset))
            case Zigzag():
                return sum(
                    (clamp(end - first, size) for first, size in self._chunks()), start=Const(0)
                )
            case _:
                first, size = self._block()
                return clamp(end - first, size)

    @property
    def count(self) -> Expression:
        """How many positions the device holds."""
        return self.count_below(self.extent)

    def position(self, index: Expression | int) -> Expression:
        """The position of a local index, which the device must hold."""
        runs = self.runs()
        result = runs[-1].position(index)
        if len(runs) == 2:  # zigzag: the second chunk lies behind the first
            jump = runs[1].rank - runs[0].rank
            is_second = clamp(expression(index) - runs[0].end + 1, 1)
            return runs[0].position(index) + _product(is_second, jump, self.extent)
        return result

    def runs(self) -> tuple[Run, ...]:
        """The local indices in runs of one formula each, in order."""
        self._require_row()
        if self.is_whole:
            return (Run(Const(0), Const(self.extent)),)
        match self.map:
            case Cyclic():
                offset = self.map.offset
                return (
                    Run(
                        Const(0),
                        self.count,
                        self.map.block,
                        self.ranks,
                        self.rank,
                        self._dealt(Const(offset)),
                        offset,
                    ),
                )
            case Zigzag():
                (first, held), (second, more) = self._chunks()
                held = clamp(Const(self.extent) - first, held)
                more = clamp(Const(self.extent) - second, more)
                return (
                    Run(Const(0), held, rank=first),
                    Run(held, held + more, rank=second - held),
                )
            case _:
                first, _ = self._block()
                return (Run(Const(0), self.count, rank=first),)

    def owner(self, position: Expression | int) -> Expression:
        """The rank that holds a position (of the row that ``at_row`` has chosen, as it counts
        there)."""
        self._require_row()
        position = expression(position)
        match self.map:
            case Cyclic():
                return (position + self.map.offset) // self.map.block % self.ranks
            case Zigzag():
                chunk = position // -(-self.extent // (2 * self.ranks))
                return minimum(chunk, 2 * self.ranks - 1 - chunk)
            case Offsets():
                ends = self.map.offsets[1:]
                owner: Expression = Const(0)
                for end in ends[:-1]:
                    owner = owner + clamp(position - end + 1, 1)
                return owner
            case _:
                return position // -(-self.extent // self.ranks)

    def _require_row(self) -> None:
        if self.is_rotated:
            raise ValueError("the positions of a rotated shard depend on the row")

    def _dealt(self, end: Expression) -> Expression:
        """How many of ``0 .. end - 1`` the rank holds where the rounds start with 0."""
        assert isinstance(self.map, Cyclic)
        block, ranks = self.map.block, self.ranks
        if end == Const(0):
            return end
        if block == 1:
            return (end - self.rank + (ranks - 1)) // ranks
        whole = end // (block * ranks) * block
        return whole + clamp(end % (block * ranks) - self.rank * block, block)

    def _block(self) -> tuple[Expression, Expression | int]:
        """First position and size of the block of a contiguous shard."""
        if isinstance(self.map, Offsets):
            offsets = self.map.offsets
            sizes = tuple(b - a for a, b in pairwise(offsets))
            return _entry(offsets[:-1], self.rank), _entry(sizes, self.rank)
        assert isinstance(self.map, Contiguous)
        size = -(-self.extent // self.ranks)
        return self.rank * size, size

    def _chunks(self) -> tuple[tuple[Expression, int], tuple[Expression, int]]:
        """First positions and size of the two chunks of a zigzag shard."""
        size = -(-self.extent // (2 * self.ranks))
        return (self.rank * size, size), ((2 * self.ranks - 1 - self.rank) * size, size)


def clamp(value: Expression, most: Expression | int) -> Expression:
    """``value`` within 0 and ``most``."""
    return maximum(0, minimum(value, most))


def _capped(value: Expression, most: int) -> Expression:
    """``min(value, most)``, as it is where it has such a bound already."""
    if isinstance(value, Min):
        ends = [side.value for side in (value.left, value.right) if isinstance(side, Const)]
        if any(end <= most for end in ends):
            return value
    return minimum(value, most)


def _entry(values: tuple[int, ...], index: Expression) -> Expression:
    if isinstance(index, Const):
        return Const(values[index.value])
    return Table(values, index)


def _product(is_taken: Expression, value: Expression, most: int) -> Expression:
    """``value``, at most ``most``, where ``is_taken`` is 1, and 0 where it is 0."""
    return minimum(is_taken * most, value)


def rank_expression(mesh: Mesh, axes: Sequence[AxisRef]) -> Expression:
    """The rank of the device along an axis list.

    >>> from starc.core.sharding.mesh import Axis
    >>> node = Mesh("node", (Axis("gpu", 2), Axis("xcd", 4)))
    >>> str(rank_expression(node, [AxisRef("xcd")])), str(rank_expression(node, [AxisRef("gpu")]))
    ('device mod 4', 'device floordiv 4')
    """
    size = mesh.refs_size(axes)
    if size == 1:
        return Const(0)
    return of_devices([mesh.rank(axes, coords) for coords in mesh.devices()])


def of_devices(values: Sequence[int]) -> Expression:
    """An integer of each device: ``device floordiv w mod n`` or linear where it is, else a
    table."""
    devices = range(len(values))
    size = max(values) + 1
    for width in range(1, len(values) + 1):
        if all(values[d] == d // width % size for d in devices):
            step: Expression = DEVICE if width == 1 else DEVICE // width
            return step if len(values) <= width * size else step % size
    step_of = values[1] - values[0] if len(values) > 1 else 0
    if all(value == values[0] + step_of * d for d, value in enumerate(values)):
        return DEVICE * step_of + values[0]
    return Table(tuple(values), DEVICE)


def shard_of(value: SSAValue, dim: int, mesh: Mesh) -> Shard:
    """A dimension of a local value. A value without encoding is whole on every device."""
    shape = global_shape(value.type)  # type: ignore[arg-type]
    encoding = encoding_of(value.type, mesh)
    if encoding is None or encoding.ranks(dim) == 1:
        return Shard(CONTIGUOUS, 1, shape[dim], Const(0))
    sharding = encoding.dims[dim]
    rank = rank_expression(mesh, sharding.axes)
    return Shard(sharding.map, encoding.ranks(dim), shape[dim], rank)


def global_row(value: SSAValue, by: int, row: Expression | int, mesh: Mesh) -> Expression:
    """The global index along dimension ``by`` of a local one."""
    return shard_of(value, by, mesh).position(row)
