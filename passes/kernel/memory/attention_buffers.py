"""What an attention needs beside its operands and results."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import TensorType, f32

from starc.core.kernel_schedules.attention_problem import AttentionProblem
from starc.core.kernel_schedules.ring_prefill import SLOTS
from starc.core.memory.buffer_kinds import BufferMemory
from starc.core.tiling import ceil_div
from starc.dialects.collective import AllGatherOp
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_fusion import Merging, merging_of
from starc.dialects.kernel_problems import attention_of, tensor
from starc.dialects.kernel_rings import gather_in
from starc.dialects.sharding import mesh_of
from starc.kernel_bodies.attention.cube_reduction import CubeReduction
from starc.passes.kernel.memory.planned_buffers import BufferTable, set_buffers, shares_stored


def plan_attention(table: BufferTable, launch: LaunchOp, problem: AttentionProblem) -> None:
    """Adds what an attention works with. Caches that peers read stay as they are to the end."""
    if launch.ring is not None:
        _plan_ring(table, launch)
        return
    for op in launch.block.ops:
        if isinstance(op, AllGatherOp):
            table.outside(launch, op.inputs[0]).share()
    workspace: list[str] = []
    if launch.combine is not None:
        tasks = launch.integers("grid")[0] // launch.integer("split")
        lead = [shares_stored(launch), tasks, launch.integers("tile")[0]]
        workspace = _add_state(table, launch, lead, problem.head_dim)
    merging = merging_of(launch)
    reduction = CubeReduction.of(launch, table.target) if merging is not None else None
    staging: list[str] = []
    if reduction is not None:
        staging = _queues(table, launch, reduction)
    elif merging is not None:
        sent, staging = _records(table, launch, merging)
        workspace += sent
    set_buffers(launch, workspace=workspace, staging=staging)


def _add_state(
    table: BufferTable, launch: LaunchOp, lead: Sequence[int], head_dim: int
) -> list[str]:
    """Workspaces of maxima, sums and accumulators, with the same leading extents."""
    parts = (("m", lead), ("l", lead), ("o", [*lead, head_dim]))
    return [table.add_workspace(launch, part, extents) for part, extents in parts]


def _plan_ring(table: BufferTable, launch: LaunchOp) -> None:
    """The slots of keys that go around, and the state of query rows that are several tiles."""
    cache = tensor(gather_in(launch).inputs[0])
    _, _, positions, head_dim = cache.get_shape()
    shape = [launch.integer("ring_slots", SLOTS), positions, head_dim]
    staging = [
        table.add_staging(
            launch,
            f"{launch.sym_name.data}.slots.{letter}",
            TensorType(cache.element_type, shape),
        ).name
        for letter in "kv"
    ]
    rows = launch.integers("tile")[0]
    query = tensor(attention_of(launch).query).get_shape()[1]
    tiles = ceil_div(query, rows // launch.integer("group"))
    workspace = _add_state(table, launch, [tiles, rows], head_dim) if tiles > 1 else []
    set_buffers(launch, workspace=workspace, staging=staging)


def _records(table: BufferTable, launch: LaunchOp, merging: Merging) -> tuple[list[str], list[str]]:
    """Records that a device sends to the owners of heads, and those that it receives, a slot per
    rank."""
    ranks = mesh_of(launch).refs_size(merging.scatter.axes.data)
    workspace: list[str] = []
    staging: list[str] = []
    values = zip("mlo", merging.scatter.inputs, merging.scatter.outputs, strict=True)
    for letter, sent, kept in values:
        type = tensor(sent)
        element = type.element_type
        workspace.append(table.add_workspace(launch, f"sent.{letter}", type.get_shape(), element))
        received = TensorType(element, [ranks, *tensor(kept).get_shape()])
        name = f"{launch.sym_name.data}.staging.{letter}"
        staging.append(table.add_staging(launch, name, received).name)
    return workspace, staging


def _queues(table: BufferTable, launch: LaunchOp, reduction: CubeReduction) -> list[str]:
    """The queues of a merge over memory cubes, in the scratch memory of its receivers."""
    queues: list[str] = []
    for level, shape in reduction.queue_shapes.items():
        name = f"{launch.sym_name.data}.queue.{level}"
        buffer = table.add_staging(launch, name, TensorType(f32, shape))
        buffer.memory = BufferMemory.SCRATCH
        queues.append(buffer.name)
    return queues
