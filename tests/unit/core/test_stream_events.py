"""Events of streams lie one stream behind the other, each stream's in their order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from starc.core.streams.stream_events import StreamGroup

Event = tuple[frozenset[int], int, int, bool]
STREAMS = 4
EVENTS = st.lists(
    st.tuples(
        st.one_of(
            st.just(frozenset(range(STREAMS))),
            st.frozensets(st.integers(0, STREAMS - 1)),
        ),
        st.integers(0, 9),
        st.integers(0, 9),
        st.booleans(),
    ),
    max_size=6,
)


@given(EVENTS)
def test_a_stream_has_the_events_that_it_takes_part_in(events: list[Event]) -> None:
    group = StreamGroup(0, "launch", np.arange(STREAMS), np.arange(STREAMS), 0)
    active = [np.array(sorted(streams), np.int64) for streams, *_ in events]
    group.fill(
        [
            (streams, streams * 10 + slot, streams * 100 + value, signal)
            for streams, (_, slot, value, signal) in zip(active, events, strict=True)
        ]
    )
    for stream in range(STREAMS):
        own = [event for event in events if stream in event[0]]
        first, length = group.first[stream], group.length[stream]
        part = slice(first, first + length)
        assert list(group.slot[part]) == [stream * 10 + slot for _, slot, _, _ in own]
        assert list(group.value[part]) == [stream * 100 + value for _, _, value, _ in own]
        assert list(group.signal[part]) == [signal for _, _, _, signal in own]
    assert list(group.at) == [0] * STREAMS
