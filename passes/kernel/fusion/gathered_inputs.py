"""Pull: the all-gather in front of products moves into their launch, which then reads the slices of
peers as it comes to them."""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import BlockArgument
from xdsl.rewriter import Rewriter

from starc.core.kernel_schedules.fused_schedules import choose_fused
from starc.dialects import nn
from starc.dialects.collective import AllGatherOp
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_fusion import fused_problem, gemm_parts, slice_starts
from starc.dialects.kernel_problems import ops_of
from starc.dialects.sharding import encoding_of, mesh_of
from starc.passes.kernel.fusion.choice import FusionChoice
from starc.passes.kernel.fusion.launch_values import is_used_beside, launch_behind, only_op


def gather_inside(choice: FusionChoice, launch: LaunchOp) -> None:
    """Takes the all-gather of the input of a launch's products into it, where that is faster."""
    linears = [op for op in ops_of(launch) if isinstance(op, nn.LinearOp)]
    for outer, inner in zip(launch.inputs, launch.block.args, strict=True):
        source = launch_behind(outer)
        gather = only_op(source, AllGatherOp)
        if source is None or gather is None or len(gather.operands) != 1:
            continue
        if all(op.input is inner for op in linears):
            _gather_by(choice, launch, inner, source, gather)
            return


def _gather_by(
    choice: FusionChoice,
    launch: LaunchOp,
    inner: BlockArgument,
    source: LaunchOp,
    gather: AllGatherOp,
) -> None:
    reason = _obstacle(launch, inner, gather)
    if reason is not None:
        choice.decline(launch, f"it does not read slices of peers itself: {reason}")
        return
    rates = choice.rates
    ways = choose_fused(fused_problem(launch, rates, gather), rates)
    if choice.pull is not None:
        ways = tuple(schedule for schedule in ways if schedule.pull == choice.pull)
    if not choice.pays(launch, ways, [source], "reads slices of peers itself"):
        return
    block, index = launch.block, inner.index
    part = source.inputs[0]
    argument = block.insert_arg(part.type, index)
    argument.name_hint = inner.name_hint
    copy = gather.clone({gather.inputs[0]: argument})
    copy.location = gather.location
    first = block.first_op
    assert first is not None
    block.insert_op_before(copy, first)
    inner.replace_all_uses_with(copy.outputs[0])
    block.erase_arg(inner)
    launch.operands[index] = part
    launch.properties["pull"] = StringAttr(ways[0].pull.value if ways[0].pull else "")
    Rewriter.erase_op(source)


def _obstacle(launch: LaunchOp, inner: BlockArgument, gather: AllGatherOp) -> str | None:
    """Why a launch cannot read the slices of an input itself."""
    if gather.number("dim") != 2:
        return "rows are gathered, not columns"
    if is_used_beside(launch.inputs[inner.index], launch):
        return "the gathered value has other uses"
    mesh = mesh_of(launch)
    for part in gemm_parts(launch):
        encoding = encoding_of(part.linear.result.type, mesh)
        if encoding is None:
            return "its results have no encoding"
        used = [ref for dim in encoding.dims for ref in dim.axes]
        used += encoding.partial.axes if encoding.partial is not None else ()
        replicated = mesh.complement(used)
        if any(mesh.overlap(a, b) for a in replicated for b in gather.axes.data):
            return "devices of a group compute the same, each would add in another order"
    if slice_starts(gather, mesh) is None:
        return "the slices are not contiguous"
    return None
