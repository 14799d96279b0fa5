"""Launches: one controller per device and queue, one dispatcher per die and queue, and one for the
copy engines of a device and queue.

A launch starts a gap after its predecessor on the queue, and not before the host has issued it.
Workgroup w goes to die w mod n of its device; a die starts one workgroup an interval, on the
compute unit with the fewest workgroups that has room. Streams of copy engines start as soon as an
engine is free, and take no room of compute units. The launch ends with its last workgroup and,
on devices with several L2s, with the write- back of what they hold dirty, after which they are
empty.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from starc.simulator.caches import DIRTY, EMPTY, TAG_SHIFT, WAY_BITS, WAYS
from starc.simulator.compiled import apart, compiled, inlined
from starc.simulator.event_queue import schedule_control, schedule_group
from starc.simulator.memory import write_back
from starc.simulator.observation import begin_observed, end_observed
from starc.simulator.semaphores import begin_semaphores
from starc.simulator.state import (
    COHERENT,
    CONTROLS,
    CUS,
    DEVICES,
    DIES,
    DIES_PER_CARRIER,
    DIES_PER_DEVICE,
    ENGINES,
    GPUS,
    GROUPS,
    L2_SETS,
    LAUNCHES,
    LOOPS,
    OBSERVED,
    PLACES,
    QUEUES,
    REGISTERS,
    RETAINS,
    SCRATCH,
    SKEW_PS,
    SLOTS,
    TILE_SLOTS,
    VARIABLES,
    WAVES,
    WIDTH,
    Int,
    State,
)

# States of a launch controller.
SCHEDULED = 0
WAITS_FOR_QUEUE = 1
ACTIVE = 2
FLUSHES = 3
DONE = 4
# States of a dispatcher.
IDLE = 0
READY = 1
NO_ROOM = 2
SCANS = 3
DRAINS = 4


@inlined
def launch_control(device: Int, queue: Int) -> Int:
    return device * QUEUES + queue


@inlined
def dispatcher(s: State, die: Int, queue: Int) -> Int:
    return (s.cfg[DEVICES] + die) * QUEUES + queue


@inlined
def engine_dispatcher(s: State, device: Int, queue: Int) -> Int:
    return (s.cfg[DEVICES] + s.cfg[DIES] + device) * QUEUES + queue


@inlined
def start_skew(s: State, die: Int, workgroup: Int) -> Int:
    """A hash of die and workgroup: workgroups of a real device do not start in lockstep."""
    if s.cfg[SKEW_PS] == 0:
        return np.int64(0)
    x = (die * 40503 + workgroup * 30011 + 12345) & 0xFFFFFF
    x = ((x ^ (x >> 11)) * 37813) & 0xFFFFFF
    x = ((x ^ (x >> 9)) * 52711) & 0xFFFFFF
    return (x ^ (x >> 12)) % s.cfg[SKEW_PS]


@inlined
def ended(s: State, g: Int, device: Int, launch: Int) -> Any:
    """Whether a launch has ended on a device."""
    return s.ends[(launch * s.cfg[GPUS] + g) * s.cfg[DEVICES] + device] >= 0


@compiled
def next_launch(s: State, g: Int, c: Int, now: Int) -> None:
    """The controller goes on to the launch at its position, or is done."""
    apart()
    control = s.controls[g * s.cfg[CONTROLS] + c]
    queue = np.int64(control["queue"])
    if control["position"] >= s.order_lengths[queue]:
        control["state"] = DONE
        return
    launch = np.int64(s.orders[queue * s.cfg[LAUNCHES] + control["position"]])
    control["launch"] = launch
    # The host launches ahead: what it takes shows where kernels are shorter.
    control["next_time"] = max(now + s.launches[launch]["gap"], s.launches[launch]["issued"])
    depends = np.int64(s.launches[launch]["depends"])
    if depends >= 0 and not ended(s, g, np.int64(control["unit"]), depends):
        control["state"] = WAITS_FOR_QUEUE
        return
    control["state"] = SCHEDULED
    schedule_control(s, g, c, control["next_time"])


@compiled
def end_launch(s: State, g: Int, c: Int, now: Int) -> None:
    """A launch is over: its successor, and one of the other queue that waits for it."""
    apart()
    control = s.controls[g * s.cfg[CONTROLS] + c]
    launch = np.int64(control["launch"])
    device = np.int64(control["unit"])
    s.ends[(launch * s.cfg[GPUS] + g) * s.cfg[DEVICES] + device] = now
    for queue in range(QUEUES):
        other = launch_control(device, queue)
        waiting = s.controls[g * s.cfg[CONTROLS] + other]
        if waiting["state"] == WAITS_FOR_QUEUE:
            if s.launches[np.int64(waiting["launch"])]["depends"] == launch:
                waiting["state"] = SCHEDULED
                schedule_control(s, g, other, max(now, waiting["next_time"]))
    control["position"] += 1
    next_launch(s, g, c, now)


@compiled
def start_launch(s: State, g: Int, c: Int, now: Int) -> None:
    """Gives a launch to the dispatchers of its device."""
    apart()
    control = s.controls[g * s.cfg[CONTROLS] + c]
    launch = np.int64(control["launch"])
    device = np.int64(control["unit"])
    total = np.int64(s.launches[launch]["workgroups"])
    s.starts[(launch * s.cfg[GPUS] + g) * s.cfg[DEVICES] + device] = now
    control["state"] = ACTIVE
    control["remaining"] = total
    if total == 0:
        end_launch(s, g, c, now)
        return
    if s.launches[launch]["engines"] == 1:
        d = engine_dispatcher(s, device, np.int64(control["queue"]))
        unit = s.controls[g * s.cfg[CONTROLS] + d]
        unit["launch"] = launch
        unit["position"] = 0
        unit["total"] = total
        unit["state"] = READY
        unit["next_time"] = now
        schedule_control(s, g, d, now)
        return
    for k in range(s.cfg[DIES_PER_DEVICE]):
        if k < total:
            d = dispatcher(s, device * s.cfg[DIES_PER_DEVICE] + k, np.int64(control["queue"]))
            unit = s.controls[g * s.cfg[CONTROLS] + d]
            unit["launch"] = launch
            unit["position"] = k
            unit["total"] = total
            unit["state"] = READY
            unit["next_time"] = now
            schedule_control(s, g, d, now)


@inlined
def part_of(s: State, launch: Int, workgroup: Int) -> Int:
    """The part of a launch that a workgroup belongs to: within a band, the parts follow each
    other."""
    bands = np.int64(s.launches[launch]["bands"])
    place = workgroup % (np.int64(s.launches[launch]["workgroups"]) // bands)
    part = np.int64(s.launches[launch]["first_part"])
    last = part + s.launches[launch]["parts"] - 1
    while part < last and place * bands >= s.parts[part + 1]["first"]:
        part += 1
    return part


@inlined
def number_in_part(s: State, launch: Int, part: Int, workgroup: Int) -> Int:
    """A workgroup's number within its part."""
    bands = np.int64(s.launches[launch]["bands"])
    length = np.int64(s.launches[launch]["workgroups"]) // bands
    first = np.int64(s.parts[part]["first"]) // bands
    share = np.int64(s.parts[part]["workgroups"]) // bands
    return workgroup // length * share + workgroup % length - first


