"""What a matrix product needs beside its operands and results."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from xdsl.dialects.builtin import TensorType

from starc.core.kernel_schedules.fused_schedules import Pull
from starc.core.memory.layout import blocked
from starc.core.tiling import RowTiling, ceil_div, power_of_two_divisor, row_tiling
from starc.dialects.collective import AllGatherOp, AllReduceOp
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_fusion import (
    GemmPart,
    gemm_parts,
    is_fused,
    owned_columns,
    pulled,
    summed_rows,
)
from starc.dialects.kernel_kinds import Tax
from starc.dialects.kernel_problems import tensor
from starc.dialects.sharding import mesh_of
from starc.passes.kernel.memory.planned_buffers import BufferTable, set_buffers, shares_stored


def plan_product(table: BufferTable, launch: LaunchOp) -> None:
    """Notes how a product reads its operands, and adds what it works with."""
    gather, parts = pulled(launch), gemm_parts(launch)
    for part in parts:
        _note_reads(table, launch, part, gather)
    if is_fused(launch):
        _plan_fused(table, launch, parts, gather)
    elif launch.integer("split") > 1 or launch.streams is not None:
        m, n, _ = launch.integers("tile")
        tiles = launch.workgroups // launch.integer("split")
        shares = 1 if launch.streams is not None else shares_stored(launch)
        partial = table.add_workspace(launch, "partial", [shares, tiles, m, n])
        set_buffers(launch, workspace=[partial])


def _note_reads(
    table: BufferTable, launch: LaunchOp, part: GemmPart, gather: AllGatherOp | None
) -> None:
    n, k = launch.integers("tile")[1:]
    x = part.linear.input if gather is None else gather.inputs[0]
    table.outside(launch, x).reads.widths.add(k)
    # Tiles begin where the columns of an owner do: blocks must not lie across.
    firsts = owned_columns(part, mesh_of(launch)) if part.scatter is not None else ()
    weight = table.outside(launch, part.linear.weight).reads
    weight.widths.add(power_of_two_divisor(gcd(n, *firsts)))
    weight.heights.add(k)


def _plan_fused(
    table: BufferTable,
    launch: LaunchOp,
    parts: Sequence[GemmPart],
    gather: AllGatherOp | None,
) -> None:
    """What a product that exchanges data with peers needs: staging slots for the tiles that it
    receives, and for its own work the tiles that go through memory, shares of K and slices of
    peers, in that order. Slices that peers read stay as they are to the end."""
    m, n, _ = launch.integers("tile")
    split = launch.integer("split")
    workspace: list[str] = []
    staging: list[str] = []
    for number, part in enumerate(parts):
        if part.reduction is None:
            continue
        staging.append(_stage_tiles(table, launch, number, part))
        if Tax.HBM in launch.taxes:
            through = [_tiles(launch, part), _row_tiling(launch, part).rows, n]
            workspace.append(table.add_workspace(launch, f"through{number}", through))
    staging += _stage_sums_of_rows(table, launch)
    if split > 1:
        shares = sum(_tiles(launch, part) for part in parts)
        workspace.append(table.add_workspace(launch, "partial", [split - 1, shares, m, n]))
    if gather is not None:
        source = table.outside(launch, gather.inputs[0])
        source.share()
        if launch.pull is not None and launch.pull.data == Pull.STAGED:
            ranks = mesh_of(launch).refs_size(gather.axes.data)
            shape, element = [ranks, *source.type.get_shape()], source.type.element_type
            workspace.append(table.add_workspace(launch, "gathered", shape, element))
    set_buffers(launch, workspace=workspace, staging=staging)


def _row_tiling(launch: LaunchOp, part: GemmPart) -> RowTiling:
    batch, query, _ = tensor(part.linear.result).get_shape()
    return row_tiling(batch, query, launch.integers("tile")[0])


def _tiles(launch: LaunchOp, part: GemmPart) -> int:
    """Tiles of a part; of a scattered one those of every owner."""
    n = launch.integers("tile")[1]
    reduced = part.reduction is not None
    width = part.received[2] if reduced else tensor(part.linear.result).get_shape()[2]
    tiles = _row_tiling(launch, part).tiles * ceil_div(width, n)
    if part.scatter is not None:
        tiles *= mesh_of(launch).refs_size(part.scatter.axes.data)
    return tiles


def _stage_tiles(table: BufferTable, launch: LaunchOp, number: int, part: GemmPart) -> str:
    """The slots of the tiles that a device receives of a part, from each rank; a tile is one
    block."""
    assert part.reduction is not None
    n, rows = launch.integers("tile")[1], _row_tiling(launch, part)
    shape = (mesh_of(launch).refs_size(part.reduction.axes.data), *part.received)
    layout = blocked(shape, (1, rows.sequences, rows.positions, n))
    type = TensorType(tensor(part.partial).element_type, shape)
    return table.add_staging(launch, f"{launch.sym_name.data}.staging{number}", type, layout).name


def _stage_sums_of_rows(table: BufferTable, launch: LaunchOp) -> list[str]:
    """The slots of the sums of squares that devices add up."""
    names: list[str] = []
    for op in launch.block.ops:
        if isinstance(op, AllReduceOp) and summed_rows(op) is not None:
            sums = tensor(op.inputs[0])
            shape = [mesh_of(launch).refs_size(op.axes.data), *sums.get_shape()]
            type = TensorType(sums.element_type, shape)
            name = f"{launch.sym_name.data}.staging.rows"
            names.append(table.add_staging(launch, name, type).name)
    return names
