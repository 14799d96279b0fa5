"""Fits named constants of a target to measured cases.

A fifth of the cases is held out by a hash of their parameters: nothing is fitted on them, and what
the fit is worth is read off them. On the others a coordinate search by simulation lowers the mean
absolute relative error: one constant at a time is moved up and down inside its bounds by a step,
the step is halved where neither helps, and what a round of all constants found is gone on with as
long as it helps. The search ends with the steps or with the budget. No random numbers: the same
cases give the same constants. Where a class has more cases than the search may look at, those that
it leaves out are held out too: a case is fitted only if the search saw it. Values that do not lower
the error of the fitted cases are not taken.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from typing import Final

from starc.diagnostics import InputError
from starc.validation.registry import constants_of, effort_of, key_of
from starc.validation.rows import Case

HELD_OUT: Final = 5
"""One case of a class in so many is held out."""

FIRST_STEP: Final = 0.25
LAST_STEP: Final = 0.01
FEWEST_TO_JUDGE: Final = 3
"""Held-out cases: fewer say nothing about what a fit is worth."""

"""Parts of the way from a constant's lower bound to its upper one."""

_WIDE: Final = 4.0  # bounds this far apart are walked in logarithms

Simulate = Callable[[Sequence[Case], Mapping[str, float]], Sequence[float]]
"""Simulated values of cases, in their order, with these numbers of the target replaced."""


