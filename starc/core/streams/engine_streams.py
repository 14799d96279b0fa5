"""One stream of instructions becomes a stream for each engine, joined by semaphores.

The input is a tree of statements in serial order: instructions with the engine that executes them
and the tiles that they read and write, loops, branches, and composites (a command that the
scheduler of the engines expands). The result is, for every engine, the same tree with what does
not concern it left out, and ``Acquire`` and ``Release`` of semaphores in between. An acquire waits
until its semaphore is positive and takes one; one stream releases it and one acquires it.

Two kinds of semaphores arise. *Queues*: whoever issues an instruction (the CPU, or inside of a
composite the scheduler) sleeps for what that costs and releases the queue of the engine, which
acquires it before the instruction. *Dependences*: where two instructions of different engines use a
tile, or scratch bytes that lie over each other, and one of them writes, the later one waits for the
earlier one. Their statements in the innermost block around both are ``a`` and ``b``:

- a before b: release behind a in the one stream, acquire before b in the other;
- carried by a loop, from a of an iteration to b of the d-th one after it (a tile with n slots is
  used again n iterations later): the same, with ``d`` as the initial value. The credits of a loop
  are kept over its entries: that is right where every entry uses the slots from the first to the
  last, its trips being a multiple of them; elsewhere the whole loop is one statement more of the
  loop around it.

A branch is taken or not: what stands in it is joined to the outside by the branch as a whole, so
that acquires and releases are as many on every path.

A queue may have a bound: where it can fill up, the issuer acquires its *room*, which starts at that
number, before it issues, and the engine releases it when it begins the command.
Signals and waits that the dma stream executes move no tile and take no entry.

The CPU itself waits for what an instruction reads that it issues alone, where that is on its way:
loaded, or computed inside of a composite (a *lazy* value is waited for at its first use). All other
waits are those of the engines. What follows from other semaphores is left out.

Nothing hangs: every acquire waits for an instruction that is earlier in the serial order, and every
stream keeps that order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

CPU: Final = "cpu"
SCHEDULER: Final = "scheduler"
DMA: Final = "dma"
GEMM: Final = "gemm"
MATH: Final = "math"
MANY: Final = 1 << 32
"""Iterations of a loop whose trips are not a constant."""
STREAMS: Final = (CPU, SCHEDULER, DMA, GEMM, MATH)


# What goes in


@dataclass(frozen=True)
class Tile:
    """A tile: copies used in turn by the iterations of the loop that declares it, and the scratch
    bytes of all of them (none: nothing else lies there)."""

    slots: int = 1
    first_byte: int = 0
    bytes: int = 0


@dataclass(frozen=True, eq=False)
class Instruction:
    """One instruction. ``reads`` and ``writes`` are numbers of tiles; a dma instruction that writes
    tiles is a load, one that reads them a store. ``shared``: the memory that a load reads may be
    overwritten by others once they are told; ``publishes``: it tells others, and so follows what
    was loaded from such memory. ``cost`` is what its issuer sleeps, in picoseconds."""

    engine: str
    reads: frozenset[int] = frozenset()
    writes: frozenset[int] = frozenset()
    cost: int = 0
    shared: bool = False
    publishes: bool = False
    stage: int = 0
    payload: object = None


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop; ``tiles`` are those whose slots its iterations use in turn, ``trips`` its number of
    iterations where that is a constant."""

    body: tuple[Node, ...]
    tiles: frozenset[int] = frozenset()
    trips: int | None = None
    stage: int = 0
    payload: object = None


@dataclass(frozen=True, eq=False)
class Branch:
    """Runs or not, by a condition that every stream can evaluate."""

    body: tuple[Node, ...]
    stage: int = 0
    payload: object = None


@dataclass(frozen=True, eq=False)
class Composite:
    """One command: the CPU pays ``cost`` once, the scheduler issues what is inside, all of it with
    the composite's stage. What is not a ``command`` belongs to one that stands before."""

    body: tuple[Node, ...]
    cost: int = 0
    stage: int = 0
    is_command: bool = True


