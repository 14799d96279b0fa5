"""Servers with occupancy, byte counters, and the pool of requests."""

from __future__ import annotations

import numpy as np

from starc.simulator.core.compiled import apart, compiled, inlined
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.counts import BINS, COUNTS, STAT_BIN_SHIFT, STAT_LOW
from starc.simulator.state.numbers import CREDITS, GPUS, POOL, SERVERS
from starc.simulator.state.phases import LOW
from starc.simulator.state.servers import PORT_UP, SERVER_KINDS, UNITS


@compiled
def widen_bins(s: State, time: Int) -> None:
    """Doubles the width of bins until a time falls into one of them."""
    apart()
    while time >> s.stats[STAT_BIN_SHIFT] >= BINS:
        s.stats[STAT_BIN_SHIFT] += 1
        for first in range(0, s.cfg[GPUS] * SERVER_KINDS * BINS, BINS):
            for b in range(BINS // 2):
                s.bins[first + b] = s.bins[first + 2 * b] + s.bins[first + 2 * b + 1]
            for b in range(BINS // 2, BINS):
                s.bins[first + b] = 0


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
    b = start >> s.stats[STAT_BIN_SHIFT]
    if b >= BINS:
        widen_bins(s, start)
        b = start >> s.stats[STAT_BIN_SHIFT]
    kind = np.int64(s.server_kinds[server])
    s.bins[(g * SERVER_KINDS + kind) * BINS + b] += service
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


@inlined
def came_by(s: State, g: Int, r: Int, server: Int) -> None:
    """Notes the server that a request leaves, which is held up where it cannot go on."""
    if s.cfg[CREDITS] == 1:
        code = server - s.first[PORT_UP] + 1
        s.requests[g * s.cfg[POOL] + r]["came"] = code if code < 256 else 0


@inlined
def hold_up(s: State, g: Int, r: Int, server: Int, queue: Int, now: Int) -> None:
    """Where a server lies further behind than its queue is long, the one that a request came by
    keeps it: it serves nothing else before the request has room."""
    if s.cfg[CREDITS] == 1:
        code = np.int64(s.requests[g * s.cfg[POOL] + r]["came"])
        room = s.free[g * s.cfg[SERVERS] + server] - s.cfg[queue]
        if code > 0 and room > now:
            i = g * s.cfg[SERVERS] + s.first[PORT_UP] + code - 1
            s.free[i] = max(s.free[i], room)