@compiled
def find_cu(s: State, g: Int, die: Int, template: Int) -> Int:
    """The compute unit of a die with the fewest workgroups among those with room, or -1."""
    needs = s.templates[template]
    best = np.int64(-1)
    fewest = np.int64(1 << 30)
    first = g * s.cfg[PLACES] + die * s.cfg[CUS]
    for k in range(s.cfg[CUS]):
        cu = s.cus[first + k]
        if (
            cu["resident"] < fewest
            and cu["resident"] < s.cfg[SLOTS]
            and cu["waves"] + needs["waves"] <= s.cfg[WAVES]
            and cu["scratch"] + needs["scratch"] <= s.cfg[SCRATCH]
            and cu["registers"] + needs["registers"] <= s.cfg[REGISTERS]
        ):
            fewest = np.int64(cu["resident"])
            best = np.int64(k)
    return best


@compiled
def place_workgroup(
    s: State, g: Int, die: Int, k: Int, launch: Int, part: Int, workgroup: Int, now: Int
) -> None:
    """Puts a workgroup into a slot of compute unit ``k`` of a die."""
    template = np.int64(s.parts[part]["template"])
    cu_index = die * s.cfg[CUS] + k
    cu = s.cus[g * s.cfg[PLACES] + cu_index]
    slot = np.int64(0)
    while (cu["occupied"] >> slot) & 1 == 1:
        slot += 1
    cu["occupied"] |= np.int64(1) << slot
    cu["resident"] += 1
    cu["waves"] += s.templates[template]["waves"]
    cu["scratch"] += s.templates[template]["scratch"]
    cu["registers"] += s.templates[template]["registers"]
    w = (cu_index * s.cfg[SLOTS] + slot) * s.cfg[WIDTH]
    device = die // s.cfg[DIES_PER_DEVICE]
    time = now + s.launches[launch]["prologue"] + start_skew(s, die, workgroup)
    begin_stream(s, g, w, cu_index, die, device, launch, part, workgroup, time)
    if s.templates[template]["streams"] > 0:
        begin_others(s, g, w, cu_index, die, device, launch, part, workgroup, time)


