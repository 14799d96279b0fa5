"""Machine files: TOML with one table a number, merged with the file that they build on.

A file may name a ``base``, a product of starc: what it does not say is as there. Such a number is
an assumption for the new machine, whatever it is for the other, unless ``same`` lists its section
or key: what the vendor says is the same.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, cast


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
    return merged(tomllib.loads(text), name, name)


@lru_cache
def products() -> tuple[str, ...]:
    """The products that have a description."""
    files = resources.files("starc.targets").iterdir()
    return tuple(sorted(file.name[:-5] for file in files if file.name.endswith(".toml")))


def merged(data: dict[str, Any], name: str, label: str) -> MachineFile:
    """The machine of a file's data over those of the base that it names. A mode without a status
    is its author's own."""
    _say_status(data.get("modes"))
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


def _say_status(modes: object) -> None:
    if isinstance(modes, dict):
        for mode in cast("dict[str, object]", modes).values():
            if isinstance(mode, dict):
                cast("dict[str, object]", mode).setdefault("status", "own")


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
