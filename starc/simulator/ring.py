"""The ring of carriers of a GPU: the shorter way, link by link."""

from __future__ import annotations

import numpy as np

from starc.simulator.compiled import compiled, inlined
from starc.simulator.event_queue import schedule_request as schedule
from starc.simulator.phases import ON_LINK
from starc.simulator.servers import count, reserve, service_of
from starc.simulator.state import (
    CARRIERS,
    CLASS_LINK,
    COUNT_USR,
    COUNT_USR_LINKS,
    HOP_PS,
    LINK,
    POOL,
    PORTS,
    Int,
    State,
)


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
