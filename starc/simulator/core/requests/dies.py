"""Requests at dies: the L2, and the port to the carrier."""

from __future__ import annotations

from typing import Any

import numpy as np

from starc.simulator.core.carriers import distance, go, port_carrier
from starc.simulator.core.compiled import apart, compiled, inlined
from starc.simulator.core.event_queue import schedule_request as schedule
from starc.simulator.core.memory.l2 import brings, l2_read, l2_write, page_walk, wait_for
from starc.simulator.core.memory.slices import prefetch_slice
from starc.simulator.core.memory.tags import ALL_LINES, population
from starc.simulator.core.memory.turning import seen
from starc.simulator.core.requests.arrivals import cu_of, filled, hit
from starc.simulator.core.requests.transfers import count_logical
from starc.simulator.core.servers import came_by, count, hold_up, reserve, service_of
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.counts import COUNT_DIE, COUNT_L2_HIT, COUNT_L2_MISS
from starc.simulator.state.numbers import (
    DIES,
    DOWN_PS,
    FIRST_MISS_PS,
    GRANULE,
    HAS_L2,
    L2_PS,
    POOL,
    PORT_QUEUE_PS,
    STORE_PS,
    UP_PS,
)
from starc.simulator.state.phases import (
    ACKNOWLEDGED,
    AT_XGMI,
    CLOSED,
    GET_CACHED,
    LOAD,
    LOAD_STREAMED,
    SLICE_READ,
    SLICE_WRITE,
    STORE,
)
from starc.simulator.state.servers import (
    CLASS_L2_READ,
    CLASS_L2_WRITE,
    CLASS_PORT,
    L2_READ,
    L2_WRITE,
    PORT_DOWN,
    PORT_UP,
    UNITS,
)
from starc.simulator.state.watches import SEEN_L2_FILLED, SEEN_L2_HIT, SEEN_L2_MISS, SEEN_L2_PART


@inlined
def read_l2(s: State, g: Int, r: Int, now: Int) -> None:
    """A load at the L2 of its die: data, or a wait for a line that is being filled, or on to
    memory. What bypasses the L2 only passes through it."""
    i = g * s.cfg[POOL] + r
    die = np.int64(s.requests[i]["die"])
    block = np.int64(s.requests[i]["block"])
    size = np.int64(s.requests[i]["bytes"])
    lines = population(np.int64(s.requests[i]["mask"]))
    if size > GRANULE:
        lines += lines
    service = s.service[CLASS_L2_READ * UNITS + 2 * lines]
    sharing = np.int64(s.requests[i]["sharing"])
    if sharing > 1:
        # Each of the workgroups that load together reads its part, and all of them get it.
        service = (service + sharing - 1) // sharing
    start = reserve(s, g, s.first[L2_READ] + die, np.int64(s.requests[i]["launch"]), now, service)
    walk = page_walk(s, g, die, block)
    start += walk
    s.requests[i]["waiters"] = CLOSED
    kind = s.requests[i]["kind"]
    if kind == LOAD or kind == GET_CACHED or kind == LOAD_STREAMED:
        if found_in_l2(s, g, r, start, walk, now):
            return
    s.cus[cu_of(s, g, r)]["missing"] += 1
    s.requests[i]["done"] = 0
    stack = np.int64(s.requests[i]["stack"])
    prefetch_slice(s, g, stack, block)
    if size > GRANULE:
        prefetch_slice(s, g, stack ^ 1, block + 1)
    away = distance(s, np.int64(s.die_carriers[die]), np.int64(s.stack_carriers[stack]))
    schedule(s, g, r, start + s.cfg[UP_PS] + away, SLICE_READ)


