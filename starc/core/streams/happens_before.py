"""Can every wait be satisfied? Deadlock of kernels that wait for each other's signals.

Counters only grow and a wait asks for "at least", so whether a schedule ends does not depend on the
order in which streams advance: letting every stream run as far as it can, again and again, either
ends or finds the streams that no order can finish. That is done here on the synchronisation
skeleton of a layer: its launches with all but signals and waits left out, loops expanded, for all
workgroups of all devices at once (numpy arrays over streams, one event of the template at a time).

A template of several engines has a sequence for each of them, joined by semaphores of the
workgroup: its waits may stand in another stream than its signals. Those streams count as streams,
and a semaphore as a counter that nobody else sees: its k-th acquire waits until it has been
released k times, less what it starts with. Long loops that neither signal nor wait are shortened
(``starc.core.streams.stream_template.Window``): what follows them waits for the same.

Launches of a queue start on a device when its earlier launches of that queue have ended there;
devices do not wait for each other in any other way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starc.core.streams.deadlock_explanation import explanation
from starc.core.streams.skeleton import Problem, SkeletonLaunch
from starc.core.streams.stream_events import Events
from starc.core.streams.stream_execution import Execution


def check(
    launches: Sequence[SkeletonLaunch],
    counters: Mapping[str, int],
    mesh: Sequence[tuple[str, int]],
) -> list[Problem]:
    """The problems of a layer's launches; none if every stream ends.

    ``counters`` gives the elements of each counter array; all are zero at the start.
    Raises ``TooLarge`` where the skeleton is too large to expand.
    """
    events = Events(launches, counters, mesh)
    if events.problems:
        return events.problems
    execution = Execution(launches, events)
    execution.run()
    return [] if execution.done.all() else [explanation(execution)]
