"""The sharding rule of every operation that computes on sharded values, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr
from xdsl.ir import Operation

from starc.core.sharding.combiners import ReductionKind
from starc.core.sharding.factor_rules import DimFactor, FactorRule, factors
from starc.dialects import nn

Shapes = tuple[tuple[int, ...], ...]
RuleMaker = Callable[[Operation, Shapes, Shapes], FactorRule]
"""Makes the rule of an operation from the global shapes of its inputs and results."""


def _integer(op: Operation, name: str) -> int:
    # An attribute of 0 is false.
    found = op.properties.get(name, op.attributes.get(name))
    assert isinstance(found, IntegerAttr), f"{op.name} has no integer {name}"
    return found.value.data


def _dims(rank: int) -> tuple[DimFactor, ...]:
    return tuple(DimFactor(f"d{dim}") for dim in range(rank))


# ---------------------------------------------------------------------------------------------
# Rules of the nn dialect
# ---------------------------------------------------------------------------------------------


def _linear(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    return FactorRule(
        (factors("batch query k"), factors("k n")),
        (factors("batch query n"),),
        linear=frozenset({0, 1}),
    )


def _norm(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    dims = factors("batch query feature")
    return FactorRule((dims, factors("feature")), (dims,), whole=frozenset({"feature"}))


def _rope(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    dims = factors("batch query head", head=_integer(op, "head_dim"))
    return FactorRule((dims,), (dims,), linear=frozenset({0}))


def _append(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    # Input 0 is the state. Every device stores the new tokens' positions that it holds: of all new
    # tokens, or of those that were sent to the devices that hold their positions.
    cache = factors("batch head position d")
    new = factors("batch query head", head=results[0][3])
    window = ("query", "position", _integer(op, "start"))
    return FactorRule((cache, new), (cache,), whole=frozenset({"d"}), window=window)


def _attention(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    queries = factors("batch query head", head=_integer(op, "head_dim"))
    cache = factors("batch kv_head position d")
    sink = (factors("head"),) * (len(inputs) - 3)
    return FactorRule(
        (queries, cache, cache, *sink),
        (queries,),
        whole=frozenset({"position", "d"}),
        nested=("head", "kv_head"),
    )


def _partial_attention(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    queries = factors("batch query head", head=_integer(op, "head_dim"))
    cache = factors("batch kv_head position d")
    rows = factors("batch query head")
    return FactorRule(
        (queries, cache, cache),
        (rows, rows, queries),
        whole=frozenset({"d"}),
        nested=("head", "kv_head"),
        kinds={"position": ReductionKind.LSE},
    )


def _lse_finish(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    columns = factors("batch query head", head=_integer(op, "head_dim"))
    rows = factors("batch query head")
    sink = (factors("head"),) * (len(inputs) - 3)
    return FactorRule((rows, rows, columns, *sink), (columns,))


def _sum_squares(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    return FactorRule((factors("batch query feature"),), (factors("batch query one"),))


def _scale_columns(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    dims = factors("batch query feature")
    return FactorRule((dims, factors("feature")), (dims,), linear=frozenset({0}))


def _scale_rows(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    dims = factors("batch query feature")
    return FactorRule((dims, factors("batch query one")), (dims,), linear=frozenset({0}))


def _elementwise(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    dims = _dims(len(results[0]))
    return FactorRule((dims,) * len(inputs), (dims,))


def _sum(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    dims = _dims(len(results[0]))
    return FactorRule((dims,) * len(inputs), (dims,), additive=True)


def _product(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    dims = _dims(len(results[0]))
    return FactorRule((dims,) * len(inputs), (dims,), linear=frozenset(range(len(inputs))))


def _quotient(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    dims = _dims(len(results[0]))
    return FactorRule((dims, dims), (dims,), linear=frozenset({0}))


def _embedding(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    # A row that a device does not hold is zero there, so the look-up is a sum over the vocabulary.
    return FactorRule(
        (factors("batch query"), factors("vocab feature")),
        (factors("batch query feature"),),
        linear=frozenset({1}),
    )


def _last_token(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    return FactorRule(
        (factors("batch query feature"),),
        (factors("batch last feature"),),
        whole=frozenset({"query", "last"}),
        transparent=True,
    )


# ---------------------------------------------------------------------------------------------
# Rules of reused operations
# ---------------------------------------------------------------------------------------------


def _identity(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    dims = _dims(len(results[0]))
    return FactorRule((dims,), (dims,), transparent=True)


def _cut(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    """``tensor.extract_slice``: a dimension that is cut is whole on every device. Where it drops
    dimensions, all of them are."""
    if len(inputs[0]) != len(results[0]):
        before, after = (
            _dims(len(inputs[0])),
            factors("".join(f"r{i} " for i in range(len(results[0])))),
        )
        every = frozenset(factor.name for factor in (*before, *after))
        return FactorRule((before,), (after,), whole=every, transparent=True)
    cut = {f"d{dim}" for dim, extent in enumerate(inputs[0]) if results[0][dim] != extent}
    dims = _dims(len(results[0]))
    return FactorRule((dims,), (dims,), whole=frozenset(cut), transparent=True)


def _concat(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    dims = _dims(len(results[0]))
    joined = f"d{_integer(op, 'dim')}"
    return FactorRule((dims,) * len(inputs), (dims,), whole=frozenset({joined}), additive=True)


def _regroup(op: Operation, inputs: Shapes, results: Shapes) -> FactorRule:
    """``tensor.collapse_shape`` and ``expand_shape``: of the dimensions that form one, the first
    may be split, in whole blocks of the others."""
    fine, coarse = (
        (inputs[0], results[0]) if len(inputs[0]) > len(results[0]) else (results[0], inputs[0])
    )
    groups = cast(ArrayAttr[ArrayAttr[IntegerAttr]], op.properties["reassociation"])
    fine_dims = [DimFactor(f"d{dim}") for dim in range(len(fine))]
    whole: set[str] = set()
    coarse_dims: list[DimFactor] = []
    for group in groups:
        members = [index.value.data for index in group]
        block = 1
        for dim in members[1:]:
            block *= fine[dim]
            whole.add(f"d{dim}")
        coarse_dims.append(DimFactor(f"d{members[0]}", block))
    assert len(coarse_dims) == len(coarse)
    sides = (tuple(fine_dims), tuple(coarse_dims))
    before, after = sides if fine is inputs[0] else sides[::-1]
    return FactorRule((before,), (after,), whole=frozenset(whole), transparent=True)


RULES: Mapping[str, RuleMaker] = MappingProxyType(
    {
        "nn.read": _identity,
        "nn.linear": _linear,
        **{op.name: _norm for op in nn.Nn.operations if issubclass(op, nn.NormOp)},
        "nn.rope": _rope,
        "nn.append": _append,
        "nn.attention": _attention,
        "nn.partial_attention": _partial_attention,
        "nn.lse_finish": _lse_finish,
        "nn.sum_squares": _sum_squares,
        "nn.norm_scale": _elementwise,
        "nn.scale_columns": _scale_columns,
        "nn.scale_rows": _scale_rows,
        **{op.name: _elementwise for op in nn.Nn.operations if issubclass(op, nn.ElementwiseOp)},
        "nn.add": _sum,
        "nn.mul": _product,
        "nn.embedding": _embedding,
        "nn.last_token": _last_token,
        "arith.addf": _sum,
        "arith.subf": _sum,
        "arith.mulf": _product,
        "arith.divf": _quotient,
        "arith.negf": _product,
        "arith.extf": _product,
        # Rounding a part is not rounding the sum.
        "arith.truncf": _elementwise,
        "arith.maximumf": _elementwise,
        "arith.minimumf": _elementwise,
        "tensor.cast": _identity,
        "tensor.extract_slice": _cut,
        "tensor.concat": _concat,
        "tensor.collapse_shape": _regroup,
        "tensor.expand_shape": _regroup,
    }
)
"""The rule of every operation that computes on sharded values, by name."""
