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

from starc.simulator.core.compiled import apart, compiled, entry, inlined
from starc.simulator.core.event_queue import schedule_control
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.numbers import (
    CONTROLS,
    DEVICES,
    DIES,
    DIES_PER_DEVICE,
    GPUS,
    LAUNCHES,
    QUEUES,
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


@entry
def begin(s: State) -> None:
    """The first launch of every queue."""
    for g in range(s.cfg[GPUS]):
        for c in range(s.cfg[DEVICES] * QUEUES):
            next_launch(s, g, c, np.int64(0))
