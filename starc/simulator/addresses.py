"""Where the memory of devices lies: interleave granules over the stacks of a memory domain.

A block is 4 KiB of a GPU's memory, the unit of the caches' tags. Domains have their blocks one
after the other; in a domain, granule by granule goes to stack after stack. Granules of one block
over a power of two of stacks are shifts and masks.
"""

from __future__ import annotations

from starc.simulator.caches import population
from starc.simulator.compiled import inlined
from starc.simulator.state import (
    DOMAIN_BLOCKS,
    DOMAIN_SHIFT,
    DOMAIN_STACKS,
    GRANULE_SHIFT,
    PLAIN,
    Int,
    State,
)


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
    return domain * s.cfg[DOMAIN_STACKS] + unit % s.cfg[DOMAIN_STACKS]


@inlined
def stack_of_block(s: State, block: Int, offset: Int) -> Int:
    """The stack that holds the byte ``offset`` of a block of the GPU."""
    domain = block // s.cfg[DOMAIN_BLOCKS]
    return stack_of(s, domain, block - domain * s.cfg[DOMAIN_BLOCKS], offset)


@inlined
def _granule_of(s: State, mask: Int) -> Int:
    """Which granule of a block lines of it are, where a block has several."""
    first = population((mask & -mask) - 1)
    return first >> (5 + s.cfg[GRANULE_SHIFT])


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
