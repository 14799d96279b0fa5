"""Tiles of matrix products, alone or with the exchanges around them, and of kernels without one."""

from __future__ import annotations

from starc.core.kernel_schedules.fused_schedules import Pull, choose_fused
from starc.core.kernel_schedules.gemm_problem import GemmOptions, GemmProblem, GemmSchedule
from starc.core.kernel_schedules.row_schedules import RowProblem, choose_rows
from starc.core.kernel_schedules.tile_schedules import choose_gemm
from starc.diagnostics import counted
from starc.dialects.kernel_attributes import integers
from starc.dialects.kernel_fusion import fused_problem
from starc.passes.kernel.tiling.launch_schedules import set_fused, set_product, set_tile
from starc.passes.kernel.tiling.launch_tiler import LaunchTiler


def tile_gemm(tiler: LaunchTiler, problem: GemmProblem) -> None:
    """Sets the schedule of a product."""
    options = tiler.options.gemm
    ranked = choose_gemm(problem, tiler.rates, options=options)
    set_product(tiler.launch, ranked[0], _ways(ranked[0], options))
    if options.group is not None:
        tiler.launch.properties["swizzle"] = integers((options.group, 1))
    tiler.say_choice(ranked, problem)


def _ways(schedule: GemmSchedule, options: GemmOptions) -> dict[str, int]:
    """What a product has where it is not one workgroup a tile that loads for itself."""
    more: dict[str, int] = {}
    if schedule.streams:
        more["streams"] = schedule.streams
        if options.whole_rounds is not None:
            more["whole_rounds"] = options.whole_rounds
    if schedule.multicast > 1:
        more["multicast"] = schedule.multicast
    return more


def tile_fused(tiler: LaunchTiler) -> None:
    """Sets the schedule of a product that exchanges data with peers."""
    launch = tiler.launch
    way = Pull(launch.pull.data) if launch.pull is not None else None
    ways = choose_fused(fused_problem(launch, tiler.rates), tiler.rates)
    found = next((schedule for schedule in ways if way in (None, schedule.pull)), None)
    if found is None:
        raise ValueError("its workgroups wait for peers, and no tile lets all of them be resident")
    set_fused(launch, found)
    tiler.say_tile(
        f"tiles of {found}, estimated {found.seconds * 1e6:.2f} us",
        workgroups=sum(found.grid),
        estimate_us=round(found.seconds * 1e6, 3),
    )


def tile_rows(tiler: LaunchTiler, problem: RowProblem) -> None:
    """Sets the schedule of a kernel that works row by row or element by element."""
    rows = choose_rows(problem, tiler.rates, options=tiler.options.rows)
    set_tile(tiler.launch, rows.tile, {"waves": rows.waves, "window_bytes": rows.window_bytes})
    tiler.say_tile(
        f"tiles of {rows.tile[0]} x {rows.tile[1]}, {counted(rows.grid, 'workgroup')}, estimated "
        f"{rows.seconds * 1e6:.2f} us",
        workgroups=rows.grid,
        estimate_us=round(rows.seconds * 1e6, 3),
    )
