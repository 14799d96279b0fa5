"""Requests on their way: L2, ports of dies, the ring of carriers, memory slices, links of GPUs.

A request is one piece of a tile: a granule or less, or two granules on the two stacks of a carrier
(``bytes`` says which), which is served when both are. A server whose arrivals can come from more
than one place has an event of its own; one that is fed by a single predecessor at a constant
offset is reserved in that predecessor's event. The head of a request moves on while its tail is
still served (cut-through), but a link between GPUs passes on whole requests.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from starc.simulator.caches import (
    ALL_LINES,
    DIRTY,
    TAG_SHIFT,
    WAY_BITS,
    WAYS,
    l2_set,
    mall_set,
    population,
    touch,
)
from starc.simulator.compiled import compiled, inlined
from starc.simulator.event_queue import enter, request_key, schedule_control, schedule_group
from starc.simulator.event_queue import schedule_request as schedule
from starc.simulator.pieces import GRANULE
from starc.simulator.state import (
    CARRIERS,
    CLASS_HBM,
    CLASS_L2_READ,
    CLASS_L2_WRITE,
    CLASS_LINK,
    CLASS_PORT,
    CLASS_SLICE,
    CLASS_XGMI,
    CONTROLS,
    COUNT_DIE,
    COUNT_HBM_READ,
    COUNT_HBM_WRITE,
    COUNT_L2_HIT,
    COUNT_L2_MISS,
    COUNT_MALL_HIT,
    COUNT_REMOTE,
    COUNT_SLICE,
    COUNT_USR,
    COUNT_USR_LINKS,
    COUNT_XGMI,
    COUNTERS,
    COUNTS,
    DEVICES,
    DIES,
    DOMAIN_BLOCKS,
    DOMAIN_SHIFT,
    DOWN_PS,
    ENTITIES,
    GPUS,
    GROUPS,
    HBM,
    HBM_PS,
    HOP_PS,
    L2_PS,
    L2_READ,
    L2_SETS,
    L2_WRITE,
    LINK,
    MALL_SETS,
    POLL_PS,
    POOL,
    PORT_DOWN,
    PORT_UP,
    PORTS,
    SERVERS,
    SLICE,
    SLICE_PS,
    STAT_LOW,
    STORE_PS,
    UNITS,
    UP_PS,
    XGMI,
    XGMI_PS,
    Int,
    State,
)
from starc.simulator.state_type import prefetch

# Kinds of requests.
LOAD = 0
LOAD_UNCACHED = 1
STORE = 2
PUT = 3
SIGNAL = 4
WRITE_BACK = 5
GET = 6

# Phases of a request, and what a message carries.
SLICE_READ = 0
ON_LINK = 1
AT_PORT = 2
AT_CU = 3
AT_L2 = 4
SLICE_WRITE = 5
AT_XGMI = 6
ACKNOWLEDGED = 7
WAITING = 8
MESSAGE_WRITE = 9
MESSAGE_READ = 10
MESSAGE_DATA = 11
MESSAGE_ACKNOWLEDGE = 12

CLOSED = -2  # no request can wait for this one any more
LOW = 16  # a pool with fewer free entries grows before the next event
SIGNAL_BYTES = 64


@inlined
def reserve(s: State, g: Int, server: Int, launch: Int, now: Int, service: Int) -> Int:
    """Takes a server for ``service`` picoseconds from its first free time after ``now`` on, and
    returns that time."""
    i = g * s.cfg[SERVERS] + server
    start = s.free[i]
    if start < now:
        start = now
    s.free[i] = start + service
    s.work[launch * s.cfg[GPUS] * s.cfg[SERVERS] + i] += service
    return start


@inlined
def count(s: State, g: Int, launch: Int, counter: Int, amount: Int) -> None:
    """Adds to a byte counter."""
    s.counts[(launch * s.cfg[GPUS] + g) * COUNTS + counter] += amount


@inlined
def service_of(s: State, kind: Int, size: Int) -> Int:
    """Service time of ``size`` bytes in units of 64."""
    return s.service[kind * UNITS + ((size + 63) >> 6)]


@inlined
def new_request(s: State, g: Int) -> Int:
    """Takes a request from the pool of a GPU."""
    r = s.gpus[g]["free_request"]
    s.gpus[g]["free_request"] = np.int64(s.requests[g * s.cfg[POOL] + r]["next"])
    s.gpus[g]["free_requests"] -= 1
    if s.gpus[g]["free_requests"] < LOW:
        s.stats[STAT_LOW] = 1
    return r


@inlined
def free_request(s: State, g: Int, r: Int) -> None:
    """Gives a request back."""
    s.requests[g * s.cfg[POOL] + r]["next"] = s.gpus[g]["free_request"]
    s.gpus[g]["free_request"] = r
    s.gpus[g]["free_requests"] += 1


@compiled
def send(s: State, g: Int, r: Int, to: Int, time: Int, phase: Int, origin: Int) -> None:
    """Sends request ``r`` of GPU ``g`` to GPU ``to``, where it arrives at ``time``. ``origin`` is
    the request of the GPU that began the transfer; its number, alive as long as the message, makes
    the message's place among events of the same time the same in every order of execution."""
    m = s.gpus[to]["free_message"]
    i = to * s.cfg[POOL] + m
    s.gpus[to]["free_message"] = np.int64(s.messages[i]["next"])
    s.gpus[to]["free_messages"] -= 1
    if s.gpus[to]["free_messages"] < LOW:
        s.stats[STAT_LOW] = 1
    s.messages[i] = s.requests[g * s.cfg[POOL] + r]
    s.messages[i]["phase"] = phase
    s.messages[i]["origin"] = origin
    s.messages[i]["peer"] = g
    s.gpus[to]["foreign"] += 1
    entity = s.cfg[GROUPS] + s.cfg[CONTROLS] + 2 * m + 1
    event = to * s.cfg[ENTITIES] + entity
    relative = (g - to + s.cfg[GPUS]) % s.cfg[GPUS]
    s.events[event]["time"] = time
    s.events[event]["key"] = request_key(s, origin) | relative
    enter(s, to, entity, time)


