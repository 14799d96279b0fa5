"""The reduce-scatter of heads behind a partial attention, and their end, move into its launch: the
owners of heads merge what all devices have of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from xdsl.ir import Operation, SSAValue

from starc.analysis.cost import launch_cost
from starc.core.sharding.combiners import ReductionKind
from starc.dialects import nn
from starc.dialects.collective import ReduceScatterOp
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_fusion import slice_starts
from starc.dialects.kernel_kinds import LaunchKind
from starc.dialects.kernel_problems import ops_of, tensor, tensor_bytes
from starc.dialects.sharding import mesh_of
from starc.passes.base import with_location
from starc.passes.kernel.fusion.choice import FusionChoice, microseconds
from starc.passes.kernel.fusion.launch_values import argument_for, only_op, only_user, outside

UNEVEN_OWNERS: Final = "the owners have different numbers of heads"


@dataclass(frozen=True)
class _MergeBehind:
    """A partial attention, the launch that scatters its parts, and the one that ends its heads."""

    launch: LaunchOp
    source: LaunchOp
    scatter: ReduceScatterOp
    last: LaunchOp
    finish: nn.LseFinishOp

    @property
    def sink(self) -> SSAValue | None:
        """The sink of the heads, outside of launches."""
        return outside(self.last, self.finish.sink) if self.finish.sink is not None else None


def merge_heads_inside(choice: FusionChoice, launch: LaunchOp) -> None:
    """Takes the reduce-scatter of a partial attention's heads, and their end, into it."""
    merge = _merge_behind(launch)
    if merge is None:
        return
    reason = _obstacle(merge)
    if choice.on_engines and reason in (None, UNEVEN_OWNERS):
        _merge_along_trees(choice, merge)
    elif reason is not None:
        choice.decline(launch, f"the owners of heads do not merge in it: {reason}")
    else:
        _merge_by_owners(choice, merge)


def _merge_behind(launch: LaunchOp) -> _MergeBehind | None:
    results = list(launch.results)
    op = ops_of(launch)[-1]
    if not isinstance(op, nn.PartialAttentionOp) or len(results) != 3:
        return None
    source = only_user(results)
    scatter = only_op(source, ReduceScatterOp)
    if source is None or scatter is None:
        return None
    last = only_user(list(source.results))
    finish = only_op(last, nn.LseFinishOp)
    if last is None or finish is None:
        return None
    return _MergeBehind(launch, source, scatter, last, finish)


def _obstacle(merge: _MergeBehind) -> str | None:
    """Why owners cannot merge in the launch of the attention."""
    scatter, finish, source = merge.scatter, merge.finish, merge.source
    if scatter.reduction_kind is not ReductionKind.LSE or scatter.number("dim") != 2:
        return "its parts are not reduced to heads by lse"
    if tuple(outside(source, value) for value in scatter.inputs) != tuple(merge.launch.results):
        return "its parts are scattered in another order"
    kept = tuple(outside(merge.last, value) for value in (finish.m, finish.l, finish.o))
    if kept != tuple(source.results) or source.yielded != tuple(scatter.outputs):
        return "its parts are finished in another order"
    starts = slice_starts(scatter, mesh_of(merge.launch))
    if starts is None:
        return "the slices of heads are not contiguous"
    if not _are_even(scatter, starts):
        return UNEVEN_OWNERS
    if finish.sink is not None and (merge.sink is None or isinstance(merge.sink.owner, LaunchOp)):
        return "its sink is computed"
    return None


def _are_even(scatter: ReduceScatterOp, starts: tuple[tuple[int, ...], ...]) -> bool:
    """Whether all owners have as many heads, in the order of ranks."""
    ranks = len(starts[0])
    heads = tensor(scatter.inputs[0]).get_shape()[2]
    owned = tensor(scatter.outputs[0]).get_shape()[2]
    in_order = tuple(rank * owned for rank in range(ranks))
    return owned * ranks == heads and all(row == in_order for row in starts)


def _merge_along_trees(choice: FusionChoice, merge: _MergeBehind) -> None:
    """On machines of cubes partial results are merged along trees of the elements, in the kernel
    that makes them: it is the one that knows when they are ready."""
    launch = merge.launch
    name = launch.sym_name.data
    message = f"{name} merges its parts with those of its group and finishes the heads"
    choice.accept(launch, message, {"ranks": mesh_of(launch).refs_size(merge.scatter.axes.data)})
    _join(choice, merge)


def _merge_by_owners(choice: FusionChoice, merge: _MergeBehind) -> None:
    launch, scatter, rates = merge.launch, merge.scatter, choice.rates
    alone = launch_cost(launch, rates).seconds
    others = [
        launch_cost(other, rates).seconds + rates.gap_s for other in (merge.source, merge.last)
    ]
    separate = alone + sum(others)
    moved = sum(tensor_bytes(tensor(value)) for value in scatter.inputs)
    link = rates.links.get(mesh_of(launch).link_class(scatter.axes.data) or "")
    crossing = moved / link.bytes_per_s + 3 * link.latency_s if link is not None else 0.0
    # Records go out through local memory and a launch behind may have to merge them.
    merged = alone + crossing + 8 * rates.latency_s
    merged += rates.gap_s + rates.prologue(LaunchKind.ATTENTION)
    numbers = {
        "fused_us": microseconds(merged),
        "separate_us": microseconds(separate),
        "link_bytes": moved,
    }
    if not choice.is_faster(launch, merged, separate, "whose owners merge", numbers):
        return
    choice.accept(
        launch,
        f"{launch.sym_name.data} sends what it has of each head to the head's owner, who merges: "
        f"{microseconds(merged):.1f} us instead of {microseconds(separate):.1f} us",
        numbers,
    )
    _join(choice, merge)


def _join(choice: FusionChoice, merge: _MergeBehind) -> None:
    """Replaces the launches of a merge by one that does all of it."""
    launch, last = merge.launch, merge.last
    terminator = launch.block.last_op
    assert terminator is not None
    scattered, ended = _inside(merge, list(terminator.operands))
    launch.block.insert_ops_before([scattered, ended], terminator)
    terminator.operands = [ended.results[0]]
    choice.put_back(launch)
    new = LaunchOp(
        launch.sym_name.data,
        launch.kind.data,
        list(launch.inputs),
        launch.detach_region(launch.body),
        result_types=[last.results[0].type],
        properties=dict(launch.properties),
    )
    new.attributes.update(launch.attributes)
    choice.block.insert_op_before(with_location(new, launch), launch)
    new.results[0].name_hint = last.results[0].name_hint
    last.results[0].replace_all_uses_with(new.results[0])
    for op in (last, merge.source, launch):
        op.detach()
        op.erase(safe_erase=False)


def _inside(merge: _MergeBehind, parts: list[SSAValue]) -> tuple[Operation, Operation]:
    """The scatter of what an attention yields and the end of its heads, for its body."""
    scatter, finish = merge.scatter, merge.finish
    scattered = ReduceScatterOp.create(
        operands=parts,
        result_types=[value.type for value in scatter.outputs],
        properties=dict(scatter.properties),
        attributes=dict(scatter.attributes),
    )
    scattered.location = scatter.location
    mapping: dict[SSAValue, SSAValue] = dict(
        zip((finish.m, finish.l, finish.o), scattered.results, strict=True)
    )
    if finish.sink is not None:
        assert merge.sink is not None
        mapping[finish.sink] = argument_for(merge.launch, merge.sink)
    ended = finish.clone(mapping)
    ended.location = finish.location
    return scattered, ended
