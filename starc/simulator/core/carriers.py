"""The carriers of a GPU and their links: shortest ways, link by link."""

from __future__ import annotations

import numpy as np

from starc.simulator.core.compiled import inlined
from starc.simulator.core.event_queue import schedule_request as schedule
from starc.simulator.core.servers import came_by, count, hold_up, reserve, service_of
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.counts import COUNT_NOC_LINKS, COUNT_USR, COUNT_USR_LINKS
from starc.simulator.state.numbers import CARRIERS, DOMAIN_SHIFT, LINK_QUEUE_PS, NODE_GPUS, POOL
from starc.simulator.state.phases import ON_LINK
from starc.simulator.state.servers import CLASS_LINK, LINK


@inlined
def port_carrier(s: State, g: Int, peer: Int) -> Int:
    """The carrier whose port the way from GPU ``g`` to GPU ``peer`` leaves by."""
    return np.int64(s.port_carriers[g * s.cfg[NODE_GPUS] + peer])


@inlined
def arrival_carrier(s: State, g: Int, peer: Int) -> Int:
    """The carrier of GPU ``peer`` where the way from GPU ``g`` ends."""
    return np.int64(s.arrivals[g * s.cfg[NODE_GPUS] + peer])


@inlined
def distance(s: State, a: Int, b: Int) -> Int:
    """Picoseconds of the way from one carrier to another."""
    return np.int64(s.ways[a * s.cfg[CARRIERS] + b])


@inlined
def go(s: State, g: Int, r: Int, time: Int) -> None:
    """Starts a request whose data are at carrier ``at`` on its way over the carriers."""
    i = g * s.cfg[POOL] + r
    if s.requests[i]["at"] == s.requests[i]["to"]:
        schedule(s, g, r, time, np.int64(s.requests[i]["then"]))
    else:
        count(s, g, np.int64(s.requests[i]["launch"]), COUNT_USR, np.int64(s.requests[i]["bytes"]))
        schedule(s, g, r, time, ON_LINK)


@inlined
def on_link(s: State, g: Int, r: Int, now: Int) -> None:
    """Over one link of carriers, the first of a shortest way. Of two equal ones, such as those
    across a ring, blocks take turns."""
    i = g * s.cfg[POOL] + r
    at = np.int64(s.requests[i]["at"])
    to = np.int64(s.requests[i]["to"])
    size = np.int64(s.requests[i]["bytes"])
    launch = np.int64(s.requests[i]["launch"])
    turn = (np.int64(s.requests[i]["block"]) >> s.cfg[DOMAIN_SHIFT]) & 1
    link = np.int64(s.routes[(turn * s.cfg[CARRIERS] + at) * s.cfg[CARRIERS] + to])
    kind = np.int64(s.link_classes[link])
    service = service_of(s, kind, size)
    hold_up(s, g, r, s.first[LINK] + link, LINK_QUEUE_PS, now)
    start = reserve(s, g, s.first[LINK] + link, launch, now, service)
    came_by(s, g, r, s.first[LINK] + link)
    count(s, g, launch, COUNT_USR_LINKS if kind == CLASS_LINK else COUNT_NOC_LINKS, size)
    at = np.int64(s.link_ends[link])
    s.requests[i]["at"] = at
    if at == to:
        schedule(s, g, r, start + s.link_ps[link], np.int64(s.requests[i]["then"]))
    else:
        schedule(s, g, r, start + s.link_ps[link], ON_LINK)