@inlined
def port_carrier(s: State, g: Int, peer: Int) -> Int:
    """The carrier whose port leads from GPU ``g`` to GPU ``peer``."""
    return np.int64(s.port_carriers[(peer - g + s.cfg[PORTS]) % s.cfg[PORTS]])


@inlined
def distance(s: State, a: Int, b: Int) -> Int:
    """Carrier links between two carriers."""
    return np.int64(s.hops[a * s.cfg[CARRIERS] + b])


@inlined
def go(s: State, g: Int, r: Int, time: Int) -> None:
    """Starts a request whose data are at carrier ``at`` on its way around the ring."""
    i = g * s.cfg[POOL] + r
    if s.requests[i]["at"] == s.requests[i]["to"]:
        schedule(s, g, r, time, np.int64(s.requests[i]["then"]))
    else:
        count(s, g, np.int64(s.requests[i]["launch"]), COUNT_USR, np.int64(s.requests[i]["bytes"]))
        schedule(s, g, r, time, ON_LINK)


@compiled
def on_link(s: State, g: Int, r: Int, now: Int) -> None:
    """Over one link of the ring: the shorter way, diagonals alternate by an address bit."""
    i = g * s.cfg[POOL] + r
    at = np.int64(s.requests[i]["at"])
    to = np.int64(s.requests[i]["to"])
    size = np.int64(s.requests[i]["bytes"])
    launch = np.int64(s.requests[i]["launch"])
    way = np.int64(s.routes[at * s.cfg[CARRIERS] + to])
    if way == 2:
        way = (np.int64(s.requests[i]["block"]) >> 3) & 1
    service = service_of(s, CLASS_LINK, size)
    start = reserve(s, g, s.first[LINK] + 2 * at + way, launch, now, service)
    count(s, g, launch, COUNT_USR_LINKS, size)
    at = (at + 1 - 2 * way + s.cfg[CARRIERS]) % s.cfg[CARRIERS]
    s.requests[i]["at"] = at
    if at == to:
        schedule(s, g, r, start + s.cfg[HOP_PS], np.int64(s.requests[i]["then"]))
    else:
        schedule(s, g, r, start + s.cfg[HOP_PS], ON_LINK)


