"""Workgroups: in-order streams of instructions with asynchronous memory operations.

A stream runs until it has to wait: for bytes of its window, a tile slot, an engine, a counter, the
acknowledgement of its writes, or a time. Whoever ends the wait gives the stream its next event, so
a stream has at most one. Pieces of a memory operation issue one a cycle. What has arrived at the
CU leaves the window when its last byte is there; such loads wait in a list until the stream looks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from starc.backend.program import Opcode
from starc.simulator.addresses import stack_of
from starc.simulator.arrivals import (
    on_engine,
    port_of,
    release_arrived,
    service_at,
)
from starc.simulator.caches import ALL_LINES, lines_of
from starc.simulator.compiled import apart, compiled, inlined
from starc.simulator.decode import STREAMED
from starc.simulator.event_queue import schedule_group
from starc.simulator.event_queue import schedule_request as schedule
from starc.simulator.expressions import evaluate
from starc.simulator.observation import (
    begin_move,
    begin_wait,
    end_wait,
    executed,
    piece_asked,
    piece_sent,
    signalled,
)
from starc.simulator.phases import (
    AT_L2,
    GET,
    GET_CACHED,
    LOAD,
    LOAD_STREAMED,
    LOAD_UNCACHED,
    PUT,
    PUT_ADDED,
    SIGNAL,
    SIGNAL_BYTES,
    STORE,
)
from starc.simulator.pieces import GRANULE, begin_pieces, next_piece
from starc.simulator.requests import count_logical, get_remote, read_l2, read_memory
from starc.simulator.semaphores import acquire, release, release_behind
from starc.simulator.servers import new_request, reserve
from starc.simulator.state import (
    COUNTERS,
    CU_STORE,
    DEVICE_BLOCKS,
    DEVICES,
    DEVICES_PER_DOMAIN,
    DOMAIN_BLOCKS,
    ENGINE_STORE,
    GPUS,
    GROUPS,
    HAS_L2,
    ISSUE_PS,
    LOOPS,
    MATRIX,
    NODE_GPUS,
    OBSERVED,
    PIECE,
    POLL_PS,
    POOL,
    SCRATCH_ACCESS,
    STACKS,
    STAT_INSTRUCTIONS,
    STAT_REQUESTS,
    STRIPED,
    TILE_SLOTS,
    VARIABLES,
    VECTOR,
    Int,
    State,
)
from starc.simulator.waits import ON_COUNTER, ON_END, ON_RELEASE, ON_TILE, ON_WINDOW

_LOAD = int(Opcode.LOAD)
_STORE = int(Opcode.STORE)
_PUT = int(Opcode.PUT)
_GET = int(Opcode.GET)
_SIGNAL = int(Opcode.SIGNAL)
_WAIT = int(Opcode.WAIT)
_MATRIX = int(Opcode.MATRIX)
_VECTOR = int(Opcode.VECTOR)
_DELAY = int(Opcode.DELAY)
_LOOP = int(Opcode.LOOP)
_END_LOOP = int(Opcode.END_LOOP)
_IF = int(Opcode.IF)
_ACQUIRE = int(Opcode.ACQUIRE)
_RELEASE = int(Opcode.RELEASE)

FINISHED = 1
ONGOING = 0


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
def locate(s: State, g: Int, r: Int, device: Int, address: Int, size: Int, scratch: Int) -> None:
    """Fills in where a piece of a device's memory lies: granule of the GPU, stack, lines.
    ``scratch`` 1: in its scratch memory."""
    i = g * s.cfg[POOL] + r
    domain = device // s.cfg[DEVICES_PER_DOMAIN]
    inside = (device - domain * s.cfg[DEVICES_PER_DOMAIN]) * s.cfg[DEVICE_BLOCKS] + (address >> 12)
    s.requests[i]["block"] = domain * s.cfg[DOMAIN_BLOCKS] + inside
    if scratch == 1:
        s.requests[i]["stack"] = s.cfg[STACKS] + device
    else:
        s.requests[i]["stack"] = stack_of(s, domain, inside, address & 4095)
    s.requests[i]["mask"] = ALL_LINES if size > GRANULE else lines_of(address & 4095, size)


@inlined
def may_pair(s: State, g: Int, w: Int) -> Any:
    """Whether a piece may be two granules: where any two in a row lie on the two stacks of a
    carrier, no link between GPUs is to be crossed, which passes on whole pieces, and the
    window would take both of them now."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    if s.cfg[STRIPED] == 0 or group["peer_gpu"] != g:
        return False
    return group["flight"] + GRANULE < group["window"]


