"""Granules in the L2s of dies."""

from __future__ import annotations

from typing import Any

import numpy as np

from starc.simulator.core.carriers import go
from starc.simulator.core.compiled import apart, compiled, inlined
from starc.simulator.core.memory.addresses import first_line, stack_of_block
from starc.simulator.core.memory.tags import (
    DIRTY,
    EMPTY,
    TAG_SHIFT,
    WAY_BITS,
    WAYS,
    l2_set,
    population,
    touch,
)
from starc.simulator.core.servers import came_by, count, new_request, reserve, service_of
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.counts import COUNT_DIE
from starc.simulator.state.numbers import (
    CONTROLS,
    DIES,
    GRANULE,
    GRANULE_SHIFT,
    L2_SETS,
    L2_WAYS,
    POOL,
    TLB_ENTRIES,
    TLB_SHIFT,
    UP_PS,
    WALK_PS,
    WRITE_BACK_PS,
)
from starc.simulator.state.phases import (
    CLOSED,
    GET_CACHED,
    LOAD_STREAMED,
    SLICE_WRITE,
    WAITING,
    WRITE_BACK,
)
from starc.simulator.state.servers import CLASS_PORT, PORT_UP


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


@compiled
def empty_l2(s: State, g: Int, die: Int) -> None:
    """Invalidates an L2."""
    words = s.cfg[L2_SETS] << WAY_BITS
    first = (g * s.cfg[DIES] + die) * words
    for i in range(first, first + words):
        s.l2[i] = (EMPTY << TAG_SHIFT) | (i & (WAYS - 1))
