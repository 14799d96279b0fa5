"""What has come back to a compute unit: data of loads, acknowledgements of writes."""

from __future__ import annotations

from typing import Any

import numpy as np

from starc.simulator.core.compiled import inlined
from starc.simulator.core.event_queue import schedule_request as schedule
from starc.simulator.core.semaphores import came
from starc.simulator.core.servers import free_request, reserve, service_of
from starc.simulator.core.waits import ON_END, ON_LOADS, ON_RELEASE, ON_TILE, ON_WINDOW, wake
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.numbers import (
    CUS,
    DIES,
    FIRST_MISS_PS,
    GRANULE,
    GROUPS,
    L2_PS,
    OBSERVED,
    PLACES,
    POOL,
)
from starc.simulator.state.phases import AT_CU, SIGNAL
from starc.simulator.state.servers import CLASS_CU, CLASS_ENGINE, CU_LOAD, ENGINE_LOAD


@inlined
def on_engine(s: State, g: Int, w: Int) -> Any:
    """Whether a stream runs on a copy engine."""
    return s.groups[g * s.cfg[GROUPS] + w]["die"] >= s.cfg[DIES]


@inlined
def port_of(s: State, g: Int, w: Int, unit: Int, engine: Int) -> Int:
    """The server by which data come to a stream, or leave it: the port of its compute unit or that
    of its copy engine."""
    place = np.int64(s.groups[g * s.cfg[GROUPS] + w]["cu"])
    if on_engine(s, g, w):
        return s.first[engine] + place - s.cfg[DIES] * s.cfg[CUS]
    return s.first[unit] + place


@inlined
def service_at(s: State, g: Int, w: Int, size: Int) -> Int:
    """Service time of ``size`` bytes there."""
    if on_engine(s, g, w):
        return service_of(s, CLASS_ENGINE, size)
    return service_of(s, CLASS_CU, size)


@inlined
def tile_settled(s: State, g: Int, w: Int, slot: Int) -> None:
    """A tile slot has no piece outstanding any more: whoever waits for it goes on."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    if group["blocked"] == ON_TILE and group["waiting"] == slot:
        wake(s, g, w, s.tiles[slot]["ready"])


@inlined
def release_arrived(s: State, g: Int, w: Int, now: Int) -> None:
    """Takes loads that are there out of the window."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    r = np.int64(group["arrived"])
    while r >= 0:
        i = g * s.cfg[POOL] + r
        if s.requests[i]["done"] > now:
            break
        following = np.int64(s.requests[i]["next"])
        group["flight"] -= s.requests[i]["bytes"]
        free_request(s, g, r)
        r = following
    group["arrived"] = r
    if r < 0:
        group["arrived_tail"] = -1


@inlined
def at_cu(s: State, g: Int, r: Int, now: Int) -> None:
    """The first bytes of a load at their CU: its port takes the rest."""
    i = g * s.cfg[POOL] + r
    w = np.int64(s.requests[i]["group"])
    group = s.groups[g * s.cfg[GROUPS] + w]
    size = np.int64(s.requests[i]["bytes"])
    launch = np.int64(s.requests[i]["launch"])
    service = service_at(s, g, w, size)
    start = reserve(s, g, port_of(s, g, w, CU_LOAD, ENGINE_LOAD), launch, now, service)
    done = start + service
    # The granules of a pair leave the window together: the first is there before ``done``.
    left = done - (service >> 3) if size > GRANULE else done
    s.requests[i]["done"] = left
    s.requests[i]["next"] = -1
    if group["arrived_tail"] >= 0:
        s.requests[g * s.cfg[POOL] + np.int64(group["arrived_tail"])]["next"] = r
    else:
        group["arrived"] = r
    group["arrived_tail"] = r
    group["loads"] -= 1
    if group["last"] < done:
        group["last"] = done
    slot = np.int64(s.requests[i]["slot"])
    s.tiles[slot]["pending"] -= 1
    if s.tiles[slot]["ready"] < done:
        s.tiles[slot]["ready"] = done
    if s.cfg[OBSERVED] == 1:
        came(s, g, w, slot, done)
    if group["blocked"] == ON_WINDOW:
        wake(s, g, w, max(left, group["next_issue"]))
    elif group["blocked"] == ON_TILE:
        if s.tiles[slot]["pending"] == 0:
            tile_settled(s, g, w, slot)
    elif group["blocked"] == ON_END:
        if group["loads"] + group["writes"] + group["signals"] == 0:
            wake(s, g, w, group["last"])
    elif group["blocked"] == ON_LOADS:
        if group["loads"] == 0:
            wake(s, g, w, group["last"])


