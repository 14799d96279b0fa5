"""Tiles of attention: on compute units, on the engines of an element, or of keys that go around."""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr

from starc.core.kernel_schedules.attention_problem import AttentionProblem
from starc.core.kernel_schedules.attention_schedules import choose_attention
from starc.core.kernel_schedules.cube_schedules import ElementTiles, choose_element_tiles
from starc.core.kernel_schedules.ring_schedules import choose_ring_tiles
from starc.dialects.kernel_fusion import merging_of
from starc.dialects.kernel_rings import ring_problem, rows_are_split
from starc.passes.kernel.tiling.launch_schedules import set_product
from starc.passes.kernel.tiling.launch_tiler import LaunchTiler


def tile_attention(tiler: LaunchTiler, problem: AttentionProblem) -> None:
    """Sets the schedule of an attention."""
    if tiler.launch.ring is not None:
        _tile_ring(tiler, problem)
    elif tiler.target.engines:
        _tile_element(tiler, problem)
    else:
        ranked = choose_attention(problem, tiler.rates, options=tiler.options.attention)
        set_product(tiler.launch, ranked[0], {"group": ranked[0].group})
        tiler.say_choice(ranked, problem)


def _tile_ring(tiler: LaunchTiler, problem: AttentionProblem) -> None:
    """Attention whose keys go around the cubes of a group."""
    launch, options = tiler.launch, tiler.options
    tiles = choose_ring_tiles(
        problem,
        ring_problem(launch),
        tiler.rates,
        tiler.target,
        options.attention,
        options.ring_slots,
        options.softmax,
    )
    schedule = tiles.schedule
    more = {"group": schedule.group, "sub_tile": tiles.sub, "ring_slots": options.ring_slots}
    set_product(launch, schedule, more)
    launch.properties["softmax"] = StringAttr(options.softmax)
    tiler.say_choice((schedule,), problem)
    tiler.sink.remark(
        "ring-balance",
        f"{tiler.name}: the busiest PE of each step computes "
        f"{tiles.work.step_imbalance:.2f} times the mean of all; the ring waits for keys for "
        f"{tiles.waiting * 1e6:.2f} us by the estimate, which takes every PE for as slow as the "
        "busiest of its cube",
        launch,
        imbalance=round(tiles.work.step_imbalance, 3),
        waiting_us=round(tiles.waiting * 1e6, 3),
        tiles=tiles.work.tiles,
    )


def _tile_element(tiler: LaunchTiler, problem: AttentionProblem) -> None:
    """Attention on the engines of an element, and the ways by which parts of it are merged."""
    launch, options = tiler.launch, tiler.options
    if rows_are_split(launch):
        raise ValueError(
            "query rows are split over devices where keys go around, in the launch of the attention"
        )
    tiles = choose_element_tiles(
        problem, tiler.rates, tiler.target, options.attention, options.softmax
    )
    schedule = tiles.schedule
    set_product(launch, schedule, {"group": schedule.group, "sub_tile": tiles.sub})
    launch.properties["softmax"] = StringAttr(options.softmax)
    tiler.say_choice((schedule,), problem)
    _say_limits(tiler, problem, tiles)
    if merging_of(launch) is not None:
        launch.properties["reduce_inside"] = StringAttr(options.reduce_pe)
        launch.properties["reduce_across"] = StringAttr(options.reduce_cube)


def _say_limits(tiler: LaunchTiler, problem: AttentionProblem, tiles: ElementTiles) -> None:
    """Remarks tiles that take fewer keys than asked for, and several passes over them."""
    asked, keys = tiler.options.attention.keys, tiles.schedule.tile[1]
    if asked is not None and keys < asked:
        tiler.sink.remark(
            "keys-limited",
            f"{tiler.name}: attention-keys={asked}: an element has "
            f"{problem.visible_keys:,} keys, its tiles take {keys:,}",
            tiler.launch,
            declined=True,
            asked=asked,
            keys=keys,
        )
    passes = tiles.schedule.tasks
    if passes > 1:
        times = "two passes" if passes == 2 else f"{passes} passes"
        tiler.sink.remark(
            "several-passes",
            f"{tiler.name}: {times} over the keys of an element, one for each sequence "
            "and KV head that it has keys of",
            tiler.launch,
            passes=passes,
            sequences=problem.batch,
            kv_heads=problem.kv_heads,
        )
