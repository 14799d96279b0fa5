"""Push: the reduction behind a product moves into its launch, which sends result tiles to who adds
them up, with what is done with the sums."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, Operation

from starc.core.kernel_schedules.fused_schedules import choose_fused
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_fusion import fused_problem
from starc.passes.base import with_location
from starc.passes.kernel.fusion.choice import FusionChoice
from starc.passes.kernel.fusion.launch_with_sums import launch_with_sums
from starc.passes.kernel.fusion.reduction_chains import ReductionChain, reduction_chains
from starc.passes.kernel.fusion.work_behind_sums import meets_again, work_behind


def reduce_inside(choice: FusionChoice, launch: LaunchOp) -> LaunchOp:
    """Takes the reductions of a launch's results into it, with what is done with the sums, where
    that is faster. Returns the launch that there is then."""
    chains = reduction_chains(choice, launch)
    if not chains:
        return launch
    if len({chain.reduction.axes.data for chain in chains}) > 1:
        choice.decline(launch, "it does not push its tiles: they go to different groups")
        return launch
    owned = [chain for chain in chains if chain.to_owners]
    ways = [chains, owned] if 0 < len(owned) < len(chains) else [chains]
    # What is behind the sums is found before any way is tried, on the launches as they are.
    for kept, behind in [(way, work_behind(choice.block, launch, way)) for way in ways]:
        new = _reduce_by(choice, launch, kept, behind)
        if new is not None:
            return new
    return launch


def _reduce_by(
    choice: FusionChoice,
    launch: LaunchOp,
    chains: Sequence[ReductionChain],
    behind: Sequence[LaunchOp],
) -> LaunchOp | None:
    """The launch with these reductions, and launches behind them, where that is faster."""
    exchanged = [op for chain in chains for op in (chain.turned, chain.source) if op is not None]
    replaced = [*dict.fromkeys(exchanged), *behind]
    is_owned = all(chain.to_owners for chain in chains)
    place = _place(choice.block, launch, replaced)
    if place is None:
        choice.decline(launch, "it does not push its tiles: results are used meanwhile")
        return None
    if not is_owned and not meets_again(choice.block, replaced, chains[0].reduction):
        choice.decline(
            launch,
            "it does not push its tiles to all: nothing else in the layer says that peers have "
            "read them",
        )
        return None
    new, values = launch_with_sums(launch, chains, behind)
    choice.block.insert_op_before(with_location(new, launch), place)
    way = launch.pull.data if launch.pull is not None else None
    ways = choose_fused(fused_problem(new, choice.rates), choice.rates)
    ways = tuple(schedule for schedule in ways if way is None or schedule.pull == way)
    what = f"pushes result tiles to {'their owners' if is_owned else 'all peers'}"
    if behind:
        names = " and ".join(op.sym_name.data for op in behind)
        what += f", with the work of {names} behind the sums"
    if not choice.pays(launch, ways, replaced, what, behind):
        new.detach()
        new.erase()
        return None
    for value, result in zip(values, new.results, strict=True):
        result.name_hint = value.name_hint
        value.replace_all_uses_with(result)
    for op in reversed([launch, *replaced]):
        op.detach()
        op.erase(safe_erase=False)
    return new


def _place(block: Block, launch: LaunchOp, replaced: Sequence[LaunchOp]) -> LaunchOp | None:
    """The launch in front of which one that does the work of all can stand."""
    order = {op: number for number, op in enumerate(block.ops)}
    inside = {launch, *replaced}
    outer = [
        value.owner
        for op in inside
        for value in op.inputs
        if isinstance(value.owner, Operation) and value.owner not in inside
    ]
    if all(order[op] < order[launch] for op in outer):
        return launch
    last = max(replaced, key=lambda op: order[op])
    users = [use.operation for op in inside for value in op.results for use in value.uses]
    if any(user not in inside and order.get(user, len(order)) < order[last] for user in users):
        return None
    return last
