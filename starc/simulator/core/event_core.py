"""The event loop: one calendar per GPU, advanced in windows that messages cannot shorten.

Whatever one GPU sends to another in a window arrives after it, so the GPUs of a window can be
advanced one after the other. A window is the smallest latency between GPUs, or longer where no
GPU can send anything yet: none serves another, and launches that name other devices have not begun.
Long windows keep the state of one GPU in the host's caches. With the
binary heap instead of the calendar the loop takes one event at a time, the earliest of all GPUs.
"""

from __future__ import annotations

import numpy as np

from starc.simulator.core.carriers import on_link
from starc.simulator.core.compiled import apart, compiled, entry, inlined
from starc.simulator.core.event_queue import earliest, heap_pop, pull, put_in_order
from starc.simulator.core.launches.controllers import DONE, SCHEDULED, WAITS_FOR_QUEUE
from starc.simulator.core.launches.dispatch import control_event
from starc.simulator.core.launches.endings import finish_group
from starc.simulator.core.requests.arrivals import acknowledged, arrival
from starc.simulator.core.requests.dies import at_l2, at_port
from starc.simulator.core.requests.gpus import at_xgmi, receive
from starc.simulator.core.requests.slices import slice_read, slice_write
from starc.simulator.core.semaphores import raised
from starc.simulator.core.state_type import prefetch
from starc.simulator.core.streams.step import FINISHED, step
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.counts import STAT_EVENTS, STAT_LOW, STAT_TIME
from starc.simulator.state.numbers import (
    BUCKET_SHIFT,
    BUCKETS,
    CONTROLS,
    DEVICES,
    ENTITIES,
    GPUS,
    GROUPS,
    LOOKAHEAD_PS,
    NEVER,
    POOL,
    QUEUES,
)
from starc.simulator.state.phases import (
    ACKNOWLEDGED,
    AT_CU,
    AT_L2,
    AT_PORT,
    AT_XGMI,
    ON_LINK,
    RAISED,
    SLICE_READ,
    SLICE_WRITE,
)

# Less than a turn of the calendar, so that no event of the heap falls into a window.
LONGEST = (BUCKETS - 2) << BUCKET_SHIFT

# How many buckets ahead the loop looks for the next event, for the host to fetch what it needs.
_AHEAD = 8

# Why the loop returned.
COMPLETE = 0
GROW = 1


@inlined
def request_event(s: State, g: Int, r: Int, phase: Int, now: Int) -> None:
    """The event of a request in its phase."""
    if phase == SLICE_READ:
        slice_read(s, g, r, now)
    elif phase == ON_LINK:
        on_link(s, g, r, now)
    elif phase == AT_PORT:
        at_port(s, g, r, now)
    elif phase == AT_CU:
        arrival(s, g, r, now)
    elif phase == AT_L2:
        at_l2(s, g, r, now)
    elif phase == SLICE_WRITE:
        slice_write(s, g, r, now)
    elif phase == ACKNOWLEDGED:
        acknowledged(s, g, r, now)
    elif phase == AT_XGMI:
        at_xgmi(s, g, r, now)
    elif phase == RAISED:
        raised(s, g, r, now)


@inlined
def process(s: State, g: Int, entity: Int, now: Int) -> None:
    """The event of an entity."""
    s.stats[STAT_EVENTS] += 1
    first = s.cfg[GROUPS] + s.cfg[CONTROLS]
    if entity >= first:
        r = (entity - first) >> 1
        phase = np.int64(s.requests[g * s.cfg[POOL] + r]["phase"])
        if (entity - first) & 1 == 1:
            r = receive(s, g, r, now)
            if r < 0:
                return
            phase = np.int64(ACKNOWLEDGED)
        request_event(s, g, r, phase, now)
    elif entity < s.cfg[GROUPS]:
        if step(s, g, entity, now) == FINISHED:
            finish_group(s, g, entity, now)
    else:
        control_event(s, g, entity - s.cfg[GROUPS], now)


