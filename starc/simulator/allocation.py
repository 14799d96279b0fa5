"""The arrays of a run: allocated once from a decoded program and a machine, grown when a pool of
requests or messages runs low."""

from __future__ import annotations

import numpy as np

from starc.backend.program import Engine
from starc.simulator import state as st
from starc.simulator.caches import EMPTY, TAG_SHIFT, WAY_BITS, WAYS
from starc.simulator.decode import Decoded
from starc.simulator.engine_counts import ENGINE_COUNTS, FIRST, PER_ENGINE
from starc.simulator.machine import (
    carrier_tables,
    channel_lines,
    configuration,
    die_places,
    network_tables,
    server_layout,
    service_table,
    stack_carriers,
)
from starc.simulator.observation import LOG_SPARE
from starc.simulator.phases import LOW
from starc.simulator.state import Array, State
from starc.targets.target import Target

_FIRST_POOL = 4096
_FIRST_LOG = 1 << 16
_HOST_LINE = 64
_HOST_PAGE = 1 << 21


def allocate(
    decoded: Decoded,
    target: Target,
    *,
    calendar: bool,
    skew: bool,
    striped: bool,
    page_walk: bool = False,
    bins_ps: int | None = None,
    alone: bool = False,
    piece_bytes: int | None = None,
    log: bool = False,
    log_devices: tuple[int, ...] | None = None,
) -> State:
    """The state at time 0: caches cold, nothing in flight; with ``alone`` of one GPU, which stands
    for all. ``log`` keeps a log of the devices ``log_devices``, or of all."""
    launches = max(1, len(decoded.launches))
    cfg = configuration(
        target,
        slots=decoded.slots,
        tile_slots=decoded.tile_slots,
        counters=decoded.counters,
        launches=launches,
        skew=skew,
        page_walk=page_walk,
    )
    cfg[st.CALENDAR] = int(calendar)
    # Two granules in a row are one on each stack where a domain has two, of one carrier.
    cfg[st.STRIPED] = int(
        striped
        and cfg[st.PLAIN] == 1
        and cfg[st.DOMAIN_STACKS] == 2
        and target.stacks_per_carrier % 2 == 0
    )
    if piece_bytes is not None:
        cfg[st.PIECE] = min(int(cfg[st.PIECE]), piece_bytes)
        cfg[st.STRIPED] = int(cfg[st.STRIPED] and piece_bytes >= 2 * target.interleave_granule)
    first, servers = server_layout(target)
    width = decoded.width
    cfg[st.WIDTH] = width
    cfg[st.GROUPS] += int(cfg[st.DIES] * cfg[st.CUS]) * decoded.slots * (width - 1)
    cfg[st.SEMAPHORES] = decoded.semaphores
    cfg[st.LOG] = _FIRST_LOG if log else 0
    streamed = bool(decoded.templates["streams"].any())
    cfg[st.OBSERVED] = int(log or streamed)
    gpus, groups = 1 if alone else target.gpus, int(cfg[st.GROUPS])
    cfg[st.GPUS], cfg[st.NODE_GPUS] = gpus, target.gpus
    controls = int(cfg[st.CONTROLS])
    dies = gpus * target.dies_per_gpu
    stacks = target.stacks
    l2_words = dies * (int(cfg[st.L2_SETS]) << WAY_BITS)
    mall_words = gpus * stacks * (int(cfg[st.MALL_SETS]) << WAY_BITS)
    pool = _FIRST_POOL
    entities = groups + controls + 2 * pool
    cfg[st.POOL] = pool
    cfg[st.ENTITIES] = entities
    gpu_rows = np.zeros(gpus, st.GPU_STATE)
    gpu_rows["next_time"] = st.NEVER
    for kind in ("request", "message"):
        gpu_rows[f"free_{kind}"] = 0
        gpu_rows[f"free_{kind}s"] = pool
    counters = gpus * target.devices_per_gpu * decoded.counters
    results = launches * gpus * target.devices_per_gpu
    observed = gpus * groups if cfg[st.OBSERVED] else 1
    state = State(
        cfg=cfg,
        first=first,
        service=service_table(target),
        die_carriers=np.concatenate(
            [
                np.arange(target.dies_per_gpu, dtype=np.int32) // target.dies_per_carrier,
                np.arange(target.carriers, dtype=np.int32),
            ]
        ),
        die_places=die_places(target),
        stack_carriers=stack_carriers(target),
        channel_lines=channel_lines(target),
        **network_tables(target),
        **carrier_tables(target),
        operations=decoded.operations,
        uses=decoded.uses,
        expressions=decoded.expressions,
        terms=decoded.terms,
        nodes=decoded.nodes,
        tables=np.ascontiguousarray(decoded.tables, dtype=np.int64),
        scratch=np.zeros(max(1, len(decoded.nodes)), np.int64),
        tile_infos=decoded.tile_infos,
        templates=decoded.templates,
        streams=decoded.streams,
        semaphore_starts=decoded.semaphore_starts,
        buffers=decoded.buffers,
        extents=decoded.extents,
        counter_blocks=decoded.counter_blocks,
        counter_bases=decoded.counter_bases,
        launches=decoded.launches,
        parts=decoded.parts,
        orders=decoded.orders,
        order_lengths=decoded.order_lengths,
        coordinates=decoded.coordinates,
        gpus=gpu_rows,
        events=np.zeros(gpus * entities, st.EVENT),
        heads=np.full(gpus * st.BUCKETS if calendar else 1, -1, np.int32),
        heap=np.zeros(gpus * entities, np.int32),
        requests=_free_list(gpus, pool),
        messages=_free_list(gpus, pool),
        groups=np.zeros(gpus * groups, st.GROUP),
        loops=np.zeros(gpus * groups * st.LOOPS, st.LOOP_STATE),
        variables=np.zeros(gpus * groups * st.VARIABLES, np.int64),
        tiles=np.zeros(gpus * groups * decoded.tile_slots, st.TILE_STATE),
        shared_tiles=np.zeros(observed * decoded.tile_slots, st.SHARED_TILE),
        semaphores=np.zeros(gpus * groups * decoded.semaphores, st.SEMAPHORE),
        observed=np.zeros(observed, st.OBSERVED_STREAM),
        controls=_controls(target, gpus, controls),
        cus=np.zeros(gpus * int(cfg[st.PLACES]), st.CU_STATE),
        counters=np.zeros(counters, np.int64),
        counter_waiters=np.full(counters, -1, np.int32),
        free=np.zeros(gpus * servers, np.int64),
        work=np.zeros(launches * gpus * servers, np.int64),
        counts=np.zeros(launches * gpus * st.COUNTS, np.int64),
        server_kinds=np.repeat(
            np.arange(st.SERVER_KINDS, dtype=np.uint8), np.diff([*first.tolist(), servers])
        ),
        bins=np.zeros(gpus * st.SERVER_KINDS * st.BINS, np.int64),
        l2=_empty_words(l2_words),
        l2_lines=_lines(l2_words, st.L2_LINE),
        mall=_empty_words(mall_words),
        mall_lines=_lines(mall_words, st.MALL_LINE),
        buses=np.zeros(gpus * stacks, st.BUS),
        written_back=np.zeros(dies, np.int64),
        tlb=np.full(max(1, dies * int(cfg[st.TLB_ENTRIES])), -1, np.int32),
        turning=np.zeros(mall_words >> WAY_BITS, np.uint8),
        turners=np.full((mall_words >> WAY_BITS) * st.VICTIMS, -1, np.int32),
        turned=np.zeros((mall_words >> WAY_BITS) * st.VICTIMS, np.uint8),
        victims=np.full((mall_words >> WAY_BITS) * st.VICTIMS, -1, np.int32),
        starts=np.full(results, -1, np.int64),
        ends=np.full(results, -1, np.int64),
        stats=_stats(bins_ps),
        watches=np.zeros(launches * st.WATCHES, np.int64),
        engine_counts=_engine_counts(results if streamed else 0),
        log=np.zeros(max(1, int(cfg[st.LOG])), st.LOG_ROW),
        logged=_logged(gpus * target.devices_per_gpu, log_devices),
    )
    return _packed(state)


