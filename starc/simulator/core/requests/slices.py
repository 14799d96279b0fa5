"""Requests at memory slices: reads, writes, and the counters that signals raise."""

from __future__ import annotations

import numpy as np

from starc.simulator.core.carriers import arrival_carrier, distance, go, port_carrier
from starc.simulator.core.compiled import apart, compiled, inlined
from starc.simulator.core.event_queue import schedule_control, schedule_group
from starc.simulator.core.event_queue import schedule_request as schedule
from starc.simulator.core.memory.l2 import forget_elsewhere
from starc.simulator.core.memory.slices import deposit, fetch
from starc.simulator.core.memory.stacks import channel_of, read_scratch, write_scratch
from starc.simulator.core.memory.turning import seen
from starc.simulator.core.requests.gpus import send
from starc.simulator.core.servers import came_by, count, free_request, service_of
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.counts import COUNT_REMOTE, STAT_FOUND, STAT_TURNS
from starc.simulator.state.numbers import (
    CARRIERS,
    CONTROLS,
    COUNTERS,
    DEVICES,
    DIES,
    DOWN_PS,
    GRANULE,
    GROUPS,
    HAS_L2,
    MALL_WAYS,
    NODE_GPUS,
    POLL_PS,
    POOL,
    RETAINS,
    SLICE_PS,
    STACKS,
)
from starc.simulator.state.phases import (
    ACKNOWLEDGED,
    AT_PORT,
    AT_XGMI,
    MESSAGE_ACKNOWLEDGE,
    PUT_ADDED,
    SIGNAL,
    WRITE_BACK,
)
from starc.simulator.state.servers import CLASS_NOC, SLICE
from starc.simulator.state.watches import FIRST_STAY


@inlined
def slice_read(s: State, g: Int, r: Int, now: Int) -> None:
    """A read at its memory slice, or at both slices of a carrier: data leave when both have
    theirs."""
    i = g * s.cfg[POOL] + r
    stack = np.int64(s.requests[i]["stack"])
    block = np.int64(s.requests[i]["block"])
    size = np.int64(s.requests[i]["fetch"])
    size2 = np.int64(s.requests[i]["fetch2"])
    mask = np.int64(s.requests[i]["mask"])
    launch = np.int64(s.requests[i]["launch"])
    watch = np.int64(s.requests[i]["watch"])
    s.stats[STAT_TURNS] = 1 if 0 < watch < FIRST_STAY else 0
    out = now
    if stack >= s.cfg[STACKS]:
        out = read_scratch(s, g, stack, size, launch, now)
    elif size > 0:
        out = fetch(s, g, stack, block, size, mask, launch, now)
        if watch > 0:
            seen(s, launch, watch, s.stats[STAT_FOUND])
    if size2 > 0:
        out = max(out, fetch(s, g, stack ^ 1, block + 1, size2, mask, launch, now))
        size += size2
        if watch > 0:
            seen(s, launch, watch, s.stats[STAT_FOUND])
    carrier = np.int64(s.stack_carriers[stack])
    server = s.first[SLICE] + stack if s.cfg[MALL_WAYS] > 0 else channel_of(s, stack)
    came_by(s, g, r, server)
    s.requests[i]["at"] = carrier
    if s.requests[i]["origin"] >= 0:
        s.requests[i]["to"] = port_carrier(s, g, np.int64(s.requests[i]["peer"]))
        s.requests[i]["then"] = AT_XGMI
    else:
        home = np.int64(s.die_carriers[np.int64(s.requests[i]["die"])])
        s.requests[i]["to"] = home
        s.requests[i]["then"] = AT_PORT
        if home != carrier and stack < s.cfg[STACKS]:
            count(s, g, launch, COUNT_REMOTE, size)
    go(s, g, r, out + s.cfg[SLICE_PS])


@compiled
def slice_write(s: State, g: Int, r: Int, now: Int) -> None:
    """A write at its memory slice, through the cache to the stack. A put is performed, and a
    signal raises its counter, when the stack has taken the last byte."""
    apart()
    i = g * s.cfg[POOL] + r
    size = np.int64(s.requests[i]["bytes"])
    kind = s.requests[i]["kind"]
    block = np.int64(s.requests[i]["block"])
    mask = np.int64(s.requests[i]["mask"])
    performed = perform(s, g, r, now)
    if s.cfg[HAS_L2] == 0:
        # No byte is there before the last link has passed it on.
        performed = max(performed, now + passed_on(s, g, r, size))
    if s.cfg[RETAINS] == 1:
        writer = np.int64(s.requests[i]["die"]) if kind == WRITE_BACK else np.int64(-1)
        forget_elsewhere(s, g, writer, block, mask)
        if size > GRANULE:
            forget_elsewhere(s, g, writer, block + 1, mask)
    if kind == WRITE_BACK:
        end_write_back(s, g, r, performed)
        return
    if kind == SIGNAL:
        raise_counter(s, g, r, performed)
    if s.requests[i]["origin"] < 0:
        acknowledge(s, g, r, performed)
    else:
        acknowledge_elsewhere(s, g, r, performed)


