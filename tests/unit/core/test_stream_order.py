"""Streams whose accesses come in their turn, and the words for those that do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starc.core.quasi_affine.expressions import Const, Expression, Var
from starc.core.streams import stream_order
from starc.core.streams.stream_balance import Problem
from starc.core.streams.stream_order import TooLong, check
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
    Wait,
    Window,
    roles,
    window,
)

HERE = {"device": 0, "wg": 0}
FULL, FREE, DONE, READY = range(4)


def load(tile: int, **options: int) -> Use:
    return Use(f"load into %{tile}", writes=(tile,), in_flight=True, **options)  # pyright: ignore


def loop(*body: Node, trips: int | Expression = 8, variable: str = "i") -> Loop:
    upper = Const(trips) if isinstance(trips, int) else trips
    return Loop(variable, Const(0), upper, body)


def product(trips: int | Expression = 8, slots: int = 2, credits: int | None = None):
    """DMA loads %0, GEMM multiplies it into %1, MATH reads %1: a pipeline of three engines."""
    return StreamTemplate(
        "k",
        (Tile("a", 128, slots, 1, 0), Tile("s", 256, 1, 1, 1024)),
        (
            Semaphore("full"),
            Semaphore("free", slots if credits is None else credits),
            Semaphore("done"),
            Semaphore("ready", 1),
        ),
        (
            ("dma", (loop(Acquire(FREE), load(0), Release(FULL, 0), trips=trips),)),
            (
                "gemm",
                (
                    loop(
                        Acquire(FULL),
                        Acquire(READY),
                        Use("matrix", reads=(0,), writes=(1,)),
                        Release(FREE),
                        Release(DONE),
                        trips=trips,
                    ),
                ),
            ),
            (
                "math",
                (loop(Acquire(DONE), Use("exp", reads=(1,)), Release(READY), trips=trips),),
            ),
        ),
    )


def kinds(template: StreamTemplate) -> list[str]:
    return [problem.kind for problem in check(template, HERE)]


def without(body: Sequence[Node], drop: Node) -> tuple[Node, ...]:
    """A body without one instruction, which is told by its identity."""
    kept: list[Node] = []
    for node in body:
        if node is drop:
            continue
        if isinstance(node, Loop | Branch):
            node = replace(node, body=without(node.body, drop))
        kept.append(node)
    return tuple(kept)


def dropped(template: StreamTemplate, *drop: Node) -> StreamTemplate:
    streams = template.streams
    for node in drop:
        streams = tuple((engine, without(body, node)) for engine, body in streams)
    return replace(template, streams=streams)


def joins(template: StreamTemplate, semaphore: int) -> tuple[Node, ...]:
    """The acquires and releases of a semaphore."""
    found: list[Node] = []

    def inside(body: Sequence[Node]) -> None:
        for node in body:
            if isinstance(node, Acquire | Release) and node.semaphore == semaphore:
                found.append(node)
            elif isinstance(node, Loop | Branch):
                inside(node.body)

    for _, body in template.streams:
        inside(body)
    return tuple(found)


@pytest.mark.parametrize("trips", [0, 1, 2, 7, 8, 9, 1000, 1_000_000])
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_pipeline(trips: int, slots: int):
    assert check(product(trips, slots), HERE) == []


@pytest.mark.parametrize("trips", [3, 8, 2000])
@pytest.mark.parametrize(
    ("semaphore", "kind", "words"),
    [
        (FULL, "read-before-arrival", "reads %a before dma's load into %0"),
        (FREE, "overwrite", "overwrites %a before gemm's matrix"),
        (DONE, "read-before-arrival", "reads %s before"),
        (READY, "overwrite", "overwrites %s before math's exp"),
    ],
)
def test_a_pair_that_is_left_out(trips: int, semaphore: int, kind: str, words: str):
    template = product(trips)
    broken = dropped(template, *joins(template, semaphore))
    problems = check(broken, HERE)
    assert any(p.kind == kind and words in p.message for p in problems), problems


@pytest.mark.parametrize("semaphore", range(4))
def test_one_end_that_is_left_out(semaphore: int):
    template = product()
    for node in joins(template, semaphore):
        (problem,) = check(dropped(template, node), HERE)
        assert problem.kind == "unbalanced"
        assert problem.message.startswith(
            f"k: %{template.semaphores[semaphore].name} is released 8"
        )


def test_credits_are_the_slots():
    assert kinds(product(credits=1)) == []
    assert "overwrite" in kinds(product(credits=3))
    (problem,) = check(product(credits=0), HERE)
    assert problem.kind == "hang"
    assert problem.message == (
        "k hangs: dma's acquire of %free of iteration [0] waits; gemm's acquire of %full of "
        "iteration [0] waits; which closes the cycle"
    )


def test_nobody_releases():
    template = StreamTemplate(
        "k", (), (Semaphore("s"),), (("cpu", (Release(0),)), ("dma", (Acquire(0), Acquire(0))))
    )
    (problem,) = check(template, HERE)
    assert problem.kind == "unbalanced"
    assert problem.hint == "it starts at 0 and must end there"


def test_one_stream_releases_and_one_acquires():
    template = StreamTemplate(
        "k",
        (),
        (Semaphore("s"),),
        (
            ("cpu", (Release(0),)),
            ("dma", (Acquire(0),)),
            ("gemm", (Release(0),)),
            ("math", (Acquire(0),)),
        ),
    )
    assert kinds(template) == ["producers", "consumers"]


def test_release_after_a_tile_does_not_speak_of_others():
    """The release after %b says nothing of %a, one without a tile does."""
    tiles = (Tile("a", 128), Tile("b", 128))
    streams = (
        ("dma", (load(0), load(1), Release(0, 1))),
        ("math", (Acquire(0), Use("add", reads=(0, 1)))),
    )
    template = StreamTemplate("k", tiles, (Semaphore("s"),), streams)
    (problem,) = check(template, HERE)
    assert problem.message == ("k: math's add reads %a before dma's load into %0 has written it")
    whole = (("dma", (load(0), load(1), Release(0))), streams[1])
    assert check(replace(template, streams=whole), HERE) == []


def test_a_stream_waits_for_its_own_loads():
    store = Use("store", reads=(0,))
    template = StreamTemplate("k", (Tile("a", 128),), (), (("dma", (load(0), store, load(0))),))
    assert check(template, HERE) == []


def test_bytes_that_become_another_tile_s():
    """%b lies on the bytes of %a: its load waits for the reader of %a, or does not."""
    tiles = (Tile("a", 256, offset=0), Tile("b", 128, offset=128))
    math = (Acquire(0), Use("exp", reads=(0,)), Release(1), Acquire(2), Use("add", reads=(1,)))
    dma = (load(0), Release(0, 0), Acquire(1), load(1), Release(2, 1))
    semaphores = (Semaphore("s"), Semaphore("t"), Semaphore("u"))
    template = StreamTemplate("k", tiles, semaphores, (("dma", dma), ("math", math)))
    assert check(template, HERE) == []
    broken = dropped(template, math[2], dma[2])
    assert kinds(broken) == ["use-after-recycle"] * 2
    assert [problem.message for problem in check(broken, HERE)] == [
        "k: dma's load into %1 writes %b, while dma's load into %0 is still to write %a, which "
        "lies on the same bytes",
        "k: math's exp reads %a, while dma's load into %1 is still to write %b, which lies on the "
        "same bytes",
    ]


def test_contents_that_are_gone():
    """Ordered, and wrong: %a is read after its bytes have become %b's."""
    tiles = (Tile("a", 128, offset=0), Tile("b", 128, offset=0))
    body = (Use("fill", writes=(0,)), Use("fill", writes=(1,)), Use("exp", reads=(0,)))
    (problem,) = check(StreamTemplate("k", tiles, (), (("math", body),)), HERE)
    assert problem.kind == "use-after-recycle"
    assert problem.message == (
        "k: math's exp reads %a, whose bytes have become those of %b, which math's fill has written"
    )


