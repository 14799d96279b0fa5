"""Kernels as ``stream_order`` and ``happens_before`` of ``starc.core.streams`` see them, for
``verify-schedule``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, SSAValue

from starc.core.quasi_affine import expressions as qa
from starc.core.quasi_affine.expressions import Expression
from starc.core.quasi_affine.simplification import substitute
from starc.core.streams.skeleton import Skeleton
from starc.core.streams.stream_balance import Problem
from starc.core.streams.stream_order import TooLong, check
from starc.core.streams.stream_template import (
    Acquire,
    Branch,
    Integers,
    Loop,
    Node,
    Release,
    Semaphore,
    Signal,
    StreamTemplate,
    Tile,
    Use,
    Wait,
    roles,
)
from starc.diagnostics import Diagnostic, InputError
from starc.dialects import isa
from starc.dialects.isa import tiles_read, tiles_written
from starc.dialects.isa_instructions import index_environment
from starc.dialects.kernel_buffers import BufferOp
from starc.dialects.locations import location_of
from starc.dialects.symbols import named
from starc.passes.isa.pipeline_loops import MEMORY, tile_bytes

Mesh = Sequence[tuple[str, int]]


def stream_problems(kernel: isa.KernelOp, mesh: Mesh, workgroups: int) -> list[Problem]:
    """What is wrong with the streams of a kernel on any device, each instruction's fault once.
    Raises ``TooLong`` where they cannot be checked."""
    template = stream_template(kernel, mesh)
    coordinates = _coordinates(mesh, workgroups)
    try:
        rows = roles(template, coordinates)
    except OverflowError:
        text = f"the devices of {template.name} differ in more ways than can be checked"
        raise TooLong(text) from None
    found: dict[tuple[str, object], Problem] = {}
    for row in rows:
        for problem in check(template, {name: int(v[row]) for name, v in coordinates.items()}):
            found.setdefault((problem.kind, problem.origin), problem)
    return list(found.values())


def _coordinates(mesh: Mesh, workgroups: int) -> dict[str, Integers]:
    """The coordinates of every workgroup of every device."""
    devices = np.arange(prod(size for _, size in mesh), dtype=np.int64)
    device = np.repeat(devices, workgroups)
    values = {"device": device, "wg": np.tile(np.arange(workgroups, dtype=np.int64), len(devices))}
    rest = device
    for axis, size in reversed(mesh):
        values[axis] = rest % size
        rest = rest // size
    return values


def stream_template(kernel: isa.KernelOp, mesh: Mesh) -> StreamTemplate:
    """The plain form of a kernel that has streams."""
    return _Converter(kernel, mesh).template()


def skeleton(kernel: isa.KernelOp, mesh: Mesh) -> Skeleton:
    """The signals and waits of a kernel, of one stream or several. Raises ``InputError`` where it
    takes other coordinates than the mesh has."""
    if kernel.axes and len(kernel.axes) != len(mesh):
        raise InputError(
            Diagnostic(
                f"kernel {kernel.sym_name.data} has {len(kernel.axes)} mesh coordinates; the mesh "
                f"has {len(mesh)} axes",
                location_of(kernel),
            )
        )
    if kernel.streams:
        template = stream_template(kernel, mesh)
        return Skeleton(kernel.sym_name.data, (), template.streams, template.semaphores)
    return Skeleton(kernel.sym_name.data, _Converter(kernel, mesh).single())


def _name(value: SSAValue, otherwise: str) -> str:
    return value.name_hint or otherwise


class _Converter:
    def __init__(self, kernel: isa.KernelOp, mesh: Mesh) -> None:
        self.kernel = kernel
        self.tiles: dict[SSAValue, int] = {}
        self.semaphores: dict[SSAValue, int] = {}
        self.indices: dict[SSAValue, Expression] = {
            kernel.device: qa.Var("device"),
            kernel.workgroup: qa.Var("wg"),
        }
        for argument, (axis, _) in zip(kernel.axes, mesh, strict=False):
            self.indices[argument] = qa.Var(axis)

    def template(self) -> StreamTemplate:
        tiles: list[Tile] = []
        semaphores: list[Semaphore] = []
        streams: list[tuple[str, tuple[Node, ...]]] = []
        for op in self.kernel.body.block.ops:
            match op:
                case isa.AllocOp():
                    self.tiles[op.tile] = len(tiles)
                    tiles.append(_tile(op, len(tiles)))
                case isa.SemaphoreOp():
                    self.semaphores[op.semaphore] = len(semaphores)
                    name = _name(op.semaphore, f"semaphore {len(semaphores)}")
                    semaphores.append(Semaphore(name, op.initial.value.data))
                case isa.IndexOp():
                    self.indices[op.result] = self._value(op, op.value)
                case isa.StreamOp():
                    streams.append((op.engine.data, self._body(op.body.block, 0)))
                case _:
                    pass
        name = f"@{self.kernel.sym_name.data}"
        return StreamTemplate(name, tuple(tiles), tuple(semaphores), tuple(streams))

    def single(self) -> tuple[Node, ...]:
        """The only stream, without what does not synchronise."""
        return self._body(self.kernel.body.block, 0)

    def _body(self, block: Block, depth: int) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for op in block.ops:
            stage = isa.stage_of(op)
            match op:
                case isa.IndexOp():
                    self.indices[op.result] = self._value(op, op.value)
                case isa.LoopOp():
                    counter = qa.Var(f"counter{depth}")
                    lower, upper = self._value(op, op.lower), self._value(op, op.upper)
                    self.indices[op.counter] = counter
                    body = self._body(op.body.block, depth + 1)
                    nodes.append(Loop(counter.name, lower, upper, body, stage))
                case isa.IfOp():
                    condition = self._value(op, op.condition)
                    nodes.append(Branch(condition, self._body(op.body.block, depth), stage))
                case isa.SignalOp():
                    peer = None if op.peer is None else self._value(op, op.peer)
                    counter, element, value = self._counter(op)
                    nodes.append(Signal(counter, element, value, peer, stage))
                case isa.WaitOp():
                    nodes.append(Wait(*self._counter(op), stage, _place(op), op))
                case isa.CompositeOp() | isa.ScopeOp():
                    nodes += self._body(op.body.block, depth)
                case isa.AcquireOp():
                    index = self.semaphores[op.semaphore]
                    nodes.append(Acquire(index, _place(op), op, stage))
                case isa.ReleaseOp():
                    index = self.semaphores[op.semaphore]
                    tile = None if op.tile is None else self.tiles[op.tile]
                    nodes.append(Release(index, tile, _place(op), op, stage))
                case _ if self.kernel.streams:
                    reads = tuple(self.tiles[tile] for tile in dict.fromkeys(tiles_read(op)))
                    writes = tuple(self.tiles[tile] for tile in dict.fromkeys(tiles_written(op)))
                    if reads or writes:
                        in_flight = isinstance(op, MEMORY)
                        text, place = _text(op), _place(op)
                        use = Use(
                            text, reads, writes, in_flight, _is_received(op), place, op, stage
                        )
                        nodes.append(use)
                case _:
                    pass
        return tuple(nodes)

    def _counter(self, op: isa.SignalOp | isa.WaitOp) -> tuple[str, Expression, Expression]:
        name = op.counter.string_value()
        return name, self._value(op, op.element), self._value(op, op.value)

    def _value(self, op: Operation, attribute: isa.ExpressionAttr) -> Expression:
        names: Mapping[str, Expression] = {
            name: self.indices[value] for name, value in index_environment(op).items()
        }
        return substitute(attribute.data, names)


def _tile(op: isa.AllocOp, index: int) -> Tile:
    return Tile(
        _name(op.tile, f"tile {index}"),
        tile_bytes(op.type),
        op.slots.value.data,
        _integer(op.turns) or 0,
        _integer(op.offset),
    )


def _is_received(op: Operation) -> bool:
    """Whether an instruction reads what other devices put into memory of this one. Scratch memory
    that the kernel itself stores to is no queue."""
    if not isinstance(op, isa.LoadOp):
        return False
    if op.acquire is not None:
        return True
    buffer = named(op, op.buffer)
    if not isinstance(buffer, BufferOp) or buffer.memory is None:
        return False
    return not any(
        isinstance(other, isa.StoreOp) and other.buffer == op.buffer
        for other in _kernel_of(op).walk()
    )


def _kernel_of(op: Operation) -> Operation:
    """The kernel around an instruction."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, isa.KernelOp):
        parent = parent.parent_op()
    return op if parent is None else parent


def _integer(value: IntegerAttr | None) -> int | None:
    return None if value is None else value.value.data


def _place(op: Operation) -> str:
    place = location_of(op)
    return "" if place is None else str(place)


def _text(op: Operation) -> str:
    """What messages call an instruction."""
    match op:
        case isa.VectorOp():
            return f'{op.name} "{op.function.data}"'
        case isa.MemoryOp() | isa.GatherOp():
            return f"{op.name} @{op.buffer.string_value()}"
        case _:
            return op.name
