"""Reductions move below the operations that are linear in what they reduce."""

from __future__ import annotations

from xdsl.ir import Operation

from starc.analysis.communication import moving_steps
from starc.analysis.reencoding import encoding, reshard_before, shape_of
from starc.analysis.sharding_rules import has_rule, rule_of, symbol_type
from starc.core.sharding.combiners import COMBINERS, ReductionKind
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.link_bytes import add_bytes, is_no_more
from starc.dialects.sharding import ReshardOp
from starc.passes.sharding.composing.reshard_costs import ReshardCosts
from starc.passes.sharding.composing.steps import Step, legal, names_of, retype, step_of


def sink_reduction(op: ReshardOp, costs: ReshardCosts) -> bool:
    """Moves a reduction below the linear operations that follow it, as far as it pays."""
    chain = _paying_chain(op, costs)
    for index, (user, step) in enumerate(chain):
        for number, wanted in enumerate(step.operands):
            old = user.operands[number]
            if index == 0 and old is op.results[0]:
                user.operands[number] = op.inputs[0]
            elif encoding(old, costs.mesh) != wanted:
                user.operands[number] = reshard_before(user, old, wanted)
        retype(user.results[0], step.result, last=index == len(chain) - 1)
    return bool(chain)


def _paying_chain(op: ReshardOp, costs: ReshardCosts) -> list[tuple[Operation, Step]]:
    """The operations behind a reduction that it should move below, each on the partial sum."""
    source, target = costs.ends(op)
    if source.partial is None or source.partial == target.partial:
        return []
    if not COMBINERS[source.partial.kind].linear:
        return []
    shape = shape_of(op.inputs[0])
    chain: list[tuple[Operation, Step]] = []
    value, found, length = op.results[0], source, 0
    while (use := value.get_unique_use()) is not None:
        step = _carry(use.operation, use.index, found, costs)
        if step is None:
            break
        chain.append((use.operation, step))
        value, found = use.operation.results[0], step.result
        own = encoding(value, costs.mesh)
        now = add_bytes([costs.cost_of(op), costs.cost_behind(value, own)])
        new = costs.cost_behind(value, found)
        steps = moving_steps(source, target, shape) + costs.steps_behind(value, own)
        fewer = costs.steps_behind(value, found) < steps
        if value.first_use and is_no_more(new, now) and (new != now or fewer):
            length = len(chain)
    return chain[:length]


def _carry(op: Operation, index: int, found: Encoding, costs: ReshardCosts) -> Step | None:
    """An operation that passes a partial sum on, with operand ``index`` as ``found``; the
    others must be there without communication."""
    if not has_rule(op) or len(op.results) != 1 or symbol_type(op) is not None:
        return None
    rule = rule_of(op)
    alone = len(op.operands) == 1 and (rule.additive or rule.transparent)
    if index not in rule.linear and not alone:
        return None
    shardings = dict(zip(names_of(rule, index), found.dims, strict=True))
    step = step_of(op, rule, shardings, costs.mesh)
    result = step.result.with_partial(
        ReductionKind.SUM, found.partial.axes if found.partial else ()
    )
    operands = (*step.operands[:index], found, *step.operands[index + 1 :])
    for number, (value, wanted) in enumerate(zip(op.operands, operands, strict=True)):
        if number == index:
            continue
        held = encoding(value, costs.mesh)
        if held.partial is not None or costs.cost(value, held, wanted):
            return None
    return legal(op, rule, Step(operands, result), costs.mesh)


def merge_reductions(op: Operation, costs: ReshardCosts) -> bool:
    """The terms of a sum that are all reduced in the same way."""
    rule = rule_of(op)
    reshards = [value.owner for value in op.operands]
    if not rule.additive or len(op.operands) < 2:
        return False
    ends: list[tuple[Encoding, Encoding]] = []
    for reshard in reshards:
        if not isinstance(reshard, ReshardOp) or len(reshard.inputs) != 1:
            return False
        if any(use.operation is not op for use in reshard.results[0].uses):
            return False
        ends.append(costs.ends(reshard))
    source, target = ends[0]
    if source.partial is None or source.partial == target.partial or len(set(ends)) != 1:
        return False
    step = legal(op, rule, Step((source,) * len(ends), source), costs.mesh)
    if step is None or encoding(op.results[0], costs.mesh) != target:
        return False
    for index, reshard in enumerate(reshards):
        assert isinstance(reshard, ReshardOp)
        op.operands[index] = reshard.inputs[0]
    retype(op.results[0], source, last=True)
    return True
