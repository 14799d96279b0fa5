"""Packs a module at the isa level into a program.

``pack`` is the last step of the pipeline; it is a function and not a pass, because its result is
not a module. Every instruction becomes one record, equal expressions become one node, locations of
the source become rows of a table. Nothing is decided here: what the module does not say (costs of
launches, windows, the granule of accesses) comes from the target.
"""

from __future__ import annotations

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
from xdsl.ir import Attribute

from starc.backend.assembly import PAGE_BYTES, ProgramAssembler
from starc.backend.expressions import FormatError
from starc.backend.program import BufferMemory, Program, Role, Space
from starc.backend.schedule import schedule_problems
from starc.backend.validation import problems
from starc.core.sharding.mesh import Mesh
from starc.diagnostics import Diagnostic, InputError
from starc.dialects import isa
from starc.dialects.element_types import element_type
from starc.dialects.kernel_buffers import BufferOp, logical_extents
from starc.dialects.locations import location_of
from starc.dialects.nn import StackOp
from starc.dialects.sharding import MeshOp
from starc.passes.program.packing.template_packer import Names, TemplatePacker, integer, place_of
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


def pack(module: ModuleOp, target: Target, *, schedule_is_checked: bool = False) -> Program:
    """The program of a module at the isa level, for ``target``.

    Raises ``InputError`` naming every kernel that does not fit the format, and where the schedule
    of the rows deadlocks. With ``schedule_is_checked`` they are not asked: ``verify-schedule`` has
    asked this very module the same, which takes as long as the rest of a compilation.
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
    names = Names()
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
    if not schedule_is_checked:
        diagnostics = [found for found in schedule_problems(packed) if found.severity == "error"]
        if diagnostics:
            raise InputError(diagnostics)
    return packed


def _pack_buffers(
    module: ModuleOp, program: ProgramAssembler, names: Names, mesh: Mesh | None
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
    kernel: isa.KernelOp, program: ProgramAssembler, names: Names, target: Target
) -> None:
    packer = TemplatePacker(program, names, kernel)
    packer.kernel(kernel)
    template = packer.template
    names.templates[kernel.sym_name.data] = program.add(
        template,
        waves=kernel.waves.value.data,
        window_bytes=integer(kernel.window_bytes, target.window_bytes_per_cu),
        piece_bytes=integer(kernel.piece_bytes, target.interleave_granule),
        scratch_bytes=integer(kernel.scratch_bytes, template.scratch_bytes),
        register_bytes=integer(kernel.register_bytes, template.register_bytes),
    )
    names.classes[kernel.sym_name.data] = kernel.kernel_class.data


def _pack_layers(module: ModuleOp, program: ProgramAssembler, names: Names, target: Target) -> None:
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


def _pack_launch(op: isa.LaunchOp, program: ProgramAssembler, names: Names, target: Target) -> None:
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
        bands=integer(op.bands, 1),
        engines=op.engines is not None,
        location=program.location(place_of(op)),
        attributes=plain_value(op.info) if op.info is not None else {},
    )
