"""Which numbers of a target a calibration fits, and the machine file that it writes."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starc.diagnostics import Diagnostic, InputError, UsageError, counted, did_you_mean
from starc.targets.limits import WHOLE
from starc.targets.machine_file import MachineFile, Number, walk
from starc.validation.calibration import Constant, Fit
from starc.validation.machine_text import machine_text
from starc.validation.rows import Case

SOURCE: Final = "calibration"
SPREAD: Final = 0.5
"""How far from its value a number without a range may go, if it is named."""


@dataclass(frozen=True)
class Chosen:
    """A number named by the user, with bounds where given."""

    key: str
    low: float | None = None
    high: float | None = None


def chosen_constants(
    numbers: Sequence[Number], named: Sequence[Chosen], related: Sequence[str]
) -> tuple[Constant, ...]:
    """The constants to fit: those named, or else the calibrated numbers with a range that the
    modules of the files name (``related``). Raises ``InputError`` for unknown keys and impossible
    bounds, ``UsageError`` where nothing is left to fit."""
    by_key = {number.key: number for number in numbers}
    if not named:
        found = [
            number
            for number in numbers
            if number.kind == "calibrated" and number.low is not None and number.high is not None
        ]
        named = [Chosen(number.key) for number in found if number.key in related]
        if not named:
            ranged = [number.key for number in numbers if number.low is not None]
            raise UsageError(
                "no calibrated number with a range belongs to these files: name some with "
                f"--constant KEY\n  numbers with a range: {', '.join(ranged) or 'none'}"
            )
    problems: list[Diagnostic] = []
    constants: list[Constant] = []
    for item in named:
        number = by_key.get(item.key)
        if number is None:
            hint = did_you_mean(item.key, tuple(by_key)) or "starc targets show lists the numbers"
            problems.append(
                Diagnostic(f"there is no number '{item.key}'", key="--constant", hint=hint)
            )
            continue
        low = _first(item.low, number.low, number.value * (1 - SPREAD))
        high = _first(item.high, number.high, number.value * (1 + SPREAD))
        if number.unit == "fraction" and item.high is None and number.high is None:
            high = min(high, 1.0)
        if not low < high or not low <= number.value <= high:
            problems.append(
                Diagnostic(
                    f"'{item.key}' is {number.value:g}: its bounds {low:g} to {high:g} must hold "
                    "it and leave room",
                    key="--constant",
                )
            )
            continue
        whole = number.unit in WHOLE or isinstance(number.value, int)
        constants.append(
            Constant(item.key, float(number.value), low, high, number.unit, whole)
        )  # fmt: skip
    if problems:
        raise InputError(problems)
    return tuple(constants)


def _first(*values: float | None) -> float:
    return next(float(value) for value in values if value is not None)


def fitted_text(file: MachineFile, fit: Fit, origin: str, command: str) -> str:
    """A complete machine file with the fitted numbers: each is calibrated, with ``origin`` (the
    folder of the measurements) as its source and the rows that it was fitted on.

    What the file took over from another machine stays an assumption. Where the fit found nothing
    better, the numbers stay what they were.
    """
    data: dict[str, Any] = copy.deepcopy(dict(file.data))
    for key in ("base", "same"):
        data.pop(key, None)
    entries = dict(walk(data))
    for key in file.carried:
        if key in entries:
            entries[key]["kind"] = "assumed"
    rows = _rows(fit.fitted_cases)
    for constant in fit.constants if fit.helped else ():
        entry = entries[constant.key]
        before, kind = entry["value"], entry["kind"]
        after = fit.after[constant.key]
        entry["value"] = round(after) if constant.whole else after
        entry["low"] = _bound(min(constant.low, after), constant)
        entry["high"] = _bound(max(constant.high, after), constant)
        entry["kind"], entry["source"] = "calibrated", SOURCE
        entry["fitted_on"] = rows
        # What the note says of a fit before this one is not true of the value any more.
        note = str(entry.get("note", "")) if kind != "calibrated" else ""
        was = f"was {before:g}, {kind}" if kind != "calibrated" else f"was {before:g}"
        entry["note"] = f"{was}{'; ' + note if note else ''}"
    if fit.helped:
        data["sources"] = {**data["sources"], SOURCE: f"starc calibrate {origin}"}
    count = len(fit.constants) if fit.helped else 0
    comment = (
        f"{file.data.get('title', file.name)}, with {counted(count, 'number')} fitted "
        f"to measurements:\n  {command}"
    )
    return machine_text(data, comment)


def _bound(value: float, constant: Constant) -> int | float:
    return round(value) if constant.whole else value


def _rows(cases: Sequence[Case]) -> str:
    kinds: Mapping[str, int] = {
        kind: sum(case.kind == kind for case in cases)
        for kind in dict.fromkeys(case.kind for case in cases)
    }
    return ", ".join(f"{counted(count, 'row')} of {kind}" for kind, count in kinds.items())
