"""One stream becomes a stream for each engine: every dependence is kept, nothing hangs.

A small machine executes the streams in random interleavings: engines work in order, the dma engine
ends what it has begun in any order. What starts must find all that came before it in the serial
order, and that uses the same bytes, complete.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starc.core.streams.engine_body import (
    CPU,
    DMA,
    GEMM,
    MATH,
    SCHEDULER,
    Acquire,
    Branch,
    Composite,
    Do,
    Inside,
    Instruction,
    Item,
    Loop,
    Node,
    Release,
    Sleep,
    Streams,
    Tile,
)
from starc.core.streams.engine_dependences import IllegalStages, lag
from starc.core.streams.engine_streams import assign_streams

Place = tuple[int, ...]
"""Iterations of the loops around, outer to inner."""
Slot = tuple[int, int]


@dataclass(frozen=True)
class Case:
    """A body with the conditions that its streams evaluate: trips of loops and branches taken, by
    the iterations around them."""

    body: tuple[Node, ...]
    tiles: tuple[Tile, ...]
    seed: int = 0

    def trips(self, loop: Loop, place: Place) -> int:
        if loop.trips is not None:
            return loop.trips
        return Random(hash((self.seed, loop.payload, place))).randrange(5)

    def taken(self, branch: Branch, place: Place) -> bool:
        return Random(hash((self.seed, branch.payload, place))).random() < 0.6


@dataclass(frozen=True, eq=False)
class Instance:
    """One execution of an instruction: the slots that its tiles mean there."""

    instruction: Instruction
    place: Place
    number: int  # in the serial order
    slots: Mapping[int, Slot]
    issuer: str

    @property
    def key(self) -> tuple[Instruction, Place]:
        return self.instruction, self.place


def serial(case: Case) -> list[Instance]:
    """The body in its order, loops with stages as pipelines."""
    found: list[Instance] = []

    def run(nodes: Sequence[Node], place: Place, homes: Mapping[int, int], issuer: str) -> None:
        for node in nodes:
            match node:
                case Instruction():
                    used = node.reads | node.writes
                    slots = {t: (t, homes.get(t, 0) % case.tiles[t].slots) for t in used}
                    found.append(Instance(node, place, len(found), slots, issuer))
                case Composite():
                    run(node.body, place, homes, SCHEDULER)
                case Branch():
                    if case.taken(node, place):
                        run(node.body, place, homes, issuer)
                case Loop():
                    trips = case.trips(node, place)
                    extra = max((inner.stage for inner in node.body), default=0)
                    for trip in range(trips + extra if trips else 0):
                        for inner in node.body:
                            i = trip - inner.stage
                            if 0 <= i < trips:
                                turned = {**homes, **dict.fromkeys(node.tiles, i)}
                                run((inner,), (*place, i), turned, issuer)

    run(case.body, (), {}, CPU)
    return found


def conflict(x: Instance, y: Instance, tiles: Sequence[Tile]) -> bool:
    """Whether two instances use the same bytes and one writes them."""
    for t in x.slots:
        for u in y.slots:
            if t not in x.instruction.writes and u not in y.instruction.writes:
                continue
            if t == u:
                if x.slots[t] == y.slots[u]:
                    return True
                continue
            first, start = tiles[t].first_byte, tiles[u].first_byte
            if first < start + tiles[u].bytes and start < first + tiles[t].bytes:
                return True
    return False


@dataclass
class Stream:
    engine: str
    items: Iterator[tuple[Item, Place]]
    item: tuple[Item, Place] | None = None
    begun: list[Instance] = field(default_factory=list[Instance])


class Machine:
    """Runs streams in a random interleaving."""

    def __init__(self, case: Case, streams: Streams, random: Random) -> None:
        self.case = case
        self.random = random
        self.order = serial(case)
        self.instances = {instance.key: instance for instance in self.order}
        self.before = {
            y: [x for x in self.order[: y.number] if conflict(x, y, case.tiles)] for y in self.order
        }
        self.semaphores = list(streams.semaphores)
        self.complete: set[Instance] = set()
        self.promises: dict[int, list[set[Instance]]] = {}
        self.streams = [
            Stream(engine, self._walk(items, ())) for engine, items in streams.streams.items()
        ]

    def _walk(self, items: Sequence[Item], place: Place) -> Generator[tuple[Item, Place]]:
        for item in items:
            if not isinstance(item, Inside):
                yield item, place
            elif isinstance(item.node, Branch):
                if self.case.taken(item.node, place):
                    yield from self._walk(item.items, place)
            else:
                trips = self.case.trips(item.node, place)
                extra = max((inner.stage for inner in item.items), default=0)
                for trip in range(trips + extra if trips else 0):
                    for inner in item.items:
                        i = trip - inner.stage
                        if 0 <= i < trips:
                            yield from self._walk((inner,), (*place, i))

    def run(self) -> None:
        while True:
            moves = [move for stream in self.streams for move in self._moves(stream)]
            if not moves:
                break
            self.random.choice(moves)()
        stuck = [stream.engine for stream in self.streams if stream.item is not None]
        assert not stuck, f"streams hang: {stuck}"
        assert self.complete == set(self.order)

    def _moves(self, stream: Stream) -> list[Callable[[], None]]:
        moves: list[Callable[[], None]] = []
        ending = stream.begun if stream.engine == DMA else stream.begun[:1]
        for instance in ending:
            moves.append(lambda instance=instance: self._end(stream, instance))
        if stream.item is None:
            stream.item = next(stream.items, None)
        if stream.item is None:
            return moves
        item, place = stream.item
        match item:
            case Acquire():
                is_ready = self.semaphores[item.semaphore] > 0
            case Release():
                is_ready = item.tile is not None or not stream.begun
            case Do():
                instance = self.instances[item.instruction, place]
                mine = set(instance.slots.values())
                is_ready = not any(
                    stream.engine != DMA or mine & set(x.slots.values()) for x in stream.begun
                )
            case _:
                is_ready = True
        if is_ready:
            moves.append(lambda: self._step(stream, item, place))
        return moves

    def _step(self, stream: Stream, item: Item, place: Place) -> None:
        stream.item = None
        match item:
            case Acquire():
                self.semaphores[item.semaphore] -= 1
            case Release():
                awaited = {x for x in stream.begun if item.tile is None or item.tile in x.slots}
                self.promises.setdefault(item.semaphore, []).append(awaited)
                self._keep_promises()
            case Do():
                self._start(stream, self.instances[item.instruction, place])
            case _:
                pass

    def _start(self, stream: Stream, instance: Instance) -> None:
        late = [x for x in self.before[instance] if x not in self.complete]
        assert not late, f"{describe(instance)} starts before {describe(late[0])} is complete"
        if instance.instruction.publishes:
            for x in self.order[: instance.number]:
                assert not x.instruction.shared or x in self.complete
        if instance.slots:
            stream.begun.append(instance)
        else:
            self.complete.add(instance)

    def _end(self, stream: Stream, instance: Instance) -> None:
        stream.begun.remove(instance)
        self.complete.add(instance)
        self._keep_promises()

    def _keep_promises(self) -> None:
        for semaphore, promises in self.promises.items():
            while promises and promises[0] <= self.complete:
                promises.pop(0)
                self.semaphores[semaphore] += 1


def describe(instance: Instance) -> str:
    i = instance.instruction
    return (
        f"{i.engine}{sorted(i.reads)}->{sorted(i.writes)} at {instance.place} (#{instance.number})"
    )


def check(case: Case, runs: int = 4, entries: int = 0) -> Streams:
    streams = assign_streams(case.body, case.tiles, entries)
    for seed in range(runs):
        machine = Machine(case, streams, Random(seed))
        machine.run()
        assert machine.semaphores == list(streams.semaphores)
    users: dict[tuple[int, str], set[str]] = {}
    for engine, items in streams.streams.items():
        for item in flat(items):
            if isinstance(item, Acquire | Release):
                users.setdefault((item.semaphore, type(item).__name__), set()).add(engine)
    assert all(len(engines) == 1 for engines in users.values())
    return streams


def flat(items: Sequence[Item]) -> Iterator[Item]:
    for item in items:
        yield item
        if isinstance(item, Inside):
            yield from flat(item.items)


# Any body


def load(tile: int, *, shared: bool = False, stage: int = 0, cost: int = 0) -> Instruction:
    return Instruction(DMA, writes=frozenset({tile}), shared=shared, stage=stage, cost=cost)


def store(tile: int, *, stage: int = 0, cost: int = 0) -> Instruction:
    return Instruction(DMA, reads=frozenset({tile}), stage=stage, cost=cost)


def matrix(acc: int, *tiles: int, stage: int = 0, cost: int = 0) -> Instruction:
    return Instruction(GEMM, frozenset({acc, *tiles}), frozenset({acc}), stage=stage, cost=cost)


def vector(out: int, *tiles: int, stage: int = 0, cost: int = 0) -> Instruction:
    return Instruction(MATH, frozenset(tiles), frozenset({out}), stage=stage, cost=cost)


class Maker:
    """Makes random trees. Tiles are declared at random loops and have random slots and bytes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.count = self.random.randint(2, 7)
        self.homes: dict[int, int] = {}
        self.names = 0

    def case(self) -> Case:
        outside = tuple(t for t in range(self.count) if self.random.random() < 0.4) or (0,)
        self.homes.update(dict.fromkeys(outside, -1))
        body = stageless(self.body(0, outside, composite=False), inside=False)
        tiles = tuple(self.tile(t) for t in range(self.count))
        return Case(body, tiles, self.random.randrange(4))

    def tile(self, tile: int) -> Tile:
        turns = self.homes.get(tile, -1) >= 0
        slots = self.random.choice((1, 1, 2, 2, 3)) if turns else 1
        return Tile(slots, self.random.randrange(12) * 4, self.random.choice((0, 0, 4, 8)))

    def body(self, depth: int, visible: tuple[int, ...], *, composite: bool) -> tuple[Node, ...]:
        number = self.random.randint(1, (6, 6, 4, 2)[depth])
        return tuple(self.node(depth, visible, composite) for _ in range(number))

    def node(self, depth: int, visible: tuple[int, ...], composite: bool) -> Node:
        kinds = ["load", "load", "store", "matrix", "matrix", "vector", "vector"]
        if not composite:
            kinds += ["signal", "wait", "composite", "composite"]
        if depth < 3:
            kinds += ["loop", "loop", "branch"]
        stage = int(self.random.random() < 0.3)

        def pick() -> int:
            return self.random.choice(visible)

        match self.random.choice(kinds):
            case "load":
                return load(pick(), shared=self.random.random() < 0.5, stage=stage)
            case "store":
                return store(pick(), stage=stage)
            case "matrix":
                return matrix(pick(), pick(), stage=stage)
            case "vector":
                return vector(pick(), pick(), pick(), stage=stage)
            case "signal":
                return Instruction(DMA, publishes=True, stage=stage)
            case "wait":
                return Instruction(CPU, stage=stage)
            case "composite":
                inside = self.body(depth, visible, composite=True)
                is_command = self.random.random() < 0.7
                return Composite(inside, stage=stage, is_command=is_command)
            case "branch":
                inside = self.body(depth + 1, visible, composite=composite)
                return Branch(inside, stage, self.name())
            case _:
                name = self.name()
                free = (t for t in range(self.count) if t not in self.homes)
                mine = frozenset(t for t in free if self.random.random() < 0.5)
                self.homes.update(dict.fromkeys(mine, name))
                inside = self.body(depth + 1, tuple(sorted({*visible, *mine})), composite=composite)
                return Loop(inside, mine, self.random.choice((None, None, 2, 3, 4)), stage, name)

    def name(self) -> int:
        self.names += 1
        return self.names


