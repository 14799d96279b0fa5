"""Collectives along a fixed binary tree, level by level.

In level t of a reduction the devices whose index is an odd multiple of 2^t send to the device 2^t
before them, which combines what it has with what comes in the order of the levels; the first
device is the root. A broadcast goes the same way back. Everything travels whole, in log2(n) steps
each way.

Inside a node collective libraries build their trees as chains: every device sends to the one
before it, and the way back. A chain has n - 1 steps each way, and every link carries the data once
in each direction, so that the parts of a long message follow each other closely.
"""

from __future__ import annotations

from collections.abc import Sequence

from starc.core.collectives.schedules import Action, Schedule, Transfer


def tree_reduce_to_root(devices: Sequence[int], elements: int) -> Schedule:
    """The first device ends with the combination."""
    return _whole(devices, elements, _up(devices))


def tree_broadcast(devices: Sequence[int], elements: int) -> Schedule:
    """Every device ends with what the first has."""
    return _whole(devices, elements, _down(devices, 0))


def tree_all_reduce(devices: Sequence[int], elements: int) -> Schedule:
    """A reduction to the root and a broadcast."""
    return _whole(devices, elements, [*_up(devices), *_down(devices, tree_levels(len(devices)))])


def chain_all_reduce(devices: Sequence[int], elements: int) -> Schedule:
    """A reduction to the first device along a chain and a broadcast back."""
    last = len(devices) - 1
    transfers = [
        Transfer(last - index, devices[index], devices[index - 1], 0, Action.REDUCE)
        for index in range(last, 0, -1)
    ]
    transfers += [
        Transfer(last + index, devices[index], devices[index + 1], 0, Action.COPY)
        for index in range(last)
    ]
    return _whole(devices, elements, transfers)


def tree_levels(size: int) -> int:
    """The levels of a tree: log2 of the size, rounded up."""
    return (size - 1).bit_length()


def _up(devices: Sequence[int]) -> list[Transfer]:
    return [
        Transfer(level, devices[index], devices[index - (1 << level)], 0, Action.REDUCE)
        for level in range(tree_levels(len(devices)))
        for index in range(1 << level, len(devices), 2 << level)
    ]


def _down(devices: Sequence[int], first: int) -> list[Transfer]:
    levels = tree_levels(len(devices))
    return [
        Transfer(
            first + levels - 1 - level,
            devices[index - (1 << level)],
            devices[index],
            0,
            Action.COPY,
        )
        for level in range(levels - 1, -1, -1)
        for index in range(1 << level, len(devices), 2 << level)
    ]


def _whole(devices: Sequence[int], elements: int, transfers: Sequence[Transfer]) -> Schedule:
    return Schedule(tuple(devices), ((0, elements),), (0,), tuple(transfers))
