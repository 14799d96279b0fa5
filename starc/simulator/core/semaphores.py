"""Semaphores: how the streams of a workgroup wait for each other.

A semaphore is raised by one stream and acquired by one other. It is raised when what the stream
had to do before is complete, for which the stream waits, or, behind a tile, when the loads of the
tile have arrived and its stores and puts have read it, for which only the semaphore waits: a
request of the pool stands for it until then. Loads that arrive out of order raise a semaphore in
the order of the stream all the same. Who waits for a semaphore goes on at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from starc.simulator.core.compiled import apart, compiled, inlined
from starc.simulator.core.event_queue import schedule_request as schedule
from starc.simulator.core.observation import add, begin_wait, end_wait, piece_came
from starc.simulator.core.servers import free_request, new_request
from starc.simulator.core.waits import ON_LOADS, ON_SEMAPHORE, ON_TILE, wake
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.numbers import GROUPS, NEVER, POOL, SEMAPHORES, WIDTH
from starc.simulator.state.phases import RAISED


@compiled
def begin_semaphores(s: State, g: Int, lead: Int, template: Int) -> None:
    """The semaphores of a workgroup at its start."""
    apart()
    first = np.int64(s.templates[template]["first_semaphore"])
    place = (g * s.cfg[GROUPS] + lead) * s.cfg[SEMAPHORES]
    for k in range(s.templates[template]["semaphores"]):
        s.semaphores[place + k]["value"] = s.semaphore_starts[first + k]
        s.semaphores[place + k]["waiter"] = -1
        s.semaphores[place + k]["first"] = -1


@inlined
def semaphore_of(s: State, g: Int, lead: Int, number: Int) -> Int:
    return (g * s.cfg[GROUPS] + lead) * s.cfg[SEMAPHORES] + number


@compiled
def acquire(s: State, g: Int, w: Int, pc: Int, now: Int) -> Any:
    """Takes one of a semaphore; False where there is none, which the stream waits for."""
    apart()
    group = s.groups[g * s.cfg[GROUPS] + w]
    number = np.int64(s.operations[pc]["buffer"])
    i = semaphore_of(s, g, np.int64(group["lead"]), number)
    waits = s.observed[g * s.cfg[GROUPS] + w]["since"] >= 0
    if s.semaphores[i]["value"] == 0:
        begin_wait(s, g, w, now)
        s.semaphores[i]["waiter"] = w
        group["blocked"] = ON_SEMAPHORE
        group["waiting"] = number
        return False
    s.semaphores[i]["value"] -= 1
    if waits:
        end_wait(s, g, w, pc, now)
    command = np.int64(s.operations[pc]["work"])
    if command >= 0:
        add(s, g, w, command, 1)
    return True


@inlined
def raise_semaphore(s: State, g: Int, lead: Int, number: Int, now: Int) -> None:
    """Adds one to a semaphore; its stream, if it waits, goes on."""
    i = semaphore_of(s, g, lead, number)
    s.semaphores[i]["value"] += 1
    waiter = np.int64(s.semaphores[i]["waiter"])
    if waiter >= 0:
        s.semaphores[i]["waiter"] = -1
        wake(s, g, waiter, now)


@compiled
def release(s: State, g: Int, w: Int, pc: Int, now: Int) -> Int:
    """Releases a semaphore behind all that the stream has done. Returns ``now`` where that is
    complete, or when it will be; -1 while loads are still arriving, which the stream waits for."""
    apart()
    group = s.groups[g * s.cfg[GROUPS] + w]
    if group["loads"] > 0:
        group["blocked"] = ON_LOADS
        return np.int64(-1)
    if group["last"] > now:
        return group["last"]
    raise_semaphore(s, g, np.int64(group["lead"]), np.int64(s.operations[pc]["buffer"]), now)
    return now


@compiled
def release_behind(s: State, g: Int, w: Int, pc: Int, slot: Int, now: Int) -> None:
    """Releases a semaphore behind the loads, stores and puts of a tile slot."""
    apart()
    lead = np.int64(s.groups[g * s.cfg[GROUPS] + w]["lead"])
    number = np.int64(s.operations[pc]["buffer"])
    semaphore = s.semaphores[semaphore_of(s, g, lead, number)]
    time = max(s.tiles[slot]["ready"], s.shared_tiles[slot]["sent"])
    there = s.tiles[slot]["pending"] == 0
    if there and time <= now and semaphore["first"] < 0:
        raise_semaphore(s, g, lead, number, now)
        return
    r = new_request(s, g)
    i = g * s.cfg[POOL] + r
    s.requests[i]["group"] = lead
    s.requests[i]["slot"] = number
    s.requests[i]["next"] = -1
    s.requests[i]["done"] = max(now, time) if there else NEVER
    if semaphore["first"] < 0:
        semaphore["first"] = r
        if there:
            schedule(s, g, r, s.requests[i]["done"], RAISED)
    else:
        s.requests[g * s.cfg[POOL] + np.int64(semaphore["last"])]["next"] = r
    semaphore["last"] = r
    if not there:
        s.requests[i]["origin"] = s.shared_tiles[slot]["releases"]
        s.shared_tiles[slot]["releases"] = r


@compiled
def raised(s: State, g: Int, r: Int, now: Int) -> None:
    """The event of a semaphore that was released behind a tile: the first that was."""
    apart()
    i = g * s.cfg[POOL] + r
    lead, number = np.int64(s.requests[i]["group"]), np.int64(s.requests[i]["slot"])
    following = np.int64(s.requests[i]["next"])
    free_request(s, g, r)
    s.semaphores[semaphore_of(s, g, lead, number)]["first"] = following
    if following >= 0:
        done = s.requests[g * s.cfg[POOL] + following]["done"]
        if done < NEVER:
            schedule(s, g, following, max(now, done), RAISED)
    raise_semaphore(s, g, lead, number, now)


@compiled
def came(s: State, g: Int, w: Int, slot: Int, done: Int) -> None:
    """A piece of a load of an observed stream arrives. Behind the last one of a tile slot its
    semaphores are raised, each if no earlier release of it is left, and the other streams of the
    workgroup that wait for the slot go on."""
    apart()
    piece_came(s, g, w, slot, done)
    if s.tiles[slot]["pending"] > 0:
        return
    lead = np.int64(s.groups[g * s.cfg[GROUPS] + w]["lead"])
    time = max(s.tiles[slot]["ready"], s.shared_tiles[slot]["sent"])
    r = np.int64(s.shared_tiles[slot]["releases"])
    s.shared_tiles[slot]["releases"] = -1
    while r >= 0:
        i = g * s.cfg[POOL] + r
        s.requests[i]["done"] = time
        number = np.int64(s.requests[i]["slot"])
        if s.semaphores[semaphore_of(s, g, lead, number)]["first"] == r:
            schedule(s, g, r, time, RAISED)
        r = np.int64(s.requests[i]["origin"])
    for other in range(lead, lead + s.cfg[WIDTH]):
        group = s.groups[g * s.cfg[GROUPS] + other]
        if other != w and group["blocked"] == ON_TILE and group["waiting"] == slot:
            wake(s, g, other, s.tiles[slot]["ready"])
