"""Memory stacks and the scratch memories of dies: reads, writes, turns of their buses."""

from __future__ import annotations

import numpy as np

from starc.simulator.core.compiled import apart, compiled, inlined
from starc.simulator.core.memory.tags import population
from starc.simulator.core.servers import count, reserve, service_of
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.counts import COUNT_HBM_READ
from starc.simulator.state.numbers import CHANNELS, HBM_PS, SCRATCH_PS, STACKS, TURN_PS, WRITE_BATCH
from starc.simulator.state.servers import (
    CLASS_CU,
    CLASS_HBM,
    CLASS_HBM_WRITE,
    CLASS_SCRATCH,
    HBM,
    SCRATCH_ACCESS,
    SLICE,
    UNITS,
)


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
