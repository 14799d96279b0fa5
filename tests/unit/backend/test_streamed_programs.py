"""Streamed templates as rows: packing, text, files, and what validation refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from starc.backend.assembly import ProgramAssembler
from starc.backend.disassembler import disassemble
from starc.backend.expressions import FormatError
from starc.backend.files import from_bytes, to_bytes
from starc.backend.program import BufferMemory, Engine, Opcode, Program, Role, Space, StreamInfo
from starc.backend.validation import problems
from starc.core.element_types import ElementType
from starc.diagnostics import InputError
from starc.passes.program.pack import pack
from starc.targets.loader import load_target
from tests.unit.interpreter.isa_modules import parse
from tests.unit.interpreter.stream_modules import exchange_streams, scores_in_line, scores_streams

TARGET = load_target("mi300x-cpx", gpus=1)


@pytest.fixture(scope="module")
def scores() -> Program:
    return pack(parse(scores_streams()), TARGET)


def test_streams_follow_in_the_order_of_the_engines(scores: Program):
    text = scores_streams()
    begin, end = text.index('  isa.stream "cpu"'), text.index('  isa.stream "dma"')
    last = text.index("}\nfunc.func")
    moved = text[:begin] + text[end:last] + text[begin:end] + text[last:]
    assert to_bytes(pack(parse(moved), TARGET)) == to_bytes(scores)
    (template,) = scores.templates
    assert [stream.engine for stream in template.streams] == [
        Engine.CPU,
        Engine.DMA,
        Engine.GEMM,
        Engine.MATH,
    ]
    assert template.semaphores == (0, 0, 2, 0, 2, 0, 0, 0)
    assert sum(stream.records for stream in template.streams) == template.records


def test_commands_and_scopes_are_in_line_for_one_stream():
    plain = pack(parse(scores_in_line(composites=False)), TARGET)
    commands = pack(parse(scores_in_line()), TARGET)
    assert commands.templates[0].streams == ()
    names = [name for name in plain.records.dtype.names or () if name != "location"]
    assert (plain.records[names] == commands.records[names]).all()


def test_the_stage_of_a_branch_and_of_a_command_is_that_of_its_records():
    text = (
        scores_in_line(composites=False)
        .replace(
            "isa.store %s, @y[0, %t * 8] :",
            "isa.if [%t] attributes {stage = 1 : i64} {\nisa.store %s, @y[0, %t * 8] :",
        )
        .replace("!isa.tile<2x8xf32>\n    \n  }\n}", "!isa.tile<2x8xf32>\n}\n  }\n}")
    )
    program = pack(parse(text), TARGET)
    ops = program.records["op"].tolist()
    assert program.records["stage"][ops.index(Opcode.IF)] == 1
    assert program.records["stage"][ops.index(Opcode.STORE)] == 1
    assert program.records["stage"][ops.index(Opcode.MATRIX)] == 0


def test_text(scores: Program):
    text = disassemble(scores)
    for line in (
        "    t2  bf16 4x8 x2 slots of loop 3 at 0xc0",
        "    s4  starts at 2",
        "  dma\n      load t0 <- @q[0, 0] extents 2x16\n      release s0 after t0",
        "            matrix 2x4x8 t1[counter1 * 4] += t0[counter2 * 8] * t2^T",
        "  math\n      loop counter0 = 0 to 4\n        acquire s1",
    ):
        assert line in text
    queue = disassemble(pack(parse(exchange_streams()), TARGET))
    assert "@queue  f32 2x8  row_major  symmetric communication  64 B  in scratch" in queue


def test_files_keep_streams_and_refuse_the_version_before(scores: Program):
    for program in (scores, pack(parse(exchange_streams()), TARGET)):
        data = to_bytes(program)
        read = from_bytes(data)
        assert read.templates == program.templates
        assert read.buffers == program.buffers
        assert to_bytes(read) == data
    old = bytearray(to_bytes(scores))
    old[8:12] = (4).to_bytes(4, "little")
    with pytest.raises(InputError, match="program file of version 4; this starc reads version 5"):
        from_bytes(bytes(old))


def test_buffers_in_scratch_overlap_no_others():
    program = pack(parse(exchange_streams()), TARGET)
    queue = next(buffer for buffer in program.buffers if buffer.name == "queue")
    assert queue.memory is BufferMemory.SCRATCH
    assert queue.address == 1024
    # Counters lie behind the buffers of the memory.
    assert min(counter.address for counter in program.counters) == 12288
    assert problems(program) == []
    low = replace(program, buffers=(*program.buffers[:2], replace(queue, address=128)))
    assert problems(low) == [
        "exchange: its tiles reach byte 160 of the scratch, into the buffers from 128 on"
    ]
    private = replace(program, buffers=(*program.buffers[:2], replace(queue, space=Space.PRIVATE)))
    assert problems(private) == ["buffer queue lies in scratch and is not symmetric"]


def _template(program: Program, **fields: Any) -> Program:
    return replace(program, templates=(replace(program.templates[0], **fields),))


def _record(program: Program, op: Opcode, **fields: int) -> Program:
    records = program.records.copy()
    at = records["op"].tolist().index(op)
    for key, value in fields.items():
        records[key][at] = value
    return replace(program, records=records)


def _streams(program: Program, *streams: StreamInfo) -> Program:
    return _template(program, streams=streams)


BROKEN: dict[str, Callable[[Program], Program]] = {
    "DELAY does not run on the dma engine": lambda p: _streams(
        p,
        *(
            replace(s, engine=Engine.DMA) if s.engine is Engine.CPU else s
            for s in p.templates[0].streams[:1]
        ),
        *(replace(s, engine=Engine.GEMM) for s in p.templates[0].streams[1:2]),
    ),
    "the gemm stream is not in its place": lambda p: _streams(
        p, *(replace(s, engine=Engine.GEMM) for s in p.templates[0].streams)
    ),
    "the streams do not hold all records": lambda p: _streams(p, *p.templates[0].streams[:-1]),
    "the cpu stream cuts a loop or branch": lambda p: _streams(p, StreamInfo(Engine.CPU, 0, 2)),
    "the semaphore does not exist": lambda p: _record(p, Opcode.ACQUIRE, buffer=8),
    "a semaphore starts below zero": lambda p: _template(p, semaphores=(-1,) * 8),
    "another stream has the semaphore, too": lambda p: _record(p, Opcode.ACQUIRE, buffer=5),
    "only the dma stream releases after a tile": lambda p: _record(p, Opcode.RELEASE, a=0),
    "a semaphore joins streams, and the template is one": lambda p: _streams(p),
}


@pytest.mark.parametrize("message", BROKEN)
def test_validation_refuses(scores: Program, message: str):
    assert problems(scores) == []
    assert any(message in text for text in problems(BROKEN[message](scores)))


def test_the_assembler_keeps_the_rules():
    def build() -> ProgramAssembler:
        program = ProgramAssembler("hand", {}, (("pe", 2),))
        program.buffer("x", (4, 8), ElementType.F32, role=Role.INPUT)
        scratch = BufferMemory.SCRATCH
        for name, address in (("q", None), ("r", 1024)):
            program.buffer(
                name,
                (2, 8),
                ElementType.F32,
                space=Space.SYMMETRIC,
                memory=scratch,
                address=address,
            )
        return program

    program = build()
    assert [buffer.address for buffer in program.buffers] == [4096, 0, 1024]
    del program.buffers[1]
    template = program.template("t")
    tile = template.tile(1, 8, ElementType.F32, slots=2, depth=1)
    full = template.semaphore()
    with template.stream(Engine.DMA), template.loop(0, 4) as i:
        template.load(tile, 0, (i, 0))
        template.release(full, tile)
    with template.stream(Engine.MATH), template.loop(0, 4):
        template.acquire(full)
        template.vector("scale", [tile, tile], [0])
    program.add(template)
    assert problems(program.finish()) == []

    late = build().template("late")
    with late.stream(Engine.GEMM):
        pass
    with (
        pytest.raises(FormatError, match="the dma stream follows that of gemm"),
        late.stream(Engine.DMA),
    ):
        pass
    with pytest.raises(FormatError, match="has streams and a record beside them"):
        late.delay(5)
    long = build().template("long")
    with long.stream(Engine.CPU):
        for _ in range(256):
            long.delay(1)
        with pytest.raises(FormatError, match="the cpu stream of kernel long needs more than 256"):
            long.delay(1)
    wide = build().template("wide")
    a = wide.tile(2, 16, ElementType.F32)
    b = wide.tile(8, 32, ElementType.F32)
    with pytest.raises(FormatError, match="matrix operands"):
        wide.matrix(a, a, b, columns=0, inner=0)
