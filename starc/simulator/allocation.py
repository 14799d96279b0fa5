"""The arrays of a run: allocated once from a decoded program and a machine."""

from __future__ import annotations

import dataclasses
from math import prod
from typing import Final

import numpy as np

from starc.backend.program import Engine
from starc.simulator.core.memory.tags import EMPTY, TAG_SHIFT, WAY_BITS, WAYS
from starc.simulator.machine.carriers import (
    carrier_tables,
    channel_lines,
    die_carriers,
    die_places,
    stack_carriers,
)
from starc.simulator.machine.configuration import configuration
from starc.simulator.machine.networks import network_tables
from starc.simulator.machine.services import server_layout, service_table
from starc.simulator.options import SimulationOptions
from starc.simulator.program.decode import Decoded
from starc.simulator.state.arrays import FIELDS, Array, By, State
from starc.simulator.state.counts import BIN_SHIFT, BINS, COUNTS, STAT_BIN_SHIFT, STATS
from starc.simulator.state.engine_counts import ENGINE_COUNTS, FIRST, PER_ENGINE
from starc.simulator.state.numbers import (
    BUCKETS,
    CALENDAR,
    CONTROLS,
    COUNTERS,
    CUS,
    DEVICES,
    DIES,
    DOMAIN_STACKS,
    ENTITIES,
    GPUS,
    GROUPS,
    L2_SETS,
    LAUNCHES,
    LOG,
    LOOPS,
    MALL_SETS,
    NEVER,
    NODE_GPUS,
    OBSERVED,
    PIECE,
    PLACES,
    PLAIN,
    POOL,
    QUEUES,
    SEMAPHORES,
    SERVERS,
    STACKS,
    STRIPED,
    TILE_SLOTS,
    TLB_ENTRIES,
    VARIABLES,
    WIDTH,
)
from starc.simulator.state.servers import SERVER_KINDS
from starc.simulator.state.watches import VICTIMS, WATCHES
from starc.targets.target import Target

_FIRST_POOL: Final = 4096
_FIRST_LOG: Final = 1 << 16
_HOST_LINE: Final = 64
_HOST_PAGE: Final = 1 << 21

_LENGTHS: Final = {
    By.LAUNCH: LAUNCHES,
    By.GPU: GPUS,
    By.DEVICE: DEVICES,
    By.DIE: DIES,
    By.STACK: STACKS,
    By.PLACE: PLACES,
    By.SERVER: SERVERS,
    By.CONTROL: CONTROLS,
    By.ENTITY: ENTITIES,
    By.REQUEST: POOL,
    By.SLOT: GROUPS,
    By.TILE_SLOT: TILE_SLOTS,
    By.SEMAPHORE: SEMAPHORES,
    By.COUNTER: COUNTERS,
    By.MALL_SET: MALL_SETS,
    By.PAGE: TLB_ENTRIES,
    By.LOG_ROW: LOG,
}
"""The number of the configuration that says how many there are."""
_FIXED: Final = {
    By.LOOP: LOOPS,
    By.VARIABLE: VARIABLES,
    By.COUNT: COUNTS,
    By.SERVER_KIND: SERVER_KINDS,
    By.BIN: BINS,
    By.STATISTIC: STATS,
    By.WATCH: WATCHES,
    By.VICTIM: VICTIMS,
}


def allocate(
    decoded: Decoded, target: Target, chosen: SimulationOptions, *, alone: bool = False
) -> State:
    """The state at time 0: caches cold, nothing in flight; with ``alone`` of one GPU, which stands
    for all."""
    cfg = _numbers(decoded, target, chosen, alone=alone)
    sizes = _sizes(cfg)
    arrays: dict[str, Array] = {}
    for name, field in FIELDS.items():
        if field.by:
            arrays[name] = np.zeros(max(1, prod(sizes[by] for by in field.by)), field.dtype)
            if field.start:
                arrays[name][:] = field.start
    given = {
        field.name: getattr(decoded, field.name)
        for field in dataclasses.fields(decoded)
        if field.name in FIELDS
    }
    streamed = bool(decoded.templates["streams"].any())
    devices = sizes[By.GPU] * sizes[By.DEVICE]
    state = State(
        **arrays,
        **given,
        **_machine_arrays(target),
        cfg=cfg,
        scratch=np.zeros(max(1, len(decoded.nodes)), np.int64),
        engine_counts=_engine_counts(sizes[By.LAUNCH] * devices if streamed else 0),
    )
    _begin(state, target, chosen)
    return packed(state)


