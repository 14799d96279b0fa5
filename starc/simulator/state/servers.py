"""Servers: their kinds, and the classes of how long they take."""

from __future__ import annotations

from typing import Final

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
