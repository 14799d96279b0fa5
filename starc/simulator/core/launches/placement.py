"""Workgroups on compute units: which part, where there is room, and how their streams begin."""

from __future__ import annotations

import numpy as np

from starc.simulator.core.compiled import apart, compiled, inlined
from starc.simulator.core.event_queue import schedule_group
from starc.simulator.core.observation import begin_observed
from starc.simulator.core.semaphores import begin_semaphores
from starc.simulator.state.arrays import Int, State
from starc.simulator.state.numbers import (
    CUS,
    DEVICES,
    DIES_PER_DEVICE,
    GROUPS,
    LOOPS,
    OBSERVED,
    PLACES,
    REGISTERS,
    SCRATCH,
    SKEW_PS,
    SLOTS,
    TILE_SLOTS,
    VARIABLES,
    WAVES,
    WIDTH,
)


@inlined
def start_skew(s: State, die: Int, workgroup: Int) -> Int:
    """A hash of die and workgroup: workgroups of a real device do not start in lockstep."""
    if s.cfg[SKEW_PS] == 0:
        return np.int64(0)
    x = (die * 40503 + workgroup * 30011 + 12345) & 0xFFFFFF
    x = ((x ^ (x >> 11)) * 37813) & 0xFFFFFF
    x = ((x ^ (x >> 9)) * 52711) & 0xFFFFFF
    return (x ^ (x >> 12)) % s.cfg[SKEW_PS]


