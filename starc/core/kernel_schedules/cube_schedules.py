"""Tiles of attention on the engines of a processing element, and an estimate of their time.

One workgroup goes through all tasks of a device. Query heads of a KV head are rows of one tile, so
that keys and values are read once for all of them. A tile of keys streams through sub-tiles, each a
whole number of the matrix engine's columns and of stripes over the memory's channels; scores of
two tiles, the weights of one and the slots of keys and values share the scratch memory with the
queues of other devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starc.core.kernel_schedules.attention_problem import (
    AttentionOptions,
    AttentionProblem,
    AttentionSchedule,
    total_key_steps,
)
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.share_merging import NO_MERGE
from starc.core.kernel_schedules.tile_softmax import COMMANDS, OPERATIONS, ROW_OPERATIONS
from starc.core.tiling import ceil_div, covering_power_of_two

if TYPE_CHECKING:
    from starc.targets.target import Target

_Tiles = TypeVar("_Tiles")

KEY_TILES: Final = (1024, 512, 256, 128, 64, 32, 16)
ROWS: Final = 128
"""Query rows of a tile where a KV head has more of them."""
SLOTS: Final = 3
"""Of sub-tiles of keys and of values: one is read while two are on their way."""
F32: Final = 4


@dataclass(frozen=True)
class ElementTiles:
    """The tiles of an attention: ``sub`` keys of one load."""

    schedule: AttentionSchedule
    sub: int


def sub_tile(target: Target, key_bytes: int, keys: int) -> int:
    """Keys of a sub-tile: whole tiles of the matrix engine, twice, and whole stripes of the
    channels, as far as the tile has them."""
    columns = target.matrix_tile[1] if target.matrix_tile else target.matrix_rows
    stripe = ceil_div(target.channels * max(1, target.channel_granule), key_bytes)
    wanted = max(2 * columns, stripe)
    size = keys
    while size > wanted and size % 2 == 0:
        size //= 2
    return size


def choose_element_tiles(
    problem: AttentionProblem,
    rates: DeviceRates,
    target: Target,
    options: AttentionOptions,
    softmax: str = OPERATIONS,
) -> ElementTiles:
    """The tiles of the smallest estimate. Raises ``ValueError`` where none fits the scratch memory,
    or for shares of the keys, which one compute unit has no use for."""
    refuse_shares(options)
    return best(
        _candidates(problem, rates, target, options, softmax),
        lambda tiles: (tiles.schedule.seconds, -tiles.schedule.tile[1]),
    )


def refuse_shares(options: AttentionOptions) -> None:
    """Raises ``ValueError`` for shares of the keys, which one compute unit has no use for."""
    if options.split not in (None, 1):
        raise ValueError("an element has one compute unit: keys are not shared out")


def best(candidates: Iterable[_Tiles], key: Callable[[_Tiles], Any]) -> _Tiles:
    """The first of the candidates with the smallest key. Raises ``ValueError`` for none."""
    found = min(candidates, key=key, default=None)
    if found is None:
        raise ValueError("no attention tile fits the scratch memory beside the queues")
    return found


def _candidates(
    problem: AttentionProblem,
    rates: DeviceRates,
    target: Target,
    options: AttentionOptions,
    softmax: str,
) -> Iterator[ElementTiles]:
    heads = problem.group
    every = problem.query * heads
    rows = options.rows or (every if every <= ROWS else max(1, ROWS // heads) * heads)
    rows = min(rows, every)
    positions = max(1, rows // heads)
    row_tiles = ceil_div(problem.query, positions)
    tasks = problem.batch * problem.kv_heads
    room = target.scratch_bytes_per_cu - target.queue_bytes
    longest = max(1, problem.visible_keys)
    # A tile of more keys than there are computes what is masked.
    most = max(KEY_TILES[-1], covering_power_of_two(longest))
    for keys in KEY_TILES if options.keys is None else (min(options.keys, most),):
        if options.keys is None and keys >= 2 * longest and keys != KEY_TILES[-1]:
            continue
        if problem.window is not None and problem.block > 1 and problem.block % keys:
            continue  # a tile must be positions in a row
        sub = sub_tile(target, problem.key_bytes, keys)
        stages = options.stages or SLOTS
        if tile_bytes(problem, rows, keys, sub, stages) > room and options.keys is None:
            continue
        steps, _ = total_key_steps(problem, positions, keys)
        terms = tile_seconds(problem, rates, target, rows, keys, softmax)
        step = max(terms.values())
        issue = issue_seconds(target, softmax)
        # The first tile has nothing to overlap with.
        seconds = tasks * (steps * max(step, issue) + row_tiles * sum(terms.values()))
        busy = tuple((name, tasks * steps * each) for name, each in terms.items())
        tile = positions * heads, keys
        schedule = element_schedule(problem, target, tile, positions, stages, seconds, busy)
        yield ElementTiles(schedule, sub)


def element_schedule(
    problem: AttentionProblem,
    target: Target,
    tile: tuple[int, int],
    positions: int,
    stages: int,
    seconds: float,
    terms: tuple[tuple[str, float], ...],
) -> AttentionSchedule:
    """The schedule of one workgroup that goes through all tasks of a device with a tile of rows x
    keys, of ``positions`` query positions."""
    return AttentionSchedule(
        tile=(*tile, problem.head_dim),
        group=problem.group,
        split=1,
        merge=NO_MERGE,
        stages=stages,
        waves=1,
        window_bytes=target.window_bytes_per_cu,
        resident=1,
        tasks=problem.batch * problem.kv_heads,
        row_tiles=ceil_div(problem.query, positions),
        seconds=seconds,
        terms=terms,
    )


def tile_bytes(problem: AttentionProblem, rows: int, keys: int, sub: int, stages: int) -> int:
    """Bytes of all tiles."""
    d, width = problem.head_dim, problem.element_bytes
    scores = rows * keys * (2 * F32 + width)
    state = rows * (d * (width + 3 * F32) + 6 * F32)
    return scores + state + 2 * stages * sub * problem.key_bytes


def issue_seconds(target: Target, softmax: str) -> float:
    """Seconds of the CPU for a tile of keys."""
    costs = target.issue_ps
    return (2 * costs["composite"] + COMMANDS[softmax] * costs["math"]) * 1e-12


def tile_seconds(
    problem: AttentionProblem,
    rates: DeviceRates,
    target: Target,
    rows: int,
    keys: int,
    softmax: str = OPERATIONS,
) -> dict[str, float]:
    """Seconds of the engines for a tile of keys."""
    m, n, k = target.matrix_tile if target.matrix_tile else (target.matrix_rows,) * 3

    def product(columns: int, inner: int) -> int:
        padded = ceil_div(rows, m) * m * ceil_div(columns, n) * n * ceil_div(inner, k) * k
        return 2 * padded

    d = problem.head_dim
    flops = product(keys, d) + product(d, keys)
    plain = 6 * rows * keys + ROW_OPERATIONS[softmax] * rows
    weights = rates.vector_seconds(plain, rows * keys)
    others = rates.vector_seconds(rows * keys + 5 * rows * d, 0)
    return {
        "matrix": flops / target.matrix_rate(problem.dtype),
        "vector": weights + others,
        "memory": 2 * keys * problem.key_bytes / rates.hbm_rate,
    }
