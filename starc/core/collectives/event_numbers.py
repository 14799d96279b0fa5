"""The numbers of the events of a program as expressions of a device's rank and an event's number.

All devices run one program, in which they differ by numbers: whose chunk, which slot, to whom. A
number is a formula where there is one, else an entry of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from starc.core.collectives.spmd import Block, Event
from starc.core.quasi_affine.expressions import Expression, Table


@dataclass(frozen=True)
class EventNumbers:
    """Numbers on the device of a ``rank``, of a program over ``ranks`` devices."""

    ranks: int
    rank: Expression

    def entry(
        self, values: Mapping[tuple[int, int], int], width: int, number: Expression
    ) -> Expression:
        """One of ``values``, which are by (rank, number), ``width`` of each rank at most."""
        same = _same_on_all_ranks(values)
        if same is not None:
            step, base = same
            return number * step + base
        form = closed_form(values, self.ranks)
        if form is not None:
            a, b, c = form
            return (self.rank * a + number * b + c) % self.ranks
        flat = [0] * (self.ranks * width)
        for (rank, m), value in values.items():
            flat[rank * width + m] = value
        return Table(tuple(flat), self.rank * width + number)

    def of(
        self, block: Block, number: Expression, value: Callable[[Event], int | None]
    ) -> Expression:
        """What ``value`` says of the event with a number in a block (anything where it says
        ``None``)."""
        values: dict[tuple[int, int], int] = {}
        for rank, row in enumerate(block.events):
            for m, event in enumerate(row):
                found = value(event) if event is not None else None
                if found is not None:
                    values[rank, m] = found
        return self.entry(values, block.steps * block.width, number)

    def listed(
        self,
        block: Block,
        number: Expression,
        k: Expression | int,
        most: int,
        of: Callable[[Event], Sequence[int]],
    ) -> Expression:
        """The ``k``-th of the numbers, ``most`` of them, that an event lists."""
        if isinstance(k, int):
            return self.of(block, number, lambda e: of(e)[k] if k < len(of(e)) else None)
        values: dict[tuple[int, int], int] = {}
        for rank, row in enumerate(block.events):
            for m, event in enumerate(row):
                for position, value in enumerate(of(event) if event is not None else ()):
                    values[rank, m * most + position] = value
        width = block.steps * block.width * most
        return self.entry(values, width, number * most + k)

    def by_rank(self, values: Sequence[int]) -> Expression:
        """A number of every rank."""
        return Table(tuple(values), self.rank)

    def is_busy(self, block: Block, number: Expression) -> Expression:
        """Not negative on devices that have an event of a number."""
        width = block.steps * block.width
        flat = tuple(
            0 if block.events[rank][m] is not None else -1
            for rank in range(self.ranks)
            for m in range(width)
        )
        return Table(flat, self.rank * width + number)


def _same_on_all_ranks(values: Mapping[tuple[int, int], int]) -> tuple[int, int] | None:
    """(step, base) of numbers that are the same and linear on all ranks."""
    columns: dict[int, set[int]] = {}
    for (_, m), value in values.items():
        columns.setdefault(m, set()).add(value)
    if any(len(found) != 1 for found in columns.values()):
        return None
    column = {m: next(iter(found)) for m, found in columns.items()}
    first = min(column)
    step = column[first + 1] - column[first] if first + 1 in column else 0
    base = column[first] - step * first
    return (step, base) if all(v == base + step * m for m, v in column.items()) else None


def closed_form(values: Mapping[tuple[int, int], int], size: int) -> tuple[int, int, int] | None:
    """(a, b, c) with ``value[rank, number] == (a * rank + b * number + c) mod size`` for every
    entry, or None.

    >>> closed_form({(0, 0): 1, (1, 0): 2, (2, 0): 0, (0, 1): 2, (1, 1): 0, (2, 1): 1}, 3)
    (1, 1, 1)
    """
    if any(not 0 <= value < size for value in values.values()):
        return None
    keys = sorted(values)
    rank, number = keys[0]
    start = values[rank, number]
    for a in (1, 0, -1):
        steps = {
            (values[key] - start - a * (key[0] - rank)) % size
            for key in keys
            if key[1] == number + 1
        }
        if len(steps) > 1:
            continue
        b = steps.pop() if steps else 0
        b = b - size if b > size // 2 else b
        c = (start - a * rank - b * number) % size
        if all((a * r + b * m + c) % size == value for (r, m), value in values.items()):
            return a, b, c
    return None
