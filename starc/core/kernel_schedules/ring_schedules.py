"""Tiles of an attention whose keys go around a ring, and an estimate of its time.

A tile of query rows follows each other in position, within what a PE holds of them side by side;
a tile of keys is what is dealt out together, or as many as fit. The smallest estimate wins: the
tiles that the busiest PE computes, each as long as its slowest engine takes, and the times at which
cubes wait for each other (``makespan``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from starc.core.kernel_schedules.attention_problem import (
    AttentionOptions,
    AttentionProblem,
    AttentionSchedule,
)
from starc.core.kernel_schedules.cube_schedules import (
    best,
    element_schedule,
    issue_seconds,
    refuse_shares,
    sub_tile,
    tile_bytes,
    tile_seconds,
)
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.ring_prefill import SLOTS, RingProblem, makespan
from starc.core.kernel_schedules.tile_softmax import OPERATIONS
from starc.core.sharding.ring_sharding import MOST_KEYS, row_tile
from starc.core.sharding.shard_map import Cyclic
from starc.core.tiling import ceil_div

if TYPE_CHECKING:
    from starc.targets.target import Target

STAGES: Final = 2
"""Slots of sub-tiles of keys and of values, and of what goes on to the next cube."""
KEY_TILES: Final = (MOST_KEYS, 64, 32)
CHUNKS: Final = 4
"""Tiles of keys and values on their way to a slot, and from one to the next cube."""


@dataclass(frozen=True)
class RingTiles:
    """``sub`` keys are one load; ``work`` is the ring with these tiles, ``waiting`` the part of the
    time in which cubes wait for others."""

    schedule: AttentionSchedule
    sub: int
    work: RingProblem
    waiting: float


def choose_ring_tiles(
    problem: AttentionProblem,
    work: RingProblem,
    rates: DeviceRates,
    target: Target,
    options: AttentionOptions,
    slots: int = SLOTS,
    softmax: str = OPERATIONS,
) -> RingTiles:
    """The tiles of the smallest estimate; ``work`` has the maps of keys and rows, its tiles do not
    matter. Raises ``ValueError`` where none fits the scratch memory."""
    refuse_shares(options)
    return best(
        _candidates(problem, work, rates, target, options, slots, softmax),
        lambda tiles: (tiles.schedule.seconds, tiles.schedule.tile),
    )


def _candidates(
    problem: AttentionProblem,
    work: RingProblem,
    rates: DeviceRates,
    target: Target,
    options: AttentionOptions,
    slots: int,
    softmax: str,
) -> Iterator[RingTiles]:
    group = problem.group
    most = row_tile(work.rows, work.query, work.pes, group)
    positions = most if options.rows is None else max(1, min(most, options.rows // group))
    share = ceil_div(work.context, work.cubes * work.pes)
    dealt = work.keys.block if isinstance(work.keys, Cyclic) else MOST_KEYS
    keys_of = KEY_TILES if dealt in KEY_TILES else (dealt, *KEY_TILES)
    stages = options.stages or STAGES
    for keys in keys_of if options.keys is None else (options.keys,):
        if options.keys is None and keys >= 2 * share and keys != min(keys_of):
            continue
        sub = sub_tile(target, problem.key_bytes, keys)
        room = target.scratch_bytes_per_cu - target.queue_bytes
        rows = positions * group
        passing = CHUNKS * stages * sub * problem.key_bytes
        if tile_bytes(problem, rows, keys, sub, stages) + passing > room and options.keys is None:
            continue
        tiled = replace(work, row_tile=positions, key_tile=keys)
        terms = tile_seconds(problem, rates, target, rows, keys, softmax)
        step = max(*terms.values(), issue_seconds(target, softmax))
        costs = [step * tiles for tiles in _busiest(tiled)]
        link = rates.links[target.mesh[2][3]] if len(target.mesh) > 2 else None
        bytes_of_block = 2 * share * problem.key_bytes * work.pes
        transfer = bytes_of_block / link.bytes_per_s if link is not None else 0.0
        tasks = problem.batch * problem.kv_heads
        seconds = tasks * makespan(costs, transfer, slots)
        steps = tasks * sum(_busiest(tiled))
        busy = (
            *((name, steps * each) for name, each in terms.items()),
            ("links", tasks * (work.cubes - 1) * transfer),
        )
        schedule = element_schedule(problem, target, (rows, keys), positions, stages, seconds, busy)
        yield RingTiles(schedule, sub, tiled, max(0.0, seconds - tasks * sum(costs)))


def _busiest(work: RingProblem) -> list[int]:
    """Pairs of tiles of the busiest PE, of each block."""
    return [max(work.block_tiles(cube, pe) for pe in range(work.pes)) for cube in range(work.cubes)]
