"""Granules in the L2s of dies, in the caches in front of stacks, and in the stacks."""

from __future__ import annotations

from typing import Any

import numpy as np

from starc.simulator.addresses import first_line, slice_block, slice_lines, stack_of_block
from starc.simulator.caches import (
    DIRTY,
    EMPTY,
    TAG_SHIFT,
    WAY_BITS,
    WAYS,
    l2_set,
    lines_of,
    mall_set,
    population,
    touch,
)
from starc.simulator.compiled import apart, compiled, inlined
from starc.simulator.phases import (
    CLOSED,
    GET_CACHED,
    LOAD_STREAMED,
    SLICE_WRITE,
    WAITING,
    WRITE_BACK,
)
from starc.simulator.pieces import GRANULE
from starc.simulator.ring import go
from starc.simulator.servers import came_by, count, new_request, reserve, service_of
from starc.simulator.state import (
    CHANNELS,
    CLASS_CU,
    CLASS_HBM,
    CLASS_HBM_WRITE,
    CLASS_PORT,
    CLASS_SCRATCH,
    CLASS_SLICE,
    CONTROLS,
    COUNT_DIE,
    COUNT_HBM_READ,
    COUNT_HBM_WRITE,
    COUNT_MALL_HIT,
    COUNT_SLICE,
    DIES,
    DOMAIN_BLOCKS,
    GRANULE_SHIFT,
    HBM,
    HBM_PS,
    L2_SETS,
    L2_WAYS,
    MALL_SETS,
    MALL_WAYS,
    POOL,
    PORT_UP,
    SCRATCH_ACCESS,
    SCRATCH_PS,
    SEEN_HIT,
    SEEN_LATE,
    SEEN_MISS,
    SEEN_PART,
    SLICE,
    STACKS,
    STAT_FOUND,
    STAT_TURNS,
    STAT_UNSURE,
    TLB_ENTRIES,
    TLB_SHIFT,
    TURN_PS,
    UNITS,
    UP_PS,
    VICTIMS,
    WALK_PS,
    WRITE_BACK_PS,
    WRITE_BATCH,
    Int,
    State,
)
from starc.simulator.state_type import prefetch


@compiled
def write_back(
    s: State, g: Int, die: Int, block: Int, dirty: Int, launch: Int, control: Int, now: Int
) -> Int:
    """Sends dirty lines of an L2 to memory; returns when the port is free again. Lines of a
    granule are one write, for which ``control`` waits if it is not -1."""
    apart()
    if s.cfg[GRANULE_SHIFT] >= 0:
        return write_granule(s, g, die, block, dirty, launch, control, now)
    size = 32 >> -s.cfg[GRANULE_SHIFT]
    first = (1 << size) - 1
    others = -1
    for k in range(0, 32, size):
        lines = dirty & (first << k)
        if lines != 0:
            now = write_granule(s, g, die, block, lines, launch, control, now)
            others += 1
    if control >= 0:
        s.controls[g * s.cfg[CONTROLS] + control]["remaining"] += others
    return now


@compiled
def write_granule(
    s: State, g: Int, die: Int, block: Int, dirty: Int, launch: Int, control: Int, now: Int
) -> Int:
    """Sends dirty lines of one granule to memory; returns when the port is free again."""
    r = new_request(s, g)
    i = g * s.cfg[POOL] + r
    size = population(dirty) * 128
    stack = stack_of_block(s, block, first_line(dirty) << 7)
    s.requests[i]["kind"] = WRITE_BACK
    s.requests[i]["watch"] = 0
    s.requests[i]["mask"] = dirty
    s.requests[i]["block"] = block
    s.requests[i]["bytes"] = size
    s.requests[i]["group"] = -1
    s.requests[i]["slot"] = control
    s.requests[i]["launch"] = launch
    s.requests[i]["origin"] = -1
    s.requests[i]["die"] = die
    s.requests[i]["stack"] = stack
    s.requests[i]["at"] = s.die_carriers[die]
    s.requests[i]["to"] = s.stack_carriers[stack]
    s.requests[i]["then"] = SLICE_WRITE
    service = service_of(s, CLASS_PORT, size)
    start = reserve(s, g, s.first[PORT_UP] + die, launch, now, service)
    count(s, g, launch, COUNT_DIE, size)
    came_by(s, g, r, s.first[PORT_UP] + die)
    go(s, g, r, start + s.cfg[UP_PS])
    return start + service


