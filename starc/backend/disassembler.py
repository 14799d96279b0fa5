"""A program as text, from the same rows that are executed and simulated.

    program tiny for mi300x-cpx, mesh gpu=2 x xcd=4
    buffers
      0x0000001000  @x  bf16 64x64  row_major  private input  8192 B
    kernel @copy: 4 waves, 8192 B scratch, window 16384 B
      tiles
        t0  bf16 32x64 x3 slots of loop 1 at 0x0
      loop counter0 = 0 to 8
          load t0 <- @x[wg * 256 + counter0 * 32, 0] extents 32x64
       2  store @y[wg * 256 + counter0 * 32, 0] extents 32x64 <- t0
    layer @copy * 1
      launch copy: @copy x 4 workgroups

The number before an instruction is its stage in a pipelined loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from starc.backend.program import (
    FLAG_ACCUMULATE,
    FLAG_ACQUIRE,
    FLAG_ATTACHED,
    FLAG_CACHED,
    FLAG_GATHER,
    FLAG_TRANSPOSE_B,
    BufferInfo,
    LayoutKind,
    Opcode,
    Program,
    Rows,
    TemplateInfo,
    TileSpace,
)
from starc.backend.rows import ProgramReader
from starc.core.element_types import ElementType
from starc.core.extents import LogicalExtents
from starc.core.quasi_affine import expressions as qa
from starc.core.vector_functions.function import OPERAND_FIELDS, real_value
from starc.core.vector_functions.table import FUNCTIONS


def element_name(dtype: int) -> str:
    """``bf16``, ``f32``, ... as the IR spells it."""
    return ElementType(dtype).format.name


def disassemble(program: Program) -> str:
    """The whole program as text, ending in a newline."""
    return "\n".join(_lines(program)) + "\n"


def _lines(program: Program) -> Iterator[str]:
    reader = ProgramReader(program)
    mesh = " x ".join(f"{axis}={size}" for axis, size in program.mesh)
    target = program.target.get("name")
    yield f"program {program.name}{f' for {target}' if target else ''}, mesh {mesh}"
    yield "buffers"
    for buffer in program.buffers:
        yield f"  {_buffer(buffer)}"
    if program.counters:
        yield "counters"
        for counter in program.counters:
            yield f"  0x{counter.address:010x}  @{counter.name} x {counter.count}"
    for template in program.templates:
        yield from _template(reader, template)
    for layer in program.layers:
        yield f"layer @{layer.name} * {layer.count}"
        for launch in range(layer.first_launch, layer.first_launch + layer.launches):
            yield f"  {_launch(reader, launch)}"


def _shape(extents: tuple[int, ...] | list[int]) -> str:
    return "x".join(map(str, extents))


def _buffer(buffer: BufferInfo) -> str:
    layout = (
        "row_major" if buffer.layout is LayoutKind.ROW_MAJOR else f"blocked {_shape(buffer.block)}"
    )
    return (
        f"0x{buffer.address:010x}  @{buffer.name}  {element_name(buffer.dtype)} "
        f"{_shape(buffer.shape)}  {layout}  {buffer.space.name.lower()} "
        f"{buffer.role.name.lower()}  {buffer.bytes} B"
        f"{'  in scratch' if buffer.memory else ''}{_extents(buffer.extents)}"
    )


def _extents(extents: LogicalExtents | None) -> str:
    """What the devices hold where it is not all: equal neighbours once, with their number."""
    if extents is None:
        return ""
    held = [
        f"{_shape(shape)}" + (f" x {count}" if (count := len(list(group))) > 1 else "")
        for shape, group in groupby(extents.shapes)
    ]
    turned = extents.rotation
    if turned is None:
        return f"  held {', '.join(held)}"
    return (
        f"  held {', '.join(held)}, of dim {turned.dim} positions p with "
        f"((p + {turned.offset}) floordiv {turned.block} + row of dim {turned.by}) mod "
        f"{turned.ranks} = rank"
    )


def _template(reader: ProgramReader, template: TemplateInfo) -> Iterator[str]:
    yield (
        f"kernel @{template.name}: {template.waves} waves, {template.scratch_bytes} B scratch, "
        f"{template.register_bytes} B registers, window {template.window_bytes} B, "
        f"pieces of {template.piece_bytes} B"
    )
    if template.tiles:
        yield "  tiles"
    for i, tile in enumerate(reader.tiles(template)):
        slots = f" x{tile['slots']} slots" if tile["slots"] > 1 else ""
        loop = f" of loop {tile['depth']}" if tile["depth"] else ""
        place = (
            "in registers" if tile["space"] == TileSpace.REGISTER else f"at 0x{tile['offset']:x}"
        )
        shape = f"{element_name(tile['dtype'])} {tile['rows']}x{tile['cols']}"
        yield f"    t{i}  {shape}{slots}{loop} {place}"
    if template.semaphores:
        yield "  semaphores"
        yield from (f"    s{i}  starts at {value}" for i, value in enumerate(template.semaphores))
    records = reader.records(template)
    if not template.streams:
        yield from _body(reader, records)
    for stream in template.streams:
        yield f"  {stream.engine.name.lower()}"
        last = stream.first_record + stream.records
        yield from _body(reader, records[stream.first_record : last])


def _body(reader: ProgramReader, records: Rows) -> Iterator[str]:
    level, file = 0, ""
    for record in records:
        op = Opcode(int(record["op"]))
        if op in (Opcode.END_LOOP, Opcode.END_IF):
            level -= 1
            continue
        text = instruction(reader, record)
        stage = f"{record['stage']:>2}" if record["stage"] else "  "
        place = ""
        if record["location"] >= 0:
            name, line, column = reader.program.locations[int(record["location"])]
            place = f"  ; {'' if name == file else name}:{line}:{column}"
            file = name
        yield f"  {stage}{'  ' * level}  {text}{place}"
        if op in (Opcode.LOOP, Opcode.IF):
            level += 1


def instruction(reader: ProgramReader, record: Rows) -> str:
    """One record as text."""
    op = Opcode(int(record["op"]))
    expression = reader.expression
    match op:
        case Opcode.LOAD | Opcode.GET | Opcode.STORE | Opcode.PUT:
            return _memory(reader, record, op)
        case Opcode.SIGNAL:
            counter = reader.program.counters[record["buffer"]].name
            peer = "" if record["peer"] < 0 else f" of device {expression(record, 'peer')}"
            return (
                f"signal @{counter}[{expression(record, 'e0')}]{peer} "
                f"add {expression(record, 'e1')}"
                f"{' attached' if record['flags'] & FLAG_ATTACHED else ''}"
            )
        case Opcode.WAIT:
            counter = reader.program.counters[record["buffer"]].name
            return f"wait @{counter}[{expression(record, 'e0')}] until {expression(record, 'e1')}"
        case Opcode.MATRIX:
            transposed = "^T" if record["flags"] & FLAG_TRANSPOSE_B else ""
            mnk = f"{record['n0']}x{record['n1']}x{record['n2']}"
            windows = ["", ""]
            for i, field in enumerate(("e0", "e1")):
                if record[field] >= 0:
                    windows[i] = f"[{expression(record, field)}]"
            return (
                f"matrix {mnk} t{record['dst']}{windows[0]} += t{record['a']}{windows[1]} * "
                f"t{record['b']}{transposed}"
            )
        case Opcode.VECTOR:
            return _vector(reader, record)
        case Opcode.DELAY:
            return f"delay {record['work']} ps"
        case Opcode.LOOP:
            counter = f"counter{record['depth']}"
            lower, upper = expression(record, "e0"), expression(record, "e1")
            return f"loop {counter} = {lower} to {upper}"
        case Opcode.IF:
            return f"if {expression(record, 'e0')} >= 0"
        case Opcode.END_LOOP | Opcode.END_IF:
            return "end"
        case Opcode.ACQUIRE:
            return f"acquire s{record['buffer']}"
        case Opcode.RELEASE:
            after = "" if record["a"] < 0 else f" after t{record['a']}"
            return f"release s{record['buffer']}{after}"


def _memory(reader: ProgramReader, record: Rows, op: Opcode) -> str:
    dims = int(record["dims"])
    starts = ", ".join(str(reader.expression(record, f"e{i}")) for i in range(dims))
    extents = _shape([int(record[f"n{i}"]) for i in range(dims)])
    buffer = reader.program.buffers[record["buffer"]].name
    peer = "" if record["peer"] < 0 else f" of device {reader.expression(record, 'peer')}"
    box = f"@{buffer}[{starts}] extents {extents}{peer}"
    name = op.name.lower()
    if op in (Opcode.STORE, Opcode.PUT):
        adds = " accumulate" if op == Opcode.PUT and record["flags"] & FLAG_ACCUMULATE else ""
        return f"{name}{adds} {box} <- t{record['a']}"
    acquire = " acquire" if record["flags"] & FLAG_ACQUIRE else ""
    acquire += " cached" if record["flags"] & FLAG_CACHED else ""
    acquire += f" multicast {record['work']}" if record["work"] > 1 else ""
    gather = ""
    if record["flags"] & FLAG_GATHER:
        gather = f" rows t{record['a']} - ({reader.expression(record, 'e4')})"
    return f"{name}{acquire} t{record['dst']} <- {box}{gather}"


def _vector(reader: ProgramReader, record: Rows) -> str:
    function = FUNCTIONS[int(record["fn"])]
    tiles = ", ".join(
        f"{field}=t{record[field]}"
        for field, _ in zip(OPERAND_FIELDS, function.operands, strict=False)
    )
    parameters: list[str] = []
    for i, parameter in enumerate(function.parameters):
        value = reader.expression(record, f"e{i}")
        if parameter.kind == "real" and isinstance(value, qa.Const):
            parameters.append(f"{parameter.name}={real_value(value.value):g}")
        else:
            parameters.append(f"{parameter.name}={value}")
    return f"{function.name} {tiles}{'; ' if parameters else ''}{', '.join(parameters)}"


def _launch(reader: ProgramReader, launch: int) -> str:
    program, row = reader.program, reader.program.launches[launch]
    parts = " + ".join(
        f"@{program.templates[template].name} x {workgroups} workgroups"
        for template, workgroups in reader.parts(launch)
    )
    turns = "" if row["bands"] == 1 else f" in {row['bands']} bands"
    queue = " on copy engines" if row["engines"] else ""
    queue += "" if row["queue"] == 0 else f" on queue {row['queue']}"
    after = "" if row["depends"] < 0 else f" after {program.launch_names[row['depends']]}"
    waits = ", waits inside" if row["waits"] else ""
    return f"launch {program.launch_names[launch]}: {parts}{turns}{queue}{after}{waits}"
