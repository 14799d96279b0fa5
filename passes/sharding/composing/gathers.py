"""Gathers move below operations that can run on the finer shards."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Operation, SSAValue

from starc.analysis.reencoding import encoding, reshard_before, shape_of
from starc.analysis.sharding_rules import rule_of
from starc.core.sharding.encoding import DimSharding, is_refinement
from starc.core.sharding.factor_rules import FactorRule
from starc.core.sharding.link_bytes import add_bytes, is_no_more
from starc.passes.sharding.composing.reshard_costs import ReshardCosts, reshard_of
from starc.passes.sharding.composing.steps import legal, names_of, retype, step_of


def sink_gathers(op: Operation, costs: ReshardCosts) -> bool:
    """Runs an operation on single elements, rows or columns on the finer shards that one of its
    operands was gathered from."""
    rule = rule_of(op)
    if rule.summed() or rule.nested is not None or rule.window is not None:
        return False
    kept = {factor.name for factor in rule.results[0]}
    for index, value in enumerate(op.operands):
        reshard = reshard_of(value)
        if reshard is None:
            continue
        fine, coarse = costs.ends(reshard)
        names = names_of(rule, index)
        shardings = {
            name: new
            for name, old, new, extent in zip(
                names, coarse.dims, fine.dims, shape_of(value), strict=True
            )
            if name in kept
            and old != new
            and costs.mesh.refs_size(new.axes) > costs.mesh.refs_size(old.axes)
            and is_refinement(costs.mesh, old, new, extent)
        }
        if shardings and _run_finer(op, rule, shardings, costs):
            return True
    return False


def _run_finer(
    op: Operation, rule: FactorRule, shardings: Mapping[str, DimSharding], costs: ReshardCosts
) -> bool:
    step = legal(op, rule, step_of(op, rule, shardings, costs.mesh), costs.mesh)
    if step is None:
        return False
    result = op.results[0]
    now = [costs.cost_behind(result, encoding(result, costs.mesh))]
    new = [costs.cost_behind(result, step.result)]
    sources: dict[SSAValue, SSAValue] = {}
    for value, wanted in zip(op.operands, step.operands, strict=True):
        if value in sources:
            continue
        reshard = reshard_of(value)
        sources[value] = value
        cost = costs.cost(value, encoding(value, costs.mesh), wanted)
        if reshard is not None:
            first = reshard.inputs[0]
            direct = costs.cost(first, encoding(first, costs.mesh), wanted)
            dies = all(use.operation is op for use in reshard.results[0].uses)
            if dies:
                now.append(costs.cost_of(reshard))
            if dies or is_no_more(direct, cost):
                sources[value], cost = first, direct
        new.append(cost)
    if not is_no_more(add_bytes(new), add_bytes(now)):
        return False
    for number, (value, wanted) in enumerate(zip(list(op.operands), step.operands, strict=True)):
        op.operands[number] = reshard_before(op, sources[value], wanted)
    retype(result, step.result, last=True)
    return True
