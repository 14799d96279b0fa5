"""Kernels of the isa level decoded for execution: instructions with compiled expressions.

Read from the IR and not from packed rows, so that a mistake of packing shows as a difference
between the concurrent interpreter and the functional execution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.ir import Block, Operation, SSAValue

from starc.core.element_types import ElementType
from starc.core.quasi_affine import expressions as qa
from starc.core.quasi_affine.compilation import compiled
from starc.core.quasi_affine.expressions import Expression
from starc.core.quasi_affine.simplification import substitute
from starc.core.vector_functions.function import OPERAND_FIELDS, Function
from starc.dialects import isa
from starc.dialects.element_types import element_type
from starc.dialects.isa_instructions import index_environment
from starc.dialects.locations import location_of

Evaluator: TypeAlias = Callable[[Sequence[int]], int]


@dataclass(frozen=True)
class TileInfo:
    """A tile of a kernel: ``depth`` loops are around it, the innermost picks the slot."""

    name: str
    shape: tuple[int, int]
    element: ElementType
    slots: int
    depth: int
    offset: int | None
    slot_bytes: int


@dataclass(frozen=True)
class Memory:
    """A load, get, store or put; ``peer`` is None for this device."""

    kind: str
    text: str
    stage: int
    tile: int
    buffer: str
    starts: tuple[Evaluator, ...]
    extents: tuple[int, ...]
    peer: Evaluator | None
    rows: int | None = None
    base: Evaluator | None = None
    adds: bool = False

    @property
    def reads(self) -> bool:
        return self.kind in ("load", "get", "gather")


@dataclass(frozen=True)
class Matrix:
    text: str
    stage: int
    accumulator: int
    a: int
    b: int
    transposed: bool
    columns: Evaluator | None = None
    inner: Evaluator | None = None


@dataclass(frozen=True)
class Vector:
    text: str
    stage: int
    function: Function
    tiles: Mapping[str, int]
    parameters: tuple[Evaluator, ...]


@dataclass(frozen=True)
class Signal:
    text: str
    stage: int
    counter: str
    element: Evaluator
    value: Evaluator
    peer: Evaluator | None


@dataclass(frozen=True)
class Wait:
    text: str
    stage: int
    counter: str
    element: Evaluator
    value: Evaluator


@dataclass(frozen=True)
class Acquire:
    text: str
    stage: int
    semaphore: int


@dataclass(frozen=True)
class Release:
    """``tile``: when its transfers are complete; None for all that is before in the stream."""

    text: str
    stage: int
    semaphore: int
    tile: int | None


@dataclass(frozen=True)
class Delay:
    text: str
    stage: int


@dataclass(frozen=True)
class Loop:
    text: str
    stage: int
    depth: int
    variable: int
    lower: Evaluator
    upper: Evaluator
    body: tuple[Instruction, ...]


@dataclass(frozen=True)
class Branch:
    text: str
    stage: int
    condition: Evaluator
    body: tuple[Instruction, ...]


Instruction: TypeAlias = (
    Memory | Matrix | Vector | Signal | Wait | Acquire | Release | Delay | Loop | Branch
)


@dataclass(frozen=True)
class Kernel:
    """A decoded template. Index values live in a list: device, mesh axes, workgroup, counters.

    ``streams`` are the bodies of its engines by name, then ``body`` is empty; ``semaphores`` have a
    name and the value at which they start."""

    name: str
    body: tuple[Instruction, ...]
    tiles: tuple[TileInfo, ...]
    axes: int
    variables: int
    streams: tuple[tuple[str, tuple[Instruction, ...]], ...] = ()
    semaphores: tuple[tuple[str, int], ...] = ()

    @property
    def bodies(self) -> tuple[tuple[str, tuple[Instruction, ...]], ...]:
        """Every stream with the name of its engine, the only one without."""
        return self.streams or (("", self.body),)


def decode(kernel: isa.KernelOp) -> Kernel:
    """The instructions of a kernel."""
    return _Decoder(kernel).kernel()


class _Decoder:
    def __init__(self, op: isa.KernelOp) -> None:
        self.op = op
        self.names: list[str] = []
        self.indices: dict[SSAValue, Expression] = {}
        self.tiles: list[TileInfo] = []
        self.tile_index: dict[SSAValue, int] = {}
        self.semaphores: dict[SSAValue, tuple[str, int]] = {}
        self.streams: list[tuple[str, tuple[Instruction, ...]]] = []
        for value in (op.device, *op.axes, op.workgroup):
            self._variable(value)

    def kernel(self) -> Kernel:
        body = self._block(self.op.body.block, 0)
        return Kernel(
            self.op.sym_name.data,
            body,
            tuple(self.tiles),
            len(self.op.axes),
            len(self.names),
            tuple(self.streams),
            tuple(self.semaphores.values()),
        )

    def _variable(self, value: SSAValue) -> int:
        index = len(self.names)
        self.names.append(f"v{index}")
        self.indices[value] = qa.Var(self.names[-1])
        return index

    def _expression(self, op: Operation, attribute: isa.ExpressionAttr) -> Expression:
        names = {name: self.indices[value] for name, value in index_environment(op).items()}
        return substitute(attribute.data, names)

    def _compile(self, op: Operation, attribute: isa.ExpressionAttr) -> Evaluator:
        return compiled(self._expression(op, attribute), self.names)

    def _optional(self, op: Operation, attribute: isa.ExpressionAttr | None) -> Evaluator | None:
        return None if attribute is None else self._compile(op, attribute)

    def _text(self, op: Operation) -> str:
        place = location_of(op)
        name = f"{op.name} in @{self.op.sym_name.data}"
        return name if place is None else f"{name} ({place})"

    def _block(self, block: Block, depth: int) -> tuple[Instruction, ...]:
        found: list[Instruction] = []
        for op in block.ops:
            if isinstance(op, isa.CompositeOp | isa.ScopeOp):
                # One command, or one scope: it means what its body means in line.
                found.extend(self._block(op.body.block, depth))
            elif isinstance(op, isa.StreamOp):
                self.streams.append((op.engine.data, self._block(op.body.block, depth)))
            else:
                instruction = self._instruction(op, depth)
                found.extend(() if instruction is None else (instruction,))
        return tuple(found)

    def _instruction(self, op: Operation, depth: int) -> Instruction | None:
        """The instruction of an operation; None of one that only declares what others name."""
        match op:
            case isa.AllocOp():
                self._alloc(op, depth)
            case isa.IndexOp():
                self.indices[op.result] = self._expression(op, op.value)
            case isa.SemaphoreOp():
                hint = op.semaphore.name_hint
                name = f"%{hint}" if hint else f"semaphore {len(self.semaphores)}"
                self.semaphores[op.semaphore] = (name, op.initial.value.data)
            case isa.MemoryOp() | isa.GatherOp():
                return self._memory(op)
            case isa.MatrixOp() | isa.VectorOp():
                return self._compute(op)
            case isa.LoopOp() | isa.IfOp():
                return self._region(op, depth)
            case _:
                return self._synchronisation(op)
        return None

    def _memory(self, op: isa.MemoryOp | isa.GatherOp) -> Memory:
        text, stage, tile = self._text(op), isa.stage_of(op), self.tile_index[op.tile]
        buffer = op.buffer.string_value()
        if isinstance(op, isa.GatherOp):
            starts = (compiled(qa.Const(0), self.names), self._compile(op, op.column))
            shape = (op.tile_type.rows, op.tile_type.columns)
            rows, base = self.tile_index[op.rows], self._compile(op, op.base)
            return Memory("gather", text, stage, tile, buffer, starts, shape, None, rows, base)
        return Memory(
            op.name.removeprefix("isa."),
            text,
            stage,
            tile,
            buffer,
            tuple(self._compile(op, start) for start in op.starts),
            op.box,
            self._optional(op, op.peer),
            adds=isinstance(op, isa.PutOp) and op.accumulate is not None,
        )

    def _compute(self, op: isa.MatrixOp | isa.VectorOp) -> Matrix | Vector:
        text, stage = self._text(op), isa.stage_of(op)
        tiles = [self.tile_index[tile] for tile in op.tiles]
        if isinstance(op, isa.VectorOp):
            parameters = tuple(self._compile(op, p) for p in op.parameters)
            fields: dict[str, int] = dict(zip(OPERAND_FIELDS, tiles, strict=False))
            return Vector(text, stage, op.definition, fields, parameters)
        windows = (self._optional(op, op.columns), self._optional(op, op.inner))
        accumulator, a, b = tiles
        return Matrix(text, stage, accumulator, a, b, op.transpose_b is not None, *windows)

    def _region(self, op: isa.LoopOp | isa.IfOp, depth: int) -> Loop | Branch:
        text, stage = self._text(op), isa.stage_of(op)
        if isinstance(op, isa.IfOp):
            condition = self._compile(op, op.condition)
            return Branch(text, stage, condition, self._block(op.body.block, depth))
        lower, upper = self._compile(op, op.lower), self._compile(op, op.upper)
        variable = self._variable(op.counter)
        body = self._block(op.body.block, depth + 1)
        return Loop(text, stage, depth, variable, lower, upper, body)

    def _synchronisation(self, op: Operation) -> Signal | Wait | Acquire | Release | Delay:
        text, stage = self._text(op), isa.stage_of(op)
        match op:
            case isa.SignalOp() | isa.WaitOp():
                counter = op.counter.string_value()
                element, value = self._compile(op, op.element), self._compile(op, op.value)
                if isinstance(op, isa.WaitOp):
                    return Wait(text, stage, counter, element, value)
                peer = self._optional(op, op.peer)
                return Signal(text, stage, counter, element, value, peer)
            case isa.AcquireOp():
                return Acquire(text, stage, self._semaphore(op.semaphore))
            case isa.ReleaseOp():
                tile = None if op.tile is None else self.tile_index[op.tile]
                return Release(text, stage, self._semaphore(op.semaphore), tile)
            case isa.DelayOp():
                return Delay(text, stage)
            case _:
                raise NotImplementedError(f"{op.name} has no meaning at the isa level")

    def _semaphore(self, value: SSAValue) -> int:
        return list(self.semaphores).index(value)

    def _alloc(self, op: isa.AllocOp, depth: int) -> None:
        element = element_type(op.type.element_type)
        name = f"%{op.tile.name_hint}" if op.tile.name_hint else f"tile {len(self.tiles)}"
        scratch = op.space.data == "scratch"
        self.tile_index[op.tile] = len(self.tiles)
        self.tiles.append(
            TileInfo(
                name,
                (op.type.rows, op.type.columns),
                element,
                op.slots.value.data,
                depth if op.turns is None else op.turns.value.data,
                op.offset.value.data if scratch and op.offset is not None else None,
                op.type.rows * op.type.columns * element.bytes,
            )
        )
