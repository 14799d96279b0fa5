"""Matrix products, what is asked for of their schedules, and the schedules that are found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starc.core.kernel_schedules.share_merging import Combine, Merge

Tile = tuple[int, int, int]
"""Rows m, columns n, and the step k of the loop over K."""


@dataclass(frozen=True)
class GemmProblem:
    """One launch of matrix products with a shared input: [batch, query, k] x [k, n] for each n."""

    batch: int
    query: int
    columns: tuple[int, ...]
    k: int
    dtype: str = "bf16"
    element_bytes: int = 2

    @property
    def m(self) -> int:
        return self.batch * self.query

    @property
    def n(self) -> int:
        return sum(self.columns)

    @property
    def flops(self) -> int:
        """2 m n k over the outputs."""
        return 2 * self.m * self.n * self.k

    @property
    def compulsory_bytes(self) -> int:
        """Input and weights once, results once."""
        return (self.m * self.k + self.k * self.n + self.m * self.n) * self.element_bytes


@dataclass(frozen=True)
class GemmOptions:
    """What a caller fixes of a schedule; ``None`` leaves it to the estimate.

    ``streams`` is the number of persistent workgroups of stream-K, 0 for none of it;
    ``whole_rounds`` how many rounds of its tiles stay whole (0: all steps are shared out).
    ``group`` is the number of tile rows that are walked together, ``multicast`` how many
    workgroups share the loads of one operand.
    """

    tile: Tile | None = None
    split: int | None = None
    combine: Combine | None = None
    stages: int | None = None
    waves: int | None = None
    streams: int | None = None
    whole_rounds: int | None = None
    group: int | None = None
    multicast: int | None = None

    def allows(self, schedule: GemmSchedule) -> bool:
        """Whether a schedule is as it is asked for."""
        return self.combine in (None, schedule.combine) or schedule.split == 1


ANY: Final = GemmOptions()


@dataclass(frozen=True)
class GemmSchedule:
    """A schedule and its estimate; ``terms`` are the seconds that were compared and added."""

    tile: Tile
    split: int
    merge: Merge
    stages: int
    waves: int
    window_bytes: int
    resident: int  # workgroups that fit a compute unit
    row_tiles: int
    column_tiles: tuple[int, ...]
    group: int  # tile rows that are walked together
    seconds: float
    terms: tuple[tuple[str, float], ...]
    streams: int = 0  # persistent workgroups, 0 for one a tile and share
    multicast: int = 1  # workgroups that share the loads of an operand

    @property
    def combine(self) -> Combine | None:
        return self.merge.combine

    @property
    def tiles(self) -> int:
        return self.row_tiles * sum(self.column_tiles)

    @property
    def grid(self) -> int:
        return self.streams or self.tiles * self.split

    def __str__(self) -> str:
        m, n, k = self.tile
        shares = f"split {self.split}" if not self.streams else f"stream-K over {self.streams}"
        shared = f" multicast {self.multicast}" if self.multicast > 1 else ""
        return f"{m}x{n}x{k} {shares} stages {self.stages}{shared}"