@inlined
def l2_place(s: State, g: Int, die: Int, block: Int, dirty: Int, launch: Int, now: Int) -> Int:
    """Makes a granule the most recent of its set in an L2 and returns the index of its line
    entry, as ``-1 - index`` where it is new there. ``dirty`` (``DIRTY`` or 0) marks it. A granule
    that it displaces is written back where it is dirty."""
    base = (g * s.cfg[DIES] + die) * (s.cfg[L2_SETS] << WAY_BITS)
    first = base + l2_set(s, block)
    word = touch(s.l2, first, block, s.cfg[L2_WAYS])
    way = word & (WAYS - 1)
    if word >> TAG_SHIFT == block:
        s.l2[first] = word | dirty
        return first + way
    s.l2[first] = (block << TAG_SHIFT) | dirty | way
    line = first + way
    if word & DIRTY != 0:
        write_back(
            s, g, die, word >> TAG_SHIFT, np.int64(s.l2_lines[line]["dirty"]), launch, -1, now
        )
    return -1 - line


@compiled
def l2_look(s: State, g: Int, die: Int, block: Int, mask: Int) -> tuple[Int, Int]:
    """What an L2 lacks of lines of a granule, which stays as it is, and the request that still
    brings others of them, or -1."""
    apart()
    first = (g * s.cfg[DIES] + die) * (s.cfg[L2_SETS] << WAY_BITS) + l2_set(s, block)
    for i in range(s.cfg[L2_WAYS]):
        word = np.int64(s.l2[first + i])
        if word >> TAG_SHIFT == block:
            line = first + (word & (WAYS - 1))
            missing = mask & ~np.int64(s.l2_lines[line]["valid"])
            filler = np.int64(s.l2_lines[line]["filler"])
            if missing != 0 or filler < 0 or not brings(s, g, filler, die, block, mask):
                filler = np.int64(-1)
            return missing, filler
    return mask, np.int64(-1)


@inlined
def l2_read(
    s: State, g: Int, r: Int, die: Int, block: Int, mask: Int, launch: Int, now: Int
) -> tuple[Int, Int]:
    """Looks lines of a granule up in an L2, where request ``r`` brings those that are missing.
    Returns these, and the request that still brings others of them, or -1."""
    if s.requests[g * s.cfg[POOL] + r]["kind"] == LOAD_STREAMED:
        return l2_look(s, g, die, block, mask)
    line = l2_place(s, g, die, block, 0, launch, now)
    missing = mask
    if line >= 0:
        if s.requests[g * s.cfg[POOL] + r]["kind"] == GET_CACHED:
            # A launch sees of another device's memory what it has fetched itself.
            if s.l2_lines[line]["acquired"] != launch + 1:
                s.l2_lines[line]["valid"] = 0
                s.l2_lines[line]["acquired"] = launch + 1
        missing = mask & ~np.int64(s.l2_lines[line]["valid"])
        s.l2_lines[line]["valid"] |= mask
    else:
        line = -1 - line
        s.l2_lines[line]["valid"] = mask
        s.l2_lines[line]["dirty"] = 0
        s.l2_lines[line]["acquired"] = launch + 1
    filler = np.int64(s.l2_lines[line]["filler"])
    if missing != 0:
        s.l2_lines[line]["filler"] = r
        filler = np.int64(-1)
    elif filler >= 0 and not brings(s, g, filler, die, block, mask):
        filler = np.int64(-1)
    return missing, filler


