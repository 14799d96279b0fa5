"""Loads, gets, stores, puts and signals: issued piece by piece as requests."""

from __future__ import annotations

from typing import Any

import numpy as np

from starc.simulator.core.compiled import apart, compiled, inlined
from starc.simulator.core.event_queue import schedule_request as schedule
from starc.simulator.core.expressions import evaluate
from starc.simulator.core.memory.addresses import stack_of
from starc.simulator.core.memory.tags import ALL_LINES, lines_of
from starc.simulator.core.observation import piece_asked, piece_sent
from starc.simulator.core.requests.arrivals import on_engine, port_of, service_at
from starc.simulator.core.requests.dies import read_l2, read_memory
from starc.simulator.core.requests.gpus import get_remote
from starc.simulator.core.requests.transfers import count_logical
from starc.simulator.core.servers import new_request, reserve
from starc.simulator.core.streams.opcodes import OP_GET, OP_LOAD, OP_PUT
from starc.simulator.core.streams.peers import set_peer, stand_in, stands_in
from starc.simulator.core.streams.pieces import begin_pieces, next_piece
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.counts import STAT_REQUESTS
from starc.simulator.state.numbers import (
    COUNTERS,
    DEVICE_BLOCKS,
    DEVICES,
    DEVICES_PER_DOMAIN,
    DOMAIN_BLOCKS,
    GRANULE,
    GROUPS,
    HAS_L2,
    ISSUE_PS,
    NODE_GPUS,
    OBSERVED,
    PIECE,
    POOL,
    STACKS,
    STRIPED,
)
from starc.simulator.state.phases import (
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
from starc.simulator.state.program_records import STREAMED
from starc.simulator.state.servers import CU_STORE, ENGINE_STORE


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
    group = s.groups[g * s.cfg[GROUPS] + w]
    r = piece_request(s, g, w, pc)
    size = np.int64(s.requests[g * s.cfg[POOL] + r]["bytes"])
    group["flight"] += size
    group["next_issue"] = now + s.cfg[ISSUE_PS]
    s.stats[STAT_REQUESTS] += 1
    if op == OP_LOAD or op == OP_GET:
        ask(s, g, w, r, pc, size, now)
    else:
        send_out(s, g, w, r, pc, size, now)


@inlined
def piece_request(s: State, g: Int, w: Int, pc: Int) -> Int:
    """Takes the next piece of a memory operation off its tile, as a request."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    address = group["run"]
    paired = may_pair(s, g, w)
    buffer = s.buffers[np.int64(group["buffer"])]
    size = next_piece(group, buffer, s.extents, paired, s.cfg[PIECE])
    r = new_request(s, g)
    i = g * s.cfg[POOL] + r
    locate(s, g, r, np.int64(group["peer"]), address, size, np.int64(buffer["scratch"]))
    s.requests[i]["bytes"] = size
    s.requests[i]["fetch"] = (min(size, GRANULE) + 63) & ~63
    s.requests[i]["fetch2"] = max(size - GRANULE, 0)
    s.requests[i]["group"] = w
    s.requests[i]["slot"] = group["slot"]
    s.requests[i]["launch"] = group["launch"]
    s.requests[i]["origin"] = -1
    s.requests[i]["peer"] = group["peer_gpu"]
    s.requests[i]["through"] = 0
    s.requests[i]["die"] = group["die"]
    s.requests[i]["sharing"] = s.operations[pc]["work"]
    s.requests[i]["watch"] = s.operations[pc]["watch"]
    return r


@inlined
def ask(s: State, g: Int, w: Int, r: Int, pc: Int, size: Int, now: Int) -> None:
    """Sends a piece of a load or get on its way."""
    i = g * s.cfg[POOL] + r
    group = s.groups[g * s.cfg[GROUPS] + w]
    uncached = s.operations[pc]["uncached"]
    group["loads"] += 1
    s.tiles[np.int64(group["slot"])]["pending"] += 1
    if s.cfg[OBSERVED] == 1:
        piece_asked(s, g, w, now)
    s.requests[i]["kind"] = LOAD
    if s.operations[pc]["op"] == OP_GET:
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


@inlined
def send_out(s: State, g: Int, w: Int, r: Int, pc: Int, size: Int, now: Int) -> None:
    """Sends a piece of a store or put on its way, by the port of the compute unit."""
    i = g * s.cfg[POOL] + r
    group = s.groups[g * s.cfg[GROUPS] + w]
    group["writes"] += 1
    s.requests[i]["kind"] = STORE
    if s.operations[pc]["op"] == OP_PUT:
        s.requests[i]["kind"] = PUT_ADDED if s.operations[pc]["uncached"] == 1 else PUT
        count_logical(s, g, w, size)
    service = service_at(s, g, w, size)
    port = port_of(s, g, w, CU_STORE, ENGINE_STORE)
    start = reserve(s, g, port, np.int64(group["launch"]), now, service)
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
