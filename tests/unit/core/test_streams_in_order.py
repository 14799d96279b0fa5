"""What ``engine_streams`` makes of any body, ``stream_order`` finds in order: two files that know
nothing of each other. And without one of its semaphores, it finds what is not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from starc.core.quasi_affine.expressions import Const
from starc.core.streams import engine_body as engines
from starc.core.streams.engine_dependences import IllegalStages
from starc.core.streams.engine_streams import assign_streams
from starc.core.streams.stream_balance import Problem
from starc.core.streams.stream_order import check
from starc.core.streams.stream_template import (
    Acquire,
    Branch,
    Loop,
    Node,
    Release,
    Semaphore,
    StreamTemplate,
    Tile,
    Use,
    nodes,
)
from tests.unit.core.test_engine_streams import Case, Maker, load, matrix, serial, store, vector

HERE = {"device": 0}


class _Converter:
    """The streams of a case as a template; loops without a number of trips take ``trips``."""

    def __init__(self, case: Case, streams: engines.Streams, trips: int) -> None:
        self.case, self.streams, self.trips = case, streams, trips
        self.depth: dict[int, int] = {}

    def template(self) -> StreamTemplate:
        bodies = tuple(
            (engine, self.body(items, 1)) for engine, items in self.streams.streams.items()
        )
        tiles = tuple(
            Tile(
                f"t{index}",
                # Slots that are not multiples of bytes apart lie in between.
                tile.bytes // tile.slots if tile.bytes >= tile.slots else tile.bytes,
                tile.slots,
                self.depth.get(index, 0) if tile.slots > 1 else 0,
                tile.first_byte if tile.bytes else None,
            )
            for index, tile in enumerate(self.case.tiles)
        )
        semaphores = zip(self.streams.names, self.streams.semaphores, strict=True)
        return StreamTemplate("k", tiles, tuple(Semaphore(*s) for s in semaphores), bodies)

    def body(self, items: Sequence[engines.Item], depth: int) -> tuple[Node, ...]:
        found: list[Node] = []
        for item in items:
            match item:
                case engines.Acquire():
                    found.append(Acquire(item.semaphore, stage=item.stage))
                case engines.Release():
                    found.append(Release(item.semaphore, item.tile, stage=item.stage))
                case engines.Do():
                    it = item.instruction
                    in_flight = it.engine == engines.DMA
                    text = f"{it.engine} {sorted(it.reads)} to {sorted(it.writes)}"
                    reads, writes = tuple(sorted(it.reads)), tuple(sorted(it.writes))
                    if reads or writes:
                        found.append(Use(text, reads, writes, in_flight, stage=item.stage))
                case engines.Inside():
                    found.append(self.inside(item, depth))
                case engines.Sleep():
                    pass
        return tuple(found)

    def inside(self, item: engines.Inside, depth: int) -> Node:
        if isinstance(item.node, engines.Branch):
            taken = Const(0 if self.case.taken(item.node, ()) else -1)
            return Branch(taken, self.body(item.items, depth), item.stage)
        self.depth.update(dict.fromkeys(item.node.tiles, depth))
        trips = Const(self.trips if item.node.trips is None else item.node.trips)
        body = self.body(item.items, depth + 1)
        return Loop(f"counter{depth}", Const(0), trips, body, item.stage)


def converted(case: Case, trips: int, entries: int = 0) -> StreamTemplate:
    return _Converter(case, assign_streams(case.body, case.tiles, entries), trips).template()


def unordered(template: StreamTemplate) -> list[Problem]:
    """The problems but those of bodies that read what nobody has written for them."""
    own = ("before anything has written it", "still holds iteration", "have become those of")
    return [p for p in check(template, HERE) if not any(text in p.message for text in own)]


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 7), st.integers(0, 3))
def test_any_body(seed: int, trips: int, entries: int) -> None:
    case = Maker(seed).case()
    if len(serial(case)) > 300:
        return
    with suppress(IllegalStages):
        assert unordered(converted(case, trips, entries)) == []


def test_without_a_semaphore() -> None:
    """A sweep of two products and an update: every semaphore inside of it orders it, but queues of
    commands that are not behind a wait of the CPU."""
    sweep = engines.Loop(
        (
            vector(2),
            engines.Loop((load(0), matrix(2, 0)), frozenset({0}), 6, 0, 1),
            vector(3, 2),
            engines.Loop((load(1), matrix(4, 1, 3)), frozenset({1}), 6, 0, 2),
            vector(4, 4),
        ),
        frozenset({2, 3}),
        5,
        0,
        3,
    )
    tiles = tuple(
        engines.Tile(slots, 64 * i, 16 * slots) for i, slots in enumerate((2, 2, 1, 1, 1))
    )
    template = converted(Case((vector(4), sweep, store(4)), tiles), 0)
    assert unordered(template) == []
    joined = {
        node.semaphore
        for _, body in template.streams
        for loop in body
        if isinstance(loop, Loop)
        for node in nodes(loop.body)
        if isinstance(node, Acquire | Release)
    }
    needed: list[str] = []
    for index in sorted(joined):
        streams = tuple((engine, _without(body, index)) for engine, body in template.streams)
        if unordered(replace(template, streams=streams)):
            needed.append(template.semaphores[index].name)
        else:
            assert template.semaphores[index].name in ("math_queue", "dma_queue")
    assert len(needed) == 9


def _without(body: Sequence[Node], semaphore: int) -> tuple[Node, ...]:
    kept: list[Node] = []
    for node in body:
        if isinstance(node, Acquire | Release) and node.semaphore == semaphore:
            continue
        if isinstance(node, Loop | Branch):
            node = replace(node, body=_without(node.body, semaphore))
        kept.append(node)
    return tuple(kept)


def test_long_loops() -> None:
    """A million trips, of which a few are executed."""
    body = engines.Loop((load(0), matrix(1, 0), vector(2, 1)), frozenset({0}), None, 0, 1)
    tiles = (engines.Tile(3, 0, 48), engines.Tile(), engines.Tile())
    assert unordered(converted(Case((vector(1), body), tiles), 1_000_000)) == []
