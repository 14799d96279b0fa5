"""The numbers of a machine and a program that the event core reads: places in the configuration
vector, and what is the same for all.
"""

from __future__ import annotations

from typing import Final

QUEUES: Final = 2
VARIABLES: Final = 16  # stride; a program has ten
LOOPS: Final = 4
NEVER: Final = 1 << 62
GRANULE: Final = 4096  # bytes that a tag of a cache stands for, and that a piece has at most

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