def _packed(state: State) -> State:
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


def _engine_counts(devices: int) -> Array:
    """Counts of so many devices and launches; none where templates are single streams."""
    counts = np.zeros((devices, ENGINE_COUNTS), np.int64)
    counts[:, FIRST : len(Engine) * PER_ENGINE : PER_ENGINE] = -1
    return counts.ravel()


def _logged(devices: int, chosen: tuple[int, ...] | None) -> Array:
    """Which devices are logged; one that stands for others, if any of them is."""
    if chosen is None:
        return np.ones(devices, np.uint8)
    return np.isin(np.arange(devices), [device % devices for device in chosen]).astype(np.uint8)


def _stats(bins_ps: int | None) -> Array:
    """Engine counters; bins of at least ``bins_ps`` begin with a power of two of picoseconds."""
    stats = np.zeros(st.STATS, np.int64)
    shift = st.BIN_SHIFT if bins_ps is None else max(1, bins_ps - 1).bit_length()
    stats[st.STAT_BIN_SHIFT] = shift
    return stats


def _empty_words(words: int) -> Array:
    return ((EMPTY << TAG_SHIFT) | (np.arange(words) & (WAYS - 1))).astype(np.uint32)


def _lines(words: int, dtype: np.dtype[np.void]) -> Array:
    lines = np.zeros(words, dtype)
    if "filler" in (dtype.names or ()):
        lines["filler"] = -1
    return lines


