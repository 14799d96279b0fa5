"""The ranks of a group of cubes that finish heads, and who sends what until they have them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from starc.core.collectives.rectangles import Rectangle, cube_shape, element_shape
from starc.core.collectives.reduction_trees import Message, Tree, cube_tree, element_tree


def default_root(cubes: int, elements: int) -> int:
    """The rank of a group that a reduction to one rank ends at: the center of both meshes."""
    cube = Rectangle(*cube_shape(cubes)).center
    return cube * elements + Rectangle(*element_shape(elements)).center


def head_owners(heads: int, cubes: int, elements: int) -> tuple[int, ...]:
    """The ranks that own heads where they are spread, in order of heads: over cubes evenly, and so
    that neighbouring heads go to elements of different numbers, those of a cube to equal parts of
    it.

    >>> head_owners(8, 8, 8)
    (0, 9, 18, 27, 36, 45, 54, 63)
    >>> head_owners(8, 2, 2), head_owners(2, 8, 4), head_owners(4, 1, 8)
    ((0, 0, 1, 1, 2, 2, 3, 3), (0, 17), (0, 3, 4, 7))
    """
    owners: list[int] = []
    for cube in range(cubes):
        own = [head for head in range(heads) if head * cubes // heads == cube]
        wide = max(1, elements // max(1, len(own)))  # elements that a head has to itself
        owners += [
            cube * elements + index * elements // len(own) + head % wide
            for index, head in enumerate(own)
        ]
    return tuple(owners)


@dataclass(frozen=True)
class HeadScatter:
    """A reduction of several units, each to the rank ``owners[unit]`` of its own.

    In every cube each element gets, from all others of the cube, the units whose owners have its
    number; then these go from cube to cube, along a tree of the unit's own cube. Where all owners
    have the same number, the elements of a cube send to it along a tree, all units together.
    """

    owners: tuple[int, ...]
    cubes: int
    elements: int
    across: str = "mesh"  # of CUBE_TREES
    inside: str = "tree"  # of ELEMENT_TREES

    def cube(self, unit: int) -> int:
        """The cube of a unit's owner."""
        return self.owners[unit] // self.elements

    def element(self, unit: int) -> int:
        """The number of a unit's owner in its cube."""
        return self.owners[unit] % self.elements

    @property
    def element_root(self) -> int | None:
        """The element that has all units of its cube; None where they are spread."""
        numbers = {self.element(unit) for unit in range(len(self.owners))}
        return numbers.pop() if len(numbers) == 1 else None

    def tree(self, unit: int) -> Tree:
        """The way of a unit from cube to cube."""
        return cube_tree(self.across, self.cubes, self.cube(unit))

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """All messages. Elements exchange in turns; a cube sends a unit when its elements have."""
        found: list[Message] = []
        root = self.element_root
        shape = Rectangle(*element_shape(self.elements))
        inner = self.elements - 1
        if root is not None:
            tree = element_tree(self.inside, self.elements, root)
            inner = tree.rounds
            for cube in range(self.cubes):
                found += [
                    Message(
                        m.round,
                        cube * self.elements + m.source,
                        cube * self.elements + m.target,
                        hops=m.hops,
                    )
                    for m in tree.messages
                ]
        for unit in range(len(self.owners)):
            column = self.element(unit)
            if root is None:
                found += [
                    Message(
                        turn,
                        cube * self.elements + (column + turn) % self.elements,
                        cube * self.elements + column,
                        unit,
                        shape.hops((column + turn) % self.elements, column),
                    )
                    for cube in range(self.cubes)
                    for turn in range(1, self.elements)
                ]
            found += [
                Message(
                    inner + m.round,
                    m.source * self.elements + column,
                    m.target * self.elements + column,
                    unit,
                    m.hops,
                )
                for m in self.tree(unit).messages
            ]
        return tuple(sorted(found))

    @property
    def rounds(self) -> int:
        return max((message.round for message in self.messages), default=0)

    def check(self) -> None:
        """Raises ``ValueError`` unless every rank's part of every unit reaches its owner once."""
        ranks = self.cubes * self.elements
        together = self.element_root is not None
        for unit, owner in enumerate(self.owners):
            merged = [{rank} for rank in range(ranks)]
            for message in self.messages:
                inside = message.source // self.elements == message.target // self.elements
                if message.unit != unit and not (together and inside):
                    continue
                if merged[message.target] & merged[message.source]:
                    raise ValueError(f"unit {unit} gets to rank {message.target} twice")
                merged[message.target] |= merged[message.source]
            if merged[owner] != set(range(ranks)):
                raise ValueError(f"the owner of unit {unit} gets {sorted(merged[owner])}")