def stageless(nodes: Sequence[Node], *, inside: bool) -> tuple[Node, ...]:
    """Stages stand directly in loops only."""
    found: list[Node] = []
    for node in nodes:
        stage = node.stage if inside else 0
        match node:
            case Instruction():
                found.append(replace(node, stage=stage))
            case Composite():
                inner = stageless(node.body, inside=False)
                found.append(replace(node, body=inner, stage=stage))
            case Branch():
                found.append(Branch(stageless(node.body, inside=False), stage, node.payload))
            case Loop():
                inner = stageless(node.body, inside=True)
                found.append(Loop(inner, node.tiles, node.trips, stage, node.payload))
    return tuple(found)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 3))
def test_streams_of_any_body_keep_its_order(seed: int, entries: int) -> None:
    """And end, however few entries the queues of commands have."""
    case = Maker(seed).case()
    if len(serial(case)) > 300:
        return
    with suppress(IllegalStages):
        check(case, entries=entries)


# Bodies by hand


def text(streams: Streams, engine: str) -> list[str]:
    """The items of a stream, one a line, with semaphores as initial values."""

    def lines(items: Sequence[Item]) -> Iterator[str]:
        for item in items:
            match item:
                case Acquire():
                    yield f"acquire {item.semaphore}"
                case Release():
                    after = "" if item.tile is None else f" after {item.tile}"
                    yield f"release {item.semaphore}{after}"
                case Sleep():
                    yield f"sleep {item.picoseconds}"
                case Do():
                    yield item.instruction.engine
                case Inside():
                    yield type(item.node).__name__.lower()
                    yield from lines(item.items)
                    yield "end"

    return list(lines(streams.streams.get(engine, ())))