@dataclass(frozen=True)
class Constant:
    """A number of the target that is fitted: its key path, value and bounds."""

    key: str
    value: float
    low: float
    high: float
    unit: str = ""
    whole: bool = False  # of bytes, picoseconds or counts

    def at(self, place: float) -> float:
        """The value at a place between the bounds, 0 to 1."""
        place = min(1.0, max(0.0, place))
        if self.low > 0 and self.high / self.low > _WIDE:
            value = exp(log(self.low) + place * (log(self.high) - log(self.low)))
        else:
            value = self.low + place * (self.high - self.low)
        return float(round(value)) if self.whole else value

    def place(self, value: float) -> float:
        """Where a value lies between the bounds."""
        if self.high <= self.low:
            return 0.0
        if self.low > 0 and self.high / self.low > _WIDE:
            return (log(max(value, self.low)) - log(self.low)) / (log(self.high) - log(self.low))
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Fit:
    """What a calibration found. Errors are mean absolute relative errors by class, of all cases of
    a class under the name ``all``. Of the held-out cases ``beyond`` are not held out by their
    hashes: the search had enough of their classes."""

    before: Mapping[str, float]
    after: Mapping[str, float]
    constants: tuple[Constant, ...]
    fitted_cases: tuple[Case, ...]
    held_out_cases: tuple[Case, ...]
    fitted_before: Mapping[str, float]
    fitted_after: Mapping[str, float]
    held_out_before: Mapping[str, float]
    held_out_after: Mapping[str, float]
    simulations: int = 0
    ended_by: str = "steps"  # or "budget"
    beyond: int = 0

    @property
    def helped(self) -> bool:
        """Whether a value changed: it did only if the error of the fitted cases fell."""
        return dict(self.before) != dict(self.after)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is to be known before the constants are used."""
        found: list[str] = []
        if not self.helped:
            found.append("no values lower the error of the fitted rows: the old ones are kept")
        before, after = (
            errors.get("all") for errors in (self.held_out_before, self.held_out_after)
        )
        if before is not None and after is not None and after > before:
            found.append(
                f"THE HELD-OUT ERROR RISES from {100 * before:.2f} to {100 * after:.2f} %: the fit "
                "does not hold for rows that it was not made on; check it on others before use"
            )
        if len(self.held_out_cases) < FEWEST_TO_JUDGE:
            found.append(
                f"too few held-out rows to judge the fit: {len(self.held_out_cases)}, at least "
                f"{FEWEST_TO_JUDGE} are needed"
            )
        return tuple(found)


@dataclass
class _Search:
    simulate: Simulate
    budget: int
    progress: Callable[[int, int], None]
    used: int = 0
    known: dict[Hashable, float] = field(default_factory=dict[Hashable, float])
    related: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])

    def errors(self, cases: Sequence[Case], values: Mapping[str, float]) -> list[float]:
        """Absolute relative errors; every distinct simulation runs once."""
        keys = [self._key(case, values) for case in cases]
        missing: dict[Hashable, Case] = {}
        for key, case in zip(keys, cases, strict=True):
            if key not in self.known:
                missing.setdefault(key, case)
        if missing:
            found = self.simulate(tuple(missing.values()), values)
            self.known.update(zip(missing, found, strict=True))
            self.used += len(missing)
            self.progress(min(self.used, self.budget), self.budget)
        return [
            abs(self.known[key] / case.measured - 1.0)
            for key, case in zip(keys, cases, strict=True)
        ]

    def _key(self, case: Case, values: Mapping[str, float]) -> Hashable:
        """A case with the values of the constants that matter to its file."""
        related = self.related.get(case.file)
        chosen = tuple(
            (key, value)
            for key, value in sorted(values.items())
            if related is None or key in related
        )
        return key_of(case), chosen


def split_cases(cases: Sequence[Case]) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
    """Cases to fit on, and a fifth of every class that is held out: those whose parameters have the
    smallest hashes, whatever was measured. A class of two to nine cases holds one out."""
    held_out: set[int] = set()
    for kind in dict.fromkeys(case.kind for case in cases):
        mine = [index for index, case in enumerate(cases) if case.kind == kind]
        mine.sort(key=lambda index: (_hash(cases[index]), index))
        held_out.update(mine[: max(len(mine) // HELD_OUT, min(1, len(mine) - 1))])
    return (
        tuple(case for index, case in enumerate(cases) if index not in held_out),
        tuple(case for index, case in enumerate(cases) if index in held_out),
    )


def _hash(case: Case) -> bytes:
    text = repr((case.kind, sorted((key, str(value)) for key, value in case.parameters.items())))
    return hashlib.sha256(text.encode()).digest()


def chosen_cases(cases: Sequence[Case], most: int) -> tuple[Case, ...]:
    """At most ``most`` cases a class, spread over its efforts: the same ones every time."""
    found: list[Case] = []
    for kind in dict.fromkeys(case.kind for case in cases):
        mine = sorted(
            (case for case in cases if case.kind == kind),
            key=lambda case: (effort_of(case), repr(sorted(case.parameters.items(), key=str))),
        )
        count = min(most, len(mine))
        found += [mine[(2 * index + 1) * len(mine) // (2 * count)] for index in range(count)]
    return tuple(found)


def mean_errors(cases: Sequence[Case], errors: Sequence[float]) -> dict[str, float]:
    """Mean errors by class, and of all together."""
    if not cases:
        return {}
    by_kind: dict[str, list[float]] = {}
    for case, error in zip(cases, errors, strict=True):
        by_kind.setdefault(case.kind, []).append(error)
    found = {kind: sum(values) / len(values) for kind, values in by_kind.items()}
    return {"all": sum(errors) / len(errors), **found}


def related_constants(
    files: Sequence[str], constants: Sequence[Constant]
) -> dict[str, frozenset[str]]:
    """The constants that matter to each file. Those of measured kernels (``kernels.NAME.KEY``)
    matter to the files whose modules name them, if one does; all others to every file."""
    named = {file: frozenset(constants_of(file)) for file in dict.fromkeys(files)}
    anywhere = frozenset[str]().union(*named.values()) if named else frozenset[str]()
    private = {key for key in anywhere if key.startswith("kernels.")}
    common = {constant.key for constant in constants if constant.key not in private}
    return {file: (keys & private) | common for file, keys in named.items()}


def calibrate(
    cases: Sequence[Case],
    constants: Sequence[Constant],
    simulate: Simulate,
    *,
    budget: int = 400,
    most: int = 16,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Fit:
    """Fits the constants. ``budget`` is the number of simulations that the search may take, the
    two passes over the held-out cases and the last one over the fitted ones not counted; ``most``
    cases of a class are fitted."""
    left, by_hash = split_cases(cases)
    fitted = chosen_cases(left, most)
    chosen = {id(case) for case in fitted}
    beyond = tuple(case for case in left if id(case) not in chosen)
    held_out = (*by_hash, *beyond)
    search = _Search(simulate, budget, progress)
    search.related = related_constants([case.file for case in cases], constants)
    start = {constant.key: constant.value for constant in constants}
    values, ended_by = _descend(constants, fitted, search)
    used = search.used
    search.progress = lambda done, total: None
    return Fit(
        before=start,
        after=values,
        constants=tuple(constants),
        fitted_cases=fitted,
        held_out_cases=held_out,
        fitted_before=mean_errors(fitted, search.errors(fitted, start)),
        fitted_after=mean_errors(fitted, search.errors(fitted, values)),
        held_out_before=mean_errors(held_out, search.errors(held_out, start)),
        held_out_after=mean_errors(held_out, search.errors(held_out, values)),
        simulations=used,
        ended_by=ended_by,
        beyond=len(beyond),
    )


def _descend(
    constants: Sequence[Constant], fitted: Sequence[Case], search: _Search
) -> tuple[dict[str, float], str]:
    """The values with the least error, one constant after another by steps that become smaller,
    and what ended the search: ``steps`` or ``budget``."""
    values = {constant.key: constant.value for constant in constants}
    steps = {constant.key: FIRST_STEP for constant in constants}
    best = _mean(search.errors(fitted, values))
    ended_by = "steps"
    while any(step >= LAST_STEP for step in steps.values()) and ended_by == "steps":
        round_start = values
        for constant in constants:
            if steps[constant.key] < LAST_STEP:
                continue
            if search.used >= search.budget:
                ended_by = "budget"
                break
            moved = _move(constant, values, steps[constant.key], best, fitted, search)
            if moved is None:
                steps[constant.key] /= 2
            else:
                values, best = moved
        # What a round found is gone on with: constants that make up for each other move together.
        while ended_by == "steps" and values != round_start and search.used < search.budget:
            further = _further(constants, round_start, values)
            moved = _better([further], best, fitted, search)
            if moved is None:
                break
            round_start, (values, best) = values, moved
    return values, ended_by


def _move(
    constant: Constant,
    values: Mapping[str, float],
    step: float,
    best: float,
    cases: Sequence[Case],
    search: _Search,
) -> tuple[dict[str, float], float] | None:
    """The better of one step up and one step down, None where neither is better."""
    place = constant.place(values[constant.key])
    places = (place + step, place - step)
    candidates = [{**values, constant.key: constant.at(there)} for there in places]
    return _better([each for each in candidates if each != values], best, cases, search)


def _further(
    constants: Sequence[Constant], before: Mapping[str, float], values: Mapping[str, float]
) -> dict[str, float]:
    """As far from ``values`` as they are from ``before``, on the same way."""
    return {
        constant.key: constant.at(
            2 * constant.place(values[constant.key]) - constant.place(before[constant.key])
        )
        for constant in constants
    }


def _better(
    candidates: Sequence[dict[str, float]], best: float, cases: Sequence[Case], search: _Search
) -> tuple[dict[str, float], float] | None:
    """The best of some candidates with its error, None where none is below ``best``."""
    found: tuple[dict[str, float], float] | None = None
    for candidate in candidates:
        try:
            error = _mean(search.errors(cases, candidate))
        except InputError:
            continue  # there is no such machine, or it cannot run a case
        if error < best:
            found, best = (candidate, error), error
    return found


def _mean(errors: Sequence[float]) -> float:
    return sum(errors) / len(errors) if errors else 0.0
