"""Machine files of users, and machines with other numbers: checked before anybody sees them. Every
rule that one violates is reported, all at once."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping
from math import isfinite
from pathlib import Path

from starc.diagnostics import Diagnostic, InputError, did_you_mean
from starc.targets.entry_rules import check_modes, check_numbers, check_top
from starc.targets.file_problems import FileProblems
from starc.targets.limits import is_counted
from starc.targets.machine_file import MachineFile, merged, products, walk
from starc.targets.structure_rules import check_structure


def check(file: MachineFile) -> None:
    """Raises ``InputError`` with every rule that a machine file violates."""
    found = FileProblems(file)
    check_top(found)
    check_numbers(found)
    check_modes(found)
    check_structure(found)
    if found.problems:
        raise InputError(found.problems)


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
    base = data.get("base")
    if base is not None and base not in products():
        hint = f"legal: {', '.join(products())}"
        raise InputError(
            Diagnostic(f"there is no machine '{base}'", key=f"{path}: base", hint=hint)
        )
    file = merged(data, str(data.get("name", Path(path).stem)), path)
    check(file)
    return file


def replaced(file: MachineFile, overrides: Mapping[str, float], mode: str) -> MachineFile:
    """The same with other numbers, for a machine in ``mode``. Raises ``InputError`` for keys
    that there are not, and for rules that they violate in this mode."""
    if not overrides:
        return file
    data = copy.deepcopy(dict(file.data))
    entries = dict(walk(data))
    problems: list[Diagnostic] = []
    for key, value in overrides.items():
        entry = entries.get(key)
        if entry is None:
            hint = did_you_mean(key, tuple(entries)) or "starc targets show lists the numbers"
            problems.append(
                Diagnostic(f"{file.label} has no number '{key}'", key="machine", hint=hint)
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
    changed = MachineFile(file.name, file.label, data, file.carried - overrides.keys())
    check(changed)
    return changed
