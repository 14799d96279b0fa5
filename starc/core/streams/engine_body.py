"""The body of a kernel as a tree of statements with the engines that execute them, and what it
becomes: a stream for each engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
