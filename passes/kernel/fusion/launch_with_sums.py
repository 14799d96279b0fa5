"""The launch of a product with the reductions of its results and the work behind the sums."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_problems import ops_of
from starc.passes.kernel.fusion.reduction_chains import ReductionChain


def launch_with_sums(
    launch: LaunchOp, chains: Sequence[ReductionChain], behind: Sequence[LaunchOp]
) -> tuple[LaunchOp, list[SSAValue]]:
    """A copy of a launch with reductions and what is behind them, and the values outside that its
    results stand for."""
    body = _Body(launch)
    for chain in chains:
        body.reduce(chain)
    for follower in behind:
        body.follow(follower)
    values = _kept_values(launch, chains, behind)
    return body.launch_of(values), values


def _kept_values(
    launch: LaunchOp, chains: Sequence[ReductionChain], behind: Sequence[LaunchOp]
) -> list[SSAValue]:
    """The values that are needed outside: results, their sums, or what is made of these."""
    following = {value: op for op in behind for value in op.inputs}
    sums = {chain.result: chain.outer for chain in chains}
    values: dict[SSAValue, None] = {}

    def keep(value: SSAValue) -> None:
        if value not in following:
            values[value] = None
            return
        for result in following[value].results:
            keep(result)

    for result in launch.results:
        keep(sums.get(result, result))
    return list(values)


class _Body:
    """The body of a copy of a launch, as it grows; ``inside`` has the values in it for those
    outside."""

    def __init__(self, launch: LaunchOp) -> None:
        self.launch, self.copy = launch, launch.clone()
        self.block = self.copy.block
        terminator = self.block.last_op
        assert terminator is not None
        self.terminator = terminator
        self.inputs = list(launch.inputs)
        self.inside: dict[SSAValue, SSAValue] = dict(
            zip(launch.results, terminator.operands, strict=True)
        )

    def reduce(self, chain: ReductionChain) -> None:
        """Rotates, where the chain does, and reduces a result."""
        value = self.inside[chain.result]
        if chain.rope is not None:
            rope = self._add(chain.rope.clone({chain.rope.input: value}), chain.rope)
            value = rope.results[0]
        reduction = chain.reduction
        made = type(reduction).create(
            operands=[value],
            result_types=[reduction.outputs[chain.position].type],
            properties=dict(reduction.properties),
            attributes=dict(reduction.attributes),
        )
        self.inside[chain.outer] = self._add(made, reduction).results[0]

    def follow(self, follower: LaunchOp) -> None:
        """Does the work of another launch."""
        mapping: dict[SSAValue, SSAValue] = {
            argument: self._value_of(outer)
            for argument, outer in zip(follower.block.args, follower.inputs, strict=True)
        }
        for op in ops_of(follower):
            clone = self._add(op.clone(mapping), op)
            mapping.update(zip(op.results, clone.results, strict=True))
        self.inside.update(
            (outer, mapping[inner])
            for outer, inner in zip(follower.results, follower.yielded, strict=True)
        )

    def launch_of(self, values: Sequence[SSAValue]) -> LaunchOp:
        """The launch that has what stands for ``values`` as its results."""
        launch = self.launch
        self.terminator.operands = [self.inside[value] for value in values]
        new = LaunchOp(
            launch.sym_name.data,
            launch.kind.data,
            self.inputs,
            self.copy.detach_region(self.copy.body),
            result_types=[value.type for value in values],
            properties=dict(launch.properties),
        )
        new.attributes.update(launch.attributes)
        self.copy.erase()
        return new

    def _add(self, op: Operation, source: Operation) -> Operation:
        op.location = source.location
        self.block.insert_op_before(op, self.terminator)
        return op

    def _value_of(self, outer: SSAValue) -> SSAValue:
        """The value inside for one outside, a new argument where there is none."""
        if outer not in self.inside:
            if outer in self.inputs:
                self.inside[outer] = self.block.args[self.inputs.index(outer)]
            else:
                argument = self.block.insert_arg(outer.type, len(self.block.args))
                argument.name_hint = outer.name_hint
                self.inside[outer] = argument
                self.inputs.append(outer)
        return self.inside[outer]
