"""Tile slots of streams: which is in use, and when it is ready."""

from __future__ import annotations

import numpy as np

from starc.simulator.core.compiled import inlined
from starc.simulator.core.streams.opcodes import OP_GET, OP_LOAD, OP_MATRIX
from starc.simulator.core.waits import ON_TILE
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.numbers import GROUPS, LOOPS, TILE_SLOTS


@inlined
def tile_slot(s: State, g: Int, w: Int, tile: Int) -> Int:
    """The state of a tile's slot in use: by the iteration of the loop that the tile turns with.
    Streams of a workgroup use the tiles of its first one."""
    info = s.tile_infos[tile]
    slot = np.int64(info["base"])
    if info["slots"] > 1 and info["depth"] > 0:
        loop = s.loops[(g * s.cfg[GROUPS] + w) * LOOPS + info["depth"] - 1]
        slot += (loop["value"] - loop["lower"]) % info["slots"]
    lead = np.int64(s.groups[g * s.cfg[GROUPS] + w]["lead"])
    return (g * s.cfg[GROUPS] + lead) * s.cfg[TILE_SLOTS] + slot


@inlined
def operands_time(s: State, g: Int, w: Int, pc: Int, now: Int) -> Int:
    """When the tiles of a MATRIX or VECTOR are ready and free to be overwritten; -1 while one of
    them is still arriving, which the stream then waits for."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    op = s.operations[pc]
    first = np.int64(op["first_use"])
    time = now
    for k in range(first, first + op["use_count"]):
        use = s.uses[k]
        slot = tile_slot(s, g, w, np.int64(use["tile"]))
        tile = s.tiles[slot]
        if tile["pending"] > 0:
            group["blocked"] = ON_TILE
            group["waiting"] = slot
            return np.int64(-1)
        ready = tile["ready"]
        if op["op"] == OP_MATRIX and use["writes"] == 1:
            # A product that is added to another follows it at once.
            if tile["added"] + op["latency"] == ready:
                ready = tile["added"]
        if time < ready:
            time = ready
        if use["writes"] == 1 and time < tile["read"]:
            time = tile["read"]
    return time


@inlined
def memory_tile_time(s: State, g: Int, w: Int, pc: Int, now: Int) -> Int:
    """When the tile of a memory operation is ready (and, for a load, free to be overwritten);
    -1 while it is still arriving. ``slot`` of the group names it."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    slot = tile_slot(s, g, w, np.int64(s.operations[pc]["tile"]))
    group["slot"] = slot
    tile = s.tiles[slot]
    if tile["pending"] > 0:
        group["blocked"] = ON_TILE
        group["waiting"] = slot
        return np.int64(-1)
    time = max(now, tile["ready"])
    op = s.operations[pc]["op"]
    if (op == OP_LOAD or op == OP_GET) and time < tile["read"]:
        time = tile["read"]
    return time
