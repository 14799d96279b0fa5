"""Which results of a product's launch are summed over devices, and by which launches."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import OpResult, SSAValue

from starc.core.sharding.combiners import ReductionKind
from starc.dialects import nn
from starc.dialects.collective import AllReduceOp, ReduceScatterOp
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_fusion import Reduction, slice_starts
from starc.dialects.kernel_kinds import LaunchKind
from starc.dialects.kernel_problems import ops_of, tensor
from starc.dialects.sharding import mesh_of
from starc.kernel_bodies.shards import shard_of
from starc.passes.kernel.fusion.choice import FusionChoice
from starc.passes.kernel.fusion.launch_values import only_op, only_user, ops_of_kind, outside


@dataclass(frozen=True)
class ReductionChain:
    """The way of a product's result to its sum: the launch that rotates its rows, the launch that
    reduces the value, as which operand, and the sum."""

    result: OpResult
    turned: LaunchOp | None
    rope: nn.RopeOp | None
    turned_value: SSAValue
    source: LaunchOp
    reduction: Reduction
    position: int
    outer: SSAValue

    @property
    def to_owners(self) -> bool:
        """Whether every tile goes to the owner of its columns alone."""
        reduction = self.reduction
        return isinstance(reduction, ReduceScatterOp) and reduction.number("dim") == 2

    @property
    def obstacle(self) -> str | None:
        """Why the launch of the product cannot go this way itself."""
        reduction = self.reduction
        if reduction.reduction_kind is not ReductionKind.SUM:
            return f"they are combined by {reduction.reduction_kind}"
        if not isinstance(reduction, ReduceScatterOp):
            return None
        if not self.to_owners:
            reaches = reduction.number("dim") == 1 and self._reaches_cache
            return None if reaches else "rows are scattered, not columns"
        if slice_starts(reduction, mesh_of(self.source)) is None:
            return "the slices are not contiguous"
        owned = tensor(self.outer).get_shape()[2]
        if self.rope is not None and owned % self.rope.head_dim.value.data:
            return "the slices cut heads that are rotated"
        return None

    @property
    def _reaches_cache(self) -> bool:
        """Whether scattered rows go to the places of a cache where they belong, and nowhere
        else."""
        user = only_user([self.outer])
        if user is None:
            return False
        mesh = mesh_of(user)
        for op in ops_of(user):
            if isinstance(op, nn.AppendOp) and outside(user, op.input) is self.outer:
                held, new = shard_of(op.result, 2, mesh), shard_of(op.input, 1, mesh)
                start, query = op.start.value.data, new.extent
                matching = held.map.window(start, query, held.ranks, held.extent)
                return (new.map, new.ranks, new.rank) == (matching, held.ranks, held.rank)
        return False


def reduction_chains(choice: FusionChoice, launch: LaunchOp) -> list[ReductionChain]:
    """What leads from results of a launch to their sums, where a launch can do all of it."""
    chains: list[ReductionChain] = []
    for result in launch.results:
        chain = _chain(result)
        if chain is None:
            continue
        reason = chain.obstacle
        if reason is not None:
            choice.decline(launch, f"it does not push its tiles: {reason}")
        else:
            chains.append(chain)
    while True:
        # A launch that turns or reduces other values, too, stays.
        known = {chain.result for chain in chains}
        turned = {chain.turned_value for chain in chains}
        kept = [
            chain
            for chain in chains
            if set(chain.source.inputs) <= known | turned
            and (chain.turned is None or set(chain.turned.inputs) <= known)
        ]
        if len(kept) == len(chains):
            return chains
        chains = kept
        if not kept:
            choice.decline(
                launch,
                "it does not push its tiles: results of other launches are exchanged with them",
            )


def _chain(result: OpResult) -> ReductionChain | None:
    """The way of one result to its sum, if it goes to one."""
    value: SSAValue = result
    turned: LaunchOp | None = None
    rope: nn.RopeOp | None = None
    user = only_user([value])
    ropes = ops_of_kind(user, nn.RopeOp) if user is not None else None
    if user is not None and ropes is not None:
        ropes = [op for op in ropes if outside(user, op.input) is value]
        if len(ropes) != 1 or ropes[0].result not in user.yielded:
            return None
        turned, (rope,) = user, ropes
        value = user.results[user.yielded.index(rope.result)]
        user = only_user([value])
    if user is None or user.kind.data != LaunchKind.COLLECTIVE:
        return None
    reduction = only_op(user, ReduceScatterOp) or only_op(user, AllReduceOp)
    if reduction is None:
        return None
    found = [n for n, operand in enumerate(reduction.inputs) if outside(user, operand) is value]
    if len(found) != 1 or reduction.outputs[found[0]] not in user.yielded:
        return None
    outer = user.results[user.yielded.index(reduction.outputs[found[0]])]
    return ReductionChain(result, turned, rope, value, user, reduction, found[0], outer)
