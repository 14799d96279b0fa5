"""Chips made of memory cubes: where PEs and routers stand, and the ways between them.

A SIP is a mesh of cubes, a cube a mesh of PEs. Nodes of a SIP are its PEs, in the order of its
devices, then one router for each cube of the mesh, also of cubes that an illustration leaves empty.
A PE has links to its neighbours in the cube and one to the cube's router; routers have links to
their neighbours. All ways are XY: along the row first, then along the column; between cubes by way
of the routers, within a cube from PE to PE.

The mesh axes are ``sip``, ``group``, ``cube`` and ``pe``. A group of C cubes is a rectangle of
rows and columns, and groups stand row by row beside each other:

    >>> [place(GRID, 8, 0, cube) for cube in range(8)]
    [0, 1, 2, 3, 4, 5, 6, 7]
    >>> [place(GRID, 4, 1, cube) for cube in range(4)]
    [2, 3, 6, 7]
    >>> xy_path(0, 7, 4)
    [0, 1, 2, 3, 7]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starc.targets.target import Target

AXES: Final = ("sip", "group", "cube", "pe")
"""Axes of a node's mesh, outer to inner."""
UCIE: Final = "ucie"
NOC: Final = "noc"
PE_MESH: Final = "pe_mesh"
CLASSES: Final = (PE_MESH, NOC, UCIE)
"""Classes of links, the shortest first."""


@dataclass(frozen=True)
class Grid:
    """Rows and columns of the cubes of a SIP and of the PEs of a cube."""

    cube_rows: int
    cube_columns: int
    pe_rows: int
    pe_columns: int

    @property
    def cubes(self) -> int:
        return self.cube_rows * self.cube_columns

    @property
    def pes(self) -> int:
        return self.pe_rows * self.pe_columns

    @classmethod
    def of(cls, target: Target) -> Grid:
        """The grid of a target that has one."""
        return cls(*target.grid)


GRID: Final = Grid(4, 4, 2, 4)


def group_shape(grid: Grid, cubes: int) -> tuple[int, int]:
    """Rows and columns of a group of so many cubes: as nearly square as a power of two can be, and
    at least as wide as high; wider where the mesh has no more columns for such groups."""
    columns = 1
    while columns < grid.cube_columns and columns * columns < cubes:
        columns *= 2
    return max(1, cubes // columns), columns


def place(grid: Grid, cubes: int, group: int, cube: int) -> int:
    """The cube of the mesh, counted row by row, that is cube ``cube`` of a group of ``cubes``."""
    rows, columns = group_shape(grid, cubes)
    down, across = divmod(group, grid.cube_columns // columns)
    row, column = divmod(cube, columns)
    return (down * rows + row) * grid.cube_columns + across * columns + column


def xy_path(start: int, end: int, columns: int) -> list[int]:
    """The nodes of a mesh, counted row by row, from one to another: along the row, then along the
    column, both ends included."""
    nodes = [start]
    row, column = divmod(start, columns)
    last_row, last_column = divmod(end, columns)
    while column != last_column:
        column += 1 if last_column > column else -1
        nodes.append(row * columns + column)
    while row != last_row:
        row += 1 if last_row > row else -1
        nodes.append(row * columns + column)
    return nodes


@dataclass(frozen=True)
class Network:
    """The nodes of a SIP and their links, each with the class of its servers: links between PEs,
    and those of routers."""

    grid: Grid
    cubes: tuple[int, ...]  # of each PE, the cube of the mesh
    pes: tuple[int, ...]  # of each PE, its number in the cube
    links: tuple[tuple[int, int, str], ...]  # those between PEs first

    @classmethod
    def of(cls, target: Target) -> Network:
        """The network of a SIP of a target."""
        return network(Grid.of(target), tuple(size for _, size, _, _ in target.mesh[1:]))

    @cached_property
    def next_nodes(self) -> list[list[int]]:
        """The node to go to from each for each other; -1 where one is there already."""
        nodes = range(self.nodes)
        return [
            [-1 if start == end else self.path(start, end)[1] for end in nodes] for start in nodes
        ]

    @lru_cache(maxsize=16)  # noqa: B019 - networks are cached too
    def weights(self, near: int, far: int) -> list[list[int]]:
        """The sums of the ways between any two nodes: ``far`` for a link between two routers,
        ``near`` for another one."""
        first = len(self.cubes)
        weights: list[list[int]] = []
        for start in range(self.nodes):
            row: list[int] = []
            for end in range(self.nodes):
                path = self.path(start, end)
                routers = sum(min(pair) >= first for pair in pairwise(path))
                row.append(routers * far + (len(path) - 1 - routers) * near)
            weights.append(row)
        return weights

    @property
    def nodes(self) -> int:
        return len(self.cubes) + self.grid.cubes

    def router(self, cube: int) -> int:
        """The node that is the router of a cube."""
        return len(self.cubes) + cube

    def path(self, start: int, end: int) -> list[int]:
        """The nodes on the way between two nodes, both included."""
        count = len(self.cubes)
        if start == end:
            return [start]
        if max(start, end) < count and self.cubes[start] == self.cubes[end]:
            first = start - self.pes[start]
            inside = xy_path(self.pes[start], self.pes[end], self.grid.pe_columns)
            return [first + pe for pe in inside]
        source = self.cubes[start] if start < count else start - count
        sink = self.cubes[end] if end < count else end - count
        between = [self.router(cube) for cube in xy_path(source, sink, self.grid.cube_columns)]
        before = [start] if start < count else []
        return before + between + ([end] if end < count else [])


@lru_cache(maxsize=64)
def network(grid: Grid, sizes: tuple[int, ...]) -> Network:
    """The network of a SIP with ``sizes`` groups, cubes of a group and PEs of a cube."""
    groups, cubes, pes = sizes
    places = [place(grid, cubes, g, c) for g in range(groups) for c in range(cubes)]
    count = len(places) * pes
    mesh: list[tuple[int, int, str]] = []
    for k in range(len(places)):
        for a, b in _neighbours(pes, grid.pe_columns):
            mesh.append((k * pes + a, k * pes + b, PE_MESH))
    routers: list[tuple[int, int, str]] = []
    for k, cube in enumerate(places):
        for pe in range(k * pes, (k + 1) * pes):
            routers += [(pe, count + cube, NOC), (count + cube, pe, NOC)]
    for a, b in _neighbours(grid.cubes, grid.cube_columns):
        routers.append((count + a, count + b, NOC))
    return Network(
        grid,
        tuple(cube for cube in places for _ in range(pes)),
        tuple(pe for _ in places for pe in range(pes)),
        (*mesh, *routers),
    )


def _neighbours(count: int, columns: int) -> list[tuple[int, int]]:
    """Directed links between the first ``count`` nodes of a mesh."""
    links: list[tuple[int, int]] = []
    for node in range(count):
        for other in (node + 1, node + columns):
            beside = other == node + columns or other % columns
            if beside and other < count:
                links += [(node, other), (other, node)]
    return links
