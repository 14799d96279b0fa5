"""Requests on their way: L2, ports of dies, the ring of carriers, memory slices, links of GPUs.

A request is one piece of a tile: a granule or less, or two granules on the two stacks of a carrier
(``bytes`` says which), which is served when both are. A server whose arrivals can come from more
than one place has an event of its own; one that is fed by a single predecessor at a constant
offset is reserved in that predecessor's event. The head of a request moves on while its tail is
still served (cut-through), but a link between GPUs passes on whole requests.
"""

from __future__ import annotations

import numpy as np

from starc.simulator.arrivals import cu_of, filled, hit
from starc.simulator.caches import ALL_LINES, population
from starc.simulator.compiled import apart, compiled, inlined
from starc.simulator.event_queue import enter, request_key, schedule_control, schedule_group
from starc.simulator.event_queue import schedule_request as schedule
from starc.simulator.memory import (
    brings,
    channel_of,
    deposit,
    fetch,
    forget_elsewhere,
    l2_read,
    l2_write,
    page_walk,
    prefetch_slice,
    read_scratch,
    wait_for,
    write_scratch,
)
from starc.simulator.phases import (
    ACKNOWLEDGED,
    AT_PORT,
    AT_XGMI,
    CLOSED,
    GET_CACHED,
    LOAD,
    LOAD_STREAMED,
    LOW,
    MESSAGE_ACKNOWLEDGE,
    MESSAGE_DATA,
    MESSAGE_FORWARD,
    MESSAGE_READ,
    MESSAGE_WRITE,
    PUT_ADDED,
    SIGNAL,
    SLICE_READ,
    SLICE_WRITE,
    STORE,
    WRITE_BACK,
)
from starc.simulator.pieces import GRANULE
from starc.simulator.ring import arrival_carrier, distance, go, port_carrier
from starc.simulator.servers import (
    came_by,
    count,
    free_request,
    hold_up,
    new_request,
    reserve,
    service_of,
)
from starc.simulator.state import (
    CARRIERS,
    CLASS_L2_READ,
    CLASS_L2_WRITE,
    CLASS_NOC,
    CLASS_PORT,
    CLASS_XGMI,
    CONTROLS,
    COUNT_DIE,
    COUNT_L2_HIT,
    COUNT_L2_MISS,
    COUNT_LOGICAL_DIE,
    COUNT_LOGICAL_USR,
    COUNT_LOGICAL_XGMI,
    COUNT_REMOTE,
    COUNT_XGMI,
    COUNTERS,
    DEVICES,
    DIES,
    DIES_PER_DEVICE,
    DOWN_PS,
    ENTITIES,
    FIRST_MISS_PS,
    FIRST_STAY,
    GPUS,
    GROUPS,
    HAS_L2,
    L2_PS,
    L2_READ,
    L2_WRITE,
    MALL_WAYS,
    NETWORK,
    NODE_GPUS,
    POLL_PS,
    POOL,
    PORT_DOWN,
    PORT_QUEUE_PS,
    PORT_UP,
    RETAINS,
    SEEN_L2_FILLED,
    SEEN_L2_HIT,
    SEEN_L2_MISS,
    SEEN_L2_PART,
    SLICE,
    SLICE_PS,
    STACKS,
    STAT_FOUND,
    STAT_LOW,
    STAT_TURNS,
    STORE_PS,
    SWITCH,
    UNITS,
    UP_PS,
    WATCHES,
    XGMI,
    XGMI_PS,
    XGMI_QUEUE_PS,
    Int,
    State,
)


@compiled
def send(s: State, g: Int, r: Int, to: Int, time: Int, phase: Int, origin: Int) -> None:
    """Sends request ``r`` of GPU ``g`` to GPU ``to``, where it arrives at ``time``. ``origin`` is
    the request of the GPU that began the transfer; its number, alive as long as the message, makes
    the message's place among events of the same time the same in every order of execution."""
    transmit(s, g, r, to, to, g, time, phase, origin)


