"""The arrays of a run, over which the event core works: one table of them all.

Entities of one GPU are numbered in one space: first its workgroup slots, then one for each copy
engine, then its controllers (one launch controller per device and queue, one dispatcher per die and
queue, one of the copy engines per device and queue), then alternately requests and messages from
other GPUs, so that their pools can grow. An entity has at most one pending event. Indices into
arrays of all GPUs are ``gpu * stride + local``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, get_type_hints

import numpy as np
import numpy.typing as npt

from starc.simulator.state.program_records import (
    BUFFER,
    EXPRESSION,
    LAUNCH_INFO,
    NODE,
    OPERATION,
    PART_INFO,
    STREAM,
    TEMPLATE,
    TERM,
    TILE_INFO,
    USE,
)
from starc.simulator.state.records import (
    BUS,
    CONTROL,
    CU_STATE,
    EVENT,
    GPU_STATE,
    L2_LINE,
    MALL_LINE,
    REQUEST,
)
from starc.simulator.state.stream_records import (
    GROUP,
    LOG_ROW,
    LOOP_STATE,
    OBSERVED_STREAM,
    SEMAPHORE,
    SHARED_TILE,
    TILE_STATE,
)

Array: TypeAlias = npt.NDArray[Any]
Int: TypeAlias = Any  # a 64-bit integer of the compiled code, a numpy or Python one without it
DType: TypeAlias = np.dtype[Any]


class By(StrEnum):
    """What arrays are indexed by; a place of the outer ones has all places of the inner."""

    LAUNCH = auto()
    GPU = auto()  # those that are simulated
    DEVICE = auto()  # of a GPU
    DIE = auto()
    STACK = auto()
    PLACE = auto()  # compute unit or copy engine
    SERVER = auto()
    CONTROL = auto()
    ENTITY = auto()
    BUCKET = auto()  # of the calendar
    REQUEST = auto()  # of the pool
    SLOT = auto()  # of workgroups
    OBSERVED = auto()  # the same, where streams are observed
    LOOP = auto()
    VARIABLE = auto()
    TILE_SLOT = auto()
    SEMAPHORE = auto()
    COUNTER = auto()
    COUNT = auto()
    SERVER_KIND = auto()
    BIN = auto()
    STATISTIC = auto()
    WATCH = auto()
    L2_WORD = auto()
    MALL_WORD = auto()
    MALL_SET = auto()
    VICTIM = auto()
    PAGE = auto()
    LOG_ROW = auto()


@dataclass(frozen=True)
class Field:
    """An array of a run: the type of its elements; what they are indexed by, nothing where machine
    or program give it; and the number that they begin with."""

    dtype: DType
    by: tuple[By, ...] = ()
    start: int = 0


I4: Final = np.dtype(np.int32)
U1: Final = np.dtype(np.uint8)
U4: Final = np.dtype(np.uint32)
I8: Final = np.dtype(np.int64)


def _given(dtype: DType) -> Field:
    return Field(dtype)


def _held(dtype: DType, *by: By, start: int = 0) -> Field:
    return Field(dtype, by, start)


class State(NamedTuple):
    """Every array that the event core touches."""

    cfg: Annotated[Array, _given(I8)]  # ``starc.simulator.state.numbers``
    first: Annotated[Array, _given(I8)]  # first server of each kind
    service: Annotated[Array, _given(I8)]  # [class, units] picoseconds
    die_carriers: Annotated[Array, _given(I4)]  # of dies, then of copy engines of each carrier
    # Of dies and copy engines: equal where the nearest class of links is enough.
    die_places: Annotated[Array, _given(I4)]
    stack_carriers: Annotated[Array, _given(I4)]  # of stacks, then of scratch memories of dies
    channel_lines: Annotated[Array, _given(I8)]  # lines of a granule that a channel of a stack has
    ports: Annotated[Array, _given(I4)]  # [GPU, peer]: server of the link that the way begins with
    port_carriers: Annotated[Array, _given(I4)]  # [GPU, peer]: carrier of that link's port
    arrivals: Annotated[Array, _given(I4)]  # [GPU, peer]: carrier of the peer where the way ends
    next_gpus: Annotated[Array, _given(I4)]  # [GPU, peer]: where the link leads
    gpu_ways: Annotated[Array, _given(I8)]  # [GPU, peer]: picoseconds from port to port
    ways: Annotated[Array, _given(I4)]  # [carrier, carrier]: picoseconds one way
    routes: Annotated[Array, _given(I4)]  # [address bit, carrier, carrier]: link to take
    link_ends: Annotated[Array, _given(I4)]  # carrier that a link leads to
    link_classes: Annotated[Array, _given(I4)]  # service class of a link
    link_ps: Annotated[Array, _given(I4)]  # one way over it
    # Program
    operations: Annotated[Array, _given(OPERATION)]
    uses: Annotated[Array, _given(USE)]
    expressions: Annotated[Array, _given(EXPRESSION)]
    terms: Annotated[Array, _given(TERM)]
    nodes: Annotated[Array, _given(NODE)]
    tables: Annotated[Array, _given(I8)]
    scratch: Annotated[Array, _given(I8)]  # values of expression nodes
    tile_infos: Annotated[Array, _given(TILE_INFO)]
    templates: Annotated[Array, _given(TEMPLATE)]
    streams: Annotated[Array, _given(STREAM)]  # of templates that have several
    semaphore_starts: Annotated[Array, _given(I4)]
    buffers: Annotated[Array, _given(BUFFER)]
    extents: Annotated[Array, _given(I4)]  # what devices hold of buffers
    counter_blocks: Annotated[Array, _given(I8)]  # granule of each counter within a device
    counter_bases: Annotated[Array, _given(I8)]  # first element of each counter array
    launches: Annotated[Array, _given(LAUNCH_INFO)]
    parts: Annotated[Array, _given(PART_INFO)]
    orders: Annotated[Array, _given(I4)]  # launches of each queue, in order: [queue, launch]
    order_lengths: Annotated[Array, _given(I4)]
    coordinates: Annotated[Array, _given(I8)]  # [device, axis]
    # Events
    gpus: Annotated[Array, _held(GPU_STATE, By.GPU)]
    events: Annotated[Array, _held(EVENT, By.GPU, By.ENTITY)]
    heads: Annotated[Array, _held(I4, By.GPU, By.BUCKET, start=-1)]
    heap: Annotated[Array, _held(I4, By.GPU, By.ENTITY)]
    requests: Annotated[Array, _held(REQUEST, By.GPU, By.REQUEST)]
    messages: Annotated[Array, _held(REQUEST, By.GPU, By.REQUEST)]
    # Streams
    groups: Annotated[Array, _held(GROUP, By.GPU, By.SLOT)]
    loops: Annotated[Array, _held(LOOP_STATE, By.GPU, By.SLOT, By.LOOP)]
    variables: Annotated[Array, _held(I8, By.GPU, By.SLOT, By.VARIABLE)]
    tiles: Annotated[Array, _held(TILE_STATE, By.GPU, By.SLOT, By.TILE_SLOT)]
    shared_tiles: Annotated[Array, _held(SHARED_TILE, By.GPU, By.OBSERVED, By.TILE_SLOT)]
    semaphores: Annotated[Array, _held(SEMAPHORE, By.GPU, By.SLOT, By.SEMAPHORE)]
    observed: Annotated[Array, _held(OBSERVED_STREAM, By.GPU, By.OBSERVED)]
    controls: Annotated[Array, _held(CONTROL, By.GPU, By.CONTROL)]
    cus: Annotated[Array, _held(CU_STATE, By.GPU, By.PLACE)]
    counters: Annotated[Array, _held(I8, By.GPU, By.DEVICE, By.COUNTER)]
    counter_waiters: Annotated[Array, _held(I4, By.GPU, By.DEVICE, By.COUNTER, start=-1)]
    # Servers
    free: Annotated[Array, _held(I8, By.GPU, By.SERVER)]
    work: Annotated[Array, _held(I8, By.LAUNCH, By.GPU, By.SERVER)]
    counts: Annotated[Array, _held(I8, By.LAUNCH, By.GPU, By.COUNT)]
    server_kinds: Annotated[Array, _given(U1)]
    bins: Annotated[Array, _held(I8, By.GPU, By.SERVER_KIND, By.BIN)]  # work that begins in it
    l2: Annotated[Array, _held(U4, By.GPU, By.DIE, By.L2_WORD)]
    l2_lines: Annotated[Array, _held(L2_LINE, By.GPU, By.DIE, By.L2_WORD)]
    mall: Annotated[Array, _held(U4, By.GPU, By.STACK, By.MALL_WORD)]
    mall_lines: Annotated[Array, _held(MALL_LINE, By.GPU, By.STACK, By.MALL_WORD)]
    buses: Annotated[Array, _held(BUS, By.GPU, By.STACK)]
    # When the latest write-back of each L2 is performed.
    written_back: Annotated[Array, _held(I8, By.GPU, By.DIE)]
    tlb: Annotated[Array, _held(I4, By.GPU, By.DIE, By.PAGE, start=-1)]  # number of the page
    # Blocks that turn with the GPU, where one GPU is run for all: how many, which, and whether
    # their last use was one that turns; last blocks that had to leave such a set.
    turning: Annotated[Array, _held(U1, By.GPU, By.STACK, By.MALL_SET)]
    turners: Annotated[Array, _held(I4, By.GPU, By.STACK, By.MALL_SET, By.VICTIM, start=-1)]
    turned: Annotated[Array, _held(U1, By.GPU, By.STACK, By.MALL_SET, By.VICTIM)]
    victims: Annotated[Array, _held(I4, By.GPU, By.STACK, By.MALL_SET, By.VICTIM, start=-1)]
    # Results
    starts: Annotated[Array, _held(I8, By.LAUNCH, By.GPU, By.DEVICE, start=-1)]
    ends: Annotated[Array, _held(I8, By.LAUNCH, By.GPU, By.DEVICE, start=-1)]
    stats: Annotated[Array, _held(I8, By.STATISTIC)]
    watches: Annotated[Array, _held(I8, By.LAUNCH, By.WATCH)]  # what an instruction has seen
    engine_counts: Annotated[Array, _given(I8)]  # [launch, device, ENGINE_COUNTS]
    log: Annotated[Array, _held(LOG_ROW, By.LOG_ROW)]
    logged: Annotated[Array, _held(U1, By.GPU, By.DEVICE)]  # whether a device is logged


def _fields() -> dict[str, Field]:
    hints = get_type_hints(State, include_extras=True)
    return {name: hints[name].__metadata__[0] for name in State._fields}


FIELDS: Final = _fields()
"""What every array is, in the order of ``State``."""
