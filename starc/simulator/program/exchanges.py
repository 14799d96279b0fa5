"""Kernels that only move data, whose accesses pass the order of the caches."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from starc.backend.program import Opcode, Program
from starc.backend.rows import engine_templates
from starc.simulator.state.arrays import Array
from starc.simulator.state.program_records import STREAMED


def exchanges(program: Program) -> frozenset[int]:
    """The templates of kernels that only move data between devices, and add them up."""
    kinds: dict[int, set[str]] = defaultdict(set)
    for launch, kind in zip(program.launches, program.launch_kinds, strict=True):
        first = int(launch["first_part"])
        for part in program.parts[first : first + int(launch["parts"])]:
            kinds[int(part["template"])].add(kind)
    return frozenset(t for t, found in kinds.items() if found == {"collective"})


def stream_exchanges(program: Program, operations: Array) -> None:
    """Exchanges take what they send and leave what they get past the order of the L2: a load that
    hits does not refresh its line, one that misses leaves none, and a store goes to memory, as the
    puts of the others do. Nobody uses the same bytes again soon."""
    for t in exchanges(program):
        info = program.templates[t]
        rows = operations[info.first_record : info.first_record + info.records]
        rows["uncached"][(rows["op"] == Opcode.LOAD) & (rows["uncached"] == 0)] = STREAMED
        rows["op"][rows["op"] == Opcode.STORE] = Opcode.PUT


def pass_caches(program: Program, operations: Array) -> None:
    """Copy engines read and write memory, past the L2s."""
    for t in engine_templates(program):
        info = program.templates[t]
        rows = operations[info.first_record : info.first_record + info.records]
        rows["uncached"][np.isin(rows["op"], (Opcode.LOAD, Opcode.GET))] = 1
        rows["op"][rows["op"] == Opcode.STORE] = Opcode.PUT
