"""The schedule of one launch, by what it computes."""

from __future__ import annotations

from starc.core.kernel_schedules.attention_problem import AttentionProblem
from starc.core.kernel_schedules.gemm_problem import GemmProblem
from starc.core.kernel_schedules.row_schedules import RowProblem
from starc.dialects.kernel_fusion import is_fused
from starc.dialects.kernel_problems import CollectiveProblem, problem_of
from starc.passes.kernel.tiling.attention_tiles import tile_attention
from starc.passes.kernel.tiling.exchange_tiles import tile_exchange
from starc.passes.kernel.tiling.launch_schedules import set_class
from starc.passes.kernel.tiling.launch_tiler import LaunchTiler
from starc.passes.kernel.tiling.product_tiles import tile_fused, tile_gemm, tile_rows


def tile_launch(tiler: LaunchTiler) -> None:
    """Sets the schedule of a launch. Raises ``ValueError`` when none fits the device, or none that
    is as asked for."""
    launch = tiler.launch
    problem = problem_of(launch)
    window = launch.properties.get("window_bytes")
    match problem:
        case GemmProblem() if is_fused(launch):
            tile_fused(tiler)
        case GemmProblem():
            tile_gemm(tiler, problem)
        case AttentionProblem():
            tile_attention(tiler, problem)
        case RowProblem():
            tile_rows(tiler, problem)
        case CollectiveProblem():
            tile_exchange(tiler, problem)
    if window is not None:
        launch.properties["window_bytes"] = window
    set_class(launch)