@inlined
def brings(s: State, g: Int, r: Int, die: Int, block: Int, mask: Int) -> Any:
    """Whether a request is on its way to an L2 with lines of a granule."""
    i = g * s.cfg[POOL] + r
    if s.requests[i]["waiters"] == CLOSED or s.requests[i]["die"] != die:
        return False
    behind = block - np.int64(s.requests[i]["block"])
    if s.requests[i]["bytes"] > GRANULE:
        return behind == 0 or behind == 1
    return behind == 0 and np.int64(s.requests[i]["mask"]) & mask != 0


@inlined
def wait_for(s: State, g: Int, r: Int, filler: Int) -> None:
    """Has a load wait for the lines that another request brings."""
    s.requests[g * s.cfg[POOL] + r]["next"] = s.requests[g * s.cfg[POOL] + filler]["waiters"]
    s.requests[g * s.cfg[POOL] + r]["phase"] = WAITING
    s.requests[g * s.cfg[POOL] + filler]["waiters"] = r


@compiled
def forget(s: State, g: Int, die: Int, block: Int, mask: Int) -> None:
    """Takes lines of a granule that were written elsewhere out of an L2, if it has them."""
    first = (g * s.cfg[DIES] + die) * (s.cfg[L2_SETS] << WAY_BITS) + l2_set(s, block)
    for i in range(first, first + s.cfg[L2_WAYS]):
        word = np.int64(s.l2[i])
        if word >> TAG_SHIFT == block:
            line = first + (word & (WAYS - 1))
            s.l2_lines[line]["valid"] = np.int64(s.l2_lines[line]["valid"]) & ~mask
            return


@compiled
def forget_elsewhere(s: State, g: Int, writer: Int, block: Int, mask: Int) -> None:
    """What is written at a memory slice is taken out of all L2s of the GPU but the writer's (-1:
    nobody's): the snoop filter of devices whose L2s keep lines from one kernel to the next."""
    apart()
    for die in range(s.cfg[DIES]):
        if die != writer:
            forget(s, g, die, block, mask)


@inlined
def page_walk(s: State, g: Int, die: Int, block: Int) -> Int:
    """What an access waits until its die knows the page: nothing if it does. A page has one place
    among those that a die knows."""
    if s.cfg[TLB_ENTRIES] == 0:
        return np.int64(0)
    page = block >> s.cfg[TLB_SHIFT]
    entry = (g * s.cfg[DIES] + die) * s.cfg[TLB_ENTRIES] + page % s.cfg[TLB_ENTRIES]
    if s.tlb[entry] == page:
        return np.int64(0)
    s.tlb[entry] = page
    return s.cfg[WALK_PS]


@inlined
def l2_write(s: State, g: Int, die: Int, block: Int, mask: Int, launch: Int, now: Int) -> Int:
    """Writes lines of a granule in an L2. Returns before which time that is not done: where it
    takes the place of another granule, write-backs must not lie too far behind."""
    line = l2_place(s, g, die, block, DIRTY, launch, now)
    if line >= 0:
        s.l2_lines[line]["valid"] |= mask
        s.l2_lines[line]["dirty"] |= mask
        return np.int64(0)
    line = -1 - line
    s.l2_lines[line]["valid"] = mask
    s.l2_lines[line]["dirty"] = mask
    s.l2_lines[line]["filler"] = -1
    return s.written_back[g * s.cfg[DIES] + die] - s.cfg[WRITE_BACK_PS]


@inlined
def prefetch_slice(s: State, g: Int, stack: Int, block: Int) -> None:
    """Has the host fetch the set that a request will look up at its memory slice."""
    if s.cfg[MALL_WAYS] == 0:
        return
    stacks = s.first[HBM] - s.first[SLICE]
    first = (g * stacks + stack) * (s.cfg[MALL_SETS] << WAY_BITS)
    prefetch(s.mall, first + mall_set(s, slice_block(s, stack, block, 1)))


@compiled
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


