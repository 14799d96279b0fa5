"""Who waits for whom, where streams do not end."""

from __future__ import annotations

import numpy as np

from starc.core.streams.skeleton import Problem
from starc.core.streams.stream_events import StreamGroup
from starc.core.streams.stream_execution import Execution
from starc.core.streams.stream_template import (
    Integers,
)


def explanation(execution: Execution) -> Problem:
    """Why the streams of an execution that has run do not all end."""
    return _Explanation(execution).problem()


class _Explanation:
    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.events = execution.events
        self.total = self._total()

    def _blocked(self, index: int) -> tuple[StreamGroup, int] | None:
        """A stream of the launch that has started and not ended, if possible one that waits for
        more than there will be."""
        ready = self.execution.ready(index)
        blocked: list[tuple[StreamGroup, int]] = []
        for streams in self.events.groups[index]:
            stuck = np.flatnonzero(ready[streams.device] & streams.unfinished())
            if not len(stuck):
                continue
            at = streams.next(stuck)
            short = self.total[streams.slot[at]] < streams.value[at]
            if short.any():
                return streams, int(stuck[short][0])
            blocked.append((streams, int(stuck[0])))
        return blocked[0] if blocked else None

    def _total(self) -> Integers:
        """What each counter reaches if every stream ends."""
        total = np.zeros_like(self.execution.counts)
        for streams in (streams for group in self.events.groups for streams in group):
            np.add.at(total, streams.slot[streams.signal], streams.value[streams.signal])
        return total

    def _wait_text(self, streams: StreamGroup, stream: int) -> str:
        at = int(streams.next(stream))
        slot = int(streams.slot[at])
        if slot >= self.events.devices * self.events.width:
            start, semaphores = next((b, s) for b, s in reversed(self.events.joined) if b <= slot)
            semaphore = semaphores[(slot - start) % len(semaphores)]
            return f"%{semaphore.name}, released {self.execution.counts[slot]} times"
        element = slot % self.events.width
        name = max(
            (name for name in self.events.base if self.events.base[name] <= element),
            key=lambda name: self.events.base[name],
        )
        return (
            f"@{name}[{element - self.events.base[name]}] to reach {streams.value[at]} "
            f"(it is at {self.execution.counts[slot]})"
        )

    def _signaller(self, slot: int) -> tuple[StreamGroup, int] | None:
        """A stream that has yet to signal a counter."""
        for streams in (streams for group in self.events.groups for streams in group):
            stream = np.repeat(np.arange(len(streams.device)), streams.length)
            ahead = np.arange(len(stream)) >= streams.next(stream)
            found = stream[streams.signal & (streams.slot == slot) & ahead]
            if len(found):
                return streams, int(found.min())
        return None

    def problem(self) -> Problem:
        """What the first launch that does not end waits for."""
        index, streams, stream = next(
            (index, *found)
            for index in range(len(self.execution.launches))
            if (found := self._blocked(index)) is not None
        )
        at = int(streams.next(stream))
        slot, value = int(streams.slot[at]), int(streams.value[at])
        if self.total[slot] < value:
            message = (
                f"{streams.describe(stream)} waits forever for {self._wait_text(streams, stream)}"
            )
            hint = f"all signals to it add up to {self.total[slot]}"
            return Problem(index, message, hint)
        cycle = self._cycle(streams, stream)
        return Problem(index, "deadlock: " + "; ".join(cycle))

    def _cycle(self, streams: StreamGroup, stream: int) -> list[str]:
        """Who waits for whom, until someone occurs twice."""
        seen: list[tuple[int, int, int, str]] = []
        texts: list[str] = []
        while True:
            device, workgroup = int(streams.device[stream]), int(streams.workgroup[stream])
            key = (streams.launch, device, workgroup, streams.engine)
            if key in seen:
                first = seen.index(key)
                return [*texts[first:], "which closes the cycle"]
            seen.append(key)
            who = streams.describe(stream)
            if not self.execution.ready(streams.launch)[key[1]]:
                texts.append(f"{who} cannot start before the launches ahead of it end")
                following = self._ahead(streams.launch, key[1])
            else:
                texts.append(f"{who} waits for {self._wait_text(streams, stream)}")
                slot = int(streams.slot[streams.next(stream)])
                following = self._signaller(slot)
            if following is None:
                return texts
            streams, stream = following

    def _ahead(self, index: int, device: int) -> tuple[StreamGroup, int] | None:
        """A stuck stream of an earlier launch on the device."""
        for before in range(index):
            for streams in self.events.groups[before]:
                stuck = (streams.device == device) & streams.unfinished()
                if stuck.any():
                    return streams, int(np.flatnonzero(stuck)[0])
        return None