@inlined
def found_in_l2(s: State, g: Int, r: Int, start: Int, walk: Int, now: Int) -> Any:
    """Whether an L2 has all that a load asks for, or waits for it; where not, the request brings
    what is missing. The L2 is free for the load at ``start``, of which ``walk`` was for its
    page."""
    i = g * s.cfg[POOL] + r
    die = np.int64(s.requests[i]["die"])
    block = np.int64(s.requests[i]["block"])
    mask = np.int64(s.requests[i]["mask"])
    size = np.int64(s.requests[i]["bytes"])
    launch = np.int64(s.requests[i]["launch"])
    watch = np.int64(s.requests[i]["watch"])
    missing, filler = l2_read(s, g, r, die, block, mask, launch, now)
    missing2 = np.int64(0)
    filler2 = np.int64(-1)
    if size > GRANULE:
        missing2, filler2 = l2_read(s, g, r, die, block + 1, mask, launch, now)
    if missing | missing2 == 0:
        count(s, g, launch, COUNT_L2_HIT, size // np.int64(s.requests[i]["sharing"]))
        if filler < 0:
            filler = filler2
            filler2 = np.int64(-1)
        if watch > 0:
            seen(s, launch, watch, SEEN_L2_HIT if filler < 0 else SEEN_L2_FILLED)
        if filler < 0:
            # Behind a walk, others may come before.
            asked = now if walk == 0 else now - s.cfg[FIRST_MISS_PS]
            hit(s, g, r, start + s.cfg[L2_PS], asked)
        else:
            s.cus[cu_of(s, g, r)]["missing"] += 1
            s.requests[i]["done"] = start + s.cfg[L2_PS]
            # One after the other; nothing is fetched, so the field is free.
            s.requests[i]["fetch2"] = filler2
            wait_for(s, g, r, filler)
        return True
    if watch > 0:
        whole = missing == mask and (size <= GRANULE or missing2 == mask)
        seen(s, launch, watch, SEEN_L2_MISS if whole else SEEN_L2_PART)
    s.requests[i]["waiters"] = -1
    s.requests[i]["fetch"] = population(missing) * 128
    s.requests[i]["fetch2"] = population(missing2) * 128
    count(s, g, launch, COUNT_L2_MISS, size)
    if s.requests[i]["kind"] == GET_CACHED:
        crossing = s.requests[i]["fetch"] + s.requests[i]["fetch2"]
        count_logical(s, g, np.int64(s.requests[i]["group"]), crossing)
    return False


@compiled
def read_memory(s: State, g: Int, r: Int, now: Int) -> None:
    """A read of a copy engine, which stands on a carrier, or of a die without L2: from the memory
    slice to it."""
    i = g * s.cfg[POOL] + r
    stack = np.int64(s.requests[i]["stack"])
    s.requests[i]["waiters"] = CLOSED
    s.requests[i]["done"] = 0
    s.cus[cu_of(s, g, r)]["missing"] += 1
    prefetch_slice(s, g, stack, np.int64(s.requests[i]["block"]))
    home = np.int64(s.die_carriers[np.int64(s.requests[i]["die"])])
    away = distance(s, home, np.int64(s.stack_carriers[stack]))
    schedule(s, g, r, now + s.cfg[UP_PS] + away, SLICE_READ)


@compiled
def at_l2(s: State, g: Int, r: Int, now: Int) -> None:
    """A store at the L2, or a put on its way past it."""
    apart()
    i = g * s.cfg[POOL] + r
    die = np.int64(s.requests[i]["die"])
    size = np.int64(s.requests[i]["bytes"])
    launch = np.int64(s.requests[i]["launch"])
    if s.requests[i]["kind"] == STORE and s.cfg[HAS_L2] == 1:
        block = np.int64(s.requests[i]["block"])
        mask = np.int64(s.requests[i]["mask"])
        lines = population(mask)
        if size > GRANULE:
            lines += lines
        service = s.service[CLASS_L2_WRITE * UNITS + 2 * lines]
        start = reserve(s, g, s.first[L2_WRITE] + die, launch, now, service)
        start += page_walk(s, g, die, block)
        done = max(start + s.cfg[STORE_PS], l2_write(s, g, die, block, mask, launch, now))
        if size > GRANULE:
            done = max(done, l2_write(s, g, die, block + 1, mask, launch, now))
        schedule(s, g, r, done, ACKNOWLEDGED)
        return
    start = now
    if die < s.cfg[DIES] and s.cfg[HAS_L2] == 1:
        service = service_of(s, CLASS_PORT, size)
        start = reserve(s, g, s.first[PORT_UP] + die, launch, now, service)
        count(s, g, launch, COUNT_DIE, size)
        came_by(s, g, r, s.first[PORT_UP] + die)
    else:
        # Of a copy engine, which stands on the carrier, or of a die that is one.
        s.requests[i]["came"] = 0
    s.requests[i]["at"] = s.die_carriers[die]
    peer = np.int64(s.requests[i]["peer"])
    if peer == g:
        s.requests[i]["to"] = s.stack_carriers[np.int64(s.requests[i]["stack"])]
        s.requests[i]["then"] = SLICE_WRITE
    else:
        s.requests[i]["to"] = port_carrier(s, g, peer)
        s.requests[i]["then"] = AT_XGMI
    go(s, g, r, start + s.cfg[UP_PS])


@inlined
def at_port(s: State, g: Int, r: Int, now: Int) -> None:
    """Data at the port of the die that asked: into the L2, and on to all who wait for them."""
    i = g * s.cfg[POOL] + r
    die = np.int64(s.requests[i]["die"])
    size = np.int64(s.requests[i]["fetch"]) + np.int64(s.requests[i]["fetch2"])
    launch = np.int64(s.requests[i]["launch"])
    start = now
    if die < s.cfg[DIES] and s.cfg[HAS_L2] == 1:
        service = service_of(s, CLASS_PORT, size)
        hold_up(s, g, r, s.first[PORT_DOWN] + die, PORT_QUEUE_PS, now)
        start = reserve(s, g, s.first[PORT_DOWN] + die, launch, now, service)
        count(s, g, launch, COUNT_DIE, size)
    time = start + s.cfg[DOWN_PS]
    waiter = np.int64(s.requests[i]["waiters"])
    s.requests[i]["waiters"] = CLOSED
    filled(s, g, r, time, now)
    while waiter >= 0:
        j = g * s.cfg[POOL] + waiter
        following = np.int64(s.requests[j]["next"])
        other = np.int64(s.requests[j]["fetch2"])
        s.requests[j]["fetch2"] = -1
        behind = np.int64(s.requests[j]["block"]) + 1
        if other >= 0 and brings(s, g, other, die, behind, np.int64(ALL_LINES)):
            wait_for(s, g, waiter, other)
        else:
            filled(s, g, waiter, time, now)
        waiter = following