@compiled
def write_back(
    s: State, g: Int, die: Int, block: Int, dirty: Int, launch: Int, control: Int, now: Int
) -> Int:
    """Sends dirty lines of an L2 to memory; returns when the port is free again."""
    r = new_request(s, g)
    i = g * s.cfg[POOL] + r
    size = population(dirty) * 128
    domain = block // s.cfg[DOMAIN_BLOCKS]
    inside = block - domain * s.cfg[DOMAIN_BLOCKS]
    shift = s.cfg[DOMAIN_SHIFT]
    stack = (domain << shift) + (inside & ((1 << shift) - 1))
    s.requests[i]["kind"] = WRITE_BACK
    s.requests[i]["mask"] = dirty
    s.requests[i]["block"] = block
    s.requests[i]["bytes"] = size
    s.requests[i]["group"] = -1
    s.requests[i]["slot"] = control
    s.requests[i]["launch"] = launch
    s.requests[i]["origin"] = -1
    s.requests[i]["die"] = die
    s.requests[i]["stack"] = stack
    s.requests[i]["at"] = s.die_carriers[die]
    s.requests[i]["to"] = s.stack_carriers[stack]
    s.requests[i]["then"] = SLICE_WRITE
    service = service_of(s, CLASS_PORT, size)
    start = reserve(s, g, s.first[PORT_UP] + die, launch, now, service)
    count(s, g, launch, COUNT_DIE, size)
    go(s, g, r, start + s.cfg[UP_PS])
    return start + service


@inlined
def l2_place(s: State, g: Int, die: Int, block: Int, dirty: Int, launch: Int, now: Int) -> Int:
    """Makes a granule the most recent of its set in an L2 and returns the index of its line
    entry, as ``-1 - index`` where it is new there. ``dirty`` (``DIRTY`` or 0) marks it. A granule
    that it displaces is written back where it is dirty."""
    base = (g * s.cfg[DIES] + die) * (s.cfg[L2_SETS] << WAY_BITS)
    first = base + l2_set(s, block)
    word = touch(s.l2, first, block)
    way = word & (WAYS - 1)
    if word >> TAG_SHIFT == block:
        s.l2[first] = word | dirty
        return first + way
    s.l2[first] = (block << TAG_SHIFT) | dirty | way
    line = first + way
    if word & DIRTY != 0:
        write_back(s, g, die, word >> TAG_SHIFT, s.l2_lines[line]["dirty"], launch, -1, now)
    return -1 - line


@inlined
def slice_block(s: State, stack: Int, block: Int) -> Int:
    """A granule's number within its stack."""
    shift = s.cfg[DOMAIN_SHIFT]
    return (block - (stack >> shift) * s.cfg[DOMAIN_BLOCKS]) >> shift


@inlined
def prefetch_slice(s: State, g: Int, stack: Int, block: Int) -> None:
    """Has the host fetch the set that a request will look up at its memory slice."""
    stacks = s.first[HBM] - s.first[SLICE]
    first = (g * stacks + stack) * (s.cfg[MALL_SETS] << WAY_BITS)
    prefetch(s.mall, first + mall_set(s, slice_block(s, stack, block)))


@compiled
def l2_read(
    s: State, g: Int, r: Int, die: Int, block: Int, mask: Int, launch: Int, now: Int
) -> tuple[Int, Int]:
    """Looks lines of a granule up in an L2, where request ``r`` brings those that are missing.
    Returns these, and the request that still brings others of them, or -1."""
    line = l2_place(s, g, die, block, 0, launch, now)
    missing = mask
    if line >= 0:
        missing = mask & ~s.l2_lines[line]["valid"]
        s.l2_lines[line]["valid"] |= mask
    else:
        line = -1 - line
        s.l2_lines[line]["valid"] = mask
        s.l2_lines[line]["dirty"] = 0
    filler = s.l2_lines[line]["filler"]
    if missing != 0:
        s.l2_lines[line]["filler"] = r
        filler = np.int64(-1)
    elif filler >= 0 and not brings(s, g, filler, die, block, mask):
        filler = np.int64(-1)
    return missing, filler


