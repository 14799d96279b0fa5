"""The synchronisation skeleton of a layer: its launches with all but signals and waits left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from starc.core.streams.stream_template import (
    Branch,
    Loop,
    Node,
    Semaphore,
    Signal,
    Streams,
    Use,
    Wait,
    nodes,
)


@dataclass(frozen=True)
class Skeleton:
    """The signals and waits of a template, over ``device``, the mesh axes, ``wg`` and loops: of
    its one stream, or of ``streams`` that ``semaphores`` join."""

    name: str
    body: tuple[Node, ...]
    streams: Streams = ()
    semaphores: tuple[Semaphore, ...] = ()

    @property
    def sequences(self) -> Streams:
        """The streams; one without a name where there are no others."""
        return self.streams or (("", self.body),)


@dataclass(frozen=True)
class SkeletonLaunch:
    """A launch: (template, workgroups) of its parts; ``depends`` is the index of a launch of
    another queue that must have ended on the device."""

    name: str
    parts: tuple[tuple[Skeleton, int], ...]
    queue: int = 0
    depends: int | None = None


@dataclass(frozen=True)
class Problem:
    """A wait that no order satisfies, or a signal to nowhere; ``launch`` is an index."""

    launch: int
    message: str
    hint: str | None = None


def synchronises(body: Sequence[Node]) -> bool:
    """Whether a body signals or waits at all."""
    return any(isinstance(node, Signal | Wait) for node in nodes(body))


def pruned(body: Sequence[Node]) -> tuple[Node, ...]:
    """A body without what does not synchronise."""
    kept: list[Node] = []
    for node in body:
        match node:
            case Loop() | Branch():
                inner = pruned(node.body)
                if inner:
                    kept.append(replace(node, body=inner))
            case Use():
                pass
            case _:
                kept.append(node)
    return tuple(kept)
