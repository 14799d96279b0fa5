"""The packed program on whole tensors: buffers are cut by the types that the program carries.

A program runs as a stack: every kind of layer once, in order, each on what the one before it left.
``run_stack`` gives the same for a module of whole tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp, TensorType
from xdsl.ir import Attribute
from xdsl.parser import Parser

from starc.backend.functional import MAX_INSTRUCTIONS, FunctionalError, FunctionalMachine
from starc.backend.program import BufferInfo, Program, Role
from starc.core.sharding.encoding import Axis, Encoding, Mesh
from starc.dialects.sharding import Sharding, encoding_of, global_shape
from starc.interpreter.element_types import Array, Mode, store
from starc.interpreter.global_semantics import LayerRun, run_layer
from starc.interpreter.local_semantics import SemanticsError
from starc.interpreter.seeded_data import ModelData, layers_of
from starc.interpreter.spmd import ExecutionError
from starc.interpreter.values import (
    Distributed,
    Placement,
    assemble,
    check_replicas,
    distribute,
    placement_of,
    poison,
)


def run_stack(module: ModuleOp, data: ModelData, mode: Mode) -> LayerRun:
    """Runs every kind of layer of a module of whole tensors once, in order. A layer takes the
    results of the one before it, the first one the test data."""
    names = [func.sym_name.data for func in layers_of(module)]
    states: Mapping[str, Array] = data.states
    values = data.inputs[names[0]]
    for name in names:
        run = run_layer(module, name, values, data.parameters, states, mode)
        values, states = run.outputs, run.states
    return LayerRun(values, dict(states))


def run_program(
    program: Program, data: ModelData, mode: Mode, limit: int = MAX_INSTRUCTIONS
) -> LayerRun:
    """Executes the rows of a program on test data and puts its results and states together.

    Raises ``ExecutionError`` if the program cannot be executed, if replicas differ in their bits,
    or if it executes more than ``limit`` instructions.
    """
    buffers = ProgramBuffers(program, mode)
    sources = dict(buffers.sources(data))
    inputs = [
        {name: parts[device] for name, parts in sources.items()}
        for device in range(buffers.mesh.size)
    ]
    try:
        machine = FunctionalMachine(program, inputs, mode=mode, limit=limit)
        machine.run()
        outputs = tuple(buffers.whole(machine, name) for name in program.outputs)
        states = {
            info.name: buffers.whole(machine, info.name)
            for info in program.buffers
            if info.role is Role.STATE
        }
    except (FunctionalError, SemanticsError) as error:
        raise ExecutionError(str(error)) from error
    except (ValueError, IndexError, KeyError) as error:
        # Rows that do not fit together: shapes of tiles, indices of buffers and tiles.
        raise ExecutionError(f"the rows cannot be executed: {error}") from error
    return LayerRun(outputs, states)


class ProgramBuffers:
    """The buffers of a program as parts of whole tensors."""

    def __init__(self, program: Program, mode: Mode) -> None:
        self.program = program
        self.mode: Mode = mode
        self.mesh = Mesh("node", tuple(Axis(name, size) for name, size in program.mesh))
        self.infos = {info.name: info for info in program.buffers}
        self._context = Context()
        self._context.load_dialect(Builtin)
        self._context.load_dialect(Sharding)

    def tensor_type(self, info: BufferInfo) -> TensorType[Attribute]:
        """The local type of a buffer, with its encoding."""
        found = Parser(self._context, info.type_text).parse_type()
        if not isinstance(found, TensorType):
            raise ExecutionError(f"buffer @{info.name} is of type {info.type_text}")
        return cast("TensorType[Attribute]", found)

    def placement(self, info: BufferInfo) -> Placement:
        """Which part of a whole tensor the buffer holds on every device."""
        type = self.tensor_type(info)
        encoding = encoding_of(type, self.mesh)
        if encoding is None:
            encoding = Encoding.replicated(self.mesh, len(type.get_shape()))
        return placement_of(encoding, global_shape(type))

    def sources(self, data: ModelData) -> Iterator[tuple[str, list[Array]]]:
        """Names of the buffers that are filled before a run, and their contents per device."""
        first = self.program.layers[0].name
        given = dict(zip(self.program.inputs, data.inputs[first], strict=True))
        for info in self.program.buffers:
            if info.role is Role.WEIGHT:
                yield info.name, self.parts(info, data.parameters[info.name])
            elif info.role is Role.STATE:
                yield info.name, self.parts(info, data.states[info.name])
            elif info.name in given:
                yield info.name, self.parts(info, given[info.name])

    def parts(self, info: BufferInfo, values: Array) -> list[Array]:
        """A whole tensor cut for every device, in the buffer's physical shape; what the device
        does not hold is poisoned."""
        element = self.tensor_type(info).element_type
        cut = distribute(store(values, element, self.mode), self.placement(info))
        return [padded(part, info.shape) for part in cut.parts]

    def whole(self, machine: FunctionalMachine, name: str) -> Array:
        """The tensor that the devices hold together; replicas must have the same bits."""
        info = self.infos[name]
        placement = self.placement(info)
        parts = tuple(
            machine.buffer(device, name)[tuple(slice(extent) for extent in shape)]
            for device, shape in enumerate(placement.shapes)
        )
        value = Distributed(parts, placement)
        try:
            check_replicas(value)
            return assemble(value)
        except SemanticsError as error:
            raise SemanticsError(f"@{name}: {error}") from error


def padded(part: Array, shape: tuple[int, ...]) -> Array:
    """A device's part in the physical shape of its buffer; the rest is poisoned."""
    if part.shape == shape:
        return part
    padded = np.full(shape, poison(part.dtype), dtype=part.dtype)
    padded[tuple(slice(extent) for extent in part.shape)] = part
    return padded
