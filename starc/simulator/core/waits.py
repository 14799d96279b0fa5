"""What a stream waits for, and how it goes on."""

from __future__ import annotations

from starc.simulator.core.compiled import inlined
from starc.simulator.core.event_queue import schedule_group
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.numbers import GROUPS

RUNNING = 0
ON_WINDOW = 1
ON_TILE = 2
ON_COUNTER = 3
ON_RELEASE = 4
ON_END = 5
ON_SEMAPHORE = 6
ON_LOADS = 7


@inlined
def wake(s: State, g: Int, w: Int, time: Int) -> None:
    """Gives a waiting stream its next event."""
    s.groups[g * s.cfg[GROUPS] + w]["blocked"] = RUNNING
    schedule_group(s, g, w, time)
