"""The packed program: kernel templates, launches, buffers and the machine they were built for.

A program is what the compiler hands to the simulator, to the functional execution and to the
disassembler: all three read the same rows. Every device runs the same launches (SPMD); where
devices differ in role, an ``IF`` on coordinates says so. A template is a body of at most
``MAX_RECORDS`` records that every workgroup of a launch part executes with its own coordinates; on
a machine whose compute units have engines of their own, it is one stream of at most
``MAX_STREAM_RECORDS`` records for each engine that has work, and semaphores join them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from starc.core.element_types import ElementType
from starc.core.extents import LogicalExtents

MAX_RECORDS: Final = 64
MAX_STREAM_RECORDS: Final = 256
MAX_DEPTH: Final = 4
MAX_DIMS: Final = 4
VERSION: Final = 5

Rows: TypeAlias = npt.NDArray[np.void]


class Opcode(IntEnum):
    """What a record does. Timing and meaning are those of ``docs/program.md``."""

    LOAD = 1  # tile <- buffer of this device, asynchronous
    STORE = 2  # buffer of this device <- tile
    PUT = 3  # buffer of device `peer` <- tile, past the L2
    GET = 4  # tile <- buffer of device `peer`, past the L2
    SIGNAL = 5  # counter of device `peer` += value, after all earlier puts and stores are performed
    WAIT = 6  # until counter of this device >= value; on a dma stream what is behind it waits
    MATRIX = 7  # dst[m, n] += a[m, k] @ b[k, n] (or b[n, k] transposed)
    VECTOR = 8  # tiles <- function(tiles, parameters)
    DELAY = 9  # the stream sleeps for `work` picoseconds
    LOOP = 10  # for counter[depth] in lower..upper
    END_LOOP = 11
    IF = 12  # body runs when e0 >= 0
    END_IF = 13
    ACQUIRE = 15  # until the semaphore is positive, then it is one less
    RELEASE = 16  # semaphore += 1 when all earlier instructions of the stream are complete, or,
    # with a tile `a`, when its loads have arrived and its stores and puts have read it


class Engine(IntEnum):
    """An engine of a compute unit that executes a stream of its own."""

    CPU = 0  # issues commands, waits for counters
    SCHEDULER = 1  # expands composite commands
    DMA = 2
    GEMM = 3
    MATH = 4


class ExprOp(IntEnum):
    """Node of a quasi-affine expression over 64-bit integers (floor semantics)."""

    CONST = 0  # imm
    VAR = 1  # variable imm
    ADD = 2  # node l + node r
    MUL = 3  # node l * imm
    FLOORDIV = 4  # node l // imm, imm > 0
    MOD = 5  # node l mod imm, imm > 0
    MIN = 6  # min(node l, node r)
    MAX = 7
    TABLE = 8  # tables[imm + node l]


class Var(IntEnum):
    """Variables of an expression."""

    WORKGROUP = 0  # index of the workgroup within its launch part
    COUNTER0 = 1  # logical iteration of the outermost loop around the record
    COUNTER1 = 2
    COUNTER2 = 3
    COUNTER3 = 4
    DEVICE = 5  # row-major rank over the mesh
    AXIS0 = 6  # coordinate on mesh axis 0, 1, ...
    AXIS1 = 7
    AXIS2 = 8
    AXIS3 = 9


class Space(IntEnum):
    """Where a buffer lies: private to its device, or at one address on every device."""

    PRIVATE = 0
    SYMMETRIC = 1


class BufferMemory(IntEnum):
    """The memory of a device that holds a buffer."""

    HBM = 0
    SCRATCH = 1  # at one scratch address on every device: queues that peers write


class Role(IntEnum):
    """What a buffer is for, which decides how a whole model's memory counts it."""

    WEIGHT = 0
    STATE = 1
    ACTIVATION = 2
    COMMUNICATION = 3
    INPUT = 4
    OUTPUT = 5


class LayoutKind(IntEnum):
    """How the elements of a buffer lie in memory: see ``starc.core.memory.layout``."""

    ROW_MAJOR = 0
    BLOCKED = 1


