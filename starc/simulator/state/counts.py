"""What is counted: bytes by launch and GPU, work over time, and events of the core."""

from __future__ import annotations

from typing import Final

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
