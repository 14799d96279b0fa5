"""Expressions as Python code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from starc.core.quasi_affine.expressions import (
    Add,
    Const,
    Expression,
    FloorDiv,
    Max,
    Min,
    Mod,
    Mul,
    Table,
    Var,
)


def python_source(e: Expression, names: Mapping[str, str]) -> str:
    """The expression as Python source over integers; ``names`` gives each variable's source."""
    match e:
        case Const():
            return f"({e.value})"
        case Var():
            return names[e.name]
        case Add():
            return f"({python_source(e.left, names)} + {python_source(e.right, names)})"
        case Mul():
            return f"({python_source(e.operand, names)} * {e.factor})"
        case FloorDiv():
            return f"({python_source(e.operand, names)} // {e.divisor})"
        case Mod():
            return f"({python_source(e.operand, names)} % {e.divisor})"
        case Min() | Max():
            function = "min" if isinstance(e, Min) else "max"
            return f"{function}({python_source(e.left, names)}, {python_source(e.right, names)})"
        case Table():
            return f"{e.values!r}[{python_source(e.index, names)}]"


def compiled(e: Expression, variables: Sequence[str]) -> Callable[[Sequence[int]], int]:
    """A fast evaluator over the values of ``variables`` in their order."""
    names = {name: f"v[{i}]" for i, name in enumerate(variables)}
    return eval(f"lambda v: {python_source(e, names)}", {"min": min, "max": max})