@inlined
def issue_piece(s: State, g: Int, w: Int, pc: Int, now: Int) -> None:
    """Issues the next piece of a memory operation."""
    op = s.operations[pc]["op"]
    uncached = s.operations[pc]["uncached"]
    group = s.groups[g * s.cfg[GROUPS] + w]
    address = group["run"]
    paired = may_pair(s, g, w)
    buffer = s.buffers[np.int64(group["buffer"])]
    size = next_piece(group, buffer, s.extents, paired, s.cfg[PIECE])
    launch = np.int64(group["launch"])
    r = new_request(s, g)
    i = g * s.cfg[POOL] + r
    locate(s, g, r, np.int64(group["peer"]), address, size, np.int64(buffer["scratch"]))
    s.requests[i]["bytes"] = size
    s.requests[i]["fetch"] = (min(size, GRANULE) + 63) & ~63
    s.requests[i]["fetch2"] = max(size - GRANULE, 0)
    s.requests[i]["group"] = w
    s.requests[i]["slot"] = group["slot"]
    s.requests[i]["launch"] = launch
    s.requests[i]["origin"] = -1
    s.requests[i]["peer"] = group["peer_gpu"]
    s.requests[i]["through"] = 0
    s.requests[i]["die"] = group["die"]
    s.requests[i]["sharing"] = s.operations[pc]["work"]
    s.requests[i]["watch"] = s.operations[pc]["watch"]
    group["flight"] += size
    group["next_issue"] = now + s.cfg[ISSUE_PS]
    s.stats[STAT_REQUESTS] += 1
    if op == _LOAD or op == _GET:
        group["loads"] += 1
        s.tiles[np.int64(group["slot"])]["pending"] += 1
        if s.cfg[OBSERVED] == 1:
            piece_asked(s, g, w, now)
        s.requests[i]["kind"] = LOAD
        if op == _GET:
            if uncached == 1:
                s.requests[i]["kind"] = GET
            elif group["peer_gpu"] != g or group["peer"] != group["device"]:
                s.requests[i]["kind"] = GET_CACHED
            # What goes through the L2 crosses where it is not in it.
            if uncached == 1 or group["peer_gpu"] != g:
                count_logical(s, g, w, size)
        elif uncached == 1:
            s.requests[i]["kind"] = LOAD_UNCACHED
        elif uncached == STREAMED:
            s.requests[i]["kind"] = LOAD_STREAMED
        if group["peer_gpu"] != g:
            get_remote(s, g, r, now)
        elif s.cfg[HAS_L2] == 0 or on_engine(s, g, w):
            read_memory(s, g, r, now)
        else:
            read_l2(s, g, r, now)
        return
    group["writes"] += 1
    s.requests[i]["kind"] = STORE
    if op == _PUT:
        s.requests[i]["kind"] = PUT_ADDED if uncached == 1 else PUT
        count_logical(s, g, w, size)
    service = service_at(s, g, w, size)
    start = reserve(s, g, port_of(s, g, w, CU_STORE, ENGINE_STORE), launch, now, service)
    tile = s.tiles[np.int64(group["slot"])]
    if tile["read"] < start + service:
        tile["read"] = start + service
    if group["last"] < start + service:
        group["last"] = start + service
    if s.cfg[OBSERVED] == 1:
        piece_sent(s, g, w, np.int64(group["slot"]), now, start + service)
    schedule(s, g, r, start + service, AT_L2)


@compiled
def issue_signal(
    s: State, g: Int, w: Int, counter: Int, amount: Int, attached: Int, now: Int
) -> None:
    """Sends a signal: a put of 64 bytes that raises a counter when it is performed."""
    apart()
    group = s.groups[g * s.cfg[GROUPS] + w]
    r = new_request(s, g)
    i = g * s.cfg[POOL] + r
    device = np.int64(group["peer"])
    # Counters of a machine without L2 are with the scratch memory.
    address = s.counter_blocks[counter] << 12
    locate(s, g, r, device, address, SIGNAL_BYTES, 1 - s.cfg[HAS_L2])
    s.requests[i]["bytes"] = SIGNAL_BYTES
    s.requests[i]["fetch"] = amount
    s.requests[i]["group"] = w
    s.requests[i]["slot"] = device * s.cfg[COUNTERS] + counter
    s.requests[i]["launch"] = group["launch"]
    s.requests[i]["origin"] = -1
    s.requests[i]["peer"] = group["peer_gpu"]
    s.requests[i]["through"] = 0
    s.requests[i]["die"] = group["die"]
    s.requests[i]["kind"] = SIGNAL
    s.requests[i]["watch"] = 0
    group["signals"] += 1
    time = now + s.cfg[ISSUE_PS]
    if attached == 1:
        # Behind the words of the puts that it comes with.
        service = service_at(s, g, w, SIGNAL_BYTES)
        server = port_of(s, g, w, CU_STORE, ENGINE_STORE)
        time = reserve(s, g, server, np.int64(group["launch"]), now, service) + service
    schedule(s, g, r, time, AT_L2)


