"""The numbers of a machine file by key path, and what the file turns out to lack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from starc.diagnostics import Diagnostic
from starc.targets.machine_file import MachineFile, walk
from starc.targets.partitions import COMPUTE_PARTITIONS, MEMORY_PARTITIONS


class MachineNumbers:
    """Reads numbers of a checked file. One that is missing reads as 1 and is a problem, once, so
    that a file hears of all that it lacks."""

    def __init__(self, file: MachineFile) -> None:
        self.label = file.label
        self.problems: list[Diagnostic] = []
        self._data = file.data
        self._base = str(file.data.get("base", ""))
        self._entries = dict(walk(file.data))
        self._missing: set[tuple[str, ...]] = set()

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def values(self) -> dict[str, float]:
        """All numbers."""
        return {key: entry["value"] for key, entry in self._entries.items()}

    def real(self, *keys: str, default: float | None = None) -> float:
        """The number of the first of the keys that the file has."""
        for key in keys:
            if key in self._entries:
                return self._entries[key]["value"]
        return self._lacks(keys) if default is None else default

    def count(self, *keys: str, default: int | None = None) -> int:
        """The same as a whole number."""
        return int(self.real(*keys, default=default))

    def under(self, prefix: str, unit: str | None = None) -> dict[str, float]:
        """Numbers whose keys start with a prefix, by the rest of the key; of one unit only."""
        return {
            key.removeprefix(prefix): entry["value"]
            for key, entry in self._entries.items()
            if key.startswith(prefix) and unit in (None, entry["unit"])
        }

    def groups(self, section: str) -> dict[str, dict[str, float]]:
        """Numbers of a section of sections, as of each transport."""
        names = cast("Mapping[str, Any]", self._data.get(section, {}))
        return {name: self.under(f"{section}.{name}.") for name in names}

    def word(self, section: str, key: str, default: str) -> str:
        """A choice among words."""
        return str(self._data.get(section, {}).get(key, default))

    def pairs(self, section: str, key: str) -> tuple[tuple[int, int], ...]:
        """Links, as pairs of what they link."""
        given = cast("list[tuple[int, int]]", self._data.get(section, {}).get(key, ()))
        return tuple((int(a), int(b)) for a, b in given)

    def wrong(self, key: str, message: str, hint: str | None = None) -> None:
        """Notes what is wrong with a number of this file."""
        self.problems.append(Diagnostic(message, key=f"{self.label}: {key}", hint=hint))

    def _lacks(self, keys: tuple[str, ...]) -> int:
        if keys not in self._missing:
            self._missing.add(keys)
            also = f", and so is {' or '.join(keys[1:])}" if keys[1:] else ""
            self.wrong(keys[0], f"is missing{also}", self._elsewhere(keys))
        return 1

    def _elsewhere(self, keys: tuple[str, ...]) -> str | None:
        """The hint where the base has a number for modes of its own."""
        others = [key for key in self._entries if _stem(key) == _stem(keys[0])]
        if not self._base or not others:
            return None
        return (
            f"{self._base} has it for its own modes only ({', '.join(others)}): "
            f"give {keys[-1]} for yours"
        )


def _stem(key: str) -> str:
    """A key without what it says of a mode: ``kernel.gap_cpx`` is ``kernel.gap``."""
    head, _, end = key.rpartition("_")
    return head if end in COMPUTE_PARTITIONS or end in MEMORY_PARTITIONS else key
