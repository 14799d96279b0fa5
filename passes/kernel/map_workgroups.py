"""The pass ``map-workgroups``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, ModuleOp, UnitAttr, i64

from starc.core.kernel_schedules.attention_estimates import attention_resident
from starc.core.kernel_schedules.attention_orders import deals_heads, row_tile_order
from starc.core.kernel_schedules.attention_problem import AttentionProblem
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.fused_schedules import column_tiles, fused_resident
from starc.core.kernel_schedules.gemm_problem import GemmProblem
from starc.core.kernel_schedules.residency import (
    ACCUMULATOR_BYTES,
    WAVES,
    gemm_resident,
    gemm_waves,
)
from starc.core.kernel_schedules.row_schedules import RowProblem
from starc.core.kernel_schedules.share_merging import Combine, kernel_merge
from starc.core.kernel_schedules.tile_estimates import share_streams
from starc.core.kernel_schedules.tile_walks import choose_walk
from starc.core.tiling import ceil_div, largest_divisor, row_tiling
from starc.diagnostics import Diagnostic, InputError
from starc.dialects import nn
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_attributes import integers
from starc.dialects.kernel_fusion import fused_problem, is_fused, merging_of
from starc.dialects.kernel_kinds import LaunchKind, Tax
from starc.dialects.kernel_problems import (
    CollectiveProblem,
    attention_of,
    gather_of,
    pieces_of,
    problem_of,
    summed_of,
    tensor,
    view,
)
from starc.dialects.locations import location_of
from starc.kernel_bodies.collectives.plan import is_planned, plan_of
from starc.kernel_bodies.context import on_engines
from starc.passes.base import RemarkSink, StarcPass
from starc.passes.kernel.tiling.launch_schedules import set_merge
from starc.targets.target import Target

LEAST_OWNERS: Final = 4
"""Workgroups beside those of an attention that are enough to merge for all of its heads."""
MOST_WORKGROUPS: Final = 2**31 - 1
MOST_ORDERED: Final = 4096
"""Row tiles of which the order is worth a table: of more, those that start first are a small part.
"""


@dataclass(frozen=True)
class MapWorkgroups(StarcPass):
    """Every launch gets its grid, a GEMM the order of its tiles over workgroups, and what waits
    for other workgroups is checked to be resident together with them.

    The order of tiles (``swizzle``) walks groups of tile rows that together miss the L2 least. On
    devices with several dies workgroup w runs on die w mod dies: tiles are dealt out so that each
    die gets neighbouring ones, where their number divides. The parts of a launch that share their
    input take turns (``bands``): a group of tile rows of one part, the same rows of the next.

    A workgroup that waits for others of its launch is only safe when all of them are resident: the
    grid must fit the slots that scratch memory, registers and waves leave. Where an owner's grid
    does not, its shares are combined by a second launch instead, and a remark says so.

    Workgroups of attention take heads in turns, and so do dies, so that the row tiles of a head are
    on one die. Where several query heads share a KV head, they may be dealt out instead
    (``swizzle``): those of a KV head go to one die, whose L2 then serves them all. That is done
    where it saves time by estimate, that is, where what misses the L2 takes about as long as the
    products.

    Causal attention starts its longest row tiles first; where several workgroups fit a compute unit,
    ``order`` makes the longest share theirs with the shortest. On engines of an element one
    workgroup goes through all tasks.

    After it every ``kernel.launch`` has ``grid``, every GEMM ``swizzle``, and every launch that
    waits has ``waits`` and a grid that is resident.

    Before:

    ```mlir
    func.func @f(%x : tensor<2x1x64xbf16>) -> tensor<2x1x64xbf16> {
      %y = kernel.launch @f.silu elementwise (%a = %x : tensor<2x1x64xbf16>) -> (tensor<2x1x64xbf16>) attributes {queue = 0 : i64, tile = array<i64: 1, 64>} {
        %b = nn.silu %a : tensor<2x1x64xbf16> -> tensor<2x1x64xbf16>
        kernel.yield %b : tensor<2x1x64xbf16>
      }
      func.return %y : tensor<2x1x64xbf16>
    }
    ```

    After:

    ```mlir
    func.func @f(%x : tensor<2x1x64xbf16>) -> tensor<2x1x64xbf16> {
      %y = kernel.launch @f.silu elementwise (%a = %x : tensor<2x1x64xbf16>) -> (tensor<2x1x64xbf16>) attributes {queue = 0 : i64, tile = array<i64: 1, 64>, grid = array<i64: 2>} {
        %b = nn.silu %a : tensor<2x1x64xbf16> -> tensor<2x1x64xbf16>
        kernel.yield %b : tensor<2x1x64xbf16>
      }
      func.return %y : tensor<2x1x64xbf16>
    }
    ```
    """  # noqa: E501

    name = "map-workgroups"

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        rates = DeviceRates.of(target)
        problems: list[Diagnostic] = []
        for op in module.walk():
            if isinstance(op, LaunchOp):
                try:
                    map_launch(op, rates, target, sink)
                    _check_grid(op)
                except ValueError as error:
                    problems.append(Diagnostic(f"{op.sym_name.data}: {error}", location_of(op)))
        if problems:
            raise InputError(problems)


def _check_grid(launch: LaunchOp) -> None:
    """Raises ``ValueError`` for more workgroups than a launch counts in 31 bits."""
    workgroups = sum(launch.integers("grid"))
    if workgroups > MOST_WORKGROUPS:
        raise ValueError(f"{workgroups} workgroups are more than a launch may have (2^31 - 1)")


def map_launch(launch: LaunchOp, rates: DeviceRates, target: Target, sink: RemarkSink) -> None:
    """Sets grid, order and waiting of one launch. Raises ``ValueError`` for one that waits for
    workgroups that cannot be resident with it."""
    problem = problem_of(launch)
    if is_fused(launch):
        slots = _map_fused(launch, rates)
    elif isinstance(problem, GemmProblem):
        slots = _map_gemm(launch, problem, rates)
    elif isinstance(problem, AttentionProblem):
        if target.engines:
            _map_element(launch)
            return
        slots = _map_attention(launch, problem, rates)
    elif isinstance(problem, RowProblem):
        launch.properties["grid"] = integers(_row_grids(launch))
        return
    else:
        slots = _map_collective(launch, problem, rates, target)
    _check_residency(launch, slots, rates, sink)


def _map_gemm(launch: LaunchOp, problem: GemmProblem, rates: DeviceRates) -> int:
    m, n, k = launch.integers("tile")
    split = launch.integer("split")
    rows = row_tiling(problem.batch, problem.query, m)
    columns = [ceil_div(width, n) for width in problem.columns]
    grid = [rows.tiles * across for across in columns]
    if launch.streams is not None:
        grid = share_streams(grid, launch.integer("streams"))
    launch.properties["grid"] = integers(count * split for count in grid)
    waves = launch.integer("waves", gemm_waves((m, n, k), rates))
    stages = launch.integer("stages")
    resident = gemm_resident((m, n, k), stages, problem.element_bytes, rates, waves)
    walk = choose_walk(problem, rates, (m, n, k), resident, rows, columns, split)
    is_dealt = all(count % rates.dies == 0 for count in grid)
    group = walk.group
    given = launch.integers("swizzle")
    if given:
        group = largest_divisor(rows.tiles, given[0])
    launch.properties["swizzle"] = integers((group, rates.dies if is_dealt else 1))
    if walk.bands > 1 and not given and launch.streams is None:
        launch.properties["bands"] = IntegerAttr(walk.bands * split, i64)
    return resident * rates.compute_units


def _map_fused(launch: LaunchOp, rates: DeviceRates) -> int:
    """A launch that exchanges data with peers has its grid; the tiles of a part are walked in
    groups of rows as those of any product."""
    problem = fused_problem(launch, rates)
    m, n, k = launch.integers("tile")
    split, stages = launch.integer("split"), launch.integer("stages")
    rows = row_tiling(problem.gemm.batch, problem.gemm.query, m)
    resident = fused_resident(problem, (m, n, k), stages, rates)
    columns = column_tiles(problem, n)
    walk = choose_walk(problem.gemm, rates, (m, n, k), max(1, resident), rows, columns, split)
    launch.properties["swizzle"] = integers((walk.group, 1))
    return resident * rates.compute_units


def _map_attention(launch: LaunchOp, problem: AttentionProblem, rates: DeviceRates) -> int:
    rows, keys, _ = launch.integers("tile")
    group = launch.integer("group")
    tasks = problem.batch * problem.kv_heads * problem.group // group
    is_packed = rows == problem.query * problem.group and group == problem.group
    row_tiles = 1 if is_packed else ceil_div(problem.query, rows)
    launch.properties["grid"] = integers([tasks * row_tiles * launch.integer("split")])
    waves = launch.integer("waves", WAVES)
    resident = attention_resident(problem, rates, rows, keys, launch.integer("stages"), waves)
    is_ordered = launch.order is not None
    if 1 < row_tiles <= MOST_ORDERED and problem.causal and resident > 1 and not is_ordered:
        order = row_tile_order(row_tiles, tasks, resident, rates.compute_units)
        if order != tuple(range(row_tiles - 1, -1, -1)):
            launch.properties["order"] = DenseArrayBase.from_list(i64, order)
    if not is_packed and launch.split is not None and "swizzle" not in launch.properties:
        if deals_heads(problem, rates, row_tiles, resident):
            launch.properties["swizzle"] = integers((1, rates.dies))
    slots = resident * rates.compute_units
    _place_owners(launch, row_tiles, slots)
    return slots


def _map_element(launch: LaunchOp) -> None:
    """Attention on the engines of an element: one workgroup goes through all tasks, and waits for
    those of other devices where it merges what they have."""
    launch.properties["grid"] = integers([1])
    launch.properties.pop("waits", None)
    if merging_of(launch) is not None or launch.ring is not None:
        launch.properties["waits"] = UnitAttr()


def _place_owners(launch: LaunchOp, row_tiles: int, slots: int) -> None:
    """Workgroups that merge what all devices have of a head, in the slots that the attention
    leaves. Where it leaves too few, or its shares are merged by a second launch, the owners are a
    launch of their own."""
    merging = merging_of(launch)
    launch.properties.pop("waits", None)
    if merging is None or Tax.LAUNCH in launch.taxes:
        return
    (attending,) = launch.integers("grid")
    batch, _, owned = tensor(merging.scatter.outputs[0]).get_shape()
    units = batch * row_tiles * owned
    combine = launch.combine.data if launch.combine is not None else None
    if combine != Combine.KERNEL and slots - attending >= min(units, LEAST_OWNERS):
        launch.properties["grid"] = integers([attending, min(units, slots - attending)])


def _row_grids(launch: LaunchOp) -> list[int]:
    rows, columns = launch.integers("tile")
    if launch.kind.data == LaunchKind.NORM:  # whole rows, all results together
        batch, query, _ = view(summed_of(launch))
        return [row_tiling(batch, query, rows).tiles]
    grids: list[int] = []
    for value in launch.yielded:
        owner = value.owner
        stored = owner.input if isinstance(owner, nn.AppendOp) else value
        batch, query, width = view(tensor(stored))
        tiles = row_tiling(batch, query, rows).tiles
        grids.append(tiles * ceil_div(width, columns))
    return grids


def _map_collective(
    launch: LaunchOp, problem: CollectiveProblem, rates: DeviceRates, target: Target
) -> int:
    if is_planned(launch, target):
        plan = plan_of(launch, target)
        launch.properties["grid"] = integers(plan.grids)
        launch.properties["waits"] = UnitAttr()
        if on_engines(launch, target):
            return target.copy_engines
        return plan.resident * rates.compute_units
    pieces = pieces_of(problem, rates.transports[problem.transport].workgroups)
    launch.properties["grid"] = integers([pieces.workgroups])
    launch.properties["waits"] = UnitAttr()
    return rates.compute_units


def _check_pulling(launch: LaunchOp, slots: int, sink: RemarkSink) -> None:
    """Attention over the caches of peers waits for them inside where its workgroups are resident
    together; else a launch of one workgroup does before it."""
    waits = launch.workgroups <= slots
    launch.properties.pop("waits", None)
    if waits:
        launch.properties["waits"] = UnitAttr()
    where = "inside" if waits else "in a launch before it"
    sink.remark(
        "peers-awaited",
        f"{launch.sym_name.data}: the caches of peers are awaited {where}",
        launch,
        workgroups=launch.workgroups,
        slots=slots,
    )


def _waiting(workgroups: int) -> str:
    if workgroups == 1:
        return "its workgroup waits for those of peers and is resident"
    return f"its {workgroups:,} workgroups wait for each other and are resident together"


def _check_residency(launch: LaunchOp, slots: int, rates: DeviceRates, sink: RemarkSink) -> None:
    combine = launch.combine.data if launch.combine is not None else None
    if launch.kind.data == LaunchKind.ATTENTION and gather_of(attention_of(launch)) is not None:
        _check_pulling(launch, slots, sink)
        if combine != Combine.OWNER:
            return
    elif (
        launch.kind.data != LaunchKind.COLLECTIVE
        and combine != Combine.OWNER
        and launch.streams is None
        and not is_fused(launch)
        and not (launch.kind.data == LaunchKind.ATTENTION and len(launch.integers("grid")) > 1)
    ):
        launch.properties.pop("waits", None)
        return
    if launch.workgroups <= slots:
        launch.properties["waits"] = UnitAttr()
        sink.remark(
            "workgroups-resident",
            f"{launch.sym_name.data}: {_waiting(launch.workgroups)}: a device has room for {slots}",
            launch,
            workgroups=launch.workgroups,
            slots=slots,
        )
        return
    if combine != Combine.OWNER or is_fused(launch):
        raise ValueError(
            f"{launch.workgroups} workgroups wait for each other, {slots} can be resident"
        )
    rows, columns = launch.integers("tile")[0], launch.integers("tile")[-1]
    if launch.kind.data == LaunchKind.GEMM:
        columns = launch.integers("tile")[1]
    merge = kernel_merge(
        rows=rows,
        row_bytes=columns * ACCUMULATOR_BYTES,
        tiles=launch.workgroups // launch.integer("split"),
        split=launch.integer("split"),
        kernel_class=launch.kind.data,
        rates=rates,
    )
    set_merge(launch, merge)
    launch.properties.pop("waits", None)
    sink.remark(
        "owner-not-resident",
        f"{launch.sym_name.data}: shares are combined by a second launch",
        launch,
        declined=True,
        workgroups=launch.workgroups,
        slots=slots,
    )