def test_a_load_is_waited_for_by_its_reader_and_gives_its_slot_back() -> None:
    body = Loop((load(0), matrix(1, 0)), frozenset({0}), 8)
    found = check(Case((Composite((body,)),), (Tile(2), Tile())))
    assert found.semaphores == (0, 0, 0, 2, 0)
    assert text(found, DMA) == ["loop", "acquire 1", "acquire 3", "dma", "release 4 after 0", "end"]
    assert text(found, GEMM) == ["loop", "acquire 2", "acquire 4", "gemm", "release 3", "end"]
    assert text(found, SCHEDULER) == ["acquire 0", "loop", "release 1", "release 2", "end"]
    assert text(found, CPU) == ["release 0"]


def test_the_cpu_waits_for_what_is_on_its_way_at_its_first_use() -> None:
    case = Case((load(0, cost=5), vector(1, 0, cost=7), vector(2, 1, cost=7)), (Tile(),) * 3)
    found = check(case)
    assert text(found, CPU) == [
        *("sleep 5", "release 0"),
        *("acquire 2", "sleep 7", "release 1"),
        *("sleep 7", "release 1"),
    ]
    assert text(found, MATH) == ["acquire 1", "math", "acquire 1", "math"]


def test_engines_wait_for_what_commands_have_computed() -> None:
    found = check(Case((vector(0), matrix(1, 0), store(1)), (Tile(),) * 2))
    assert text(found, CPU) == ["release 0", "release 1", "release 2"]
    assert text(found, GEMM) == ["acquire 1", "acquire 3", "gemm", "release 4"]
    assert text(found, DMA) == ["acquire 2", "acquire 4", "dma"]


