"""Instructions as the event core reads them: times instead of work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from starc.backend.program import (
    FLAG_ACCUMULATE,
    FLAG_ACQUIRE,
    FLAG_ATTACHED,
    FLAG_CACHED,
    FLAG_GATHER,
    LayoutKind,
    Opcode,
    Program,
    TemplateInfo,
    TileSpace,
)
from starc.core.element_types import ElementType
from starc.core.streams.engine_times import matrix_ps, scratch_ps, vector_ps
from starc.core.vector_functions.function import SPECIAL_OPERATIONS
from starc.core.vector_functions.table import FUNCTIONS
from starc.simulator.errors import DecodeError
from starc.simulator.program.expressions import Expressions
from starc.simulator.state.arrays import Array
from starc.simulator.state.program_records import OPERATION
from starc.targets.target import Target

Use: TypeAlias = tuple[int, int, int]
"""A tile that an instruction touches: its number, whether it is read, whether it is written."""


class RecordDecoder:
    """Decodes the records of a program for a machine, template by template: ``operations``, and the
    ``uses`` of tiles and the ``expressions`` that these name."""

    def __init__(self, program: Program, target: Target) -> None:
        self.program = program
        self.target = target
        self.expressions = Expressions(program.expressions)
        self.operations: Array = np.zeros(len(program.records), OPERATION)
        self.uses: list[Use] = []
        self._decoders: dict[int, Callable[[Any, Any, TemplateInfo], list[Use]]] = {
            Opcode.LOAD: self._memory,
            Opcode.STORE: self._memory,
            Opcode.PUT: self._memory,
            Opcode.GET: self._memory,
            Opcode.MATRIX: self._matrix,
            Opcode.VECTOR: self._vector,
            Opcode.DELAY: self._delay,
            Opcode.ACQUIRE: self._semaphore,
            Opcode.RELEASE: self._semaphore,
            Opcode.SIGNAL: self._nothing,
            Opcode.WAIT: self._nothing,
            Opcode.LOOP: self._nothing,
            Opcode.END_LOOP: self._nothing,
            Opcode.IF: self._nothing,
            Opcode.END_IF: self._nothing,
        }

    def template(self, template: TemplateInfo) -> None:
        """Decodes the records of a template. Raises ``DecodeError`` at one that cannot run."""
        first, end = template.first_record, template.first_record + template.records
        for i in range(first, end):
            row, out = self.program.records[i], self.operations[i]
            op = int(row["op"])
            if op not in self._decoders:
                raise DecodeError(f"opcode {op} is not executable")
            out["op"] = op
            out["depth"] = row["depth"]
            out["stage"] = row["stage"]
            out["end"] = i + 1
            out["buffer"] = row["buffer"]
            out["peer"] = self.expressions.add(int(row["peer"]))
            out["lower"] = self.expressions.add(int(row["e0"]))
            out["upper"] = self.expressions.add(int(row["e1"]))
            out["uncached"] = int(_passes_caches(op, int(row["flags"])))
            out["first_use"] = len(self.uses)
            found = self._decoders[op](row, out, template)
            out["use_count"] = len(found)
            self.uses.extend(found)
        _link_blocks(self.program.records[first:end], self.operations[first:end], first)

    def _memory(self, row: Any, out: Any, template: TemplateInfo) -> list[Use]:
        """Start expressions and extents of the operand are aligned to four dimensions."""
        op, dims = int(row["op"]), int(row["dims"])
        missing = 4 - dims
        for i in range(4):
            given = i >= missing
            start = self.expressions.add(int(row[f"e{i - missing}"])) if given else -1
            out[f"start{i}"] = start
            out[f"extent{i}"] = row[f"n{i - missing}"] if given else 1
        out["work"] = max(1, int(row["work"])) if op == Opcode.LOAD else 1
        name = "dst" if op in (Opcode.LOAD, Opcode.GET) else "a"
        out["tile"] = template.first_tile + int(row[name])
        _check_fold(self.program, row)
        gathers = int(row["flags"]) & FLAG_GATHER
        return [(template.first_tile + int(row["a"]), 1, 0)] if gathers else []

    def _matrix(self, row: Any, out: Any, template: TemplateInfo) -> list[Use]:
        base = template.first_tile
        tiles = [self.program.tiles[base + int(row[name])] for name in ("a", "b")]
        types = [ElementType(int(tile["dtype"])) for tile in tiles]
        a, b = (
            dtype.bytes * (int(tile["space"]) == TileSpace.SCRATCH)
            for dtype, tile in zip(types, tiles, strict=True)
        )
        mnk = (int(row["n0"]), int(row["n1"]), int(row["n2"]))
        out["work"] = matrix_ps(self.target, types[0].format.name, *mnk)
        out["latency"] = self.target.matrix_latency_ps
        out["scratch"] = scratch_ps(self.target, max(1, template.waves), mnk, (a, b))
        return [(base + int(row[name]), 1, int(name == "dst")) for name in ("dst", "a", "b")]

    def _vector(self, row: Any, out: Any, template: TemplateInfo) -> list[Use]:
        function = FUNCTIONS[int(row["fn"])]
        special = function.specials * int(row["work"]) // function.lane_operations
        plain = int(row["work"]) - SPECIAL_OPERATIONS * special
        out["work"] = vector_ps(self.target, plain, special)
        out["latency"] = self.target.vector_latency_ps
        return [
            (
                template.first_tile + int(row[name]),
                int(name in function.reads),
                int(name in function.writes),
            )
            for name in function.operands
        ]

    def _delay(self, row: Any, out: Any, template: TemplateInfo) -> list[Use]:
        out["work"] = row["work"]
        return []

    def _semaphore(self, row: Any, out: Any, template: TemplateInfo) -> list[Use]:
        out["tile"] = template.first_tile + int(row["a"]) if int(row["a"]) >= 0 else -1
        out["work"] = -1
        return []

    def _nothing(self, row: Any, out: Any, template: TemplateInfo) -> list[Use]:
        return []


def _passes_caches(op: int, flags: int) -> bool:
    """What ``uncached`` of an operation says: that a load or get passes the L2, that a signal
    comes with the puts before it, that a put is added to what is there."""
    if op == Opcode.GET:
        return not flags & FLAG_CACHED
    flag = {Opcode.SIGNAL: FLAG_ATTACHED, Opcode.PUT: FLAG_ACCUMULATE}.get(Opcode(op), FLAG_ACQUIRE)
    return bool(flags & flag)


def _link_blocks(records: Any, operations: Array, first: int) -> None:
    """Where loops and conditions of a template go on: behind their end, and at a loop's end with
    its first instruction. Of a loop, the largest stage too."""
    opened: list[int] = []
    for k, row in enumerate(records):
        out = operations[k]
        op = int(row["op"])
        if op in (Opcode.LOOP, Opcode.IF):
            out["end"] = first + int(row["end"]) + 1
        if op == Opcode.LOOP:
            out["stages"] = _stages(records, k)
            opened.append(k)
        elif op == Opcode.END_LOOP:
            begin = opened.pop()
            out["end"] = first + begin + 1
            out["depth"] = records[begin]["depth"]
        elif op == Opcode.END_IF:
            out["depth"] = 0
            out["stage"] = 0


def _stages(records: Any, loop: int) -> int:
    """The largest stage of the records directly inside a loop."""
    depth = int(records[loop]["depth"]) + 1
    body = records[loop + 1 : int(records[loop]["end"])]
    ends = (Opcode.END_LOOP, Opcode.END_IF)
    direct = body[(body["depth"] == depth) & ~np.isin(body["op"], ends)]
    return int(direct["stage"].max(initial=0))


def _check_fold(program: Program, row: Any) -> None:
    """A tile of a buffer whose rows are two dimensions covers all of one or one of the other."""
    info = program.buffers[int(row["buffer"])]
    if info.layout is LayoutKind.ROW_MAJOR or len(info.block) < 3 or info.block[-3] == 1:
        return
    dims = int(row["dims"])
    if int(row[f"n{dims - 2}"]) < info.shape[-2] and int(row[f"n{dims - 3}"]) > 1:
        raise DecodeError(f"buffer {info.name}: a tile takes parts of the rows of several blocks")