@compiled
def begin_stream(
    s: State,
    g: Int,
    w: Int,
    place: Int,
    die: Int,
    device: Int,
    launch: Int,
    part: Int,
    workgroup: Int,
    time: Int,
) -> None:
    """The stream of a workgroup begins at ``time`` in slot ``w`` of a place: a compute unit of a
    die, or a copy engine, whose die is that of its carrier behind all others."""
    template = np.int64(s.parts[part]["template"])
    i = g * s.cfg[GROUPS] + w
    group = s.groups[i]
    group["next_issue"] = 0
    group["last"] = time
    group["pc"] = s.templates[template]["first"]
    group["end"] = s.templates[template]["end"]
    group["window"] = s.parts[part]["window"]
    group["flight"] = 0
    group["blocked"] = 0
    group["loads"] = 0
    group["writes"] = 0
    group["signals"] = 0
    group["arrived"] = -1
    group["arrived_tail"] = -1
    group["issuing"] = 0
    group["slept"] = 0
    group["template"] = template
    group["workgroup"] = workgroup
    group["launch"] = launch
    group["device"] = device
    group["die"] = die
    group["cu"] = place
    group["lead"] = w
    first = i * s.cfg[TILE_SLOTS]
    for t in range(first, first + s.templates[template]["tile_slots"]):
        s.tiles[t]["ready"] = 0
        s.tiles[t]["read"] = 0
        s.tiles[t]["pending"] = 0
        s.tiles[t]["added"] = 0
    for d in range(LOOPS):
        s.loops[i * LOOPS + d]["value"] = 0
        s.loops[i * LOOPS + d]["lower"] = 0
    v = i * VARIABLES
    node_device = g * s.cfg[DEVICES] + device
    s.variables[v] = number_in_part(s, launch, part, workgroup)
    s.variables[v + 5] = node_device
    for axis in range(4):
        s.variables[v + 6 + axis] = s.coordinates[node_device * 4 + axis]
    if s.cfg[OBSERVED] == 1:
        begin_observed(s, g, w, np.int64(-1), np.int64(1), time)
    schedule_group(s, g, w, time)


@compiled
def begin_others(
    s: State,
    g: Int,
    lead: Int,
    place: Int,
    die: Int,
    device: Int,
    launch: Int,
    part: Int,
    workgroup: Int,
    time: Int,
) -> None:
    """The streams of a workgroup that has several begin together: the first, which has begun, in
    the slot that has the tiles and semaphores of all, the others in the slots behind it."""
    apart()
    template = np.int64(s.parts[part]["template"])
    first = np.int64(s.templates[template]["first_stream"])
    count = np.int64(s.templates[template]["streams"])
    begin_semaphores(s, g, lead, template)
    for k in range(count):
        w = lead + k
        if k > 0:
            begin_stream(s, g, w, place, die, device, launch, part, workgroup, time)
        group = s.groups[g * s.cfg[GROUPS] + w]
        group["lead"] = lead
        group["pc"] = s.streams[first + k]["first"]
        group["end"] = s.streams[first + k]["end"]
        begin_observed(s, g, w, np.int64(s.streams[first + k]["engine"]), count, time)


