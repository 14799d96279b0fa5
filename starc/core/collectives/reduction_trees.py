"""Reductions over meshes of memory cubes and their processing elements: who sends what to whom.

A plan is a set of messages between ranks, each with the round that it may go in: a rank sends when
it has what it sends, and takes one message a round. Plans are data; the bodies of kernels follow
them without a barrier, message by message.

Ranks of a rectangle count row by row. A ``Tree`` brings everything to its root; trees of two levels
compose to one over all ranks of a group, rank = cube * elements + element:

    >>> elements, cubes = pair_tree(2, 4), mesh_tree(2, 4)
    >>> elements.rounds, [f"{m.source}>{m.target}" for m in elements.messages if m.round == 3]
    (3, ['2>1'])
    >>> both = two_levels(cubes, elements)
    >>> len(both.messages), both.rounds, both.root
    (63, 6, 9)
    >>> fan = fan_out(64)
    >>> len(fan), fan[-1].round
    (4032, 63)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from starc.core.collectives.rectangles import Rectangle, cube_shape, element_shape

ELEMENT_TREES: Final = ("tree", "ring", "flat")
"""Reductions over the processing elements of a cube."""

INSIDE: Final = "tree"
ACROSS: Final = "mesh"
"""The reductions of few bytes, for which the number of rounds counts."""

CUBE_TREES: Final = ("mesh", "tree", "ring", "flat")
"""Reductions over the cubes of a group."""


@dataclass(frozen=True, order=True)
class Message:
    """``unit`` numbers what is sent where a plan sends several things; ``hops`` are the links of
    the mesh on the way."""

    round: int
    source: int
    target: int
    unit: int = 0
    hops: int = 1


@dataclass(frozen=True)
class Tree:
    """A reduction to one rank: ``parents`` of every rank (the root's is itself), ``children`` of
    every rank in the order in which their messages are merged."""

    root: int
    parents: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]
    distances: tuple[int, ...] = field(default=())  # hops of every rank's message

    @property
    def size(self) -> int:
        return len(self.parents)

    @cached_property
    def round_of(self) -> tuple[int, ...]:
        """The round in which each rank sends; of the root, that by which it has everything."""
        rounds = [0] * self.size

        def ready(rank: int) -> int:
            """The first round in which a rank may send."""
            taken = 0
            for child in self.children[rank]:
                taken = max(taken + 1, ready(child))
                rounds[child] = taken
            return taken + 1

        rounds[self.root] = ready(self.root) - 1
        return tuple(rounds)

    @property
    def rounds(self) -> int:
        """Rounds until the root has everything."""
        return self.round_of[self.root]

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """All messages, by round."""
        return tuple(
            sorted(
                Message(
                    self.round_of[rank],
                    rank,
                    parent,
                    hops=self.distances[rank] if self.distances else 1,
                )
                for rank, parent in enumerate(self.parents)
                if rank != self.root
            )
        )

    @property
    def most_children(self) -> int:
        return max(len(children) for children in self.children)

    def slot(self, rank: int) -> int:
        """Which of its parent's children a rank is."""
        return 0 if rank == self.root else self.children[self.parents[rank]].index(rank)

    def check(self) -> None:
        """Raises ``ValueError`` unless every rank's contribution reaches the root exactly once."""
        merged = [{rank} for rank in range(self.size)]
        sent: set[int] = set()
        for message in self.messages:
            if message.source in sent:
                raise ValueError(f"rank {message.source} sends twice")
            sent.add(message.source)
            twice = merged[message.target] & merged[message.source]
            if twice:
                raise ValueError(f"rank {message.target} gets {sorted(twice)} twice")
            merged[message.target] |= merged[message.source]
        if merged[self.root] != set(range(self.size)):
            raise ValueError(f"the root gets {sorted(merged[self.root])} of {self.size}")


def _tree(mesh: Rectangle, root: int, parents: Mapping[int, int]) -> Tree:
    """The tree of the given parents; the children of a rank in the order in which they are ready,
    and among these the nearest first."""
    below: list[list[int]] = [[] for _ in range(mesh.size)]
    for rank in range(mesh.size):
        if rank != root:
            below[parents[rank]].append(rank)

    def ready(rank: int) -> int:
        firsts = {child: ready(child) for child in below[rank]}
        below[rank].sort(key=lambda child: (firsts[child], mesh.hops(child, rank), child))
        taken = 0
        for child in below[rank]:
            taken = max(taken + 1, firsts[child])
        return taken + 1

    ready(root)
    return Tree(
        root,
        tuple(root if rank == root else parents[rank] for rank in range(mesh.size)),
        tuple(tuple(children) for children in below),
        tuple(0 if rank == root else mesh.hops(rank, parents[rank]) for rank in range(mesh.size)),
    )


# Reductions to one rank


def mesh_tree(rows: int, columns: int, root: int | None = None) -> Tree:
    """Every row converges from both sides on the root's column, then that on the root, which is at
    the center unless it is said. Every message is one hop; with the root at the center there are
    ``rows // 2 + columns // 2`` rounds for up to four rows and columns.

    >>> [mesh_tree(r, c).rounds for r, c in ((1, 1), (1, 2), (2, 2), (2, 4), (4, 4), (1, 8))]
    [0, 1, 2, 3, 4, 4]
    >>> mesh_tree(4, 4, root=0).rounds
    6
    """
    mesh = Rectangle(rows, columns)
    root = mesh.center if root is None else root
    row0, column0 = mesh.place(root)
    parents: dict[int, int] = {}
    for rank in range(mesh.size):
        row, column = mesh.place(rank)
        if column != column0:
            parents[rank] = mesh.rank(row, column + (1 if column < column0 else -1))
        elif row != row0:
            parents[rank] = mesh.rank(row + (1 if row < row0 else -1), column)
    return _tree(mesh, root, parents)


def pair_tree(rows: int, columns: int, root: int | None = None) -> Tree:
    """Pairs, pairs of pairs, and so on: ``ceil(log2(ranks))`` rounds. On a mesh of up to 2 x 4 with
    the root at the center every message is one hop: the outer columns send inwards, then rows, then
    the column beside the root's. A root elsewhere takes the places of the center's by exclusive or.

    >>> tree = pair_tree(2, 4)
    >>> tree.root, [(m.source, m.target) for m in tree.messages if m.round == 1]
    (1, [(0, 1), (3, 2), (4, 5), (7, 6)])
    >>> pair_tree(1, 5).rounds, pair_tree(4, 4).rounds
    (3, 4)
    """
    mesh = Rectangle(rows, columns)
    root = mesh.center if root is None else root
    parents: dict[int, int] = {}
    if mesh.size & (mesh.size - 1):
        for number in range(1, mesh.size):
            rank = (root + number) % mesh.size
            parents[rank] = (root + (number & (number - 1))) % mesh.size
        return _tree(mesh, root, parents)
    moved = root ^ mesh.center
    row0, column0 = mesh.place(mesh.center)
    for rank in range(mesh.size):
        row, column = mesh.place(rank)
        across, down = _from_gray(column ^ column0), _from_gray(row ^ row0)
        if across & 1:
            across -= 1
        elif down:
            down &= down - 1
        elif across:
            across &= across - 1
        else:
            continue
        parent = mesh.rank(_to_gray(down) ^ row0, _to_gray(across) ^ column0)
        parents[rank ^ moved] = parent ^ moved
    return _tree(mesh, root, parents)


def _to_gray(number: int) -> int:
    """The reflected code, in which neighbours differ in one bit."""
    return number ^ (number >> 1)


def _from_gray(code: int) -> int:
    number = 0
    while code:
        number ^= code
        code >>= 1
    return number


def ring_tree(rows: int, columns: int, root: int | None = None) -> Tree:
    """A chain around the ring of the mesh that ends at the root: ``ranks - 1`` rounds.

    >>> ring_tree(2, 4).rounds
    7
    """
    mesh = Rectangle(rows, columns)
    root = mesh.center if root is None else root
    ring = mesh.ring()
    first = ring.index(root)
    order = (*ring[first:], *ring[:first])
    return _tree(mesh, root, dict(zip(order[1:], order[:-1], strict=True)))


def flat_tree(rows: int, columns: int, root: int | None = None) -> Tree:
    """Every rank sends to the root, which takes one message a round: ``ranks - 1`` rounds."""
    mesh = Rectangle(rows, columns)
    root = mesh.center if root is None else root
    return _tree(mesh, root, {rank: root for rank in range(mesh.size) if rank != root})


TREES: Final = {"mesh": mesh_tree, "tree": pair_tree, "ring": ring_tree, "flat": flat_tree}


def cube_tree(name: str, cubes: int, root: int | None = None) -> Tree:
    """The tree of this name (of ``CUBE_TREES``) over so many cubes."""
    return TREES[name](*cube_shape(cubes), root)


def element_tree(name: str, elements: int, root: int | None = None) -> Tree:
    """The tree of this name (of ``ELEMENT_TREES``) over so many elements of a cube."""
    return TREES[name](*element_shape(elements), root)


def two_levels(cubes: Tree, elements: Tree) -> Tree:
    """One tree over all ranks of a group: in every cube to its root element, between the roots of
    cubes to the group's. A rank merges the elements of its cube first."""
    per_cube = elements.size

    def rank(cube: int, element: int) -> int:
        return cube * per_cube + element

    parents: list[int] = []
    children: list[tuple[int, ...]] = []
    distances: list[int] = []
    for cube in range(cubes.size):
        for element in range(per_cube):
            own = tuple(rank(cube, child) for child in elements.children[element])
            if element != elements.root:
                parents.append(rank(cube, elements.parents[element]))
                distances.append(elements.distances[element])
                children.append(own)
                continue
            parents.append(rank(cubes.parents[cube], element))
            distances.append(cubes.distances[cube])
            children.append(own + tuple(rank(child, element) for child in cubes.children[cube]))
    root = rank(cubes.root, elements.root)
    return Tree(root, tuple(parents), tuple(children), tuple(distances))


def fan_out(ranks: int) -> tuple[Message, ...]:
    """Every rank sends to every other one, as a reduction whose result all of them have; round i
    goes i ranks ahead. What a tree is compared with."""
    return tuple(
        Message(distance, rank, (rank + distance) % ranks)
        for distance in range(1, ranks)
        for rank in range(ranks)
    )
