"""The SPMD lockstep interpreter: every operation runs on all devices, on their shards.

It runs modules from the first sharding encodings to planned memory. Each device holds exactly what
the encodings say, an operation sees its operands' shards alone, and its result must be what its
encoding declares: the same indices, and equal bits on devices that hold replicas. A partial that
is used as if it were complete, a collective over the wrong axes or a buffer that another overlaps
therefore gives an error or other numbers than the reference.

A value whose type has no encoding, as they stand between the passes that annotate a module, is
whole on every device; operands of an operation with such a result are put together first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, SymbolRefAttr, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import SymbolTable

from starc.core.sharding.encoding import DimSharding, Encoding
from starc.dialects import collective, kernel, nn, sharding
from starc.dialects.kernel_attributes import YieldOp
from starc.dialects.kernel_buffers import BufferOp
from starc.dialects.locations import location_of
from starc.interpreter.collectives import run_collective
from starc.interpreter.element_types import Array, Mode, store
from starc.interpreter.global_semantics import LayerRun
from starc.interpreter.local_semantics import (
    MEANINGS,
    SemanticsError,
    Shard,
    appended,
    results_of,
)
from starc.interpreter.memory import Extent, PlannedMemory
from starc.interpreter.values import (
    BlockKey,
    Distributed,
    Placement,
    assemble,
    check_declared,
    check_replicas,
    distribute,
    placement_of,
    poisoned,
    reshard,
)


class ExecutionError(Exception):
    """A module cannot be executed, or an operation breaks what its type declares."""

    def __init__(self, message: str, op: Operation | None = None) -> None:
        where = ""
        if op is not None:
            location = location_of(op)
            where = f"{op.name}" + (f" ({location})" if location is not None else "") + ": "
        super().__init__(where + message)
        self.op = op


@dataclass
class _Run:
    """One run of a layer: the values defined so far and what the layer may change."""

    parameters: Mapping[str, Array]
    states: dict[str, Distributed]
    memory: PlannedMemory | None = None
    values: dict[SSAValue, Distributed] = field(default_factory=dict[SSAValue, Distributed])

    def value(self, operand: SSAValue) -> Distributed:
        """What an operand holds. Raises ``SemanticsError`` if nothing has defined it yet."""
        if operand not in self.values:
            name = f"%{operand.name_hint}" if operand.name_hint else "an operand"
            raise SemanticsError(f"{name} is used before it is defined")
        return self.values[operand]


class SpmdInterpreter:
    """Runs the layers of a module whose values live on a mesh."""

    def __init__(self, module: ModuleOp, mode: Mode) -> None:
        self.module = module
        self.mode: Mode = mode
        try:
            self.mesh = sharding.mesh_of(module)
        except ValueError as error:
            raise ExecutionError(str(error)) from error

    # Types

    def placement(self, value_type: Attribute) -> Placement:
        """Where a value of this tensor type lies."""
        type = _tensor(value_type)
        encoding = sharding.encoding_of(type, self.mesh)
        if encoding is None:
            return self._whole(type.get_shape())
        extents = sharding.global_shape(type)
        if sharding.is_local(type) and encoding.local_shape(extents) != type.get_shape():
            raise SemanticsError(
                f"a device's part of {extents} is {encoding.local_shape(extents)}, "
                f"declared {type.get_shape()}"
            )
        return placement_of(encoding, extents)

    def _whole(self, extents: tuple[int, ...]) -> Placement:
        return placement_of(Encoding.replicated(self.mesh, len(extents)), extents)

    def _stored(self, parts: Sequence[Array], value_type: Attribute) -> Distributed:
        """The parts rounded to their type. Parts that are one object stay one object."""
        element = _tensor(value_type).element_type
        rounded: dict[int, Array] = {}
        for part in parts:
            if id(part) not in rounded:
                rounded[id(part)] = store(part, element, self.mode)
        stored = tuple(rounded[id(part)] for part in parts)
        return poisoned(Distributed(stored, self.placement(value_type)))

    # Layers

    def run_layer(
        self,
        layer_name: str,
        inputs: Sequence[Array],
        parameters: Mapping[str, Array],
        states: Mapping[str, Array],
    ) -> LayerRun:
        """Runs a layer on whole tensors, which are cut by the types of the module, and puts its
        results and all states together again. Raises ``ExecutionError``."""
        func = SymbolTable.lookup_symbol(self.module, layer_name)
        if not isinstance(func, FuncOp):
            raise ExecutionError(f"no layer @{layer_name} in the module")
        try:
            if "kernel.arguments" in func.attributes:
                return self._run_planned(func, inputs, parameters, states)
            return self._run_values(func, inputs, parameters, states)
        except SemanticsError as error:
            raise ExecutionError(f"@{layer_name}: {error}") from error

    def _run_values(
        self,
        func: FuncOp,
        inputs: Sequence[Array],
        parameters: Mapping[str, Array],
        states: Mapping[str, Array],
    ) -> LayerRun:
        run = _Run(parameters, self._cut_states(states))
        arguments = func.body.block.args
        if len(arguments) != len(inputs):
            raise SemanticsError(f"takes {len(arguments)} inputs, got {len(inputs)}")
        for argument, array in zip(arguments, inputs, strict=True):
            run.values[argument] = self._cut(array, argument.type)
        results = self._run_block(func.body.block, run)
        outputs = tuple(assemble(value) for value in results)
        return LayerRun(outputs, {name: assemble(value) for name, value in run.states.items()})

    def run_block_on(self, block: Block, values: Sequence[Distributed]) -> list[Distributed]:
        """Runs a block that uses no parameter and no state on what the devices hold of its
        arguments, and gives what it returns. Raises ``ExecutionError``."""
        run = _Run({}, {}, values=dict(zip(block.args, values, strict=True)))
        return list(self._run_block(block, run))

    def _cut(self, array: Array, value_type: Attribute) -> Distributed:
        element = _tensor(value_type).element_type
        return distribute(store(array, element, self.mode), self.placement(value_type))

    def _cut_states(self, states: Mapping[str, Array]) -> dict[str, Distributed]:
        return {
            op.sym_name.data: self._cut(states[op.sym_name.data], op.type)
            for op in self.module.body.block.ops
            if isinstance(op, nn.StateOp)
        }

    # Planned memory

    def _run_planned(
        self,
        func: FuncOp,
        inputs: Sequence[Array],
        parameters: Mapping[str, Array],
        states: Mapping[str, Array],
    ) -> LayerRun:
        buffers = {
            op.sym_name.data: op for op in self.module.body.block.ops if isinstance(op, BufferOp)
        }
        memory = PlannedMemory({name: _extent(op) for name, op in buffers.items()})
        lasting: list[str] = []
        for name, op in buffers.items():
            source = {"weight": parameters, "state": states}.get(op.role.data)
            if source is not None:
                memory.write(name, self._cut(source[name], op.type))
                lasting.append(name)
        arguments, results = _names(func, "kernel.arguments"), _names(func, "kernel.results")
        if len(arguments) != len(inputs):
            raise SemanticsError(f"takes {len(arguments)} inputs, got {len(inputs)}")
        for name, array in zip(arguments, inputs, strict=True):
            memory.write(name, self._cut(array, buffers[name].type))
        run = _Run(parameters, {}, memory)
        self._run_block(func.body.block, run)
        memory.require_intact(lasting)
        outputs = tuple(assemble(memory.read(name)) for name in results)
        kept = [name for name, op in buffers.items() if op.role.data == "state"]
        return LayerRun(outputs, {name: assemble(memory.read(name)) for name in kept})

    # Operations

    def _run_block(self, block: Block, run: _Run) -> tuple[Distributed, ...]:
        """Runs a block and returns what its terminator passes on."""
        for op in block.ops:
            if isinstance(op, ReturnOp | YieldOp):
                return tuple(run.value(operand) for operand in op.operands)
            try:
                self._run_op(op, run)
            except SemanticsError as error:
                raise ExecutionError(str(error), op) from error
        raise SemanticsError("a block does not end with a return")

    def _run_op(self, op: Operation, run: _Run) -> None:
        match op:
            case nn.ReadOp():
                name = op.parameter.string_value()
                run.values[op.result] = self._cut(run.parameters[name], op.result.type)
            case nn.AppendOp():
                self._run_append(op, run)
            case kernel.LaunchOp():
                self._run_launch(op, run)
            case sharding.ReshardOp():
                sources = [run.value(operand) for operand in op.inputs]
                targets = [self.placement(result.type) for result in op.outputs]
                for result, moved in zip(op.outputs, reshard(sources, targets), strict=True):
                    self._define(result, moved.parts, run)
            case collective.CollectiveOp():
                sources = [run.value(operand) for operand in op.inputs]
                targets = [self.placement(result.type) for result in op.outputs]
                parts = run_collective(op, self.mesh, sources, targets)
                for result, held in zip(op.outputs, parts, strict=True):
                    self._define(result, held, run)
            case _ if op.name in MEANINGS:
                self._run_nn(op, run)
            case _:
                raise SemanticsError("the lockstep interpreter does not know this operation")

    def _define(self, result: SSAValue, parts: Sequence[Array], run: _Run) -> None:
        value = self._stored(parts, result.type)
        check_replicas(value)
        run.values[result] = value

    def _run_nn(self, op: Operation, run: _Run) -> None:
        operands = self._operands(op, run)
        # Devices with the same operands compute the same bits: they are computed once.
        computed: dict[tuple[tuple[BlockKey, int], ...], tuple[Shard, ...]] = {}
        shards: list[tuple[Shard, ...]] = []
        for device in range(self.mesh.size):
            key = tuple(
                (value.placement.blocks[device], value.placement.contributions[device])
                for value in operands
            )
            if key not in computed:
                computed[key] = results_of(op, [value.shard(device) for value in operands])
            shards.append(computed[key])
        for result, held in zip(op.results, zip(*shards, strict=True), strict=True):
            check_declared(held, self.placement(result.type))
            self._define(result, [shard.values for shard in held], run)

    def _operands(self, op: Operation, run: _Run) -> list[Distributed]:
        values = [run.value(operand) for operand in op.operands]
        if any(sharding.spec_of(result.type) is not None for result in op.results):
            return values
        return [reshard((value,), (self._whole(value.placement.extents),))[0] for value in values]

    def _run_append(self, op: nn.AppendOp, run: _Run) -> None:
        name = op.state.string_value()
        current = run.states.get(name) if run.memory is None else run.memory.read(name)
        if current is None:
            raise SemanticsError(f"no state @{name} in the module")
        new = reshard_if_whole(run.value(op.input), op.input.type, current)
        parts = [
            appended(op, current.shard(device), new.shard(device))
            for device in range(self.mesh.size)
        ]
        result = self._stored(parts, op.result.type)
        if sharding.spec_of(op.result.type) is not None:
            check_declared([current.shard(d) for d in range(self.mesh.size)], result.placement)
            run.values[op.result] = result
        else:
            after = Distributed(result.parts, current.placement)
            run.values[op.result] = distribute(assemble(after), result.placement)
        check_replicas(Distributed(result.parts, current.placement))
        if run.memory is None:
            run.states[name] = Distributed(result.parts, current.placement)

    def _run_launch(self, op: kernel.LaunchOp, run: _Run) -> None:
        memory = run.memory if op.uses_buffers else None
        if op.uses_buffers and memory is None:
            raise SemanticsError("a launch over buffers runs in a function without planned memory")
        if memory is None:
            operands = [run.value(operand) for operand in op.operands]
        else:
            operands = [memory.read(name) for name in op.read_names]
        inner = _Run(run.parameters, run.states, run.memory)
        for argument, operand in zip(op.block.args, operands, strict=True):
            if operand.placement != self.placement(argument.type):
                raise SemanticsError(f"@{op.sym_name.data} takes a value of another encoding")
            inner.values[argument] = operand
        yielded = self._run_block(op.block, inner)
        if memory is None:
            for result, value in zip(op.results, yielded, strict=True):
                run.values[result] = value
            return
        scratch = (*op.workspace_names, *op.staging_names)
        memory.require_disjoint(
            (*op.written_names, *scratch), (*op.read_names, *op.written_names, *scratch)
        )
        for name in scratch:
            memory.scribble(name)
        for name, value in zip(op.written_names, yielded, strict=True):
            memory.write(name, value)


def reshard_if_whole(value: Distributed, value_type: Attribute, state: Distributed) -> Distributed:
    """New keys or values for a cache: a value without an encoding is cut to the heads and batches
    that the cache's shards hold."""
    if sharding.spec_of(value_type) is not None:
        return value
    head_dim = state.placement.extents[3]
    encoding = state.placement.encoding
    heads = encoding.dims[1]
    of_columns = heads.map.of_blocks(head_dim, encoding.ranks(1), state.placement.extents[1])
    features = DimSharding(heads.axes, of_columns)
    cut = Encoding(encoding.mesh, (encoding.dims[0], value.placement.encoding.dims[1], features))
    batch, query, width = value.placement.extents
    if width != state.placement.extents[1] * head_dim:
        raise SemanticsError("the new tokens do not fill the heads of the cache")
    return reshard((value,), (placement_of(cut, (batch, query, width)),))[0]


def _tensor(value_type: Attribute) -> TensorType[Attribute]:
    if not isinstance(value_type, TensorType):
        raise SemanticsError(f"{value_type} is not a tensor type")
    return cast("TensorType[Attribute]", value_type)


def _extent(op: BufferOp) -> Extent:
    return Extent(op.sym_name.data, op.address.value.data, op.bytes.value.data)


def _names(func: FuncOp, attribute: str) -> tuple[str, ...]:
    found = cast("ArrayAttr[SymbolRefAttr]", func.attributes[attribute])
    return tuple(symbol.string_value() for symbol in found)
