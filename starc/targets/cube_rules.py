"""What a machine file of cubes must have, and which meshes its illustrations can have."""

from __future__ import annotations

from collections.abc import Mapping, Set
from math import prod
from typing import Any, Final

from starc.diagnostics import Diagnostic, InputError
from starc.targets.cubes import AXES, Grid

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


def grid_of(number: Mapping[str, float]) -> Grid | None:
    """The grid that the numbers of a machine file describe, if they do."""
    if not all(key in number for key in KEYS):
        return None
    return Grid(*(int(number[key]) for key in KEYS))


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