@inlined
def advance(s: State, g: Int, end: Int) -> bool:
    """Runs the events of a GPU before ``end``. False where a pool has to grow first."""
    base = g * s.cfg[ENTITIES]
    first = s.cfg[GROUPS] + s.cfg[CONTROLS]
    bucket = s.gpus[g]["bucket"]
    last = (end - 1) >> BUCKET_SHIFT
    while bucket <= last:
        head = g * BUCKETS + (bucket & (BUCKETS - 1))
        entity = np.int64(s.heads[head])
        if entity < 0:
            bucket += 1
            s.gpus[g]["bucket"] = bucket
            continue
        if bucket != s.gpus[g]["opened"]:
            s.gpus[g]["opened"] = bucket
            if s.events[base + entity]["next"] >= 0:
                entity = put_in_order(s, head, base)
        now = s.events[base + entity]["time"]
        if now >= end:
            break
        if s.stats[STAT_LOW] == 1:
            return False
        following = np.int64(s.events[base + entity]["next"])
        s.heads[head] = following
        ahead = bucket
        while following < 0 and ahead < bucket + _AHEAD:
            ahead += 1
            following = np.int64(s.heads[g * BUCKETS + (ahead & (BUCKETS - 1))])
        if following >= 0:
            prefetch(s.events, base + following)
            if following >= first:
                prefetch(s.requests, g * s.cfg[POOL] + ((following - first) >> 1))
            else:
                prefetch(s.groups, g * s.cfg[GROUPS] + following)
        s.gpus[g]["queued"] -= 1
        s.stats[STAT_TIME] = now
        process(s, g, entity, now)
    return True


@compiled
def window_end(s: State, first: Int) -> Int:
    """The end of the window that begins with the event at ``first``: no message that is sent
    from now on arrives before it."""
    apart()
    sent = first + LONGEST
    if s.cfg[GPUS] == 1:
        # What it sends, to itself as a stand-in, has its place in the calendar at any time.
        return (sent >> BUCKET_SHIFT) << BUCKET_SHIFT
    for g in range(s.cfg[GPUS]):
        if s.gpus[g]["foreign"] > 0:
            sent = first
            break
        for c in range(s.cfg[DEVICES] * QUEUES):
            control = s.controls[g * s.cfg[CONTROLS] + c]
            state = control["state"]
            if state != DONE:
                launch = s.launches[np.int64(control["launch"])]
                if launch["remote"] == 0:
                    sent = min(sent, first + launch["quiet"])
                elif state == SCHEDULED or state == WAITS_FOR_QUEUE:
                    sent = min(sent, max(first, control["next_time"]) + launch["prologue"])
                else:
                    sent = min(sent, first)
    # The end of a bucket, so that a message never falls into one that was read already.
    end = min(sent + s.cfg[LOOKAHEAD_PS], first + LONGEST)
    return (end >> BUCKET_SHIFT) << BUCKET_SHIFT


@entry
def run_calendar(s: State) -> Int:
    """Runs all events, in windows."""
    gpus = s.cfg[GPUS]
    while True:
        first = np.int64(NEVER)
        for g in range(gpus):
            first = min(first, s.gpus[g]["next_time"])
        if first == NEVER:
            return COMPLETE
        end = window_end(s, first)
        for g in range(gpus):
            if s.gpus[g]["next_time"] < end:
                pull(s, g, max(s.gpus[g]["bucket"], first >> BUCKET_SHIFT))
                if not advance(s, g, end):
                    return GROW
                s.gpus[g]["next_time"] = earliest(s, g)


@entry
def run_heap(s: State) -> Int:
    """Runs all events, one at a time from binary heaps."""
    gpus = s.cfg[GPUS]
    while True:
        first = np.int64(NEVER)
        at = np.int64(0)
        for g in range(gpus):
            if s.gpus[g]["next_time"] < first:
                first = s.gpus[g]["next_time"]
                at = np.int64(g)
        if first == NEVER:
            return COMPLETE
        if s.stats[STAT_LOW] == 1:
            return GROW
        base = at * s.cfg[ENTITIES]
        size = s.gpus[at]["heap_size"]
        entity = heap_pop(s.events, s.heap, base, size, base)
        s.gpus[at]["heap_size"] = size - 1
        s.stats[STAT_TIME] = s.events[base + entity]["time"]
        process(s, at, entity, s.events[base + entity]["time"])
        s.gpus[at]["next_time"] = earliest(s, at)