Node: TypeAlias = Instruction | Loop | Branch | Composite


# What comes out


@dataclass(frozen=True)
class Acquire:
    semaphore: int
    stage: int = 0


@dataclass(frozen=True)
class Release:
    """Adds one when everything before it in its stream is complete, or, with a tile, when what the
    dma stream does with that tile is."""

    semaphore: int
    tile: int | None = None
    stage: int = 0


@dataclass(frozen=True)
class Sleep:
    picoseconds: int
    stage: int = 0


@dataclass(frozen=True)
class Do:
    instruction: Instruction
    stage: int = 0


@dataclass(frozen=True)
class Inside:
    """The part of a loop or branch that is in a stream."""

    node: Loop | Branch
    items: tuple[Item, ...]
    stage: int = 0


Item: TypeAlias = Acquire | Release | Sleep | Do | Inside


@dataclass(frozen=True)
class Streams:
    """The streams that have something to do, the initial values of the semaphores and what they
    are called, and how many commands of the CPU the body has (a loop's counted once)."""

    streams: Mapping[str, tuple[Item, ...]]
    semaphores: tuple[int, ...]
    names: tuple[str, ...]
    edges: int
    commands: int


class IllegalStages(ValueError):
    """A tile has too few slots for the stages of those that use it."""

    def __init__(self, tile: int) -> None:
        super().__init__(f"tile {tile} is used again before the stages that need it are over")
        self.tile = tile


# Statements


@dataclass(eq=False)
class _Statement:
    node: Node
    block: _Block
    position: int
    stage: int
    issuer: str  # of an instruction or composite
    streams: set[str] = field(default_factory=set[str])
    inside: _Block | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.stage, self.position


@dataclass(eq=False)
class _Block:
    owner: _Statement | None
    statements: list[_Statement] = field(default_factory=list[_Statement])

    @property
    def is_loop(self) -> bool:
        return self.owner is not None and isinstance(self.owner.node, Loop)


@dataclass(frozen=True)
class _Edge:
    """``target`` of iteration i + distance in stream ``to`` follows ``source`` of iteration i in
    stream ``of``. ``tile``: of a dma source, what has to be complete; None for all before.
    ``overtaken``: the two belong to one trip of the loop, the source's iteration being the later
    one."""

    source: _Statement
    of: str
    tile: int | None
    target: _Statement
    to: str
    distance: int
    overtaken: bool = False


def assign_streams(body: Sequence[Node], tiles: Sequence[Tile], entries: int = 0) -> Streams:
    """The streams of a body, where issuers wait while ``entries`` commands that they have given to
    an engine have not begun (0: they never do). Raises ``IllegalStages`` where slots are too few
    for stages."""
    return _Assignment(body, tiles).streams(entries)