def _numbers(decoded: Decoded, target: Target, chosen: SimulationOptions, *, alone: bool) -> Array:
    """The configuration of a machine, with what the program and the options add to it."""
    sizes = decoded.sizes
    cfg = configuration(
        target,
        slots=sizes.slots,
        tile_slots=sizes.tile_slots,
        counters=sizes.counters,
        launches=len(decoded.launches),
        skew=chosen.skew,
        page_walk=chosen.page_walk,
    )
    cfg[CALENDAR] = int(chosen.engine == "calendar")
    # Two granules in a row are one on each stack where a domain has two, of one carrier.
    cfg[STRIPED] = int(
        chosen.striped
        and cfg[PLAIN] == 1
        and cfg[DOMAIN_STACKS] == 2
        and target.stacks_per_carrier % 2 == 0
    )
    if chosen.piece_bytes is not None:
        cfg[PIECE] = min(int(cfg[PIECE]), chosen.piece_bytes)
        cfg[STRIPED] = int(cfg[STRIPED] and chosen.piece_bytes >= 2 * target.interleave_granule)
    cfg[WIDTH] = sizes.width
    cfg[GROUPS] += int(cfg[DIES] * cfg[CUS]) * sizes.slots * (sizes.width - 1)
    cfg[SEMAPHORES] = sizes.semaphores
    cfg[LOG] = _FIRST_LOG if chosen.log else 0
    cfg[OBSERVED] = int(chosen.log or bool(decoded.templates["streams"].any()))
    cfg[GPUS], cfg[NODE_GPUS] = 1 if alone else target.gpus, target.gpus
    cfg[POOL] = _FIRST_POOL
    cfg[ENTITIES] = cfg[GROUPS] + cfg[CONTROLS] + 2 * _FIRST_POOL
    return cfg


def _sizes(cfg: Array) -> dict[By, int]:
    """How many there are of everything that arrays are indexed by."""
    sizes = {by: int(cfg[number]) for by, number in _LENGTHS.items()} | _FIXED
    sizes[By.BUCKET] = BUCKETS if cfg[CALENDAR] else 1
    sizes[By.OBSERVED] = sizes[By.SLOT] if cfg[OBSERVED] else 1
    sizes[By.L2_WORD] = int(cfg[L2_SETS]) << WAY_BITS
    sizes[By.MALL_WORD] = int(cfg[MALL_SETS]) << WAY_BITS
    return sizes


def _machine_arrays(target: Target) -> dict[str, Array]:
    """The tables of a machine."""
    first, servers = server_layout(target)
    sizes = np.diff([*first.tolist(), servers])
    return {
        "first": first,
        "service": service_table(target),
        "die_carriers": die_carriers(target),
        "die_places": die_places(target),
        "stack_carriers": stack_carriers(target),
        "channel_lines": channel_lines(target),
        "server_kinds": np.repeat(np.arange(SERVER_KINDS, dtype=np.uint8), sizes),
        **network_tables(target),
        **carrier_tables(target),
    }


def _begin(state: State, target: Target, chosen: SimulationOptions) -> None:
    """Sets what does not begin with one number for all."""
    pool = int(state.cfg[POOL])
    state.gpus["next_time"] = NEVER
    for kind, requests in (("request", state.requests), ("message", state.messages)):
        state.gpus[f"free_{kind}s"] = pool
        links = np.arange(1, pool + 1, dtype=np.int32)
        links[-1] = -1
        requests["next"] = np.tile(links, len(state.gpus))
    for words in (state.l2, state.mall):
        words[:] = (EMPTY << TAG_SHIFT) | (np.arange(len(words)) & (WAYS - 1))
    state.l2_lines["filler"] = -1
    # Bins of at least ``bins_ps`` begin with a power of two of picoseconds.
    least = chosen.bins_ps
    state.stats[STAT_BIN_SHIFT] = BIN_SHIFT if least is None else max(1, least - 1).bit_length()
    _begin_controls(state, target)
    # A device that stands for others is logged if any of them is.
    devices = len(state.logged)
    logged = range(devices) if chosen.log_devices is None else chosen.log_devices
    state.logged[:] = np.isin(np.arange(devices), [device % devices for device in logged])


def _begin_controls(state: State, target: Target) -> None:
    rows = state.controls.reshape(len(state.gpus), -1)
    devices = range(target.devices_per_gpu)
    for k, unit in enumerate((*devices, *range(target.dies_per_gpu), *devices)):
        for queue in range(QUEUES):
            rows[:, k * QUEUES + queue]["unit"] = unit
            rows[:, k * QUEUES + queue]["queue"] = queue


def _engine_counts(devices: int) -> Array:
    """Counts of so many devices and launches; none where templates are single streams."""
    counts = np.zeros((devices, ENGINE_COUNTS), np.int64)
    counts[:, FIRST : len(Engine) * PER_ENGINE : PER_ENGINE] = -1
    return counts.ravel()


def packed(state: State) -> State:
    """The same state in one block of memory, every array on a cache line of the host: a request
    or a set of tags is one line, and the host can map the block with large pages."""
    sizes = [-(-array.nbytes // _HOST_LINE) * _HOST_LINE for array in state]
    room = np.zeros(sum(sizes) + _HOST_PAGE, np.uint8)
    at = -room.ctypes.data % _HOST_PAGE
    arrays: list[Array] = []
    for array, size in zip(state, sizes, strict=True):
        place = room[at : at + array.nbytes].view(array.dtype)
        place[:] = array
        arrays.append(place)
        at += size
    return State(*arrays)