def test_nothing_written_and_another_iteration():
    body = (loop(Use("exp", reads=(0,)), Use("fill", writes=(0,)), trips=3),)
    template = StreamTemplate("k", (Tile("a", 128, 1, 1),), (), (("math", body),))
    (problem,) = check(template, HERE)
    assert problem.message == (
        "k: math's exp of iteration [0] reads %a before anything has written it"
    )
    late = loop(Branch(Const(1) - Var("i"), (Use("fill", writes=(0,)),)), Use("exp", reads=(0,)))
    (problem,) = check(replace(template, streams=(("math", (late,)),)), HERE)
    assert problem.message == (
        "k: math's exp of iteration [2] reads %a, whose slot still holds iteration [1], which "
        "math's fill of iteration [1] has written"
    )


def test_stages_shift_iterations():
    """Stage 1 reads what stage 0 has written a trip before: two slots or a wrong order."""

    def template(slots: int) -> StreamTemplate:
        body = Loop(
            "i",
            Const(0),
            Const(9),
            (Use("fill", writes=(0,)), Use("exp", reads=(0,), stage=1)),
        )
        return StreamTemplate("k", (Tile("s", 128, slots, 1),), (), (("math", (body,)),))

    assert check(template(2), HERE) == []
    problem, *_ = check(template(1), HERE)
    assert problem.message == (
        "k: math's fill of iteration [1] overwrites %s before math's exp of iteration [0] has read "
        "it"
    )


