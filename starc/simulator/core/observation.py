"""What streams do, seen: counts of the engines of compute units, and the log of operations.

Nothing here changes when anything happens. A stream of a template that has several belongs to an
engine, whose work is counted per launch and device. Where a log is kept, every instruction of the
devices that are logged has a row; a load's ends when its last byte has arrived, that of a store or
put when its last byte has left.
"""

from __future__ import annotations

import numpy as np

from starc.backend.program import Engine, Opcode
from starc.simulator.core.compiled import apart, compiled, inlined
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.counts import STAT_LOGGED, STAT_LOW
from starc.simulator.state.engine_counts import (
    AWAITED,
    BUSY,
    COMMAND_NAMES,
    COMMANDS,
    ENGINE_COUNTS,
    FIRST,
    GAPS,
    HELD,
    INSTRUCTIONS,
    LAST,
    MESSAGES,
    MOVE_NAMES,
    MOVES,
    PER_ENGINE,
)
from starc.simulator.state.numbers import DEVICES, DIES_PER_DEVICE, GPUS, GROUPS, LOG, TILE_SLOTS

LOG_SPARE = 4096  # a log with fewer free rows grows before the next event

_LOAD = int(Opcode.LOAD)
_STORE = int(Opcode.STORE)
_PUT = int(Opcode.PUT)
_GET = int(Opcode.GET)
_SIGNAL = int(Opcode.SIGNAL)
_WAIT = int(Opcode.WAIT)
_MATRIX = int(Opcode.MATRIX)
_VECTOR = int(Opcode.VECTOR)
_DELAY = int(Opcode.DELAY)
_ACQUIRE = int(Opcode.ACQUIRE)

_CPU = int(Engine.CPU)
_DMA = int(Engine.DMA)
_GEMM = int(Engine.GEMM)
_MATH = int(Engine.MATH)

_LOADS = MOVES + MOVE_NAMES.index("loads")
_GETS = MOVES + MOVE_NAMES.index("gets")
_STORES = MOVES + MOVE_NAMES.index("stores")
_PUTS = MOVES + MOVE_NAMES.index("puts")
_SIGNALS = MOVES + MOVE_NAMES.index("signals")
_REQUESTS = MOVES + MOVE_NAMES.index("requests")
_RECEIVES = COMMANDS + COMMAND_NAMES.index("receive")


@compiled
def begin_observed(s: State, g: Int, w: Int, engine: Int, streams: Int, time: Int) -> None:
    """A stream begins: that of an engine, or with -1 the only one of its workgroup."""
    apart()
    i = g * s.cfg[GROUPS] + w
    stream = s.observed[i]
    stream["since"] = -1
    stream["begun"] = time
    stream["until"] = time
    stream["flying"] = 0
    stream["engine"] = engine
    stream["row"] = -1
    stream["streams"] = streams
    for t in range(i * s.cfg[TILE_SLOTS], (i + 1) * s.cfg[TILE_SLOTS]):
        s.shared_tiles[t]["sent"] = 0
        s.shared_tiles[t]["releases"] = -1
        s.shared_tiles[t]["row"] = -1


@inlined
def counts_of(s: State, g: Int, w: Int) -> Int:
    """The first count of a stream's launch and device."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    device = g * s.cfg[DEVICES] + np.int64(group["device"])
    launch = np.int64(group["launch"])
    return (launch * s.cfg[GPUS] * s.cfg[DEVICES] + device) * ENGINE_COUNTS


@inlined
def add(s: State, g: Int, w: Int, count: Int, amount: Int) -> None:
    """Adds to a count of a stream's launch and device, where it is that of an engine."""
    if s.observed[g * s.cfg[GROUPS] + w]["engine"] >= 0:
        s.engine_counts[counts_of(s, g, w) + count] += amount


@compiled
def worked(s: State, g: Int, w: Int, start: Int, end: Int) -> None:
    """The engine of a stream has worked, later than all that was counted of it before."""
    apart()
    engine = np.int64(s.observed[g * s.cfg[GROUPS] + w]["engine"])
    if engine < 0 or end <= start:
        return
    i = counts_of(s, g, w) + engine * PER_ENGINE
    s.engine_counts[i + BUSY] += end - start
    if s.engine_counts[i + FIRST] < 0:
        s.engine_counts[i + FIRST] = start
    elif start > s.engine_counts[i + LAST]:
        s.engine_counts[i + GAPS] += 1
    if end > s.engine_counts[i + LAST]:
        s.engine_counts[i + LAST] = end


@compiled
def log(s: State, g: Int, w: Int, pc: Int, start: Int, end: Int) -> Int:
    """Adds a row to the log, and returns its number; -1 where the device is not logged."""
    apart()
    group = s.groups[g * s.cfg[GROUPS] + w]
    device = g * s.cfg[DEVICES] + np.int64(group["device"])
    if s.cfg[LOG] == 0 or s.logged[device] == 0:
        return np.int64(-1)
    number = s.stats[STAT_LOGGED]
    s.stats[STAT_LOGGED] = number + 1
    if number + LOG_SPARE >= s.cfg[LOG]:
        s.stats[STAT_LOW] = 1
    engine = np.int64(s.observed[g * s.cfg[GROUPS] + w]["engine"])
    if engine < 0:
        op = s.operations[pc]["op"]
        engine = np.int64(_DMA)
        if op == _MATRIX:
            engine = np.int64(_GEMM)
        elif op == _VECTOR:
            engine = np.int64(_MATH)
        elif op == _WAIT or op == _DELAY:
            engine = np.int64(_CPU)
    row = s.log[number]
    row["device"] = device
    row["launch"] = group["launch"]
    row["workgroup"] = group["workgroup"]
    row["engine"] = engine
    row["record"] = pc
    row["start_ps"] = start
    row["end_ps"] = end
    return number


