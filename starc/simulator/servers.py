"""Servers with occupancy, byte counters, and the pool of requests."""

from __future__ import annotations

import numpy as np

from starc.simulator.compiled import inlined
from starc.simulator.phases import LOW
from starc.simulator.state import COUNTS, GPUS, POOL, SERVERS, STAT_LOW, UNITS, Int, State


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
