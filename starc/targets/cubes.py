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

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from math import ceil, prod
from typing import TYPE_CHECKING, Any, Final

from starc.diagnostics import Diagnostic, InputError

if TYPE_CHECKING:
    from starc.targets.target import Target

AXES: Final = ("sip", "group", "cube", "pe")
"""Axes of a node's mesh, outer to inner."""
UCIE: Final = "ucie"
NOC: Final = "noc"
PE_MESH: Final = "pe_mesh"
CLASSES: Final = (PE_MESH, NOC, UCIE)
"""Classes of links, the shortest first."""

ENGINES: Final = ("cpu", "scheduler", "dma", "gemm", "math")
ISSUE_CLASSES: Final = (
    "composite",
    "load",
    "store",
    "send",
    "receive",
    "matrix",
    "math",
    "scheduler",
)
KEYS: Final = (
    "structure.cube_rows",
    "structure.cube_columns",
    "structure.pe_rows",
    "structure.pe_columns",
)
"""What makes a machine one of cubes; a file has all of them or none."""
QUEUE_COMMANDS: Final = "structure.queue_commands"
NEEDED: Final = (
    "structure.queue_bytes",
    "structure.queue_depth",
    QUEUE_COMMANDS,
    "compute.tile_m",
    "compute.tile_n",
    "compute.tile_k",
    "compute.tile_cycles",
    "compute.tile_cycles_f32",
    "memory.pseudo_channels",
    "memory.channel_granule",
    "caches.scratch_port",
    "latency.scratch",
    "latency.noc_hop",
    "latency.ucie",
    "fabric.pe_rate",
    "fabric.noc_rate",
    "fabric.ucie_rate",
    *(f"issue.{name}" for name in ISSUE_CLASSES),
)
"""Numbers of a machine of cubes that others do not have."""
_LEAST_UCIE_PS: Final = 512


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


