"""Who makes, and who uses, the values that launches hand to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_problems import ops_of

OperationT = TypeVar("OperationT", bound=Operation)


def launch_behind(value: SSAValue) -> LaunchOp | None:
    """The launch whose result a value is."""
    owner = value.owner
    return owner if isinstance(owner, LaunchOp) else None


def yielded_as(result: SSAValue) -> SSAValue:
    """The value in the body of a launch that one of its results stands for."""
    assert isinstance(result, OpResult)
    launch = launch_behind(result)
    assert launch is not None
    return launch.yielded[result.index]


def outside(launch: LaunchOp, value: SSAValue) -> SSAValue | None:
    """The value outside for an argument of a launch's body."""
    if isinstance(value, BlockArgument) and value.block is launch.block:
        return launch.inputs[value.index]
    return None


def argument_for(launch: LaunchOp, value: SSAValue) -> SSAValue:
    """The argument of a launch's body for a value from outside, a new one where it has none."""
    for outer, inner in zip(launch.inputs, launch.block.args, strict=True):
        if outer is value:
            return inner
    inner = launch.block.insert_arg(value.type, len(launch.block.args))
    inner.name_hint = value.name_hint
    launch.operands = [*launch.operands, value]
    return inner


def is_used_beside(value: SSAValue, user: Operation) -> bool:
    """Whether another operation than ``user`` uses a value."""
    return any(use.operation is not user for use in value.uses)


def only_user(values: Sequence[SSAValue]) -> LaunchOp | None:
    """The launch that alone uses some values."""
    users = {use.operation for value in values for use in value.uses}
    if len(users) != 1 or any(not value.uses for value in values):
        return None
    (user,) = users
    return user if isinstance(user, LaunchOp) else None


def only_op(launch: LaunchOp | None, kind: type[OperationT]) -> OperationT | None:
    """The operation of a launch that holds nothing else, of this kind."""
    if launch is None:
        return None
    ops = ops_of(launch)
    return ops[0] if len(ops) == 1 and isinstance(ops[0], kind) else None


def ops_of_kind(launch: LaunchOp, kind: type[OperationT]) -> list[OperationT] | None:
    """The operations of a launch that holds none of another kind."""
    ops = ops_of(launch)
    found = [op for op in ops if isinstance(op, kind)]
    return found if len(found) == len(ops) else None


def between(first: Operation, last: Operation) -> list[Operation]:
    """The operations of a block between two of its operations."""
    found: list[Operation] = []
    op = first.next_op
    while op is not None and op is not last:
        found.append(op)
        op = op.next_op
    return found if op is last else []
