"""Records of a decoded program."""

from __future__ import annotations

import numpy as np

STREAMED = 2  # how a load passes the L2: what is there is taken, nothing is left

# How an expression is evaluated.
CONSTANT = 0
AFFINE = 1
GENERAL = 2

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
