"""The state of a run: plain arrays, allocated once, over which the event core works.

Entities of one GPU are numbered in one space: first its workgroup slots, then one for each copy
engine, then its controllers (one launch controller per device and queue, one dispatcher per die and
queue, one of the copy engines per device and queue), then alternately requests and messages from
other GPUs, so that their pools can grow. An entity has at most one pending event. Indices into
arrays of all GPUs are ``gpu * stride + local``.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Int: TypeAlias = Any  # a 64-bit integer of the compiled code, a numpy or Python one without it

QUEUES: Final = 2
VARIABLES: Final = 16  # stride; a program has ten
LOOPS: Final = 4
NEVER: Final = 1 << 62

# Calendar: a power of two of buckets, each 256 ps.
BUCKET_SHIFT: Final = 8
BUCKETS: Final = 1 << 15

# Integers of the configuration vector.
GPUS: Final = 0
ENTITIES: Final = 1  # stride of events
GROUPS: Final = 2  # workgroup slots of a GPU
CONTROLS: Final = 3
POOL: Final = 4  # requests, and messages, of a GPU
SERVERS: Final = 5
TILE_SLOTS: Final = 6
DIES: Final = 7  # of a GPU
DEVICES: Final = 8  # of a GPU
DIES_PER_DEVICE: Final = 9
CUS: Final = 10  # of a die
SLOTS: Final = 11  # workgroup slots of a CU
CARRIERS: Final = 12
DIES_PER_CARRIER: Final = 13
STACKS_PER_CARRIER: Final = 14
NETWORK: Final = 15  # between GPUs: DIRECT, SWITCH or LINKS
DOMAIN_STACKS: Final = 17
DOMAIN_SHIFT: Final = 18
DOMAIN_BLOCKS: Final = 19  # granules of a memory domain
DEVICE_BLOCKS: Final = 20  # granules of a device
DEVICES_PER_DOMAIN: Final = 21
L2_SETS: Final = 22
L2_SHIFT: Final = 23
MALL_SETS: Final = 24
MALL_SHIFT: Final = 25
COUNTERS: Final = 26  # of a device
LAUNCHES: Final = 27
CALENDAR: Final = 28  # 0: the binary heap alone
COHERENT: Final = 29
ISSUE_PS: Final = 30
L2_PS: Final = 31
UP_PS: Final = 32
SLICE_PS: Final = 33
HBM_PS: Final = 34
DOWN_PS: Final = 35
HOP_PS: Final = 36  # one way
XGMI_PS: Final = 37
STORE_PS: Final = 38
POLL_PS: Final = 39  # of a counter in the nearest stack
SKEW_PS: Final = 40
LOOKAHEAD_PS: Final = 41
WAVES: Final = 42
SCRATCH: Final = 43
REGISTERS: Final = 44
STRIPED: Final = 45  # whether pieces may cover a granule on each stack of a carrier
FIRST_MISS_PS: Final = 46  # least time between a load and its data where the L2 lacks them
TURN_PS: Final = 47  # of a stack's bus, from reads to writes and back
WRITE_BATCH: Final = 48  # bytes that a stack writes between two turns
GRANULE_SHIFT: Final = 49  # blocks of 4 KiB of an interleave granule, as a power of two
PLAIN: Final = 50  # granules of 4 KiB over a power of two of stacks
L2_MASK: Final = 51  # sets - 1 where that is a mask, else 0
MALL_MASK: Final = 52
L2_WAYS: Final = 53
MALL_WAYS: Final = 54  # 0: no memory-side cache
WRITE_BACK_PS: Final = 55  # that write-backs of an L2 may lie behind
PIECE: Final = 56  # bytes that a piece has at most, unless it is a pair
HASHED: Final = 57  # whether granules go to stacks in a hashed order
NODE_GPUS: Final = 58  # GPUs of the node, of which GPUS are simulated: all of them or one
RETAINS: Final = 59  # whether L2s that are written back keep their lines
TLB_ENTRIES: Final = 60  # pages that a die knows; 0: page walks are not modelled
TLB_SHIFT: Final = 61  # blocks of a page, as a power of two
WALK_PS: Final = 62  # of a page that a die does not know
CREDITS: Final = 63  # whether queues of links are bounded
LINK_QUEUE_PS: Final = 64  # how far a carrier link may lie behind before its senders are held up
PORT_QUEUE_PS: Final = 65  # the same of a die's port
XGMI_QUEUE_PS: Final = 66  # the same of a link between GPUs
PLACES: Final = 67  # compute units and copy engines of a GPU
ENGINES: Final = 68  # copy engines of a device
WIDTH: Final = 69  # workgroup slots that a workgroup takes: one for each of its streams
OBSERVED: Final = 70  # whether streams are counted by engine, or their instructions logged
SEMAPHORES: Final = 71  # of a workgroup
LOG: Final = 72  # rows of the log, 0 where nothing is logged
STACKS: Final = 73  # of a GPU; higher numbers are the scratch memories of its dies
HAS_L2: Final = 74
CHANNELS: Final = 75  # of a stack
SCRATCH_PS: Final = 76  # of scratch memory, for what others put there
CONFIGURATION: Final = 77

# Networks: a link to every other GPU; one to a switch, which has one to every GPU; links between
# some GPUs, which pass on what is for others.
DIRECT: Final = 0
SWITCH: Final = 1
LINKS: Final = 2

# Service classes: how long a server takes for so many units of 64 bytes.
CLASS_CU: Final = 0
CLASS_L2_READ: Final = 1
CLASS_L2_WRITE: Final = 2
CLASS_PORT: Final = 3
CLASS_LINK: Final = 4
CLASS_SLICE: Final = 5
CLASS_HBM: Final = 6
CLASS_XGMI: Final = 7
CLASS_HBM_WRITE: Final = 8
CLASS_ENGINE: Final = 9
CLASS_NOC: Final = 10  # links of routers
CLASS_SCRATCH: Final = 11
CLASSES: Final = 12
UNITS: Final = 129  # 0 .. 8192 bytes

# First server of each kind, in the configuration vector ``first_server``.
CU_LOAD: Final = 0
CU_STORE: Final = 1
MATRIX: Final = 2
VECTOR: Final = 3
L2_READ: Final = 4
L2_WRITE: Final = 5
PORT_UP: Final = 6
PORT_DOWN: Final = 7
LINK: Final = 8  # of carriers: one each way
NOC: Final = 9  # of routers, which follow those of carriers
SLICE: Final = 10
HBM: Final = 11  # channels of stacks
XGMI: Final = 12
SCRATCH_ACCESS: Final = 13
ENGINE_LOAD: Final = 14  # of a copy engine: what it reads, and what it writes
ENGINE_STORE: Final = 15
SERVER_KINDS: Final = 16
SERVER_NAMES: Final = (
    "cu_port",
    "cu_port",
    "matrix",
    "vector",
    "l2",
    "l2",
    "die",
    "die",
    "usr",
    "noc",
    "mall",
    "hbm",
    "xgmi",
    "scratch",
    "copy_engine",
    "copy_engine",
)

# Byte counters, per launch and GPU.
COUNT_HBM_READ: Final = 0
COUNT_HBM_WRITE: Final = 1
COUNT_REMOTE: Final = 2  # bytes at memory slices of another carrier than the die's
COUNT_SLICE: Final = 3  # bytes at memory slices
COUNT_USR: Final = 4  # payload that crossed carrier links
COUNT_USR_LINKS: Final = 5  # payload times carrier links crossed
COUNT_XGMI: Final = 6
COUNT_DIE: Final = 7  # bytes through ports of dies
COUNT_L2_HIT: Final = 8
COUNT_L2_MISS: Final = 9
COUNT_LOGICAL_DIE: Final = 10  # put or got between devices of one carrier
COUNT_LOGICAL_USR: Final = 11  # between carriers
COUNT_LOGICAL_XGMI: Final = 12  # between GPUs
COUNT_MALL_HIT: Final = 13
COUNT_NOC_LINKS: Final = 14  # payload times links of routers crossed
COUNTS: Final = 15

# Work of each kind of server over time: bins double their width when a run is longer than all.
BINS: Final = 256
BIN_SHIFT: Final = 16  # of the least width

# Engine counters.
STAT_EVENTS: Final = 0
STAT_REQUESTS: Final = 1
STAT_INSTRUCTIONS: Final = 2
STAT_LOW: Final = 3  # a pool runs low
STAT_TIME: Final = 4  # last event
STAT_FOUND: Final = 5  # what the last read of a memory slice found
STAT_BIN_SHIFT: Final = 6  # width of a bin, as a power of two of picoseconds
STAT_UNSURE: Final = 7  # what turns with the GPU may have displaced what was used again
STAT_TURNS: Final = 8  # whether the access at a memory slice turns with the GPU
STAT_LOGGED: Final = 9  # rows of the log that are taken
STATS: Final = 10

# Blocks that turn with the GPU in one set of a memory-side cache, at most.
VICTIMS: Final = 4

# What accesses to buffers that turn with the GPU have seen, per launch and watched instruction.
WATCHES: Final = 256
SEEN_L2_HIT: Final = 1
SEEN_L2_FILLED: Final = 2  # a line that is being filled
SEEN_L2_PART: Final = 4
SEEN_L2_MISS: Final = 8
SEEN_HIT: Final = 16  # in the memory-side cache
SEEN_LATE: Final = 32  # there, but not yet filled
SEEN_PART: Final = 64
SEEN_MISS: Final = 128
SEEN_L2: Final = 15
SEEN_MEMORY: Final = 240
# Numbers of watched instructions: those whose addresses turn, and others on the same buffers.
FIRST_STAY: Final = 128

EVENT = np.dtype([("time", "<i8"), ("key", "<i4"), ("next", "<i4")], align=True)

REQUEST = np.dtype(
    [
        ("mask", "<u4"),  # 128 B lines of the granule
        ("block", "<i4"),  # granule within the GPU
        ("done", "<i8"),  # when its last byte is there
        ("bytes", "<i4"),  # more than a granule: all of this one and of the next
        ("fetch", "<i4"),  # bytes asked of the memory, of the granule and of the one behind it
        ("fetch2", "<i4"),
        ("group", "<i4"),  # workgroup slot, or -1 for a write-back
        ("slot", "<i4"),  # tile slot, counter, or dispatcher that waits for a write-back
        ("launch", "<i4"),
        ("next", "<i4"),  # in the list that it is in
        ("waiters", "<i4"),  # requests that wait for the line which it fills
        ("origin", "<i4"),  # request of the GPU that asked, or -1
        ("peer", "i1"),  # GPU that it goes to
        ("kind", "u1"),
        ("phase", "u1"),
        ("then", "u1"),  # phase at the end of the ring
        ("die", "u1"),
        ("stack", "u1"),
        ("at", "u1"),  # carrier where its data are
        ("to", "u1"),  # carrier where the ring ends for it
        ("sharing", "u1"),  # workgroups that load it together
        ("watch", "u1"),  # number of an instruction that is watched, or 0
        ("through", "u1"),  # of what passes through a GPU: 1 + 2 * sender + (1 for data)
        ("came", "u1"),  # 1 + the server that it came by, counted from the first port, or 0
    ],
    align=True,
)

# Cache lines of the host: what arrivals touch, what every piece touches, and the rest.
GROUP = np.dtype(
    [
        ("next_issue", "<i8"),
        ("last", "<i8"),  # end of the latest of its operations
        ("window", "<i4"),
        ("flight", "<i4"),  # bytes in flight
        ("pc", "<i4"),
        ("end", "<i4"),
        ("blocked", "<i4"),
        ("waiting", "<i4"),  # tile slot or counter
        ("loads", "<i4"),
        ("writes", "<i4"),
        ("signals", "<i4"),
        ("arrived", "<i4"),  # list of arrived loads whose bytes still count as in flight
        ("arrived_tail", "<i4"),
        ("cu", "<i4"),
        # Second line
        ("run", "<i8"),  # address and length of the run that is being issued, and of the next
        ("segment", "<i8"),
        ("run_left", "<i4"),
        ("segment_left", "<i4"),
        ("issuing", "<i4"),
        ("slot", "<i4"),  # tile slot of the memory operation
        ("buffer", "<i4"),
        ("peer", "<i4"),  # device within its GPU
        ("peer_gpu", "<i4"),
        ("launch", "<i4"),
        ("device", "<i4"),
        ("die", "<i4"),
        ("slept", "<i4"),
        ("lead", "<i4"),  # slot of the workgroup's first stream, which has its tiles
        # The tile of the memory operation: ranges per dimension and the place in it.
        ("base", "<i8"),  # address of the buffer within its device
        ("low1", "<i4"),
        ("high0", "<i4"),
        ("high1", "<i4"),
        ("low2", "<i4"),
        ("high2", "<i4"),
        ("low3", "<i4"),
        ("high3", "<i4"),
        ("at0", "<i4"),
        ("at1", "<i4"),
        ("row", "<i4"),
        ("block2", "<i4"),
        ("block3", "<i4"),
        ("first2", "<i4"),
        ("first3", "<i4"),
        # Fourth line
        ("value", "<i8"),  # awaited value of a counter, or amount of a signal
        ("template", "<i4"),
        ("workgroup", "<i4"),
        ("next_waiter", "<i4"),
        # A tile that is taken row by row: the next row, and the whole tile.
        ("outer", "<i4"),
        ("outer_end", "<i4"),
        ("counts", "<i4"),
        ("tile_low0", "<i4"),
        ("tile_high0", "<i4"),
        ("tile_low1", "<i4"),
        ("tile_high1", "<i4"),
        ("tile_low2", "<i4"),
        ("tile_high2", "<i4"),
        ("tile_low3", "<i4"),
        ("tile_high3", "<i4"),
    ],
    align=True,
)

LOOP_STATE = np.dtype(
    [
        ("trip", "<i4"),
        ("trips", "<i4"),
        ("lower", "<i4"),
        ("upper", "<i4"),
        ("value", "<i4"),
        ("pad", "<i4", 3),
    ],
    align=True,
)

TILE_STATE = np.dtype(
    # ``added``: when the engine has done the last product that was added to it.
    [("ready", "<i8"), ("read", "<i8"), ("pending", "<i8"), ("added", "<i8")],
    align=True,
)

# What is known of a tile slot beyond that, where streams share it or are observed.
SHARED_TILE = np.dtype(
    [
        ("sent", "<i8"),  # when the latest store or put has read it
        ("releases", "<i4"),  # list of semaphores to raise when its loads have arrived
        ("row", "<i4"),  # of the log: the latest load
    ],
    align=True,
)

SEMAPHORE = np.dtype(
    [
        ("value", "<i4"),
        ("waiter", "<i4"),
        ("first", "<i4"),  # list of releases that have not taken effect, in the order of the stream
        ("last", "<i4"),
    ],
    align=True,
)

# A stream that is observed.
OBSERVED_STREAM = np.dtype(
    [
        ("since", "<i8"),  # begin of what it waits for, or -1
        ("begun", "<i8"),  # begin and end of what a DMA has been doing
        ("until", "<i8"),
        ("flying", "<i4"),  # pieces of loads that have not arrived
        ("engine", "<i4"),
        ("row", "<i4"),  # of the log: the instruction that is being executed
        ("streams", "<i4"),  # of a workgroup that have not ended
    ],
    align=True,
)

LOG_ROW = np.dtype(
    [
        ("device", "<i4"),
        ("launch", "<i4"),
        ("workgroup", "<i4"),
        ("engine", "<i4"),
        ("record", "<i4"),
        ("iteration", "<i4"),
        ("start_ps", "<i8"),
        ("end_ps", "<i8"),
    ],
    align=True,
)

CONTROL = np.dtype(
    [
        ("next_time", "<i8"),  # first picosecond at which it may act
        ("launch", "<i4"),
        ("state", "<i4"),
        ("position", "<i4"),  # of the launch on the queue; next workgroup of a dispatcher
        ("remaining", "<i4"),  # workgroups, then dies to flush; write-backs of a dispatcher
        ("total", "<i4"),
        ("cursor", "<i4"),
        ("queue", "<i4"),
        ("unit", "<i4"),  # device or die; of a dispatcher of copy engines the device
    ],
    align=True,
)

CU_STATE = np.dtype(
    [
        ("occupied", "<i8"),  # bit per workgroup slot
        ("waves", "<i4"),
        ("scratch", "<i4"),
        ("registers", "<i4"),
        ("resident", "<i4"),
        ("missing", "<i4"),  # loads whose data have not come to the port of the die yet
        ("arriving", "<i4"),  # loads with an event at the port of the CU
    ],
    align=True,
)

GPU_STATE = np.dtype(
    [
        ("bucket", "<i8"),
        ("opened", "<i8"),  # the bucket that is in order
        ("next_time", "<i8"),
        ("queued", "<i8"),  # events in the calendar
        ("heap_size", "<i8"),
        ("free_request", "<i8"),
        ("free_requests", "<i8"),
        ("free_message", "<i8"),
        ("free_messages", "<i8"),
        ("foreign", "<i8"),  # messages that it will get and requests that it serves for others
    ],
    align=True,
)

L2_LINE = np.dtype(
    [("valid", "<u4"), ("dirty", "<u4"), ("filler", "<i4"), ("acquired", "<i4")], align=True
)
MALL_LINE = np.dtype([("valid", "<i8"), ("filled", "<i8")], align=True)
# The bus of a stack: bytes written since its last turn, and whether it has read since then.
BUS = np.dtype([("written", "<i4"), ("read", "<i4")], align=True)

# The decoded program.
OPERATION = np.dtype(
    [
        ("work", "<i8"),  # picoseconds
        ("op", "<i4"),
        ("depth", "<i4"),
        ("stage", "<i4"),
        ("stages", "<i4"),  # of a LOOP: largest stage of its direct records
        ("end", "<i4"),
        ("uncached", "<i4"),
        ("buffer", "<i4"),  # or first counter
        ("peer", "<i4"),
        ("start0", "<i4"),
        ("start1", "<i4"),
        ("start2", "<i4"),
        ("start3", "<i4"),
        ("extent0", "<i4"),
        ("extent1", "<i4"),
        ("extent2", "<i4"),
        ("extent3", "<i4"),
        ("lower", "<i4"),
        ("upper", "<i4"),
        ("first_use", "<i4"),  # tiles that a MATRIX or VECTOR touches, in ``uses``
        ("use_count", "<i4"),
        ("tile", "<i4"),  # of a memory operation
        ("latency", "<i4"),  # from the end of a MATRIX or VECTOR to a use of its result
        ("scratch", "<i4"),  # picoseconds of scratch memory for the operands of a MATRIX
        ("watch", "<i4"),  # its number, where its buffer turns with the GPU and that is watched
    ],
    align=True,
)

USE = np.dtype([("tile", "<i4"), ("reads", "<i4"), ("writes", "<i4")], align=True)

EXPRESSION = np.dtype(
    [("constant", "<i8"), ("kind", "<i4"), ("first", "<i4"), ("count", "<i4")], align=True
)
TERM = np.dtype([("factor", "<i8"), ("variable", "<i8")], align=True)
NODE = np.dtype([("imm", "<i8"), ("op", "<i4"), ("l", "<i4"), ("r", "<i4")], align=True)

TILE_INFO = np.dtype([("base", "<i4"), ("slots", "<i4"), ("depth", "<i4")], align=True)

TEMPLATE = np.dtype(
    [
        ("first", "<i4"),
        ("end", "<i4"),
        ("tile_base", "<i4"),
        ("tile_slots", "<i4"),
        ("waves", "<i4"),
        ("scratch", "<i4"),
        ("registers", "<i4"),
        ("window", "<i4"),
        ("first_stream", "<i4"),
        ("streams", "<i4"),  # 0: it is one stream of its records
        ("first_semaphore", "<i4"),
        ("semaphores", "<i4"),
    ],
    align=True,
)

STREAM = np.dtype([("engine", "<i4"), ("first", "<i4"), ("end", "<i4")], align=True)

BUFFER = np.dtype(
    [
        ("address", "<i8"),
        ("dim0", "<i4"),
        ("dim1", "<i4"),
        ("dim2", "<i4"),
        ("dim3", "<i4"),
        ("fold", "<i4"),  # dim 2 of the tensor where it was folded into rows with dim 1, else 0
        ("inner", "<i4"),  # dim 1 of the folded buffer
        ("rows", "<i4"),  # of a block
        ("columns", "<i4"),
        ("blocks2", "<i4"),
        ("blocks3", "<i4"),
        ("element", "<i4"),
        ("held", "<i4"),  # extents per device, in ``extents``, or -1 where all of it is held
        ("counts", "<i4"),  # of dimension ``turned`` per device and row, or -1 where no row differs
        ("by", "u1"),
        ("turned", "u1"),
        ("scratch", "u1"),  # 1: it lies in the scratch memory of a device
    ],
    align=True,
)

LAUNCH_INFO = np.dtype(
    [
        ("gap", "<i8"),
        ("prologue", "<i8"),
        ("interval", "<i8"),  # between workgroups of a die
        ("issued", "<i8"),  # when the host has launched it, 0 in a graph
        ("quiet", "<i8"),  # least time from its end to an instruction of a remote launch
        ("queue", "<i4"),
        ("workgroups", "<i4"),
        ("first_part", "<i4"),
        ("parts", "<i4"),
        ("depends", "<i4"),
        ("position", "<i4"),  # on its queue
        ("bands", "<i4"),  # its parts take turns so many times
        ("remote", "<i4"),  # whether it names other devices
        ("engines", "<i4"),  # whether it runs on copy engines
    ],
    align=True,
)

PART_INFO = np.dtype(
    [("template", "<i4"), ("first", "<i4"), ("workgroups", "<i4"), ("window", "<i4")], align=True
)


class State(NamedTuple):
    """Every array that the event core touches."""

    cfg: Array
    first: Array  # first server of each kind
    service: Array  # [class, units] picoseconds
    die_carriers: Array  # of dies, then of the copy engines of each carrier
    die_places: Array  # of dies and copy engines: equal where the nearest class of links is enough
    stack_carriers: Array  # of stacks, then of the scratch memories of dies
    channel_lines: Array  # lines of a granule that each channel of a stack has
    ports: Array  # [GPU, peer]: server of the link that the way to a peer begins with
    port_carriers: Array  # [GPU, peer]: carrier of that link's port
    arrivals: Array  # [GPU, peer]: carrier of the peer where the way to it ends
    next_gpus: Array  # [GPU, peer]: where the link leads
    gpu_ways: Array  # [GPU, peer]: picoseconds from port to port
    ways: Array  # [carrier, carrier]: picoseconds one way
    routes: Array  # [address bit, carrier, carrier]: link to take
    link_ends: Array  # carrier that a link leads to
    link_classes: Array  # service class of a link
    link_ps: Array  # one way over it
    # Program
    operations: Array
    uses: Array
    expressions: Array
    terms: Array
    nodes: Array
    tables: Array
    scratch: Array  # values of expression nodes
    tile_infos: Array
    templates: Array
    streams: Array  # of templates that have several
    semaphore_starts: Array
    buffers: Array
    extents: Array  # what devices hold of buffers
    counter_blocks: Array  # granule of each counter within a device
    counter_bases: Array  # first element of each counter array
    launches: Array
    parts: Array
    orders: Array  # launches of each queue, in order: [queue, launch]
    order_lengths: Array
    coordinates: Array  # [device, axis]
    # Events
    gpus: Array
    events: Array
    heads: Array
    heap: Array
    requests: Array
    messages: Array
    # Streams
    groups: Array
    loops: Array
    variables: Array
    tiles: Array
    shared_tiles: Array
    semaphores: Array
    observed: Array  # streams
    controls: Array
    cus: Array
    counters: Array
    counter_waiters: Array
    # Servers
    free: Array
    work: Array  # [launch, gpu, server]
    counts: Array  # [launch, gpu, counter]
    server_kinds: Array
    bins: Array  # [gpu, server kind, bin]: work that begins in it
    l2: Array
    l2_lines: Array
    mall: Array
    mall_lines: Array
    buses: Array  # of stacks
    written_back: Array  # when the latest write-back of each L2 is performed
    tlb: Array  # [gpu, die, entry]: number of the page
    turning: Array  # [gpu, stack, set]: blocks that turn with the GPU, where one GPU is run for all
    turners: Array  # [gpu, stack, set, VICTIMS]: these blocks
    turned: Array  # [gpu, stack, set, VICTIMS]: whether their last use was one that turns
    victims: Array  # [gpu, stack, set, VICTIMS]: last blocks that had to leave such a set
    # Results
    starts: Array  # [launch, device of the node]
    ends: Array
    stats: Array
    watches: Array  # [launch, watched instruction]: what it has seen
    engine_counts: Array  # [launch, device, ENGINE_COUNTS]
    log: Array
    logged: Array  # [device]: whether it is logged


_I4: Final = np.dtype(np.int32)
_U1: Final = np.dtype(np.uint8)
_U4: Final = np.dtype(np.uint32)
_I8: Final = np.dtype(np.int64)

# The element type of every field, in the order of ``State``.
FIELDS: Final[dict[str, np.dtype[Any]]] = {
    "cfg": _I8,
    "first": _I8,
    "service": _I8,
    "die_carriers": _I4,
    "die_places": _I4,
    "stack_carriers": _I4,
    "channel_lines": _I8,
    "ports": _I4,
    "port_carriers": _I4,
    "arrivals": _I4,
    "next_gpus": _I4,
    "gpu_ways": _I8,
    "ways": _I4,
    "routes": _I4,
    "link_ends": _I4,
    "link_classes": _I4,
    "link_ps": _I4,
    "operations": OPERATION,
    "uses": USE,
    "expressions": EXPRESSION,
    "terms": TERM,
    "nodes": NODE,
    "tables": _I8,
    "scratch": _I8,
    "tile_infos": TILE_INFO,
    "templates": TEMPLATE,
    "streams": STREAM,
    "semaphore_starts": _I4,
    "buffers": BUFFER,
    "extents": _I4,
    "counter_blocks": _I8,
    "counter_bases": _I8,
    "launches": LAUNCH_INFO,
    "parts": PART_INFO,
    "orders": _I4,
    "order_lengths": _I4,
    "coordinates": _I8,
    "gpus": GPU_STATE,
    "events": EVENT,
    "heads": _I4,
    "heap": _I4,
    "requests": REQUEST,
    "messages": REQUEST,
    "groups": GROUP,
    "loops": LOOP_STATE,
    "variables": _I8,
    "tiles": TILE_STATE,
    "shared_tiles": SHARED_TILE,
    "semaphores": SEMAPHORE,
    "observed": OBSERVED_STREAM,
    "controls": CONTROL,
    "cus": CU_STATE,
    "counters": _I8,
    "counter_waiters": _I4,
    "free": _I8,
    "work": _I8,
    "counts": _I8,
    "server_kinds": _U1,
    "bins": _I8,
    "l2": _U4,
    "l2_lines": L2_LINE,
    "mall": _U4,
    "mall_lines": MALL_LINE,
    "buses": BUS,
    "written_back": _I8,
    "tlb": _I4,
    "turning": _U1,
    "turners": _I4,
    "turned": _U1,
    "victims": _I4,
    "starts": _I8,
    "ends": _I8,
    "stats": _I8,
    "watches": _I8,
    "engine_counts": _I8,
    "log": LOG_ROW,
    "logged": _U1,
}
