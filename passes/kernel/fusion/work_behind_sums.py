"""Which launches read the sums of a product alone, so that their work can be done while the sums
are in registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Block, Operation, SSAValue

from starc.core.sharding.combiners import ReductionKind
from starc.dialects import nn
from starc.dialects.collective import AllReduceOp, CollectiveOp, ReduceScatterOp
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_fusion import AFTER_SUMS
from starc.dialects.kernel_problems import ops_of, tensor
from starc.passes.kernel.fusion.launch_values import is_used_beside, only_op, only_user, outside
from starc.passes.kernel.fusion.reduction_chains import ReductionChain

Sums = Mapping[SSAValue, ReductionChain]


def work_behind(block: Block, launch: LaunchOp, chains: Sequence[ReductionChain]) -> list[LaunchOp]:
    """The launches behind sums that can be done while the sums are in registers."""
    sums = {chain.outer: chain for chain in chains}
    users = dict.fromkeys(
        user for chain in chains if (user := only_user([chain.outer])) is not None
    )
    behind: list[LaunchOp] = []
    for user in users:
        if _may_follow(block, launch, user, sums):
            behind += [user, *_joins(block, user)]
    return behind


def meets_again(block: Block, replaced: Sequence[LaunchOp], reduction: CollectiveOp) -> bool:
    """Whether all devices of the group of a reduction wait for each other elsewhere in the layer,
    so that nobody comes round again before the others have read what it sent."""
    axes = set(reduction.axes.data)
    return any(
        isinstance(op, CollectiveOp) and axes <= set(op.axes.data)
        for launch in block.ops
        if isinstance(launch, LaunchOp) and launch not in replaced
        for op in launch.block.ops
    )


def _joins(block: Block, norm: LaunchOp) -> list[LaunchOp]:
    """The launches that add up the sums of squares of a launch over devices."""
    found: list[LaunchOp] = []
    for result, inner in zip(norm.results, norm.yielded, strict=True):
        user = only_user([result])
        reduction = only_op(user, AllReduceOp)
        if (
            user is not None
            and isinstance(inner.owner, nn.SumSquaresOp)
            and reduction is not None
            and reduction.reduction_kind is ReductionKind.SUM
            and len(reduction.inputs) == 1
            and meets_again(block, [user], reduction)
        ):
            found.append(user)
    return found


def _may_follow(block: Block, launch: LaunchOp, user: LaunchOp, sums: Sums) -> bool:
    ops, given = ops_of(user), [sums[value] for value in user.inputs if value in sums]
    if not all(isinstance(op, AFTER_SUMS) for op in ops):
        return False
    if any(is_used_beside(chain.outer, user) for chain in given):
        return False
    if any(value.owner is launch for value in user.inputs):
        return False
    appends = [op for op in ops if isinstance(op, nn.AppendOp)]
    if appends:
        return len(appends) == len(ops) and all(
            _may_append(block, user, op, sums) for op in appends
        )
    return _is_one_collection(ops, given) and _has_sums_in_all(user, ops, sums)


def _may_append(block: Block, user: LaunchOp, op: nn.AppendOp, sums: Sums) -> bool:
    """Whether an append takes a sum, in whole heads, and is the only one to its cache."""
    others = [
        other
        for launch in block.ops
        for other in launch.walk()
        if isinstance(other, nn.AppendOp) and other.state == op.state
    ]
    return (
        outside(user, op.input) in sums
        and len(others) == 1
        and tensor(op.input).get_shape()[2] % tensor(op.result).get_shape()[3] == 0
    )


def _is_one_collection(ops: Sequence[Operation], given: Sequence[ReductionChain]) -> bool:
    """Whether all values have the extents of the sums, which are made alike."""
    squares = {op.result for op in ops if isinstance(op, nn.SumSquaresOp)}
    if any(operand in squares for op in ops for operand in op.operands):
        return False
    extents = {tensor(chain.outer).get_shape() for chain in given}
    kinds = {(chain.to_owners, chain.rope is None) for chain in given}
    if len(extents) > 1 or len(kinds) > 1 or (kinds == {(True, True)} and squares):
        return False
    if any(isinstance(chain.reduction, ReduceScatterOp) != chain.to_owners for chain in given):
        return False
    values = [op.results[0] for op in ops if op.results[0] not in squares]
    return all(
        tensor(value).get_shape() in extents for value in (*values, *(op.operands[0] for op in ops))
    )


def _has_sums_in_all(user: LaunchOp, ops: Sequence[Operation], sums: Sums) -> bool:
    """Whether every value that is made has a sum in it, else it is nothing that the launch of the
    product computes."""
    made: set[SSAValue] = set()
    for op in ops:
        inner = {operand for operand in op.operands if outside(user, operand) in sums}
        if inner or made & set(op.operands):
            made.add(op.results[0])
    return made >= set(user.yielded)
