"""Dispatchers: workgroups to compute units, streams to copy engines, and write-backs of L2s."""

from __future__ import annotations

import numpy as np

from starc.simulator.core.compiled import apart, compiled
from starc.simulator.core.event_queue import schedule_control
from starc.simulator.core.launches.controllers import (
    DRAINS,
    IDLE,
    NO_ROOM,
    READY,
    SCANS,
    end_launch,
    engine_dispatcher,
    launch_control,
    start_launch,
)
from starc.simulator.core.launches.placement import begin_stream, find_cu, part_of, place_workgroup
from starc.simulator.core.memory.l2 import empty_l2, write_back
from starc.simulator.core.memory.tags import DIRTY, TAG_SHIFT, WAY_BITS, WAYS
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.numbers import (
    CONTROLS,
    CUS,
    DEVICES,
    DIES,
    DIES_PER_CARRIER,
    DIES_PER_DEVICE,
    ENGINES,
    L2_SETS,
    PLACES,
    QUEUES,
    RETAINS,
    SLOTS,
    WIDTH,
)


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
