"""Buffers as the event core reads them: grids of blocks, and what devices hold of them."""

from __future__ import annotations

from collections.abc import Sequence

from starc.backend.program import BufferInfo, BufferMemory, LayoutKind
from starc.simulator.errors import DecodeError
from starc.simulator.program.rows import array_of
from starc.simulator.state.arrays import Array
from starc.simulator.state.program_records import BUFFER


def buffer_rows(buffers: Sequence[BufferInfo], extents: list[int]) -> Array:
    """Buffers as the event core reads them; adds to ``extents`` what devices hold of them."""
    return array_of([_buffer(info, extents) for info in buffers], BUFFER)


def _buffer(info: BufferInfo, extents: list[int]) -> tuple[int, ...]:
    shape = (1,) * (4 - len(info.shape)) + info.shape
    if info.layout is LayoutKind.ROW_MAJOR:
        block = (1, 1, 1, shape[3])
    else:
        block = (1,) * (4 - len(info.block)) + info.block
    if block[0] != 1:
        raise DecodeError(f"buffer {info.name}: a block spans more than three dimensions")
    dims = shape
    fold, inner, rows, length = 0, shape[1], block[2], shape[2]
    if block[1] > 1:
        if block[2] != shape[2]:
            raise DecodeError(f"buffer {info.name}: a block covers a part of two dimensions")
        # Both dimensions together are the rows of one matrix per index of dimension 0.
        fold, inner = shape[2], shape[0]
        rows, length = block[1] * block[2], shape[1] * shape[2]
    return (
        info.address,
        *dims,
        fold,
        inner,
        rows,
        block[3],
        -(-length // rows),
        -(-shape[3] // block[3]),
        info.dtype.bytes,
        *_held(info, fold, extents),
        int(info.memory == BufferMemory.SCRATCH),
    )


def _held(info: BufferInfo, fold: int, extents: list[int]) -> tuple[int, int, int, int]:
    """Where ``extents`` has what the devices hold of a buffer: first entry of the extents per
    device, of the counts per device and row, and the dimensions of rows and counts."""
    if info.extents is None:
        return -1, -1, 0, 0
    missing = 4 - len(info.shape)
    shape = (1,) * missing + info.shape
    shapes = [(1,) * missing + held for held in info.extents.shapes]
    first = len(extents)
    extents.extend(extent for held in shapes for extent in held)
    rotation = info.extents.rotation
    if rotation is not None:
        by, turned = missing + rotation.by, missing + rotation.dim
        counts = [rotation.counts(device) for device in range(len(shapes))]
        if fold and (by != 1 or turned == 0):
            raise DecodeError(f"buffer {info.name}: blocks over rows that differ in what they hold")
    elif fold and any(held[2] < fold for held in shapes):
        # The rows of a block that a device holds do not follow each other.
        by, turned = 1, 2
        counts = [(held[2],) * held[1] for held in shapes]
    else:
        return first, -1, 0, 0
    place = len(extents)
    for rows in counts:
        extents.extend((*rows, *(0,) * (shape[by] - len(rows))))
    return first, place, by, turned
