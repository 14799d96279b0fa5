"""Machine files: TOML with one table a number, read, merged with the file that they build on, and
checked.

A file may name a ``base``, a product of starc: what it does not say is as there. Such a number is
an assumption for the new machine, whatever it is for the other, unless ``same`` lists its section
or key: what the vendor says is the same.

Every rule that a file violates is reported, all at once.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, cast

from starc.diagnostics import Diagnostic, InputError, did_you_mean, suggestion
from starc.targets.graph import NETWORKS

KINDS: Final = ("vendor_peak", "measured", "derived", "assumed", "calibrated")
STATUSES: Final = ("validated", "documented", "driver-legal")
COHERENCES: Final = ("software", "hardware")

_TEXTS: Final = ("name", "title", "base", "default_mode")
_TOP: Final = (*_TEXTS, "max_gpus", "same", "sources", "modes", "refused")
_MODE_KEYS: Final = (
    "dies_per_device",
    "memory_domains",
    "status",
    "alias",
    "source",
    "note",
    "shared_memory",
)
_CHOICES: Final = {"fabric.network": NETWORKS, "caches.coherence": COHERENCES}
_LINKS: Final = ("fabric.gpu_links", "fabric.carrier_links")
_NUMBER_KEYS: Final = ("value", "low", "high", "unit", "kind", "source", "note", "fitted_on")
WHOLE: Final = ("count", "B", "ps", "MHz", "lanes", "rows", "flag")
_AT_LEAST_ONE: Final = (
    "structure.dies",
    "structure.dies_per_carrier",
    "structure.carriers",
    "structure.stacks_per_carrier",
    "structure.cus_per_die",
    "structure.ports",
    "structure.ports_per_carrier",
    "structure.wave_size",
    "structure.max_waves_per_cu",
    "structure.scratch_bytes_per_cu",
    "structure.register_bytes_per_cu",
    "memory.device_bytes",
    "memory.stack_rate",
    "memory.channels",
    "caches.l2_bytes",
    "caches.cu_port",
    "caches.die_port",
    "caches.l2_read",
    "caches.l2_write",
    "caches.mall_rate_per_stack",
    "fabric.usr_rate",
    "fabric.xgmi_rate",
)
# Keys whose end the user chooses: an element type, a kernel class, a memory mode.
_OPEN: Final = {
    "compute": ("matrix_", "matrix_sustained_"),
    "kernel": ("prologue_", "gap_", "issue_"),
    "memory": ("sustained_",),
}


@dataclass(frozen=True)
class Number:
    """One number of a machine: where it comes from, between what it may lie, what fixed it."""

    key: str
    value: int | float
    unit: str
    kind: str
    source: str
    note: str
    low: int | float | None = None
    high: int | float | None = None
    fitted_on: str = ""  # the rows that a calibrated number was fitted on


@dataclass(frozen=True)
class MachineFile:
    """A machine file's contents. ``carried`` are the keys that are assumed to be as in ``base``."""

    name: str
    label: str  # what messages call it
    data: Mapping[str, Any]
    carried: frozenset[str] = frozenset()

    @property
    def modes(self) -> Mapping[str, Mapping[str, Any]]:
        return self.data["modes"]

    def numbers(self) -> tuple[Number, ...]:
        """Every number with unit, kind and source, in the file's order."""
        found: list[Number] = []
        for key, entry in walk(self.data):
            kind, source = entry["kind"], self.data["sources"][entry["source"]]
            if key in self.carried:
                kind, source = "assumed", f"carried over from {self.data['base']}: {source}"
            found.append(
                Number(
                    key,
                    entry["value"],
                    entry["unit"],
                    kind,
                    source,
                    entry.get("note", ""),
                    entry.get("low"),
                    entry.get("high"),
                    entry.get("fitted_on", "") if kind == "calibrated" else "",
                )
            )
        return tuple(found)

    def replaced(self, overrides: Mapping[str, float]) -> MachineFile:
        """The same with other numbers. Raises ``InputError`` for keys that there are not."""
        if not overrides:
            return self
        data = copy.deepcopy(dict(self.data))
        entries = dict(walk(data))
        problems: list[Diagnostic] = []
        for key, value in overrides.items():
            entry = entries.get(key)
            if entry is None:
                hint = did_you_mean(key, tuple(entries)) or "starc targets show lists the numbers"
                problems.append(
                    Diagnostic(f"{self.label} has no number '{key}'", key="machine", hint=hint)
                )
            elif entry["unit"] in WHOLE and value != int(value):
                problems.append(
                    Diagnostic(f"'{key}' is a whole number of {entry['unit']}, not {value:g}")
                )
            else:
                whole = entry["unit"] in WHOLE or isinstance(entry["value"], int)
                entry["value"] = round(value) if whole else float(value)
                # The range is that of the number in the file.
                entry.pop("low", None)
                entry.pop("high", None)
        if problems:
            raise InputError(problems)
        changed = MachineFile(self.name, self.label, data, self.carried - overrides.keys())
        _check(changed)
        return changed


