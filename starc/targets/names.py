"""Names of machines, and the machine file and mode that each stands for.

A name is a product with its partition mode (``mi300x-cpx-nps4``), a short name of one
(``mi300x-cpx``), or the path of a machine file of the user's, ``FILE.toml`` or ``FILE.toml:MODE``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starc.diagnostics import Diagnostic, InputError, counted, suggestion
from starc.targets.checked_files import read
from starc.targets.machine_file import MachineFile, Number, products, shipped
from starc.targets.partitions import COMPUTE_PARTITIONS, MEMORY_PARTITIONS, PartitionMode


@dataclass(frozen=True)
class NamedMachine:
    """What a name stands for."""

    file: MachineFile
    mode: str

    @property
    def entry(self) -> Mapping[str, Any]:
        """What the file says of the mode."""
        return self.file.modes[self.mode]


def aliases() -> dict[str, str]:
    """Short names: ``mi300x-cpx`` is ``mi300x-cpx-nps4``."""
    return {
        mode["alias"]: f"{product}-{key}"
        for product in products()
        for key, mode in shipped(product).modes.items()
        if "alias" in mode
    }


def target_names() -> tuple[str, ...]:
    """Every legal full name."""
    return tuple(f"{product}-{mode}" for product in products() for mode in modes(product))


def numbers(name: str) -> tuple[Number, ...]:
    """Every number of a target's machine with unit, kind and source, in the file's order."""
    return named_machine(name).file.numbers()


def machine_file_of(name: str) -> MachineFile:
    """The machine file that a target's name stands for."""
    return named_machine(name).file


def modes(product: str) -> Mapping[str, Mapping[str, Any]]:
    """The partition modes of a product with their status: validated, documented by the vendor, or
    what the driver takes."""
    return shipped(product).modes


def refusals(product: str) -> Mapping[str, str]:
    """Modes that a product is known not to have, and why."""
    return shipped(product).data.get("refused", {})


def title(product: str) -> str:
    """A product's full name."""
    return str(shipped(product).data["title"])


def is_path(name: str) -> bool:
    """Whether a name is that of a machine file."""
    return name.endswith(".toml") or ".toml:" in name


def machine_label(name: str) -> str:
    """What a report calls the machine of a target's name: a machine file by its own name, and the
    product that it is based on."""
    if not is_path(name):
        return name
    file = machine_file_of(name)
    base = str(file.data.get("base", file.name))
    shown = name.replace("\\", "/").rpartition("/")[2]
    return f"machine file {shown}" + (f" (based on {base})" if base in products() else "")


def named_machine(name: str) -> NamedMachine:
    """Machine file and mode of a name. Raises ``InputError`` with the legal names."""
    if is_path(name):
        path, _, mode = name.rpartition(":") if not name.endswith(".toml") else (name, "", "")
        file = read(path)
        mode = mode or str(file.data["default_mode"])
        if mode not in file.modes:
            hint = f"legal modes: {', '.join(file.modes)}"
            raise InputError(Diagnostic(f"'{path}' has no mode '{mode}'", hint=hint))
        return NamedMachine(file, mode)
    name = name.lower()
    full = aliases().get(name, name)
    for product in products():
        if full == product:
            return NamedMachine(shipped(product), str(shipped(product).data["default_mode"]))
        if full.startswith(f"{product}-"):
            mode = full.removeprefix(f"{product}-")
            if mode in modes(product):
                return NamedMachine(shipped(product), mode)
            raise InputError(Diagnostic(_refusal(product, mode), hint=_legal(product)))
    known = (*aliases(), *target_names())
    close = suggestion(name, known)
    hint = (f"{close} " if close else "") + "known: " + ", ".join(known)
    raise InputError(Diagnostic(f"unknown target '{name}'", hint=hint))


def _legal(product: str) -> str:
    short = {full: alias for alias, full in aliases().items()}
    rows: list[str] = []
    for mode, entry in modes(product).items():
        full = f"{product}-{mode}"
        note = f" (short: {short[full]})" if full in short else ""
        status = "" if entry["status"] == "validated" else f" ({entry['status']}, not validated)"
        rows.append(full + note + status)
    return "legal modes: " + ", ".join(rows)


def has_partitions(product: str) -> bool:
    """Whether a shipped product has modes of partition, as SPX and CPX."""
    return any(PartitionMode.of(mode).is_partition for mode in shipped(product).modes)


def _refusal(product: str, mode: str) -> str:
    """Why a mode is refused: impossible, or possible but not offered."""
    file, named = shipped(product), f"'{product}-{mode}'"
    if not has_partitions(product):
        return f"{named} is not a mode: {product} has no partitions"
    if mode in file.data.get("refused", {}):
        return f"{named} {file.data['refused'][mode]}"
    wanted = PartitionMode.of(mode)
    if not wanted.is_partition:
        legal = ", ".join(COMPUTE_PARTITIONS)
        return f"{named} is not a partition mode: {wanted.compute!r} is none of {legal}"
    structure = {key: int(item["value"]) for key, item in file.data["structure"].items()}
    dies = structure["dies"]
    carriers = structure.get("carriers", dies // structure["dies_per_carrier"])
    partitions = COMPUTE_PARTITIONS[wanted.compute] or dies
    if dies % partitions:
        return f"{named} is impossible: {dies} dies do not divide by {partitions}"
    memory = wanted.memory
    asked = memory.removeprefix("nps")
    if asked.isdecimal() and memory != asked and (not int(asked) or carriers % int(asked)):
        return f"{named} is impossible: {carriers} carriers do not divide by {asked}"
    if memory and memory not in MEMORY_PARTITIONS:
        legal = ", ".join(MEMORY_PARTITIONS)
        return f"{named} is not a partition mode: {memory!r} is none of {legal}"
    if not memory:
        return f"{named} lacks its memory mode"
    if (domains := MEMORY_PARTITIONS[memory]) > partitions:
        return (
            f"{named} is impossible: {domains} memory domains, and only "
            f"{counted(partitions, 'partition')}"
        )
    return f"{named} is possible but not offered by {product}"


def dram_fraction(name: str, fraction: float) -> dict[str, float]:
    """Overrides that set the sustained fraction of the memory's rate in every memory mode."""
    keys = (number.key for number in numbers(name))
    return {key: fraction for key in keys if key.startswith("memory.sustained")}


def issue_keys(name: str) -> tuple[str, ...]:
    """The keys of a target's numbers that say what it costs the CPU of a device to issue commands.
    The scheduler, which hands on the records of a composite, is another engine."""
    keys = (number.key for number in numbers(name) if number.key.startswith("issue."))
    return tuple(key for key in keys if key != "issue.scheduler")
