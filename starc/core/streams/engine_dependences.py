"""Statements of a body in serial order, and which of them must wait for which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from starc.core.streams.engine_body import (
    CPU,
    DMA,
    GEMM,
    MATH,
    SCHEDULER,
    Branch,
    Composite,
    Instruction,
    Loop,
    Node,
    Tile,
)


class IllegalStages(ValueError):
    """A tile has too few slots for the stages of those that use it."""

    def __init__(self, tile: int) -> None:
        super().__init__(f"tile {tile} is used again before the stages that need it are over")
        self.tile = tile


@dataclass(eq=False)
class Statement:
    node: Node
    block: Block
    position: int
    stage: int
    issuer: str  # of an instruction or composite
    streams: set[str] = field(default_factory=set[str])
    inside: Block | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.stage, self.position


@dataclass(eq=False)
class Block:
    owner: Statement | None
    statements: list[Statement] = field(default_factory=list[Statement])

    @property
    def is_loop(self) -> bool:
        return self.owner is not None and isinstance(self.owner.node, Loop)


@dataclass(frozen=True)
class Edge:
    """``target`` of iteration i + distance in stream ``to`` follows ``source`` of iteration i in
    stream ``of``. ``tile``: of a dma source, what has to be complete; None for all before.
    ``overtaken``: the two belong to one trip of the loop, the source's iteration being the later
    one."""

    source: Statement
    of: str
    tile: int | None
    target: Statement
    to: str
    distance: int
    overtaken: bool = False


def lag(source: tuple[int, int], target: tuple[int, int], period: int = 1) -> int:
    """The least multiple d of ``period`` such that the ``target`` of iteration i + d comes behind
    the ``source`` of iteration i; both are (stage, position in the loop's body)."""
    least = source[0] - target[0] + (0 if target[1] > source[1] else 1)
    return -(-least // period) * period


class Dependences:
    """The statements of a body and the edges between them. Raises ``IllegalStages`` where slots are
    too few for stages."""

    def __init__(self, body: Sequence[Node], tiles: Sequence[Tile]) -> None:
        self.tiles = tiles
        self.leaves: list[Statement] = []
        self.homes: dict[int, Statement] = {}
        self.commands = 0
        self.top = Block(None)
        self._fill(self.top, body, CPU, None)
        self.edges: dict[Edge, None] = {}
        self._find_edges()

    # Statements

    def _fill(self, block: Block, body: Sequence[Node], issuer: str, stage: int | None) -> set[str]:
        """Appends the statements of a body, those of composites in line behind the command;
        returns the streams that they concern."""
        streams: set[str] = set()
        for node in body:
            own = node.stage if stage is None else stage
            if isinstance(node, Composite) and not node.is_command:
                streams |= self._fill(block, node.body, SCHEDULER, own)
                continue
            statement = Statement(node, block, len(block.statements), own, issuer)
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
                    statement.inside = Block(statement)
                    statement.streams = self._fill(statement.inside, node.body, issuer, None)
                    if isinstance(node, Loop):
                        self.homes |= dict.fromkeys(node.tiles, statement)
            streams |= statement.streams
        return streams

    # Dependences

    def _find_edges(self) -> None:
        uses: dict[int, list[Statement]] = {}
        for leaf in self.leaves:
            for tile in sorted(instruction_of(leaf).reads | instruction_of(leaf).writes):
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

    def _overlaps(self, uses: Mapping[int, Sequence[Statement]]) -> Iterator[tuple[int, int]]:
        """Ordered pairs of different tiles that share bytes."""
        for tile in uses:
            first, size = self.tiles[tile].first_byte, self.tiles[tile].bytes
            for other in uses:
                start, length = self.tiles[other].first_byte, self.tiles[other].bytes
                if tile != other and first < start + length and start < first + size:
                    yield tile, other

    def _find_publications(self) -> None:
        """Who tells others follows the loads that read what they may overwrite then."""
        publishers = [leaf for leaf in self.leaves if instruction_of(leaf).publishes]
        for x in self.leaves:
            if instruction_of(x).shared:
                for tile in sorted(instruction_of(x).writes):
                    for y in publishers:
                        self._order(x, tile, y, same=False)

    def _order(self, x: Statement, tile: int, y: Statement, *, same: bool) -> None:
        """Edges that make ``y`` wait for ``x`` wherever it comes behind it. ``same``: both use
        ``tile``, otherwise y uses something else that must follow."""
        of, to = instruction_of(x).engine, instruction_of(y).engine
        lazy = _is_on_its_way(x) and y.issuer == CPU and to in (GEMM, MATH)
        if same and lazy and tile in instruction_of(x).writes & instruction_of(y).reads:
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
        a: Statement,
        of: str,
        tile: int,
        b: Statement,
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
        self.edges[Edge(a, of, tile if single else None, b, to, distance, overtaken)] = None


def instruction_of(leaf: Statement) -> Instruction:
    assert isinstance(leaf.node, Instruction)
    return leaf.node


def _conflict(x: Statement, tile: int, y: Statement, other: int) -> bool:
    """Whether the order of two uses matters."""
    return tile in instruction_of(x).writes or other in instruction_of(y).writes


def _is_on_its_way(x: Statement) -> bool:
    """Whether the issuer goes on before ``x`` has started: loads, and all that a composite does."""
    return x.issuer == SCHEDULER or instruction_of(x).engine == DMA


def _common_levels(x: Statement, y: Statement) -> list[tuple[Block, Statement, Statement]]:
    """The blocks around both, innermost first, with the statement of each."""
    above: dict[Block, Statement] = {}
    current: Statement | None = x
    while current is not None:
        above[current.block] = current
        current = current.block.owner
    found: list[tuple[Block, Statement, Statement]] = []
    current = y
    while current is not None:
        if current.block in above:
            found.append((current.block, above[current.block], current))
        current = current.block.owner
    return found
