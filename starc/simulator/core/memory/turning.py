"""What is found in the caches of a GPU that stands for all, where blocks turn with the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from starc.simulator.core.compiled import apart, compiled, entry, inlined
from starc.simulator.core.memory.addresses import slice_block, stack_of_block
from starc.simulator.core.memory.tags import EMPTY, TAG_SHIFT, WAY_BITS, lines_of, mall_set
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.counts import STAT_TURNS, STAT_UNSURE
from starc.simulator.state.numbers import (
    DOMAIN_BLOCKS,
    GRANULE,
    GRANULE_SHIFT,
    MALL_SETS,
    MALL_WAYS,
)
from starc.simulator.state.watches import VICTIMS, WATCHES


@inlined
def seen(s: State, launch: Int, watch: Int, what: Int) -> None:
    """Notes what an access to a buffer that turns with the GPU has found."""
    s.watches[launch * WATCHES + watch] |= what


@entry
def mark_turning(s: State, domain: Int, first: Int, end: Int) -> None:
    """Counts blocks of a memory domain, which turn with the GPU, in the sets that hold them. There
    is one GPU."""
    apart()
    coarse = s.cfg[GRANULE_SHIFT]
    size = GRANULE if coarse >= 0 else GRANULE >> -coarse
    for inside in range(first, end):
        block = domain * s.cfg[DOMAIN_BLOCKS] + inside
        for offset in range(0, GRANULE, size):
            stack = stack_of_block(s, block, offset)
            number = slice_block(s, stack, block, lines_of(offset, size))
            place = stack * s.cfg[MALL_SETS] + (mall_set(s, number) >> WAY_BITS)
            count = np.int64(s.turning[place])
            if count < VICTIMS:
                s.turners[place * VICTIMS + count] = number
            if count <= VICTIMS:
                s.turning[place] = count + 1


@inlined
def turning_number(s: State, place: Int, block: Int) -> Int:
    """Which of the blocks of a set that turn with the GPU a block is, or -1."""
    for k in range(s.turning[place]):
        if s.turners[place * VICTIMS + k] == block:
            return np.int64(k)
    return np.int64(-1)


@inlined
def was_turned(s: State, place: Int, block: Int) -> Any:
    """Whether the last use of a block of a set was one that turns with the GPU."""
    k = turning_number(s, place, block)
    return k >= 0 and s.turned[place * VICTIMS + k] == 1


@compiled
def watch_set(s: State, first: Int, block: Int) -> None:
    """Notes whether what an access finds in a set hangs on when other blocks of it were used by
    accesses that turn with the GPU, which differs from GPU to GPU. As many blocks as turn may be
    more or fewer between two uses of a block. So a hit is sure if it is not that near to the end
    of the set, and a miss if the block is none of the last that had to leave it; both are, if
    nothing has turned since the block was used."""
    apart()
    place = first >> WAY_BITS
    left = place * VICTIMS
    ways = s.cfg[MALL_WAYS]
    margin = np.int64(s.turning[place])
    since = was_turned(s, place, block)
    k = turning_number(s, place, block)
    if k >= 0:
        s.turned[left + k] = 1 if s.stats[STAT_TURNS] == 1 else 0
    for i in range(ways):
        other = np.int64(s.mall[first + i]) >> TAG_SHIFT
        if other == block:
            if since and i >= ways - margin:
                s.stats[STAT_UNSURE] = 1
            return
        since |= was_turned(s, place, other)
    for i in range(margin):
        other = np.int64(s.victims[left + i])
        if since and other == block:
            s.stats[STAT_UNSURE] = 1
        since |= was_turned(s, place, other)
    for i in range(VICTIMS - 1, 0, -1):
        s.victims[left + i] = s.victims[left + i - 1]
    victim = np.int64(s.mall[first + ways - 1]) >> TAG_SHIFT
    s.victims[left] = victim if victim != EMPTY else -1
