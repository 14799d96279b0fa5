"""Rings of a group whose devices are all linked to each other.

Rings with strides coprime to the size of a group use each directed pair at most once, but not all
of them: of eight devices four rings, which leave three links of seven idle. A complete directed
graph of n nodes falls into n - 1 Hamiltonian cycles for every n but 4 and 6; collective libraries
use these. A ring is named by a number: below the size of the group its stride, from there on
the cycle ``number - size`` of ``hamiltonian_rings``.

>>> rings = hamiltonian_rings(8)
>>> len(rings), len({(r[i], r[(i + 1) % 8]) for r in rings for i in range(8)})
(7, 56)
>>> ring_behind(0, 1, 8, 3), ring_behind(0, 1, 8, 8)
(5, 7)
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

Ring = tuple[int, ...]

LARGEST: Final = 8
"""The largest group whose cycles are looked for."""


@lru_cache(maxsize=LARGEST)
def hamiltonian_rings(size: int) -> tuple[Ring, ...]:
    """Cycles through all devices that use every directed pair exactly once, the first that a search
    in the order of the devices finds. Empty where there are none or the group is too large."""
    if not 2 <= size <= LARGEST:
        return ()
    used: set[tuple[int, int]] = set()
    cycles: list[Ring] = []

    def extend(path: list[int]) -> bool:
        last = path[-1]
        if len(path) == size:
            if (last, 0) in used:
                return False
            used.add((last, 0))
            cycles.append(tuple(path))
            if begin():
                return True
            cycles.pop()
            used.discard((last, 0))
            return False
        for hop in range(1, size):
            following = (last + hop) % size
            if following in path or (last, following) in used:
                continue
            used.add((last, following))
            if extend([*path, following]):
                return True
            used.discard((last, following))
        return False

    def begin() -> bool:
        first = len(cycles) + 1
        if first == size:
            return True
        used.add((0, first))
        if extend([0, first]):
            return True
        used.discard((0, first))
        return False

    return tuple(cycles) if begin() else ()


def all_rings(size: int) -> tuple[int, ...]:
    """The numbers of the rings that use all links of a group: cycles where there are any, else the
    strides coprime to its size."""
    cycles = hamiltonian_rings(size)
    if cycles:
        return tuple(size + number for number in range(len(cycles)))
    return tuple(stride for stride in range(1, max(size, 2)) if math.gcd(stride, size) == 1)


def is_ring(number: int, size: int) -> bool:
    """Whether a number names a ring through all devices of a group."""
    if number < max(size, 2):
        return math.gcd(number, size) == 1
    return size <= number < size + len(hamiltonian_rings(size))


def ring_behind(index: int, hops: int, size: int, ring: int) -> int:
    """The group index of the device that is ``hops`` steps behind ``index`` on a ring."""
    if ring < max(size, 2):
        return (index - hops * ring) % size
    cycle = hamiltonian_rings(size)[ring - size]
    return cycle[(cycle.index(index) - hops) % size]
