"""The servers of a GPU: their kinds, numbers, and how long they take for what passes them."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np

from starc.simulator.machine.carriers import carrier_link_class, carrier_links
from starc.simulator.state.arrays import Array
from starc.simulator.state.numbers import NEVER
from starc.simulator.state.servers import (
    CLASS_CU,
    CLASS_ENGINE,
    CLASS_HBM,
    CLASS_HBM_WRITE,
    CLASS_L2_READ,
    CLASS_L2_WRITE,
    CLASS_LINK,
    CLASS_NOC,
    CLASS_PORT,
    CLASS_SCRATCH,
    CLASS_SLICE,
    CLASS_XGMI,
    CLASSES,
    CU_LOAD,
    CU_STORE,
    ENGINE_LOAD,
    ENGINE_STORE,
    HBM,
    L2_READ,
    L2_WRITE,
    LINK,
    MATRIX,
    NOC,
    PORT_DOWN,
    PORT_UP,
    SCRATCH_ACCESS,
    SERVER_KINDS,
    SERVER_NAMES,
    SLICE,
    UNITS,
    VECTOR,
    XGMI,
)
from starc.targets import cubes
from starc.targets.graph import port_count
from starc.targets.target import Target


def service_table(target: Target) -> Array:
    """Picoseconds for 0 .. 64 units of 64 bytes, per service class, rounded up."""
    clocked = target.per_clock
    rates = {
        CLASS_CU: clocked(target.cu_port_bytes_per_clock),
        CLASS_L2_READ: clocked(target.l2_bytes_per_clock),
        CLASS_L2_WRITE: clocked(target.l2_write_bytes_per_clock),
        CLASS_PORT: clocked(target.die_port_bytes_per_clock),
        CLASS_LINK: target.link_rate[target.carrier_links_by_class[0]],
        CLASS_NOC: target.link_rate[target.carrier_links_by_class[-1]],
        CLASS_SLICE: target.mall_stack_rate,
        CLASS_HBM: round(target.hbm_stack_rate * target.hbm_read_share / target.channels),
        CLASS_HBM_WRITE: round(target.hbm_stack_rate * target.hbm_write_share / target.channels),
        CLASS_XGMI: target.link_rate[target.gpu_link],
        CLASS_SCRATCH: clocked(
            target.scratch_port_bytes_per_clock or target.cu_port_bytes_per_clock
        ),
        CLASS_ENGINE: target.copy_engine_rate or clocked(target.cu_port_bytes_per_clock),
    }
    table = np.zeros((CLASSES, UNITS), np.int64)
    for kind, rate in rates.items():
        ps, size = target.service(rate)
        table[kind] = [-(-64 * units * ps // size) for units in range(UNITS)]
    return table.ravel()


def queue_ps(size: int, rate: int) -> int:
    """How far a server of a rate lies behind when so many bytes wait for it; 0 is no bound."""
    return ceil(Fraction(size * 1_000_000_000_000, rate)) if size else NEVER


def server_layout(target: Target) -> tuple[Array, int]:
    """First server of each kind within a GPU, and the number of servers."""
    cus = target.dies_per_gpu * target.cus_per_die
    sizes = [0] * SERVER_KINDS
    for kind in (CU_LOAD, CU_STORE, MATRIX, VECTOR, SCRATCH_ACCESS):
        sizes[kind] = cus
    for kind in (ENGINE_LOAD, ENGINE_STORE):
        sizes[kind] = target.devices_per_gpu * target.copy_engines
    for kind in (L2_READ, L2_WRITE, PORT_UP, PORT_DOWN):
        sizes[kind] = target.dies_per_gpu if target.has_l2 else 0
    sizes[NOC] = sum(
        carrier_link_class(target, *link) == cubes.NOC for link in carrier_links(target)
    )
    sizes[LINK] = len(carrier_links(target)) - sizes[NOC]
    sizes[SLICE] = target.stacks
    sizes[HBM] = target.stacks * target.channels
    # A switch has one link from a GPU and one to it.
    sizes[XGMI] = 2 if target.network == "switch" else port_count(target)
    first = np.concatenate(([0], np.cumsum(sizes)))
    return first[:-1].astype(np.int64), int(first[-1])


def server_names(target: Target) -> tuple[str, ...]:
    """The names of the kinds of servers: of links, those of their classes."""
    names: list[str] = [*SERVER_NAMES]
    names[LINK] = target.carrier_links_by_class[0]
    names[XGMI] = target.gpu_link
    return tuple(names)


def server_kinds(target: Target) -> list[str]:
    """The kind of every server of a GPU."""
    first, servers = server_layout(target)
    sizes = np.diff([*first.tolist(), servers])
    return [
        name for name, size in zip(server_names(target), sizes, strict=True) for _ in range(size)
    ]
