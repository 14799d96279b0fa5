"""Functional execution: the rows of a program on data, without time.

Streams run one after another as far as their waits allow, so that every wait is satisfied by
signals that precede it (happens-before order). The result is what the instruction stream computes,
independent of every other level: tiles come from the functions of ``starc.backend.functions``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from starc.backend.functions import FUNCTIONS, OPERAND_FIELDS
from starc.backend.numerics import (
    Array,
    Mode,
    Numerics,
    clip,
    gather_rows,
    read_box,
    write_box,
)
from starc.backend.program import (
    FLAG_GATHER,
    FLAG_TRANSPOSE_B,
    ElementType,
    LayerInfo,
    Opcode,
    Program,
    Rows,
    TemplateInfo,
    Var,
)
from starc.backend.rows import ProgramReader
from starc.core.quasi_affine import compiled

MAX_INSTRUCTIONS: Final = 2_000_000
_VARIABLES: Final = int(Var.AXIS3) + 1

Evaluator: TypeAlias = Callable[[Sequence[int]], int]
Stream: TypeAlias = Generator[tuple[int, int], None, None]
"""Yields (slot of a counter on its device, value) to wait for."""


class FunctionalError(RuntimeError):
    """The program cannot be executed: it deadlocks, reads a tile that nobody wrote, uses memory
    that another buffer has overwritten, or leaves its counters or devices."""


class TooManyInstructions(FunctionalError):
    """The program executes more instructions than the execution was allowed."""


@dataclass
class _Record:
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
    body: list[_Record] = field(default_factory=list["_Record"])


@dataclass
class _Memory:
    """The buffers of one device. Writing a buffer destroys those that overlap it."""

    device: int
    contents: list[Array | None]
    overwritten: dict[int, int] = field(default_factory=dict[int, int])


class FunctionalMachine:
    """Executes layers of a program on the memories of all devices.

    ``inputs`` has for every device (row-major rank) the contents of buffers by name, in logical
    shape; other buffers are poisoned. ``run`` executes layers in order, or one; memories keep
    their contents in between, counters start at zero for every layer.
    """

    def __init__(
        self,
        program: Program,
        inputs: Sequence[Mapping[str, Array]],
        *,
        mode: Mode = "exact",
        limit: int = MAX_INSTRUCTIONS,
    ) -> None:
        self.program = program
        self.reader = ProgramReader(program)
        self.numerics = Numerics(mode)
        self.limit = limit
        self.instructions = 0
        self.devices = self.reader.devices
        if len(inputs) != self.devices:
            raise ValueError(f"inputs for {len(inputs)} devices; the mesh has {self.devices}")
        self.index = {buffer.name: i for i, buffer in enumerate(program.buffers)}
        self.overlaps = _overlaps(program)
        self.memories = [
            _Memory(device, [None] * len(program.buffers)) for device in range(self.devices)
        ]
        for device, buffers in enumerate(inputs):
            for name, values in buffers.items():
                self.set_buffer(device, name, values)
        self.counter_base = np.cumsum([0, *(c.count for c in program.counters)]).tolist()
        self.counters: list[list[int]] = []
        self._templates: dict[int, list[_Record]] = {}
        self._evaluators: dict[int, Evaluator] = {}

    # Memory

    def set_buffer(self, device: int, name: str, values: Array) -> None:
        """Fills a buffer. Raises ``ValueError`` for a wrong shape."""
        index = self.index[name]
        info = self.program.buffers[index]
        if tuple(values.shape) != info.shape:
            raise ValueError(f"@{name} has shape {info.shape}, got {tuple(values.shape)}")
        memory = self.memories[device]
        self._written(memory, index)
        memory.contents[index] = self.numerics.store(values, info.dtype)

    def buffer(self, device: int, name: str) -> Array:
        """The contents of a buffer (poison where nobody wrote)."""
        return self._contents(self.memories[device], self.index[name])

    def _contents(self, memory: _Memory, index: int) -> Array:
        info = self.program.buffers[index]
        if index in memory.overwritten:
            other = self.program.buffers[memory.overwritten[index]].name
            raise FunctionalError(
                f"@{info.name} of device {memory.device} is used after @{other}, which overlaps "
                "it, was written"
            )
        contents = memory.contents[index]
        if contents is None:
            contents = memory.contents[index] = self.numerics.poison(info.shape, info.dtype)
        return contents

    def _written(self, memory: _Memory, index: int) -> None:
        memory.overwritten.pop(index, None)
        for other in self.overlaps[index]:
            if memory.contents[other] is not None:
                memory.contents[other] = None
                memory.overwritten[other] = index

    # Decoding

    def _evaluator(self, node: int) -> Evaluator:
        if node not in self._evaluators:
            names = [self.reader.variables.get(i, "") for i in range(_VARIABLES)]
            self._evaluators[node] = compiled(self.reader.expressions[node], names)
        return self._evaluators[node]

    def _decoded(self, index: int) -> list[_Record]:
        if index not in self._templates:
            template = self.program.templates[index]
            records = self.reader.records(template)
            self._templates[index], _ = self._block(template, records, 0)
        return self._templates[index]

    def _block(
        self, template: TemplateInfo, records: Rows, first: int
    ) -> tuple[list[_Record], int]:
        block: list[_Record] = []
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

    def _record(self, template: TemplateInfo, row: Rows, op: Opcode, index: int) -> _Record:
        fields = {key: int(row[key]) for key in (*OPERAND_FIELDS, "fn", "flags", "buffer")}
        roots = [int(row[f"e{i}"]) for i in range(8)]
        gathers = bool(op is Opcode.LOAD and row["flags"] & FLAG_GATHER)
        count = int(row["dims"])
        if op in (Opcode.SIGNAL, Opcode.WAIT, Opcode.LOOP):
            count = 2
        elif op is Opcode.IF:
            count = 1
        return _Record(
            op,
            int(row["stage"]),
            int(row["depth"]),
            f"{template.name} record {index}",
            fields,
            [self._evaluator(root) for root in roots[:count]],
            None if row["peer"] < 0 else self._evaluator(int(row["peer"])),
            self._evaluator(roots[4]) if gathers else None,
            tuple(int(row[f"n{i}"]) for i in range(count)) if count <= 4 else (),
        )

    # Execution

    def run(self, layers: Sequence[int] | None = None) -> None:
        """Executes layers by index, by default all in order."""
        chosen = range(len(self.program.layers)) if layers is None else layers
        for layer in chosen:
            self._run_layer(self.program.layers[layer])

    def _run_layer(self, layer: LayerInfo) -> None:
        self.counters = [[0] * self.counter_base[-1] for _ in range(self.devices)]
        launches = range(layer.first_launch, layer.first_launch + layer.launches)
        queues = sorted({int(self.program.launches[i]["queue"]) for i in launches})
        ended: set[tuple[int, int]] = set()
        lanes = [
            _Lane(
                self,
                device,
                [i for i in launches if self.program.launches[i]["queue"] == queue],
                layer.first_launch,
                ended,
            )
            for device in range(self.devices)
            for queue in queues
        ]
        while True:
            progress = [lane.advance() for lane in lanes]
            if not any(progress):
                break
        stuck = [lane.describe() for lane in lanes if lane.running]
        if stuck:
            raise FunctionalError("deadlock: " + "; ".join(stuck))

    def stream(self, template: int, device: int, workgroup: int) -> Stream:
        """One workgroup, up to the next wait at every step."""
        values = [0] * _VARIABLES
        coordinates = self.reader.coordinates(device)
        for variable, name in self.reader.variables.items():
            values[variable] = coordinates.get(name, 0)
        values[Var.WORKGROUP] = workgroup
        info = self.program.templates[template]
        return _Workgroup(self, info, values, device).run(self._decoded(template))


def _overlaps(program: Program) -> list[list[int]]:
    """For every buffer those that share memory with it."""
    order = sorted(range(len(program.buffers)), key=lambda i: program.buffers[i].address)
    result: list[list[int]] = [[] for _ in program.buffers]
    for position, i in enumerate(order):
        end = program.buffers[i].address + program.buffers[i].bytes
        for j in order[position + 1 :]:
            if program.buffers[j].address >= end:
                break
            result[i].append(j)
            result[j].append(i)
    return result


class _Lane:
    """The launches of one queue of one device, in order."""

    def __init__(
        self,
        machine: FunctionalMachine,
        device: int,
        launches: list[int],
        first: int,
        ended: set[tuple[int, int]],
    ) -> None:
        self.machine = machine
        self.device = device
        self.launches = launches
        self.first = first
        self.ended = ended
        self.position = 0
        self.streams: list[tuple[Stream, int]] | None = None
        self.waits: list[tuple[int, int]] = []

    @property
    def running(self) -> bool:
        return self.position < len(self.launches)

    def advance(self) -> bool:
        """Runs what can run; whether anything did."""
        progress = False
        while self.running:
            launch = self.launches[self.position]
            if self.streams is None:
                depends = int(self.machine.program.launches[launch]["depends"])
                if depends >= self.first and (self.device, depends) not in self.ended:
                    return progress
                self._start(launch)
                progress = True
            moved = self._step()
            progress |= moved
            if self.streams:
                return progress
            self.ended.add((self.device, launch))
            self.position += 1
            self.streams = None
        return progress

    def _start(self, launch: int) -> None:
        self.streams = [
            (self.machine.stream(template, self.device, workgroup), workgroup)
            for template, grid in self.machine.reader.parts(launch)
            for workgroup in range(grid)
        ]
        self.waits = [(-1, 0)] * len(self.streams)

    def _step(self) -> bool:
        assert self.streams is not None
        counters = self.machine.counters[self.device]
        streams: list[tuple[Stream, int]] = []
        waits: list[tuple[int, int]] = []
        moved = False
        for (stream, workgroup), wait in zip(self.streams, self.waits, strict=True):
            if wait[0] >= 0 and counters[wait[0]] < wait[1]:
                streams.append((stream, workgroup))
                waits.append(wait)
                continue
            moved = True
            following = next(stream, None)
            if following is not None:
                streams.append((stream, workgroup))
                waits.append(following)
        self.streams, self.waits = streams, waits
        return moved

    def describe(self) -> str:
        """What the lane is stuck at."""
        name = self.machine.program.launch_names[self.launches[self.position]]
        if not self.streams:
            return f"{name} of device {self.device} waits for another queue"
        slot, value = self.waits[0]
        base = self.machine.counter_base
        counter = max(i for i in range(len(base) - 1) if base[i] <= slot)
        return (
            f"{name} (device {self.device}, workgroup {self.streams[0][1]}) waits for "
            f"@{self.machine.program.counters[counter].name}[{slot - base[counter]}] to reach "
            f"{value} (it is at {self.machine.counters[self.device][slot]})"
        )


class _Workgroup:
    """One stream: its variables and its tiles."""

    def __init__(
        self,
        machine: FunctionalMachine,
        template: TemplateInfo,
        values: list[int],
        device: int,
    ) -> None:
        self.machine = machine
        self.numerics = machine.numerics
        self.values = values
        self.lowers = [0] * 5
        self.device = device
        self.tiles = machine.reader.tiles(template)
        self.contents: dict[tuple[int, int], Array] = {}

    def run(self, block: Sequence[_Record]) -> Stream:
        for record in block:
            if record.op is Opcode.LOOP:
                yield from self._loop(record)
            elif record.op is Opcode.IF:
                if record.expressions[0](self.values) >= 0:
                    yield from self.run(record.body)
            else:
                wait = self._instruction(record)
                if wait is not None:
                    yield wait

    def _loop(self, record: _Record) -> Stream:
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

    def _read(self, record: _Record, tile: int) -> Array:
        contents = self.contents.get(self._slot(tile))
        if contents is None:
            raise FunctionalError(f"{record.name} reads tile {tile}, which nobody has written")
        return contents

    def _write(self, tile: int, values: Array) -> None:
        element = ElementType(int(self.tiles[tile]["dtype"]))
        self.contents[self._slot(tile)] = self.numerics.store(values, element)

    def _instruction(self, record: _Record) -> tuple[int, int] | None:
        machine = self.machine
        machine.instructions += 1
        if machine.instructions > machine.limit:
            raise TooManyInstructions(
                f"functional execution stops after {machine.limit} instructions; the program "
                "executes more (check a smaller model, or its shrunk twin)"
            )
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
                return self._counter(record)
            case _:
                pass
        return None

    def _counter(self, record: _Record) -> tuple[int, int]:
        index = record.fields["buffer"]
        element, value = (evaluate(self.values) for evaluate in record.expressions)
        info = self.machine.program.counters[index]
        if not 0 <= element < info.count:
            raise FunctionalError(
                f"{record.name}: @{info.name}[{element}], of {info.count} elements"
            )
        return self.machine.counter_base[index] + element, value

    def _peer(self, record: _Record) -> int:
        if record.peer is None:
            return self.device
        peer = record.peer(self.values)
        if not 0 <= peer < self.machine.devices:
            raise FunctionalError(f"{record.name}: there is no device {peer}")
        return peer

    def _memory(self, record: _Record) -> None:
        machine, fields = self.machine, record.fields
        memory = machine.memories[self._peer(record)]
        index = fields["buffer"]
        starts = [evaluate(self.values) for evaluate in record.expressions]
        info = machine.program.buffers[index]
        if record.op in (Opcode.STORE, Opcode.PUT):
            tile = self._read(record, fields["a"])
            machine._written(memory, index)  # pyright: ignore[reportPrivateUsage]
            buffer = machine._contents(memory, index)  # pyright: ignore[reportPrivateUsage]
            box = clip(starts, record.extents, info.shape)
            write_box(buffer, box, self.numerics.store(tile, info.dtype))
            return
        buffer = machine._contents(memory, index)  # pyright: ignore[reportPrivateUsage]
        shape = self._shape(fields["dst"])
        if record.gather_base is not None:
            rows = self._read(record, fields["a"]).ravel().astype(np.int64)
            base = record.gather_base(self.values)
            values = gather_rows(buffer, rows - base, starts[1], shape)
        else:
            values = read_box(buffer, clip(starts, record.extents, info.shape), shape)
        self._write(fields["dst"], values)

    def _matrix(self, record: _Record) -> None:
        dst, a, b = (self._read(record, record.fields[key]) for key in ("dst", "a", "b"))
        transposed = bool(record.fields["flags"] & FLAG_TRANSPOSE_B)
        result = self.numerics.multiply_add(dst, a, b, transposed=transposed)
        self._write(record.fields["dst"], result)

    def _vector(self, record: _Record) -> None:
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


def execute(
    program: Program,
    inputs: Sequence[Mapping[str, Array]],
    *,
    mode: Mode = "exact",
    limit: int = MAX_INSTRUCTIONS,
) -> list[dict[str, Array]]:
    """Runs every layer once and returns the buffers of every device that still hold data.

    Raises ``FunctionalError``; see ``FunctionalMachine`` for the arguments.
    """
    machine = FunctionalMachine(program, inputs, mode=mode, limit=limit)
    machine.run()
    results: list[dict[str, Any]] = []
    for memory in machine.memories:
        results.append(
            {
                info.name: contents
                for info, contents in zip(program.buffers, memory.contents, strict=True)
                if contents is not None
            }
        )
    return results
