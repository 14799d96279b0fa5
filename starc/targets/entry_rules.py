"""Rules of each entry of a machine file by itself: its key, its parts, the limits of its value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from starc.diagnostics import did_you_mean, suggestion
from starc.targets.file_keys import (
    CHOICES,
    KINDS,
    LINKS,
    MODE_KEYS,
    NUMBER_KEYS,
    OPEN,
    STATUSES,
    TEXTS,
    TOP,
    known_keys,
    unit_of,
)
from starc.targets.file_problems import FileProblems, listed
from starc.targets.limits import WHOLE, is_counted, is_flag, limits


def check_top(found: FileProblems) -> None:
    data = found.file.data
    sections = (*TOP, *dict.fromkeys(key.split(".")[0] for key in known_keys()))
    for key, value in data.items():
        if key not in sections:
            found.wrong(key, "is no part of a machine", did_you_mean(key, sections))
        elif key in TEXTS and not isinstance(value, str):
            found.wrong(key, f"must be a text, not {value!r}")
        elif key not in (*TEXTS, "max_gpus", "same") and not isinstance(value, dict):
            found.wrong(key, f"must be a table, not {value!r}")
    name = data.get("name", "")
    if isinstance(name, str) and not re.fullmatch(r"[\w.+-]*", name):
        found.wrong("name", f"is {name!r}: letters, digits, and any of . _ + -")
    most = data.get("max_gpus")
    if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= 8:
        found.unusable("max_gpus", f"must be 1 to 8, not {most!r}")
    for key in ("modes", "sources"):
        if not isinstance(data.get(key), dict) or not data[key]:
            found.wrong(key, "is missing")
    if isinstance(data.get("modes"), dict) and data.get("default_mode") not in data["modes"]:
        legal = f"legal: {', '.join(data['modes'])}"
        found.wrong("default_mode", f"is {data.get('default_mode')!r}, no mode", legal)


def check_numbers(found: FileProblems) -> None:
    for section, table in found.file.data.items():
        if section in TOP or not isinstance(table, dict):
            continue
        for key, entry in cast("dict[str, Any]", table).items():
            if section == "transports" and isinstance(entry, dict):
                for inner, number in cast("dict[str, Any]", entry).items():
                    _number(found, f"transports.{key}.{inner}", "transports", inner, number)
            elif section == "kernels" and isinstance(entry, dict):
                for inner, number in cast("dict[str, Any]", entry).items():
                    _number(found, f"kernels.{key}.{inner}", f"kernels.{key}", inner, number)
            else:
                _number(found, f"{section}.{key}", section, key, entry)


def _number(found: FileProblems, path: str, section: str, key: str, entry: Any) -> None:
    known = known_keys().get(section, ())
    if key not in known and not key.startswith(OPEN.get(section, ())):
        found.wrong(path, "is no number of a machine", did_you_mean(key, known))
        return
    if path in CHOICES:
        if entry not in CHOICES[path]:
            found.unusable(path, f"is {entry!r}", f"legal: {', '.join(CHOICES[path])}")
        return
    if path in LINKS:
        if not _are_pairs(entry):
            found.unusable(path, "must be pairs of numbers from 0, as [[0, 1], [1, 2]]")
        elif loops := [pair for pair in entry if pair[0] == pair[1]]:
            found.unusable(path, f"{listed(loops)} would link one with itself")
        return
    if not isinstance(entry, dict):
        found.unusable(
            path, "must be a table", "such as { value = 8, unit = ..., kind = ..., ... }"
        )
        return
    _number_table(found, path, cast("dict[str, Any]", entry), unit_of(section, key))


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


def _number_table(found: FileProblems, path: str, table: Mapping[str, Any], unit: str) -> None:
    for name in table:
        if name not in NUMBER_KEYS:
            found.wrong(f"{path}.{name}", "is no part of a number", ", ".join(NUMBER_KEYS))
    for name in ("value", "unit", "kind", "source"):
        if name not in table:
            found.wrong(path, f"lacks its {name}")
            if name == "value":
                found.bad.add(path)
    if table.get("unit", unit) != unit:
        found.wrong(f"{path}.unit", f"is {table['unit']!r}", f"legal: {unit}")
    if table.get("kind", KINDS[0]) not in KINDS:
        found.wrong(f"{path}.kind", f"is {table['kind']!r}", f"legal: {', '.join(KINDS)}")
    sources = found.file.data.get("sources")
    if "source" in table and isinstance(sources, dict) and table["source"] not in sources:
        hint = suggestion(str(table["source"]), tuple(cast("dict[str, Any]", sources)))
        found.wrong(f"{path}.source", f"'{table['source']}' is not in [sources]", hint)
    if "value" in table:
        _value(found, path, table, unit)


def _value(found: FileProblems, path: str, table: Mapping[str, Any], unit: str) -> None:
    least, most = limits(path, unit)
    for name in ("value", "low", "high"):
        number = table.get(name, 0)
        if type(number) not in (int, float) or not 0 <= number < float("inf"):
            found.unusable(f"{path}.{name}", f"must be a number, at least 0, not {number!r}")
            found.bad.add(path)
            return
        if name != "value":
            continue
        if unit in WHOLE and not isinstance(number, int):
            found.unusable(f"{path}.{name}", f"must be a whole number, not {number!r}")
        elif is_counted(path, unit) and number != int(number):
            found.unusable(f"{path}.{name}", f"must be a whole number, not {number!r}")
        elif is_flag(path, unit) and number not in (0, 1):
            found.unusable(path, f"is {number}", "legal: 0, 1")
            return
        elif unit == "fraction" and not 0 < number <= 1:
            found.unusable(path, f"is {number}: a fraction is above 0 and at most 1")
        elif number > most:
            found.unusable(path, f"is {number}: at most {most:,}")
            return
        elif number < least:
            found.unusable(path, f"must be at least {least:,}, not {number}")
            return
    value = table["value"]
    low, high = table.get("low", value), table.get("high", value)
    if not low <= value <= high:
        found.wrong(path, f"is {value}, outside of its range {low} to {high}")


def check_modes(found: FileProblems) -> None:
    modes = found.file.data.get("modes")
    if not isinstance(modes, dict):
        return
    for name, mode in cast("dict[str, Any]", modes).items():
        path = f"modes.{name}"
        if not isinstance(mode, dict):
            found.wrong(path, "must be a table")
            continue
        table = cast("dict[str, Any]", mode)
        for key in table:
            if key not in MODE_KEYS:
                found.wrong(f"{path}.{key}", "is no part of a mode", f"{', '.join(MODE_KEYS)}")
        for key in ("dies_per_device", "memory_domains"):
            count = table.get(key)
            if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 255:
                found.unusable(f"{path}.{key}", f"must be 1 to 255, not {count!r}")
        if table.get("status") not in STATUSES:
            legal = f"legal: {', '.join(STATUSES)}"
            found.wrong(f"{path}.status", f"is {table.get('status')!r}", legal)
