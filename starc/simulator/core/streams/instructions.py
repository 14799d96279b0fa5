"""Instructions of streams. Each returns False where the stream waits; where it goes on at once,
what is next stands in the stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from starc.simulator.core.compiled import inlined
from starc.simulator.core.event_queue import schedule_group
from starc.simulator.core.expressions import evaluate
from starc.simulator.core.observation import begin_move, begin_wait, end_wait, executed, signalled
from starc.simulator.core.semaphores import acquire, release, release_behind
from starc.simulator.core.streams.engines import run_engine
from starc.simulator.core.streams.memory_operations import begin_memory, issue_signal
from starc.simulator.core.streams.opcodes import (
    OP_ACQUIRE,
    OP_DELAY,
    OP_GET,
    OP_LOAD,
    OP_MATRIX,
    OP_PUT,
    OP_RELEASE,
    OP_SIGNAL,
    OP_STORE,
    OP_VECTOR,
    OP_WAIT,
)
from starc.simulator.core.streams.peers import set_peer, stand_in, stands_in
from starc.simulator.core.streams.tiles import memory_tile_time, operands_time, tile_slot
from starc.simulator.core.waits import ON_COUNTER, ON_RELEASE
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.counts import STAT_INSTRUCTIONS
from starc.simulator.state.numbers import COUNTERS, DEVICES, GROUPS, NODE_GPUS, OBSERVED, POLL_PS


@inlined
def execute(s: State, g: Int, w: Int, pc: Int, now: Int) -> Any:
    """Executes an instruction that is neither a loop nor a condition."""
    op = s.operations[pc]["op"]
    if op == OP_LOAD or op == OP_GET or op == OP_STORE or op == OP_PUT:
        return move(s, g, w, pc, now)
    if op == OP_MATRIX or op == OP_VECTOR:
        return compute(s, g, w, pc, now)
    if op == OP_SIGNAL:
        return signal(s, g, w, pc, now)
    if op == OP_WAIT:
        return wait(s, g, w, pc, now)
    if op == OP_DELAY:
        return delay(s, g, w, pc, now)
    if op == OP_ACQUIRE and not acquire(s, g, w, pc, now):
        return False
    if op == OP_RELEASE and not is_released(s, g, w, pc, now):
        return False
    s.groups[g * s.cfg[GROUPS] + w]["pc"] += 1
    return True


@inlined
def is_there(s: State, g: Int, w: Int, time: Int, now: Int) -> Any:
    """Whether what a stream needs is there now; where not, it waits for ``time``, or, where that
    is negative, for somebody to wake it."""
    if time > now:
        schedule_group(s, g, w, time)
    return 0 <= time <= now


@inlined
def move(s: State, g: Int, w: Int, pc: Int, now: Int) -> Any:
    """A load, get, store or put, whose pieces are issued next."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    if not is_there(s, g, w, memory_tile_time(s, g, w, pc, now), now):
        return False
    s.stats[STAT_INSTRUCTIONS] += 1
    begun = begin_memory(s, g, w, pc, np.int64(group["slot"]))
    if s.cfg[OBSERVED] == 1:
        begin_move(s, g, w, pc, np.int64(group["slot"]), now)
    if begun:
        group["issuing"] = 1
    else:
        group["pc"] += 1
    return True


@inlined
def compute(s: State, g: Int, w: Int, pc: Int, now: Int) -> Any:
    """A product, or a function of an engine: the stream goes on when the engine begins."""
    if not is_there(s, g, w, operands_time(s, g, w, pc, now), now):
        return False
    s.stats[STAT_INSTRUCTIONS] += 1
    start = run_engine(s, g, w, pc, now)
    s.groups[g * s.cfg[GROUPS] + w]["pc"] += 1
    return is_there(s, g, w, start, now)


@inlined
def signal(s: State, g: Int, w: Int, pc: Int, now: Int) -> Any:
    """Behind the writes of the stream, unless it comes with them."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    operation = s.operations[pc]
    if group["writes"] > 0 and operation["uncached"] == 0:
        group["blocked"] = ON_RELEASE
        return False
    s.stats[STAT_INSTRUCTIONS] += 1
    set_peer(s, g, w, np.int64(operation["peer"]))
    other = stands_in(s, g, w)
    if other:
        stand_in(s, g, w, s.cfg[NODE_GPUS] - group["peer_gpu"])
    element = evaluate(s, g, w, np.int64(operation["lower"]))
    if other:
        stand_in(s, g, w, g)
    amount = np.int64(1)
    if operation["upper"] >= 0:
        amount = evaluate(s, g, w, np.int64(operation["upper"]))
    counter = s.counter_bases[np.int64(operation["buffer"])] + element
    issue_signal(s, g, w, counter, amount, np.int64(operation["uncached"]), now)
    if s.cfg[OBSERVED] == 1:
        signalled(s, g, w, pc, now)
    group["pc"] += 1
    return True


@inlined
def wait(s: State, g: Int, w: Int, pc: Int, now: Int) -> Any:
    """For a counter: a stream that finds it high enough sleeps for as long as it takes to see."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    operation = s.operations[pc]
    if group["slept"] == 1:
        group["slept"] = 0
        s.stats[STAT_INSTRUCTIONS] += 1
        if s.cfg[OBSERVED] == 1:
            end_wait(s, g, w, pc, now)
        group["pc"] += 1
        return True
    if s.cfg[OBSERVED] == 1:
        begin_wait(s, g, w, now)
    element = evaluate(s, g, w, np.int64(operation["lower"]))
    counter = s.counter_bases[np.int64(operation["buffer"])] + element
    counter += (g * s.cfg[DEVICES] + np.int64(group["device"])) * s.cfg[COUNTERS]
    value = evaluate(s, g, w, np.int64(operation["upper"]))
    if s.counters[counter] >= value:
        group["slept"] = 1
        schedule_group(s, g, w, now + s.cfg[POLL_PS])
        return False
    group["value"] = value
    group["waiting"] = counter
    group["blocked"] = ON_COUNTER
    group["next_waiter"] = s.counter_waiters[counter]
    s.counter_waiters[counter] = w
    return False


@inlined
def delay(s: State, g: Int, w: Int, pc: Int, now: Int) -> Any:
    """The stream sleeps for a time."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    work = s.operations[pc]["work"]
    if group["slept"] == 0:
        group["slept"] = 1
        schedule_group(s, g, w, now + work)
        return False
    group["slept"] = 0
    s.stats[STAT_INSTRUCTIONS] += 1
    if s.cfg[OBSERVED] == 1:
        executed(s, g, w, pc, now - work, now)
    group["pc"] += 1
    return True


@inlined
def is_released(s: State, g: Int, w: Int, pc: Int, now: Int) -> Any:
    """Raises a semaphore behind a tile, for which the stream does not wait, or behind all that it
    has done, for which it does."""
    tile = np.int64(s.operations[pc]["tile"])
    if tile >= 0:
        release_behind(s, g, w, pc, tile_slot(s, g, w, tile), now)
        return True
    return is_there(s, g, w, release(s, g, w, pc, now), now)
