"""Formulas to beat: rooflines, refit on the rows that the simulator was fitted on.

``roofline``: ``offset + max(bytes / bandwidth, flops / rate)``.

``split-aware``: ``offset + second * kernels behind the first + max(bytes / min(bandwidth,
workgroups * rate of one), flops / rate)``: it knows how many workgroups stream side by side.

Constants are found by least absolute error (relative to what was measured) with a simplex search in
logarithms from several fixed starts: no random numbers, the same constants every time. A constant
that the rows of a class cannot tell (no FLOP, no second kernel) is left out and not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from starc.validation.rows import Work

Floats = npt.NDArray[np.float64]

ROOFLINE: Final = "roofline"
SPLIT_AWARE: Final = "split-aware"
BASELINES: Final = (ROOFLINE, SPLIT_AWARE)

# Where the search starts, in us, bytes/us and FLOP/us: an offset, a rate of memory, one of a
# matrix engine, one of a workgroup. What it ends with does not depend on them beyond rounding.
_STARTS: Final[Mapping[str, tuple[float, ...]]] = {
    "offset_us": (1.0, 6.0),
    "second_offset_us": (1.0,),
    "bandwidth": (1e6, 4e6),
    "matrix_rate": (2e8, 7e8),
    "workgroup_rate": (3e4, 2e5),
}
_ROUNDS: Final = 600


@dataclass(frozen=True)
class Baseline:
    """A fitted formula: constants by name (us, bytes per us, FLOP per us)."""

    name: str
    constants: Mapping[str, float]
    rows: int  # that it was fitted on

    def time(self, work: Work) -> float:
        """Microseconds of a case."""
        return float(_times(self.constants, _Table.of([work]))[0])


@dataclass(frozen=True)
class _Table:
    bytes: Floats
    flops: Floats
    workgroups: Floats
    stages: Floats

    @classmethod
    def of(cls, works: Sequence[Work]) -> _Table:
        def column(values: Sequence[float]) -> Floats:
            return np.array(values, dtype=np.float64)

        return cls(
            column([work.bytes for work in works]),
            column([work.flops for work in works]),
            column([work.workgroups or np.inf for work in works]),
            column([work.stages for work in works]),
        )


def fit(works: Sequence[Work], measured: Sequence[float]) -> dict[str, Baseline]:
    """Both baselines, refit on these rows; none for no rows."""
    if not works:
        return {}
    table = _Table.of(works)
    target = np.array(measured, dtype=np.float64)
    names = ["offset_us"]
    names += ["bandwidth"] if bool(np.any(table.bytes > 0)) else []
    names += ["matrix_rate"] if bool(np.any(table.flops > 0)) else []
    split = list(names)
    if bool(np.any(np.isfinite(table.workgroups))):
        split.append("workgroup_rate")
    if bool(np.any(table.stages > 0)):
        split.append("second_offset_us")
    found: dict[str, Baseline] = {}
    for name, constants in ((ROOFLINE, names), (SPLIT_AWARE, split)):
        found[name] = Baseline(name, _search(constants, table, target), len(works))
    return found


def _times(constants: Mapping[str, float], table: _Table) -> Floats:
    time = np.zeros_like(table.bytes)
    if "bandwidth" in constants:
        rate = np.full_like(table.bytes, constants["bandwidth"])
        if "workgroup_rate" in constants:
            rate = np.minimum(rate, constants["workgroup_rate"] * table.workgroups)
        time = np.maximum(time, table.bytes / rate)
    if "matrix_rate" in constants:
        time = np.maximum(time, table.flops / constants["matrix_rate"])
    second = constants.get("second_offset_us", 0.0)
    return time + constants["offset_us"] + second * table.stages


def _search(names: Sequence[str], table: _Table, measured: Floats) -> dict[str, float]:
    def loss(point: Floats) -> float:
        constants = dict(zip(names, np.exp(np.clip(point, -50, 50)).tolist(), strict=True))
        return float(np.mean(np.abs(_times(constants, table) / measured - 1.0)))

    best: tuple[float, Floats] | None = None
    for start in _starts(names):
        value, point = simplex(loss, np.log(start))
        value, point = simplex(loss, point)
        if best is None or value < best[0]:
            best = value, point
    assert best is not None
    return dict(zip(names, np.exp(best[1]).tolist(), strict=True))


def _starts(names: Sequence[str]) -> list[Floats]:
    starts: list[list[float]] = [[]]
    for name in names:
        starts = [[*start, value] for start in starts for value in _STARTS[name]]
    return [np.array(start, dtype=np.float64) for start in starts]


def simplex(
    loss: Callable[[Floats], float], start: Floats, *, step: float = 0.3, rounds: int = _ROUNDS
) -> tuple[float, Floats]:
    """The minimum that Nelder and Mead's method finds, and where it lies."""
    points = [start, *(start + step * unit for unit in np.eye(len(start)))]
    ranked = sorted(((loss(point), i, point) for i, point in enumerate(points)), key=_by_loss)
    count = len(ranked)
    for _ in range(rounds):
        if ranked[-1][0] - ranked[0][0] < 1e-12:
            break
        centre = np.mean([point for _, _, point in ranked[:-1]], axis=0)
        worst = ranked[-1][2]
        chosen = _moved(loss, centre, worst, 1.0)
        if chosen[0] < ranked[0][0]:
            chosen = min(chosen, _moved(loss, centre, worst, 2.0), key=lambda item: item[0])
        elif chosen[0] >= ranked[-2][0]:
            inside = 0.5 if chosen[0] < ranked[-1][0] else -0.5
            chosen = min(chosen, _moved(loss, centre, worst, inside), key=lambda item: item[0])
        if chosen[0] < ranked[-1][0]:
            ranked[-1] = (chosen[0], count, chosen[1])
        else:
            first = ranked[0][2]
            shrunk = [first + 0.5 * (point - first) for _, _, point in ranked[1:]]
            ranked[1:] = [(loss(point), count + i, point) for i, point in enumerate(shrunk)]
        count += len(ranked)
        ranked.sort(key=_by_loss)
    return ranked[0][0], ranked[0][2]


def _by_loss(item: tuple[float, int, Floats]) -> tuple[float, int]:
    return item[0], item[1]


def _moved(
    loss: Callable[[Floats], float], centre: Floats, worst: Floats, factor: float
) -> tuple[float, Floats]:
    point = centre + factor * (centre - worst)
    return loss(point), point
