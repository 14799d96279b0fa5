"""Machine files: TOML with one table a number, read, merged with the file that they build on, and
checked.

A file may name a ``base``, a product of starc: what it does not say is as there. Such a number is
an assumption for the new machine, whatever it is for the other, unless ``same`` lists its section
or key: what the vendor says is the same.

Every rule that a file violates is reported, all at once.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import islice
from math import isfinite, prod
from pathlib import Path
from typing import Any, Final, cast

from starc.diagnostics import Diagnostic, InputError, did_you_mean, suggestion
from starc.targets import cubes
from starc.targets.graph import NETWORKS
from starc.targets.limits import WHOLE, is_counted, is_flag, limits

KINDS: Final = ("vendor_peak", "measured", "derived", "assumed", "calibrated")
STATUSES: Final = ("validated", "documented", "driver-legal", "own")
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
_MOST_STACKS: Final = 255
_MOST_CACHED: Final = 1 << 39
_MOST_MEMORY: Final = 1 << 43
# What the shape of a GPU follows from.
_SHAPE: Final = (
    "structure.dies",
    "structure.dies_per_carrier",
    "structure.carriers",
    "structure.stacks_per_carrier",
    "memory.channels",
)
_SHOWN: Final = 8
"""Entries of a list that a message shows."""
# Units of keys whose end the user chooses.
_OPEN_UNITS: Final = {
    "compute.matrix_sustained_": "fraction",
    "compute.matrix_": "FLOP/clk/CU",
    "kernel.": "ps",
    "memory.sustained_": "fraction",
}
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

    def replaced(self, overrides: Mapping[str, float], mode: str) -> MachineFile:
        """The same with other numbers, for a machine in ``mode``. Raises ``InputError`` for keys
        that there are not, and for rules that they violate in this mode."""
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
            elif not isfinite(value):
                problems.append(Diagnostic(f"'{key}' is a number, not {value:g}"))
            elif is_counted(key, entry["unit"]) and value != int(value):
                problems.append(
                    Diagnostic(f"'{key}' is a whole number of {entry['unit']}, not {value:g}")
                )
            else:
                whole = is_counted(key, entry["unit"]) or isinstance(entry["value"], int)
                entry["value"] = round(value) if whole else float(value)
                # The range is that of the number in the file.
                entry.pop("low", None)
                entry.pop("high", None)
        if problems:
            raise InputError(problems)
        data["modes"] = {mode: data["modes"][mode]}
        data["default_mode"] = mode
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
    if not data:
        raise InputError(Diagnostic("the file is empty: it has no machine", key=path))
    modes = data.get("modes")
    if isinstance(modes, dict):
        for mode in cast("dict[str, Any]", modes).values():
            if isinstance(mode, dict):
                cast("dict[str, Any]", mode).setdefault("status", "own")
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


@lru_cache
def _units() -> Mapping[tuple[str, str], str]:
    """The unit of each key of each section, that of the products of starc."""
    found: dict[tuple[str, str], str] = {}
    for product in products():
        for key, entry in walk(shipped(product).data):
            section, _, rest = key.rpartition(".")
            section = "transports" if section.startswith("transports.") else section
            found[section, rest] = entry["unit"]
    return found


def _unit_of(section: str, key: str) -> str:
    """The one legal unit of a key."""
    if (section, key) in _units():
        return _units()[section, key]
    whole = f"{section}.{key}"
    return next(unit for start, unit in _OPEN_UNITS.items() if whole.startswith(start))


def listed(items: Iterable[object]) -> str:
    """A list as messages have it: the first entries."""
    shown = [str(item) for item in islice(items, _SHOWN + 1)]
    return ", ".join([*shown[:_SHOWN], *(["..."] if len(shown) > _SHOWN else [])])


class _Checker:
    """Collects what is wrong with a file."""

    def __init__(self, file: MachineFile) -> None:
        self.file = file
        self.problems: list[Diagnostic] = []
        self.bad = set[str]()  # keys without a value that others can be held against

    def wrong(self, key: str, message: str, hint: str | None = None) -> None:
        self.problems.append(Diagnostic(message, key=f"{self.file.label}: {key}", hint=hint))

    def unusable(self, key: str, message: str, hint: str | None = None) -> None:
        """Wrong, and other rules say nothing about it."""
        self.wrong(key, message, hint)
        self.bad.add(key.removesuffix(".value"))

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
        name = data.get("name", "")
        if isinstance(name, str) and not re.fullmatch(r"[\w.+-]*", name):
            self.wrong("name", f"is {name!r}: letters, digits, and any of . _ + -")
        most = data.get("max_gpus")
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= 8:
            self.unusable("max_gpus", f"must be 1 to 8, not {most!r}")
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
                self.unusable(path, f"is {entry!r}", f"legal: {', '.join(_CHOICES[path])}")
            return
        if path in _LINKS:
            if not _are_pairs(entry):
                self.unusable(path, "must be pairs of numbers from 0, as [[0, 1], [1, 2]]")
            elif loops := [pair for pair in entry if pair[0] == pair[1]]:
                self.unusable(path, f"{listed(loops)} would link one with itself")
            return
        if not isinstance(entry, dict):
            self.unusable(
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
                if name == "value":
                    self.bad.add(path)
        unit = _unit_of(section, key)
        if table.get("unit", unit) != unit:
            self.wrong(f"{path}.unit", f"is {table['unit']!r}", f"legal: {unit}")
        if table.get("kind", KINDS[0]) not in KINDS:
            self.wrong(f"{path}.kind", f"is {table['kind']!r}", f"legal: {', '.join(KINDS)}")
        sources = self.file.data.get("sources")
        if "source" in table and isinstance(sources, dict) and table["source"] not in sources:
            hint = suggestion(str(table["source"]), tuple(cast("dict[str, Any]", sources)))
            self.wrong(f"{path}.source", f"'{table['source']}' is not in [sources]", hint)
        if "value" in table:
            self.value(path, table, unit)

    def value(self, path: str, table: Mapping[str, Any], unit: str) -> None:
        least, most = limits(path, unit)
        for name in ("value", "low", "high"):
            number = table.get(name, 0)
            if type(number) not in (int, float) or not 0 <= number < float("inf"):
                self.unusable(f"{path}.{name}", f"must be a number, at least 0, not {number!r}")
                self.bad.add(path)
                return
            if name != "value":
                continue
            if unit in WHOLE and not isinstance(number, int):
                self.unusable(f"{path}.{name}", f"must be a whole number, not {number!r}")
            elif is_counted(path, unit) and number != int(number):
                self.unusable(f"{path}.{name}", f"must be a whole number, not {number!r}")
            elif is_flag(path, unit) and number not in (0, 1):
                self.unusable(path, f"is {number}", "legal: 0, 1")
                return
            elif unit == "fraction" and not 0 < number <= 1:
                self.unusable(path, f"is {number}: a fraction is above 0 and at most 1")
            elif number > most:
                self.unusable(path, f"is {number}: at most {most:,}")
                return
            elif number < least:
                self.unusable(path, f"must be at least {least:,}, not {number}")
                return
        value = table["value"]
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
                count = table.get(key)
                if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 255:
                    self.unusable(f"{path}.{key}", f"must be 1 to 255, not {count!r}")
            if table.get("status") not in STATUSES:
                legal = f"legal: {', '.join(STATUSES)}"
                self.wrong(f"{path}.status", f"is {table.get('status')!r}", legal)

    def structure(self) -> None:
        """What numbers have to do with each other, as far as each of them is one."""
        data = self.file.data
        number = {key: entry["value"] for key, entry in walk(data) if key not in self.bad}

        def get(key: str, default: int = 1) -> int:
            return int(number.get(key, default))

        granule = get("memory.interleave_granule", 4096)
        if granule < 256 or granule & (granule - 1):
            self.wrong("memory.interleave_granule", f"is {granule}: a power of two from 256 on")
        for key in ("caches.l2_ways", "caches.mall_ways"):
            if not 1 <= get(key) <= 16:
                self.wrong(key, f"is {get(key)}: 1 to 16")
        if get("caches.l2_line", 128) != 128:
            self.wrong("caches.l2_line", f"is {get('caches.l2_line')}: 128")
        self.latencies(number)
        self.cubes(number)
        fabric = data.get("fabric")
        fabric = cast("dict[str, Any]", fabric) if isinstance(fabric, dict) else {}
        self.memory(number)
        if all(key in number for key in cubes.KEYS):
            # The meshes of cubes and PEs say how many dies there are.
            number["structure.dies"] = prod(get(key) for key in cubes.KEYS)
        if self.bad.isdisjoint(_SHAPE) and number.get("structure.dies", 256) < 256:
            self.shape(get, fabric)
        if self.bad.isdisjoint(("max_gpus", "fabric.network")):
            self.node(number, fabric, data["max_gpus"])

    def shape(self, get: Callable[..., int], fabric: Mapping[str, Any]) -> None:
        """Dies, carriers and stacks of a GPU, and its modes."""
        dies, each = get("structure.dies"), get("structure.dies_per_carrier")
        carriers = get("structure.carriers", -(-dies // each))
        stacks = get("structure.stacks_per_carrier") * carriers * get("memory.channels")
        if carriers * each < dies:
            self.wrong("structure.carriers", f"{carriers} carriers of {each} dies hold no {dies}")
        if stacks > _MOST_STACKS:
            self.wrong("memory.channels", f"a GPU has at most {_MOST_STACKS}, not {stacks}")
        if "fabric.carrier_links" not in self.bad:
            _check_connected(self, "fabric.carrier_links", fabric.get("carrier_links"), carriers)
        modes = self.file.data.get("modes")
        if not isinstance(modes, dict):
            return
        for name, mode in cast("dict[str, Any]", modes).items():
            keys = (f"modes.{name}.dies_per_device", f"modes.{name}.memory_domains")
            if self.bad.isdisjoint((f"modes.{name}", *keys)):
                self.mode(keys, dies, carriers, cast("dict[str, Any]", mode))

    def mode(
        self, keys: tuple[str, str], dies: int, carriers: int, mode: Mapping[str, Any]
    ) -> None:
        """Whether dies and carriers divide as a mode wants them to."""
        size, domains = mode["dies_per_device"], mode["memory_domains"]
        if dies % size:
            divisors = (n for n in range(1, dies + 1) if dies % n == 0)
            self.wrong(keys[0], f"{size} do not divide {dies}", f"legal: {listed(divisors)}")
        elif carriers % domains or domains > dies // size:
            legal = (n for n in range(1, carriers + 1) if carriers % n == 0 and n <= dies // size)
            message = f"{domains} domains of {carriers} carriers and {dies // size} devices"
            self.wrong(keys[1], message, f"legal: {listed(legal)}")

    def node(self, number: Mapping[str, float], fabric: Mapping[str, Any], gpus: int) -> None:
        """How the GPUs of a node are linked."""
        network = fabric.get("network", "direct")
        if network == "links" and "gpu_links" not in fabric:
            self.wrong("fabric.gpu_links", "is missing: the network is 'links'")
        if network != "links" and "gpu_links" in fabric:
            self.wrong("fabric.gpu_links", f"says nothing: the network is '{network}', not 'links'")
        if "fabric.gpu_links" not in self.bad:
            _check_connected(self, "fabric.gpu_links", fabric.get("gpu_links"), gpus)
        if network == "direct" and number.get("structure.ports", gpus) < gpus:
            self.wrong("structure.ports", "there is a port for each other GPU, and one to the host")
        if gpus > 1 and number.get("latency.xgmi", 1024) < 1024:
            self.wrong("latency.xgmi", "links between GPUs take at least 1024 ps")

    def cubes(self, number: Mapping[str, float]) -> None:
        """The numbers of a machine of cubes, which others do not have."""
        modes = self.file.data.get("modes")
        whole = isinstance(modes, dict) and not any(key.startswith("modes.") for key in self.bad)
        known = cast("dict[str, Any]", modes) if whole else {}
        present = {key for key, _ in walk(self.file.data)}
        for key, message in cubes.rule_problems(number, known, present):
            self.wrong(key, message)
        is_cubes = all(key in present for key in cubes.KEYS)
        if number.get("caches.l2_bytes", 1) < 1 and not is_cubes:
            self.unusable("caches.l2_bytes", "must be at least 1, not 0")

    def memory(self, number: Mapping[str, float]) -> None:
        """What the simulator can address: its caches have tags of fewer bits than memory has."""
        most = _MOST_CACHED if number.get("caches.l2_bytes", 1) else _MOST_MEMORY
        if number.get("memory.device_bytes", 0) >= most:
            size = int(number["memory.device_bytes"])
            self.wrong("memory.device_bytes", f"is {size}: less than {most:,} of a GPU")

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
            case [int() as a, int() as b] if min(a, b) >= 0:
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
        checker.wrong(key, f"there is no {listed(outside)}", f"legal: 0 to {count - 1}")
        return
    missing = unconnected(count, pairs)
    if missing:
        checker.wrong(key, f"{listed(missing)} cannot be reached from 0")


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
    checker.structure()
    if checker.problems:
        raise InputError(checker.problems)
