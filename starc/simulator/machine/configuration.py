"""The numbers of a machine that the event core reads: the configuration vector, by subject."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Final

import numpy as np

from starc.simulator.errors import MachineError
from starc.simulator.machine.address_map import BLOCK, AddressMap
from starc.simulator.machine.services import queue_ps, server_layout
from starc.simulator.state import numbers as n
from starc.simulator.state.arrays import Array
from starc.targets.target import Target

_LEAST_LINK_PS: Final = 1024


def configuration(
    target: Target,
    *,
    slots: int,
    tile_slots: int,
    counters: int,
    launches: int,
    skew: bool,
    page_walk: bool = False,
) -> Array:
    """The configuration vector of the event core, ``starc.simulator.state.numbers``, for a program
    of so many workgroup slots of a compute unit, tile slots of a workgroup, counters and launches.
    What options say besides and sizes of pools are set with the state. Raises ``MachineError``
    where the simulator cannot model the machine."""
    _check(target)
    cfg = np.zeros(n.CONFIGURATION, np.int64)
    values = {
        n.TILE_SLOTS: tile_slots,
        n.SLOTS: slots,
        n.COUNTERS: counters,
        n.LAUNCHES: max(1, launches),
        n.SKEW_PS: target.start_skew_ps if skew else 0,
        **_structure(target, slots),
        **_addresses(target),
        **_caches(target),
        **_translation(target, page_walk),
        **_latencies(target),
        **_memory(target),
        **_queues(target),
    }
    cfg[list(values)] = list(values.values())
    if min(cfg[n.L2_PS], cfg[n.SLICE_PS], cfg[n.DOWN_PS]) < 0:
        raise MachineError("the parts of the memory latency exceed the whole")
    if target.gpus > 1 and target.link_latency_ps[target.gpu_link] < _LEAST_LINK_PS:
        raise MachineError("links between GPUs need a latency of at least 1024 ps")
    return cfg


def _check(target: Target) -> None:
    granule = target.interleave_granule
    if not _is_power_of_two(granule) or granule < 256 or target.l2_line != 128:
        raise MachineError("the simulator models granules of 256 bytes and more, and lines of 128")
    if not 1 <= target.l2_ways <= 16 or not 1 <= target.mall_ways <= 16:
        raise MachineError("the simulator models caches of 1 to 16 ways")
    # Tags of caches have 27 bits for a block.
    most = 1 << 27 if target.has_l2 else 1 << 31
    if AddressMap.of(target).domain_blocks * target.memory_domains >= most:
        raise MachineError("a GPU has more memory than the simulator can address (512 GiB)")
    if not 1 <= target.gpus <= 8:
        raise MachineError("a node has 1 to 8 GPUs")


def _structure(target: Target, slots: int) -> Mapping[int, int]:
    """How many there are of everything."""
    _, servers = server_layout(target)
    cus = target.dies_per_gpu * target.cus_per_die
    engines = target.devices_per_gpu * target.copy_engines
    return {
        n.GPUS: target.gpus,
        n.GROUPS: cus * slots + engines,
        n.CONTROLS: (2 * target.devices_per_gpu + target.dies_per_gpu) * n.QUEUES,
        n.SERVERS: servers,
        n.DIES: target.dies_per_gpu,
        n.DEVICES: target.devices_per_gpu,
        n.DIES_PER_DEVICE: target.dies_per_device,
        n.CUS: target.cus_per_die,
        n.PLACES: cus + engines,
        n.ENGINES: target.copy_engines,
        n.CARRIERS: target.carriers,
        n.DIES_PER_CARRIER: target.dies_per_carrier,
        n.STACKS: target.stacks,
        n.CHANNELS: target.channels,
        n.SWITCHED: int(target.network == "switch"),
        n.WAVES: target.max_waves_per_cu,
        n.SCRATCH: target.scratch_bytes_per_cu,
        n.REGISTERS: target.registers_bytes_per_cu,
    }


def _addresses(target: Target) -> Mapping[int, int]:
    """Where the bytes of devices lie."""
    addresses, granule = AddressMap.of(target), target.interleave_granule
    is_plain = (
        granule == BLOCK
        and _is_power_of_two(addresses.domain_stacks)
        and not target.interleave_hashed
    )
    return {
        n.DOMAIN_STACKS: addresses.domain_stacks,
        n.DOMAIN_SHIFT: _log2(addresses.domain_stacks),
        n.DOMAIN_BLOCKS: addresses.domain_blocks,
        n.DEVICE_BLOCKS: addresses.device_blocks,
        n.DEVICES_PER_DOMAIN: addresses.devices_per_domain,
        n.GRANULE_SHIFT: _log2(granule) - _log2(BLOCK),
        n.PLAIN: int(is_plain),
        n.PIECE: min(granule, BLOCK),
        n.HASHED: int(target.interleave_hashed),
    }


def _caches(target: Target) -> Mapping[int, int]:
    l2_sets = max(1, target.l2_bytes_per_die // (target.l2_ways * BLOCK))
    mall_sets = max(1, target.mall_bytes_per_stack // (target.mall_ways * BLOCK))
    return {
        n.HAS_L2: int(target.has_l2),
        n.L2_SETS: l2_sets,
        n.L2_SHIFT: max(1, _log2(l2_sets)),
        n.L2_MASK: _mask(l2_sets),
        n.L2_WAYS: target.l2_ways,
        n.MALL_SETS: mall_sets,
        n.MALL_SHIFT: max(1, _log2(mall_sets)),
        n.MALL_MASK: _mask(mall_sets),
        n.MALL_WAYS: target.mall_ways if target.mall_bytes_per_stack else 0,
        n.COHERENT: int(target.coherent),
        n.RETAINS: int(target.l2_retains and not target.coherent),
        n.WRITE_BACK_PS: target.write_back_queue_ps or n.NEVER,
    }


def _translation(target: Target, page_walk: bool) -> Mapping[int, int]:
    """Pages that dies know, where walks of the page table are modelled."""
    return {
        n.TLB_ENTRIES: target.tlb_entries if page_walk else 0,
        n.TLB_SHIFT: max(0, _log2(target.tlb_page_bytes // BLOCK)),
        n.WALK_PS: target.page_walk_ps,
    }


def _latencies(target: Target) -> Mapping[int, int]:
    """The published latencies, taken apart. A single line also takes its time at the CU's port:
    they include it."""
    first_line = ceil(Fraction(128, target.cu_port_bytes_per_clock) * target.cycle_ps)
    up, down = target.request_up_ps, target.port_to_cu_ps - first_line
    memory = target.mall_latency_ps - target.request_up_ps - target.port_to_cu_ps
    link = target.link_latency_ps[target.gpu_link]
    return {
        n.ISSUE_PS: ceil(target.cycle_ps),
        n.L2_PS: target.l2_latency_ps - first_line if target.has_l2 else target.port_to_cu_ps,
        n.UP_PS: up,
        n.SLICE_PS: memory,
        n.DOWN_PS: down,
        n.FIRST_MISS_PS: up + memory + down,
        n.HBM_PS: target.hbm_extra_ps,
        n.XGMI_PS: link,
        n.STORE_PS: target.store_latency_ps,
        n.POLL_PS: target.mall_latency_ps if target.has_l2 else target.scratch_latency_ps,
        n.LOOKAHEAD_PS: max(_LEAST_LINK_PS, link),
        n.SCRATCH_PS: target.scratch_latency_ps,
    }


def _memory(target: Target) -> Mapping[int, int]:
    """Turns of the buses of stacks."""
    return {
        n.TURN_PS: target.hbm_turnaround_ps,
        n.WRITE_BATCH: target.hbm_write_batch_bytes,
    }


def _queues(target: Target) -> Mapping[int, int]:
    """How far servers may lie behind before their senders are held up."""
    links, port = target.link_rate, target.per_clock(target.die_port_bytes_per_clock)
    bounds = {
        n.LINK_QUEUE_PS: queue_ps(target.usr_queue_bytes, links[target.carrier_links_by_class[0]]),
        n.PORT_QUEUE_PS: queue_ps(target.die_port_queue_bytes, port),
        n.XGMI_QUEUE_PS: queue_ps(target.xgmi_queue_bytes, links[target.gpu_link]),
    }
    return {**bounds, n.CREDITS: int(min(bounds.values()) < n.NEVER)}


def _log2(value: int) -> int:
    return max(0, value.bit_length() - 1)


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _mask(sets: int) -> int:
    """What a set index is masked with, 0 where it takes a remainder. A single set has any."""
    return sets - 1 if _is_power_of_two(sets) else 0
