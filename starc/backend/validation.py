"""Consistency of a program: every index in its rows names something that exists.

Who executes rows without bounds checks (the event core) and who reads files relies on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from starc.backend.program import (
    FLAG_ACCUMULATE,
    FLAG_GATHER,
    MAX_DEPTH,
    MAX_DIMS,
    MAX_RECORDS,
    MAX_STREAM_RECORDS,
    BufferMemory,
    Engine,
    ExprOp,
    Opcode,
    Program,
    Rows,
    Space,
    TemplateInfo,
    Var,
)
from starc.backend.rows import ENGINE_OPCODES, STREAM_OPCODES
from starc.core.vector_functions.function import OPERAND_FIELDS
from starc.core.vector_functions.table import FUNCTIONS

MEMORY = (Opcode.LOAD, Opcode.STORE, Opcode.PUT, Opcode.GET)
_OPCODES = frozenset(map(int, Opcode))


def problems(program: Program) -> list[str]:
    """What is wrong with the program, in words; empty if nothing is."""
    return [
        *_buffers(program),
        *_expressions(program),
        *_launches(program),
        *_engines(program),
        *(text for template in program.templates for text in _template(program, template)),
    ]


def _buffers(program: Program) -> Iterator[str]:
    devices = prod(size for _, size in program.mesh)
    for buffer in program.buffers:
        if buffer.extents is not None:
            for text in buffer.extents.problems(buffer.shape, devices):
                yield f"buffer {buffer.name}: {text}"
        if buffer.memory is BufferMemory.SCRATCH and buffer.space is not Space.SYMMETRIC:
            yield f"buffer {buffer.name} lies in scratch and is not symmetric"
    # Peers write there at any time, so no workgroup has tiles there.
    queues = [b.address for b in program.buffers if b.memory is BufferMemory.SCRATCH]
    for template in program.templates if queues else ():
        if template.scratch_bytes > min(queues):
            yield (
                f"{template.name}: its tiles reach byte {template.scratch_bytes} of the scratch, "
                f"into the buffers from {min(queues)} on"
            )


def _expressions(program: Program) -> Iterator[str]:
    rows = program.expressions
    if not len(rows):
        return
    op, left, right, immediate = rows["op"], rows["l"], rows["r"], rows["imm"]
    index = np.arange(len(rows))
    unary = np.isin(op, (ExprOp.MUL, ExprOp.FLOORDIV, ExprOp.MOD, ExprOp.TABLE))
    binary = np.isin(op, (ExprOp.ADD, ExprOp.MIN, ExprOp.MAX))
    known = unary | binary | np.isin(op, (ExprOp.CONST, ExprOp.VAR))
    bad = ~known
    bad |= (unary | binary) & ((left < 0) | (left >= index))
    bad |= binary & ((right < 0) | (right >= index))
    bad |= np.isin(op, (ExprOp.FLOORDIV, ExprOp.MOD)) & (immediate <= 0)
    bad |= (op == ExprOp.VAR) & ((immediate < 0) | (immediate > Var.AXIS3))
    bad |= (op == ExprOp.TABLE) & ((immediate < 0) | (immediate >= len(program.tables)))
    for i in np.flatnonzero(bad):
        yield f"expression node {i} is malformed"


def _launches(program: Program) -> Iterator[str]:
    count = len(program.launches)
    for texts in (program.launch_names, program.launch_kinds, program.launch_attributes):
        if len(texts) != count:
            yield "launches and their descriptions differ in number"
    for i, launch in enumerate(program.launches):
        first, parts = int(launch["first_part"]), int(launch["parts"])
        if first < 0 or parts < 1 or first + parts > len(program.parts):
            yield f"launch {i} has parts that do not exist"
            continue
        rows = program.parts[first : first + parts]
        if int(rows["workgroups"].sum()) != launch["workgroups"] or (rows["workgroups"] < 1).any():
            yield f"launch {i} and its parts differ in workgroups"
        bands = int(launch["bands"])
        if bands < 1 or (rows["workgroups"] % max(1, bands)).any():
            yield f"launch {i} has a part that {bands} bands do not divide"
        if ((rows["template"] < 0) | (rows["template"] >= len(program.templates))).any():
            yield f"launch {i} names a template that does not exist"
        if not 0 <= launch["kernel_class"] < len(program.kernel_classes):
            yield f"launch {i} has an unknown kernel class"
        if not -1 <= launch["depends"] < i:
            yield f"launch {i} depends on a launch that is not before it"
        if launch["engines"] not in (0, 1):
            yield f"launch {i} runs neither on compute units nor on copy engines"
    for layer in program.layers:
        if layer.first_launch < 0 or layer.first_launch + layer.launches > count:
            yield f"layer {layer.name} has launches that do not exist"


def _engines(program: Program) -> Iterator[str]:
    """What copy engines are asked for that they cannot do."""
    if len(program.launches) == 0 or not (program.launches["engines"] == 1).any():
        return
    templates: dict[int, set[int]] = {}
    for launch in program.launches:
        first = int(launch["first_part"])
        for template in program.parts["template"][first : first + int(launch["parts"])]:
            templates.setdefault(int(template), set()).add(int(launch["engines"]))
    for number, units in sorted(templates.items()):
        if 1 not in units or not 0 <= number < len(program.templates):
            continue
        info = program.templates[number]
        if len(units) > 1:
            yield f"{info.name} runs on compute units and on copy engines"
        for i in range(info.records):
            record = program.records[info.first_record + i]
            op = int(record["op"])
            adds = op == Opcode.PUT and record["flags"] & FLAG_ACCUMULATE
            gathers = op == Opcode.LOAD and record["flags"] & FLAG_GATHER
            if op in _OPCODES and (op not in ENGINE_OPCODES or adds or gathers):
                yield f"{info.name} record {i}: a copy engine moves data and computes nothing"


def _streams(program: Program, template: TemplateInfo) -> Iterator[str]:
    """The streams of a template cut its records, in the order of the engines; each holds whole
    loops and what its engine executes; one stream acquires a semaphore and one releases it."""
    if any(initial < 0 for initial in template.semaphores):
        yield "a semaphore starts below zero"
    position, engine = 0, -1
    users: dict[tuple[int, int], int] = {}
    for stream in template.streams:
        name = stream.engine.name.lower()
        if stream.first_record != position or stream.engine <= engine:
            yield f"the {name} stream is not in its place"
            return
        if not 0 <= stream.records <= MAX_STREAM_RECORDS:
            yield f"the {name} stream has {stream.records} records, not 0 to {MAX_STREAM_RECORDS}"
        position, engine = position + stream.records, int(stream.engine)
        depth = 0
        for i in range(stream.first_record, min(position, template.records)):
            record = program.records[template.first_record + i]
            op = int(record["op"])
            if op not in _OPCODES:
                continue
            legal = STREAM_OPCODES.get(Opcode(op))
            if legal is not None and stream.engine not in legal:
                yield f"record {i}: {Opcode(op).name} does not run on the {name} engine"
            depth += op in (Opcode.LOOP, Opcode.IF)
            depth -= op in (Opcode.END_LOOP, Opcode.END_IF)
            if depth < 0:
                break
            if op in (Opcode.ACQUIRE, Opcode.RELEASE):
                first = users.setdefault((int(record["buffer"]), op), int(stream.engine))
                if first != stream.engine:
                    yield f"record {i}: another stream has the semaphore, too"
                if record["a"] >= 0 and (op == Opcode.ACQUIRE or stream.engine != Engine.DMA):
                    yield f"record {i}: only the dma stream releases after a tile"
        if depth:
            yield f"the {name} stream cuts a loop or branch"
    if template.streams and position != template.records:
        yield "the streams do not hold all records"


def _template(program: Program, template: TemplateInfo) -> Iterator[str]:
    name, first, count = template.name, template.first_record, template.records
    limit = MAX_STREAM_RECORDS * len(Engine) if template.streams else MAX_RECORDS
    if count > limit or first < 0 or first + count > len(program.records):
        yield f"{name}: records {first}..{first + count} do not exist or are too many"
        return
    if template.first_tile < 0 or template.first_tile + template.tiles > len(program.tiles):
        yield f"{name}: tiles do not exist"
        return
    tiles = program.tiles[template.first_tile : template.first_tile + template.tiles]
    if (tiles["slots"] < 1).any() or (tiles["depth"] > MAX_DEPTH).any():
        yield f"{name}: a tile has no slot or too deep a loop"
    yield from (f"{name}: {text}" for text in _streams(program, template))
    open_records: list[int] = []
    for i, record in enumerate(program.records[first : first + count]):
        yield from (f"{name} record {i}: {text}" for text in _record(program, template, record))
        op = record["op"]
        if op in (Opcode.LOOP, Opcode.IF):
            open_records.append(i)
            if not i < record["end"] < count:
                yield f"{name} record {i}: its end does not exist"
        elif op in (Opcode.END_LOOP, Opcode.END_IF):
            begin = open_records.pop() if open_records else -1
            if begin < 0 or program.records[first + begin]["end"] != i:
                yield f"{name} record {i}: an end without its begin"
    if open_records:
        yield f"{name}: a loop or branch without an end"


def _memory_operand(program: Program, record: Rows) -> Iterator[str]:
    op = int(record["op"])
    dims, buffer = int(record["dims"]), int(record["buffer"])
    if not 0 <= buffer < len(program.buffers) or not 0 < dims <= MAX_DIMS:
        yield "the memory operand does not exist"
    elif dims != len(program.buffers[buffer].shape):
        yield "the memory operand has another rank than its buffer"
    if record["dst" if op in (Opcode.LOAD, Opcode.GET) else "a"] < 0:
        yield "the tile is missing"
    if op in (Opcode.PUT, Opcode.GET) and record["peer"] < 0:
        yield "the device is missing"
    if record["flags"] & FLAG_GATHER and (record["a"] < 0 or record["e4"] < 0 or dims != 2):
        yield "a gather needs a tile of rows, a base and two dimensions"


def _record(program: Program, template: TemplateInfo, record: Rows) -> Iterator[str]:
    op = int(record["op"])
    if op not in _OPCODES:
        yield f"unknown opcode {op}"
        return
    roots = [int(record[f"e{i}"]) for i in range(8)] + [int(record["peer"])]
    if any(not -1 <= root < len(program.expressions) for root in roots):
        yield "an expression does not exist"
    if any(not -1 <= int(record[field]) < template.tiles for field in OPERAND_FIELDS):
        yield "a tile does not exist"
    if record["depth"] > MAX_DEPTH:
        yield "loops nest too deep"
    needed: list[int] = []
    if op in MEMORY:
        needed = roots[: int(record["dims"])]
        yield from _memory_operand(program, record)
    elif op in (Opcode.SIGNAL, Opcode.WAIT):
        needed = roots[:2]
        if not 0 <= record["buffer"] < len(program.counters):
            yield "the counter does not exist"
    elif op in (Opcode.ACQUIRE, Opcode.RELEASE):
        if not template.streams:
            yield "a semaphore joins streams, and the template is one"
        if not 0 <= record["buffer"] < len(template.semaphores):
            yield "the semaphore does not exist"
    elif op == Opcode.LOOP:
        needed = roots[:2]
    elif op == Opcode.IF:
        needed = roots[:1]
    elif op == Opcode.VECTOR:
        if record["fn"] >= len(FUNCTIONS):
            yield f"unknown vector function {record['fn']}"
        else:
            function = FUNCTIONS[int(record["fn"])]
            needed = roots[: len(function.parameters)]
            if any(record[field] < 0 for field in OPERAND_FIELDS[: len(function.operands)]):
                yield f"{function.name} lacks a tile"
    elif op == Opcode.MATRIX and min(record["dst"], record["a"], record["b"]) < 0:
        yield "the matrix instruction lacks a tile"
    if any(root < 0 for root in needed):
        yield "an expression is missing"
