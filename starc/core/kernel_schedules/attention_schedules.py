"""How attention is cut into workgroups: FlashDecoding for few query rows, FlashAttention for many.

**Rule.** When the queries that share a KV head (``query * group`` rows) fit one tile of 128 rows,
they are packed: a task is (sequence, KV head), and its keys are shared out among ``split``
workgroups. Otherwise a task is (sequence, query head) with tiles of 128 or 64 query rows, whole
keys each. Every candidate (key tile, shares or row tile, slots) that fits a compute unit gets an
estimated time, and the smallest wins; ties go to fewer shares, then to larger tiles.

Shares: the busiest compute unit has ``ceil(tasks * split / units)`` of them, so that the estimate
favours counts that fill the units evenly; there are never more shares than key tiles. ``owner``
combines where all workgroups are resident, a second launch otherwise.
Causal row tiles differ in length: the longest start first and share their compute unit with the
shortest, and the estimate is that of list scheduling, but no less than the longest tile alone.
"""

from __future__ import annotations

from typing import Final

from starc.core.kernel_schedules.attention_estimates import decode_schedules, prefill_schedules
from starc.core.kernel_schedules.attention_problem import (
    ANY,
    AttentionOptions,
    AttentionProblem,
    AttentionSchedule,
)
from starc.core.kernel_schedules.device_rates import DeviceRates

PACKED_ROWS: Final = 128


def choose_attention(
    problem: AttentionProblem,
    rates: DeviceRates,
    *,
    options: AttentionOptions = ANY,
    alternatives: int = 3,
) -> tuple[AttentionSchedule, ...]:
    """The best schedule first, then the next ones with other tiles or shares.

    Raises ``ValueError`` when no candidate fits the device, or none that is as asked for.
    """
    packed = problem.query * problem.group <= PACKED_ROWS
    if not packed and options.split not in (None, 1):
        raise ValueError("keys are shared out only where all queries of a KV head are one tile")
    find = decode_schedules if packed else prefill_schedules
    candidates = find(problem, rates, options)
    ranked = sorted(
        candidates, key=lambda s: (s.seconds, s.split, -s.tile[0] * s.tile[1], s.stages)
    )
    if not ranked:
        asked = "" if options == ANY else " as asked for"
        raise ValueError(f"no attention tile{asked} fits the scratch memory of a compute unit")
    chosen: dict[tuple[int, int, int], AttentionSchedule] = {}
    for schedule in ranked:
        chosen.setdefault((*schedule.tile[:2], schedule.split), schedule)
        if len(chosen) > alternatives:
            break
    return tuple(chosen.values())
