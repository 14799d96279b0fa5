"""Records of what the streams of workgroups are doing, and of what is seen of them."""

from __future__ import annotations

import numpy as np

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
