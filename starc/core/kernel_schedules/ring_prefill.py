"""Attention of a prompt whose keys go around a ring of cubes.

Every cube of a group has query heads of its own and needs all keys. It begins with the block of
keys that it holds; meanwhile the block goes on to the next cube of a ring, and so on: after
``cubes - 1`` rotations every cube has seen every block, and nothing is merged, for no two cubes
compute the same head. A block consists of shares, one a PE; query rows are split over PEs.

The neighbours on the ring are neighbours in the mesh of cubes where the group's rectangle has a
Hamiltonian cycle:

    >>> ring_order(2, 4)
    (0, 1, 2, 3, 7, 6, 5, 4)
    >>> step_hops(ring_order(2, 4), 4)
    (1, 1, 1, 1, 1, 1, 1, 1)

What a tile of query rows sees of a share is a prefix of the share's keys (of each of the two chunks
of a zigzag share), so that a tile of keys beyond it is skipped, whatever the map: 16 tiles of rows
on 16 tiles of keys are the triangular number of pairs both where positions lie in stretches and
where they are dealt out by tiles.

    >>> for keys in (CONTIGUOUS, Cyclic(32)):
    ...     problem = RingProblem(4, 4, query=512, start=0, context=512, keys=keys,
    ...                           rows=Cyclic(32), row_tile=32, key_tile=32)
    ...     problem.tiles, triangular(16)
    (136, 136)
    (136, 136)

The times differ, for all cubes wait for the block that is slowest to compute: with stretches the
first block is seen by all rows and the last one by few. In units of a block that every row sees:

    >>> stretches = [(8 - block - 0.5) / 8 for block in range(8)]
    >>> dealt = [0.5] * 8
    >>> [makespan(stretches, transfer, slots=2) for transfer in (0.05, 0.3)]
    [4.475, 5.0875]
    >>> [makespan(dealt, transfer, slots=2) for transfer in (0.05, 0.3)]
    [4.0, 4.0]
    >>> barrier_makespan(stretches)
    7.5
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from starc.core.sharding.shard_map import CONTIGUOUS, Contiguous, Cyclic, Offsets, ShardMap, Zigzag
from starc.core.tiling import ceil_div

__all__ = ["CONTIGUOUS", "Cyclic", "RingProblem", "RingSchedule", "Zigzag", "ring_order"]

Order = tuple[int, ...]

SLOTS = 3
"""Blocks that a cube has room for, its own one among them: one is read, one arrives, and one lets a
cube be ahead of the next one."""


# ---------------------------------------------------------------------------------------------
# The ring
# ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def ring_order(rows: int, columns: int) -> Order:
    """The cubes of a rectangle (numbered row-major) in the order of a ring through all of them.

    All steps go to a neighbour where that is possible: both extents above 1 and one of them even,
    or two cubes at most. Otherwise as few steps as possible go to a cube two hops away.

    >>> ring_order(1, 4), ring_order(1, 2), ring_order(1, 1)
    ((0, 1, 3, 2), (0, 1), (0,))
    """
    size = rows * columns
    if size < 1:
        raise ValueError(f"a rectangle of {rows} x {columns} cubes has no ring")
    for far in range(size + 1):
        found = _closed_walk(rows, columns, far)
        if found is not None:
            return found
    raise AssertionError("a grid has a closed walk of steps of at most two hops")


def _closed_walk(rows: int, columns: int, far: int) -> Order | None:
    """The first cycle through all cubes with at most ``far`` steps of two hops."""
    size = rows * columns
    if size == 1:
        return (0,)
    if size > 2 and far == 0 and (min(rows, columns) == 1 or size % 2):
        return None  # a line has no cycle; in a grid of odd size the colours do not alternate

    def distance(a: int, b: int) -> int:
        return abs(a // columns - b // columns) + abs(a % columns - b % columns)

    def extend(path: list[int], left: int) -> bool:
        last = path[-1]
        if len(path) == size:
            closing = distance(last, 0)
            return closing == 1 or (closing == 2 and left > 0)
        for cube in range(size):
            hops = distance(last, cube)
            if cube in path or hops > 2 or (hops == 2 and left == 0):
                continue
            path.append(cube)
            if extend(path, left - (hops == 2)):
                return True
            path.pop()
        return False

    path = [0]
    return tuple(path) if extend(path, far) else None


def step_hops(order: Order, columns: int) -> tuple[int, ...]:
    """How many links of the mesh every step of a ring crosses, the last one back to the first."""
    following = (*order[1:], order[0])
    return tuple(
        abs(a // columns - b // columns) + abs(a % columns - b % columns)
        for a, b in zip(order, following, strict=True)
    )


@dataclass(frozen=True)
class RingSchedule:
    """Who has which block when: in step t a cube works on the block of the cube t places before it
    on the ring, which arrived with rotation t.

    >>> schedule = RingSchedule(ring_order(2, 2))
    >>> [schedule.source(0, step) for step in range(4)]
    [0, 2, 3, 1]
    >>> schedule.rotations
    3
    """

    order: Order
    slots: int = SLOTS

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(len(self.order))):
            raise ValueError(f"a ring passes every cube once, not {self.order}")
        if self.slots < 2:
            raise ValueError("one block is read while the next one arrives: two slots at least")

    @property
    def cubes(self) -> int:
        return len(self.order)

    @property
    def rotations(self) -> int:
        """How often blocks go on: one time less than there are cubes, for each has its own."""
        return self.cubes - 1

    def next(self, cube: int) -> int:
        """The cube that gets the blocks of ``cube``."""
        return self.order[(self.order.index(cube) + 1) % self.cubes]

    def previous(self, cube: int) -> int:
        """The cube whose blocks ``cube`` gets."""
        return self.order[self.order.index(cube) - 1]

    def source(self, cube: int, step: int) -> int:
        """The cube whose block ``cube`` works on in a step."""
        return self.order[(self.order.index(cube) - step) % self.cubes]

    def slot(self, step: int) -> int:
        """Where the block of a step lies."""
        return step % self.slots

    def credits(self, step: int, readers: int) -> int:
        """What the count of readings has to be before the block of ``step`` goes on to the next
        cube, each of whose ``readers`` counts every block that it has read: it goes to the slot
        that the next cube has read in step ``step + 1 - slots``.

        >>> [RingSchedule(ring_order(2, 4)).credits(step, readers=4) for step in range(7)]
        [0, 0, 4, 8, 12, 16, 20]
        """
        return max(0, step + 2 - self.slots) * readers


# ---------------------------------------------------------------------------------------------
# What is seen
# ---------------------------------------------------------------------------------------------


def chunks_below(keys: ShardMap, rank: int, ranks: int, extent: int, end: int) -> tuple[int, ...]:
    """How many positions below ``end`` a rank holds, in each of its stretches of local indices
    whose visible part is a prefix: one, or two of a zigzag map.

    >>> chunks_below(Cyclic(2), 1, 4, 64, 11), chunks_below(Zigzag(), 1, 4, 64, 50)
    ((3,), (8, 2))
    """

    def inside(first: int, size: int) -> int:
        return min(max(min(end, extent) - first, 0), size)

    match keys:
        case Cyclic():
            return (keys.count(rank, ranks, min(end, extent)),)
        case Contiguous():
            size = ceil_div(extent, ranks)
            return (inside(rank * size, size),)
        case Offsets(offsets):
            return (inside(offsets[rank], offsets[rank + 1] - offsets[rank]),)
        case Zigzag():
            size = ceil_div(extent, 2 * ranks)
            return (inside(rank * size, size), inside((2 * ranks - 1 - rank) * size, size))
        case _:
            raise ValueError(f"no closed form for{keys.suffix()}")


def triangular(tiles: int) -> int:
    """1 + 2 + ... + tiles."""
    return tiles * (tiles + 1) // 2


@dataclass(frozen=True)
class RingProblem:
    """Queries ``start .. start + query - 1`` of one head on every cube over ``context`` keys.

    ``keys`` deals out key positions to ranks (cube, PE), ``rows`` query rows to the PEs of a cube;
    a tile is ``row_tile`` consecutive local rows by ``key_tile`` consecutive local keys.
    """

    cubes: int
    pes: int
    query: int
    start: int
    context: int
    keys: ShardMap
    rows: ShardMap
    row_tile: int
    key_tile: int

    def row_tiles(self, pe: int) -> Iterator[tuple[int, int]]:
        """First and last query position of every row tile of a PE."""
        held = self.rows.positions(pe, self.pes, self.query)
        for first in range(0, len(held), self.row_tile):
            last = min(first + self.row_tile, len(held)) - 1
            yield self.start + int(held[first]), self.start + int(held[last])

    def share_tiles(self, cube: int, share: int, last: int) -> int:
        """Tiles of a share that a row tile up to position ``last`` visits."""
        rank, ranks = cube * self.pes + share, self.cubes * self.pes
        below = chunks_below(self.keys, rank, ranks, self.context, last + 1)
        return sum(ceil_div(held, self.key_tile) for held in below)

    def block_tiles(self, cube: int, pe: int) -> int:
        """Pairs of row and key tiles that a PE computes of the block of a cube."""
        return sum(
            self.share_tiles(cube, share, last)
            for _, last in self.row_tiles(pe)
            for share in range(self.pes)
        )

    def pe_tiles(self, pe: int) -> int:
        """Pairs that a PE computes of all blocks: on every cube the same."""
        return sum(self.block_tiles(cube, pe) for cube in range(self.cubes))

    @property
    def tiles(self) -> int:
        """Pairs that the PEs of a cube compute: each is a matrix product with keys and one with
        values."""
        return sum(self.pe_tiles(pe) for pe in range(self.pes))

    @property
    def imbalance(self) -> float:
        """Pairs of the busiest PE over the mean."""
        return max(self.pe_tiles(pe) for pe in range(self.pes)) * self.pes / self.tiles

    @property
    def step_imbalance(self) -> float:
        """The same where the PEs of a cube end every step together: the pairs of the busiest PE of
        each block, over the mean."""
        busiest = sum(
            max(self.block_tiles(cube, pe) for pe in range(self.pes)) for cube in range(self.cubes)
        )
        return busiest * self.pes / self.tiles

    def block_costs(self) -> tuple[float, ...]:
        """What every block costs a cube, its slowest PE, in units of a block that all rows see."""
        whole = ceil_div(ceil_div(self.query, self.pes), self.row_tile) * self.pes
        share = ceil_div(ceil_div(self.context, self.cubes * self.pes), self.key_tile)
        return tuple(
            max(self.block_tiles(cube, pe) for pe in range(self.pes)) / (whole * share)
            for cube in range(self.cubes)
        )

    def sent_keys(self) -> int:
        """Keys (and values) that all PEs of a cube send on in all rotations, on average: what has
        been written, but for what the last cube of the ring does not send."""
        written = min(self.context, self.start + self.query)
        return (self.cubes - 1) * written // self.cubes


# ---------------------------------------------------------------------------------------------
# Times
# ---------------------------------------------------------------------------------------------


def makespan(costs: Sequence[float], transfer: float, slots: int = SLOTS) -> float:
    """When the last cube of a ring ends. ``costs[b]`` is the time that any cube computes on block
    b, ``transfer`` that of a block from a cube to the next, ``slots`` the blocks that a cube has
    room for, its own one among them, whose place is used again.

    A block is sent on while it is computed, as soon as the next cube has a free slot: one whose
    block it has computed and sent on. Cube i begins with block i.
    """
    RingSchedule(tuple(range(len(costs))), slots)  # checks the number of slots
    cubes = range(len(costs))
    arrived = [0.0 for _ in cubes]
    computed: list[list[float]] = [[0.0 for _ in cubes]]  # by steps, the first one's at 1
    sent: list[list[float]] = [[0.0 for _ in cubes]]
    for step in cubes:
        begun = [max(arrived[cube], computed[-1][cube]) for cube in cubes]
        computed.append([begun[cube] + costs[cube - step] for cube in cubes])
        free = [0.0 for _ in cubes]
        before = step + 2 - slots  # steps of the next cube after which the slot is free
        if before > 0:
            free = [max(computed[before][cube], sent[before][cube]) for cube in cubes]
        following = [free[(cube + 1) % len(costs)] for cube in cubes]
        sent.append(
            [transfer + max(begun[cube], sent[-1][cube], following[cube]) for cube in cubes]
        )
        arrived = [sent[-1][cube - 1] for cube in cubes]
    return round(max(computed[-1]), 9)


def barrier_makespan(costs: Sequence[float]) -> float:
    """The same where all cubes begin every step together: in every step one of them works on the
    block that takes longest."""
    return len(costs) * max(costs)
