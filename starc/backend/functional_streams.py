"""Streams of functional execution: records decoded once, and the workgroups that execute them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import numpy as np

from starc.backend.functional_memory import DeviceMemory, FunctionalError
from starc.backend.numerics import (
    Array,
    Numerics,
    clip_held,
    gather_rows,
    read_region,
    write_region,
)
from starc.backend.program import (
    FLAG_ACCUMULATE,
    FLAG_GATHER,
    FLAG_TRANSPOSE_B,
    MAX_DEPTH,
    Opcode,
    Program,
    Rows,
    TemplateInfo,
    Var,
)
from starc.backend.rows import ProgramReader
from starc.core.element_types import ElementType
from starc.core.quasi_affine.compilation import compiled
from starc.core.vector_functions.function import OPERAND_FIELDS
from starc.core.vector_functions.table import FUNCTIONS

VARIABLES: Final = int(Var.AXIS3) + 1

Evaluator: TypeAlias = Callable[[Sequence[int]], int]
Stream: TypeAlias = Generator["Pause", None, None]


@dataclass(frozen=True)
class Pause:
    """A stream that cannot go on until a value of its device, or of its workgroup, is reached."""

    values: list[int]
    slot: int
    until: int
    what: str

    @property
    def over(self) -> bool:
        return self.values[self.slot] >= self.until


@dataclass
class Record:
    """A record decoded for execution."""

    op: Opcode
    stage: int
    depth: int
    name: str
    fields: dict[str, int]
    expressions: list[Evaluator]
    peer: Evaluator | None
    gather_base: Evaluator | None
    extents: tuple[int, ...]
    windows: tuple[Evaluator | None, ...]
    body: list[Record] = field(default_factory=list["Record"])


class Decoder:
    """Decodes the templates of a program, each once."""

    def __init__(self, reader: ProgramReader) -> None:
        self.reader = reader
        self._templates: dict[int, list[list[Record]]] = {}
        self._evaluators: dict[int, Evaluator] = {}

    def _evaluator(self, node: int) -> Evaluator:
        if node not in self._evaluators:
            names = [self.reader.variables.get(i, "") for i in range(VARIABLES)]
            self._evaluators[node] = compiled(self.reader.expressions[node], names)
        return self._evaluators[node]

    def template(self, index: int) -> list[list[Record]]:
        """The streams of a template: one, or one for each of its engines."""
        if index not in self._templates:
            template = self.reader.program.templates[index]
            records = self.reader.records(template)
            parts = [(part.first_record, part.records) for part in template.streams]
            self._templates[index] = [
                self._block(template, records[: first + count], first)[0]
                for first, count in parts or [(0, len(records))]
            ]
        return self._templates[index]

    def _block(self, template: TemplateInfo, records: Rows, first: int) -> tuple[list[Record], int]:
        block: list[Record] = []
        index = first
        while index < len(records):
            row = records[index]
            index += 1
            op = Opcode(int(row["op"]))
            if op in (Opcode.END_LOOP, Opcode.END_IF):
                break
            record = self._record(template, row, op, index - 1)
            if op in (Opcode.LOOP, Opcode.IF):
                record.body, index = self._block(template, records, index)
            block.append(record)
        return block, index

    def _record(self, template: TemplateInfo, row: Rows, op: Opcode, index: int) -> Record:
        fields = {key: int(row[key]) for key in (*OPERAND_FIELDS, "fn", "flags", "buffer")}
        roots = [int(row[f"e{i}"]) for i in range(8)]
        gathers = bool(op is Opcode.LOAD and row["flags"] & FLAG_GATHER)
        count = int(row["dims"])
        if op in (Opcode.SIGNAL, Opcode.WAIT, Opcode.LOOP):
            count = 2
        elif op is Opcode.IF:
            count = 1
        elif op is Opcode.MATRIX:
            count = 0
        windows = roots[:2] if op is Opcode.MATRIX else [-1, -1]
        return Record(
            op,
            int(row["stage"]),
            int(row["depth"]),
            f"{template.name} record {index}",
            fields,
            [self._evaluator(root) for root in roots[:count]],
            None if row["peer"] < 0 else self._evaluator(int(row["peer"])),
            self._evaluator(roots[4]) if gathers else None,
            tuple(int(row[f"n{i}"]) for i in range(count)) if count <= 4 else (),
            tuple(None if root < 0 else self._evaluator(root) for root in windows),
        )


_JOINTS: Final = (Opcode.ACQUIRE, Opcode.RELEASE, Opcode.DELAY)
"""What joins the streams of a workgroup: not work that the limit of an execution counts."""


class Environment(Protocol):
    """What a workgroup needs of the machine around it."""

    program: Program
    reader: ProgramReader
    numerics: Numerics
    devices: int
    memories: list[DeviceMemory]
    counter_base: list[int]
    counters: list[list[int]]

    def count_instruction(self) -> None:
        """Counts an executed instruction against the limit."""
        ...


class Shared:
    """What the streams of a workgroup have in common: tiles and semaphores."""

    def __init__(self, machine: Environment, template: TemplateInfo) -> None:
        self.tiles = machine.reader.tiles(template)
        self.contents: dict[tuple[int, int], Array] = {}
        self.semaphores = list(template.semaphores)


class Workgroup:
    """One stream of a workgroup: its variables, and the tiles that it shares with the others."""

    def __init__(
        self, machine: Environment, shared: Shared, values: list[int], device: int
    ) -> None:
        self.machine = machine
        self.shared = shared
        self.numerics = machine.numerics
        self.values = values
        self.lowers = [0] * (MAX_DEPTH + 1)
        self.device = device
        self.tiles = shared.tiles
        self.contents = shared.contents

    def run(self, block: Sequence[Record]) -> Stream:
        for record in block:
            if record.op is Opcode.LOOP:
                yield from self._loop(record)
            elif record.op is Opcode.IF:
                if record.expressions[0](self.values) >= 0:
                    yield from self.run(record.body)
            else:
                pause = self._instruction(record)
                if pause is not None:
                    while not pause.over:
                        yield pause
                    if record.op is Opcode.ACQUIRE:
                        self.shared.semaphores[record.fields["buffer"]] -= 1

    def _loop(self, record: Record) -> Stream:
        lower, upper = (evaluate(self.values) for evaluate in record.expressions)
        variable = int(Var.COUNTER0) + record.depth
        self.lowers[record.depth + 1] = lower
        stages = max((inner.stage for inner in record.body), default=0)
        for trip in range(lower, upper + stages if upper > lower else lower):
            for inner in record.body:
                iteration = trip - inner.stage
                if lower <= iteration < upper:
                    self.values[variable] = iteration
                    yield from self.run((inner,))

    def _slot(self, tile: int) -> tuple[int, int]:
        row = self.tiles[tile]
        depth = int(row["depth"])
        if not depth:
            return tile, 0
        counter = self.values[int(Var.COUNTER0) + depth - 1]
        return tile, (counter - self.lowers[depth]) % int(row["slots"])

    def _shape(self, tile: int) -> tuple[int, int]:
        return int(self.tiles[tile]["rows"]), int(self.tiles[tile]["cols"])

    def _read(self, record: Record, tile: int) -> Array:
        contents = self.contents.get(self._slot(tile))
        if contents is None:
            raise FunctionalError(f"{record.name} reads tile {tile}, which nobody has written")
        return contents

    def _write(self, tile: int, values: Array) -> None:
        element = ElementType(int(self.tiles[tile]["dtype"]))
        self.contents[self._slot(tile)] = self.numerics.store(values, element)

    def _instruction(self, record: Record) -> Pause | None:
        machine = self.machine
        if record.op not in _JOINTS:
            machine.count_instruction()
        match record.op:
            case Opcode.LOAD | Opcode.GET | Opcode.STORE | Opcode.PUT:
                self._memory(record)
            case Opcode.MATRIX:
                self._matrix(record)
            case Opcode.VECTOR:
                self._vector(record)
            case Opcode.SIGNAL:
                slot, value = self._counter(record)
                machine.counters[self._peer(record)][slot] += value
            case Opcode.WAIT:
                slot, value = self._counter(record)
                info = machine.program.counters[record.fields["buffer"]]
                element = slot - machine.counter_base[record.fields["buffer"]]
                what = f"@{info.name}[{element}]"
                return Pause(machine.counters[self.device], slot, value, what)
            case Opcode.ACQUIRE:
                slot = record.fields["buffer"]
                return Pause(self.shared.semaphores, slot, 1, f"{record.name}: semaphore {slot}")
            case Opcode.RELEASE:
                # Everything before it in the stream has been executed.
                self.shared.semaphores[record.fields["buffer"]] += 1
            case _:
                pass
        return None

    def _counter(self, record: Record) -> tuple[int, int]:
        index = record.fields["buffer"]
        element, value = (evaluate(self.values) for evaluate in record.expressions)
        info = self.machine.program.counters[index]
        if not 0 <= element < info.count:
            raise FunctionalError(
                f"{record.name}: @{info.name}[{element}], of {info.count} elements"
            )
        return self.machine.counter_base[index] + element, value

    def _peer(self, record: Record) -> int:
        if record.peer is None:
            return self.device
        peer = record.peer(self.values)
        if not 0 <= peer < self.machine.devices:
            raise FunctionalError(f"{record.name}: there is no device {peer}")
        return peer

    def _memory(self, record: Record) -> None:
        machine, fields = self.machine, record.fields
        memory = machine.memories[self._peer(record)]
        index = fields["buffer"]
        starts = [evaluate(self.values) for evaluate in record.expressions]
        info = machine.program.buffers[index]
        if record.op in (Opcode.STORE, Opcode.PUT):
            tile = self._read(record, fields["a"])
            region = clip_held(starts, record.extents, memory.held[index])
            if not region.boxes:
                return
            if record.op == Opcode.PUT and fields["flags"] & FLAG_ACCUMULATE:
                # Somebody has written what is added to.
                there = read_region(memory.contents(index), region, tile.shape)
                tile = self.numerics.compute(there) + self.numerics.compute(tile)
            memory.begin_write(index)
            buffer = memory.contents(index)
            write_region(buffer, region, self.numerics.store(tile, info.dtype))
            return
        shape = self._shape(fields["dst"])
        if record.gather_base is not None:
            rows = self._read(record, fields["a"]).ravel().astype(np.int64)
            base = record.gather_base(self.values)
            buffer = memory.contents(index)
            values = gather_rows(buffer, memory.held[index], rows - base, starts[1], shape)
        else:
            region = clip_held(starts, record.extents, memory.held[index])
            if region.boxes:
                values = read_region(memory.contents(index), region, shape)
            else:
                values = np.zeros(shape, self.numerics.storage(info.dtype))
        self._write(fields["dst"], values)

    def _matrix(self, record: Record) -> None:
        dst, a, b = (self._read(record, record.fields[key]) for key in ("dst", "a", "b"))
        transposed = bool(record.fields["flags"] & FLAG_TRANSPOSE_B)
        columns, inner = (w if w is None else w(self.values) for w in record.windows)
        try:
            result = self.numerics.multiply_add(
                dst, a, b, transposed=transposed, columns=columns, inner=inner
            )
        except IndexError as error:
            raise FunctionalError(f"{record.name}: {error}") from error
        self._write(record.fields["dst"], result)

    def _vector(self, record: Record) -> None:
        function = FUNCTIONS[record.fields["fn"]]
        operands: dict[str, Array] = {}
        for key, _ in zip(OPERAND_FIELDS, function.operands, strict=False):
            tile = record.fields[key]
            if key in function.reads:
                operands[key] = self.numerics.compute(self._read(record, tile))
            else:
                dtype = np.float64 if self.numerics.mode == "exact" else np.float32
                operands[key] = np.empty(self._shape(tile), dtype)
        parameters = function.decode([evaluate(self.values) for evaluate in record.expressions])
        for key, values in function.meaning(operands, parameters).items():
            self._write(record.fields[key], values)
