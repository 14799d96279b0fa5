"""The machine that a program is compiled for, as resolved numbers.

``loader.load_target("mi300x-cpx")`` reads the product's TOML file, applies a partition mode and a
number of GPUs, and returns a ``Target``: rates and sizes of one device, of the links between
devices and of everything the simulator models. A target travels as a module's
``dlti.target_system_spec``, so that passes find it in plain ``xdsl-opt``, and as a dictionary in
program files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import Any, Final

from starc.diagnostics import Diagnostic, InputError
from starc.targets.field_kinds import wrong_fields
from starc.targets.graph import NETWORKS
from starc.targets.parts import (
    Caches,
    ComputeUnit,
    CopyEngines,
    DeviceMemory,
    Engines,
    Gpu,
    Implementations,
    Latencies,
    Launches,
    Loads,
    Networks,
    Node,
    Pressure,
    Stacks,
    Transport,
)

_PS_PER_SECOND = 1_000_000_000_000

_LISTS: Final = ("grid", "port_carriers", "matrix_tile", "engines")
_PAIRS: Final = ("carrier_links", "gpu_links")


# A dataclass has the fields of its last base first: read from below, they are in order.
@dataclass(frozen=True)
class Target(
    Implementations,
    Pressure,
    Launches,
    Latencies,
    Networks,
    Stacks,
    Caches,
    DeviceMemory,
    Loads,
    CopyEngines,
    Engines,
    ComputeUnit,
    Gpu,
    Node,
):
    """A node of GPUs in one partition mode, with the fields of all of its parts."""

    warnings: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def of_parts(cls, *parts: object, warnings: tuple[str, ...] = ()) -> Target:
        """The target that has these parts, one of each kind."""
        values: dict[str, Any] = {}
        for part in parts:
            values |= vars(part)
        return cls(**values, warnings=warnings)

    def service(self, rate: int) -> tuple[int, int]:
        """Service time of a rate as (picoseconds, bytes), reduced."""
        time = Fraction(_PS_PER_SECOND, rate)
        return time.numerator, time.denominator

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able values; ``from_dict`` is the inverse."""
        values = dataclasses.asdict(self)
        values["mesh"] = [list(row) for row in self.mesh]
        values["warnings"] = list(self.warnings)
        for name in _LISTS:
            values[name] = list(values[name])
        for name in _PAIRS:
            values[name] = [list(pair) for pair in values[name]]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Target:
        """The target of a program file. Raises ``InputError`` for a field that is missing, unknown
        or of another kind. ``loader.described_target`` completes values that are not all given."""
        if wrong := wrong_fields(cls, values):
            raise InputError(wrong)
        names = {item.name for item in dataclasses.fields(cls)}
        problems = [
            Diagnostic(f"a target has no field '{key}'") for key in sorted(values.keys() - names)
        ]
        problems += [
            Diagnostic(f"the target lacks '{key}'")
            for key in sorted(names - values.keys() - {"warnings"})
        ]
        if problems:
            raise InputError(problems)
        given = dict(values)
        given["mesh"] = tuple(
            (str(row[0]), int(row[1]), str(row[2]), str(row[3])) for row in given["mesh"]
        )
        for name in _PAIRS:
            given[name] = tuple((int(a), int(b)) for a, b in given[name])
        if given["network"] not in NETWORKS:
            hint = f"legal: {', '.join(NETWORKS)}"
            raise InputError(Diagnostic(f"the target's network is '{given['network']}'", hint=hint))
        _check_devices(given)
        for name in _LISTS:
            given[name] = tuple(given[name])
        given["transports"] = _transports(given["transports"])
        given["warnings"] = tuple(given.get("warnings", ()))
        return cls(**given)


def _transports(given: Mapping[str, Any]) -> dict[str, Transport]:
    try:
        return {
            name: value if isinstance(value, Transport) else Transport(**value)
            for name, value in given.items()
        }
    except TypeError as error:
        raise InputError(Diagnostic(f"the target's transports: {error}")) from error


def _check_devices(given: Mapping[str, Any]) -> None:
    """Raises ``InputError`` where the mesh has more or fewer devices than the node."""
    devices = prod(row[1] for row in given["mesh"])
    expected = given["gpus"] * given["devices_per_gpu"]
    if devices != expected:
        raise InputError(
            Diagnostic(
                f"the target's mesh has {devices} devices, but {given['gpus']} GPUs of "
                f"{given['devices_per_gpu']} devices have {expected}"
            )
        )