@compiled
def transmit(
    s: State, g: Int, r: Int, to: Int, end: Int, source: Int, time: Int, phase: Int, origin: Int
) -> None:
    """Sends request ``r``, which GPU ``source`` has sent to GPU ``end``, from ``g`` on to ``to``.
    Where one GPU stands for all, it gets the message that its peer on the other side has sent, and
    GPUs are counted from it."""
    apart()
    node = s.cfg[NODE_GPUS]
    relative = (source - to + node) % node
    carrier = port_carrier(s, to, g)
    if s.cfg[GPUS] != node:
        carrier = port_carrier(s, np.int64(0), (g - to + node) % node)
        source = relative
        end = (end - to + node) % node
        to = np.int64(0)
    m = s.gpus[to]["free_message"]
    i = to * s.cfg[POOL] + m
    s.gpus[to]["free_message"] = np.int64(s.messages[i]["next"])
    s.gpus[to]["free_messages"] -= 1
    if s.gpus[to]["free_messages"] < LOW:
        s.stats[STAT_LOW] = 1
    s.messages[i] = s.requests[g * s.cfg[POOL] + r]
    s.messages[i]["phase"] = phase
    s.messages[i]["origin"] = origin
    s.messages[i]["peer"] = source
    s.messages[i]["at"] = carrier
    s.messages[i]["through"] = 0
    if end != to:
        s.messages[i]["phase"] = MESSAGE_FORWARD
        s.messages[i]["peer"] = end
        s.messages[i]["through"] = 1 + 2 * source + (1 if phase == MESSAGE_DATA else 0)
    s.gpus[to]["foreign"] += 1
    entity = s.cfg[GROUPS] + s.cfg[CONTROLS] + 2 * m + 1
    event = to * s.cfg[ENTITIES] + entity
    s.events[event]["time"] = time
    s.events[event]["key"] = request_key(s, origin) | relative
    enter(s, to, entity, time)


@inlined
def seen(s: State, launch: Int, watch: Int, what: Int) -> None:
    """Notes what an access to a buffer that turns with the GPU has found."""
    s.watches[launch * WATCHES + watch] |= what


