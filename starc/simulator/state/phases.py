"""Kinds of requests, and the phases in which they have events."""

from __future__ import annotations

# Kinds of requests.
LOAD = 0
LOAD_UNCACHED = 1
STORE = 2
PUT = 3
SIGNAL = 4
WRITE_BACK = 5
GET = 6
GET_CACHED = 7  # through the L2 of the die that reads
LOAD_STREAMED = 8  # takes what is in the L2 and leaves nothing there
PUT_ADDED = 9  # to what is there, at its memory slice

# Phases of a request, and what a message carries.
SLICE_READ = 0
ON_LINK = 1
AT_PORT = 2
AT_CU = 3
AT_L2 = 4
SLICE_WRITE = 5
AT_XGMI = 6
ACKNOWLEDGED = 7
WAITING = 8
MESSAGE_WRITE = 9
MESSAGE_READ = 10
MESSAGE_DATA = 11
MESSAGE_ACKNOWLEDGE = 12
MESSAGE_FORWARD = 13  # for another GPU, by way of this one
RAISED = 14  # a semaphore behind a tile, for which the request stands

CLOSED = -2  # no request can wait for this one any more
LOW = 64  # a pool with fewer free entries grows before the next event
SIGNAL_BYTES = 64