@inlined
def brings(s: State, g: Int, r: Int, die: Int, block: Int, mask: Int) -> Any:
    """Whether a request is on its way to an L2 with lines of a granule."""
    i = g * s.cfg[POOL] + r
    if s.requests[i]["waiters"] == CLOSED or s.requests[i]["die"] != die:
        return False
    behind = block - np.int64(s.requests[i]["block"])
    if s.requests[i]["bytes"] > GRANULE:
        return behind == 0 or behind == 1
    return behind == 0 and np.int64(s.requests[i]["mask"]) & mask != 0


@inlined
def wait_for(s: State, g: Int, r: Int, filler: Int) -> None:
    """Has a load wait for the lines that another request brings."""
    s.requests[g * s.cfg[POOL] + r]["next"] = s.requests[g * s.cfg[POOL] + filler]["waiters"]
    s.requests[g * s.cfg[POOL] + r]["phase"] = WAITING
    s.requests[g * s.cfg[POOL] + filler]["waiters"] = r


@compiled
def read_l2(s: State, g: Int, r: Int, now: Int) -> None:
    """A load at the L2 of its die: data, or a wait for a line that is being filled, or on to
    memory. What bypasses the L2 only passes through it."""
    i = g * s.cfg[POOL] + r
    die = np.int64(s.requests[i]["die"])
    block = np.int64(s.requests[i]["block"])
    mask = np.int64(s.requests[i]["mask"])
    size = np.int64(s.requests[i]["bytes"])
    launch = np.int64(s.requests[i]["launch"])
    lines = population(mask)
    if size > GRANULE:
        lines += lines
    service = s.service[CLASS_L2_READ * UNITS + 2 * lines]
    start = reserve(s, g, s.first[L2_READ] + die, launch, now, service)
    s.requests[i]["waiters"] = CLOSED
    if s.requests[i]["kind"] == LOAD:
        missing, filler = l2_read(s, g, r, die, block, mask, launch, now)
        missing2 = np.int64(0)
        filler2 = np.int64(-1)
        if size > GRANULE:
            missing2, filler2 = l2_read(s, g, r, die, block + 1, mask, launch, now)
        if missing | missing2 == 0:
            count(s, g, launch, COUNT_L2_HIT, size)
            if filler < 0:
                filler = filler2
                filler2 = np.int64(-1)
            if filler < 0:
                schedule(s, g, r, start + s.cfg[L2_PS], AT_CU)
            else:
                # One after the other; nothing is fetched, so the field is free.
                s.requests[i]["fetch2"] = filler2
                wait_for(s, g, r, filler)
            return
        s.requests[i]["waiters"] = -1
        s.requests[i]["fetch"] = population(missing) * 128
        s.requests[i]["fetch2"] = population(missing2) * 128
        count(s, g, launch, COUNT_L2_MISS, size)
    stack = np.int64(s.requests[i]["stack"])
    prefetch_slice(s, g, stack, block)
    if size > GRANULE:
        prefetch_slice(s, g, stack ^ 1, block + 1)
    away = distance(s, np.int64(s.die_carriers[die]), np.int64(s.stack_carriers[stack]))
    schedule(s, g, r, start + s.cfg[UP_PS] + away * s.cfg[HOP_PS], SLICE_READ)


@compiled
def get_remote(s: State, g: Int, r: Int, now: Int) -> None:
    """Asks another GPU for data. The request itself takes no bandwidth of the links."""
    i = g * s.cfg[POOL] + r
    peer = np.int64(s.requests[i]["peer"])
    die = np.int64(s.requests[i]["die"])
    stack = np.int64(s.requests[i]["stack"])
    s.requests[i]["waiters"] = CLOSED
    away = distance(s, np.int64(s.die_carriers[die]), port_carrier(s, g, peer))
    away += distance(s, port_carrier(s, peer, g), np.int64(s.stack_carriers[stack]))
    time = now + s.cfg[UP_PS] + away * s.cfg[HOP_PS] + s.cfg[XGMI_PS]
    send(s, g, r, peer, time, MESSAGE_READ, r)