@inlined
def set_peer(s: State, g: Int, w: Int, peer: Int) -> None:
    """The device that a memory operation is about: an expression's value, or its own."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    if peer < 0:
        group["peer"] = group["device"]
        group["peer_gpu"] = g
    else:
        device = evaluate(s, g, w, peer)
        group["peer_gpu"] = device // s.cfg[DEVICES]
        group["peer"] = device - (device // s.cfg[DEVICES]) * s.cfg[DEVICES]


@inlined
def stand_in(s: State, g: Int, w: Int, gpu: Int) -> None:
    """Has expressions of a workgroup evaluated as on another GPU, where one stands for all."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    device = gpu * s.cfg[DEVICES] + np.int64(group["device"])
    v = (g * s.cfg[GROUPS] + w) * VARIABLES
    s.variables[v + 5] = device
    for axis in range(4):
        s.variables[v + 6 + axis] = s.coordinates[device * 4 + axis]


@inlined
def stands_in(s: State, g: Int, w: Int) -> Any:
    """Whether what goes to a peer is what another GPU, for which this one stands, sends here."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    return s.cfg[GPUS] != s.cfg[NODE_GPUS] and group["peer_gpu"] != g


@inlined
def begin_memory(s: State, g: Int, w: Int, pc: Int, slot: Int) -> bool:
    """Starts to issue the pieces of a memory operation; False where it has none."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    operation = s.operations[pc]
    set_peer(s, g, w, np.int64(operation["peer"]))
    b = np.int64(operation["buffer"])
    group["buffer"] = b
    group["slot"] = slot
    group["base"] = s.buffers[b]["address"]
    other = stands_in(s, g, w)
    if other:
        stand_in(s, g, w, s.cfg[NODE_GPUS] - group["peer_gpu"])
    low0 = evaluate(s, g, w, np.int64(operation["start0"]))
    low1 = evaluate(s, g, w, np.int64(operation["start1"]))
    low2 = evaluate(s, g, w, np.int64(operation["start2"]))
    low3 = evaluate(s, g, w, np.int64(operation["start3"]))
    if other:
        stand_in(s, g, w, g)
    return begin_pieces(
        group,
        s.buffers[b],
        s.extents,
        np.int64(group["peer_gpu"]) * s.cfg[DEVICES] + np.int64(group["peer"]),
        low0,
        low0 + operation["extent0"],
        low1,
        low1 + operation["extent1"],
        low2,
        low2 + operation["extent2"],
        low3,
        low3 + operation["extent3"],
    )


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
        if op["op"] == _MATRIX and use["writes"] == 1:
            # A product that is added to another follows it at once.
            if tile["added"] + op["latency"] == ready:
                ready = tile["added"]
        if time < ready:
            time = ready
        if use["writes"] == 1 and time < tile["read"]:
            time = tile["read"]
    return time


