"""What a collective needs beside its operands and results."""

from __future__ import annotations

from math import prod
from typing import Final

from xdsl.dialects.builtin import TensorType
from xdsl.ir import BlockArgument, SSAValue

from starc.core.memory.buffer_kinds import BufferRole, BufferSpace
from starc.core.sharding.collective_kind import CollectiveKind
from starc.dialects.collective import AllReduceOp, CollectiveOp, ReduceScatterOp
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_problems import AnyTensor, CollectiveProblem, pieces_of, tensor
from starc.dialects.sharding import mesh_of
from starc.kernel_bodies.collectives.plan import is_planned, plan_of
from starc.passes.kernel.memory.planned_buffers import BufferTable, set_buffers

SHARED_STAGING: Final = "all_reduce.staging"
READ_BY_ALL: Final = ("ring", "two_shot", "bidirectional_ring")
"""Algorithms of an all-reduce that a device ends only when all its slots everywhere have been read.
"""


def plan_exchange(table: BufferTable, launch: LaunchOp, problem: CollectiveProblem) -> None:
    """Notes what peers reach of a collective's values, and adds what it receives in."""
    if is_planned(launch, table.target):
        _plan_scheduled(table, launch)
        return
    op = next(op for op in launch.block.ops if isinstance(op, CollectiveOp))
    _note_owned_rows(table, launch, op)
    is_all_reduce = isinstance(op, AllReduceOp)
    _share_results(table, launch, to_the_end=not is_all_reduce)
    if is_all_reduce or isinstance(op, ReduceScatterOp):
        received = op.inputs if is_all_reduce else op.outputs
        staging = [_add_slots(table, launch, problem, tensor(value)) for value in received]
        set_buffers(launch, staging=staging)


def _share_results(table: BufferTable, launch: LaunchOp, *, to_the_end: bool) -> None:
    """Peers write into results directly. That of an all-reduce is written only after every device
    has contributed to it, so it need not live before."""
    for value in launch.results:
        buffer = table.of_value[value]
        if to_the_end:
            buffer.share()
        else:
            buffer.space = BufferSpace.SYMMETRIC


def _add_slots(
    table: BufferTable, launch: LaunchOp, problem: CollectiveProblem, type: AnyTensor
) -> str:
    """The slots of the steps in which pieces are received."""
    rows, columns = launch.integers("tile")
    pieces = pieces_of(problem, table.target.transports[problem.transport].workgroups)
    shape = [max(1, problem.ranks - 1), pieces.chunk_pieces, rows, columns]
    is_shared = problem.operation is CollectiveKind.ALL_REDUCE
    return _staging(table, launch, TensorType(type.element_type, shape), is_shared, set())


def _staging(
    table: BufferTable, launch: LaunchOp, type: AnyTensor, is_shared: bool, taken: set[str]
) -> str:
    """A staging buffer: of all-reduces that share them, one that the launch has not ``taken``."""
    key = (type, launch.integer("queue", 0))
    known = table.shared_staging.get(key) if is_shared else None
    if known is not None and known not in taken:
        return known
    name = SHARED_STAGING if is_shared else f"{launch.sym_name.data}.staging"
    buffer = table.add_staging(launch, name, type)
    if is_shared:
        table.shared_staging.setdefault(key, buffer.name)
    return buffer.name


def _plan_scheduled(table: BufferTable, launch: LaunchOp) -> None:
    """Results, what phases hand on, and the staging slots of every phase."""
    plan = plan_of(launch, table.target)
    (op, *more) = (phase.op for phase in plan.phases)
    is_all_reduce = isinstance(op, AllReduceOp) and not more
    if plan.phases[0].program.pulled:  # peers read the operands while the launch runs
        for value in launch.inputs:
            table.of_value[value].space = BufferSpace.SYMMETRIC
    _share_results(table, launch, to_the_end=not is_all_reduce)
    for phase in plan.phases:
        if phase.program.owned:
            _note_owned_rows(table, launch, phase.op)
    between: list[str] = []
    for value in plan.intermediates:
        name = f"{launch.sym_name.data}.between"
        buffer = table.add(name, tensor(value), BufferRole.COMMUNICATION, launch)
        buffer.space = BufferSpace.SYMMETRIC
        between.append(buffer.name)
    algorithm = op.algorithm.data if op.algorithm is not None else "ring"
    is_shared = is_all_reduce and algorithm in READ_BY_ALL
    staging: list[str] = []
    for phase in plan.phases:
        for element, shape in phase.staging_shapes(plan.chunks):
            type = TensorType(element, shape)
            staging.append(_staging(table, launch, type, is_shared, set(staging)))
    set_buffers(launch, workspace=between, staging=staging)


def _note_owned_rows(table: BufferTable, launch: LaunchOp, op: CollectiveOp) -> None:
    """Notes how many rows of a value each GPU sums and hands out."""
    mesh = mesh_of(launch)
    outer = [ref for ref in op.axes.data if mesh.axis(ref.name).level == "outer"]
    if not isinstance(op, AllReduceOp) or not outer:
        return
    gpus = mesh.refs_size(outer)
    for value in (*op.inputs, *op.outputs):
        outside = _outside(launch, value)
        rows = prod(tensor(value).get_shape()[:-1])
        if outside in table.of_value and rows % gpus == 0:
            table.of_value[outside].reads.gpu_rows = rows // gpus


def _outside(launch: LaunchOp, value: SSAValue) -> SSAValue:
    """The operand or result of a launch that a value in its body stands for, else itself."""
    if isinstance(value, BlockArgument) and value.block is launch.block:
        return launch.inputs[value.index]
    if value in launch.yielded:
        return launch.results[launch.yielded.index(value)]
    return value