@inlined
def perform(s: State, g: Int, r: Int, now: Int) -> Int:
    """Writes what a request carries, or adds it, and returns when that is done. What is added to
    is read first, from the cache in front of the stack or behind it. Its place among the writes is
    taken now: nothing is reserved for later."""
    i = g * s.cfg[POOL] + r
    stack = np.int64(s.requests[i]["stack"])
    size = np.int64(s.requests[i]["bytes"])
    launch = np.int64(s.requests[i]["launch"])
    block = np.int64(s.requests[i]["block"])
    mask = np.int64(s.requests[i]["mask"])
    watch = np.int64(s.requests[i]["watch"])
    s.stats[STAT_TURNS] = 1 if 0 < watch < FIRST_STAY else 0
    adds = s.requests[i]["kind"] == PUT_ADDED
    if stack >= s.cfg[STACKS]:
        times = np.int64(2) if adds else np.int64(1)
        return write_scratch(s, g, stack, size, times, launch, now)
    there = now
    if adds:
        there = fetch(s, g, stack, block, min(size, np.int64(GRANULE)), mask, launch, now)
        if size > GRANULE:
            more = size - GRANULE
            there = max(there, fetch(s, g, stack ^ 1, block + 1, more, mask, launch, now))
    if size > GRANULE:
        performed = deposit(s, g, stack, block, np.int64(GRANULE), mask, launch, now)
        behind = deposit(s, g, stack ^ 1, block + 1, np.int64(GRANULE), mask, launch, now)
        performed = max(performed, behind)
    else:
        performed = deposit(s, g, stack, block, size, mask, launch, now)
    return max(performed, there)


@inlined
def end_write_back(s: State, g: Int, r: Int, performed: Int) -> None:
    """A write-back is performed: its dispatcher, if one waits for it, knows."""
    i = g * s.cfg[POOL] + r
    control = np.int64(s.requests[i]["slot"])
    die = g * s.cfg[DIES] + np.int64(s.requests[i]["die"])
    s.written_back[die] = max(s.written_back[die], performed)
    free_request(s, g, r)
    if control >= 0:
        c = g * s.cfg[CONTROLS] + control
        s.controls[c]["remaining"] -= 1
        s.controls[c]["next_time"] = max(s.controls[c]["next_time"], performed)
        if s.controls[c]["remaining"] == 0:
            schedule_control(s, g, control, s.controls[c]["next_time"])


@inlined
def acknowledge(s: State, g: Int, r: Int, performed: Int) -> None:
    """Tells the workgroup, of the same GPU, that its write is performed."""
    i = g * s.cfg[POOL] + r
    stack = np.int64(s.requests[i]["stack"])
    carrier = np.int64(s.stack_carriers[stack])
    home = np.int64(s.die_carriers[np.int64(s.requests[i]["die"])])
    if home != carrier and stack < s.cfg[STACKS]:
        launch, size = np.int64(s.requests[i]["launch"]), np.int64(s.requests[i]["bytes"])
        count(s, g, launch, COUNT_REMOTE, size)
    back = distance(s, carrier, home)
    schedule(s, g, r, performed + s.cfg[DOWN_PS] + back, ACKNOWLEDGED)


@inlined
def acknowledge_elsewhere(s: State, g: Int, r: Int, performed: Int) -> None:
    """Tells the GPU that sent a write that it is performed."""
    i = g * s.cfg[POOL] + r
    carrier = np.int64(s.stack_carriers[np.int64(s.requests[i]["stack"])])
    peer = np.int64(s.requests[i]["peer"])
    away = distance(s, carrier, port_carrier(s, g, peer))
    home = np.int64(s.die_carriers[np.int64(s.requests[i]["die"])])
    away += distance(s, arrival_carrier(s, g, peer), home)
    time = performed + s.cfg[DOWN_PS] + away
    time += np.int64(s.gpu_ways[g * s.cfg[NODE_GPUS] + peer])
    send(s, g, r, peer, time, MESSAGE_ACKNOWLEDGE, np.int64(s.requests[i]["origin"]))
    free_request(s, g, r)
    s.gpus[g]["foreign"] -= 1


@compiled
def passed_on(s: State, g: Int, r: Int, size: Int) -> Int:
    """How long a link takes for what a device has sent to another one."""
    apart()
    i = g * s.cfg[POOL] + r
    if s.requests[i]["origin"] >= 0:
        return service_of(s, CLASS_NOC, size)
    home = np.int64(s.die_carriers[np.int64(s.requests[i]["die"])])
    there = np.int64(s.stack_carriers[np.int64(s.requests[i]["stack"])])
    if home == there:
        return np.int64(0)
    first = np.int64(s.routes[home * s.cfg[CARRIERS] + there])
    return service_of(s, np.int64(s.link_classes[first]), size)


@compiled
def raise_counter(s: State, g: Int, r: Int, performed: Int) -> None:
    """Adds a signal to its counter and wakes the workgroups whose wait that ends: one latency
    after it is performed."""
    apart()
    i = g * s.cfg[POOL] + r
    counter = g * s.cfg[DEVICES] * s.cfg[COUNTERS] + np.int64(s.requests[i]["slot"])
    s.counters[counter] += np.int64(s.requests[i]["fetch"])
    carrier = np.int64(s.stack_carriers[np.int64(s.requests[i]["stack"])])
    w = np.int64(s.counter_waiters[counter])
    s.counter_waiters[counter] = -1
    while w >= 0:
        j = g * s.cfg[GROUPS] + w
        following = np.int64(s.groups[j]["next_waiter"])
        if s.counters[counter] >= s.groups[j]["value"]:
            home = np.int64(s.die_carriers[np.int64(s.groups[j]["die"])])
            s.groups[j]["blocked"] = 0
            s.groups[j]["slept"] = 1
            poll = s.cfg[POLL_PS] + 2 * distance(s, carrier, home)
            schedule_group(s, g, w, performed + poll)
        else:
            s.groups[j]["next_waiter"] = s.counter_waiters[counter]
            s.counter_waiters[counter] = w
        w = following
