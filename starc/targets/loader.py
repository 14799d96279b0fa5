"""The machine of a name: its file and mode, the size of its mesh, and other numbers than the file's
where they are asked for, built into a ``Target``."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil, prod
from typing import Any

from starc.diagnostics import Diagnostic, InputError
from starc.targets.building import GPU_AXES, build
from starc.targets.checked_files import replaced
from starc.targets.cube_building import default_sizes, with_cubes
from starc.targets.cube_rules import grid_of, mesh_sizes
from starc.targets.field_kinds import wrong_fields
from starc.targets.machine_file import products
from starc.targets.machine_numbers import MachineNumbers
from starc.targets.names import NamedMachine, is_path, machine_label, named_machine
from starc.targets.shape import shape_of
from starc.targets.target import Target


def load_target(
    name: str,
    gpus: int | None = None,
    mesh: Mapping[str, int] | None = None,
    overrides: Mapping[str, float] | None = None,
) -> Target:
    """The machine of this name with ``gpus`` GPUs (default: the whole node).

    ``mesh`` makes an illustration machine of other sizes from the same product's numbers: axis
    ``gpu`` counts GPUs, ``xcd`` the devices of a GPU, at most as many as the product has.
    ``overrides`` replaces numbers of the file by key path, such as ``fabric.usr_rate``.
    Raises ``InputError`` for an unknown name or number, an illegal mode or an impossible size.
    """
    own = named_machine(name)
    machine = NamedMachine(replaced(own.file, overrides or {}, own.mode), own.mode)
    numbers = MachineNumbers(machine.file)
    count, sizes = _sizes(numbers, machine, gpus, mesh)
    shape = shape_of(numbers, machine.entry, count, prod(sizes))
    shown = f"{own.file.name}-{own.mode}" if is_path(name) else name.lower()
    warnings = _warnings(name, own, overrides or {})
    target = build(numbers, shape, machine, shown, warnings)
    if shape.grid is not None and not numbers.problems:
        target = with_cubes(target, shape.grid, sizes, numbers.values())
    if not numbers.problems:
        _check_memory_side(numbers, target)
    if not numbers.problems:
        _check_latencies(numbers, target)
    if numbers.problems:
        raise InputError(numbers.problems)
    return target


def described_target(values: Mapping[str, Any]) -> Target:
    """The target of an attribute: ``base`` names one whose fields hold where none are given. Raises
    ``InputError`` for a field that is missing, unknown or of another kind."""
    own = {key: value for key, value in values.items() if key != "base"}
    base = values.get("base")
    if base is None:
        return Target.from_dict(own)
    if wrong := wrong_fields(Target, own):
        raise InputError(wrong)
    # A mesh says itself how many GPUs there are.
    given = load_target(str(base), None if "mesh" in own else own.get("gpus")).to_dict() | own
    given["devices_per_gpu"] = int(given["devices_per_gpu"])
    if "mesh" in own:
        gpus, *inner = (int(row[1]) for row in given["mesh"])
        given["gpus"] = own.get("gpus", gpus)
        given["devices_per_gpu"] = own.get("devices_per_gpu", prod(inner))
    return Target.from_dict(given)


def _sizes(
    numbers: MachineNumbers,
    machine: NamedMachine,
    gpus: int | None,
    mesh: Mapping[str, int] | None,
) -> tuple[int, list[int]]:
    """GPUs of a node, and the sizes of the axes of the devices of each."""
    most = int(machine.file.data["max_gpus"])
    devices = numbers.count("structure.dies") // int(machine.entry["dies_per_device"])
    grid = grid_of(numbers.values())
    sizes = [devices] if grid is None else default_sizes(grid)
    if mesh is not None:
        wanted, *sizes = (
            _mesh_sizes(mesh, most, devices) if grid is None else mesh_sizes(mesh, grid, most)
        )
        if gpus is not None and gpus != wanted:
            option = "--gpus" if grid is None else "--sips"
            text = f"{option} {gpus} contradicts the mesh, which has {wanted}"
            raise InputError(Diagnostic(text))
        gpus = wanted
    count = most if gpus is None else gpus
    if not 1 <= count <= most:
        what = "GPUs" if grid is None else "SIPs"
        text = f"a node has 1 to {most} {what}, not {count}"
        raise InputError(Diagnostic(text, key=what.lower()))
    return count, sizes


def _warnings(name: str, machine: NamedMachine, overrides: Mapping[str, float]) -> tuple[str, ...]:
    """What a report says of a machine that is not a validated one, as starc ships it."""
    file, status = machine.file, machine.entry["status"]
    warnings: list[str] = []
    if status == "own":
        warnings.append(f"{file.name}-{machine.mode} is a machine of your own, and not validated")
    elif status != "validated":
        warnings.append(f"{file.name}-{machine.mode} is {status} but not validated")
    if is_path(name) and file.name in products():
        warnings.append(f"{machine_label(name)}: not the shipped {file.name}")
    if overrides:
        own = {number.key: number.value for number in file.numbers()}
        warnings += [
            f"{key} is {value:g} instead of {own[key]:g}"
            for key, value in overrides.items()
            if value != own[key]
        ]
    return tuple(warnings)


def _check_memory_side(numbers: MachineNumbers, target: Target) -> None:
    """The way to the memory side of a die's own carrier is no shorter than its parts."""
    parts = target.request_up_ps + target.port_to_cu_ps
    if target.mall_latency_ps < parts:
        message = (
            f"leaves {target.mall_latency_ps:,} ps to the memory side of a die's own carrier, "
            f"less than request_up and port_to_cu take, {parts:,}"
        )
        numbers.wrong("latency.hop", message)


def _check_latencies(numbers: MachineNumbers, target: Target) -> None:
    """Latencies from load to use are not shorter than a line takes at the port of a compute unit,
    which is part of them."""
    line_ps = ceil(Fraction(128, target.cu_port_bytes_per_clock) * target.cycle_ps)
    known = {"latency.port_to_cu": target.port_to_cu_ps}
    if target.has_l2:
        known["latency.l2"] = target.l2_latency_ps
    for key, ps in known.items():
        if ps < line_ps:
            numbers.wrong(
                key,
                f"is {ps:,}: a line of 128 B alone takes {line_ps:,} ps at the port of a compute "
                f"unit ({target.cu_port_bytes_per_clock} B a clock at {target.core_clock_mhz} MHz)",
                hint="caches.cu_port and clock.core_mhz say how long",
            )


def _mesh_sizes(mesh: Mapping[str, int], most_gpus: int, most_devices: int) -> tuple[int, int]:
    """GPUs and devices of a GPU of an illustration mesh; an axis that is not given has size 1."""
    most = dict(zip(GPU_AXES, (most_gpus, most_devices), strict=True))
    problems = [
        Diagnostic(f"unknown mesh axis '{axis}'", key="--mesh", hint=f"axes: {', '.join(GPU_AXES)}")
        for axis in mesh
        if axis not in most
    ]
    problems += [
        Diagnostic(f"mesh axis '{axis}' can be 1 to {most[axis]}, not {size}", key="--mesh")
        for axis, size in mesh.items()
        if axis in most and not 1 <= size <= most[axis]
    ]
    if problems or not mesh:
        raise InputError(problems or Diagnostic("a mesh has at least one axis", key="--mesh"))
    return mesh.get(GPU_AXES[0], 1), mesh.get(GPU_AXES[1], 1)