@compiled
def l2_write(s: State, g: Int, die: Int, block: Int, mask: Int, launch: Int, now: Int) -> None:
    """Writes lines of a granule in an L2."""
    line = l2_place(s, g, die, block, DIRTY, launch, now)
    if line >= 0:
        s.l2_lines[line]["valid"] |= mask
        s.l2_lines[line]["dirty"] |= mask
    else:
        line = -1 - line
        s.l2_lines[line]["valid"] = mask
        s.l2_lines[line]["dirty"] = mask
        s.l2_lines[line]["filler"] = -1


@compiled
def at_l2(s: State, g: Int, r: Int, now: Int) -> None:
    """A store at the L2, or a put on its way past it."""
    i = g * s.cfg[POOL] + r
    die = np.int64(s.requests[i]["die"])
    size = np.int64(s.requests[i]["bytes"])
    launch = np.int64(s.requests[i]["launch"])
    if s.requests[i]["kind"] == STORE:
        block = np.int64(s.requests[i]["block"])
        mask = np.int64(s.requests[i]["mask"])
        lines = population(mask)
        if size > GRANULE:
            lines += lines
        service = s.service[CLASS_L2_WRITE * UNITS + 2 * lines]
        start = reserve(s, g, s.first[L2_WRITE] + die, launch, now, service)
        l2_write(s, g, die, block, mask, launch, now)
        if size > GRANULE:
            l2_write(s, g, die, block + 1, mask, launch, now)
        schedule(s, g, r, start + s.cfg[STORE_PS], ACKNOWLEDGED)
        return
    service = service_of(s, CLASS_PORT, size)
    start = reserve(s, g, s.first[PORT_UP] + die, launch, now, service)
    count(s, g, launch, COUNT_DIE, size)
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
def mall_place(s: State, g: Int, stack: Int, block: Int) -> Int:
    """Makes a granule the most recent of its set in a memory-side cache and returns the index of
    its line entry, as ``-1 - index`` where it is new there."""
    stacks = s.first[HBM] - s.first[SLICE]
    block = slice_block(s, stack, block)
    first = (g * stacks + stack) * (s.cfg[MALL_SETS] << WAY_BITS) + mall_set(s, block)
    word = touch(s.mall, first, block)
    way = word & (WAYS - 1)
    s.mall[first] = (block << TAG_SHIFT) | way
    if word >> TAG_SHIFT == block:
        return first + way
    return -1 - (first + way)


@compiled
def fetch(
    s: State, g: Int, stack: Int, block: Int, size: Int, mask: Int, launch: Int, now: Int
) -> Int:
    """Reads ``size`` bytes of a granule at its memory slice: cache, and where it misses the stack
    behind it. Returns when the first of them leave."""
    start = reserve(s, g, s.first[SLICE] + stack, launch, now, service_of(s, CLASS_SLICE, size))
    count(s, g, launch, COUNT_SLICE, size)
    line = mall_place(s, g, stack, block)
    missing = mask
    if line >= 0:
        missing = mask & ~s.mall_lines[line]["valid"]
        s.mall_lines[line]["valid"] |= mask
    else:
        line = -1 - line
        s.mall_lines[line]["valid"] = mask
    if missing == 0:
        count(s, g, launch, COUNT_MALL_HIT, size)
        return max(start, s.mall_lines[line]["filled"])
    read = min(size, population(missing) * 128)
    at = reserve(s, g, s.first[HBM] + stack, launch, start, service_of(s, CLASS_HBM, read))
    count(s, g, launch, COUNT_HBM_READ, read)
    out = at + s.cfg[HBM_PS]
    s.mall_lines[line]["filled"] = out
    return out


@compiled
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
    out = now
    if size > 0:
        out = fetch(s, g, stack, block, size, mask, launch, now)
    if size2 > 0:
        out = max(out, fetch(s, g, stack ^ 1, block + 1, size2, mask, launch, now))
        size += size2
    carrier = np.int64(s.stack_carriers[stack])
    s.requests[i]["at"] = carrier
    if s.requests[i]["origin"] >= 0:
        s.requests[i]["to"] = port_carrier(s, g, np.int64(s.requests[i]["peer"]))
        s.requests[i]["then"] = AT_XGMI
    else:
        home = np.int64(s.die_carriers[np.int64(s.requests[i]["die"])])
        s.requests[i]["to"] = home
        s.requests[i]["then"] = AT_PORT
        if home != carrier:
            count(s, g, launch, COUNT_REMOTE, size)
    go(s, g, r, out + s.cfg[SLICE_PS])


