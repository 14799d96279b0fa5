"""Who may read or write what when: operands that others read, slots that are written again."""

from __future__ import annotations

from collections.abc import Sequence

from starc.core.collectives.spmd import Block
from starc.kernel_bodies.collectives.phase_body import PhaseBody

# Operands that others read


def announce(scope: PhaseBody, blocks: Sequence[Block]) -> None:
    """Tells all who read the device's operand that they may."""
    readers = _readers_of_operand(blocks)
    width = scope.program.arrivals
    ranks = {key: reader for key, (reader, _) in readers.items()}
    arrivals = {key: arrival for key, (_, arrival) in readers.items()}
    scope.body.delay(scope.step_ps)
    with scope.each(width) as number:
        element = scope.element(scope.numbers.entry(arrivals, width, number))
        peer = scope.group.member(scope.numbers.entry(ranks, width, number))
        scope.body.signal(scope.arrived, element, 1, peer)


def release(scope: PhaseBody, blocks: Sequence[Block]) -> None:
    """Nobody ends before the others have read its operand."""
    width = scope.program.arrivals
    readers = _readers_of_operand(blocks)
    # What a device has read of whom, told under the number of the announcement there.
    sources = {(rank, arrival): source for (source, _), (rank, arrival) in readers.items()}
    numbers = {(rank, arrival): number for (_, number), (rank, arrival) in readers.items()}
    counter = scope.counter("read", width)
    with scope.each(width) as number:
        element = scope.element(scope.numbers.entry(numbers, width, number))
        peer = scope.group.member(scope.numbers.entry(sources, width, number))
        scope.body.signal(counter, element, 1, peer)
    with scope.each(width) as number:
        scope.body.wait(counter, scope.element(number), 1)


def _readers_of_operand(blocks: Sequence[Block]) -> dict[tuple[int, int], tuple[int, int]]:
    """By (rank, number) the rank of a device that reads its operand, and the arrival there."""
    found: dict[int, dict[tuple[int, int], None]] = {}
    for block in blocks:
        for reader, row in enumerate(block.events):
            for event in row:
                if event is None:
                    continue
                for source, arrival in zip(event.parts, event.awaited, strict=True):
                    found.setdefault(source, {})[reader, arrival] = None
    return {
        (rank, number): target
        for rank, targets in found.items()
        for number, target in enumerate(sorted(targets, key=lambda pair: pair[1]))
    }


# Slots that are written again


def await_credit(scope: PhaseBody) -> None:
    """Before slots are written again, all that read them have done so."""
    receivers = scope.program.receivers
    if not scope.schedule.is_credited or receivers is None:
        return
    with scope.each(len(_slot_readers(scope)) * len(receivers[0])) as number:
        before = scope.chunk - (scope.schedule.depth - 1)
        scope.body.wait(_credit(scope, receivers), scope.element(number), before)


def give_credit(scope: PhaseBody, blocks: Sequence[Block]) -> None:
    """Tells all whose parts have been read that their slots are free."""
    senders, receivers = scope.program.senders, scope.program.receivers
    if not scope.schedule.is_credited or senders is None or receivers is None:
        return
    readers = _slot_readers(scope)
    reader = next(number for number, part in enumerate(readers) if part == tuple(blocks))
    ranks = {
        (rank, number): sender
        for rank, row in enumerate(senders)
        for number, sender in enumerate(row)
    }
    places = {
        (rank, number): receivers[sender].index(rank) for (rank, number), sender in ranks.items()
    }
    width = len(senders[0])
    with scope.each(width) as number:
        place = scope.numbers.entry(places, width, number) + reader * width
        peer = scope.group.member(scope.numbers.entry(ranks, width, number))
        scope.body.signal(_credit(scope, receivers), scope.element(place), 1, peer)


def _slot_readers(scope: PhaseBody) -> list[tuple[Block, ...]]:
    """The templates of the phase that read staging slots."""
    return [part for part in scope.schedule.parts if any(block.parts for block in part)]


def _credit(scope: PhaseBody, receivers: Sequence[Sequence[int]]) -> str:
    """The counter by which readers of slots tell those that they receive from, with an element for
    each reading template, receiver and workgroup."""
    return scope.counter("read", len(_slot_readers(scope)) * len(receivers[0]))
