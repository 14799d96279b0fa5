"""What a stream of the concurrent interpreter has issued that is not complete."""

from __future__ import annotations

from dataclasses import dataclass

from starc.backend.numerics import Array, Region
from starc.interpreter.isa_tiles import Slot
from starc.interpreter.shared_memory import Access, Cells, Clock


@dataclass(eq=False)
class Load:
    """A read in flight. Its data may be fetched at any time until its tile is needed."""

    slot: Slot
    cells: Cells
    region: Region
    access: Access
    known: Clock
    rows: Array | None
    column: int


@dataclass(eq=False)
class Write:
    """A store or put that has been issued and is not performed yet."""

    cells: Cells
    region: Region
    values: Array
    access: Access
    known: Clock
    adds: bool


@dataclass(eq=False)
class Sent:
    """A signal that waits for the writes before it."""

    device: int
    counter: str
    element: int
    value: int
    clock: Clock
    text: str


@dataclass(eq=False)
class Released:
    """A release that waits for the loads into a slot."""

    semaphore: int
    loads: list[Load]
    clock: Clock