@pytest.mark.parametrize(("trips", "edges"), [(8, 2), (7, 3), (None, 3)])
def test_credits_last_over_entries_where_slots_come_round(trips: int | None, edges: int) -> None:
    inner = Loop((load(0), matrix(1, 0)), frozenset({0}), trips, payload=1)
    outer = Loop((inner,), trips=3, payload=2)
    found = check(Case((outer,), (Tile(2), Tile())), runs=20)
    assert found.edges == edges
    whole = [item for item in flat(found.streams[DMA]) if isinstance(item, Acquire)]
    assert len(whole) == 1 + edges - 1


def test_a_branch_is_joined_as_a_whole() -> None:
    branch = Branch((Composite((matrix(1, 0),)),), payload=3)
    found = check(Case((Loop((load(0), branch), frozenset({0}), 4),), (Tile(2), Tile())), 20)
    gemm = text(found, GEMM)
    assert gemm == ["loop", "acquire 4", "branch", "acquire 2", "gemm", "end", "release 3", "end"]


def test_a_reader_of_a_reader_is_not_waited_for_twice() -> None:
    """matrix -> vector -> store: the store follows the matrix through the vector."""
    found = check(Case((matrix(0), vector(1, 0), store(1), store(0)), (Tile(),) * 2))
    assert found.edges == 3
    assert len(found.semaphores) == 3 + 2


def test_a_signal_follows_the_loads_of_what_it_gives_back() -> None:
    for shared, waits in ((True, 1), (False, 0)):
        signals = (Instruction(DMA, publishes=True), Instruction(DMA, publishes=True))
        found = check(Case((load(0, shared=shared), *signals), (Tile(),)), 20)
        assert text(found, DMA)[-4 - waits :] == [
            *("acquire 0", *["acquire 1"] * waits, "dma"),
            *("acquire 0", "dma"),
        ]


def test_stages_shift_credits() -> None:
    """Scores of the next tile are computed while this one is used: the slot is free again after
    two."""
    body = (Composite((matrix(0),)), vector(1, 0, stage=1), Composite((matrix(2, 1),), stage=1))
    found = check(Case((Loop(body, frozenset({0, 1, 2}), 6),), (Tile(2), Tile(1), Tile(1))), 20)
    stages = {item.stage for item in flat(found.streams[GEMM]) if isinstance(item, Acquire)}
    assert stages == {0, 1}
    with pytest.raises(IllegalStages):
        assign_streams((Loop(body, frozenset({0, 1, 2}), 6),), (Tile(1), Tile(1), Tile(1)))


def test_bytes_that_lie_over_each_other_are_guarded() -> None:
    tiles = (Tile(1, 0, 64), Tile(1, 0, 64), Tile(1, 64, 64))
    found = check(Case((load(0), vector(2, 0), load(1), vector(2, 1)), tiles), 20)
    assert "acquire 3" in text(found, DMA)


@pytest.mark.parametrize(
    ("source", "target", "period", "expected"),
    [
        ((0, 0), (0, 1), 1, 0),
        ((0, 1), (0, 0), 1, 1),
        ((0, 0), (0, 0), 1, 1),
        ((1, 1), (0, 0), 1, 2),
        ((0, 1), (1, 0), 1, 0),
        ((0, 0), (1, 1), 1, -1),
        ((0, 0), (1, 1), 2, 0),
        ((1, 1), (0, 0), 3, 3),
    ],
)
def test_lags(source: tuple[int, int], target: tuple[int, int], period: int, expected: int) -> None:
    assert lag(source, target, period) == expected


def test_streams_without_work_are_left_out() -> None:
    found = check(Case((vector(0),), (Tile(),)))
    assert set(found.streams) == {CPU, MATH}
    assert assign_streams((), ()).streams == {}
