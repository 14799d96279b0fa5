"""The table of sharding rules, and what the check finds when one is broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.rewriter import Rewriter

from starc.analysis.operation_rules import RULES
from starc.analysis.sharding_rules import check
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.factor_checks import problems_of
from starc.core.sharding.factor_resolution import resolve
from starc.core.sharding.factor_rules import FactorRule, ShardedValue, factors
from starc.core.sharding.mesh import Axis, AxisRef, Mesh
from starc.dialects.collective import AllReduceOp
from starc.dialects.nn import Nn, ReadOp
from starc.dialects.sharding import ReshardOp, global_type, mesh_of
from starc.frontend.loading import load_model
from starc.passes.base import RemarkSink
from starc.passes.collective.localize import LocalizePass
from starc.passes.sharding.assign_tensor_parallel import AssignTensorParallelPass
from starc.passes.sharding.propagate_shardings import PropagateShardingsPass
from starc.targets.loader import load_target

EXAMPLES = Path(__file__).parents[3] / "examples"
NODE = Mesh("node", (Axis("x", 4), Axis("y", 2)))
X, Y = AxisRef("x"), AxisRef("y")
LINEAR = FactorRule(
    (factors("batch query k"), factors("k n")),
    (factors("batch query n"),),
    linear=frozenset({0, 1}),
)


def value(what: str, shape: tuple[int, ...], **dims: tuple[AxisRef, ...]) -> ShardedValue:
    encoding = Encoding.replicated(NODE, len(shape))
    for name, axes in dims.items():
        encoding = encoding.with_dim(int(name.removeprefix("d")), axes)
    return ShardedValue(what, encoding, shape)


def partial(value: ShardedValue, *axes: AxisRef) -> ShardedValue:
    return ShardedValue(value.what, value.encoding.with_partial("sum", axes), value.shape)


def test_a_split_sum_leaves_a_partial_result() -> None:
    x, w = value("x", (2, 1, 64), d2=(X,)), value("w", (64, 32), d0=(X,), d1=(Y,))
    y = partial(value("y", (2, 1, 32), d2=(Y,)), X)
    assert problems_of(LINEAR, [x, w], [y]) == []
    assert problems_of(LINEAR, [x, w], [value("y", (2, 1, 32), d2=(Y,))]) == [
        'y is not partial, but the operation leaves partial sum{"x"}'
    ]


def test_resolution_keeps_parameters_and_reshards_activations() -> None:
    x, w = value("x", (2, 1, 64), d2=(X,)), value("w", (64, 32), d1=(Y,))
    found = resolve(LINEAR, [x, w], [(2, 1, 32)], [False, True])
    assert str(found.operands[0]) == "[{}, {}, {}]"
    assert found.operands[1] == w.encoding
    assert str(found.results[0]) == '[{}, {}, {"y"}]'


def test_resolution_of_disagreeing_activations_keeps_what_they_share() -> None:
    rule = FactorRule((factors("d0 d1"),) * 2, (factors("d0 d1"),), additive=True)
    left, right = value("a", (8, 8), d0=(X, Y)), value("b", (8, 8), d0=(X,), d1=(Y,))
    found = resolve(rule, [left, right], [(8, 8)], [False, False])
    assert {str(encoding) for encoding in (*found.operands, *found.results)} == {'[{"x"}, {}]'}


def test_resolution_carries_a_partial_sum_that_both_addends_have() -> None:
    rule = FactorRule((factors("d0"),) * 2, (factors("d0"),), additive=True)
    a = partial(value("a", (8,)), X)
    both = resolve(rule, [a, a], [(8,)], [False, False])
    assert str(both.results[0]) == '[{}], partial = sum{"x"}'
    one = resolve(rule, [a, value("b", (8,))], [(8,)], [False, False])
    assert str(one.operands[0]) == str(one.results[0]) == "[{}]"


def test_resolution_gives_an_axis_to_one_factor_only() -> None:
    x, w = value("x", (4, 1, 64), d0=(X,)), value("w", (64, 32), d1=(X,))
    found = resolve(LINEAR, [x, w], [(4, 1, 32)], [False, True])
    assert found.results[0].problems((4, 1, 32)) == []


def test_every_nn_operation_with_values_has_a_rule() -> None:
    symbols = {"nn.parameter", "nn.state", "nn.stack"}
    assert {op.name for op in Nn.operations} - symbols == {n for n in RULES if n.startswith("nn.")}


# A pass that is broken on purpose is caught.


def compiled(*, local: bool) -> ModuleOp:
    module = load_model(EXAMPLES / "tiny.sa", batch=2).module
    target = load_target("mi300x-cpx", gpus=1)
    sink = RemarkSink()
    AssignTensorParallelPass().run(module, target, sink)
    PropagateShardingsPass().run(module, target, sink)
    if local:
        LocalizePass().run(module, target, sink)
    return module


def lose_a_reshard(module: ModuleOp) -> None:
    op = next(op for op in module.walk() if isinstance(op, ReshardOp))
    op.results[0].replace_all_uses_with(op.inputs[0])
    Rewriter.erase_op(op)


def lose_an_all_reduce(module: ModuleOp) -> None:
    op = [op for op in module.walk() if isinstance(op, AllReduceOp)][-1]
    op.results[0].replace_all_uses_with(op.inputs[0])
    Rewriter.erase_op(op)


def forget_a_partial(module: ModuleOp) -> None:
    op = next(op for op in module.walk() if isinstance(op, AllReduceOp))
    Rewriter.replace_value_with_new_type(op.inputs[0], op.outputs[0].type)


def replicate_a_weight(module: ModuleOp) -> None:
    op = next(op for op in module.walk() if isinstance(op, ReadOp))
    replicated = Encoding.replicated(mesh_of(module), 2)
    Rewriter.replace_value_with_new_type(op.result, global_type(op.result.type, replicated))


@pytest.mark.parametrize(
    ("local", "break_it", "message"),
    [
        (False, lose_a_reshard, "operand 0 is tensor"),
        (True, lose_an_all_reduce, "an all-reduce was lost"),
        (True, forget_a_partial, "is not partial, but the operation leaves partial sum"),
        (False, replicate_a_weight, "they must agree"),
    ],
)
def test_a_broken_pass_is_caught(
    local: bool, break_it: Callable[[ModuleOp], None], message: str
) -> None:
    module = compiled(local=local)
    assert check(module) == []
    break_it(module)
    found = check(module)
    assert any(message in diagnostic.message for diagnostic in found), found
    assert all(diagnostic.location is not None for diagnostic in found)
