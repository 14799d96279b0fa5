"""Expressions of a program under construction: equal ones are one node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from starc.backend.program import (
    MAX_DEPTH,
    ExprOp,
    Var,
)
from starc.core.quasi_affine import expressions as qa
from starc.core.quasi_affine.expressions import Expression, expression

COUNTERS: Final = tuple(qa.Var(f"counter{depth}") for depth in range(MAX_DEPTH))


class FormatError(ValueError):
    """A program would exceed a limit of the format."""


@dataclass
class ExpressionPool:
    """Expression nodes in topological order, and the tables that they name."""

    variables: Mapping[str, int]
    nodes: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])
    tables: list[int] = field(default_factory=list[int])
    _index: dict[tuple[int, int, int, int], int] = field(
        default_factory=dict[tuple[int, int, int, int], int]
    )
    _table_offsets: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])

    def node(self, op: ExprOp, left: int = -1, right: int = -1, immediate: int = 0) -> int:
        if not -(2**63) <= immediate < 2**63:
            raise FormatError(f"the constant {immediate} does not fit in 64 bits")
        key = (int(op), left, right, immediate)
        if key not in self._index:
            self._index[key] = len(self.nodes)
            self.nodes.append(key)
        return self._index[key]

    def add(self, e: Expression | int) -> int:
        """Index of the root node of ``e``. Raises ``KeyError`` for an unknown variable."""
        e = expression(e)
        match e:
            case qa.Const():
                return self.node(ExprOp.CONST, immediate=e.value)
            case qa.Var():
                return self.node(ExprOp.VAR, immediate=self.variables[e.name])
            case qa.Add():
                return self.node(ExprOp.ADD, self.add(e.left), self.add(e.right))
            case qa.Min():
                return self.node(ExprOp.MIN, self.add(e.left), self.add(e.right))
            case qa.Max():
                return self.node(ExprOp.MAX, self.add(e.left), self.add(e.right))
            case qa.Mul():
                return self.node(ExprOp.MUL, self.add(e.operand), immediate=e.factor)
            case qa.FloorDiv():
                return self.node(ExprOp.FLOORDIV, self.add(e.operand), immediate=e.divisor)
            case qa.Mod():
                return self.node(ExprOp.MOD, self.add(e.operand), immediate=e.divisor)
            case qa.Table():
                if e.values not in self._table_offsets:
                    self._table_offsets[e.values] = len(self.tables)
                    self.tables.extend(e.values)
                return self.node(
                    ExprOp.TABLE, self.add(e.index), immediate=self._table_offsets[e.values]
                )


def variable_ids(mesh: Sequence[tuple[str, int]]) -> dict[str, int]:
    """The variables that expressions of a program over ``mesh`` may name. A mesh axis goes by its
    name."""
    ids = {"wg": int(Var.WORKGROUP), "device": int(Var.DEVICE)}
    ids |= {counter.name: int(Var.COUNTER0) + depth for depth, counter in enumerate(COUNTERS)}
    ids |= {axis: int(Var.AXIS0) + i for i, (axis, _) in enumerate(mesh)}
    return ids
