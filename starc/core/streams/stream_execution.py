"""Runs the events of all streams until none can go on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from starc.core.streams.skeleton import SkeletonLaunch
from starc.core.streams.stream_events import Events, Mask, StreamGroup


class Execution:
    """All streams, each as far as it gets."""

    def __init__(self, launches: Sequence[SkeletonLaunch], events: Events) -> None:
        self.launches = launches
        self.events = events
        self.groups = events.groups
        self.devices = events.devices
        # The launch before each one in its queue: where it has ended, all before it have.
        last: dict[int, int] = {}
        self.before: list[int | None] = []
        for index, launch in enumerate(launches):
            self.before.append(last.get(launch.queue))
            last[launch.queue] = index
        self.done = np.zeros((len(launches), self.devices), bool)
        self.counts = np.zeros(events.end, np.int64)

    def run(self) -> None:
        progress = True
        left = list(range(len(self.launches)))
        while progress:
            progress = False
            left = [index for index in left if not self.done[index].all()]
            for index in left:
                ready = self.ready(index) & ~self.done[index]
                if not ready.any():
                    continue
                for streams in self.groups[index]:
                    progress |= self._advance(streams, ready)
                ended = ready & self._ended(index)
                if ended.any():
                    self.done[index] |= ended
                    progress = True

    def ready(self, index: int) -> Mask:
        """Devices on which the launch has started."""
        launch, before = self.launches[index], self.before[index]
        ready = np.ones(self.devices, bool) if before is None else self.done[before].copy()
        if launch.depends is not None:
            ready &= self.done[launch.depends]
        return ready

    def _ended(self, index: int) -> Mask:
        ended = np.ones(self.devices, bool)
        for streams in self.groups[index]:
            ended[streams.device[streams.unfinished()]] = False
        return ended

    def _advance(self, streams: StreamGroup, ready: Mask) -> bool:
        """Runs the streams on ready devices as far as they get."""
        advanced = False
        while True:
            live = np.flatnonzero(ready[streams.device] & streams.unfinished())
            moved = False
            while len(live):
                at = streams.next(live)
                slot, value, signal = streams.slot[at], streams.value[at], streams.signal[at]
                if np.count_nonzero(signal):
                    np.add.at(self.counts, slot[signal], value[signal])
                live = live[signal | (self.counts[slot] >= value)]
                if len(live):
                    moved = True
                    streams.at[live] += 1
                    live = live[streams.at[live] < streams.length[live]]
            if not moved:
                return advanced
            advanced = True
