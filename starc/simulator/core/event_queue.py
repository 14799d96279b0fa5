"""The pending events of a GPU: a calendar of buckets, with a binary heap for what lies beyond it.

Events are ordered by (time, key). A bucket holds 256 ps in a list that is linked through the events
themselves and put in order when it is opened, so that an event that enters a later one touches no
other event. An event enters the calendar only when it is less than one turn ahead of the
bucket that is being read, so a bucket never mixes turns; later ones wait in the heap and enter
when the calendar has come near. With ``CALENDAR`` 0 the heap alone keeps all events: the oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from starc.simulator.core.compiled import apart, compiled, inlined
from starc.simulator.state.arrays import Array, Int, State
from starc.simulator.state.numbers import (
    BUCKET_SHIFT,
    BUCKETS,
    CALENDAR,
    CONTROLS,
    ENTITIES,
    GROUPS,
    NEVER,
    POOL,
)


@inlined
def before(events: Array, a: Int, b: Int) -> Any:
    """Whether event ``a`` comes before event ``b``; both are global indices."""
    time_a = events[a]["time"]
    time_b = events[b]["time"]
    return time_a < time_b or (time_a == time_b and events[a]["key"] < events[b]["key"])


@compiled
def heap_push(events: Array, heap: Array, first: Int, size: Int, base: Int, entity: Int) -> None:
    """Adds an entity to the heap of a GPU, which begins at ``first`` and has ``size`` entries;
    its events begin at ``base``."""
    apart()
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        other = np.int64(heap[first + parent])
        if not before(events, base + entity, base + other):
            break
        heap[first + i] = other
        i = parent
    heap[first + i] = entity


@compiled
def heap_pop(events: Array, heap: Array, first: Int, size: Int, base: Int) -> Int:
    """Removes and returns the first entity of a heap of ``size`` entries."""
    apart()
    top = np.int64(heap[first])
    last = np.int64(heap[first + size - 1])
    size -= 1
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and before(
            events, base + np.int64(heap[first + child + 1]), base + np.int64(heap[first + child])
        ):
            child += 1
        candidate = np.int64(heap[first + child])
        if not before(events, base + candidate, base + last):
            break
        heap[first + i] = candidate
        i = child
    heap[first + i] = last
    return top


@inlined
def insert(s: State, head: Int, base: Int, entity: Int) -> None:
    """Inserts an entity into a list that is in order."""
    at = np.int64(s.heads[head])
    if at < 0 or before(s.events, base + entity, base + at):
        s.events[base + entity]["next"] = at
        s.heads[head] = entity
        return
    while True:
        following = np.int64(s.events[base + at]["next"])
        if following < 0 or before(s.events, base + entity, base + following):
            s.events[base + entity]["next"] = following
            s.events[base + at]["next"] = entity
            return
        at = following


@compiled
def link(s: State, head: Int, base: Int, entity: Int) -> None:
    """Inserts an entity into the list of the bucket that is open."""
    apart()
    insert(s, head, base, entity)


@compiled
def put_in_order(s: State, head: Int, base: Int) -> Int:
    """Sorts the list of a bucket, whose latest entry comes first, and returns its first event."""
    apart()
    entity = np.int64(s.heads[head])
    s.heads[head] = -1
    while entity >= 0:
        following = np.int64(s.events[base + entity]["next"])
        insert(s, head, base, entity)
        entity = following
    return np.int64(s.heads[head])


@inlined
def enter(s: State, g: Int, entity: Int, time: Int) -> None:
    """Puts an entity, whose event is set, into the calendar or the heap."""
    base = g * s.cfg[ENTITIES]
    bucket = time >> BUCKET_SHIFT
    if s.cfg[CALENDAR] == 1 and bucket - s.gpus[g]["bucket"] < BUCKETS:
        head = g * BUCKETS + (bucket & (BUCKETS - 1))
        if bucket == s.gpus[g]["opened"]:
            link(s, head, base, entity)
        else:
            s.events[base + entity]["next"] = s.heads[head]
            s.heads[head] = entity
        s.gpus[g]["queued"] += 1
    else:
        size = s.gpus[g]["heap_size"]
        heap_push(s.events, s.heap, g * s.cfg[ENTITIES], size, base, entity)
        s.gpus[g]["heap_size"] = size + 1
    if time < s.gpus[g]["next_time"]:
        s.gpus[g]["next_time"] = time


@inlined
def schedule_group(s: State, g: Int, w: Int, time: Int) -> None:
    """The next event of a workgroup slot."""
    event = g * s.cfg[ENTITIES] + w
    s.events[event]["time"] = time
    s.events[event]["key"] = w << 3
    enter(s, g, w, time)


@inlined
def schedule_control(s: State, g: Int, c: Int, time: Int) -> None:
    """The next event of a controller."""
    entity = s.cfg[GROUPS] + c
    event = g * s.cfg[ENTITIES] + entity
    s.events[event]["time"] = time
    s.events[event]["key"] = entity << 3
    enter(s, g, entity, time)


@inlined
def request_key(s: State, r: Int) -> Int:
    """The key of a request, which a message that it sends carries to the other GPU."""
    return (s.cfg[GROUPS] + s.cfg[CONTROLS] + r) << 3


@inlined
def schedule_request(s: State, g: Int, r: Int, time: Int, phase: Int) -> None:
    """The next event of a request, in a phase."""
    entity = s.cfg[GROUPS] + s.cfg[CONTROLS] + 2 * r
    event = g * s.cfg[ENTITIES] + entity
    s.requests[g * s.cfg[POOL] + r]["phase"] = phase
    s.events[event]["time"] = time
    s.events[event]["key"] = request_key(s, r)
    enter(s, g, entity, time)


@compiled
def pull(s: State, g: Int, bucket: Int) -> None:
    """Moves the reading position of a calendar to ``bucket``, before which it is empty, and takes
    over the events of the heap that are near enough now."""
    apart()
    s.gpus[g]["bucket"] = bucket
    base = g * s.cfg[ENTITIES]
    first = g * s.cfg[ENTITIES]
    while s.gpus[g]["heap_size"] > 0:
        top = np.int64(s.heap[first])
        time = s.events[base + top]["time"]
        if (time >> BUCKET_SHIFT) - bucket >= BUCKETS:
            break
        heap_pop(s.events, s.heap, first, s.gpus[g]["heap_size"], base)
        s.gpus[g]["heap_size"] -= 1
        enter(s, g, top, time)


@compiled
def earliest(s: State, g: Int) -> Int:
    """The time of a GPU's first event, ``NEVER`` if it has none."""
    apart()
    best = np.int64(NEVER)
    base = g * s.cfg[ENTITIES]
    if s.gpus[g]["heap_size"] > 0:
        best = s.events[base + np.int64(s.heap[g * s.cfg[ENTITIES]])]["time"]
    if s.gpus[g]["queued"] > 0:
        bucket = s.gpus[g]["bucket"]
        for offset in range(BUCKETS):
            head = np.int64(s.heads[g * BUCKETS + ((bucket + offset) & (BUCKETS - 1))])
            if head >= 0:
                while head >= 0:
                    best = min(best, s.events[base + head]["time"])
                    head = np.int64(s.events[base + head]["next"])
                break
            if ((bucket + offset) << BUCKET_SHIFT) > best:
                break
    return best
