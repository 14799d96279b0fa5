"""What the results of the simulator hang on: every number of a target that is assumed, or that has
a range, is moved over its range alone, and what changes is listed.

Two things are watched: a few measured cases of every class, and one layer of a model in the largest
and the smallest devices of the target. A layer's ratio is a conclusion; a number that takes it
across 1 flips the conclusion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starc.diagnostics import Diagnostic, InputError
from starc.targets.limits import WHOLE
from starc.targets.machine_file import Number
from starc.validation.registry import effort_of
from starc.validation.rows import Case

SPREAD: Final = 0.3
"""How far a number without a range is moved, up and down."""

NOTICED: Final = 0.0005
"""Changes below this are shown as none."""


@dataclass(frozen=True)
class Swept:
    """A number to move: its key path, value, bounds, and whether the bounds are the file's own."""

    key: str
    value: float
    low: float
    high: float
    unit: str
    kind: str
    ranged: bool


@dataclass(frozen=True)
class Watched:
    """What one machine gives: the simulated values of cases, and layer times by mode (seconds)."""

    cases: tuple[float, ...]
    layers: Mapping[str, float]


@dataclass(frozen=True)
class Effect:
    """What one end of a number's range changes. Changes are relative to the unmoved machine.

    ``error`` is the mean absolute error of the cases against the measurements there; ``ratios``
    are first over second layer time of each conclusion, ``flips`` the conclusions that turn round.
    """

    value: float
    mean: float
    largest: float
    largest_case: str
    error: float | None
    layers: Mapping[str, float]
    ratios: Mapping[str, float]
    flips: tuple[str, ...]


@dataclass(frozen=True)
class Sensitivity:
    """The ends of a number's range; ``problem`` says why the machine does not exist there."""

    swept: Swept
    low: Effect | str
    high: Effect | str

    @property
    def size(self) -> float:
        """The largest change of anything, at either end."""
        found = 0.0
        for effect in (self.low, self.high):
            if isinstance(effect, Effect):
                changes = (effect.mean, effect.largest, *effect.layers.values())
                found = max(found, *(abs(change) for change in changes))
        return found

    @property
    def flips(self) -> bool:
        """Whether a conclusion turns round at either end."""
        return any(isinstance(effect, Effect) and effect.flips for effect in (self.low, self.high))


@dataclass(frozen=True)
class Report:
    """All numbers, the one that changes most first."""

    target: str
    cases: tuple[Case, ...]
    error: float | None
    layers: Mapping[str, float]  # seconds by mode
    ratios: Mapping[str, float]
    numbers: tuple[Sensitivity, ...]


Watch = Callable[[Sequence[Mapping[str, float]]], Iterable["Watched | str"]]
"""Simulates everything once for each set of replaced numbers, in their order; in words where there
is no such machine."""


def swept_numbers(numbers: Sequence[Number]) -> tuple[Swept, ...]:
    """The assumed numbers, and those with a range, of a target's numbers. A zero without a range
    stays: a share of nothing is nothing."""
    found: list[Swept] = []
    for number in numbers:
        ranged = number.low is not None or number.high is not None
        if not ranged and (number.kind != "assumed" or not number.value):
            continue
        low = number.value * (1 - SPREAD) if number.low is None else float(number.low)
        high = number.value * (1 + SPREAD) if number.high is None else float(number.high)
        if number.unit == "fraction" and number.high is None:
            high = min(1.0, high)
        is_whole = is_counted(number)
        low, high = (float(round(bound)) if is_whole else bound for bound in (low, high))
        value = float(number.value)
        found.append(Swept(number.key, value, low, high, number.unit, number.kind, ranged))
    return tuple(found)


def is_counted(number: Number) -> bool:
    """Whether a number is a whole one: the file has it so."""
    return number.unit in WHOLE or isinstance(number.value, int)


def representative(cases: Sequence[Case], count: int = 2) -> tuple[Case, ...]:
    """``count`` cases of every class: among the cheaper half of them, spread over what was
    measured, the same ones every time."""
    found: list[Case] = []
    for kind in dict.fromkeys(case.kind for case in cases):
        mine = sorted(
            (case for case in cases if case.kind == kind),
            key=lambda case: (effort_of(case), case.measured, str(case.parameters)),
        )
        cheap = sorted(mine[: max(count, (len(mine) + 1) // 2)], key=lambda case: case.measured)
        chosen = min(count, len(cheap))
        found += [cheap[(2 * index + 1) * len(cheap) // (2 * chosen)] for index in range(chosen)]
    return tuple(found)


def sensitivity(
    target: str,
    swept: Sequence[Swept],
    cases: Sequence[Case],
    watch: Watch,
    conclusions: Sequence[tuple[str, str]],
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Moves every number over its range, one at a time. ``conclusions`` are pairs of modes whose
    layer times are compared."""
    ends = [{number.key: bound} for number in swept for bound in (number.low, number.high)]
    # An end that is the value itself is the unmoved machine.
    values = {number.key: number.value for number in swept}
    moved = [end for end in ends if any(values[key] != bound for key, bound in end.items())]
    total = len(moved) + 1
    progress(0, total)
    results: list[Watched | str] = []
    for result in watch([{}, *moved]):
        results.append(result)
        progress(len(results), total)
    base = results[0]
    if isinstance(base, str):
        raise InputError(Diagnostic(f"the machine cannot run the cases: {base}"))
    there = {tuple(end.items()): result for end, result in zip(moved, results[1:], strict=True)}
    found: list[Sensitivity] = []
    for number in swept:
        low, high = (
            _effect(bound, base, there.get(((number.key, bound),), base), cases, conclusions)
            for bound in (number.low, number.high)
        )
        found.append(Sensitivity(number, low, high))
    return Report(
        target,
        tuple(cases),
        _error(cases, base.cases),
        base.layers,
        _ratios(base, conclusions),
        tuple(sorted(found, key=lambda item: (-item.size, item.swept.key))),
    )


def _ratios(watched: Watched, conclusions: Sequence[tuple[str, str]]) -> dict[str, float]:
    return {
        f"{first}/{second}": watched.layers[first] / watched.layers[second]
        for first, second in conclusions
    }


def _effect(
    value: float,
    base: Watched,
    there: Watched | str,
    cases: Sequence[Case],
    conclusions: Sequence[tuple[str, str]],
) -> Effect | str:
    if isinstance(there, str):
        return there
    changes = [now / before - 1.0 for before, now in zip(base.cases, there.cases, strict=True)]
    largest = max(range(len(changes)), key=lambda k: abs(changes[k])) if changes else None
    before, now = _ratios(base, conclusions), _ratios(there, conclusions)
    return Effect(
        value=value,
        mean=sum(changes) / len(changes) if changes else 0.0,
        largest=0.0 if largest is None else changes[largest],
        largest_case="" if largest is None else describe(cases[largest]),
        error=_error(cases, there.cases),
        layers={mode: there.layers[mode] / base.layers[mode] - 1.0 for mode in base.layers},
        ratios=now,
        flips=tuple(name for name in before if (before[name] > 1.0) != (now[name] > 1.0)),
    )


def _error(cases: Sequence[Case], simulated: Sequence[float]) -> float | None:
    if not cases:
        return None
    errors = [abs(s / case.measured - 1.0) for case, s in zip(cases, simulated, strict=True)]
    return sum(errors) / len(errors)


def describe(case: Case) -> str:
    """A case in a few words; a parameter that only repeats the class is left out."""
    parameters = ((key, value) for key, value in case.parameters.items() if value != case.kind)
    return " ".join([case.kind, *(f"{key}={value}" for key, value in parameters)])
