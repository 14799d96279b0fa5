"""Operations on other encodings than they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.ir import Operation, SSAValue

from starc.analysis.reencoding import (
    encoding,
    reshard_after,
    set_encoding,
    sharded_inputs,
    sharded_results,
)
from starc.core.sharding.encoding import DimSharding, Encoding
from starc.core.sharding.factor_checks import problems_of
from starc.core.sharding.factor_rules import FactorRule
from starc.core.sharding.mesh import Mesh
from starc.passes.sharding.composing.reshard_costs import others, reshards


@dataclass(frozen=True)
class Step:
    """An operation on other encodings: those of its operands, and of its result."""

    operands: tuple[Encoding, ...]
    result: Encoding


def step_of(
    op: Operation, rule: FactorRule, shardings: Mapping[str, DimSharding], mesh: Mesh
) -> Step:
    """The encodings of an operation whose factors are split as said, all others as they are."""

    def changed(value: SSAValue, names: Sequence[str]) -> Encoding:
        old = encoding(value, mesh)
        dims = zip(names, old.dims, strict=True)
        return replace(old, dims=tuple(shardings.get(name, own) for name, own in dims))

    operands = tuple(
        changed(value, names_of(rule, index)) for index, value in enumerate(op.operands)
    )
    result = op.results[0]
    return Step(operands, changed(result, [factor.name for factor in rule.results[0]]))


def legal(op: Operation, rule: FactorRule, step: Step, mesh: Mesh) -> Step | None:
    """The step if it keeps the rule of the operation."""
    inputs = [
        replace(value, encoding=wanted)
        for value, wanted in zip(sharded_inputs(op, mesh), step.operands, strict=True)
    ]
    results = [replace(sharded_results(op, mesh)[0], encoding=step.result)]
    if any(value.encoding.problems(value.shape) for value in (*inputs, *results)):
        return None
    return None if problems_of(rule, inputs, results) else step


def retype(value: SSAValue, wanted: Encoding, *, last: bool) -> None:
    """Gives a result another encoding. With ``last``, users other than reshards get the one it
    had."""
    old = encoding(value, wanted.mesh)
    new = set_encoding(value, wanted)
    if not last or not others(new) or old == wanted:
        return
    sources = [(user, user.inputs[0]) for user in reshards(new)]
    reshard_after(new, old)
    for user, source in sources:
        user.operands[0] = source


def names_of(rule: FactorRule, index: int) -> list[str]:
    """The factors of an operand's dimensions."""
    return [factor.name for factor in rule.operands[index]]