class TileSpace(IntEnum):
    SCRATCH = 0
    REGISTER = 1


# Flags of a record.
FLAG_TRANSPOSE_B: Final = 1  # MATRIX: b is [n, k]
FLAG_ACQUIRE: Final = 2  # LOAD: of a symmetric buffer, read past the L2
FLAG_CACHED: Final = 8  # GET: through the L2 of the die that reads
FLAG_ATTACHED: Final = 16  # SIGNAL: the words of the puts before it carry it
FLAG_ACCUMULATE: Final = 32  # PUT: added to what is there
FLAG_GATHER: Final = 4  # LOAD: row r of the box is row `tile a[r] - e4` of the buffer (see below)

EXPR = np.dtype(
    [("op", "<i4"), ("l", "<i4"), ("r", "<i4"), ("pad", "<i4"), ("imm", "<i8")], align=True
)

# A gathering LOAD fetches rows that the data names, as an embedding does: tile `a` holds an i32
# index for each row of the box (extents n0 x n1, dims 2), `e4` is subtracted, and a row outside
# the buffer is zero in the tile. Timing knows no data: it takes rows e0, e0 + 1, ... instead.

RECORD = np.dtype(
    [
        ("op", "u1"),
        ("fn", "u1"),  # function id of VECTOR (starc.core.vector_functions.table)
        ("dtype", "u1"),  # element type of the memory operand
        ("flags", "u1"),
        ("depth", "u1"),  # loops around the record
        ("dims", "u1"),  # dimensions of the memory operand, or parameters of VECTOR
        ("stage", "<i2"),  # stage in the innermost pipelined loop
        ("dst", "<i4"),  # tiles, index within the template or -1
        ("a", "<i4"),
        ("b", "<i4"),
        ("c", "<i4"),
        ("d", "<i4"),
        ("buffer", "<i4"),  # buffer of a memory operand, counter of SIGNAL and WAIT,
        # semaphore (within the template) of ACQUIRE and RELEASE, or -1
        ("peer", "<i4"),  # expression of the target device, -1 for this device
        ("e0", "<i4"),  # expressions (root node, -1 absent): starts per dimension of a memory
        ("e1", "<i4"),  # operand; lower and upper of LOOP; element and value of SIGNAL and WAIT;
        ("e2", "<i4"),  # parameters of VECTOR; condition of IF
        ("e3", "<i4"),  # MATRIX: e0 first column of dst, e1 first column of a (-1: all of them)
        ("e4", "<i4"),
        ("e5", "<i4"),
        ("e6", "<i4"),
        ("e7", "<i4"),
        ("n0", "<i4"),  # extents per dimension of a memory operand; m, n, k of MATRIX
        ("n1", "<i4"),
        ("n2", "<i4"),
        ("n3", "<i4"),
        ("end", "<i4"),  # LOOP and IF: record of the matching end, within the template
        ("location", "<i4"),
        ("work", "<i8"),  # FLOP of MATRIX, lane-operations of VECTOR, picoseconds of DELAY,
        # workgroups that share a LOAD (0 and 1: none)
    ],
    align=True,
)

TILE = np.dtype(
    [
        ("rows", "<i4"),
        ("cols", "<i4"),
        ("dtype", "<i4"),
        ("slots", "<i4"),  # buffers used in turn: slot = logical iteration of the loop mod slots
        ("bytes", "<i4"),  # of one slot
        ("space", "<i4"),
        ("offset", "<i4"),  # first byte in the scratch of the workgroup, -1 in registers
        ("depth", "<i4"),  # loop depth whose counter picks the slot (1 = outermost), 0 for none
    ],
    align=True,
)

