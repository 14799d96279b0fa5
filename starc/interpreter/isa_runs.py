"""Modules of instruction streams on whole tensors, by the concurrent interpreter.

Buffers are cut by the types that they keep, every layer runs on its own inputs, and what its
results and the states hold is put together again.
"""

from __future__ import annotations

from typing import cast

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp

from starc.core.sharding.encoding import Encoding
from starc.dialects import sharding
from starc.dialects.kernel_buffers import BufferOp
from starc.interpreter.concurrent import ConcurrentMachine, ScheduleError
from starc.interpreter.element_types import Array, Mode, store
from starc.interpreter.global_semantics import LayerRun
from starc.interpreter.local_semantics import SemanticsError
from starc.interpreter.program_runs import padded
from starc.interpreter.seeded_data import ModelData, layers_of
from starc.interpreter.spmd import ExecutionError
from starc.interpreter.values import (
    Distributed,
    Placement,
    assemble,
    check_replicas,
    distribute,
    placement_of,
)


def run_streams(
    module: ModuleOp, data: ModelData, mode: Mode, seed: int = 0
) -> dict[str, LayerRun]:
    """Runs every layer of a module at the isa level. ``seed`` chooses the interleaving.

    Raises ``ExecutionError`` for a race, a deadlock, a use of what nobody wrote and replicas that
    differ in their bits.
    """
    runs: dict[str, LayerRun] = {}
    for func in layers_of(module):
        name = func.sym_name.data
        try:
            runs[name] = _LayerStreams(module, func, mode).run(data, seed)
        except (ScheduleError, SemanticsError) as error:
            raise ExecutionError(f"@{name}: {error}") from error
        except (ValueError, IndexError, KeyError) as error:
            # Instructions that do not fit together: shapes of tiles, names of buffers.
            raise ExecutionError(f"@{name} cannot be executed: {error}") from error
    return runs


class _LayerStreams:
    """One layer of a module with the buffers of all devices."""

    def __init__(self, module: ModuleOp, func: FuncOp, mode: Mode) -> None:
        self.module = module
        self.func = func
        self.mode: Mode = mode
        self.mesh = sharding.mesh_of(module)
        self.buffers = {
            op.sym_name.data: op for op in module.body.block.ops if isinstance(op, BufferOp)
        }

    def run(self, data: ModelData, seed: int) -> LayerRun:
        contents: dict[tuple[int, str], Array] = {}
        arguments = self._symbols("kernel.arguments")
        given = dict(zip(arguments, data.inputs[self.func.sym_name.data], strict=True))
        for name, op in self.buffers.items():
            source = {"weight": data.parameters, "state": data.states}.get(op.role.data, given)
            if name in source:
                contents.update(self._cut(op, source[name]))
        machine = ConcurrentMachine(self.module, contents, seed=seed, mode=self.mode)
        machine.run([self.func.sym_name.data])
        held = machine.contents()
        outputs = tuple(self._whole(held, name) for name in self._symbols("kernel.results"))
        kept = [name for name, op in self.buffers.items() if op.role.data == "state"]
        return LayerRun(outputs, {name: self._whole(held, name) for name in kept})

    def _symbols(self, attribute: str) -> tuple[str, ...]:
        found = cast("ArrayAttr[SymbolRefAttr]", self.func.attributes[attribute])
        return tuple(symbol.string_value() for symbol in found)

    def _placement(self, op: BufferOp) -> Placement:
        encoding = sharding.encoding_of(op.type, self.mesh)
        if encoding is None:
            encoding = Encoding.replicated(self.mesh, len(op.shape))
        return placement_of(encoding, sharding.global_shape(op.type))

    def _cut(self, op: BufferOp, values: Array) -> dict[tuple[int, str], Array]:
        cut = distribute(store(values, op.type.element_type, self.mode), self._placement(op))
        return {
            (device, op.sym_name.data): padded(part, op.shape)
            for device, part in enumerate(cut.parts)
        }

    def _whole(self, held: dict[tuple[int, str], Array], name: str) -> Array:
        placement = self._placement(self.buffers[name])
        parts: list[Array] = []
        for device, shape in enumerate(placement.shapes):
            if (device, name) not in held:
                raise SemanticsError(f"device {device} holds nothing in @{name} at the end")
            parts.append(held[device, name][tuple(slice(extent) for extent in shape)])
        value = Distributed(tuple(parts), placement)
        try:
            check_replicas(value)
            return assemble(value)
        except SemanticsError as error:
            raise SemanticsError(f"@{name}: {error}") from error
