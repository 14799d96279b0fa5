"""Memory slices: the cache in front of a stack, and the stack behind it."""

from __future__ import annotations

from starc.simulator.core.compiled import inlined
from starc.simulator.core.memory.addresses import slice_block, slice_lines
from starc.simulator.core.memory.stacks import read_stack, turnaround, write_channels
from starc.simulator.core.memory.tags import TAG_SHIFT, WAY_BITS, WAYS, mall_set, population, touch
from starc.simulator.core.memory.turning import watch_set
from starc.simulator.core.servers import count, reserve, service_of
from starc.simulator.core.state_type import prefetch
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.counts import COUNT_HBM_WRITE, COUNT_MALL_HIT, COUNT_SLICE, STAT_FOUND
from starc.simulator.state.numbers import CHANNELS, MALL_SETS, MALL_WAYS
from starc.simulator.state.servers import CLASS_HBM_WRITE, CLASS_SLICE, HBM, SLICE
from starc.simulator.state.watches import SEEN_HIT, SEEN_LATE, SEEN_MISS, SEEN_PART


@inlined
def prefetch_slice(s: State, g: Int, stack: Int, block: Int) -> None:
    """Has the host fetch the set that a request will look up at its memory slice."""
    if s.cfg[MALL_WAYS] == 0:
        return
    stacks = s.first[HBM] - s.first[SLICE]
    first = (g * stacks + stack) * (s.cfg[MALL_SETS] << WAY_BITS)
    prefetch(s.mall, first + mall_set(s, slice_block(s, stack, block, 1)))


@inlined
def mall_place(s: State, g: Int, stack: Int, block: Int) -> Int:
    """Makes a block of a stack the most recent of its set in a memory-side cache and returns the
    index of its line entry, as ``-1 - index`` where it is new there."""
    stacks = s.first[HBM] - s.first[SLICE]
    first = (g * stacks + stack) * (s.cfg[MALL_SETS] << WAY_BITS) + mall_set(s, block)
    if s.turning[first >> WAY_BITS] > 0:
        watch_set(s, first, block)
    word = touch(s.mall, first, block, s.cfg[MALL_WAYS])
    way = word & (WAYS - 1)
    s.mall[first] = (block << TAG_SHIFT) | way
    if word >> TAG_SHIFT == block:
        return first + way
    return -1 - (first + way)


@inlined
def fetch(
    s: State, g: Int, stack: Int, block: Int, size: Int, mask: Int, launch: Int, now: Int
) -> Int:
    """Reads ``size`` bytes of a granule at its memory slice: cache, and where it misses the stack
    behind it. Returns when the first of them leave."""
    count(s, g, launch, COUNT_SLICE, size)
    if s.cfg[MALL_WAYS] == 0:
        return read_stack(s, g, stack, min(size, population(mask) * 128), mask, launch, now)
    start = reserve(s, g, s.first[SLICE] + stack, launch, now, service_of(s, CLASS_SLICE, size))
    line = mall_place(s, g, stack, slice_block(s, stack, block, mask))
    mask = slice_lines(s, stack, block, mask)
    missing = mask
    if line >= 0:
        missing = mask & ~s.mall_lines[line]["valid"]
        s.mall_lines[line]["valid"] |= mask
    else:
        line = -1 - line
        s.mall_lines[line]["valid"] = mask
    if missing == 0:
        count(s, g, launch, COUNT_MALL_HIT, size)
        filled = s.mall_lines[line]["filled"]
        s.stats[STAT_FOUND] = SEEN_HIT if filled <= start else SEEN_LATE
        return max(start, filled)
    s.stats[STAT_FOUND] = SEEN_MISS if missing == mask else SEEN_PART
    out = read_stack(s, g, stack, min(size, population(missing) * 128), missing, launch, start)
    s.mall_lines[line]["filled"] = out
    return out


@inlined
def deposit(
    s: State, g: Int, stack: Int, block: Int, size: Int, mask: Int, launch: Int, now: Int
) -> Int:
    """Writes ``size`` bytes of a granule at its memory slice and returns when that is done."""
    count(s, g, launch, COUNT_SLICE, size)
    count(s, g, launch, COUNT_HBM_WRITE, size)
    if s.cfg[CHANNELS] > 1:
        return write_channels(s, g, stack, mask, launch, now)
    write = service_of(s, CLASS_HBM_WRITE, size) + turnaround(s, g, stack, size)
    if s.cfg[MALL_WAYS] == 0:
        return reserve(s, g, s.first[HBM] + stack, launch, now, write) + write
    service = service_of(s, CLASS_SLICE, size)
    start = reserve(s, g, s.first[SLICE] + stack, launch, now, service)
    block_mask = slice_lines(s, stack, block, mask)
    line = mall_place(s, g, stack, slice_block(s, stack, block, mask))
    if line >= 0:
        s.mall_lines[line]["valid"] |= block_mask
    else:
        line = -1 - line
        s.mall_lines[line]["valid"] = block_mask
    performed = reserve(s, g, s.first[HBM] + stack, launch, start, write) + write
    performed = max(performed, start + service)
    s.mall_lines[line]["filled"] = performed
    return performed