def test_two_writers():
    streams = (("gemm", (Use("matrix", writes=(0,)),)), ("math", (Use("fill", writes=(0,)),)))
    (problem,) = check(StreamTemplate("k", (Tile("a", 128),), (), streams), HERE)
    assert problem.kind == "unordered-writes"
    assert problem.message == "k: math's fill and gemm's matrix write %a in any order"


def test_loops_of_different_lengths_are_executed_whole():
    """64 releases one by one answer 32 acquires two by two: shortened loops would not."""
    streams = (
        ("dma", (loop(load(0), Release(0), trips=64),)),
        ("math", (loop(Acquire(0), Acquire(0), trips=32), Use("exp", reads=(0,)))),
    )
    template = StreamTemplate("k", (Tile("a", 128),), (Semaphore("s"),), streams)
    assert check(template, HERE) == []


def test_too_long(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stream_order, "MAX_STEPS", 100)
    body = loop(loop(Use("exp"), trips=Var("i"), variable="j"), trips=100)
    with pytest.raises(TooLong, match="the streams of k have more than 100 instructions"):
        check(StreamTemplate("k", (), (), (("math", (body,)),)), HERE)


def test_roles():
    """Devices with the same branches and trips are one."""
    device = np.arange(512)
    coordinates = {"device": device, "pe": device % 8, "wg": np.zeros(512, np.int64)}

    def of(*body: Node) -> list[int]:
        return roles(StreamTemplate("k", (), (), (("cpu", body),)), coordinates)

    assert of(Use("exp")) == [0]
    assert of(Branch(Const(3) - Var("pe"), (Use("exp"),))) == [0, 4]
    assert of(loop(Use("exp"), trips=Const(3) + (Var("device") // 510))) == [0, 510]
    shifted = Loop("i", Var("device"), Var("device") + 4, (Use("exp"),))
    assert of(shifted) == [0]
    causal = loop(Branch(Var("pe") - Var("i"), (Use("exp"),)), trips=8)
    assert of(causal) == list(range(8))
    nested = Branch(Var("pe") - 6, (loop(Use("exp"), trips=Var("device") // 8),))
    assert len(of(nested)) == 65
    many = (Branch(Var("pe") - Var("i") - n, (Use("exp"),)) for n in range(8))
    assert of(loop(*many, trips=1000)) == list(range(8))
    endless = loop(Branch(Var("pe") - Var("i"), (Use("exp"),)), trips=1 << 20)
    with pytest.raises(OverflowError):
        of(endless)


def test_window():
    template = product()
    assert window(template.streams, template.semaphores, template.tiles) == Window(2, 5)
    assert window(template.streams, template.semaphores) == Window(1, 4)
    assert [Window(2, 5).trips(n) for n in (3, 15, 16, 17, 1000)] == [3, 15, 14, 15, 14]
    assert np.array_equal(Window(2, 5).trips(np.array([3, 16, 17])), [3, 14, 15])
    trips = [Window(2, 5).trip(1000, i) for i in range(14)]
    assert trips == [*range(7), *range(993, 1000)]


# Templates at random: a shortened loop decides as the whole one does.


@st.composite
def templates(draw: st.DrawFn) -> StreamTemplate:
    """Three streams in a loop, some instructions of each, and semaphores between any two."""
    tiles = tuple(
        Tile(
            f"t{i}",
            128,
            draw(st.integers(1, 3)),
            draw(st.integers(0, 1)),
            128 * 4 * draw(st.integers(0, 3)),
        )
        for i in range(3)
    )
    tiles = tuple(replace(t, slots=t.slots if t.turns else 1) for t in tiles)
    bodies: list[list[Node]] = []
    for engine in range(3):
        body: list[Node] = []
        for _ in range(draw(st.integers(1, 2))):
            tile = draw(st.integers(0, 2))
            if engine == 0:
                body.append(load(tile))
            else:
                other = draw(st.integers(0, 2))
                body.append(Use(f"use {tile} {other}", reads=(tile,), writes=(other,)))
        bodies.append(body)
    semaphores: list[Semaphore] = []
    for producer in range(3):
        for consumer in range(3):
            if producer == consumer or draw(st.booleans()):
                continue
            for body, node in (
                (bodies[producer], Release(len(semaphores))),
                (bodies[consumer], Acquire(len(semaphores))),
            ):
                body.insert(draw(st.integers(0, len(body))), node)
            semaphores.append(Semaphore(f"s{producer}{consumer}", draw(st.integers(0, 3))))
    trips = draw(st.integers(0, 60))
    streams = tuple(
        (engine, (loop(*body, trips=trips),))
        for engine, body in zip(("dma", "gemm", "math"), bodies, strict=True)
    )
    return StreamTemplate("k", tiles, tuple(semaphores), streams)


@settings(max_examples=300, deadline=None)
@given(templates())
def test_shortened_loops_decide_as_whole_ones(template: StreamTemplate):
    short = stream_order.execute(
        template, HERE, window(template.streams, template.semaphores, template.tiles)
    )
    whole = stream_order.execute(template, HERE, None)
    assert bool(short) == bool(whole)


@settings(max_examples=200, deadline=None)
@given(templates(), st.permutations(range(3)))
def test_the_order_of_streams_does_not_matter(template: StreamTemplate, order: list[int]):
    """Another execution order finds problems where the first does, and none where not."""
    other = replace(template, streams=tuple(template.streams[i] for i in order))
    assert bool(check(template, HERE)) == bool(check(other, HERE))


def test_what_others_send_is_read_behind_a_wait():
    """The load of a queue is issued by the CPU behind its wait; without that it knows of none."""
    receive = replace(load(0), received=True)
    wait = Wait("arrived", Const(0), Const(1))
    cpu, dma = (wait, Release(0)), (Acquire(0), receive)
    tiles = (Tile("a", 128),)
    template = StreamTemplate("k", tiles, (Semaphore("s"),), (("cpu", cpu), ("dma", dma)))
    assert check(template, HERE) == []
    (problem,) = check(dropped(template, cpu[1], dma[0]), HERE)
    assert problem.kind == "read-before-arrival"
    assert problem.message == (
        "k: dma's load into %0 reads what other devices send and knows of no wait for it"
    )
    # A kernel that nobody signals reads what an earlier one has received.
    assert check(dropped(template, *cpu, dma[0]), HERE) == []


def test_stores_read_their_tile_after_the_stream_has_gone_on():
    store = Use("store", reads=(0,), in_flight=True)
    tiles = (Tile("a", 128, offset=0), Tile("b", 128, offset=0), Tile("c", 128))

    def of(*dma: Node, math: tuple[Node, ...] = ()) -> list[Problem]:
        template = StreamTemplate("k", tiles, (Semaphore("s"),), (("dma", dma), ("math", math)))
        return check(template, HERE)

    fill = (Acquire(0), Use("fill", writes=(0,)))
    assert of(load(0), store, Release(0, 0), math=fill) == []
    assert of(load(0), store, Release(0), math=fill) == []
    # Of the same slot a stream knows by itself when it is free, of other tiles it does not.
    assert of(load(0), store, load(0), store) == []
    (overwrite,) = of(load(0), store, Release(0, 2), math=fill)[:1]
    assert overwrite.message == "k: math's fill overwrites %a before dma's store has read it"
    (recycled,) = of(load(0), store, load(1))
    assert recycled.message == (
        "k: dma's load into %1 writes %b, while dma's store is still to read %a, which lies on the "
        "same bytes"
    )
