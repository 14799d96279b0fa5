"""Records of what moves in a machine: events, requests, controllers, caches."""

from __future__ import annotations

import numpy as np

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
