"""Packs a module at the isa level into a program.

``pack`` is the last step of the pipeline; it is a function and not a pass, because its result is
not a module. Every instruction becomes one record, equal expressions become one node, locations of
the source become rows of a table. Nothing is decided here: what the module does not say (costs of
launches, windows, the granule of accesses) comes from the target.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from starc.backend.assembly import PAGE_BYTES, ProgramAssembler
from starc.backend.program import BufferMemory, Program, Role, Space, TileSpace
from starc.backend.schedule import schedule_problems
from starc.backend.template import DEVICE, WORKGROUP, FormatError, TemplateAssembler, Tile
from starc.backend.validation import problems
from starc.core.quasi_affine import expressions as qa
from starc.core.quasi_affine.expressions import Expression
from starc.core.quasi_affine.simplification import substitute
from starc.core.sharding.mesh import Mesh
from starc.diagnostics import Diagnostic, InputError
from starc.dialects import isa
from starc.dialects.element_types import element_type
from starc.dialects.isa_instructions import index_environment
from starc.dialects.kernel_buffers import BufferOp, logical_extents
from starc.dialects.locations import location_of
from starc.dialects.nn import StackOp
from starc.dialects.sharding import MeshOp
from starc.targets.target import Target


def plain_value(attribute: Attribute) -> Any:
    """An attribute as a plain value (number, string, list, dictionary) for reports."""
    match attribute:
        case IntegerAttr():
            return attribute.value.data
        case FloatAttr():
            return attribute.value.data
        case StringAttr():
            return attribute.data
        case SymbolRefAttr():
            return attribute.string_value()
        case ArrayAttr():
            return [plain_value(item) for item in attribute]
        case DictionaryAttr():
            return {key: plain_value(value) for key, value in attribute.data.items()}
        case UnitAttr():
            return True
        case _:
            return str(attribute)


def _integer(value: IntegerAttr | None, default: int) -> int:
    return default if value is None else value.value.data


def _place(op: Operation) -> tuple[str, int, int] | None:
    location = location_of(op)
    return None if location is None else (location.file, location.line, location.column)


class _TemplatePacker:
    """Packs the body of one kernel."""

    def __init__(self, program: ProgramAssembler, names: _Names, kernel: isa.KernelOp) -> None:
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
            self.template.location = self.program.location(_place(op))
            self.instruction(op, isa.stage_of(op))

    def instruction(self, op: Operation, stage: int) -> None:
        template = self.template
        match op:
            case isa.AllocOp():
                self.tiles[op.tile] = template.tile(
                    op.type.rows,
                    op.type.columns,
                    element_type(op.type.element_type),
                    slots=op.slots.value.data,
                    space=TileSpace.REGISTER if op.space.data == "register" else TileSpace.SCRATCH,
                    depth=_integer(op.turns, template.depth),
                    offset=None if op.offset is None else op.offset.value.data,
                )
            case isa.IndexOp():
                self.indices[op.result] = self.expression(op, op.value)
            case isa.LoadOp() | isa.StoreOp() | isa.PutOp() | isa.GetOp():
                self.memory(op, stage)
            case isa.GatherOp():
                tile = self.tiles[op.tile]
                template.load(
                    tile,
                    self.names.buffers[op.buffer.string_value()],
                    (0, self.expression(op, op.column)),
                    (tile.rows, tile.cols),
                    stage=stage,
                    gather=self.tiles[op.rows],
                    gather_base=self.expression(op, op.base),
                )
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
                template.wait(
                    self.names.counters[op.counter.string_value()],
                    self.expression(op, op.element),
                    self.expression(op, op.value),
                    stage=stage,
                )
            case isa.MatrixOp():
                accumulator, a, b = (self.tiles[value] for value in op.tiles)
                template.matrix(
                    accumulator,
                    a,
                    b,
                    transpose_b=op.transpose_b is not None,
                    columns=None if op.columns is None else self.expression(op, op.columns),
                    inner=None if op.inner is None else self.expression(op, op.inner),
                    stage=stage,
                )
            case isa.VectorOp():
                template.vector(
                    op.function.data,
                    [self.tiles[tile] for tile in op.tiles],
                    self.expressions(op, op.parameters),
                    stage=stage,
                )
            case isa.DelayOp():
                template.delay(op.picoseconds.value.data, stage=stage)
            case isa.SemaphoreOp():
                self.semaphores[op.semaphore] = template.semaphore(op.initial.value.data)
            case isa.AcquireOp():
                template.acquire(self.semaphores[op.semaphore], stage=stage)
            case isa.ReleaseOp():
                tile = None if op.tile is None else self.tiles[op.tile]
                template.release(self.semaphores[op.semaphore], tile, stage=stage)
            case isa.CompositeOp() | isa.ScopeOp():
                # One stream executes the bodies in line.
                self.block(op.body.block)
            case isa.LoopOp():
                counter = template.begin_loop(
                    self.expression(op, op.lower), self.expression(op, op.upper), stage=stage
                )
                self.indices[op.counter] = counter
                self.block(op.body.block)
                template.end()
            case isa.IfOp():
                template.begin_if(self.expression(op, op.condition), stage=stage)
                self.block(op.body.block)
                template.end()
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


class _Names:
    """Indices of what instructions and launches name."""

    def __init__(self) -> None:
        self.buffers: dict[str, int] = {}
        self.counters: dict[str, int] = {}
        self.templates: dict[str, int] = {}
        self.classes: dict[str, str] = {}
        self.launches: dict[str, int] = {}


def pack(module: ModuleOp, target: Target) -> Program:
    """The program of a module at the isa level, for ``target``.

    Raises ``InputError`` naming every kernel that does not fit the format, and where the schedule
    of the rows deadlocks (``verify-schedule`` has asked the module the same).
    """
    mesh = next((op.mesh for op in module.ops if isinstance(op, MeshOp)), None)
    axes = (
        tuple((axis.name, axis.size) for axis in mesh.axes)
        if mesh is not None
        else tuple((row[0], row[1]) for row in target.mesh)
    )
    model = module.attributes.get("nn.model")
    title = model.data if isinstance(model, StringAttr) else "program"
    program = ProgramAssembler(title, target.to_dict(), axes)
    names = _Names()
    _pack_buffers(module, program, names, mesh)
    diagnostics: list[Diagnostic] = []
    for kernel in module.ops:
        if not isinstance(kernel, isa.KernelOp):
            continue
        try:
            _pack_kernel(kernel, program, names, target)
        except FormatError as error:
            name = kernel.sym_name.data
            text = str(error) if name in str(error) else f"kernel {name}: {error}"
            diagnostics.append(Diagnostic(text, location_of(kernel)))
    if diagnostics:
        raise InputError(diagnostics)
    _pack_layers(module, program, names, target)
    packed = program.finish()
    broken = problems(packed)
    if broken:
        raise RuntimeError(f"packing gave an inconsistent program: {broken[0]}")
    diagnostics = [found for found in schedule_problems(packed) if found.severity == "error"]
    if diagnostics:
        raise InputError(diagnostics)
    return packed


def _pack_buffers(
    module: ModuleOp, program: ProgramAssembler, names: _Names, mesh: Mesh | None
) -> None:
    end = PAGE_BYTES
    for op in module.ops:
        if isinstance(op, BufferOp):
            buffer = op.sym_name.data
            names.buffers[buffer] = program.buffer(
                buffer,
                op.shape,
                element_type(op.type.element_type),
                block=op.layout.extents,
                space=Space[op.space.data.upper()],
                role=Role[op.role.data.upper()],
                memory=BufferMemory[op.memory.data.upper()] if op.memory else BufferMemory.HBM,
                address=op.address.value.data,
                size=op.bytes.value.data,
                type_text=str(op.type),
                extents=None if mesh is None else logical_extents(op.type, mesh),
            )
            if op.memory is None or op.memory.data == "hbm":
                end = max(end, op.address.value.data + op.bytes.value.data)
    for op in module.ops:
        if isinstance(op, isa.CounterOp):
            # Counters lie behind all buffers, one cache line each.
            end = -(-end // PAGE_BYTES) * PAGE_BYTES
            count = op.count.value.data
            names.counters[op.sym_name.data] = program.counter(op.sym_name.data, count, address=end)
            end += 64 * count


def _pack_kernel(
    kernel: isa.KernelOp, program: ProgramAssembler, names: _Names, target: Target
) -> None:
    packer = _TemplatePacker(program, names, kernel)
    packer.kernel(kernel)
    template = packer.template
    names.templates[kernel.sym_name.data] = program.add(
        template,
        waves=kernel.waves.value.data,
        window_bytes=_integer(kernel.window_bytes, target.window_bytes_per_cu),
        piece_bytes=_integer(kernel.piece_bytes, target.interleave_granule),
        scratch_bytes=_integer(kernel.scratch_bytes, template.scratch_bytes),
        register_bytes=_integer(kernel.register_bytes, template.register_bytes),
    )
    names.classes[kernel.sym_name.data] = kernel.kernel_class.data


def _pack_layers(
    module: ModuleOp, program: ProgramAssembler, names: _Names, target: Target
) -> None:
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    stack = next((op for op in module.ops if isinstance(op, StackOp)), None)
    entries = stack.entries if stack is not None else tuple((layer, 1) for layer in functions)
    # A kind that occurs several times in the stack is packed once, with the sum of its counts.
    counts: dict[str, int] = {}
    for layer, count in entries:
        counts[layer] = counts.get(layer, 0) + count
    for layer, count in counts.items():
        program.layer(layer, count)
        for op in functions[layer].walk():
            if isinstance(op, isa.LaunchOp):
                _pack_launch(op, program, names, target)
    layers = [functions[layer] for layer, _ in entries]
    arguments, results = _symbols(layers[0], "arguments"), _symbols(layers[-1], "results")
    program.inputs = arguments or program.inputs
    program.outputs = results or program.outputs


def _symbols(function: FuncOp, kind: str) -> list[str]:
    found = function.attributes.get(f"kernel.{kind}")
    return [] if found is None else plain_value(found)


def _pack_launch(
    op: isa.LaunchOp, program: ProgramAssembler, names: _Names, target: Target
) -> None:
    kernel_class = names.classes[op.parts[0][0]]
    depends = op.attributes.get("depends")
    names.launches[op.label.data] = program.launch(
        op.label.data,
        [(names.templates[kernel], grid) for kernel, grid in op.parts],
        kind=kernel_class if op.kind is None else op.kind.data,
        kernel_class=kernel_class,
        queue=isa.QUEUES.index(op.queue.data),
        gap_ps=target.kernel_gap_ps,
        prologue_ps=target.prologue_ps[kernel_class],
        depends=names.launches[depends.data] if isinstance(depends, StringAttr) else -1,
        bands=_integer(op.bands, 1),
        engines=op.engines is not None,
        location=program.location(_place(op)),
        attributes=plain_value(op.info) if op.info is not None else {},
    )