@inlined
def lasts(s: State, row: Int, end: Int) -> None:
    """A row of the log ends at ``end`` or later."""
    if row >= 0 and s.log[row]["end_ps"] < end:
        s.log[row]["end_ps"] = end


@inlined
def instruction(s: State, g: Int, w: Int) -> None:
    """Counts an instruction of the engine of a stream."""
    engine = np.int64(s.observed[g * s.cfg[GROUPS] + w]["engine"])
    add(s, g, w, engine * PER_ENGINE + INSTRUCTIONS, 1)


@compiled
def executed(s: State, g: Int, w: Int, pc: Int, start: Int, end: Int) -> None:
    """An instruction of an engine that works from ``start`` to ``end``."""
    apart()
    instruction(s, g, w)
    worked(s, g, w, start, end)
    log(s, g, w, pc, start, end)


@inlined
def moves(s: State, g: Int, w: Int, now: Int) -> None:
    """A DMA moves something from ``now`` on: what it was doing is counted if it has been idle."""
    stream = s.observed[g * s.cfg[GROUPS] + w]
    if stream["flying"] == 0 and stream["until"] < now:
        worked(s, g, w, stream["begun"], stream["until"])
        stream["begun"] = now
        stream["until"] = now


@compiled
def begin_move(s: State, g: Int, w: Int, pc: Int, slot: Int, now: Int) -> None:
    """A load, get, store or put begins to issue; its peer is set."""
    apart()
    op = s.operations[pc]["op"]
    group = s.groups[g * s.cfg[GROUPS] + w]
    instruction(s, g, w)
    row = log(s, g, w, pc, now, now)
    s.observed[g * s.cfg[GROUPS] + w]["row"] = row
    elsewhere = group["peer_gpu"] != g or group["peer"] != group["device"]
    if op == _LOAD or op == _GET:
        s.shared_tiles[slot]["row"] = row
        add(s, g, w, _GETS if elsewhere else _LOADS, 1)
    elif op == _STORE or not elsewhere:
        add(s, g, w, _STORES, 1)
    else:
        add(s, g, w, _PUTS, 1)
        kind = 2
        if group["peer_gpu"] == g:
            here = s.die_places[np.int64(group["die"])]
            there = s.die_places[np.int64(group["peer"]) * s.cfg[DIES_PER_DEVICE]]
            kind = 0 if here == there else 1
        add(s, g, w, MESSAGES + kind, 1)


@compiled
def piece_asked(s: State, g: Int, w: Int, now: Int) -> None:
    """A piece of a load or get is issued."""
    apart()
    moves(s, g, w, now)
    s.observed[g * s.cfg[GROUPS] + w]["flying"] += 1
    add(s, g, w, _REQUESTS, 1)


@compiled
def piece_sent(s: State, g: Int, w: Int, slot: Int, now: Int, end: Int) -> None:
    """A piece of a store or put is issued; it has left at ``end``."""
    apart()
    moves(s, g, w, now)
    stream = s.observed[g * s.cfg[GROUPS] + w]
    stream["until"] = max(stream["until"], end)
    s.shared_tiles[slot]["sent"] = max(s.shared_tiles[slot]["sent"], end)
    lasts(s, np.int64(stream["row"]), end)
    add(s, g, w, _REQUESTS, 1)


@inlined
def piece_came(s: State, g: Int, w: Int, slot: Int, done: Int) -> None:
    """The last byte of a piece of a load arrives at ``done``."""
    stream = s.observed[g * s.cfg[GROUPS] + w]
    stream["flying"] -= 1
    stream["until"] = max(stream["until"], done)
    lasts(s, np.int64(s.shared_tiles[slot]["row"]), done)


@compiled
def signalled(s: State, g: Int, w: Int, pc: Int, now: Int) -> None:
    """A signal is sent."""
    apart()
    instruction(s, g, w)
    add(s, g, w, _SIGNALS, 1)
    log(s, g, w, pc, now, now)


@compiled
def begin_wait(s: State, g: Int, w: Int, now: Int) -> None:
    """A stream comes to something that it has to wait for."""
    apart()
    s.observed[g * s.cfg[GROUPS] + w]["since"] = now


@compiled
def end_wait(s: State, g: Int, w: Int, pc: Int, now: Int) -> None:
    """What a stream has waited for, a counter or a semaphore, is there."""
    apart()
    stream = s.observed[g * s.cfg[GROUPS] + w]
    since = stream["since"]
    stream["since"] = -1
    first = np.int64(stream["engine"]) * PER_ENGINE
    if s.operations[pc]["op"] == _ACQUIRE:
        add(s, g, w, first + HELD, now - since)
    else:
        instruction(s, g, w)
        add(s, g, w, first + AWAITED, now - since)
        if stream["engine"] == _CPU:
            add(s, g, w, _RECEIVES, 1)
    log(s, g, w, pc, since, now)


@compiled
def end_observed(s: State, g: Int, w: Int) -> None:
    """A stream ends: what its DMA was doing last is counted."""
    apart()
    stream = s.observed[g * s.cfg[GROUPS] + w]
    if stream["engine"] == _DMA:
        worked(s, g, w, stream["begun"], stream["until"])
