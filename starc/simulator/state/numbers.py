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

# The run; what every event reads stands in the first cache line of the host.
CALENDAR: Final = 0  # 0: the binary heap alone
ENTITIES: Final = 1  # stride of events
GROUPS: Final = 2  # workgroup slots of a GPU
POOL: Final = 3  # requests, and messages, of a GPU
OBSERVED: Final = 4  # whether streams are counted by engine, or their instructions logged
LOG: Final = 5  # rows of the log, 0 where nothing is logged

# The machine: how many there are of everything.
GPUS: Final = 6
NODE_GPUS: Final = 7  # GPUs of the node, of which GPUS are simulated: all of them or one
DEVICES: Final = 8  # of a GPU
DIES: Final = 9  # of a GPU
DIES_PER_DEVICE: Final = 10
CUS: Final = 11  # of a die
PLACES: Final = 12  # compute units and copy engines of a GPU
ENGINES: Final = 13  # copy engines of a device
CARRIERS: Final = 14
DIES_PER_CARRIER: Final = 15
STACKS: Final = 16  # of a GPU; higher numbers are the scratch memories of its dies
CHANNELS: Final = 17  # of a stack
SERVERS: Final = 18
CONTROLS: Final = 19
WAVES: Final = 20
SCRATCH: Final = 21
REGISTERS: Final = 22
SWITCHED: Final = 23  # whether GPUs reach each other by a switch

# Where the bytes of devices lie.
DOMAIN_STACKS: Final = 24
DOMAIN_SHIFT: Final = 25
DOMAIN_BLOCKS: Final = 26  # granules of a memory domain
DEVICE_BLOCKS: Final = 27  # granules of a device
DEVICES_PER_DOMAIN: Final = 28
GRANULE_SHIFT: Final = 29  # blocks of 4 KiB of an interleave granule, as a power of two
PLAIN: Final = 30  # granules of 4 KiB over a power of two of stacks
HASHED: Final = 31  # whether granules go to stacks in a hashed order
PIECE: Final = 32  # bytes that a piece has at most, unless it is a pair
STRIPED: Final = 33  # whether pieces may cover a granule on each stack of a carrier

# Caches.
HAS_L2: Final = 34
L2_SETS: Final = 35
L2_SHIFT: Final = 36
L2_MASK: Final = 37  # sets - 1 where that is a mask, else 0
L2_WAYS: Final = 38
MALL_SETS: Final = 39
MALL_SHIFT: Final = 40
MALL_MASK: Final = 41
MALL_WAYS: Final = 42  # 0: no memory-side cache
COHERENT: Final = 43
RETAINS: Final = 44  # whether L2s that are written back keep their lines
WRITE_BACK_PS: Final = 45  # that write-backs of an L2 may lie behind
TLB_ENTRIES: Final = 46  # pages that a die knows; 0: page walks are not modelled
TLB_SHIFT: Final = 47  # blocks of a page, as a power of two
WALK_PS: Final = 48  # of a page that a die does not know

# Latencies, and turns of the buses of stacks.
ISSUE_PS: Final = 49
L2_PS: Final = 50
UP_PS: Final = 51
SLICE_PS: Final = 52
DOWN_PS: Final = 53
FIRST_MISS_PS: Final = 54  # least time between a load and its data where the L2 lacks them
HBM_PS: Final = 55
TURN_PS: Final = 56  # of a stack's bus, from reads to writes and back
WRITE_BATCH: Final = 57  # bytes that a stack writes between two turns
SCRATCH_PS: Final = 58  # of scratch memory, for what others put there
XGMI_PS: Final = 59
STORE_PS: Final = 60
POLL_PS: Final = 61  # of a counter in the nearest stack
SKEW_PS: Final = 62
LOOKAHEAD_PS: Final = 63

# How far servers may lie behind before their senders are held up.
CREDITS: Final = 64  # whether queues of links are bounded
LINK_QUEUE_PS: Final = 65  # how far a carrier link may lie behind before its senders are held up
PORT_QUEUE_PS: Final = 66  # the same of a die's port
XGMI_QUEUE_PS: Final = 67  # the same of a link between GPUs

# The program.
LAUNCHES: Final = 68
COUNTERS: Final = 69  # of a device
SLOTS: Final = 70  # workgroup slots of a CU
WIDTH: Final = 71  # workgroup slots that a workgroup takes: one for each of its streams
TILE_SLOTS: Final = 72
SEMAPHORES: Final = 73  # of a workgroup

CONFIGURATION: Final = 74
