"""Tags of the L2 of a die and of the memory-side cache in front of a stack.

Both are tracked by granule of 4 KiB with one bit per 128 B line: 16 ways of granules instead of
lines. A way's word is ``granule << 5 | dirty << 4 | way``; the words of a set stand in order of
recency, so a miss reads one cache line of the host. Lines of an L2 are valid from the moment they
are asked for; ``filler`` is the request that brings them.
"""

from __future__ import annotations

import numpy as np

from starc.simulator.compiled import inlined
from starc.simulator.state import (
    L2_MASK,
    L2_SETS,
    L2_SHIFT,
    MALL_MASK,
    MALL_SETS,
    MALL_SHIFT,
    Array,
    Int,
    State,
)

ALL_LINES = (1 << 32) - 1  # of a granule
WAYS = 16
WAY_BITS = 4
TAG_SHIFT = 5
DIRTY = 16
EMPTY = (1 << 27) - 1  # no granule has this number


@inlined
def population(mask: Int) -> Int:
    """Bits set in a mask of 32 lines."""
    mask = mask - ((mask >> 1) & 0x55555555)
    mask = (mask & 0x33333333) + ((mask >> 2) & 0x33333333)
    mask = (mask + (mask >> 4)) & 0x0F0F0F0F
    return ((mask * 0x01010101) >> 24) & 0x3F


@inlined
def lines_of(offset: Int, size: Int) -> Int:
    """The lines of a granule that ``size`` bytes from ``offset`` touch."""
    first = offset >> 7
    last = (offset + size - 1) >> 7
    return (1 << (last + 1)) - (1 << first)


@inlined
def l2_set(s: State, block: Int) -> Int:
    """First word of the set of a granule in an L2."""
    shift = s.cfg[L2_SHIFT]
    mixed = block ^ (block >> shift) ^ (block >> (2 * shift))
    if s.cfg[L2_MASK] == 0:
        return (mixed % s.cfg[L2_SETS]) << WAY_BITS
    return (mixed & s.cfg[L2_MASK]) << WAY_BITS


@inlined
def mall_set(s: State, block: Int) -> Int:
    """First word of the set of a granule in the cache of its stack."""
    shift = s.cfg[MALL_SHIFT]
    mixed = block ^ (block >> shift) ^ (block >> (2 * shift))
    if s.cfg[MALL_MASK] == 0:
        return (mixed % s.cfg[MALL_SETS]) << WAY_BITS
    return (mixed & s.cfg[MALL_MASK]) << WAY_BITS


@inlined
def touch(words: Array, first: Int, block: Int, ways: Int) -> Int:
    """Makes room for a granule in front of its set, where the caller puts its word, and returns
    the word that left its place for that: the granule's own, or the least recent one."""
    word = np.int64(words[first])
    if word >> TAG_SHIFT == block:
        return word
    i = 1
    while i < ways:
        previous = word
        word = np.int64(words[first + i])
        words[first + i] = previous
        if word >> TAG_SHIFT == block:
            break
        i += 1
    return word
