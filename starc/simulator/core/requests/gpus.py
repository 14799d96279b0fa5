"""Requests between GPUs: messages, and links that pass on whole requests."""

from __future__ import annotations

import numpy as np

from starc.simulator.core.carriers import arrival_carrier, distance, go, port_carrier
from starc.simulator.core.compiled import apart, compiled
from starc.simulator.core.event_queue import enter, request_key
from starc.simulator.core.event_queue import schedule_request as schedule
from starc.simulator.core.requests.arrivals import cu_of
from starc.simulator.core.servers import (
    count,
    free_request,
    hold_up,
    new_request,
    reserve,
    service_of,
)
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.counts import COUNT_XGMI, STAT_LOW
from starc.simulator.state.numbers import (
    CONTROLS,
    ENTITIES,
    GPUS,
    GROUPS,
    NODE_GPUS,
    POOL,
    SWITCHED,
    UP_PS,
    XGMI_PS,
    XGMI_QUEUE_PS,
)
from starc.simulator.state.phases import (
    AT_PORT,
    AT_XGMI,
    CLOSED,
    LOW,
    MESSAGE_ACKNOWLEDGE,
    MESSAGE_DATA,
    MESSAGE_FORWARD,
    MESSAGE_READ,
    MESSAGE_WRITE,
    SLICE_READ,
    SLICE_WRITE,
)
from starc.simulator.state.servers import CLASS_XGMI, XGMI


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
    if s.cfg[SWITCHED] == 0:
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
    if s.cfg[SWITCHED] == 1:
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
