"""Values of quasi-affine expressions: constants, sums of products, and everything else."""

from __future__ import annotations

import numpy as np

from starc.backend.program import ExprOp
from starc.simulator.core.compiled import apart, compiled, inlined
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.numbers import GROUPS, VARIABLES
from starc.simulator.state.program_records import AFFINE, CONSTANT

_ADD = int(ExprOp.ADD)
_MUL = int(ExprOp.MUL)
_FLOORDIV = int(ExprOp.FLOORDIV)
_MOD = int(ExprOp.MOD)
_MIN = int(ExprOp.MIN)
_MAX = int(ExprOp.MAX)
_TABLE = int(ExprOp.TABLE)
_CONST = int(ExprOp.CONST)
_VAR = int(ExprOp.VAR)


@compiled
def general(s: State, variables: Int, first: Int, total: Int) -> Int:
    """The value of the last of ``total`` nodes, each of which names earlier ones."""
    apart()
    value = np.int64(0)
    for i in range(total):
        node = s.nodes[first + i]
        op = node["op"]
        if op == _CONST:
            value = node["imm"]
        elif op == _VAR:
            value = s.variables[variables + node["imm"]]
        else:
            left = s.scratch[node["l"]]
            if op == _ADD:
                value = left + s.scratch[node["r"]]
            elif op == _MUL:
                value = left * node["imm"]
            elif op == _FLOORDIV:
                value = left // node["imm"]
            elif op == _MOD:
                value = left - (left // node["imm"]) * node["imm"]
            elif op == _MIN:
                value = min(left, s.scratch[node["r"]])
            elif op == _MAX:
                value = max(left, s.scratch[node["r"]])
            elif op == _TABLE:
                value = s.tables[node["imm"] + left]
        s.scratch[i] = value
    return value


@inlined
def evaluate(s: State, g: Int, w: Int, index: Int) -> Int:
    """The value of an expression for a workgroup; an absent one (-1) is 0."""
    if index < 0:
        return np.int64(0)
    expression = s.expressions[index]
    kind = expression["kind"]
    value = expression["constant"]
    if kind == CONSTANT:
        return value
    variables = (g * s.cfg[GROUPS] + w) * VARIABLES
    first = np.int64(expression["first"])
    if kind == AFFINE:
        for i in range(first, first + expression["count"]):
            value += s.terms[i]["factor"] * s.variables[variables + s.terms[i]["variable"]]
        return value
    return general(s, variables, first, np.int64(expression["count"]))
