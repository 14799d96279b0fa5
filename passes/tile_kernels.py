"""The pass ``tile-kernels``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute

from starc.backend.kernel_bodies.collectives_plan import is_planned, plan_of
from starc.core.attention_schedules import AttentionProblem, AttentionSchedule, choose_attention
from starc.core.device_rates import DeviceRates
from starc.core.fused_schedules import FusedSchedule, choose_fused
from starc.core.row_schedules import RowProblem, choose_rows
from starc.core.share_merging import Merge
from starc.core.tile_schedules import WAVES, GemmProblem, GemmSchedule, choose_gemm
from starc.diagnostics import Diagnostic, InputError, counted, location_of
from starc.dialects.kernel import LaunchOp, integers
from starc.dialects.kernel_fusion import fused_problem, is_fused
from starc.dialects.kernel_problems import CollectiveProblem, pieces_of, problem_of
from starc.passes.base import RemarkSink, StarcPass
from starc.targets.target import Target

PIECE_BYTES = 4096


@dataclass(frozen=True)
class TileKernels(StarcPass):
    """Every launch gets its tile, shares, slots, waves, window and class of launch costs.

    The rules stand in ``starc.core.tile_schedules`` (GEMM), ``attention_schedules`` and
    ``row_schedules``: every candidate that fits a compute unit is estimated with the target's
    rates and the fastest is taken; the remark has the estimate and the next best ones. A launch
    that already has ``tile`` keeps what it has.

    After it every ``kernel.launch`` has ``tile``, ``waves``, ``window_bytes``, ``piece_bytes`` and
    ``kernel_class``; GEMM and attention have ``split`` and ``stages``, and ``combine`` where
    ``split`` is more than 1.

    Before:

    ```mlir
    nn.parameter @f.w : tensor<64x32xbf16>
    func.func @f(%x : tensor<2x1x64xbf16>) -> tensor<2x1x32xbf16> {
      %w = nn.read @f.w : tensor<64x32xbf16>
      %y = kernel.launch @f.w gemm (%a = %x : tensor<2x1x64xbf16>, %b = %w : tensor<64x32xbf16>) -> (tensor<2x1x32xbf16>) {
        %c = nn.linear %a, %b : tensor<2x1x64xbf16>, tensor<64x32xbf16> -> tensor<2x1x32xbf16>
        kernel.yield %c : tensor<2x1x32xbf16>
      }
      func.return %y : tensor<2x1x32xbf16>
    }
    ```

    After:

    ```mlir
    nn.parameter @f.w : tensor<64x32xbf16>
    func.func @f(%x : tensor<2x1x64xbf16>) -> tensor<2x1x32xbf16> {
      %w = nn.read @f.w : tensor<64x32xbf16>
      %y = kernel.launch @f.w gemm (%a = %x : tensor<2x1x64xbf16>, %b = %w : tensor<64x32xbf16>) -> (tensor<2x1x32xbf16>) attributes {tile = array<i64: 16, 16, 64>, split = 1 : i64, stages = 4 : i64, waves = 4 : i64, window_bytes = 6912 : i64, kernel_class = "gemm", piece_bytes = 4096 : i64} {
        %c = nn.linear %a, %b : tensor<2x1x64xbf16>, tensor<64x32xbf16> -> tensor<2x1x32xbf16>
        kernel.yield %c : tensor<2x1x32xbf16>
      }
      func.return %y : tensor<2x1x32xbf16>
    }
    ```
    """  # noqa: E501

    name = "tile-kernels"

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        rates = DeviceRates.of(target)
        problems: list[Diagnostic] = []
        for op in module.walk():
            if isinstance(op, LaunchOp) and op.tile is None:
                try:
                    tile(op, rates, target, sink)
                except ValueError as error:
                    problems.append(Diagnostic(f"{op.sym_name.data}: {error}", location_of(op)))
        if problems:
            raise InputError(problems)


def tile(launch: LaunchOp, rates: DeviceRates, target: Target, sink: RemarkSink) -> None:
    """Sets the schedule of one launch. Raises ``ValueError`` when none fits the device."""
    problem = problem_of(launch)
    if is_fused(launch):
        _tile_fused(launch, rates, sink)
    elif isinstance(problem, GemmProblem):
        gemm = choose_gemm(problem, rates)
        _set_product(launch, gemm[0], {})
        _remark_choice(launch, gemm, sink, problem.flops, problem.compulsory_bytes)
    elif isinstance(problem, AttentionProblem):
        attention = choose_attention(problem, rates)
        _set_product(launch, attention[0], {"group": attention[0].group})
        _remark_choice(launch, attention, sink, problem.flops, problem.compulsory_bytes)
    elif isinstance(problem, RowProblem):
        rows = choose_rows(problem, rates)
        _set(launch, rows.tile, {"waves": rows.waves, "window_bytes": rows.window_bytes})
        sink.remark(
            "tile-chosen",
            f"{launch.sym_name.data}: tiles of {rows.tile[0]} x {rows.tile[1]}, "
            f"{counted(rows.grid, 'workgroup')}, estimated {rows.seconds * 1e6:.2f} us",
            launch,
            workgroups=rows.grid,
            estimate_us=round(rows.seconds * 1e6, 3),
        )
    else:
        _tile_collective(launch, problem, rates, target, sink)
    launch.properties["kernel_class"] = StringAttr(launch.kind.data)
    launch.properties["piece_bytes"] = IntegerAttr(PIECE_BYTES, i64)


def _tile_fused(launch: LaunchOp, rates: DeviceRates, sink: RemarkSink) -> None:
    way = launch.pull.data if launch.pull is not None else None
    problem = fused_problem(launch, rates)
    found = [s for s in choose_fused(problem, rates) if way in (None, s.pull)]
    if not found:
        raise ValueError("its workgroups wait for peers, and no tile lets all of them be resident")
    set_fused(launch, found[0])
    sink.remark(
        "tile-chosen",
        f"{launch.sym_name.data}: tiles of {found[0]}, estimated {found[0].seconds * 1e6:.2f} us",
        launch,
        workgroups=sum(found[0].grid),
        estimate_us=round(found[0].seconds * 1e6, 3),
    )


def set_fused(launch: LaunchOp, schedule: FusedSchedule) -> None:
    """Sets the schedule of a launch that exchanges data with peers, its grid included."""
    _set_product(launch, schedule.gemm, {})
    if schedule.pull is not None:
        launch.properties["pull"] = StringAttr(schedule.pull)
    launch.properties["grid"] = integers(schedule.grid)
    launch.properties["kernel_class"] = StringAttr(launch.kind.data)
    launch.properties["piece_bytes"] = IntegerAttr(PIECE_BYTES, i64)


def _tile_collective(
    launch: LaunchOp,
    problem: CollectiveProblem,
    rates: DeviceRates,
    target: Target,
    sink: RemarkSink,
) -> None:
    transport = rates.transports.get(problem.transport)
    if transport is None:
        known = ", ".join(rates.transports)
        raise ValueError(f"the target has no transport '{problem.transport}', it has {known}")
    if is_planned(launch):
        plan = plan_of(launch, target)
        _set(launch, plan.tile, {"waves": WAVES, "window_bytes": transport.window_bytes})
        if launch.properties.get("chunks") is not None:
            launch.properties["chunks"] = IntegerAttr(plan.chunks, i64)
        boxes = [box for phase in plan.phases for value in phase.values for box in value.boxes]
        sink.remark(
            "tile-chosen",
            f"{launch.sym_name.data}: pieces of {boxes[-1].rows} x {boxes[-1].columns}",
            launch,
            workgroups=sum(plan.grids),
            chunk_pieces=max(max(phase.shares) for phase in plan.phases),
        )
        return
    pieces = pieces_of(problem, transport.workgroups)
    _set(launch, pieces.tile, {"waves": WAVES, "window_bytes": transport.window_bytes})
    sink.remark(
        "tile-chosen",
        f"{launch.sym_name.data}: pieces of {pieces.tile[0]} x {pieces.tile[1]}",
        launch,
        workgroups=pieces.workgroups,
        chunk_pieces=pieces.chunk_pieces,
    )


def _set_product(
    launch: LaunchOp, schedule: GemmSchedule | AttentionSchedule, more: Mapping[str, int]
) -> None:
    numbers = {
        **more,
        "split": schedule.split,
        "stages": schedule.stages,
        "waves": schedule.waves,
        "window_bytes": schedule.window_bytes,
    }
    _set(launch, schedule.tile, numbers)
    set_merge(launch, schedule.merge)


def set_merge(launch: LaunchOp, merge: Merge) -> None:
    """Sets how the shares of a launch are combined."""
    if merge.combine is None:
        return
    launch.properties["combine"] = StringAttr(merge.combine)
    launch.properties["combine_stages"] = IntegerAttr(merge.stages, i64)
    launch.properties.pop("combine_rows", None)
    if merge.rows:
        launch.properties["combine_rows"] = IntegerAttr(merge.rows, i64)


def _set(launch: LaunchOp, extents: Sequence[int], numbers: Mapping[str, int]) -> None:
    properties: dict[str, Attribute] = {"tile": integers(extents)}
    properties |= {key: IntegerAttr(value, i64) for key, value in numbers.items()}
    launch.properties.update(properties)


def _remark_choice(
    launch: LaunchOp,
    ranked: Sequence[GemmSchedule] | Sequence[AttentionSchedule],
    sink: RemarkSink,
    flops: int,
    compulsory_bytes: int,
) -> None:
    best, others = ranked[0], ranked[1:]
    terms = ", ".join(f"{name} {seconds * 1e6:.2f}" for name, seconds in best.terms if seconds)
    alternatives = "; ".join(f"{other} {other.seconds * 1e6:.2f} us" for other in others)
    sink.remark(
        "tile-chosen",
        f"{launch.sym_name.data}: tiles of {best}, estimated {best.seconds * 1e6:.2f} us "
        f"({terms} us); next: {alternatives or 'none'}",
        launch,
        workgroups=best.grid,
        estimate_us=round(best.seconds * 1e6, 3),
        flops=flops,
        compulsory_bytes=compulsory_bytes,
    )