def _free_list(gpus: int, pool: int) -> Array:
    requests = np.zeros(gpus * pool, st.REQUEST)
    links = np.arange(1, pool + 1, dtype=np.int32)
    links[-1] = -1
    requests["next"] = np.tile(links, gpus)
    return requests


def _controls(target: Target, gpus: int, controls: int) -> Array:
    rows = np.zeros((gpus, controls), st.CONTROL)
    devices = range(target.devices_per_gpu)
    units = (*devices, *range(target.dies_per_gpu), *devices)
    for k, unit in enumerate(units):
        for queue in range(st.QUEUES):
            rows[:, k * st.QUEUES + queue]["unit"] = unit
            rows[:, k * st.QUEUES + queue]["queue"] = queue
    return rows.ravel()


def warmed(state: State, used: State) -> State:
    """A state at time 0 with the caches as a run has left them: nothing is being filled any more,
    and no launch of the new run has acquired anything."""
    l2_lines, mall_lines = used.l2_lines.copy(), used.mall_lines.copy()
    l2_lines["filler"] = -1
    l2_lines["acquired"] = 0
    mall_lines["filled"] = 0
    return _packed(
        state._replace(
            l2=used.l2,
            l2_lines=l2_lines,
            mall=used.mall,
            mall_lines=mall_lines,
            tlb=used.tlb,
            victims=used.victims,
        )
    )


def grow(state: State) -> State:
    """The same state with pools of twice the size, or with a log of twice the size where that is
    what runs low. Numbers of entities stay the same, so nothing that is pending changes its
    place."""
    cfg = state.cfg.copy()
    stats = state.stats.copy()
    stats[st.STAT_LOW] = 0
    free = min(int(state.gpus[f"free_{kind}s"].min()) for kind in ("request", "message"))
    if int(stats[st.STAT_LOGGED]) + LOG_SPARE >= int(cfg[st.LOG]) > 0:
        cfg[st.LOG] *= 2
        state = state._replace(
            cfg=cfg, stats=stats, log=np.concatenate([state.log, np.zeros_like(state.log)])
        )
        if free >= LOW:
            return _packed(state)
    gpus, pool, entities = int(cfg[st.GPUS]), int(cfg[st.POOL]), int(cfg[st.ENTITIES])
    cfg[st.POOL] = 2 * pool
    cfg[st.ENTITIES] = entities + 2 * pool

    def wider(array: Array, stride: int, added: int) -> Array:
        rows = np.zeros((gpus, stride + added), array.dtype)
        rows[:, :stride] = array.reshape(gpus, stride)
        return rows.ravel()

    gpu_rows = state.gpus.copy()
    pools: dict[str, Array] = {}
    for name in ("request", "message"):
        rows = wider(getattr(state, f"{name}s"), pool, pool).reshape(gpus, 2 * pool)
        for g in range(gpus):
            # The new entries follow the old ones, so that those are still taken first.
            rows[g, pool:]["next"] = np.arange(pool + 1, 2 * pool + 1)
            rows[g, -1]["next"] = -1
            last = int(gpu_rows[g][f"free_{name}"])
            if last < 0:
                gpu_rows[g][f"free_{name}"] = pool
            else:
                while rows[g, last]["next"] >= 0:
                    last = int(rows[g, last]["next"])
                rows[g, last]["next"] = pool
            gpu_rows[g][f"free_{name}s"] += pool
        pools[name] = rows.ravel()
    return _packed(
        state._replace(
            cfg=cfg,
            gpus=gpu_rows,
            stats=stats,
            requests=pools["request"],
            messages=pools["message"],
            events=wider(state.events, entities, 2 * pool),
            heap=wider(state.heap, entities, 2 * pool),
        )
    )
