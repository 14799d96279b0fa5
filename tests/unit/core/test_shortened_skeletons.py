"""Deadlock checks of streams with long loops: a few trips decide as all do."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from starc.core.quasi_affine.expressions import Const, Var
from starc.core.streams import stream_events
from starc.core.streams.happens_before import check
from starc.core.streams.skeleton import Skeleton, SkeletonLaunch
from starc.core.streams.stream_template import (
    Loop,
    LoopKey,
    Node,
    Signal,
    Streams,
    Wait,
    loop_key,
    nodes,
)
from tests.unit.core.test_stream_order import templates

MESH = (("cube", 2), ("pe", 2))
ONE = Const(1)


@st.composite
def launches(draw: st.DrawFn) -> SkeletonLaunch:
    """Streams in a long loop, with signals to the next device and waits before and behind it."""
    template = draw(templates())
    around = st.sampled_from(
        (
            (),
            (Wait("a", Const(0), ONE),),
            (Signal("a", Const(0), ONE, (Var("device") + 1) % 4),),
        )
    )
    streams: list[tuple[str, tuple[Node, ...]]] = []
    for engine, body in template.streams:
        before: tuple[Node, ...] = draw(around)
        behind: tuple[Node, ...] = draw(around)
        streams.append((engine, (*before, *body, *behind)))
    skeleton = Skeleton("k", (), tuple(streams), template.semaphores)
    return SkeletonLaunch("k", ((skeleton, 1),))


def all_loops(streams: Streams, *, also: tuple[type, ...] = ()) -> frozenset[LoopKey]:
    del also
    return frozenset(
        loop_key(node) for _, body in streams for node in nodes(body) if isinstance(node, Loop)
    )


@settings(max_examples=300, deadline=None)
@given(launches())
def test_shortened_loops_decide_as_whole_ones(launch: SkeletonLaunch) -> None:
    short = check((launch,), {"a": 1}, MESH)
    with patch.object(stream_events, "whole_loops", all_loops):
        whole = check((launch,), {"a": 1}, MESH)
    assert bool(short) == bool(whole)