@compiled
def deposit(
    s: State, g: Int, stack: Int, block: Int, size: Int, mask: Int, launch: Int, now: Int
) -> Int:
    """Writes ``size`` bytes of a granule at its memory slice and returns when that is done."""
    service = service_of(s, CLASS_SLICE, size)
    start = reserve(s, g, s.first[SLICE] + stack, launch, now, service)
    count(s, g, launch, COUNT_SLICE, size)
    line = mall_place(s, g, stack, block)
    if line >= 0:
        s.mall_lines[line]["valid"] |= mask
    else:
        line = -1 - line
        s.mall_lines[line]["valid"] = mask
    write = service_of(s, CLASS_HBM, size)
    performed = reserve(s, g, s.first[HBM] + stack, launch, start, write) + write
    performed = max(performed, start + service)
    s.mall_lines[line]["filled"] = performed
    count(s, g, launch, COUNT_HBM_WRITE, size)
    return performed


@compiled
def slice_write(s: State, g: Int, r: Int, now: Int) -> None:
    """A write at its memory slice, through the cache to the stack. A put is performed, and a
    signal raises its counter, when the stack has taken the last byte."""
    i = g * s.cfg[POOL] + r
    stack = np.int64(s.requests[i]["stack"])
    size = np.int64(s.requests[i]["bytes"])
    launch = np.int64(s.requests[i]["launch"])
    kind = s.requests[i]["kind"]
    block = np.int64(s.requests[i]["block"])
    mask = np.int64(s.requests[i]["mask"])
    if size > GRANULE:
        performed = deposit(s, g, stack, block, np.int64(GRANULE), mask, launch, now)
        behind = deposit(s, g, stack ^ 1, block + 1, np.int64(GRANULE), mask, launch, now)
        performed = max(performed, behind)
    else:
        performed = deposit(s, g, stack, block, size, mask, launch, now)
    carrier = np.int64(s.stack_carriers[stack])
    if kind == WRITE_BACK:
        control = np.int64(s.requests[i]["slot"])
        free_request(s, g, r)
        if control >= 0:
            c = g * s.cfg[CONTROLS] + control
            s.controls[c]["remaining"] -= 1
            s.controls[c]["next_time"] = max(s.controls[c]["next_time"], performed)
            if s.controls[c]["remaining"] == 0:
                schedule_control(s, g, control, s.controls[c]["next_time"])
        return
    if kind == SIGNAL:
        raise_counter(s, g, r, performed)
    if s.requests[i]["origin"] < 0:
        home = np.int64(s.die_carriers[np.int64(s.requests[i]["die"])])
        if home != carrier:
            count(s, g, launch, COUNT_REMOTE, size)
        back = distance(s, carrier, home) * s.cfg[HOP_PS]
        schedule(s, g, r, performed + s.cfg[DOWN_PS] + back, ACKNOWLEDGED)
        return
    peer = np.int64(s.requests[i]["peer"])
    away = distance(s, carrier, port_carrier(s, g, peer))
    away += distance(
        s, port_carrier(s, peer, g), np.int64(s.die_carriers[np.int64(s.requests[i]["die"])])
    )
    time = performed + s.cfg[DOWN_PS] + away * s.cfg[HOP_PS] + s.cfg[XGMI_PS]
    send(s, g, r, peer, time, MESSAGE_ACKNOWLEDGE, np.int64(s.requests[i]["origin"]))
    free_request(s, g, r)
    s.gpus[g]["foreign"] -= 1


@compiled
def raise_counter(s: State, g: Int, r: Int, performed: Int) -> None:
    """Adds a signal to its counter and wakes the workgroups whose wait that ends: one latency
    after it is performed."""
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
            poll = s.cfg[POLL_PS] + 2 * distance(s, carrier, home) * s.cfg[HOP_PS]
            schedule_group(s, g, w, performed + poll)
        else:
            s.groups[j]["next_waiter"] = s.counter_waiters[counter]
            s.counter_waiters[counter] = w
        w = following


