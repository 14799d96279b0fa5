"""One-dimensional tensor parallelism, as serving engines do it: which dimension of every weight is
split, and into how many pieces it can be.

The plan follows from the sharding rules of the operations, layer by layer in order:

- A weight that meets an activation which is already split along a dimension that they share is
  split along that dimension: where they sum over it (row parallel), the product is a partial sum;
  an attention's sink has a logit for every query head and follows them.
- Any other weight is split along the first dimension that it alone brings to its operation (column
  parallel; the rows of an embedding table). A weight without one (a norm's) is replicated.

What is split keeps heads whole. KV heads are split as far as the devices divide them and replicated
over the rest, and query heads follow them, so that a device has the KV heads it needs. On a mesh
with several axes a level dimensions are split over the axes that divide them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from starc.analysis.sharding_rules import has_rule, rule_of, symbol_type
from starc.core.sharding.encoding import DimSharding
from starc.core.sharding.factor_rules import FactorRule
from starc.core.sharding.mesh import Axis as Axis
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.core.sharding.shard_map import Offsets
from starc.dialects.nn_storage import ReadOp
from starc.dialects.sharding import AnyTensor, global_shape


@dataclass(frozen=True)
class Split:
    """A dimension of ``units`` pieces that stay whole: heads, or single columns.

    For heads, ``kv_heads`` is the number of KV heads of their attention; ``replicable`` says that
    these are the KV heads themselves, which may be fewer than the devices.
    """

    units: int
    kv_heads: int | None = None
    replicable: bool = False

    def axes(self, mesh: Mesh, tensor_axes: tuple[AxisRef, ...]) -> tuple[AxisRef, ...]:
        """The axes that split the dimension. Those that split KV heads come first, so that the
        query heads of a device belong to the KV heads it has."""
        order = tensor_axes
        if self.kv_heads is not None:
            used, rest = mesh.leading_factors(tensor_axes, self.kv_heads)
            order = mesh.canonical((*used, *rest))
        return mesh.leading_factors(order, self.units)[0]

    def allows(self, size: int, *, shared: bool = False) -> bool:
        """Whether ``size`` devices can share the dimension evenly; where pieces may be ``shared``
        by devices of an inner axis (``Mesh.is_nested``), any number can."""
        return self.units % size == 0 or (self.replicable and size % self.units == 0) or shared

    def sharding(self, mesh: Mesh, tensor_axes: tuple[AxisRef, ...]) -> DimSharding:
        """How the devices share the pieces, unevenly where they must: positions are pieces.

        Single columns are cut into blocks, of which the last may be smaller or empty. KV heads that
        the devices neither divide nor are divided by are dealt out whole, and query heads go with
        them. Where several devices share a KV head, they share its query heads.

            >>> mesh = Mesh("m", (Axis("xcd", 8),))
            >>> Split(28, kv_heads=4).sharding(mesh, mesh.all_axes()).map
            Offsets(offsets=(0, 4, 7, 11, 14, 18, 21, 25, 28))
        """
        size = mesh.refs_size(tensor_axes)
        heads = self.kv_heads or size
        nested = mesh.is_nested and self.kv_heads is not None
        if self.allows(size, shared=nested) and (heads % size == 0 or size % heads == 0):
            return DimSharding(self.axes(mesh, tensor_axes))
        if self.kv_heads is None:
            return DimSharding(tensor_axes)
        group = max(self.units // self.kv_heads, 1)
        if size % self.kv_heads:
            dealt = Offsets.balanced(self.kv_heads, size)
            return DimSharding(tensor_axes, dealt.of_blocks(group, size, self.kv_heads))
        used, rest = mesh.leading_factors(tensor_axes, self.kv_heads)
        within = Offsets.balanced(group, size // self.kv_heads).offsets
        ends = [head * group + end for head in range(self.kv_heads) for end in within[1:]]
        return DimSharding(mesh.canonical((*used, *rest)), Offsets((0, *ends)))

    def shares(self, mesh: Mesh, tensor_axes: tuple[AxisRef, ...]) -> tuple[int, ...]:
        """How many pieces each rank of ``sharding`` has."""
        sharding = self.sharding(mesh, tensor_axes)
        ranks = mesh.refs_size(sharding.axes)
        return tuple(sharding.map.count(rank, ranks, self.units) for rank in range(ranks))


Splits = dict[int, Split]
"""The dimensions of a value that are split."""


@dataclass(frozen=True)
class Demand:
    """A size that the number of devices must suit, and the operation that needs it."""

    what: str
    split: Split
    op: Operation


@dataclass
class TensorParallelPlan:
    """The dimensions that are split, of parameters and states by name and of layer arguments."""

    symbols: dict[str, Splits] = field(default_factory=dict[str, Splits])
    arguments: dict[BlockArgument, Splits] = field(default_factory=dict[BlockArgument, Splits])
    demands: list[Demand] = field(default_factory=list[Demand])

    def demand(self, what: str, split: Split, op: Operation) -> None:
        if all((known.what, known.split) != (what, split) for known in self.demands):
            self.demands.append(Demand(what, split, op))


def divide_mesh(mesh: Mesh, size: int) -> tuple[tuple[AxisRef, ...], tuple[AxisRef, ...]]:
    """The axes of ``size`` tensor-parallel devices, taken from the inner level outwards, and the
    rest, over which the batch is divided. ``size`` must divide the number of devices."""
    return mesh.trailing_factors(mesh.all_axes(), size)


def plan_tensor_parallelism(module: ModuleOp) -> TensorParallelPlan:
    """The plan for every layer of a module of global, unsharded types. It depends on no mesh."""
    plan = TensorParallelPlan()
    for op in module.body.ops:
        if isinstance(op, FuncOp) and op.body.blocks:
            _plan_layer(op, plan)
    return plan


def _plan_layer(layer: FuncOp, plan: TensorParallelPlan) -> None:
    splits: dict[SSAValue, Splits] = {}
    parameters: dict[SSAValue, str] = {}
    for argument in layer.body.block.args:
        last = _rank(argument.type) - 1
        split = _downstream(argument, last) if last >= 0 else None
        found = {last: split} if split is not None and split.kv_heads is not None else {}
        plan.arguments[argument] = splits[argument] = found
        for dim in found:
            _demand_heads(plan, found[dim], layer)
    for op in layer.body.block.ops:
        if isinstance(op, ReadOp):
            parameters[op.results[0]] = _symbol(op, "parameter")
        elif has_rule(op):
            _plan_operation(op, plan, splits, parameters)


def _plan_operation(
    op: Operation,
    plan: TensorParallelPlan,
    splits: dict[SSAValue, Splits],
    parameters: dict[SSAValue, str],
) -> None:
    rule = rule_of(op)
    offset = 0 if symbol_type(op) is None else 1
    inputs: list[Splits] = []
    if offset:
        inputs.append(_plan_state(op, plan))
    inputs += [splits.get(operand, {}) for operand in op.operands]
    for index, operand in enumerate(op.operands):
        name = parameters.get(operand)
        if name is None:
            continue
        if name not in plan.symbols:
            plan.symbols[name] = _plan_parameter(op, rule, index + offset, inputs, plan, name)
        inputs[index + offset] = plan.symbols[name]
    for result, dims in zip(op.results, rule.results, strict=True):
        splits[result] = {
            dim: split
            for dim, factor in enumerate(dims)
            if (split := _factor_split(rule, inputs, factor.name)) is not None
        }


def _plan_state(op: Operation, plan: TensorParallelPlan) -> Splits:
    """A cache ``[batch, kv_head, position, head_dim]`` is split by KV heads."""
    name = _symbol(op, "state")
    type = symbol_type(op)
    assert type is not None
    heads = global_shape(type)[1]
    split = Split(heads, heads, replicable=True)
    plan.symbols[name] = {1: split}
    _demand_heads(plan, split, op)
    return plan.symbols[name]


def _plan_parameter(
    op: Operation,
    rule: FactorRule,
    index: int,
    inputs: list[Splits],
    plan: TensorParallelPlan,
    name: str,
) -> Splits:
    dims = rule.operands[index]
    shape = global_shape(
        cast(AnyTensor, op.operands[index - (len(inputs) - len(op.operands))].type)
    )
    others = {
        factor.name
        for other, factors in enumerate(rule.operands)
        if other != index
        for factor in factors
    }
    summed = rule.summed()
    for dim, factor in enumerate(dims):
        split = _factor_split(rule, inputs, factor.name, but=index)
        if split is not None:
            return {dim: split}
    for dim, factor in enumerate(dims):
        if factor.name in others or factor.name in rule.whole:
            continue
        if factor.name in summed:
            plan.demand(f"rows of @{name}", split := Split(shape[dim]), op)
            return {dim: split}
        for result, result_dims in zip(op.results, rule.results, strict=True):
            for result_dim, result_factor in enumerate(result_dims):
                if result_factor.name == factor.name:
                    split = _downstream(result, result_dim)
                    if split.kv_heads is not None:
                        _demand_heads(plan, split, op)
                    else:
                        plan.demand(f"columns of @{name}", split, op)
                    return {dim: split}
    return {}


def _factor_split(
    rule: FactorRule, inputs: list[Splits], name: str, but: int | None = None
) -> Split | None:
    """How a factor is split: as in the inputs that mention it, if all of them split it."""
    if name in rule.whole:
        return None
    found = [
        inputs[index].get(dim)
        for index, dims in enumerate(rule.operands)
        for dim, factor in enumerate(dims)
        if factor.name == name and index != but
    ]
    first = found[0] if found else None
    return first if all(split is not None for split in found) else None


_Dim = tuple[SSAValue, int]


def _downstream(value: SSAValue, dim: int) -> Split:
    """The pieces of a dimension that what uses the value keeps whole: heads, where it leads to an
    attention or through operations on heads, else single positions."""
    # A stack in place of a recursion: a layer may be thousands of operations long.
    found: dict[_Dim, Split] = {}
    pending: list[_Dim] = [(value, dim)]
    while pending:
        node = pending[-1]
        if node in found:
            pending.pop()
            continue
        steps = [
            step for use in node[0].uses for step in _through(use.operation, use.index, node[1])
        ]
        missing = [step for step in steps if not isinstance(step, Split) and step not in found]
        if missing:
            pending += missing
            continue
        splits = [step if isinstance(step, Split) else found[step] for step in steps]
        found[node] = _coarsest(Split(global_shape(cast(AnyTensor, node[0].type))[node[1]]), splits)
        pending.pop()
    return found[value, dim]


def _coarsest(first: Split, others: Sequence[Split]) -> Split:
    """The pieces that all keep whole; those of attention heads before others."""
    found = first
    for split in others:
        if split.kv_heads is not None and found.kv_heads is None:
            found = split
        elif (split.kv_heads is None) == (found.kv_heads is None):
            found = min(found, split, key=lambda candidate: candidate.units)
    return found


def _through(op: Operation, operand: int, dim: int) -> Iterator[Split | _Dim]:
    """The pieces that an operation keeps whole, and the dimensions of its results that are pieced
    as the operand's."""
    if not has_rule(op):
        return
    rule = rule_of(op)
    factor = rule.operands[operand + (0 if symbol_type(op) is None else 1)][dim]
    if factor.name in rule.whole:
        return
    units = global_shape(cast(AnyTensor, op.operands[operand].type))[dim] // factor.block
    yield Split(units)
    if rule.nested is not None and factor.name in rule.nested:
        kv_heads = next(
            global_shape(cast(AnyTensor, value.type))[index]
            for value, dims in zip(op.operands, rule.operands, strict=True)
            for index, other in enumerate(dims)
            if other.name == rule.nested[1]
        )
        yield Split(units, kv_heads, replicable=factor.name == rule.nested[1])
        return
    for result, dims in zip(op.results, rule.results, strict=True):
        for result_dim, other in enumerate(dims):
            if other.name == factor.name:
                yield result, result_dim


def _demand_heads(plan: TensorParallelPlan, split: Split, op: Operation) -> None:
    plan.demand("KV heads" if split.replicable else "heads", split, op)


def _rank(type: Attribute) -> int:
    return type.get_num_dims() if isinstance(type, TensorType) else 0


def _symbol(op: Operation, name: str) -> str:
    return cast(SymbolRefAttr, op.properties[name]).string_value()


def legal_sizes(devices: int, allowed: Callable[[int], bool]) -> list[int]:
    """The tensor-parallel sizes that divide the devices and that ``allowed`` accepts."""
    return [size for size in range(1, devices + 1) if devices % size == 0 and allowed(size)]
