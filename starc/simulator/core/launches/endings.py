"""The end of streams, workgroups and launches."""

from __future__ import annotations

import numpy as np

from starc.simulator.core.compiled import apart, compiled, inlined
from starc.simulator.core.event_queue import schedule_control
from starc.simulator.core.launches.controllers import (
    FLUSHES,
    NO_ROOM,
    READY,
    SCANS,
    dispatcher,
    end_launch,
    engine_dispatcher,
    launch_control,
)
from starc.simulator.core.observation import end_observed
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.numbers import (
    COHERENT,
    CONTROLS,
    DIES,
    DIES_PER_DEVICE,
    GROUPS,
    OBSERVED,
    PLACES,
    QUEUES,
    SLOTS,
    WIDTH,
)


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
    device = np.int64(group["device"])
    queue = np.int64(s.launches[np.int64(group["launch"])]["queue"])
    c = launch_control(device, queue)
    on_engine = group["die"] >= s.cfg[DIES]
    if on_engine:
        leave_engine(s, g, w, now)
    else:
        leave_unit(s, g, w, now)
    control = s.controls[g * s.cfg[CONTROLS] + c]
    control["remaining"] -= 1
    if control["remaining"] > 0:
        return
    # Nothing of copy engines is in an L2: none is written back.
    if on_engine or s.cfg[COHERENT] == 1:
        end_launch(s, g, c, now)
    else:
        begin_flush(s, g, c, now)


@inlined
def go_on(s: State, g: Int, d: Int, time: Int) -> None:
    """A dispatcher that found no room looks again."""
    unit = s.controls[g * s.cfg[CONTROLS] + d]
    if unit["state"] == NO_ROOM:
        unit["state"] = READY
        schedule_control(s, g, d, max(time, unit["next_time"]))


@inlined
def leave_engine(s: State, g: Int, w: Int, now: Int) -> None:
    """A copy engine is free."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    s.cus[g * s.cfg[PLACES] + np.int64(group["cu"])]["resident"] = 0
    for queue in range(QUEUES):
        go_on(s, g, engine_dispatcher(s, np.int64(group["device"]), queue), now)


@inlined
def leave_unit(s: State, g: Int, w: Int, now: Int) -> None:
    """The room of a workgroup on its compute unit is free."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    template = np.int64(group["template"])
    cu = s.cus[g * s.cfg[PLACES] + np.int64(group["cu"])]
    slot = np.int64(group["lead"]) // s.cfg[WIDTH] - np.int64(group["cu"]) * s.cfg[SLOTS]
    cu["occupied"] &= ~(np.int64(1) << slot)
    cu["resident"] -= 1
    cu["waves"] -= s.templates[template]["waves"]
    cu["scratch"] -= s.templates[template]["scratch"]
    cu["registers"] -= s.templates[template]["registers"]
    for queue in range(QUEUES):
        go_on(s, g, dispatcher(s, np.int64(group["die"]), queue), now)


@inlined
def begin_flush(s: State, g: Int, c: Int, now: Int) -> None:
    """The dies of a device begin to write back what their L2s hold dirty."""
    control = s.controls[g * s.cfg[CONTROLS] + c]
    device = np.int64(control["unit"])
    control["state"] = FLUSHES
    control["remaining"] = s.cfg[DIES_PER_DEVICE]
    for k in range(s.cfg[DIES_PER_DEVICE]):
        die = device * s.cfg[DIES_PER_DEVICE] + k
        d = dispatcher(s, die, np.int64(control["queue"]))
        unit = s.controls[g * s.cfg[CONTROLS] + d]
        unit["launch"] = control["launch"]
        unit["state"] = SCANS
        unit["cursor"] = 0
        unit["remaining"] = 1  # of the scan itself, so that write-backs do not end it
        unit["next_time"] = now
        schedule_control(s, g, d, now)
