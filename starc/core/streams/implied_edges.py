"""Which dependences follow from other ones, so that they need no semaphore."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from starc.core.streams.engine_body import (
    CPU,
    DMA,
    SCHEDULER,
    Composite,
    Instruction,
)
from starc.core.streams.engine_dependences import (
    Block,
    Edge,
    Statement,
    lag,
)


def needed(edges: Iterable[Edge]) -> list[Edge]:
    """The edges without those that others of the same block imply."""
    by_block: dict[Block, list[Edge]] = {}
    for edge in edges:
        by_block.setdefault(edge.source.block, []).append(edge)
    return [edge for together in by_block.values() for edge in _Reduction(together).kept()]


class _Reduction:
    """The edges of one block.

    A path of edges and of the order of streams implies an edge where its instructions exist
    whenever those of the edge do: where no prefix of it leaves the iterations in between."""

    def __init__(self, edges: Sequence[Edge]) -> None:
        self.block = edges[0].source.block
        self.edges = list(edges)

    def kept(self) -> list[Edge]:
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

    def _queues(self) -> Iterator[Edge]:
        """An engine starts what has been issued."""
        for statement in self.block.statements:
            node = statement.node
            if isinstance(node, Instruction) and node.engine != CPU:
                yield Edge(statement, statement.issuer, None, statement, node.engine, 0)
            elif isinstance(node, Composite):
                yield Edge(statement, CPU, None, statement, SCHEDULER, 0)

    def _lag(self, source: Statement, target: Statement) -> int | None:
        """Iterations from ``source`` to the first ``target`` that comes behind it in one stream, or
        is the same; None where there is none."""
        if source is target:
            return 0
        if not self.block.is_loop:
            return 0 if target.position > source.position else None
        return lag(source.key, target.key)

    def _implied(self, edge: Edge, others: Sequence[Edge], queues: Sequence[Edge]) -> bool:
        starts: dict[str, list[Edge]] = {}
        for other in (*others, *queues):
            starts.setdefault(other.of, []).append(other)
        reached: set[tuple[Statement, str, int]] = set()
        pending: list[tuple[Statement, str, int]] = []

        def reach(statement: Statement, stream: str, distance: int) -> None:
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
