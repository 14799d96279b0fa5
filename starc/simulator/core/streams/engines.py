"""Matrix and vector engines."""

from __future__ import annotations

import numpy as np

from starc.simulator.core.compiled import inlined
from starc.simulator.core.observation import executed
from starc.simulator.core.servers import reserve
from starc.simulator.core.streams.opcodes import OP_MATRIX
from starc.simulator.core.streams.tiles import tile_slot
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.numbers import GROUPS, OBSERVED
from starc.simulator.state.servers import MATRIX, SCRATCH_ACCESS, VECTOR


@inlined
def run_engine(s: State, g: Int, w: Int, pc: Int, now: Int) -> Int:
    """Reserves the engine of a MATRIX or VECTOR; returns when it starts."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    operation = s.operations[pc]
    kind = MATRIX if operation["op"] == OP_MATRIX else VECTOR
    work = operation["work"]
    server = s.first[kind] + np.int64(group["cu"])
    start = reserve(s, g, server, np.int64(group["launch"]), now, work)
    end = start + work
    access = np.int64(operation["scratch"])
    if access > 0:
        # Its operands pass the scratch memory meanwhile.
        server = s.first[SCRATCH_ACCESS] + np.int64(group["cu"])
        begin = reserve(s, g, server, np.int64(group["launch"]), now, access)
        start = max(start, begin)
        end = max(end, begin + access)
    first = np.int64(operation["first_use"])
    for k in range(first, first + operation["use_count"]):
        use = s.uses[k]
        tile = s.tiles[tile_slot(s, g, w, np.int64(use["tile"]))]
        if use["writes"] == 1:
            tile["ready"] = end + operation["latency"]
            tile["added"] = end if kind == MATRIX else tile["ready"]
        elif tile["read"] < end:
            tile["read"] = end
    if group["last"] < end:
        group["last"] = end + operation["latency"]
    if s.cfg[OBSERVED] == 1:
        executed(s, g, w, pc, start, end)
    return start