@compiled
def read_scratch(s: State, g: Int, stack: Int, size: Int, launch: Int, now: Int) -> Int:
    """Reads from the scratch memory of a die, which has a number behind those of the stacks, and
    returns when the first of it leaves, as ``read_stack`` does."""
    apart()
    service = service_of(s, CLASS_SCRATCH, size)
    server = s.first[SCRATCH_ACCESS] + stack - s.cfg[STACKS]
    at = reserve(s, g, server, launch, now, service) + s.cfg[SCRATCH_PS]
    return at + max(0, service - service_of(s, CLASS_CU, size))


@compiled
def write_scratch(
    s: State, g: Int, stack: Int, size: Int, times: Int, launch: Int, now: Int
) -> Int:
    """Writes to the scratch memory of a die, or reads it and writes (``times`` 2), and returns when
    that is done."""
    apart()
    service = service_of(s, CLASS_SCRATCH, size) * times
    server = s.first[SCRATCH_ACCESS] + stack - s.cfg[STACKS]
    return reserve(s, g, server, launch, now, service) + service + s.cfg[SCRATCH_PS]


@inlined
def channel_of(s: State, stack: Int) -> Int:
    """The server of the first channel of a stack."""
    return s.first[HBM] + stack * s.cfg[CHANNELS]


@inlined
def access_channels(
    s: State, g: Int, stack: Int, mask: Int, kind: Int, launch: Int, now: Int
) -> tuple[Int, Int]:
    """Takes lines of a granule from all channels of a stack that have some of them, or gives them
    to these: when the first of them begins, and when the last is done."""
    first = np.int64(-1)
    last = now
    for channel in range(s.cfg[CHANNELS]):
        lines = population(mask & s.channel_lines[channel])
        if lines > 0:
            service = s.service[kind * UNITS + 2 * lines]
            at = reserve(s, g, channel_of(s, stack) + channel, launch, now, service)
            if first < 0 or at < first:
                first = at
            last = max(last, at + service)
    return first, last


@compiled
def read_channels(s: State, g: Int, stack: Int, size: Int, mask: Int, launch: Int, now: Int) -> Int:
    """Reads lines from the channels of a stack, as ``read_stack`` does."""
    apart()
    first, last = access_channels(s, g, stack, mask, np.int64(CLASS_HBM), launch, now)
    return max(first, last - service_of(s, CLASS_CU, size)) + s.cfg[HBM_PS]


@compiled
def write_channels(s: State, g: Int, stack: Int, mask: Int, launch: Int, now: Int) -> Int:
    """Writes lines to the channels of a stack and returns when that is done."""
    apart()
    _, last = access_channels(s, g, stack, mask, np.int64(CLASS_HBM_WRITE), launch, now)
    return last


@inlined
def read_stack(s: State, g: Int, stack: Int, size: Int, mask: Int, launch: Int, now: Int) -> Int:
    """Reads from a stack and returns when the first of it leaves. What a stack gives more slowly
    than a compute unit takes it comes that much later: its last byte is what counts."""
    count(s, g, launch, COUNT_HBM_READ, size)
    if s.cfg[CHANNELS] > 1:
        return read_channels(s, g, stack, size, mask, launch, now)
    service = service_of(s, CLASS_HBM, size)
    at = reserve(s, g, s.first[HBM] + stack, launch, now, service)
    if s.cfg[TURN_PS] > 0:
        s.buses[g * (s.first[HBM] - s.first[SLICE]) + stack]["read"] = 1
    return at + s.cfg[HBM_PS] + max(0, service - service_of(s, CLASS_CU, size))


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
def turnaround(s: State, g: Int, stack: Int, size: Int) -> Int:
    """What turns of its bus add to a write of a stack. Writes wait for each other and are written
    in batches, for each of which the bus turns if it has read since the last one."""
    if s.cfg[TURN_PS] == 0:
        return np.int64(0)
    bus = s.buses[g * (s.first[HBM] - s.first[SLICE]) + stack]
    bus["written"] += size
    if bus["written"] < s.cfg[WRITE_BATCH]:
        return np.int64(0)
    bus["written"] = 0
    turns = np.int64(bus["read"])
    bus["read"] = 0
    return turns * s.cfg[TURN_PS]


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