@compiled
def dispatch(s: State, g: Int, c: Int, now: Int) -> None:
    """A dispatcher starts its next workgroup where there is room."""
    apart()
    unit = s.controls[g * s.cfg[CONTROLS] + c]
    launch = np.int64(unit["launch"])
    die = np.int64(unit["unit"])
    workgroup = np.int64(unit["position"])
    part = part_of(s, launch, workgroup)
    k = find_cu(s, g, die, np.int64(s.parts[part]["template"]))
    if k < 0:
        unit["state"] = NO_ROOM
        return
    place_workgroup(s, g, die, k, launch, part, workgroup, now)
    unit["position"] += s.cfg[DIES_PER_DEVICE]
    unit["next_time"] = now + s.launches[launch]["interval"]
    if unit["position"] < unit["total"]:
        schedule_control(s, g, c, unit["next_time"])
    else:
        unit["state"] = IDLE


@compiled
def dispatch_engines(s: State, g: Int, c: Int, now: Int) -> None:
    """Starts the next streams of a launch on the copy engines of its device that are free. Engines
    that follow each other stand on different carriers of the device."""
    unit = s.controls[g * s.cfg[CONTROLS] + c]
    launch = np.int64(unit["launch"])
    device = np.int64(unit["unit"])
    units = s.cfg[DIES] * s.cfg[CUS]
    low = device * s.cfg[DIES_PER_DEVICE] // s.cfg[DIES_PER_CARRIER]
    last = (device + 1) * s.cfg[DIES_PER_DEVICE] - 1
    carriers = last // s.cfg[DIES_PER_CARRIER] - low + 1
    for k in range(s.cfg[ENGINES]):
        if unit["position"] == unit["total"]:
            break
        place = units + device * s.cfg[ENGINES] + k
        engine = s.cus[g * s.cfg[PLACES] + place]
        if engine["resident"] == 0:
            engine["resident"] = 1
            workgroup = np.int64(unit["position"])
            unit["position"] += 1
            part = part_of(s, launch, workgroup)
            die = s.cfg[DIES] + low + k % carriers
            w = units * s.cfg[SLOTS] * s.cfg[WIDTH] + device * s.cfg[ENGINES] + k
            time = now + s.launches[launch]["prologue"]
            begin_stream(s, g, w, place, die, device, launch, part, workgroup, time)
    unit["state"] = IDLE if unit["position"] == unit["total"] else NO_ROOM


@compiled
def empty_l2(s: State, g: Int, die: Int) -> None:
    """Invalidates an L2."""
    words = s.cfg[L2_SETS] << WAY_BITS
    first = (g * s.cfg[DIES] + die) * words
    for i in range(first, first + words):
        s.l2[i] = (EMPTY << TAG_SHIFT) | (i & (WAYS - 1))


