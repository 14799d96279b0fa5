"""Workgroups: in-order streams of instructions with asynchronous memory operations.

A stream runs until it has to wait: for bytes of its window, a tile slot, an engine, a counter, the
acknowledgement of its writes, or a time. Whoever ends the wait gives the stream its next event, so
a stream has at most one. Pieces of a memory operation issue one a cycle. What has arrived at the
CU leaves the window when its last byte is there; such loads wait in a list until the stream looks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from starc.simulator.core.compiled import inlined
from starc.simulator.core.event_queue import schedule_group
from starc.simulator.core.requests.arrivals import release_arrived
from starc.simulator.core.streams.instructions import execute
from starc.simulator.core.streams.loops import turns
from starc.simulator.core.streams.memory_operations import issue_piece
from starc.simulator.core.waits import ON_END, ON_WINDOW
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.numbers import GROUPS, POOL

FINISHED = 1
ONGOING = 0


@inlined
def step(s: State, g: Int, w: Int, now: Int) -> Int:
    """Runs a stream from its event at ``now`` until it waits; ``FINISHED`` when it is over and
    everything that it began is complete."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    release_arrived(s, g, w, now)
    while True:
        pc = np.int64(group["pc"])
        if group["issuing"] == 1:
            if not issue(s, g, w, pc, now):
                return ONGOING
        elif pc == group["end"]:
            return FINISHED if is_complete(s, g, w, now) else ONGOING
        elif not turns(s, g, w, pc):
            if not execute(s, g, w, pc, now):
                return ONGOING


@inlined
def issue(s: State, g: Int, w: Int, pc: Int, now: Int) -> Any:
    """Issues the next piece of a memory operation; False where the stream waits for that."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    if group["flight"] >= group["window"]:
        arrived = np.int64(group["arrived"])
        if arrived >= 0:
            done = s.requests[g * s.cfg[POOL] + arrived]["done"]
            schedule_group(s, g, w, max(done, group["next_issue"]))
        else:
            group["blocked"] = ON_WINDOW
        return False
    if now < group["next_issue"]:
        schedule_group(s, g, w, group["next_issue"])
        return False
    issue_piece(s, g, w, pc, now)
    if group["run_left"] == 0:
        group["issuing"] = 0
        group["pc"] += 1
    return True


@inlined
def is_complete(s: State, g: Int, w: Int, now: Int) -> Any:
    """Whether everything that a stream began is complete; where not, it waits for that."""
    group = s.groups[g * s.cfg[GROUPS] + w]
    if group["loads"] + group["writes"] + group["signals"] > 0:
        group["blocked"] = ON_END
        return False
    if group["last"] > now:
        schedule_group(s, g, w, group["last"])
        return False
    return True
