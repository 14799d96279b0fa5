"""Loops and conditions of streams: which instruction comes next."""

from __future__ import annotations

from typing import Any

import numpy as np

from starc.simulator.core.compiled import inlined
from starc.simulator.core.expressions import evaluate
from starc.simulator.core.streams.opcodes import OP_END_LOOP, OP_IF, OP_LOOP
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.numbers import GROUPS, LOOPS, VARIABLES


@inlined
def turns(s: State, g: Int, w: Int, pc: Int) -> Any:
    """Goes on to the next instruction where the one at ``pc`` is a loop or a condition, or has no
    turn in this iteration of its loop because of its stage; False where it is to be executed."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    operation = s.operations[pc]
    op = operation["op"]
    depth = np.int64(operation["depth"])
    if op == OP_END_LOOP:
        loop = s.loops[(g * s.cfg[GROUPS] + w) * LOOPS + depth]
        loop["trip"] += 1
        group["pc"] = operation["end"] if loop["trip"] < loop["trips"] else pc + 1
        return True
    if depth > 0:
        loop = s.loops[(g * s.cfg[GROUPS] + w) * LOOPS + depth - 1]
        value = loop["lower"] + loop["trip"] - operation["stage"]
        if value < loop["lower"] or value >= loop["upper"]:
            group["pc"] = operation["end"]
            return True
        loop["value"] = value
        s.variables[(g * s.cfg[GROUPS] + w) * VARIABLES + depth] = value
    if op == OP_LOOP:
        runs = begin_loop(s, g, w, pc, depth)
        group["pc"] = pc + 1 if runs else operation["end"]
        return True
    if op == OP_IF:
        holds = evaluate(s, g, w, np.int64(operation["lower"])) >= 0
        group["pc"] = pc + 1 if holds else operation["end"]
        return True
    return False


@inlined
def begin_loop(s: State, g: Int, w: Int, pc: Int, depth: Int) -> Any:
    """The first trip of a loop; False where its range is empty."""
    operation = s.operations[pc]
    loop = s.loops[(g * s.cfg[GROUPS] + w) * LOOPS + depth]
    lower = evaluate(s, g, w, np.int64(operation["lower"]))
    upper = evaluate(s, g, w, np.int64(operation["upper"]))
    loop["lower"] = lower
    loop["upper"] = upper
    loop["value"] = lower
    loop["trip"] = 0
    loop["trips"] = upper - lower + operation["stages"]
    return upper > lower