@inlined
def count_logical(s: State, g: Int, w: Int, size: Int) -> None:
    """Counts a transfer between devices once, by the nearest class of links between them."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    launch = np.int64(group["launch"])
    if group["peer_gpu"] != g:
        count(s, g, launch, COUNT_LOGICAL_XGMI, size)
    elif group["peer"] != group["device"]:
        here = s.die_places[np.int64(group["die"])]
        there = s.die_places[np.int64(group["peer"]) * s.cfg[DIES_PER_DEVICE]]
        kind = COUNT_LOGICAL_DIE if here == there else COUNT_LOGICAL_USR
        count(s, g, launch, kind, size)


@inlined
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
    watch = np.int64(s.requests[i]["watch"])
    sharing = np.int64(s.requests[i]["sharing"])
    if sharing > 1:
        # Each of the workgroups that load together reads its part, and all of them get it.
        service = (service + sharing - 1) // sharing
    start = reserve(s, g, s.first[L2_READ] + die, launch, now, service)
    walk = page_walk(s, g, die, block)
    start += walk
    s.requests[i]["waiters"] = CLOSED
    kind = s.requests[i]["kind"]
    if kind == LOAD or kind == GET_CACHED or kind == LOAD_STREAMED:
        missing, filler = l2_read(s, g, r, die, block, mask, launch, now)
        missing2 = np.int64(0)
        filler2 = np.int64(-1)
        if size > GRANULE:
            missing2, filler2 = l2_read(s, g, r, die, block + 1, mask, launch, now)
        if missing | missing2 == 0:
            count(s, g, launch, COUNT_L2_HIT, size // sharing)
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
            return
        if watch > 0:
            whole = missing == mask and (size <= GRANULE or missing2 == mask)
            seen(s, launch, watch, SEEN_L2_MISS if whole else SEEN_L2_PART)
        s.requests[i]["waiters"] = -1
        s.requests[i]["fetch"] = population(missing) * 128
        s.requests[i]["fetch2"] = population(missing2) * 128
        count(s, g, launch, COUNT_L2_MISS, size)
        if kind == GET_CACHED:
            crossing = s.requests[i]["fetch"] + s.requests[i]["fetch2"]
            count_logical(s, g, np.int64(s.requests[i]["group"]), crossing)
    s.cus[cu_of(s, g, r)]["missing"] += 1
    s.requests[i]["done"] = 0
    stack = np.int64(s.requests[i]["stack"])
    prefetch_slice(s, g, stack, block)
    if size > GRANULE:
        prefetch_slice(s, g, stack ^ 1, block + 1)
    away = distance(s, np.int64(s.die_carriers[die]), np.int64(s.stack_carriers[stack]))
    schedule(s, g, r, start + s.cfg[UP_PS] + away, SLICE_READ)


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
def get_remote(s: State, g: Int, r: Int, now: Int) -> None:
    """Asks another GPU for data. The request itself takes no bandwidth of the links."""
    apart()
    i = g * s.cfg[POOL] + r
    peer = np.int64(s.requests[i]["peer"])
    die = np.int64(s.requests[i]["die"])
    stack = np.int64(s.requests[i]["stack"])
    s.requests[i]["waiters"] = CLOSED
    s.requests[i]["done"] = 0
    s.cus[cu_of(s, g, r)]["missing"] += 1
    away = distance(s, np.int64(s.die_carriers[die]), port_carrier(s, g, peer))
    away += distance(s, arrival_carrier(s, g, peer), np.int64(s.stack_carriers[stack]))
    time = now + s.cfg[UP_PS] + away
    time += np.int64(s.gpu_ways[g * s.cfg[NODE_GPUS] + peer])
    send(s, g, r, peer, time, MESSAGE_READ, r)


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
    stack = np.int64(s.requests[i]["stack"])
    size = np.int64(s.requests[i]["bytes"])
    launch = np.int64(s.requests[i]["launch"])
    kind = s.requests[i]["kind"]
    block = np.int64(s.requests[i]["block"])
    mask = np.int64(s.requests[i]["mask"])
    watch = np.int64(s.requests[i]["watch"])
    s.stats[STAT_TURNS] = 1 if 0 < watch < FIRST_STAY else 0
    there = now
    if kind == PUT_ADDED and stack < s.cfg[STACKS]:
        # What is added to is read first, from the cache in front of the stack or behind it. Its
        # place among the writes is taken now: nothing is reserved for later.
        there = fetch(s, g, stack, block, min(size, np.int64(GRANULE)), mask, launch, now)
        if size > GRANULE:
            more = size - GRANULE
            there = max(there, fetch(s, g, stack ^ 1, block + 1, more, mask, launch, now))
    if stack >= s.cfg[STACKS]:
        times = np.int64(2) if kind == PUT_ADDED else np.int64(1)
        performed = write_scratch(s, g, stack, size, times, launch, now)
    elif size > GRANULE:
        performed = deposit(s, g, stack, block, np.int64(GRANULE), mask, launch, now)
        behind = deposit(s, g, stack ^ 1, block + 1, np.int64(GRANULE), mask, launch, now)
        performed = max(performed, behind)
    else:
        performed = deposit(s, g, stack, block, size, mask, launch, now)
    if s.cfg[HAS_L2] == 0:
        # No byte is there before the last link has passed it on.
        performed = max(performed, now + passed_on(s, g, r, size))
    if kind == PUT_ADDED:
        performed = max(performed, there)
    if s.cfg[RETAINS] == 1:
        writer = np.int64(s.requests[i]["die"]) if kind == WRITE_BACK else np.int64(-1)
        forget_elsewhere(s, g, writer, block, mask)
        if size > GRANULE:
            forget_elsewhere(s, g, writer, block + 1, mask)
    carrier = np.int64(s.stack_carriers[stack])
    if kind == WRITE_BACK:
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
        return
    if kind == SIGNAL:
        raise_counter(s, g, r, performed)
    if s.requests[i]["origin"] < 0:
        home = np.int64(s.die_carriers[np.int64(s.requests[i]["die"])])
        if home != carrier and stack < s.cfg[STACKS]:
            count(s, g, launch, COUNT_REMOTE, size)
        back = distance(s, carrier, home)
        schedule(s, g, r, performed + s.cfg[DOWN_PS] + back, ACKNOWLEDGED)
        return
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


@compiled
def at_xgmi(s: State, g: Int, r: Int, now: Int) -> None:
    """Over the link to another GPU, the whole request before any of it goes on; to a switch, whose
    link to the other GPU takes the bytes as they come."""
    apart()
    i = g * s.cfg[POOL] + r
    peer = np.int64(s.requests[i]["peer"])
    size = np.int64(s.requests[i]["bytes"])
    launch = np.int64(s.requests[i]["launch"])
    way = g * s.cfg[NODE_GPUS] + peer
    service = service_of(s, CLASS_XGMI, size)
    port = s.first[XGMI] + np.int64(s.ports[way])
    hold_up(s, g, r, port, XGMI_QUEUE_PS, now)
    start = reserve(s, g, port, launch, now, service)
    count(s, g, launch, COUNT_XGMI, size)
    time = start + s.cfg[XGMI_PS]
    if s.cfg[NETWORK] != SWITCH:
        time += service
    to = np.int64(s.next_gpus[way])
    origin = np.int64(s.requests[i]["origin"])
    through = np.int64(s.requests[i]["through"])
    if through > 0:
        phase = MESSAGE_DATA if (through - 1) & 1 == 1 else MESSAGE_WRITE
        transmit(s, g, r, to, peer, (through - 1) >> 1, time, phase, origin)
    elif origin >= 0:
        transmit(s, g, r, to, peer, g, time, MESSAGE_DATA, origin)
    else:
        transmit(s, g, r, to, peer, g, time, MESSAGE_WRITE, r)
        return
    free_request(s, g, r)
    s.gpus[g]["foreign"] -= 1


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


@compiled
def receive(s: State, g: Int, m: Int, now: Int) -> Int:
    """A message arrives. Returns the request that it acknowledges, or -1."""
    apart()
    i = g * s.cfg[POOL] + m
    phase = s.messages[i]["phase"]
    origin = np.int64(s.messages[i]["origin"])
    carrier = np.int64(s.messages[i]["at"])
    r = origin
    if phase == MESSAGE_WRITE or phase == MESSAGE_READ or phase == MESSAGE_FORWARD:
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
    s.requests[j]["came"] = 0
    if phase == MESSAGE_READ:
        schedule(s, g, r, now, SLICE_READ)
        return -1
    if s.cfg[NETWORK] == SWITCH:
        size = np.int64(s.requests[j]["bytes"])
        service = service_of(s, CLASS_XGMI, size)
        launch = np.int64(s.requests[j]["launch"])
        now = reserve(s, g, s.first[XGMI] + 1, launch, now, service) + service
    s.requests[j]["at"] = carrier
    if phase == MESSAGE_FORWARD:
        s.requests[j]["to"] = port_carrier(s, g, np.int64(s.requests[j]["peer"]))
        s.requests[j]["then"] = AT_XGMI
    elif phase == MESSAGE_WRITE:
        s.requests[j]["to"] = s.stack_carriers[np.int64(s.requests[j]["stack"])]
        s.requests[j]["then"] = SLICE_WRITE
    else:
        s.requests[j]["to"] = s.die_carriers[np.int64(s.requests[j]["die"])]
        s.requests[j]["then"] = AT_PORT
    go(s, g, r, now)
    return -1
