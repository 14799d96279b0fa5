"""The values of layers in buffers: layers chain by them, and buffers live as long as launches use
them."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from starc.core.kernel_schedules.attention_problem import AttentionProblem
from starc.core.kernel_schedules.gemm_problem import GemmProblem
from starc.core.memory.buffer_kinds import BufferRole
from starc.dialects import nn
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_problems import CollectiveProblem, problem_of, tensor
from starc.passes.kernel.memory.attention_buffers import plan_attention
from starc.passes.kernel.memory.exchange_buffers import plan_exchange
from starc.passes.kernel.memory.planned_buffers import BufferTable, PlannedBuffer
from starc.passes.kernel.memory.product_buffers import plan_product


def returned(function: FuncOp) -> tuple[SSAValue, ...]:
    """The values that a layer returns."""
    terminator = function.body.block.last_op
    assert terminator is not None
    return tuple(terminator.operands)


def chain_layers(table: BufferTable, functions: Sequence[FuncOp]) -> None:
    """Gives arguments and results of layers their buffers: the argument of a layer is the result of
    the one before, where their types agree."""
    results: list[PlannedBuffer] = []
    for number, function in enumerate(functions):
        _take_arguments(table, function, results)
        following = functions[number + 1] if number + 1 < len(functions) else None
        types = [value.type for value in returned(function)]
        is_last = following is None or types != [arg.type for arg in following.body.block.args]
        results = _give_results(table, function, is_last)


def _take_arguments(table: BufferTable, function: FuncOp, results: Sequence[PlannedBuffer]) -> None:
    for index, argument in enumerate(function.body.block.args):
        type = tensor(argument)
        match = results[index] if index < len(results) else None
        if match is None or match.type != type:
            name = f"{function.sym_name.data}.{argument.name_hint or f'argument{index}'}"
            match = table.add(name, type, BufferRole.INPUT, function)
        table.of_value[argument] = match


def _give_results(table: BufferTable, function: FuncOp, is_last: bool) -> list[PlannedBuffer]:
    values = returned(function)
    role = BufferRole.OUTPUT if is_last else BufferRole.ACTIVATION
    results: list[PlannedBuffer] = []
    for index, value in enumerate(values):
        if value not in table.of_value:  # else an argument, or a value that is returned twice
            suffix = f"result{index}" if len(values) > 1 else "result"
            name = f"{function.sym_name.data}.{suffix}"
            table.of_value[value] = table.add(name, tensor(value), role, function)
        results.append(table.of_value[value])
    return results


def plan_layer(table: BufferTable, function: FuncOp) -> None:
    """Gives the values of a layer their buffers, and launches what they need beside."""
    launches: list[LaunchOp] = []
    ready: dict[SSAValue, int] = {}
    for op in function.body.block.ops:
        if isinstance(op, nn.ReadOp):
            table.of_value[op.result] = table.by_name[op.parameter.string_value()]
        elif isinstance(op, LaunchOp):
            table.step += 1
            _plan_values(table, op)
            ready.update((value, table.step) for value in op.results)
            _plan_work(table, op)
            launches.append(op)
    _extend_beside(table, launches, ready)


def _plan_values(table: BufferTable, launch: LaunchOp) -> None:
    """Results become buffers of this step, an append changes the buffer of its cache."""
    for value in launch.inputs:
        table.of_value[value].life.reach(table.step)
    for index, (value, inner) in enumerate(zip(launch.results, launch.yielded, strict=True)):
        owner = inner.owner
        if isinstance(owner, nn.AppendOp):
            table.of_value[value] = table.by_name[owner.state.string_value()]
        elif value not in table.of_value:
            suffix = f"out{index}" if len(launch.results) > 1 else "out"
            name = f"{launch.sym_name.data}.{suffix}"
            table.of_value[value] = table.add_passing(name, tensor(value), launch)


def _plan_work(table: BufferTable, launch: LaunchOp) -> None:
    problem = problem_of(launch)
    if isinstance(problem, GemmProblem):
        plan_product(table, launch)
    elif isinstance(problem, AttentionProblem):
        plan_attention(table, launch, problem)
    elif isinstance(problem, CollectiveProblem):
        plan_exchange(table, launch, problem)


def _extend_beside(
    table: BufferTable, launches: Sequence[LaunchOp], ready: dict[SSAValue, int]
) -> None:
    """A launch of the communication queue may run until the first one that needs its result, from
    when its operands are there."""
    first_step = table.step - len(launches) + 1
    position = {launch: first_step + index for index, launch in enumerate(launches)}
    for launch in launches:
        if launch.integer("queue", 0) == 0:
            continue
        users = [use.operation for result in launch.results for use in result.uses]
        steps = [position[user] for user in users if isinstance(user, LaunchOp)]
        end = min(steps, default=table.step)
        start = max(ready.get(value, first_step - 1) for value in launch.inputs) + 1
        for value in (*launch.inputs, *launch.results):
            table.of_value[value].life.reach(end)
        for value in launch.results:
            table.of_value[value].life.begin(start)