def lag(source: tuple[int, int], target: tuple[int, int], period: int = 1) -> int:
    """The least multiple d of ``period`` such that the ``target`` of iteration i + d comes behind
    the ``source`` of iteration i; both are (stage, position in the loop's body)."""
    least = source[0] - target[0] + (0 if target[1] > source[1] else 1)
    return -(-least // period) * period


class _Assignment:
    def __init__(self, body: Sequence[Node], tiles: Sequence[Tile]) -> None:
        self.tiles = tiles
        self.leaves: list[_Statement] = []
        self.homes: dict[int, _Statement] = {}
        self.commands = 0
        self.top = _Block(None)
        self._fill(self.top, body, CPU, None)
        self.edges: dict[_Edge, None] = {}

    # Statements

    def _fill(
        self, block: _Block, body: Sequence[Node], issuer: str, stage: int | None
    ) -> set[str]:
        """Appends the statements of a body, those of composites in line behind the command;
        returns the streams that they concern."""
        streams: set[str] = set()
        for node in body:
            own = node.stage if stage is None else stage
            if isinstance(node, Composite) and not node.is_command:
                streams |= self._fill(block, node.body, SCHEDULER, own)
                continue
            statement = _Statement(node, block, len(block.statements), own, issuer)
            block.statements.append(statement)
            match node:
                case Instruction():
                    statement.streams = (
                        {node.engine} if node.engine == CPU else {node.engine, issuer}
                    )
                    self.leaves.append(statement)
                    self.commands += issuer == CPU and node.engine != CPU
                case Composite():
                    statement.streams = {CPU, SCHEDULER}
                    self.commands += 1
                    streams |= self._fill(block, node.body, SCHEDULER, own)
                case Loop() | Branch():
                    statement.inside = _Block(statement)
                    statement.streams = self._fill(statement.inside, node.body, issuer, None)
                    if isinstance(node, Loop):
                        self.homes |= dict.fromkeys(node.tiles, statement)
            streams |= statement.streams
        return streams

    # Dependences

    def streams(self, entries: int) -> Streams:
        self._find_edges()
        by_block: dict[_Block, list[_Edge]] = {}
        for edge in self.edges:
            by_block.setdefault(edge.source.block, []).append(edge)
        kept = [edge for edges in by_block.values() for edge in _Reduction(edges).kept()]
        return _Emission(self.top, kept, entries).streams(len(self.edges), self.commands)

    def _find_edges(self) -> None:
        uses: dict[int, list[_Statement]] = {}
        for leaf in self.leaves:
            for tile in sorted(_instruction(leaf).reads | _instruction(leaf).writes):
                uses.setdefault(tile, []).append(leaf)
        for tile, leaves in uses.items():
            for x in leaves:
                for y in leaves:
                    if _conflict(x, tile, y, tile):
                        self._order(x, tile, y, same=True)
        for tile, other in self._overlaps(uses):
            for x in uses[tile]:
                for y in uses[other]:
                    if _conflict(x, tile, y, other):
                        self._order(x, tile, y, same=False)
        self._find_publications()

    def _overlaps(self, uses: Mapping[int, Sequence[_Statement]]) -> Iterator[tuple[int, int]]:
        """Ordered pairs of different tiles that share bytes."""
        for tile in uses:
            first, size = self.tiles[tile].first_byte, self.tiles[tile].bytes
            for other in uses:
                start, length = self.tiles[other].first_byte, self.tiles[other].bytes
                if tile != other and first < start + length and start < first + size:
                    yield tile, other

    def _find_publications(self) -> None:
        """Who tells others follows the loads that read what they may overwrite then."""
        publishers = [leaf for leaf in self.leaves if _instruction(leaf).publishes]
        for x in self.leaves:
            if _instruction(x).shared:
                for tile in sorted(_instruction(x).writes):
                    for y in publishers:
                        self._order(x, tile, y, same=False)

    def _order(self, x: _Statement, tile: int, y: _Statement, *, same: bool) -> None:
        """Edges that make ``y`` wait for ``x`` wherever it comes behind it. ``same``: both use
        ``tile``, otherwise y uses something else that must follow."""
        of, to = _instruction(x).engine, _instruction(y).engine
        lazy = _is_on_its_way(x) and y.issuer == CPU and to in (GEMM, MATH)
        if same and lazy and tile in _instruction(x).writes & _instruction(y).reads:
            to = CPU
        if of == to and (of != DMA or same):
            return  # an engine keeps its order, and dma instructions wait for their own tile
        levels = _common_levels(x, y)
        home = self.homes.get(tile) if same else None
        lasts = True  # what the tile holds, over the iterations of the loop
        for number, (block, a, b) in enumerate(levels):
            if not block.is_loop:
                if number == 0 and a.position < b.position:
                    self._add(a, of, tile, b, to, 0)
                    return
                continue
            assert block.owner is not None
            loop = block.owner.node
            assert isinstance(loop, Loop)
            period = 1
            if block.owner is home:
                period, lasts = self.tiles[tile].slots, False
            distance = lag(a.key, b.key, period)
            if distance < 0:
                if not lasts or b.position < a.position:
                    raise IllegalStages(tile)
                self._add(a, of, tile, b, to, 0, overtaken=True)
                return
            self._add(a, of, tile, b, to, distance)
            if distance == 0 or (
                distance <= period
                and (period == 1 or (loop.trips is not None and loop.trips % period == 0))
            ):
                return

    def _add(
        self,
        a: _Statement,
        of: str,
        tile: int,
        b: _Statement,
        to: str,
        distance: int,
        *,
        overtaken: bool = False,
    ) -> None:
        """Of the dma stream what moves one tile may be waited for, where the tile means one thing
        at the end of the statement; everywhere else all that came before."""
        home = self.homes.get(tile)
        while home is not None and home is not a:
            home = home.block.owner
        single = of == DMA and home is not a
        self.edges[_Edge(a, of, tile if single else None, b, to, distance, overtaken)] = None


def _instruction(leaf: _Statement) -> Instruction:
    assert isinstance(leaf.node, Instruction)
    return leaf.node


def _conflict(x: _Statement, tile: int, y: _Statement, other: int) -> bool:
    """Whether the order of two uses matters."""
    return tile in _instruction(x).writes or other in _instruction(y).writes


def _is_on_its_way(x: _Statement) -> bool:
    """Whether the issuer goes on before ``x`` has started: loads, and all that a composite does."""
    return x.issuer == SCHEDULER or _instruction(x).engine == DMA


def _common_levels(x: _Statement, y: _Statement) -> list[tuple[_Block, _Statement, _Statement]]:
    """The blocks around both, innermost first, with the statement of each."""
    above: dict[_Block, _Statement] = {}
    current: _Statement | None = x
    while current is not None:
        above[current.block] = current
        current = current.block.owner
    found: list[tuple[_Block, _Statement, _Statement]] = []
    current = y
    while current is not None:
        if current.block in above:
            found.append((current.block, above[current.block], current))
        current = current.block.owner
    return found


# What follows from other edges


class _Reduction:
    """The edges of one block without those that others imply.

    A path of edges and of the order of streams implies an edge where its instructions exist
    whenever those of the edge do: where no prefix of it leaves the iterations in between."""

    def __init__(self, edges: Sequence[_Edge]) -> None:
        self.block = edges[0].source.block
        self.edges = list(edges)

    def kept(self) -> list[_Edge]:
        queues = list(self._queues())
        alive = dict.fromkeys(self.edges)
        by_reach = sorted(
            range(len(self.edges)),
            key=lambda i: (
                -self.edges[i].distance,
                self.edges[i].source.position - self.edges[i].target.position,
                i,
            ),
        )
        for index in by_reach:
            edge = self.edges[index]
            others = [e for e in alive if e is not edge and not e.overtaken]
            if not edge.overtaken and self._implied(edge, others, queues):
                del alive[edge]
        return list(alive)

    def _queues(self) -> Iterator[_Edge]:
        """An engine starts what has been issued."""
        for statement in self.block.statements:
            node = statement.node
            if isinstance(node, Instruction) and node.engine != CPU:
                yield _Edge(statement, statement.issuer, None, statement, node.engine, 0)
            elif isinstance(node, Composite):
                yield _Edge(statement, CPU, None, statement, SCHEDULER, 0)

    def _lag(self, source: _Statement, target: _Statement) -> int | None:
        """Iterations from ``source`` to the first ``target`` that comes behind it in one stream, or
        is the same; None where there is none."""
        if source is target:
            return 0
        if not self.block.is_loop:
            return 0 if target.position > source.position else None
        return lag(source.key, target.key)

    def _implied(self, edge: _Edge, others: Sequence[_Edge], queues: Sequence[_Edge]) -> bool:
        starts: dict[str, list[_Edge]] = {}
        for other in (*others, *queues):
            starts.setdefault(other.of, []).append(other)
        reached: set[tuple[_Statement, str, int]] = set()
        pending: list[tuple[_Statement, str, int]] = []

        def reach(statement: _Statement, stream: str, distance: int) -> None:
            state = (statement, stream, distance)
            if distance <= edge.distance and state not in reached:
                reached.add(state)
                pending.append(state)

        for other in starts.get(edge.of, ()):
            is_exact = other.source is edge.source and (
                other.tile is None or other.tile == edge.tile
            )
            if is_exact:
                reach(other.target, other.to, other.distance)
            elif edge.of != DMA or other.tile is None:
                steps = self._lag(edge.source, other.source)
                if steps is not None:
                    reach(other.target, other.to, max(0, steps) + other.distance)
        while pending:
            statement, stream, distance = pending.pop()
            if stream == edge.to:
                steps = self._lag(statement, edge.target)
                if steps is not None and distance + steps <= edge.distance:
                    return True
            for other in starts.get(stream, ()):
                steps = self._lag(statement, other.source)
                if steps is not None:
                    reach(other.target, other.to, max(0, distance + steps) + other.distance)
        return False


# Emission


class _Emission:
    def __init__(self, top: _Block, edges: Sequence[_Edge], entries: int) -> None:
        self.top = top
        self.entries = entries
        self.semaphores: list[int] = []
        self.names: list[str] = []
        self.queues: dict[tuple[str, str], int] = {}
        self.before: dict[tuple[_Statement, str], list[Acquire]] = {}
        self.behind: dict[tuple[_Statement, str], list[Release]] = {}
        self._number_queues(top)
        self.rooms = self._number_rooms()
        for edge in sorted(edges, key=_place):
            self._join(edge)

    def streams(self, edges: int, commands: int) -> Streams:
        found = {engine: self._items(self.top, engine) for engine in STREAMS}
        return Streams(
            {engine: items for engine, items in found.items() if items},
            tuple(self.semaphores),
            tuple(self.names),
            edges,
            commands,
        )

    def _number_queues(self, block: _Block) -> None:
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

    def _join(self, edge: _Edge) -> None:
        semaphore = self._semaphore(edge.distance, f"{edge.of}_to_{edge.to}")
        stage = edge.source.stage
        acquire = Acquire(semaphore, stage if edge.overtaken else edge.target.stage)
        self.before.setdefault((edge.target, edge.to), []).append(acquire)
        release = Release(semaphore, edge.tile, stage)
        self.behind.setdefault((edge.source, edge.of), []).append(release)

    def _items(self, block: _Block, engine: str) -> tuple[Item, ...]:
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
        self, statement: _Statement, engine: str, waits: Sequence[Acquire]
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


def _queue_of(statement: _Statement) -> tuple[str, str] | None:
    """The queue, by issuer and engine, of which a statement takes an entry. On the dma stream only
    what moves a tile does."""
    node = statement.node
    if isinstance(node, Composite):
        return CPU, SCHEDULER
    if not isinstance(node, Instruction) or node.engine == CPU:
        return None
    takes = node.engine != DMA or bool(node.reads | node.writes)
    return (statement.issuer, node.engine) if takes else None


def _commands(block: _Block) -> dict[tuple[str, str], int]:
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


def _place(edge: _Edge) -> tuple[object, ...]:
    """Where an edge stands in the body: the order in which semaphores are numbered."""
    path: list[int] = []
    current: _Statement | None = edge.target
    while current is not None:
        path.append(current.position)
        current = current.block.owner
    to, of = STREAMS.index(edge.to), STREAMS.index(edge.of)
    tile = -1 if edge.tile is None else edge.tile
    return tuple(reversed(path)), to, of, edge.source.position, edge.distance, tile
