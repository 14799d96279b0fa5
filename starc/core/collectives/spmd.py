"""A schedule as one program for all devices: blocks of events, in which devices differ by numbers.

A lowering needs to know what a device does in every step: which chunk it sends, to whom, what that
contribution is combined of, where it is staged and whose arrival has to be awaited. Here the
transfers of a schedule are sorted into *blocks*: events of one kind that combine equally many
parts, as many in every step and on every device; the numbers of an event stand in tables by group
rank, step and event.

- ``send``: the device's own part of a chunk, combined with the parts that have arrived, goes to a
  staging slot of another device.
- ``finish``: the same combination is the device's result, and goes to the result of ``copies``
  others.
- ``forward``: a finished chunk that has arrived goes to the result of another device.
- ``move``: a piece of the operand goes to another place in the result of another device.

Where a schedule is pulled, a ``finish`` reads the parts of the group ranks that it lists from the
operands of others, who have told that theirs may be read (that is the arrival).

Every transfer has an *arrival* at its target, a number of its own; those of reductions come first
and are the numbers of their staging slots. So a slot is written once and nobody needs credit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from starc.core.collectives.schedules import Action, Order, Schedule, Transfer


class BlockKind(StrEnum):
    """What the events of a block do; see above."""

    SEND = "send"
    FINISH = "finish"
    FORWARD = "forward"
    MOVE = "move"


@dataclass(frozen=True)
class Event:
    """What a device does once. ``parts`` are the slots (or, pulled, the ranks) combined with its
    own contribution (or alone, where the block has no ``own``), ``awaited`` the arrivals that it
    takes first, ``targets`` (group rank, arrival there) of those that it sends to."""

    chunk: int
    parts: tuple[int, ...] = ()
    awaited: tuple[int, ...] = ()
    targets: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Block:
    """Events of one shape: ``events[rank][step * width + event]``, None where a device idles.

    Every event combines ``parts`` slots (``most`` where devices differ: then it says itself how
    many) and sends to ``copies`` devices.
    """

    kind: BlockKind
    steps: int
    width: int
    parts: int
    copies: int
    events: tuple[tuple[Event | None, ...], ...]
    own: bool = True

    @property
    def idles(self) -> bool:
        """Whether some device does nothing in some event."""
        return any(event is None for row in self.events for event in row)

    @property
    def is_uniform(self) -> bool:
        """Whether every event combines as many parts and sends to as many devices."""
        found = [event for row in self.events for event in row if event is not None]
        return all(
            len(event.parts) == self.parts and len(event.targets) == self.copies for event in found
        )


@dataclass(frozen=True)
class SpmdSchedule:
    """The blocks of a schedule in order, over ``ranks`` devices. ``chunks`` are those of the
    schedule, ``owned`` says whether chunk ``owner * subs + sub`` belongs to a device (or all
    travels whole), ``slots`` the staging slots of a device, ``arrivals`` what arrives there at
    most, and ``last`` for every device the arrivals that nothing has waited for."""

    ranks: int
    subs: int
    owned: bool
    slots: int
    arrivals: int
    blocks: tuple[Block, ...]
    last: tuple[tuple[int, ...], ...]
    pulled: bool = False

    @property
    def receivers(self) -> tuple[tuple[int, ...], ...] | None:
        """For every rank those whose staging slots it writes, ascending; None where some write
        to more than others."""
        found: list[set[int]] = [set() for _ in range(self.ranks)]
        for block in self.blocks:
            if block.kind is BlockKind.SEND:
                for rank, events in enumerate(block.events):
                    found[rank].update(
                        target
                        for event in events
                        if event is not None
                        for target, _ in event.targets
                    )
        return _equally_many(found)

    @property
    def senders(self) -> tuple[tuple[int, ...], ...] | None:
        """For every rank those that write its staging slots, ascending; None where some have more
        than others."""
        if self.receivers is None:
            return None
        found: list[set[int]] = [set() for _ in range(self.ranks)]
        for rank, targets in enumerate(self.receivers):
            for target in targets:
                found[target].add(rank)
        return _equally_many(found)


def _equally_many(found: Sequence[set[int]]) -> tuple[tuple[int, ...], ...] | None:
    if not found[0] or len({len(row) for row in found}) != 1:
        return None
    return tuple(tuple(sorted(row)) for row in found)


@lru_cache(maxsize=256)
def spmd(schedule: Schedule, operation: str) -> SpmdSchedule:
    """The program of a schedule of ``operation``."""
    return _Compiler(schedule, operation).run()


class _Compiler:
    def __init__(self, schedule: Schedule, operation: str) -> None:
        self.schedule = schedule
        self.operation = operation
        self.size = len(schedule.devices)
        self.index = {device: rank for rank, device in enumerate(schedule.devices)}
        self.whole = len(schedule.chunks) == 1 and operation not in ("all_gather", "reduce_scatter")
        self.by_rank = schedule.order is Order.RANK
        self.transfers = self._with_own()
        self.arrival: dict[Transfer, int] = {}
        self.received: list[dict[int, list[Transfer]]] = [{} for _ in range(self.size)]
        self.slots = self._number(Action.REDUCE, [0] * self.size)
        first = [self.slots] * self.size
        self.arrivals = max(
            self._number(Action.COPY, first), self._number(Action.MOVE, first), self.slots
        )
        self.awaited: list[set[int]] = [set() for _ in range(self.size)]

    def _with_own(self) -> tuple[Transfer, ...]:
        """What is combined in the order of the group, and what moves, a device also sends to
        itself: then all its parts are treated alike."""
        transfers = list(self.schedule.transfers)
        devices = self.schedule.devices
        if self.by_rank:
            chunks = {(t.target, t.chunk) for t in transfers if t.action is Action.REDUCE}
            own = [Transfer(0, target, target, chunk, Action.REDUCE) for target, chunk in chunks]
            transfers += sorted(own, key=lambda t: (self.index[t.target], t.chunk))
        if self.operation == "all_to_all":
            transfers += [Transfer(0, d, d, chunk, Action.MOVE) for chunk, d in enumerate(devices)]
        elif self.operation == "permute":
            busy = {transfer.source for transfer in transfers}
            transfers += [Transfer(0, d, d, 0, Action.MOVE) for d in devices if d not in busy]
        return tuple(transfers)

    def _number(self, action: Action, first: Sequence[int]) -> int:
        """Numbers the arrivals of one kind on every device; how many there are at most."""
        counts = list(first)
        for transfer in sorted(self.transfers, key=lambda t: t.step):
            if transfer.action is not action:
                continue
            target = self.index[transfer.target]
            number = counts[target]
            if self.by_rank and action is Action.REDUCE:
                number = self.index[transfer.source]
            self.arrival[transfer] = number
            counts[target] += 1
            self.received[target].setdefault(transfer.chunk, []).append(transfer)
        return max(counts)

    def _pulled(self) -> SpmdSchedule:
        """Every device combines what others hold of its chunk."""
        events: list[tuple[Event | None, ...]] = []
        for rank in range(self.size):
            row: list[Event | None] = []
            for chunk in range(len(self.schedule.chunks)):
                found = self.received[rank].get(chunk, ())
                if self.schedule.owners[chunk] == rank:
                    sources = tuple(self.index[t.source] for t in found)
                    arrivals = tuple(self.arrival[t] for t in found)
                    row.append(Event(chunk, sources, arrivals))
            events.append(tuple(row))
        subs = len(self.schedule.chunks) // self.size
        block = Block(BlockKind.FINISH, 1, subs, self.slots, 0, tuple(events))
        none: tuple[tuple[int, ...], ...] = ((),) * self.size
        return SpmdSchedule(self.size, subs, True, 0, self.slots, (block,), none, True)

    def run(self) -> SpmdSchedule:
        if self.schedule.pulled:
            return self._pulled()
        blocks: list[Block] = []
        finished = False
        steps = self.schedule.steps
        for step in range(steps):
            current = [t for t in self.transfers if t.step == step]
            if not finished and any(t.action is Action.COPY for t in current):
                blocks += self._finish()
                finished = True
            blocks += self._sends([t for t in current if t.action is Action.REDUCE])
            blocks += self._moves([t for t in current if t.action is Action.MOVE])
            blocks += self._forwards([t for t in current if t.action is Action.COPY])
        if not finished and self.operation not in ("all_to_all", "permute"):
            blocks += self._finish()
        last = tuple(
            tuple(
                sorted(
                    self.arrival[t]
                    for found in self.received[rank].values()
                    for t in found
                    if self.arrival[t] not in self.awaited[rank]
                )
            )
            for rank in range(self.size)
        )
        return SpmdSchedule(
            self.size,
            1 if self.whole else len(self.schedule.chunks) // self.size,
            not self.whole,
            self.slots,
            self.arrivals,
            tuple(_joined(blocks)),
            last,
        )

    # Events

    def _parts(self, rank: int, chunk: int, before: int | None) -> tuple[int, ...]:
        """The slots of a chunk that a device has received before a step (or at all)."""
        found = [
            self.arrival[t]
            for t in self.received[rank].get(chunk, ())
            if t.action is Action.REDUCE and (before is None or t.step < before)
        ]
        return tuple(sorted(found)) if self.by_rank else tuple(found)

    def _target(self, transfer: Transfer) -> tuple[int, int]:
        return self.index[transfer.target], self.arrival[transfer]

    def _sends(self, transfers: Sequence[Transfer]) -> list[Block]:
        events: list[list[Event]] = [[] for _ in range(self.size)]
        for t in transfers:
            rank = self.index[t.source]
            parts = () if self.by_rank else self._parts(rank, t.chunk, t.step)
            self.awaited[rank].update(parts)
            events[rank].append(Event(t.chunk, parts, parts, (self._target(t),)))
        if self.operation in ("reduce_to_root", "all_reduce") and self.whole and not self.by_rank:
            return _blocks(
                BlockKind.SEND, events, {max((len(e.parts) for r in events for e in r), default=0)}
            )
        return _blocks(BlockKind.SEND, events, {len(e.parts) for row in events for e in row})

    def _moves(self, transfers: Sequence[Transfer]) -> list[Block]:
        events: list[list[Event]] = [[] for _ in range(self.size)]
        for t in transfers:
            events[self.index[t.source]].append(Event(t.chunk, targets=(self._target(t),)))
        return _blocks(BlockKind.MOVE, events, {0})

    def _forwards(self, transfers: Sequence[Transfer]) -> list[Block]:
        events: list[list[Event]] = [[] for _ in range(self.size)]
        for t in transfers:
            rank = self.index[t.source]
            if self._is_finished_by(rank, t.chunk):
                continue
            came = next(
                other for other in self.received[rank][t.chunk] if other.action is Action.COPY
            )
            self.awaited[rank].add(self.arrival[came])
            events[rank].append(
                Event(t.chunk, awaited=(self.arrival[came],), targets=(self._target(t),))
            )
        return _blocks(BlockKind.FORWARD, events, {0})

    def _is_finished_by(self, rank: int, chunk: int) -> bool:
        if self.whole:
            return self.by_rank or rank == 0
        return self.schedule.owners[chunk] == rank

    def _finish(self) -> list[Block]:
        events: list[list[Event]] = [[] for _ in range(self.size)]
        for rank in range(self.size):
            device = self.schedule.devices[rank]
            for chunk in range(len(self.schedule.chunks)):
                if not self._is_finished_by(rank, chunk):
                    continue
                parts = self._parts(rank, chunk, None)
                self.awaited[rank].update(parts)
                copies = tuple(
                    self._target(t)
                    for t in self.transfers
                    if t.action is Action.COPY and t.source == device and t.chunk == chunk
                )
                events[rank].append(Event(chunk, parts, parts, copies))
        return _blocks(BlockKind.FINISH, events, {-1}, own=not self.by_rank)


def _blocks(
    kind: BlockKind, events: Sequence[Sequence[Event]], counts: Iterable[int], *, own: bool = True
) -> list[Block]:
    """A block for each number of parts; devices with fewer events than others idle at the end.
    One count stands for all events, which then may have fewer parts."""
    wanted = sorted(counts)
    found: list[Block] = []
    for count in wanted:
        rows = [[e for e in row if len(wanted) == 1 or len(e.parts) == count] for row in events]
        width = max(map(len, rows), default=0)
        if not width:
            continue
        padded = tuple((*row, *[None] * (width - len(row))) for row in rows)
        every = [event for row in rows for event in row]
        found.append(
            Block(
                kind,
                1,
                width,
                max(len(event.parts) for event in every),
                max(len(event.targets) for event in every),
                padded,
                own,
            )
        )
    return found


def _joined(blocks: Sequence[Block]) -> list[Block]:
    """Blocks of the same shape in a row become the steps of one."""
    result: list[Block] = []
    for block in blocks:
        last = result[-1] if result else None
        if (
            last is not None
            and block.kind in (BlockKind.SEND, BlockKind.FORWARD)
            and (last.kind, last.width, last.parts, last.copies)
            == (block.kind, block.width, block.parts, block.copies)
            and last.is_uniform
            and block.is_uniform
            and last.parts + (last.kind is BlockKind.FORWARD) > 0
        ):
            events = tuple((*a, *b) for a, b in zip(last.events, block.events, strict=True))
            result[-1] = Block(
                last.kind, last.steps + 1, last.width, last.parts, last.copies, events
            )
        else:
            result.append(block)
    return result
