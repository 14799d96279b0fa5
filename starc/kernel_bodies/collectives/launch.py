"""Collective launches: rings in closed form, the blocks of a schedule for everything else."""

from __future__ import annotations

from math import prod

from xdsl.ir import Operation

from starc.dialects import collective
from starc.kernel_bodies.body import Template
from starc.kernel_bodies.collectives.plan import collectives_of, is_planned, plan_of
from starc.kernel_bodies.collectives.rings import (
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
)
from starc.kernel_bodies.collectives.scheduled import lower_planned
from starc.kernel_bodies.collectives.slices import all_slice
from starc.kernel_bodies.context import LaunchContext


def lower_collective(context: LaunchContext) -> list[list[Template]]:
    """The templates of a collective launch: loops in closed form of a flat ring on one value, the
    blocks of a schedule for everything else."""
    if is_planned(context.launch, context.target):
        return lower_planned(context, plan_of(context.launch, context.target))
    ((value, output),) = context.outputs
    op = value.owner
    assert isinstance(op, Operation)
    match op:
        case collective.AllReduceOp():
            return [[ring_all_reduce(context, op, output)]]
        case collective.ReduceScatterOp():
            return [[ring_reduce_scatter(context, op, output)]]
        case collective.AllGatherOp():
            return [[ring_all_gather(context, op, output)]]
        case collective.AllSliceOp():
            return [[all_slice(context, op, output)]]
        case _:
            raise ValueError(f"there is no lowering of {op.name}")


def collective_facts(context: LaunchContext) -> dict[str, int | str]:
    """Axes, algorithm, transport and payload of a collective, for reports; of several phases their
    operations and algorithms in order, and all axes."""
    ops = collectives_of(context.launch)
    size = 0
    for value in ops[0].inputs:
        buffer = context.buffer(value)
        size += prod(buffer.shape) * buffer.element_bytes
    axes = list(dict.fromkeys(axis for op in ops for axis in op.axes.data))
    return {
        "operation": "+".join(op.name.removeprefix("collective.") for op in ops),
        "axes": ",".join(str(axis).replace('"', "") for axis in axes),
        "ranks": context.mesh.refs_size(axes),
        "size_bytes": size,
        "algorithm": "+".join(op.algorithm.data if op.algorithm else "ring" for op in ops),
        "transport": ops[0].transport.data if ops[0].transport else "",
    }
