"""Pieces of the payload of a collective."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, i64

from starc.core.kernel_schedules.residency import WAVES
from starc.dialects.kernel_problems import CollectiveProblem, pieces_of
from starc.kernel_bodies.collectives.plan import is_planned, plan_of
from starc.passes.kernel.tiling.launch_schedules import set_tile
from starc.passes.kernel.tiling.launch_tiler import LaunchTiler


def tile_exchange(tiler: LaunchTiler, problem: CollectiveProblem) -> None:
    """Sets the schedule of a collective. Raises ``ValueError`` for a transport that the machine
    does not have."""
    transport = tiler.rates.transports.get(problem.transport)
    if transport is None:
        known = ", ".join(tiler.rates.transports)
        raise ValueError(f"the target has no transport '{problem.transport}', it has {known}")
    # Workgroups that have all waves of a unit leave nothing of it to others.
    reserves = tiler.target.transports[problem.transport].reserves
    waves = tiler.target.max_waves_per_cu if reserves else WAVES
    if is_planned(tiler.launch, tiler.target):
        _tile_planned(tiler, transport.window_bytes, waves)
        return
    pieces = pieces_of(problem, transport.workgroups)
    numbers = {"waves": waves, "window_bytes": transport.window_bytes}
    set_tile(tiler.launch, pieces.tile, numbers)
    tiler.say_tile(
        f"pieces of {pieces.tile[0]} x {pieces.tile[1]}",
        workgroups=pieces.workgroups,
        chunk_pieces=pieces.chunk_pieces,
    )


def _tile_planned(tiler: LaunchTiler, window_bytes: int, waves: int) -> None:
    """Of collectives that a schedule of steps stands for; workgroups that are resident together
    share the waves of a unit."""
    launch = tiler.launch
    plan = plan_of(launch, tiler.target)
    waves = max(WAVES, waves // plan.resident)
    set_tile(launch, plan.tile, {"waves": waves, "window_bytes": window_bytes})
    if launch.chunks is not None:
        launch.properties["chunks"] = IntegerAttr(plan.chunks, i64)
    boxes = [box for phase in plan.phases for value in phase.values for box in value.boxes]
    tiler.say_tile(
        f"pieces of {boxes[-1].rows} x {boxes[-1].columns}",
        workgroups=sum(plan.grids),
        chunk_pieces=max(max(phase.shares) for phase in plan.phases),
    )
