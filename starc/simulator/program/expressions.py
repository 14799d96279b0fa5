"""Expressions of a program, sorted by how they are evaluated."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from starc.backend.program import ExprOp
from starc.simulator.state.arrays import Array
from starc.simulator.state.program_records import AFFINE, CONSTANT, GENERAL


@dataclass
class Expressions:
    """Expressions that records name, sorted into constants, sums of products and the rest."""

    nodes: Array
    rows: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])
    terms: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    general: list[tuple[int, int, int, int]] = field(
        default_factory=list[tuple[int, int, int, int]]
    )
    _index: dict[int, int] = field(default_factory=dict[int, int])
    _affine: dict[int, tuple[int, dict[int, int]] | None] = field(
        default_factory=dict[int, tuple[int, dict[int, int]] | None]
    )

    def __post_init__(self) -> None:
        for i, node in enumerate(self.nodes.tolist()):
            self._affine[i] = self._affine_form(node)

    def _affine_form(self, node: Any) -> tuple[int, dict[int, int]] | None:
        op, left, right, _, imm = node
        if op == ExprOp.CONST:
            return imm, {}
        if op == ExprOp.VAR:
            return 0, {imm: 1}
        a = self._affine[left]
        if a is None:
            return None
        if op == ExprOp.ADD:
            b = self._affine[right]
            if b is None:
                return None
            factors: defaultdict[int, int] = defaultdict(int, a[1])
            for variable, factor in b[1].items():
                factors[variable] += factor
            return a[0] + b[0], dict(factors)
        if op == ExprOp.MUL:
            return a[0] * imm, {variable: factor * imm for variable, factor in a[1].items()}
        return None

    def add(self, root: int) -> int:
        """The index of a root node's expression; -1 stays -1."""
        if root < 0:
            return -1
        if root not in self._index:
            self._index[root] = len(self.rows)
            form = self._affine[root]
            if form is None:
                self.rows.append((0, GENERAL, *self._general(root)))
            else:
                factors = [(f, v) for v, f in sorted(form[1].items()) if f]
                kind = AFFINE if factors else CONSTANT
                self.rows.append((form[0], kind, len(self.terms), len(factors)))
                self.terms.extend(factors)
        return self._index[root]

    def _general(self, root: int) -> tuple[int, int]:
        needed: set[int] = set()
        pending = [root]
        while pending:
            i = pending.pop()
            if i in needed:
                continue
            needed.add(i)
            op, left, right, _, _ = self.nodes[i].tolist()
            if op not in (ExprOp.CONST, ExprOp.VAR):
                pending.append(left)
                if op in (ExprOp.ADD, ExprOp.MIN, ExprOp.MAX):
                    pending.append(right)
        place = {node: i for i, node in enumerate(sorted(needed))}
        first = len(self.general)
        for node in place:
            op, left, right, _, imm = self.nodes[node].tolist()
            self.general.append((imm, op, place.get(left, 0), place.get(right, 0)))
        return first, len(place)
