"""In which order workgroups of attention take row tiles and heads."""

from __future__ import annotations

from typing import Final

from starc.core.kernel_schedules.attention_problem import AttentionProblem
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.tiling import overlapped

DEALT: Final = 1.02  # gain that is worth it


def row_tile_order(row_tiles: int, tasks: int, resident: int, units: int) -> tuple[int, ...]:
    """Row tiles of causal attention in the order in which they start, those of all tasks together.

    The longest (last) come first, a compute unit after the other. Workgroups that start beside them
    at once, as long as ``resident`` fit a unit, come in turns from short to long and from long to
    short, so that the longest ones share their unit with the shortest; the rest starts, longest
    first, where one has ended.

        >>> row_tile_order(8, 1, 2, 5)
        (7, 6, 5, 4, 3, 0, 1, 2)
    """
    order = list(range(row_tiles - 1, -1, -1))
    wave = round(units / tasks)
    if wave < 1:
        return tuple(order)
    for first in range(wave, min(row_tiles, resident * wave), 2 * wave):
        order[first : first + wave] = reversed(order[first : first + wave])
    return tuple(order)


def deals_heads(
    problem: AttentionProblem, rates: DeviceRates, row_tiles: int, resident: int
) -> bool:
    """Whether dies get neighbouring query heads each, so that those of a KV head are together,
    instead of taking them in turns: by the time of what then misses the L2 beside the products."""
    tasks = problem.batch * problem.kv_heads * problem.group
    if rates.dies == 1 or tasks % rates.dies:
        return False
    each = tasks // rates.dies
    matrix = problem.flops / (rates.matrix_rate(problem.dtype) * rates.compute_units)
    keys = 2 * problem.visible_keys * problem.key_bytes
    at_once = resident * rates.compute_units // rates.dies
    rounds = max(1.0, each * row_tiles / at_once)

    def seconds(heads: int) -> float:
        """With the keys of so many KV heads on a die."""
        passes = 1.0 if heads * keys <= rates.l2_bytes else rounds
        return overlapped((matrix, rates.dies * heads * keys * passes / rates.mall_rate))

    dealt = {task // problem.group for task in range(each)}
    in_turns = {task // problem.group for task in range(0, tasks, rates.dies)}
    return seconds(len(dealt)) * DEALT < seconds(len(in_turns))