LAUNCH = np.dtype(
    [
        ("layer", "<i4"),
        ("queue", "<i4"),
        ("first_part", "<i4"),
        ("parts", "<i4"),
        ("workgroups", "<i4"),
        ("bands", "<i4"),  # its parts take turns so many times; divides the workgroups of each
        ("kernel_class", "<i4"),  # index into Program.kernel_classes
        ("depends", "<i4"),  # launch of another queue that must have ended, or -1
        ("waits", "<i4"),  # 1 when its workgroups wait for counters
        ("engines", "<i4"),  # 1 when its workgroups are streams of copy engines
        ("gap_ps", "<i8"),  # from the end of the previous launch on the queue to the start
        ("prologue_ps", "<i8"),  # from a workgroup's start to its first record
        ("location", "<i4"),
    ],
    align=True,
)

PART = np.dtype(
    [("template", "<i4"), ("first_workgroup", "<i4"), ("workgroups", "<i4")], align=True
)


@dataclass(frozen=True)
class BufferInfo:
    """A buffer at one device-local address on every device.

    ``shape`` is the physical local shape, ``block`` the block of a blocked layout (same rank,
    ones for outer dimensions, empty when row-major), ``bytes`` the padded size in memory.
    ``type_text`` is the local tensor type with its encoding, by which the checking harness slices
    and reassembles global tensors. ``extents`` says what of the shape each device really holds;
    without it, all. An access reaches no further than they do.
    """

    name: str
    dtype: ElementType
    shape: tuple[int, ...]
    layout: LayoutKind
    block: tuple[int, ...]
    address: int
    bytes: int
    space: Space
    role: Role
    type_text: str
    extents: LogicalExtents | None = None
    memory: BufferMemory = BufferMemory.HBM


@dataclass(frozen=True)
class CounterInfo:
    """An array of monotone counters in symmetric memory, zero at the start of a run."""

    name: str
    count: int
    address: int


@dataclass(frozen=True)
class StreamInfo:
    """What one engine executes of a template: ``first_record`` counts from that of the template."""

    engine: Engine
    first_record: int
    records: int


@dataclass(frozen=True)
class TemplateInfo:
    """A kernel body and what a compute unit must offer to run it.

    A template without ``streams`` is one stream. Otherwise its records are those of its streams
    one after another, in the order of the engines; all of them work on its tiles, and
    ``semaphores`` are the values at which the semaphores that join them start.
    """

    name: str
    first_record: int
    records: int
    first_tile: int
    tiles: int
    waves: int
    scratch_bytes: int
    register_bytes: int
    window_bytes: int  # bytes in flight that its waves and stages allow a workgroup
    piece_bytes: int  # the size at which its accesses are cut: 4096, or more where it is exact
    streams: tuple[StreamInfo, ...] = ()
    semaphores: tuple[int, ...] = ()


@dataclass(frozen=True)
class LayerInfo:
    """A layer kind: its launches are ``first_launch .. first_launch + launches``."""

    name: str
    count: int
    first_launch: int
    launches: int


@dataclass(frozen=True)
class Program:
    """A packed program. ``target`` is the resolved machine (JSON-able), so that a program file can
    be run alone. ``launch_names`` and ``launch_shapes`` describe launches for reports."""

    name: str
    target: dict[str, Any]
    mesh: tuple[tuple[str, int], ...]
    buffers: tuple[BufferInfo, ...]
    counters: tuple[CounterInfo, ...]
    templates: tuple[TemplateInfo, ...]
    layers: tuple[LayerInfo, ...]
    launch_names: tuple[str, ...]
    launch_kinds: tuple[str, ...]  # gemm, attention, norm, elementwise, collective, ...
    launch_attributes: tuple[dict[str, Any], ...]  # m, n, k; axes, size_bytes, algorithm; flops
    kernel_classes: tuple[str, ...]
    locations: tuple[tuple[str, int, int], ...]  # file, line, column
    inputs: tuple[str, ...]  # buffers that the caller fills, in the order of the first layer's
    outputs: tuple[str, ...]  # arguments; buffers that hold results
    records: Rows
    expressions: Rows
    tiles: Rows
    launches: Rows
    parts: Rows
    tables: npt.NDArray[np.int64]
    # What was compiled (model, phase, batch, plan, types), as plain values, for reports.
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
