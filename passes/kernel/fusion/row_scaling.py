"""The factors of rows behind a product are applied to its tiles before they are stored."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from starc.analysis.cost import launch_cost
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.dialects import nn
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_kinds import LaunchKind
from starc.passes.kernel.fusion.choice import FusionChoice, microseconds
from starc.passes.kernel.fusion.launch_values import (
    argument_for,
    between,
    is_used_beside,
    ops_of_kind,
    outside,
)


@dataclass(frozen=True)
class _Scaling:
    """A result of a product, by number, and the result of another launch that has it scaled."""

    result: int
    op: nn.ScaleRowsOp
    factors: SSAValue
    scaled: int


def scale_rows_inside(choice: FusionChoice, launch: LaunchOp) -> None:
    """Takes the scaling of rows of a product's results into its launch."""
    users = dict.fromkeys(use.operation for result in launch.results for use in result.uses)
    for user in users:
        if isinstance(user, LaunchOp) and user.kind.data == LaunchKind.ELEMENTWISE:
            _scale_by(choice, launch, user)


def _scale_by(choice: FusionChoice, launch: LaunchOp, scaling: LaunchOp) -> None:
    found = _scalings(launch, scaling)
    users = {use.operation for result in launch.results for use in result.uses}
    if found is None or any(op in users for op in between(launch, scaling)):
        return
    saved = launch_cost(scaling, choice.rates).seconds + choice.rates.gap_s
    lost = _waiting_seconds(launch, scaling, choice.rates)
    name = launch.sym_name.data
    if lost > saved:
        choice.sink.remark(
            "not-fused",
            f"{name}: the factors of its rows are computed meanwhile, it would wait for them",
            launch,
            declined=True,
            saved_us=microseconds(saved),
            lost_us=microseconds(lost),
        )
        return
    _move_inside(launch, scaling, found)
    choice.sink.remark(
        "rows-scaled",
        f"{name}: its rows are scaled before they are stored",
        launch,
        saved_us=microseconds(saved),
    )


def _scalings(launch: LaunchOp, scaling: LaunchOp) -> list[_Scaling] | None:
    """What a launch does that scales rows of a product and nothing else."""
    scales = ops_of_kind(scaling, nn.ScaleRowsOp)
    if scales is None:
        return None
    found: list[_Scaling] = []
    results, yielded = list[SSAValue](launch.results), list(scaling.yielded)
    for op in scales:
        source, factors = outside(scaling, op.input), outside(scaling, op.scale)
        if source is None or factors is None or op.result not in yielded:
            return None
        if source.owner is not launch or factors.owner is launch:
            return None
        if is_used_beside(source, scaling):
            return None
        found.append(_Scaling(results.index(source), op, factors, yielded.index(op.result)))
    return found


def _waiting_seconds(launch: LaunchOp, scaling: LaunchOp, rates: DeviceRates) -> float:
    """Seconds that a product loses which waits for factors that are computed beside it."""
    beside = [op for op in between(launch, scaling) if isinstance(op, LaunchOp)]
    makers = {value.owner for value in scaling.inputs}
    if not any(op in makers for op in beside):
        return 0.0
    others = sum(launch_cost(op, rates).seconds for op in beside)
    return min(launch_cost(launch, rates).seconds, others)


def _move_inside(launch: LaunchOp, scaling: LaunchOp, found: list[_Scaling]) -> None:
    """Scales results in the launch that makes them, which then stands where they were scaled."""
    launch.detach()
    parent, block = scaling.parent, launch.block
    assert parent is not None
    parent.insert_op_before(launch, scaling)
    terminator = block.last_op
    assert terminator is not None
    for each in found:
        inner = argument_for(launch, each.factors)
        value = terminator.operands[each.result]
        scaled = nn.ScaleRowsOp(value, inner, each.op.result.type)
        scaled.location = each.op.location
        block.insert_op_before(scaled, terminator)
        terminator.operands[each.result] = scaled.result
        scaling.results[each.scaled].replace_all_uses_with(launch.results[each.result])
    Rewriter.erase_op(scaling)
