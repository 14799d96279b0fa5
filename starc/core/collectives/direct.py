"""Collectives without detours: every device sends straight to whom the data is for.

``one_shot`` sends everything to everyone, who combine it in the order of the group; ``two_shot`` is
a direct reduce-scatter and a direct all-gather. In exchange e of a step device i sends to i - e, so
that all links of a fully connected group are in use at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from starc.core.collectives.schedules import Action, Order, Schedule, Transfer, owned_chunks


def one_shot_all_reduce(devices: Sequence[int], elements: int) -> Schedule:
    """One step: everyone sends its whole data to everyone."""
    transfers = _exchange(devices, 0, Action.REDUCE, lambda source, target: 0)
    return Schedule(tuple(devices), ((0, elements),), (0,), tuple(transfers), Order.RANK)


def one_shot_reduce_scatter(devices: Sequence[int], pieces: Sequence[int]) -> Schedule:
    """One step: everyone sends to each device the piece that is for it, which combines them in the
    order of the group."""
    transfers = _exchange(devices, 0, Action.REDUCE, lambda source, target: target)
    return _schedule(devices, pieces, transfers, Order.RANK)


def direct_reduce_scatter(devices: Sequence[int], pieces: Sequence[int]) -> Schedule:
    """One step: every device reads its piece of everyone's data and adds those of the devices
    behind it to its own, going round the group. Nothing is staged."""
    transfers = _exchange(devices, 0, Action.REDUCE, lambda source, target: target)
    return replace(_schedule(devices, pieces, transfers), pulled=True)


def direct_all_gather(devices: Sequence[int], pieces: Sequence[int]) -> Schedule:
    """One step: every device sends its piece to everyone."""
    transfers = _exchange(devices, 0, Action.COPY, lambda source, target: source)
    return _schedule(devices, pieces, transfers)


def two_shot_all_reduce(devices: Sequence[int], pieces: Sequence[int]) -> Schedule:
    """A direct reduce-scatter and a direct all-gather: two steps."""
    reduce = _exchange(devices, 0, Action.REDUCE, lambda source, target: target)
    gather = _exchange(devices, 1, Action.COPY, lambda source, target: source)
    return _schedule(devices, pieces, [*reduce, *gather])


def direct_all_to_all(devices: Sequence[int], pieces: Sequence[int]) -> Schedule:
    """One step: device i sends piece j of its data to device j."""
    transfers = _exchange(devices, 0, Action.MOVE, lambda source, target: target)
    return _schedule(devices, pieces, transfers)


def direct_permute(devices: Sequence[int], targets: Sequence[int], elements: int) -> Schedule:
    """One step: the i-th device of the group sends all it has to the ``targets[i]``-th."""
    if sorted(targets) != list(range(len(devices))):
        raise ValueError(f"{list(targets)} is not a permutation of {len(devices)} devices")
    transfers = [
        Transfer(0, devices[source], devices[target], 0, Action.MOVE)
        for source, target in enumerate(targets)
        if source != target
    ]
    return Schedule(tuple(devices), ((0, elements),), (0,), tuple(transfers))


def direct_reduce_to_root(devices: Sequence[int], elements: int) -> Schedule:
    """One step: everyone sends to the first device, which combines in the order of the group."""
    transfers = [Transfer(0, device, devices[0], 0, Action.REDUCE) for device in devices[1:]]
    return Schedule(tuple(devices), ((0, elements),), (0,), tuple(transfers))


def direct_broadcast(devices: Sequence[int], elements: int) -> Schedule:
    """One step: the first device sends to everyone."""
    transfers = [Transfer(0, devices[0], device, 0, Action.COPY) for device in devices[1:]]
    return Schedule(tuple(devices), ((0, elements),), (0,), tuple(transfers))


def _exchange(
    devices: Sequence[int], step: int, action: Action, chunk: Callable[[int, int], int]
) -> list[Transfer]:
    size = len(devices)
    return [
        Transfer(
            step,
            devices[source],
            devices[(source - distance) % size],
            chunk(source, (source - distance) % size),
            action,
        )
        for distance in range(1, size)
        for source in range(size)
    ]


def _schedule(
    devices: Sequence[int],
    pieces: Sequence[int],
    transfers: Sequence[Transfer],
    order: Order = Order.ARRIVAL,
) -> Schedule:
    chunks, owners = owned_chunks(devices, pieces, 1)
    return Schedule(tuple(devices), chunks, owners, tuple(transfers), order)