@inlined
def run_engine(s: State, g: Int, w: Int, pc: Int, now: Int) -> Int:
    """Reserves the engine of a MATRIX or VECTOR; returns when it starts."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    operation = s.operations[pc]
    kind = MATRIX if operation["op"] == _MATRIX else VECTOR
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
    if (op == _LOAD or op == _GET) and time < tile["read"]:
        time = tile["read"]
    return time


@inlined
def step(s: State, g: Int, w: Int, now: Int) -> Int:
    """Runs a stream from its event at ``now`` until it waits; ``FINISHED`` when it is over and
    everything that it began is complete."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    release_arrived(s, g, w, now)
    while True:
        pc = np.int64(group["pc"])
        if group["issuing"] == 1:
            if group["flight"] >= group["window"]:
                arrived = np.int64(group["arrived"])
                if arrived >= 0:
                    done = s.requests[g * s.cfg[POOL] + arrived]["done"]
                    schedule_group(s, g, w, max(done, group["next_issue"]))
                else:
                    group["blocked"] = ON_WINDOW
                return ONGOING
            if now < group["next_issue"]:
                schedule_group(s, g, w, group["next_issue"])
                return ONGOING
            issue_piece(s, g, w, pc, now)
            if group["run_left"] == 0:
                group["issuing"] = 0
                group["pc"] += 1
            continue
        if pc == group["end"]:
            if group["loads"] + group["writes"] + group["signals"] > 0:
                group["blocked"] = ON_END
                return ONGOING
            if group["last"] > now:
                schedule_group(s, g, w, group["last"])
                return ONGOING
            return FINISHED
        operation = s.operations[pc]
        op = operation["op"]
        depth = np.int64(operation["depth"])
        if op == _END_LOOP:
            loop = s.loops[(g * s.cfg[GROUPS] + w) * LOOPS + depth]
            loop["trip"] += 1
            if loop["trip"] < loop["trips"]:
                group["pc"] = operation["end"]
            else:
                group["pc"] += 1
            continue
        if depth > 0:
            loop = s.loops[(g * s.cfg[GROUPS] + w) * LOOPS + depth - 1]
            value = loop["lower"] + loop["trip"] - operation["stage"]
            if value < loop["lower"] or value >= loop["upper"]:
                group["pc"] = operation["end"]
                continue
            loop["value"] = value
            s.variables[(g * s.cfg[GROUPS] + w) * VARIABLES + depth] = value
        if op == _LOOP:
            loop = s.loops[(g * s.cfg[GROUPS] + w) * LOOPS + depth]
            lower = evaluate(s, g, w, np.int64(operation["lower"]))
            upper = evaluate(s, g, w, np.int64(operation["upper"]))
            loop["lower"] = lower
            loop["upper"] = upper
            loop["value"] = lower
            loop["trip"] = 0
            loop["trips"] = upper - lower + operation["stages"]
            if upper <= lower:
                group["pc"] = operation["end"]
            else:
                group["pc"] += 1
            continue
        if op == _IF:
            if evaluate(s, g, w, np.int64(operation["lower"])) < 0:
                group["pc"] = operation["end"]
            else:
                group["pc"] += 1
            continue
        if op == _LOAD or op == _GET or op == _STORE or op == _PUT:
            time = memory_tile_time(s, g, w, pc, now)
            if time < 0:
                return ONGOING
            if time > now:
                schedule_group(s, g, w, time)
                return ONGOING
            s.stats[STAT_INSTRUCTIONS] += 1
            begun = begin_memory(s, g, w, pc, np.int64(group["slot"]))
            if s.cfg[OBSERVED] == 1:
                begin_move(s, g, w, pc, np.int64(group["slot"]), now)
            if begun:
                group["issuing"] = 1
            else:
                group["pc"] += 1
        elif op == _MATRIX or op == _VECTOR:
            time = operands_time(s, g, w, pc, now)
            if time < 0:
                return ONGOING
            if time > now:
                schedule_group(s, g, w, time)
                return ONGOING
            s.stats[STAT_INSTRUCTIONS] += 1
            start = run_engine(s, g, w, pc, now)
            group["pc"] += 1
            if start > now:
                schedule_group(s, g, w, start)
                return ONGOING
        elif op == _SIGNAL:
            if group["writes"] > 0 and operation["uncached"] == 0:
                group["blocked"] = ON_RELEASE
                return ONGOING
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
        elif op == _WAIT:
            if group["slept"] == 1:
                group["slept"] = 0
                s.stats[STAT_INSTRUCTIONS] += 1
                if s.cfg[OBSERVED] == 1:
                    end_wait(s, g, w, pc, now)
                group["pc"] += 1
                continue
            if s.cfg[OBSERVED] == 1:
                begin_wait(s, g, w, now)
            element = evaluate(s, g, w, np.int64(operation["lower"]))
            counter = s.counter_bases[np.int64(operation["buffer"])] + element
            counter += (g * s.cfg[DEVICES] + np.int64(group["device"])) * s.cfg[COUNTERS]
            value = evaluate(s, g, w, np.int64(operation["upper"]))
            if s.counters[counter] >= value:
                group["slept"] = 1
                schedule_group(s, g, w, now + s.cfg[POLL_PS])
                return ONGOING
            group["value"] = value
            group["waiting"] = counter
            group["blocked"] = ON_COUNTER
            group["next_waiter"] = s.counter_waiters[counter]
            s.counter_waiters[counter] = w
            return ONGOING
        elif op == _DELAY:
            if group["slept"] == 0:
                group["slept"] = 1
                schedule_group(s, g, w, now + operation["work"])
                return ONGOING
            group["slept"] = 0
            s.stats[STAT_INSTRUCTIONS] += 1
            if s.cfg[OBSERVED] == 1:
                executed(s, g, w, pc, now - operation["work"], now)
            group["pc"] += 1
        elif op == _ACQUIRE:
            if not acquire(s, g, w, pc, now):
                return ONGOING
            group["pc"] += 1
        elif op == _RELEASE:
            if operation["tile"] >= 0:
                tile = tile_slot(s, g, w, np.int64(operation["tile"]))
                release_behind(s, g, w, pc, tile, now)
            else:
                time = release(s, g, w, pc, now)
                if time < 0:
                    return ONGOING
                if time > now:
                    schedule_group(s, g, w, time)
                    return ONGOING
            group["pc"] += 1
        else:
            group["pc"] += 1