@compiled
def at_xgmi(s: State, g: Int, r: Int, now: Int) -> None:
    """Over the link to another GPU, the whole request before any of it goes on."""
    i = g * s.cfg[POOL] + r
    peer = np.int64(s.requests[i]["peer"])
    size = np.int64(s.requests[i]["bytes"])
    launch = np.int64(s.requests[i]["launch"])
    port = (peer - g + s.cfg[PORTS]) % s.cfg[PORTS]
    service = service_of(s, CLASS_XGMI, size)
    start = reserve(s, g, s.first[XGMI] + port, launch, now, service)
    count(s, g, launch, COUNT_XGMI, size)
    time = start + service + s.cfg[XGMI_PS]
    origin = np.int64(s.requests[i]["origin"])
    if origin >= 0:
        send(s, g, r, peer, time, MESSAGE_DATA, origin)
        free_request(s, g, r)
        s.gpus[g]["foreign"] -= 1
    else:
        send(s, g, r, peer, time, MESSAGE_WRITE, r)


@compiled
def at_port(s: State, g: Int, r: Int, now: Int) -> None:
    """Data at the port of the die that asked: into the L2, and on to all who wait for them."""
    i = g * s.cfg[POOL] + r
    die = np.int64(s.requests[i]["die"])
    size = np.int64(s.requests[i]["fetch"]) + np.int64(s.requests[i]["fetch2"])
    launch = np.int64(s.requests[i]["launch"])
    service = service_of(s, CLASS_PORT, size)
    start = reserve(s, g, s.first[PORT_DOWN] + die, launch, now, service)
    count(s, g, launch, COUNT_DIE, size)
    time = start + s.cfg[DOWN_PS]
    waiter = np.int64(s.requests[i]["waiters"])
    s.requests[i]["waiters"] = CLOSED
    schedule(s, g, r, time, AT_CU)
    while waiter >= 0:
        j = g * s.cfg[POOL] + waiter
        following = np.int64(s.requests[j]["next"])
        other = np.int64(s.requests[j]["fetch2"])
        s.requests[j]["fetch2"] = -1
        behind = np.int64(s.requests[j]["block"]) + 1
        if other >= 0 and brings(s, g, other, die, behind, np.int64(ALL_LINES)):
            wait_for(s, g, waiter, other)
        else:
            schedule(s, g, waiter, time, AT_CU)
        waiter = following


@compiled
def receive(s: State, g: Int, m: Int, now: Int) -> Int:
    """A message arrives. Returns the request that it acknowledges, or -1."""
    i = g * s.cfg[POOL] + m
    phase = s.messages[i]["phase"]
    sender = np.int64(s.messages[i]["peer"])
    origin = np.int64(s.messages[i]["origin"])
    carrier = port_carrier(s, g, sender)
    r = origin
    if phase == MESSAGE_WRITE or phase == MESSAGE_READ:
        r = new_request(s, g)
        s.requests[g * s.cfg[POOL] + r] = s.messages[i]
        s.requests[g * s.cfg[POOL] + r]["waiters"] = CLOSED
    else:
        s.gpus[g]["foreign"] -= 1
    s.messages[i]["next"] = s.gpus[g]["free_message"]
    s.gpus[g]["free_message"] = m
    s.gpus[g]["free_messages"] += 1
    if phase == MESSAGE_ACKNOWLEDGE:
        return r
    j = g * s.cfg[POOL] + r
    if phase == MESSAGE_READ:
        schedule(s, g, r, now, SLICE_READ)
        return -1
    s.requests[j]["at"] = carrier
    if phase == MESSAGE_WRITE:
        s.requests[j]["to"] = s.stack_carriers[np.int64(s.requests[j]["stack"])]
        s.requests[j]["then"] = SLICE_WRITE
    else:
        s.requests[j]["to"] = s.die_carriers[np.int64(s.requests[j]["die"])]
        s.requests[j]["then"] = AT_PORT
    go(s, g, r, now)
    return -1
