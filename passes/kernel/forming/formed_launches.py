"""A group of operations becomes a launch."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, Block, Region, SSAValue

from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_attributes import YieldOp
from starc.passes.base import with_location
from starc.passes.kernel.forming.grouping_rules import KernelGroup


def launch_of(kernel: KernelGroup, results: Sequence[SSAValue]) -> LaunchOp:
    """The launch of detached operations; outside uses of ``results`` become uses of its results."""
    members = set(kernel.ops)
    inputs: dict[SSAValue, None] = {}
    for op in kernel.ops:
        for operand in op.operands:
            if operand.owner not in members:
                inputs[operand] = None
    block = Block(arg_types=[value.type for value in inputs])
    argument: dict[SSAValue, SSAValue] = {}
    for value, inner in zip(inputs, block.args, strict=True):
        inner.name_hint = value.name_hint
        argument[value] = inner
    for op in kernel.ops:
        for index, operand in enumerate(op.operands):
            if operand in argument:
                op.operands[index] = argument[operand]
        block.add_op(op)
    outer_uses = {
        value: [use for use in value.uses if use.operation not in members] for value in results
    }
    block.add_op(YieldOp(*results))
    types: list[Attribute] = [value.type for value in results]
    launch = LaunchOp(
        kernel.name, kernel.kind.value, list(inputs), Region(block), result_types=types
    )
    for value, outer in zip(results, launch.results, strict=True):
        outer.name_hint = value.name_hint
        for use in outer_uses[value]:
            use.operation.operands[use.index] = outer
    return with_location(launch, kernel.ops[0])