@inlined
def cu_of(s: State, g: Int, r: Int) -> Int:
    """The compute unit that a load is for."""
    w = np.int64(s.requests[g * s.cfg[POOL] + r]["group"])
    return g * s.cfg[PLACES] + np.int64(s.groups[g * s.cfg[GROUPS] + w]["cu"])


@inlined
def schedule_arrival(s: State, g: Int, r: Int, cu: Int, time: Int) -> None:
    """Gives a load an event at the port of its CU."""
    s.cus[cu]["arriving"] += 1
    schedule(s, g, r, time, AT_CU)


@inlined
def hit(s: State, g: Int, r: Int, time: Int, now: Int) -> None:
    """The L2 has what a load asks for at ``now``: it is at the CU at ``time``.

    The port is taken at once where nothing can come before: nothing has an event there, no older
    load is on its way from memory, a younger one comes later than ``time``, and what younger loads
    find in the L2 leaves it behind this one."""
    cu = cu_of(s, g, r)
    if s.cus[cu]["arriving"] + s.cus[cu]["missing"] == 0 and time - now < s.cfg[FIRST_MISS_PS]:
        at_cu(s, g, r, time)
    else:
        schedule_arrival(s, g, r, cu, time)


@inlined
def filled(s: State, g: Int, r: Int, time: Int, now: Int) -> None:
    """Data of a load from the port of its die are at the CU at ``time``; of one that waited for a
    line which another brings, not before its own way through the L2.

    The port of the CU is taken at once where nothing can come before: nothing has an event there,
    what follows through the port of the die comes later, and hits from now on take longer."""
    cu = cu_of(s, g, r)
    s.cus[cu]["missing"] -= 1
    at_once = time - now < s.cfg[L2_PS]
    i = g * s.cfg[POOL] + r
    if s.requests[i]["done"] > time:
        time = s.requests[i]["done"]
        at_once = False
    if at_once and s.cus[cu]["arriving"] == 0:
        at_cu(s, g, r, time)
    else:
        schedule_arrival(s, g, r, cu, time)


@inlined
def arrival(s: State, g: Int, r: Int, now: Int) -> None:
    """The event of a load at the port of its CU."""
    s.cus[cu_of(s, g, r)]["arriving"] -= 1
    at_cu(s, g, r, now)


@inlined
def acknowledged(s: State, g: Int, r: Int, now: Int) -> None:
    """A store, put or signal is performed, and its workgroup knows."""
    i = g * s.cfg[POOL] + r
    w = np.int64(s.requests[i]["group"])
    group = s.groups[g * s.cfg[GROUPS] + w]
    if s.requests[i]["kind"] == SIGNAL:
        group["signals"] -= 1
    else:
        group["writes"] -= 1
        group["flight"] -= s.requests[i]["bytes"]
    free_request(s, g, r)
    if group["last"] < now:
        group["last"] = now
    if group["blocked"] == ON_WINDOW:
        wake(s, g, w, max(now, group["next_issue"]))
    elif group["blocked"] == ON_RELEASE:
        if group["writes"] == 0:
            wake(s, g, w, now)
    elif group["blocked"] == ON_END:
        if group["loads"] + group["writes"] + group["signals"] == 0:
            wake(s, g, w, group["last"])
