"""Reading rows of a program back: expressions, names and templates as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

from starc.backend.expressions import variable_ids
from starc.backend.program import Engine, ExprOp, Opcode, Program, Rows, TemplateInfo, Var
from starc.core.quasi_affine import expressions as qa
from starc.core.quasi_affine.expressions import Expression

ENGINE_OPCODES: Final = frozenset(
    {
        Opcode.LOAD,
        Opcode.STORE,
        Opcode.PUT,
        Opcode.GET,
        Opcode.SIGNAL,
        Opcode.WAIT,
        Opcode.DELAY,
        Opcode.LOOP,
        Opcode.END_LOOP,
        Opcode.IF,
        Opcode.END_IF,
    }
)
"""What a copy engine can do: it moves data, waits and signals, and computes nothing."""


STREAM_OPCODES: Final[Mapping[Opcode, frozenset[Engine]]] = {
    **dict.fromkeys(
        (Opcode.LOAD, Opcode.STORE, Opcode.PUT, Opcode.GET, Opcode.SIGNAL),
        frozenset({Engine.DMA}),
    ),
    # A deferred wait stands in the order of the loads.
    Opcode.WAIT: frozenset({Engine.CPU, Engine.DMA}),
    Opcode.MATRIX: frozenset({Engine.GEMM}),
    Opcode.VECTOR: frozenset({Engine.MATH}),
    Opcode.DELAY: frozenset({Engine.CPU, Engine.SCHEDULER}),
}
"""Whose streams may hold an opcode, where not every engine's may."""


def engine_templates(program: Program) -> frozenset[int]:
    """The templates that run on copy engines."""
    found: set[int] = set()
    for launch in program.launches[program.launches["engines"] == 1]:
        first = int(launch["first_part"])
        found.update(program.parts["template"][first : first + int(launch["parts"])].tolist())
    return frozenset(found)


class ProgramReader:
    """Expressions and records of one program, decoded once and kept."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.variables: Mapping[int, str] = {
            index: name for name, index in variable_ids(program.mesh).items()
        }

    @cached_property
    def expressions(self) -> list[Expression]:
        """Every expression node as a value."""
        result: list[Expression] = []
        tables = self.program.tables
        # A table ends where the next one starts; only its first value is named by a node.
        starts = sorted(
            {int(row["imm"]) for row in self.program.expressions if row["op"] == ExprOp.TABLE}
        )
        ends = dict(zip(starts, [*starts[1:], len(tables)], strict=False))
        for row in self.program.expressions:
            left, right, immediate = int(row["l"]), int(row["r"]), int(row["imm"])
            match ExprOp(int(row["op"])):
                case ExprOp.CONST:
                    node: Expression = qa.Const(immediate)
                case ExprOp.VAR:
                    node = qa.Var(self.variables[immediate])
                case ExprOp.ADD:
                    node = qa.Add(result[left], result[right])
                case ExprOp.MUL:
                    node = qa.Mul(result[left], immediate)
                case ExprOp.FLOORDIV:
                    node = qa.FloorDiv(result[left], immediate)
                case ExprOp.MOD:
                    node = qa.Mod(result[left], immediate)
                case ExprOp.MIN:
                    node = qa.Min(result[left], result[right])
                case ExprOp.MAX:
                    node = qa.Max(result[left], result[right])
                case ExprOp.TABLE:
                    values = tuple(int(v) for v in tables[immediate : ends[immediate]])
                    node = qa.Table(values, result[left])
            result.append(node)
        return result

    def expression(self, record: Rows, field: str) -> Expression:
        """The expression in a field of a record."""
        return self.expressions[int(record[field])]

    def records(self, template: TemplateInfo) -> Rows:
        return self.program.records[
            template.first_record : template.first_record + template.records
        ]

    def tiles(self, template: TemplateInfo) -> Rows:
        return self.program.tiles[template.first_tile : template.first_tile + template.tiles]

    def parts(self, launch: int) -> list[tuple[int, int]]:
        """(template, workgroups) of each part of a launch."""
        row = self.program.launches[launch]
        first = int(row["first_part"])
        return [
            (int(part["template"]), int(part["workgroups"]))
            for part in self.program.parts[first : first + int(row["parts"])]
        ]

    @cached_property
    def devices(self) -> int:
        count = 1
        for _, size in self.program.mesh:
            count *= size
        return count

    def coordinates(self, device: int) -> dict[str, int]:
        """``device`` and its coordinate on every mesh axis, by variable name."""
        values = {"device": device}
        rest = device
        for axis, size in reversed(self.program.mesh):
            values[axis] = rest % size
            rest //= size
        return values


COUNTER_NAMES = tuple(f"counter{depth}" for depth in range(Var.DEVICE - Var.COUNTER0))
