"""A schedule that is chosen becomes the attributes of its launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute

from starc.core.kernel_schedules.attention_problem import AttentionSchedule
from starc.core.kernel_schedules.fused_schedules import FusedSchedule
from starc.core.kernel_schedules.gemm_problem import GemmSchedule
from starc.core.kernel_schedules.share_merging import Merge
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_attributes import integers

PIECE_BYTES: Final = 4096


def set_tile(launch: LaunchOp, extents: Sequence[int], numbers: Mapping[str, int]) -> None:
    """Sets the tile of a launch and integers beside it."""
    properties: dict[str, Attribute] = {"tile": integers(extents)}
    properties |= {key: IntegerAttr(value, i64) for key, value in numbers.items()}
    launch.properties.update(properties)


def set_class(launch: LaunchOp) -> None:
    """Sets the class of launch costs and the size at which accesses are cut."""
    launch.properties["kernel_class"] = StringAttr(launch.kind.data)
    launch.properties["piece_bytes"] = IntegerAttr(PIECE_BYTES, i64)


def set_product(
    launch: LaunchOp, schedule: GemmSchedule | AttentionSchedule, more: Mapping[str, int]
) -> None:
    """Sets the schedule of a GEMM or attention, with ``more`` integers in front."""
    numbers = {
        **more,
        "split": schedule.split,
        "stages": schedule.stages,
        "waves": schedule.waves,
        "window_bytes": schedule.window_bytes,
    }
    set_tile(launch, schedule.tile, numbers)
    set_merge(launch, schedule.merge)


def set_merge(launch: LaunchOp, merge: Merge) -> None:
    """Sets how the shares of a launch are combined."""
    if merge.combine is None:
        return
    launch.properties["combine"] = StringAttr(merge.combine.value)
    launch.properties["combine_stages"] = IntegerAttr(merge.stages, i64)
    launch.properties.pop("combine_rows", None)
    if merge.rows:
        launch.properties["combine_rows"] = IntegerAttr(merge.rows, i64)


def set_fused(launch: LaunchOp, schedule: FusedSchedule) -> None:
    """Sets the schedule of a launch that exchanges data with peers, its grid included."""
    set_product(launch, schedule.gemm, {})
    if schedule.pull is not None:
        launch.properties["pull"] = StringAttr(schedule.pull.value)
    launch.properties["grid"] = integers(schedule.grid)
    set_class(launch)
