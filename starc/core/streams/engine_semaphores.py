"""Streams of engines from statements and the edges between them: acquires and releases of
semaphores, queues of commands and their room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from starc.core.streams.engine_body import (
    CPU,
    DMA,
    MANY,
    SCHEDULER,
    STREAMS,
    Acquire,
    Branch,
    Composite,
    Do,
    Inside,
    Instruction,
    Item,
    Loop,
    Release,
    Sleep,
)
from starc.core.streams.engine_dependences import (
    Block,
    Edge,
    Statement,
)


def emit(
    top: Block, edges: Sequence[Edge], entries: int
) -> tuple[dict[str, tuple[Item, ...]], tuple[int, ...], tuple[str, ...]]:
    """The streams, the initial values of the semaphores and their names."""
    return _Emission(top, edges, entries).streams()


class _Emission:
    def __init__(self, top: Block, edges: Sequence[Edge], entries: int) -> None:
        self.top = top
        self.entries = entries
        self.semaphores: list[int] = []
        self.names: list[str] = []
        self.queues: dict[tuple[str, str], int] = {}
        self.before: dict[tuple[Statement, str], list[Acquire]] = {}
        self.behind: dict[tuple[Statement, str], list[Release]] = {}
        self._number_queues(top)
        self.rooms = self._number_rooms()
        for edge in sorted(edges, key=_place):
            self._join(edge)

    def streams(self) -> tuple[dict[str, tuple[Item, ...]], tuple[int, ...], tuple[str, ...]]:
        found = {engine: self._items(self.top, engine) for engine in STREAMS}
        streams = {engine: items for engine, items in found.items() if items}
        return streams, tuple(self.semaphores), tuple(self.names)

    def _number_queues(self, block: Block) -> None:
        for statement in block.statements:
            node = statement.node
            if isinstance(node, Instruction) and node.engine != CPU:
                self._queue(statement.issuer, node.engine)
            elif isinstance(node, Composite):
                self._queue(CPU, SCHEDULER)
            elif statement.inside is not None:
                self._number_queues(statement.inside)

    def _queue(self, issuer: str, engine: str) -> int:
        found = self.queues.get((issuer, engine))
        if found is None:
            found = self.queues[issuer, engine] = self._semaphore(
                0, f"{engine}_queue" if issuer == CPU else f"{engine}_queue_of_{issuer}"
            )
        return found

    def _number_rooms(self) -> dict[tuple[str, str], int]:
        """Rooms of the queues that may fill up."""
        if not self.entries:
            return {}
        most = _commands(self.top)
        return {
            queue: self._semaphore(self.entries, self.names[number].replace("queue", "room"))
            for queue, number in self.queues.items()
            if most.get(queue, 0) > self.entries
        }

    def _semaphore(self, initial: int, name: str) -> int:
        self.semaphores.append(initial)
        self.names.append(name)
        return len(self.semaphores) - 1

    def _join(self, edge: Edge) -> None:
        semaphore = self._semaphore(edge.distance, f"{edge.of}_to_{edge.to}")
        stage = edge.source.stage
        acquire = Acquire(semaphore, stage if edge.overtaken else edge.target.stage)
        self.before.setdefault((edge.target, edge.to), []).append(acquire)
        release = Release(semaphore, edge.tile, stage)
        self.behind.setdefault((edge.source, edge.of), []).append(release)

    def _items(self, block: Block, engine: str) -> tuple[Item, ...]:
        items: list[Item] = []
        for statement in block.statements:
            if engine not in statement.streams:
                continue
            node, stage = statement.node, statement.stage
            waits = self.before.get((statement, engine), ())
            if isinstance(node, Loop | Branch):
                assert statement.inside is not None
                inner = self._items(statement.inside, engine)
                items += [*waits, Inside(node, inner, stage)]
            else:
                items += self._command(statement, engine, waits)
            items += self.behind.get((statement, engine), ())
        return tuple(items)

    def _command(
        self, statement: Statement, engine: str, waits: Sequence[Acquire]
    ) -> Iterator[Item]:
        """An instruction or the command of a composite as its issuer and its engine see it."""
        node, stage = statement.node, statement.stage
        assert isinstance(node, Instruction | Composite)
        issuer, executor = statement.issuer, SCHEDULER
        if isinstance(node, Instruction):
            executor = node.engine
        is_issuer = engine == (CPU if isinstance(node, Composite) else issuer)
        queue = _queue_of(statement)
        room = None if queue is None else self.rooms.get(queue)
        if is_issuer or executor == engine == CPU:
            yield from waits
            if room is not None:
                yield Acquire(room, stage)
            if node.cost:
                yield Sleep(node.cost, stage)
            if executor != engine:
                yield Release(self._queue(issuer, executor), None, stage)
        elif executor == engine:
            yield Acquire(self._queue(issuer, executor), stage)
            yield from waits
            if room is not None:
                tile = None
                if isinstance(node, Instruction) and executor == DMA:  # not behind other tiles
                    tile = min(node.reads | node.writes)
                yield Release(room, tile, stage)
        if isinstance(node, Instruction) and executor == engine:
            yield Do(node, stage)


def _queue_of(statement: Statement) -> tuple[str, str] | None:
    """The queue, by issuer and engine, of which a statement takes an entry. On the dma stream only
    what moves a tile does."""
    node = statement.node
    if isinstance(node, Composite):
        return CPU, SCHEDULER
    if not isinstance(node, Instruction) or node.engine == CPU:
        return None
    takes = node.engine != DMA or bool(node.reads | node.writes)
    return (statement.issuer, node.engine) if takes else None


def _commands(block: Block) -> dict[tuple[str, str], int]:
    """At most how many commands go through a queue; many, where that is not known."""
    found: dict[tuple[str, str], int] = {}
    for statement in block.statements:
        node, queue = statement.node, _queue_of(statement)
        if statement.inside is not None:
            times = 1
            if isinstance(node, Loop):
                times = MANY if node.trips is None else node.trips
            for each, count in _commands(statement.inside).items():
                found[each] = found.get(each, 0) + times * count
        elif queue is not None:
            found[queue] = found.get(queue, 0) + 1
    return found


def _place(edge: Edge) -> tuple[object, ...]:
    """Where an edge stands in the body: the order in which semaphores are numbered."""
    path: list[int] = []
    current: Statement | None = edge.target
    while current is not None:
        path.append(current.position)
        current = current.block.owner
    to, of = STREAMS.index(edge.to), STREAMS.index(edge.of)
    tile = -1 if edge.tile is None else edge.tile
    return tuple(reversed(path)), to, of, edge.source.position, edge.distance, tile