def mesh_sizes(mesh: Mapping[str, int], grid: Grid, most_sips: int) -> tuple[int, int, int, int]:
    """Sizes of the four axes of an illustration mesh; an axis that is not given has size 1. Raises
    ``InputError`` with every rule that they violate."""
    cubes = [n for n in (1, 2, 4, 8, 16, 32, 64) if grid.cubes % n == 0]
    pes = [n for n in (1, 2, 4, 8, 16, 32, 64) if grid.pes % n == 0]
    problems = [
        Diagnostic(f"unknown mesh axis '{axis}'", key="--mesh", hint=f"axes: {', '.join(AXES)}")
        for axis in mesh
        if axis not in AXES
    ]
    sip, group, cube, pe = (mesh.get(axis, 1) for axis in AXES)
    if not 1 <= sip <= most_sips:
        problems.append(
            Diagnostic(f"mesh axis 'sip' can be 1 to {most_sips}, not {sip}", key="--mesh")
        )
    for axis, size, legal in (("cube", cube, cubes), ("pe", pe, pes)):
        if size not in legal:
            text = ", ".join(map(str, legal))
            problems.append(
                Diagnostic(f"mesh axis '{axis}' can be {text}, not {size}", key="--mesh")
            )
    if group < 1 or group * cube > grid.cubes:
        problems.append(
            Diagnostic(
                f"mesh axes 'group' and 'cube' make {group} x {cube} cubes, and a SIP has "
                f"{grid.cubes}",
                key="--mesh",
                hint=_groups(grid.cubes // cube, cube) if cube in cubes else None,
            )
        )
    if problems or not mesh:
        raise InputError(problems or Diagnostic("a mesh has at least one axis", key="--mesh"))
    return sip, group, cube, pe


def _groups(most: int, cube: int) -> str:
    return f"with cube={cube}, group can be " + (f"1 to {most}" if most > 1 else "1 alone")


def grid_of(structure: Mapping[str, int]) -> Grid | None:
    """The grid that the section ``structure`` of a machine file describes, if it does."""
    names = [key.partition(".")[2] for key in KEYS]
    if not all(name in structure for name in names):
        return None
    return Grid(*(structure[name] for name in names))


def rule_problems(
    number: Mapping[str, float], modes: Mapping[str, Any], present: Set[str]
) -> list[tuple[str, str]]:
    """What is wrong with the numbers of a machine of cubes: keys and messages. Nothing is said of
    a machine that has none of them. Of the keys that are ``present``, those without a ``number``
    have a value that other rules refuse."""
    found = [key for key in KEYS if key in present]
    own = [key for key in NEEDED if key in present]
    if not found:
        return [(key, "belongs to machines of cubes, and there are no cubes") for key in own]
    needed = (*KEYS, *NEEDED)
    problems = [
        (key, "is missing: a machine of cubes has it") for key in needed if key not in present
    ]
    if problems:
        return problems
    problems += [
        (key, f"is {int(number[key])}: a machine of cubes has 1")
        for key in (
            "structure.dies_per_carrier",
            "structure.stacks_per_carrier",
            "structure.cus_per_die",
            "memory.channels",
        )
        if number.get(key, 1) != 1
    ]
    if number.get("memory.interleave_granule", 4096) != 4096:
        problems.append(("memory.interleave_granule", "a machine of cubes has 4096"))
    if number.get("caches.l2_bytes", 0) or number.get("caches.mall_bytes_per_stack", 0):
        problems.append(("caches.l2_bytes", "a machine of cubes has no caches"))
    count = {key: int(number[key]) for key in needed if key in number}
    problems += _mesh_problems(number, count, modes)
    problems += _memory_problems(count)
    tile = 2 * prod(count.get(f"compute.tile_{axis}", 0) for axis in "mnk")
    for key in ("compute.tile_cycles", "compute.tile_cycles_f32"):
        if key in count and tile % count[key]:
            problems.append((key, f"is {count[key]}: {tile} FLOP of a tile do not divide by it"))
    if count.get("latency.ucie", _LEAST_UCIE_PS) < _LEAST_UCIE_PS:
        problems.append(("latency.ucie", f"a port takes at least {_LEAST_UCIE_PS} ps"))
    scratch = number.get("structure.scratch_bytes_per_cu")
    if scratch is not None and count.get("structure.queue_bytes", 0) >= scratch:
        problems.append(("structure.queue_bytes", f"leaves nothing of {int(scratch)} B of scratch"))
    return problems


def _mesh_problems(
    number: Mapping[str, float], count: Mapping[str, int], modes: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """What does not follow from the meshes of cubes and PEs: the PEs of a SIP, the cubes of its
    ports, the memories of its modes."""
    problems = [
        (key, f"is {count[key]}: it must be a power of two")
        for key in KEYS
        if key in count and count[key] & (count[key] - 1)
    ]
    if not all(key in count for key in KEYS):
        return problems
    grid = Grid(*(count[key] for key in KEYS))
    pes = grid.cubes * grid.pes
    if number.get("structure.dies", pes) != pes:
        dies = int(number["structure.dies"])
        problems.append(("structure.dies", f"is {dies}: the cubes have {pes} PEs"))
    if pes + grid.cubes > 255:
        problems.append(("structure.dies", f"{pes} PEs and {grid.cubes} routers: at most 255"))
    if 2 * pes > 256:
        problems.append(("structure.dies", f"is {pes}: at most 128 PEs a SIP"))
    for port in range(int(number.get("structure.ports", 0))):
        key = f"structure.port_cube_{port}"
        if key not in number:
            problems.append((key, "is missing: a machine of cubes has it for every port"))
        elif number[key] >= grid.cubes:
            problems.append((key, f"is {int(number[key])}: cubes are 0 to {grid.cubes - 1}"))
    for name, mode in modes.items():
        if (mode["dies_per_device"], mode["memory_domains"]) != (1, pes):
            message = (
                "a device of a machine of cubes is a PE, with memory of its own: "
                f"dies_per_device is 1 and memory_domains {pes}"
            )
            problems.append((f"modes.{name}", message))
    return problems


def _memory_problems(count: Mapping[str, int]) -> list[tuple[str, str]]:
    """What is wrong with the channels of a PE's memory."""
    key = "memory.channel_granule"
    if key not in count or "memory.pseudo_channels" not in count:
        return []
    channels, granule = count["memory.pseudo_channels"], count[key]
    if channels & (channels - 1) or granule & (granule - 1) or granule < 128:
        return [(key, "channels and their granule are powers of two, from 128 B on")]
    if channels * granule > 4096:
        return [(key, f"{channels} channels of {granule} B: at most 4096 B a round")]
    return []


def default_sizes(grid: Grid) -> list[int]:
    """Groups, cubes of a group and PEs of a cube of a whole SIP: groups of half of its cubes."""
    cubes = max(1, grid.cubes // 2)
    return [grid.cubes // cubes, cubes, grid.pes]


def with_cubes(
    target: Target, grid: Grid, sizes: Sequence[int], number: Mapping[str, float]
) -> Target:
    """The target of a machine file with cubes: ``target`` is what it has in common with others."""
    count = {key: int(number[key]) for key in NEEDED}
    groups, cubes, pes = sizes
    tile = tuple(count[f"compute.tile_{axis}"] for axis in "mnk")
    flops = 2 * prod(tile)
    cycle_ps = target.cycle_ps
    rates = {
        PE_MESH: count["fabric.pe_rate"],
        NOC: count["fabric.noc_rate"],
        UCIE: count["fabric.ucie_rate"],
    }
    side = target.mall_latency_ps
    return replace(
        target,
        mesh=(
            (AXES[0], target.gpus, "outer", UCIE),
            (AXES[1], groups, "outer", NOC),
            (AXES[2], cubes, "inner", NOC),
            (AXES[3], pes, "inner", PE_MESH),
        ),
        carriers=target.carriers + grid.cubes,
        routers=grid.cubes,
        grid=(grid.cube_rows, grid.cube_columns, grid.pe_rows, grid.pe_columns),
        port_carriers=tuple(
            target.carriers + int(number[f"structure.port_cube_{port}"])
            for port in range(target.ports)
        ),
        matrix_tile=tile,
        matrix_rows=min(tile[:2]),
        matrix_flops_per_clock={
            **{name: flops // count["compute.tile_cycles"] for name in ("bf16", "f16")},
            "f8E4M3FN": flops // count["compute.tile_cycles"],
            "f32": flops // count["compute.tile_cycles_f32"],
        },
        engines=ENGINES,
        issue_ps={
            name: ceil(Fraction(str(number[f"issue.{name}"])) * cycle_ps) for name in ISSUE_CLASSES
        },
        stateful_composites=bool(number.get("compute.stateful_composites", 0)),
        queue_bytes=count["structure.queue_bytes"],
        queue_depth=count["structure.queue_depth"],
        queue_commands=count[QUEUE_COMMANDS],
        scratch_port_bytes_per_clock=count["caches.scratch_port"],
        scratch_latency_ps=count["latency.scratch"],
        channels=count["memory.pseudo_channels"],
        channel_granule=count["memory.channel_granule"],
        link_rate=rates,
        link_peak=rates,
        link_latency_ps={
            PE_MESH: side + target.hop_latency_ps // 2,
            NOC: side + target.hop_latency_ps + count["latency.noc_hop"] // 2,
            UCIE: 2 * count["latency.ucie"],
        },
        noc_hop_latency_ps=count["latency.noc_hop"],
    )
