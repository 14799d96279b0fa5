"""Expressions as sums, with the coordinate of the GPU as a variable of its own.

A form is a constant plus whole multiples of atoms: variables of a workgroup, the GPU, the device
within its GPU, and quotients, minima, maxima and table entries of forms. ``q mod m`` is
``q - m * (q // m)``, so that what a program takes apart into rows and columns is one sum again, and
multiples of ``m`` leave a quotient. How a form changes from GPU to GPU can be read off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from starc.backend.program import ExprOp, Var

Interval: TypeAlias = tuple[int, int]  # both included
_WIDE: Final = (-(1 << 60), 1 << 60)
_LISTED: Final = 1 << 17  # values of a form that are listed at most


@dataclass(frozen=True)
class Form:
    """``constant`` plus the sum of ``factor * atom``, by number of the atom."""

    constant: int
    terms: tuple[tuple[int, int], ...] = ()

    def __add__(self, other: Form) -> Form:
        if not other.terms:
            return Form(self.constant + other.constant, self.terms)
        factors = dict(self.terms)
        for atom, factor in other.terms:
            factors[atom] = factors.get(atom, 0) + factor
        return _form(self.constant + other.constant, factors)

    def __mul__(self, factor: int) -> Form:
        if factor == 0:
            return Form(0)
        return Form(self.constant * factor, tuple((a, f * factor) for a, f in self.terms))

    def __sub__(self, other: Form) -> Form:
        return self + other * -1


def _form(constant: int, factors: Mapping[int, int]) -> Form:
    return Form(constant, tuple(sorted((a, f) for a, f in factors.items() if f)))


@dataclass
class Atom:
    """What cannot be taken apart: its range, whether it depends on the GPU, and of a quotient the
    form that is divided."""

    span: Interval
    turns: bool
    parts: tuple[Form, ...] = ()
    operation: ExprOp | None = None  # a quotient, table entry, minimum or maximum of the parts
    divisor: int = 1  # or first entry of the table


@dataclass
class Forms:
    """The atoms of a program, and its expressions as forms."""

    nodes: list[Any]
    tables: list[int]
    devices: int  # of a GPU
    gpus: int
    axes: tuple[int, ...]  # sizes of the mesh
    atoms: list[Atom] = field(default_factory=list[Atom])
    _known: dict[Any, int] = field(default_factory=dict[Any, int])
    _done: dict[tuple[int, tuple[int, ...]], Form] = field(
        default_factory=dict[tuple[int, tuple[int, ...]], Form]
    )
    _named: list[bool] = field(default_factory=list[bool])

    def __post_init__(self) -> None:
        gpu = self.variable((0, self.gpus - 1), turns=True)
        device = self.variable((0, self.devices - 1))
        self.device = Form(0, ((gpu, self.devices), (device, 1)))
        for op, left, right, _, imm in self.nodes:
            if op in (ExprOp.CONST, ExprOp.VAR):
                named = bool(op == ExprOp.VAR and imm >= Var.DEVICE)
            elif op in (ExprOp.ADD, ExprOp.MIN, ExprOp.MAX):
                named = self._named[int(left)] or self._named[int(right)]
            else:
                named = self._named[int(left)]
            self._named.append(named)

    def names_device(self, node: int) -> bool:
        """Whether an expression has the device or one of its coordinates in it."""
        return node >= 0 and self._named[node]

    def variable(self, span: Interval, *, turns: bool = False) -> int:
        """A new variable."""
        self.atoms.append(Atom(span, turns))
        return len(self.atoms) - 1

    def _atom(self, key: Any, atom: Atom) -> Form:
        if key not in self._known:
            self.atoms.append(atom)
            self._known[key] = len(self.atoms) - 1
        return Form(0, ((self._known[key], 1),))

    def turns(self, form: Form) -> bool:
        """Whether a form depends on the GPU."""
        return any(self.atoms[atom].turns for atom, _ in form.terms)

    def span(self, form: Form) -> Interval:
        """A range that holds the values of a form."""
        low, high = self._sum(form)
        rest, remainders = form, (0, 0)
        # What is a multiple of a remainder lies between 0 and that.
        for atom, factor in reversed(form.terms):
            info = self.atoms[atom]
            if (
                info.operation != ExprOp.FLOORDIV
                or factor % info.divisor
                or atom not in dict(rest.terms)
            ):
                continue
            times = -factor // info.divisor
            end = times * (info.divisor - 1)
            rest = rest - info.parts[0] * times + Form(0, ((atom, -factor),))
            remainders = (remainders[0] + min(0, end), remainders[1] + max(0, end))
            other = self._sum(rest)
            low = max(low, other[0] + remainders[0])
            high = min(high, other[1] + remainders[1])
        return low, high

    def _sum(self, form: Form) -> Interval:
        low = high = form.constant
        for atom, factor in form.terms:
            a, b = self.atoms[atom].span
            low += min(factor * a, factor * b)
            high += max(factor * a, factor * b)
        return low, high

    def exact_span(self, form: Form) -> Interval:
        """The least range that holds the values of a form, where they can be listed."""
        low, high = self.span(form)
        values = self._values(form)
        return (low, high) if values is None else (int(values.min()), int(values.max()))

    def _values(self, form: Form) -> npt.NDArray[np.int64] | None:
        """All values of a form, by GPU in the first dimension; None where they are too many."""
        variables: set[int] = set()
        pending = [form]
        while pending:
            for atom, _ in pending.pop().terms:
                info = self.atoms[atom]
                pending.extend(info.parts)
                if not info.parts:
                    variables.add(atom)
        sizes = {atom: self.atoms[atom].span for atom in variables | {0}}
        points = prod(high - low + 1 for low, high in sizes.values())
        if points > _LISTED:
            return None
        known: dict[int, npt.NDArray[np.int64]] = {}
        for place, atom in enumerate(sorted(sizes)):
            low, high = sizes[atom]
            line = [1] * len(sizes)
            line[place] = -1
            known[atom] = np.arange(low, high + 1, dtype=np.int64).reshape(line)
        found = self._listed(form, known)
        return np.broadcast_to(found, [known[atom].size for atom in sorted(sizes)])

    def _listed(self, form: Form, known: dict[int, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
        total = np.full([1] * known[0].ndim, form.constant, np.int64)
        for atom, factor in form.terms:
            if atom not in known:
                info = self.atoms[atom]
                parts = [self._listed(part, known) for part in info.parts]
                if info.operation == ExprOp.FLOORDIV:
                    known[atom] = parts[0] // info.divisor
                elif info.operation == ExprOp.TABLE:
                    entries = np.array(self.tables, np.int64)
                    known[atom] = entries[np.clip(parts[0] + info.divisor, 0, len(entries) - 1)]
                elif info.operation == ExprOp.MIN:
                    known[atom] = np.minimum(*parts)
                else:
                    known[atom] = np.maximum(*parts)
            total = total + factor * known[atom]
        return total

    def divide(self, form: Form, divisor: int) -> Form:
        """``form // divisor``: what is a multiple comes out of the quotient."""
        if divisor == 1:
            return form
        whole: dict[int, int] = {}
        rest: dict[int, int] = {}
        for atom, factor in form.terms:
            whole[atom] = int(abs(factor) // divisor) * (1 if factor > 0 else -1)
            rest[atom] = factor - whole[atom] * divisor
        left = _form(form.constant % divisor, rest)
        outside = _form(form.constant // divisor, whole)
        low, high = self.span(left)
        if low // divisor == high // divisor:
            return outside + Form(low // divisor)
        span = (low // divisor, high // divisor)
        atom = Atom(span, self.turns(left), (left,), ExprOp.FLOORDIV, divisor)
        return outside + self._atom((ExprOp.FLOORDIV, left, divisor), atom)

    def remainder(self, form: Form, divisor: int) -> Form:
        """``form mod divisor``."""
        return form - self.divide(form, divisor) * divisor

    def expression(self, node: int, variables: tuple[int, ...]) -> Form:
        """An expression of the program, where ``variables`` are the atoms of the workgroup and
        of the loops around."""
        if node < 0:
            return Form(0)
        key = (node, variables)
        if key not in self._done:
            self._done[key] = self._evaluate(node, variables)
        return self._done[key]

    def _evaluate(self, node: int, variables: tuple[int, ...]) -> Form:
        op, left, right, _, imm = self.nodes[node]
        if op == ExprOp.CONST:
            return Form(imm)
        if op == ExprOp.VAR:
            return self._variable(imm, variables)
        a = self.expression(left, variables)
        if op == ExprOp.ADD:
            return a + self.expression(right, variables)
        if op == ExprOp.MUL:
            return a * imm
        if op == ExprOp.FLOORDIV:
            return self.divide(a, imm)
        if op == ExprOp.MOD:
            return self.remainder(a, imm)
        if op == ExprOp.TABLE:
            return self._entry(a, imm)
        b = self.expression(right, variables)
        (low, high), (other_low, other_high) = self.span(a), self.span(b)
        smaller = op == ExprOp.MIN
        if high <= other_low:
            return a if smaller else b
        if other_high <= low:
            return b if smaller else a
        pick = min if smaller else max
        span = (pick(low, other_low), pick(high, other_high))
        turns = self.turns(a) or self.turns(b)
        return self._atom(
            (op, a, b), Atom(span, turns, (a, b), ExprOp.MIN if smaller else ExprOp.MAX)
        )

    def _variable(self, number: int, variables: tuple[int, ...]) -> Form:
        if number < Var.DEVICE:
            return Form(0, ((variables[number], 1),))
        if number == Var.DEVICE:
            return self.device
        axis = number - Var.AXIS0
        if axis >= len(self.axes):
            return Form(0)
        inner = 1
        for size in self.axes[axis + 1 :]:
            inner *= size
        return self.remainder(self.divide(self.device, inner), self.axes[axis])

    def _entry(self, index: Form, base: int) -> Form:
        low, high = self.span(index)
        values = self.tables[base + low : base + high + 1] if low >= 0 else []
        if len(values) == high - low + 1 and values and min(values) == max(values):
            return Form(values[0])
        span = (min(values), max(values)) if values else _WIDE
        atom = Atom(span, self.turns(index), (index,), ExprOp.TABLE, base)
        return self._atom((ExprOp.TABLE, index, base), atom)

    def step(self, forms: Iterable[tuple[Form, int]], modulus: int) -> int | None:
        """By how much the sum of ``form * factor`` grows from each GPU to the next, modulo
        ``modulus``; None where it is not the same for all."""
        step = 0
        total = Form(0)
        for form, factor in forms:
            total = total + form * factor
        for atom, factor in total.terms:
            info = self.atoms[atom]
            if not info.turns:
                continue
            if atom == 0:
                step += factor
            elif factor % modulus:
                return self._listed_step(total, modulus)
        step %= modulus
        return step if step * self.gpus % modulus == 0 else None

    def _listed_step(self, form: Form, modulus: int) -> int | None:
        values = self._values(form)
        if values is None:
            return None
        step = int((values[1].flat[0] - values[0].flat[0]) % modulus)
        gpus = np.arange(self.gpus).reshape([-1] + [1] * (values.ndim - 1))
        same = bool(np.all((values - values[:1] - step * gpus) % modulus == 0))
        return step if same and step * self.gpus % modulus == 0 else None
