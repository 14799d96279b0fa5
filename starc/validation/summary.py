"""A validation's figures: rows with baselines, errors of groups, and where who wins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Final

from starc.validation import baselines as base
from starc.validation.registry import (
    class_margins,
    constants_of,
    group_of,
    margin_of,
    role_of,
    work_of,
)
from starc.validation.rows import Case, Row, Work

SIMULATOR: Final = "simulator"
MODELS: Final = (SIMULATOR, *base.BASELINES)


@dataclass(frozen=True)
class Errors:
    """Errors of some rows, as fractions. ``correlation`` is that of the logarithms of measured and
    simulated values, None for fewer than three rows or values that do not vary."""

    rows: int
    mean: float
    median: float
    largest: float
    bias: float
    correlation: float | None


@dataclass(frozen=True)
class Group:
    """Rows that are summed up together: a class, or a part of one; scored tests or fitted ones."""

    kind: str
    group: str
    rows: str  # "tests" or "fitted"
    errors: Mapping[str, Errors]  # by model


@dataclass(frozen=True)
class Constant:
    """A number of the target that was fitted to measurements."""

    key: str
    value: float
    unit: str
    note: str


@dataclass(frozen=True)
class Margin:
    """A stated margin and what was found."""

    what: str
    limit: float
    found: float

    @property
    def held(self) -> bool:
        return self.found <= self.limit


@dataclass(frozen=True)
class Duel:
    """Tests of a class, simulator against the split-aware roofline: who is nearer how often, and
    the rows that each loses by most."""

    kind: str
    wins: int
    losses: int
    worst: tuple[Row, ...]


@dataclass(frozen=True)
class Validation:
    """Everything that a report says."""

    rows: tuple[Row, ...]
    groups: tuple[Group, ...]
    baselines: Mapping[str, Mapping[str, base.Baseline]]  # by class, by name
    constants: Mapping[str, tuple[Constant, ...]]  # by class
    duels: tuple[Duel, ...]
    margins: tuple[Margin, ...]
    targets: Mapping[str, str]  # by file
    warnings: tuple[str, ...] = field(default=())

    @property
    def holds(self) -> bool:
        """Whether every stated margin is held."""
        return all(margin.held for margin in self.margins)


def fit_baselines(reference: Sequence[Case]) -> dict[str, dict[str, base.Baseline]]:
    """The baselines of every class, refit on the rows that the simulator was fitted on; on all rows
    that are scored where it was fitted on none of the class."""
    works: dict[str, list[tuple[Work, float, bool]]] = {}
    for case in reference:
        role = role_of(case, shipped=True)
        work = work_of(case)
        if work is not None and role in ("anchor", "fitted", "test"):
            works.setdefault(case.kind, []).append((work, case.measured, role != "test"))
    found: dict[str, dict[str, base.Baseline]] = {}
    for kind, rows in works.items():
        fitted = [row for row in rows if row[2]] or rows
        found[kind] = base.fit([row[0] for row in fitted], [row[1] for row in fitted])
    return found


def make_rows(
    cases: Sequence[Case],
    simulated: Sequence[float],
    fitted: Mapping[str, Mapping[str, base.Baseline]],
    *,
    shipped: bool,
) -> tuple[Row, ...]:
    """Rows of cases, in their order."""
    rows: list[Row] = []
    for case, value in zip(cases, simulated, strict=True):
        work = work_of(case)
        times: dict[str, float] = {}
        if work is not None and case.kind in fitted:
            times = {name: formula.time(work) for name, formula in fitted[case.kind].items()}
        rows.append(
            Row(
                case.file,
                case.kind,
                group_of(case),
                case.parameters,
                case.measured,
                value,
                case.unit,
                role_of(case, shipped=shipped),
                margin_of(case),
                times,
            )
        )
    return tuple(rows)


def summarise(
    rows: tuple[Row, ...],
    fitted: Mapping[str, Mapping[str, base.Baseline]],
    constants: Mapping[str, tuple[Constant, ...]],
    targets: Mapping[str, str],
    warnings: Sequence[str] = (),
) -> Validation:
    """Groups, duels and margins of rows."""
    groups: list[Group] = []
    duels: list[Duel] = []
    margins: list[Margin] = []
    for kind in dict.fromkeys(row.kind for row in rows):
        own = [row for row in rows if row.kind == kind]
        parts = list(dict.fromkeys(row.group for row in own))
        tests = [row for row in own if row.role == "test"]
        fits = [row for row in own if row.fitted]
        for part in parts if len(parts) > 1 else []:
            some = [row for row in tests if row.group == part]
            groups += [Group(kind, part, "tests", errors_by_model(some))] if some else []
        groups += [Group(kind, "all", "tests", errors_by_model(tests))] if tests else []
        groups += [Group(kind, "all", "fitted", errors_by_model(fits))] if fits else []
        if any(base.SPLIT_AWARE in row.baselines for row in tests):
            duels.append(duel(kind, tests))
        limits = class_margins(own[0].file)
        if kind in limits and tests:
            mean = fmean(abs(row.error) for row in tests)
            margins.append(Margin(f"{kind}: mean error of {len(tests)} tests", limits[kind], mean))
    scored = [row for row in rows if row.role == "test"]
    if scored and len({row.kind for row in scored}) > 1:
        groups.append(Group("all", "all", "tests", errors_by_model(scored)))
    margins += [
        Margin(f"{row.file}: {describe(row)}", row.margin, abs(row.error))
        for row in rows
        if row.margin is not None and row.role != "shown"
    ]
    return Validation(
        rows,
        tuple(groups),
        fitted,
        constants,
        tuple(duels),
        tuple(margins),
        targets,
        tuple(warnings),
    )


def describe(row: Row) -> str:
    """The parameters of a row on one line, without what a file says of its role."""
    return " ".join(
        f"{name}={value}"
        for name, value in row.parameters.items()
        if name not in ("role", "margin")
    )


def errors_by_model(rows: Sequence[Row]) -> dict[str, Errors]:
    """Errors of the simulator and, where every row has them, of the baselines."""
    found = {SIMULATOR: errors_of(rows, lambda row: row.simulated)}
    for name in base.BASELINES:
        if all(name in row.baselines for row in rows):
            found[name] = errors_of(rows, lambda row, name=name: row.baselines[name])
    return found


def errors_of(rows: Sequence[Row], value: Callable[[Row], float]) -> Errors:
    """Errors of one model of at least one row."""
    errors = [value(row) / row.measured - 1.0 for row in rows]
    sizes = [abs(error) for error in errors]
    return Errors(
        len(rows),
        fmean(sizes),
        median(sizes),
        max(sizes),
        fmean(errors),
        _correlation([row.measured for row in rows], [value(row) for row in rows]),
    )


def _correlation(measured: Sequence[float], found: Sequence[float]) -> float | None:
    from math import log

    if len(measured) < 3 or min(*measured, *found) <= 0:
        return None
    a, b = [log(value) for value in measured], [log(value) for value in found]
    mean_a, mean_b = fmean(a), fmean(b)
    spread_a = sum((value - mean_a) ** 2 for value in a)
    spread_b = sum((value - mean_b) ** 2 for value in b)
    if spread_a <= 0 or spread_b <= 0:
        return None
    both = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    return both / (spread_a * spread_b) ** 0.5


def duel(kind: str, tests: Sequence[Row]) -> Duel:
    """Who is nearer to the measured value, row by row. Equal errors are nobody's."""
    rows = [row for row in tests if base.SPLIT_AWARE in row.baselines]

    def lead(row: Row) -> float:
        return abs(row.error) - abs(row.baseline_error(base.SPLIT_AWARE))

    losses = sorted((row for row in rows if lead(row) > 0), key=lambda row: -lead(row))
    wins = sum(1 for row in rows if lead(row) < 0)
    return Duel(kind, wins, len(losses), tuple(losses[:5]))


def constants_by_kind(
    cases: Sequence[Case], targets: Mapping[str, str]
) -> dict[str, tuple[Constant, ...]]:
    """The calibrated numbers of the machines that count for each class."""
    from starc.targets.names import numbers

    found: dict[str, tuple[Constant, ...]] = {}
    for case in cases:
        if case.kind in found:
            continue
        wanted = constants_of(case.file)
        found[case.kind] = tuple(
            Constant(number.key, float(number.value), number.unit, number.note)
            for number in numbers(targets[case.file])
            if number.key in wanted
        )
    return found
