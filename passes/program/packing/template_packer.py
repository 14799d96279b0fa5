"""Packs the body of one kernel."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.builtin import (
    IntegerAttr,
)
from xdsl.ir import Block, Operation, SSAValue

from starc.backend.assembly import ProgramAssembler
from starc.backend.expressions import FormatError
from starc.backend.program import TileSpace
from starc.backend.template import DEVICE, WORKGROUP, TemplateAssembler, Tile
from starc.core.quasi_affine import expressions as qa
from starc.core.quasi_affine.expressions import Expression
from starc.core.quasi_affine.simplification import substitute
from starc.dialects import isa
from starc.dialects.element_types import element_type
from starc.dialects.isa_instructions import index_environment
from starc.dialects.locations import location_of


class Names:
    """Indices of what instructions and launches name."""

    def __init__(self) -> None:
        self.buffers: dict[str, int] = {}
        self.counters: dict[str, int] = {}
        self.templates: dict[str, int] = {}
        self.classes: dict[str, str] = {}
        self.launches: dict[str, int] = {}


def integer(value: IntegerAttr | None, default: int) -> int:
    """The value of an attribute, if it is there."""
    return default if value is None else value.value.data


def place_of(op: Operation) -> tuple[str, int, int] | None:
    """File, line and column of an operation."""
    location = location_of(op)
    return None if location is None else (location.file, location.line, location.column)


class TemplatePacker:
    """The rows of one kernel. Raises ``FormatError`` for what programs do not have."""

    def __init__(self, program: ProgramAssembler, names: Names, kernel: isa.KernelOp) -> None:
        self.program = program
        self.names = names
        self.template: TemplateAssembler = program.template(kernel.sym_name.data)
        self.indices: dict[SSAValue, Expression] = {
            kernel.device: DEVICE,
            kernel.workgroup: WORKGROUP,
        }
        if kernel.axes and len(kernel.axes) != len(program.mesh):
            raise FormatError(
                f"kernel {kernel.sym_name.data} has {len(kernel.axes)} mesh coordinates; the mesh "
                f"has {len(program.mesh)} axes"
            )
        for argument, (axis, _) in zip(kernel.axes, program.mesh, strict=False):
            self.indices[argument] = qa.Var(axis)
        self.tiles: dict[SSAValue, Tile] = {}
        self.semaphores: dict[SSAValue, int] = {}

    def kernel(self, kernel: isa.KernelOp) -> None:
        """The whole body: in order, or stream after stream in the order of the engines."""
        if not kernel.streams:
            self.block(kernel.body.block)
            return
        for op in kernel.body.block.ops:
            if not isinstance(op, isa.StreamOp):
                self.instruction(op, 0)
        streams = {isa.ENGINES[stream.engine.data]: stream for stream in kernel.streams}
        for engine, stream in sorted(streams.items()):
            with self.template.stream(engine):
                self.block(stream.body.block)

    def expression(self, op: Operation, attribute: isa.ExpressionAttr) -> Expression:
        names = {name: self.indices[value] for name, value in index_environment(op).items()}
        return substitute(attribute.data, names)

    def expressions(
        self, op: Operation, attributes: Iterable[isa.ExpressionAttr]
    ) -> list[Expression]:
        return [self.expression(op, attribute) for attribute in attributes]

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.template.location = self.program.location(place_of(op))
            self.instruction(op, isa.stage_of(op))

    def instruction(self, op: Operation, stage: int) -> None:
        match op:
            case isa.AllocOp() | isa.IndexOp() | isa.SemaphoreOp():
                self.declare(op)
            case isa.MemoryOp():
                self.memory(op, stage)
            case isa.GatherOp():
                self.gather(op, stage)
            case isa.MatrixOp() | isa.VectorOp():
                self.compute(op, stage)
            case isa.CompositeOp() | isa.ScopeOp() | isa.LoopOp() | isa.IfOp():
                self.region(op, stage)
            case _:
                self.synchronise(op, stage)

    def declare(self, op: isa.AllocOp | isa.IndexOp | isa.SemaphoreOp) -> None:
        """Notes what other instructions name; it takes no record."""
        match op:
            case isa.AllocOp():
                self.tiles[op.tile] = self.template.tile(
                    op.type.rows,
                    op.type.columns,
                    element_type(op.type.element_type),
                    slots=op.slots.value.data,
                    space=TileSpace.REGISTER if op.space.data == "register" else TileSpace.SCRATCH,
                    depth=integer(op.turns, self.template.depth),
                    offset=None if op.offset is None else op.offset.value.data,
                )
            case isa.IndexOp():
                self.indices[op.result] = self.expression(op, op.value)
            case isa.SemaphoreOp():
                self.semaphores[op.semaphore] = self.template.semaphore(op.initial.value.data)

    def gather(self, op: isa.GatherOp, stage: int) -> None:
        tile = self.tiles[op.tile]
        self.template.load(
            tile,
            self.names.buffers[op.buffer.string_value()],
            (0, self.expression(op, op.column)),
            (tile.rows, tile.cols),
            stage=stage,
            gather=self.tiles[op.rows],
            gather_base=self.expression(op, op.base),
        )

    def compute(self, op: isa.MatrixOp | isa.VectorOp, stage: int) -> None:
        tiles = [self.tiles[tile] for tile in op.tiles]
        if isinstance(op, isa.VectorOp):
            parameters = self.expressions(op, op.parameters)
            self.template.vector(op.function.data, tiles, parameters, stage=stage)
            return
        accumulator, a, b = tiles
        self.template.matrix(
            accumulator,
            a,
            b,
            transpose_b=op.transpose_b is not None,
            columns=None if op.columns is None else self.expression(op, op.columns),
            inner=None if op.inner is None else self.expression(op, op.inner),
            stage=stage,
        )

    def region(self, op: isa.CompositeOp | isa.ScopeOp | isa.LoopOp | isa.IfOp, stage: int) -> None:
        match op:
            case isa.CompositeOp() | isa.ScopeOp():
                # One stream executes the bodies in line.
                self.block(op.body.block)
                return
            case isa.LoopOp():
                lower, upper = self.expression(op, op.lower), self.expression(op, op.upper)
                self.indices[op.counter] = self.template.begin_loop(lower, upper, stage=stage)
            case isa.IfOp():
                self.template.begin_if(self.expression(op, op.condition), stage=stage)
        self.block(op.body.block)
        self.template.end()

    def synchronise(self, op: Operation, stage: int) -> None:
        """What joins streams, and sleep."""
        template = self.template
        match op:
            case isa.SignalOp():
                template.signal(
                    self.names.counters[op.counter.string_value()],
                    self.expression(op, op.element),
                    self.expression(op, op.value),
                    peer=None if op.peer is None else self.expression(op, op.peer),
                    attached=op.attached is not None,
                    stage=stage,
                )
            case isa.WaitOp():
                counter = self.names.counters[op.counter.string_value()]
                element, value = self.expression(op, op.element), self.expression(op, op.value)
                template.wait(counter, element, value, stage=stage)
            case isa.DelayOp():
                template.delay(op.picoseconds.value.data, stage=stage)
            case isa.AcquireOp():
                template.acquire(self.semaphores[op.semaphore], stage=stage)
            case isa.ReleaseOp():
                tile = None if op.tile is None else self.tiles[op.tile]
                template.release(self.semaphores[op.semaphore], tile, stage=stage)
            case _:
                raise FormatError(f"{op.name} cannot be packed")

    def memory(self, op: isa.MemoryOp, stage: int) -> None:
        tile = self.tiles[op.tile]
        buffer = self.names.buffers[op.buffer.string_value()]
        starts = self.expressions(op, op.starts)
        peer = None if op.peer is None else self.expression(op, op.peer)
        match op:
            case isa.LoadOp():
                self.template.load(
                    tile,
                    buffer,
                    starts,
                    op.box,
                    stage=stage,
                    acquire=op.acquire is not None,
                    multicast=op.sharing,
                )
            case isa.StoreOp():
                self.template.store(tile, buffer, starts, op.box, stage=stage)
            case isa.PutOp() if peer is not None:
                adds = op.accumulate is not None
                self.template.put(tile, buffer, starts, peer, op.box, stage=stage, accumulate=adds)
            case isa.GetOp() if peer is not None:
                cached = op.cached is not None
                self.template.get(tile, buffer, starts, peer, op.box, stage=stage, cached=cached)
            case _:
                raise FormatError(f"{op.name} cannot be packed")