@inlined
def part_of(s: State, launch: Int, workgroup: Int) -> Int:
    """The part of a launch that a workgroup belongs to: within a band, the parts follow each
    other."""
    bands = np.int64(s.launches[launch]["bands"])
    place = workgroup % (np.int64(s.launches[launch]["workgroups"]) // bands)
    part = np.int64(s.launches[launch]["first_part"])
    last = part + s.launches[launch]["parts"] - 1
    while part < last and place * bands >= s.parts[part + 1]["first"]:
        part += 1
    return part


@inlined
def number_in_part(s: State, launch: Int, part: Int, workgroup: Int) -> Int:
    """A workgroup's number within its part."""
    bands = np.int64(s.launches[launch]["bands"])
    length = np.int64(s.launches[launch]["workgroups"]) // bands
    first = np.int64(s.parts[part]["first"]) // bands
    share = np.int64(s.parts[part]["workgroups"]) // bands
    return workgroup // length * share + workgroup % length - first


@compiled
def find_cu(s: State, g: Int, die: Int, template: Int) -> Int:
    """The compute unit of a die with the fewest workgroups among those with room, or -1."""
    needs = s.templates[template]
    best = np.int64(-1)
    fewest = np.int64(1 << 30)
    first = g * s.cfg[PLACES] + die * s.cfg[CUS]
    for k in range(s.cfg[CUS]):
        cu = s.cus[first + k]
        if (
            cu["resident"] < fewest
            and cu["resident"] < s.cfg[SLOTS]
            and cu["waves"] + needs["waves"] <= s.cfg[WAVES]
            and cu["scratch"] + needs["scratch"] <= s.cfg[SCRATCH]
            and cu["registers"] + needs["registers"] <= s.cfg[REGISTERS]
        ):
            fewest = np.int64(cu["resident"])
            best = np.int64(k)
    return best


@compiled
def place_workgroup(
    s: State, g: Int, die: Int, k: Int, launch: Int, part: Int, workgroup: Int, now: Int
) -> None:
    """Puts a workgroup into a slot of compute unit ``k`` of a die."""
    template = np.int64(s.parts[part]["template"])
    cu_index = die * s.cfg[CUS] + k
    cu = s.cus[g * s.cfg[PLACES] + cu_index]
    slot = np.int64(0)
    while (cu["occupied"] >> slot) & 1 == 1:
        slot += 1
    cu["occupied"] |= np.int64(1) << slot
    cu["resident"] += 1
    cu["waves"] += s.templates[template]["waves"]
    cu["scratch"] += s.templates[template]["scratch"]
    cu["registers"] += s.templates[template]["registers"]
    w = (cu_index * s.cfg[SLOTS] + slot) * s.cfg[WIDTH]
    device = die // s.cfg[DIES_PER_DEVICE]
    time = now + s.launches[launch]["prologue"] + start_skew(s, die, workgroup)
    begin_stream(s, g, w, cu_index, die, device, launch, part, workgroup, time)
    if s.templates[template]["streams"] > 0:
        begin_others(s, g, w, cu_index, die, device, launch, part, workgroup, time)


@compiled
def begin_stream(
    s: State,
    g: Int,
    w: Int,
    place: Int,
    die: Int,
    device: Int,
    launch: Int,
    part: Int,
    workgroup: Int,
    time: Int,
) -> None:
    """The stream of a workgroup begins at ``time`` in slot ``w`` of a place: a compute unit of a
    die, or a copy engine, whose die is that of its carrier behind all others."""
    template = np.int64(s.parts[part]["template"])
    i = g * s.cfg[GROUPS] + w
    group = s.groups[i]
    group["next_issue"] = 0
    group["last"] = time
    group["pc"] = s.templates[template]["first"]
    group["end"] = s.templates[template]["end"]
    group["window"] = s.parts[part]["window"]
    group["flight"] = 0
    group["blocked"] = 0
    group["loads"] = 0
    group["writes"] = 0
    group["signals"] = 0
    group["arrived"] = -1
    group["arrived_tail"] = -1
    group["issuing"] = 0
    group["slept"] = 0
    group["template"] = template
    group["workgroup"] = workgroup
    group["launch"] = launch
    group["device"] = device
    group["die"] = die
    group["cu"] = place
    group["lead"] = w
    begin_values(s, g, w, launch, part, workgroup)
    if s.cfg[OBSERVED] == 1:
        begin_observed(s, g, w, np.int64(-1), np.int64(1), time)
    schedule_group(s, g, w, time)


@inlined
def begin_values(s: State, g: Int, w: Int, launch: Int, part: Int, workgroup: Int) -> None:
    """Tiles, loops and variables of a stream that begins."""
    i = g * s.cfg[GROUPS] + w
    template = np.int64(s.parts[part]["template"])
    first = i * s.cfg[TILE_SLOTS]
    for t in range(first, first + s.templates[template]["tile_slots"]):
        s.tiles[t]["ready"] = 0
        s.tiles[t]["read"] = 0
        s.tiles[t]["pending"] = 0
        s.tiles[t]["added"] = 0
    for d in range(LOOPS):
        s.loops[i * LOOPS + d]["value"] = 0
        s.loops[i * LOOPS + d]["lower"] = 0
    v = i * VARIABLES
    node_device = g * s.cfg[DEVICES] + np.int64(s.groups[i]["device"])
    s.variables[v] = number_in_part(s, launch, part, workgroup)
    s.variables[v + 5] = node_device
    for axis in range(4):
        s.variables[v + 6 + axis] = s.coordinates[node_device * 4 + axis]


@compiled
def begin_others(
    s: State,
    g: Int,
    lead: Int,
    place: Int,
    die: Int,
    device: Int,
    launch: Int,
    part: Int,
    workgroup: Int,
    time: Int,
) -> None:
    """The streams of a workgroup that has several begin together: the first, which has begun, in
    the slot that has the tiles and semaphores of all, the others in the slots behind it."""
    apart()
    template = np.int64(s.parts[part]["template"])
    first = np.int64(s.templates[template]["first_stream"])
    count = np.int64(s.templates[template]["streams"])
    begin_semaphores(s, g, lead, template)
    for k in range(count):
        w = lead + k
        if k > 0:
            begin_stream(s, g, w, place, die, device, launch, part, workgroup, time)
        group = s.groups[g * s.cfg[GROUPS] + w]
        group["lead"] = lead
        group["pc"] = s.streams[first + k]["first"]
        group["end"] = s.streams[first + k]["end"]
        begin_observed(s, g, w, np.int64(s.streams[first + k]["engine"]), count, time)