@compiled
def flush(s: State, g: Int, c: Int, now: Int) -> None:
    """A dispatcher writes its die's L2 back, one granule an event; the last one to finish ends the
    launch."""
    apart()
    unit = s.controls[g * s.cfg[CONTROLS] + c]
    die = np.int64(unit["unit"])
    words = s.cfg[L2_SETS] << WAY_BITS
    base = (g * s.cfg[DIES] + die) * words
    if unit["state"] == SCANS:
        cursor = np.int64(unit["cursor"])
        while cursor < words:
            word = np.int64(s.l2[base + cursor])
            if word & DIRTY != 0:
                block = word >> TAG_SHIFT
                line = base + (cursor & ~(WAYS - 1)) + (word & (WAYS - 1))
                dirty = np.int64(s.l2_lines[line]["dirty"])
                s.l2[base + cursor] = word & ~DIRTY
                s.l2_lines[line]["dirty"] = 0
                unit["remaining"] += 1
                free = write_back(s, g, die, block, dirty, np.int64(unit["launch"]), c, now)
                unit["cursor"] = cursor + 1
                schedule_control(s, g, c, free)
                return
            cursor += 1
        unit["state"] = DRAINS
        unit["remaining"] -= 1
        if unit["remaining"] > 0:
            return
        if unit["next_time"] > now:
            schedule_control(s, g, c, unit["next_time"])
            return
    if s.cfg[RETAINS] == 0:
        empty_l2(s, g, die)
    unit["state"] = IDLE
    control_index = launch_control(die // s.cfg[DIES_PER_DEVICE], np.int64(unit["queue"]))
    control = s.controls[g * s.cfg[CONTROLS] + control_index]
    control["remaining"] -= 1
    if control["remaining"] == 0:
        end_launch(s, g, control_index, now)


@compiled
def control_event(s: State, g: Int, c: Int, now: Int) -> None:
    """The event of a controller."""
    apart()
    control = s.controls[g * s.cfg[CONTROLS] + c]
    if c < s.cfg[DEVICES] * QUEUES:
        start_launch(s, g, c, now)
    elif c >= engine_dispatcher(s, np.int64(0), np.int64(0)):
        dispatch_engines(s, g, c, now)
    elif control["state"] == READY:
        dispatch(s, g, c, now)
    else:
        flush(s, g, c, now)


@compiled
def finish_group(s: State, g: Int, w: Int, now: Int) -> None:
    """A stream is over. With the last one of its workgroup that is over: its room is free, and with
    the last one of its launch that is over."""
    apart()
    group = s.groups[g * s.cfg[GROUPS] + w]
    if s.cfg[OBSERVED] == 1:
        end_observed(s, g, w)
        others = s.observed[g * s.cfg[GROUPS] + np.int64(group["lead"])]
        others["streams"] -= 1
        if others["streams"] > 0:
            return
    template = np.int64(group["template"])
    die = np.int64(group["die"])
    device = np.int64(group["device"])
    cu = s.cus[g * s.cfg[PLACES] + np.int64(group["cu"])]
    if die >= s.cfg[DIES]:
        cu["resident"] = 0
        for queue in range(QUEUES):
            d = engine_dispatcher(s, device, queue)
            unit = s.controls[g * s.cfg[CONTROLS] + d]
            if unit["state"] == NO_ROOM:
                unit["state"] = READY
                schedule_control(s, g, d, now)
        c = launch_control(device, np.int64(s.launches[np.int64(group["launch"])]["queue"]))
        control = s.controls[g * s.cfg[CONTROLS] + c]
        control["remaining"] -= 1
        if control["remaining"] == 0:
            # Nothing of it is in an L2: none is written back.
            end_launch(s, g, c, now)
        return
    slot = np.int64(group["lead"]) // s.cfg[WIDTH] - np.int64(group["cu"]) * s.cfg[SLOTS]
    cu["occupied"] &= ~(np.int64(1) << slot)
    cu["resident"] -= 1
    cu["waves"] -= s.templates[template]["waves"]
    cu["scratch"] -= s.templates[template]["scratch"]
    cu["registers"] -= s.templates[template]["registers"]
    for queue in range(QUEUES):
        d = dispatcher(s, die, queue)
        unit = s.controls[g * s.cfg[CONTROLS] + d]
        if unit["state"] == NO_ROOM:
            unit["state"] = READY
            schedule_control(s, g, d, max(now, unit["next_time"]))
    queue = np.int64(s.launches[np.int64(group["launch"])]["queue"])
    c = launch_control(device, queue)
    control = s.controls[g * s.cfg[CONTROLS] + c]
    control["remaining"] -= 1
    if control["remaining"] > 0:
        return
    if s.cfg[COHERENT] == 1:
        end_launch(s, g, c, now)
        return
    control["state"] = FLUSHES
    control["remaining"] = s.cfg[DIES_PER_DEVICE]
    for k in range(s.cfg[DIES_PER_DEVICE]):
        d = dispatcher(s, device * s.cfg[DIES_PER_DEVICE] + k, queue)
        unit = s.controls[g * s.cfg[CONTROLS] + d]
        unit["launch"] = control["launch"]
        unit["state"] = SCANS
        unit["cursor"] = 0
        unit["remaining"] = 1  # of the scan itself, so that write-backs do not end it
        unit["next_time"] = now
        schedule_control(s, g, d, now)


@compiled
def begin(s: State) -> None:
    """The first launch of every queue."""
    for g in range(s.cfg[GPUS]):
        for c in range(s.cfg[DEVICES] * QUEUES):
            next_launch(s, g, c, np.int64(0))