def walk(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every number's table with its key path."""
    for key, value in table.items():
        if not isinstance(value, dict) or (not prefix and key in ("sources", "modes", "refused")):
            continue
        entry = cast("dict[str, Any]", value)
        if "value" in entry:
            yield f"{prefix}{key}", entry
        else:
            yield from walk(entry, f"{prefix}{key}.")


@lru_cache
def shipped(name: str) -> MachineFile:
    """The file of a product of starc."""
    text = resources.files("starc.targets").joinpath(f"{name}.toml").read_text("utf-8")
    return _merged(tomllib.loads(text), name, name)


@lru_cache
def products() -> tuple[str, ...]:
    """The products that have a description."""
    files = resources.files("starc.targets").iterdir()
    return tuple(sorted(file.name[:-5] for file in files if file.name.endswith(".toml")))


def read(path: str) -> MachineFile:
    """The machine of a user's file. Raises ``InputError`` with every rule that it violates."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(Diagnostic(f"cannot read the machine '{path}': {reason}")) from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(Diagnostic(f"'{path}' is no TOML: {error}")) from error
    base = data.get("base")
    if base is not None and base not in products():
        hint = f"legal: {', '.join(products())}"
        raise InputError(
            Diagnostic(f"there is no machine '{base}'", key=f"{path}: base", hint=hint)
        )
    file = _merged(data, str(data.get("name", Path(path).stem)), path)
    _check(file)
    return file


def _merged(data: dict[str, Any], name: str, label: str) -> MachineFile:
    base = data.get("base")
    if base is None:
        return MachineFile(name, label, data)
    below = shipped(base)
    own = {key for key, _ in walk(data)}
    same = tuple(str(item) for item in data.get("same", ()))
    carried = frozenset(
        key
        for key, _ in walk(below.data)
        if key not in own and not any(key == item or key.startswith(f"{item}.") for item in same)
    )
    whole = _over(data, copy.deepcopy(dict(below.data)))
    for key in ("modes", "refused"):
        if key in data:
            whole[key] = data[key]
    if "modes" in data and "default_mode" not in data and data["modes"]:
        whole["default_mode"] = next(iter(data["modes"]))
    if "same" not in data:
        whole.pop("same", None)
    return MachineFile(name, label, whole, carried)


def _over(above: Mapping[str, Any], below: dict[str, Any]) -> dict[str, Any]:
    for key, value in above.items():
        under = below.get(key)
        tables = [
            cast("dict[str, Any]", table) for table in (value, under) if isinstance(table, dict)
        ]
        if len(tables) == 2 and not any("value" in table for table in tables):
            below[key] = _over(*tables)
        else:
            below[key] = value
    return below


@lru_cache
def _known_keys() -> Mapping[str, tuple[str, ...]]:
    """The keys of each section that products of starc have."""
    found: dict[str, dict[str, None]] = {}
    for product in products():
        for key, _ in walk(shipped(product).data):
            section, _, rest = key.rpartition(".")
            found.setdefault("transports" if section.startswith("transports.") else section, {})[
                rest
            ] = None
    for key in (*_CHOICES, *_LINKS):
        section, _, rest = key.partition(".")
        found.setdefault(section, {})[rest] = None
    return {section: tuple(keys) for section, keys in found.items()}


class _Checker:
    """Collects what is wrong with a file."""

    def __init__(self, file: MachineFile) -> None:
        self.file = file
        self.problems: list[Diagnostic] = []

    def wrong(self, key: str, message: str, hint: str | None = None) -> None:
        self.problems.append(Diagnostic(message, key=f"{self.file.label}: {key}", hint=hint))

    def top(self) -> None:
        data = self.file.data
        sections = (*_TOP, *dict.fromkeys(key.split(".")[0] for key in _known_keys()))
        for key, value in data.items():
            if key not in sections:
                self.wrong(key, "is no part of a machine", did_you_mean(key, sections))
            elif key in _TEXTS and not isinstance(value, str):
                self.wrong(key, f"must be a text, not {value!r}")
            elif key not in (*_TEXTS, "max_gpus", "same") and not isinstance(value, dict):
                self.wrong(key, f"must be a table, not {value!r}")
        most = data.get("max_gpus")
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= 8:
            self.wrong("max_gpus", f"must be 1 to 8, not {most!r}")
        for key in ("modes", "sources"):
            if not isinstance(data.get(key), dict) or not data[key]:
                self.wrong(key, "is missing")
        if isinstance(data.get("modes"), dict) and data.get("default_mode") not in data["modes"]:
            legal = f"legal: {', '.join(data['modes'])}"
            self.wrong("default_mode", f"is {data.get('default_mode')!r}, no mode", legal)

    def numbers(self) -> None:
        for section, table in self.file.data.items():
            if section in _TOP or not isinstance(table, dict):
                continue
            for key, entry in cast("dict[str, Any]", table).items():
                if section == "transports" and isinstance(entry, dict):
                    for inner, number in cast("dict[str, Any]", entry).items():
                        self.number(f"transports.{key}.{inner}", "transports", inner, number)
                elif section == "kernels" and isinstance(entry, dict):
                    for inner, number in cast("dict[str, Any]", entry).items():
                        self.number(f"kernels.{key}.{inner}", f"kernels.{key}", inner, number)
                else:
                    self.number(f"{section}.{key}", section, key, entry)

    def number(self, path: str, section: str, key: str, entry: Any) -> None:
        known = _known_keys().get(section, ())
        if key not in known and not key.startswith(_OPEN.get(section, ())):
            self.wrong(path, "is no number of a machine", did_you_mean(key, known))
            return
        if path in _CHOICES:
            if entry not in _CHOICES[path]:
                self.wrong(path, f"is {entry!r}", f"legal: {', '.join(_CHOICES[path])}")
            return
        if path in _LINKS:
            if not _are_pairs(entry):
                self.wrong(path, "must be pairs of numbers from 0, as [[0, 1], [1, 2]]")
            return
        if not isinstance(entry, dict):
            self.wrong(
                path, "must be a table", "such as { value = 8, unit = ..., kind = ..., ... }"
            )
            return
        table = cast("dict[str, Any]", entry)
        for name in table:
            if name not in _NUMBER_KEYS:
                self.wrong(f"{path}.{name}", "is no part of a number", ", ".join(_NUMBER_KEYS))
        for name in ("value", "unit", "kind", "source"):
            if name not in table:
                self.wrong(path, f"lacks its {name}")
        if table.get("kind", KINDS[0]) not in KINDS:
            self.wrong(f"{path}.kind", f"is {table['kind']!r}", f"legal: {', '.join(KINDS)}")
        sources = self.file.data.get("sources")
        if "source" in table and isinstance(sources, dict) and table["source"] not in sources:
            hint = suggestion(str(table["source"]), tuple(cast("dict[str, Any]", sources)))
            self.wrong(f"{path}.source", f"'{table['source']}' is not in [sources]", hint)
        if "value" in table:
            self.value(path, table)

    def value(self, path: str, table: Mapping[str, Any]) -> None:
        unit = table.get("unit", "")
        for name in ("value", "low", "high"):
            number = table.get(name, 0)
            if type(number) not in (int, float) or not 0 <= number < float("inf"):
                self.wrong(f"{path}.{name}", f"must be a number, at least 0, not {number!r}")
                return
            if unit in WHOLE and name == "value" and not isinstance(number, int):
                self.wrong(f"{path}.{name}", f"must be a whole number, not {number!r}")
        value = table["value"]
        if unit == "fraction" and not 0 < value <= 1:
            self.wrong(path, f"is {value}: a fraction is above 0 and at most 1")
        low, high = table.get("low", value), table.get("high", value)
        if not low <= value <= high:
            self.wrong(path, f"is {value}, outside of its range {low} to {high}")

    def modes(self) -> None:
        modes = self.file.data.get("modes")
        if not isinstance(modes, dict):
            return
        for name, mode in cast("dict[str, Any]", modes).items():
            path = f"modes.{name}"
            if not isinstance(mode, dict):
                self.wrong(path, "must be a table")
                continue
            table = cast("dict[str, Any]", mode)
            for key in table:
                if key not in _MODE_KEYS:
                    self.wrong(f"{path}.{key}", "is no part of a mode", f"{', '.join(_MODE_KEYS)}")
            for key in ("dies_per_device", "memory_domains"):
                if not isinstance(table.get(key), int) or table[key] < 1:
                    self.wrong(f"{path}.{key}", f"must be at least 1, not {table.get(key)!r}")
            if table.get("status") not in STATUSES:
                legal = f"legal: {', '.join(STATUSES)}"
                self.wrong(f"{path}.status", f"is {table.get('status')!r}", legal)

    def structure(self) -> None:
        """What numbers have to do with each other, once each of them is one."""
        data = self.file.data
        number = {key: entry["value"] for key, entry in walk(data)}

        def get(key: str, default: int = 1) -> int:
            return int(number.get(key, default))

        for key in (*_AT_LEAST_ONE, *(key for key in number if key.startswith("clock."))):
            if number.get(key, 1) < 1:
                self.wrong(key, f"must be at least 1, not {number[key]}")
        if self.problems:
            return
        dies, each = get("structure.dies"), get("structure.dies_per_carrier")
        carriers = get("structure.carriers", -(-dies // each))
        stacks = get("structure.stacks_per_carrier") * carriers * get("memory.channels")
        if carriers * each < dies:
            self.wrong("structure.carriers", f"{carriers} carriers of {each} dies hold no {dies}")
        for limit, count, key in (
            (255, stacks, "memory.channels"),
            (255, dies, "structure.dies"),
            (255, carriers, "structure.carriers"),
        ):
            if count > limit:
                self.wrong(key, f"a GPU has at most {limit}, not {count}")
        granule = get("memory.interleave_granule", 4096)
        if granule < 256 or granule & (granule - 1):
            self.wrong("memory.interleave_granule", f"is {granule}: a power of two from 256 on")
        for key in ("caches.l2_ways", "caches.mall_ways"):
            if not 1 <= get(key) <= 16:
                self.wrong(key, f"is {get(key)}: 1 to 16")
        if get("caches.l2_line", 128) != 128:
            self.wrong("caches.l2_line", f"is {get('caches.l2_line')}: 128")
        self.latencies(number)
        for name, mode in self.file.modes.items():
            size, domains = mode["dies_per_device"], mode["memory_domains"]
            if dies % size:
                divisors = [str(n) for n in range(1, dies + 1) if dies % n == 0]
                legal = f"legal: {', '.join(divisors)}"
                self.wrong(f"modes.{name}.dies_per_device", f"{size} do not divide {dies}", legal)
            if carriers % domains or domains > dies // size:
                legal = [
                    str(n)
                    for n in range(1, carriers + 1)
                    if carriers % n == 0 and n <= dies // size
                ]
                self.wrong(
                    f"modes.{name}.memory_domains",
                    f"{domains} domains of {carriers} carriers and {dies // size} devices",
                    f"legal: {', '.join(legal)}",
                )
        fabric = data.get("fabric", {})
        _check_connected(self, "fabric.carrier_links", fabric.get("carrier_links"), carriers)
        network = fabric.get("network", "direct")
        if network == "links" and "gpu_links" not in fabric:
            self.wrong("fabric.gpu_links", "is missing: the network is 'links'")
        if network != "links" and "gpu_links" in fabric:
            self.wrong("fabric.gpu_links", f"says nothing: the network is '{network}', not 'links'")
        _check_connected(self, "fabric.gpu_links", fabric.get("gpu_links"), data["max_gpus"])
        if network == "direct" and get("structure.ports") < data["max_gpus"]:
            self.wrong("structure.ports", "there is a port for each other GPU, and one to the host")
        if data["max_gpus"] > 1 and number.get("latency.xgmi", 1024) < 1024:
            self.wrong("latency.xgmi", "links between GPUs take at least 1024 ps")

    def latencies(self, number: Mapping[str, float]) -> None:
        side = number.get("latency.memory_side", number.get("latency.mall_nps1"))
        parts = ("latency.request_up", "latency.port_to_cu")
        if side is not None and all(part in number for part in parts):
            if sum(number[part] for part in parts) > side:
                self.wrong("latency.request_up", "with port_to_cu it is more than the memory side")
        whole = number.get("latency.hbm", number.get("latency.hbm_nps1"))
        if side is not None and whole is not None and whole < side:
            self.wrong("latency.hbm", f"is {whole:g}, less than to the memory side, {side:g}")


def _are_pairs(entry: Any) -> bool:
    if not isinstance(entry, list):
        return False
    for pair in cast("list[Any]", entry):
        match pair:
            case [int() as a, int() as b] if min(a, b) >= 0 and a != b:
                pass
            case _:
                return False
    return True


def _check_connected(checker: _Checker, key: str, links: Any, count: int) -> None:
    if links is None:
        return
    pairs = cast("list[list[int]]", links)
    outside = sorted({node for pair in pairs for node in pair if node >= count})
    if outside:
        shown = ", ".join(map(str, outside))
        checker.wrong(key, f"there is no {shown}", f"legal: 0 to {count - 1}")
        return
    missing = unconnected(count, pairs)
    if missing:
        checker.wrong(key, f"{', '.join(map(str, missing))} cannot be reached from 0")


def unconnected(count: int, links: Any) -> list[int]:
    """The nodes that no way leads to from node 0."""
    reached = {0}
    while True:
        more = {b for pair in links for a, b in (pair, pair[::-1]) if a in reached} - reached
        if not more:
            return sorted(set(range(count)) - reached)
        reached |= more


def _check(file: MachineFile) -> None:
    checker = _Checker(file)
    checker.top()
    checker.numbers()
    checker.modes()
    if not checker.problems:
        checker.structure()
    if checker.problems:
        raise InputError(checker.problems)
