"""Where the memory of devices lies: interleave granules over the stacks of a memory domain.

A block is 4 KiB of a GPU's memory, the unit of the caches' tags. Domains have their blocks one
after the other; in a domain, granule by granule goes to stack after stack. Granules of one block
over a power of two of stacks are shifts and masks. Where addresses are hashed, every round over the
stacks has an order of its own, so that streams that run side by side meet at stacks by chance.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from starc.simulator.core.compiled import inlined
from starc.simulator.core.memory.tags import population
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.numbers import (
    DOMAIN_BLOCKS,
    DOMAIN_SHIFT,
    DOMAIN_STACKS,
    GRANULE_SHIFT,
    HASHED,
    PLAIN,
)

HASH_FACTOR: Final = 0x9E3779B1  # Knuth's multiplicative hash of the number of a round
HASH_SHIFT: Final = 13
HASH_STEPS: Final = np.array([257, 263, 269, 271, 277, 281, 283, 293], np.int64)
"""Primes above any number of stacks: with each of them as step all stacks are
visited once."""


@inlined
def turned(unit: Int, stacks: Int) -> Int:
    """A number whose remainder is the stack of a granule where addresses are hashed: every round
    over the stacks visits them in an order of its own."""
    turn = ((unit // stacks) * HASH_FACTOR) >> HASH_SHIFT
    return unit % stacks * HASH_STEPS[turn & 7] + (turn >> 3) % stacks


@inlined
def stack_of(s: State, domain: Int, inside: Int, offset: Int) -> Int:
    """The stack that holds the byte ``offset`` of a block, the one ``inside`` of its domain."""
    shift = s.cfg[DOMAIN_SHIFT]
    if s.cfg[PLAIN] == 1:
        return (domain << shift) + (inside & ((1 << shift) - 1))
    coarse = s.cfg[GRANULE_SHIFT]
    unit = inside
    if coarse >= 0:
        unit = inside >> coarse
    else:
        unit = (inside << -coarse) + (offset >> (12 + coarse))
    stacks = s.cfg[DOMAIN_STACKS]
    if s.cfg[HASHED] == 1:
        unit = turned(unit, stacks)
    return domain * stacks + unit % stacks


@inlined
def stack_of_block(s: State, block: Int, offset: Int) -> Int:
    """The stack that holds the byte ``offset`` of a block of the GPU."""
    domain = block // s.cfg[DOMAIN_BLOCKS]
    return stack_of(s, domain, block - domain * s.cfg[DOMAIN_BLOCKS], offset)


@inlined
def first_line(mask: Int) -> Int:
    """The first line of a mask."""
    return population((mask & -mask) - 1)


@inlined
def _granule_of(s: State, mask: Int) -> Int:
    """Which granule of a block lines of it are, where a block has several."""
    return first_line(mask) >> (5 + s.cfg[GRANULE_SHIFT])


@inlined
def slice_block(s: State, stack: Int, block: Int, mask: Int) -> Int:
    """The number within its stack of the block that holds lines of a GPU's block, which are of one
    granule."""
    shift = s.cfg[DOMAIN_SHIFT]
    if s.cfg[PLAIN] == 1:
        return (block - (stack >> shift) * s.cfg[DOMAIN_BLOCKS]) >> shift
    stacks = s.cfg[DOMAIN_STACKS]
    inside = block - stack // stacks * s.cfg[DOMAIN_BLOCKS]
    coarse = s.cfg[GRANULE_SHIFT]
    if coarse >= 0:
        return (((inside >> coarse) // stacks) << coarse) + (inside & ((1 << coarse) - 1))
    return (((inside << -coarse) + _granule_of(s, mask)) // stacks) >> -coarse


@inlined
def slice_lines(s: State, stack: Int, block: Int, mask: Int) -> Int:
    """Lines of a GPU's block as the lines of ``slice_block`` that they are."""
    coarse = s.cfg[GRANULE_SHIFT]
    if coarse >= 0:
        return mask
    stacks = s.cfg[DOMAIN_STACKS]
    inside = block - stack // stacks * s.cfg[DOMAIN_BLOCKS]
    granule = _granule_of(s, mask)
    there = (((inside << -coarse) + granule) // stacks) & ((1 << -coarse) - 1)
    lines = 5 + coarse  # of a granule, as a power of two
    return (mask >> (granule << lines)) << (there << lines)
