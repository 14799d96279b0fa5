"""Which layout a buffer gets, by what it is for and how kernels read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from starc.core.memory.buffer_kinds import BufferRole
from starc.core.memory.layout import (
    BLOCK_COLUMNS,
    BLOCKED_ROWS,
    LINE_BYTES,
    Layout,
    activation_layout,
    cache_layout,
    matrix_layout,
    row_layout,
    row_major,
)


@dataclass
class TileReads:
    """How GEMMs and exchanges read a buffer: the ``widths`` of the tiles that GEMMs read, of a
    weight also their ``heights``, the steps of K; and the rows that each GPU of an exchange owns,
    ``gpu_rows``, 0 where none owns whole rows."""

    widths: set[int] = field(default_factory=set[int])
    heights: set[int] = field(default_factory=set[int])
    gpu_rows: int = 0

    @property
    def narrowest(self) -> int:
        """The width that all tiles are whole numbers of."""
        return min(self.widths, default=BLOCK_COLUMNS)


def buffer_layout(
    role: BufferRole,
    shape: Sequence[int],
    element_bytes: int,
    reads: TileReads,
    *,
    channels: int,
    row_unit: int,
) -> Layout:
    """The layout of a buffer in a memory of ``channels`` channels a stack. Rows that an exchange
    deals out to GPUs take multiples of ``row_unit`` bytes a GPU.

    >>> buffer_layout(BufferRole.WEIGHT, (4096, 512), 2, TileReads({64}, {64}), channels=1,
    ...               row_unit=16384).block
    (32, 64)
    """
    columns = min(LINE_BYTES // element_bytes, reads.narrowest)
    if role is BufferRole.WEIGHT:
        if not reads.widths:  # a table or a vector: read by rows
            return row_major(shape)
        # Where bytes of an access come from all channels, short rows would take as long each.
        rows, whole = min(reads.heights), channels > 1
        return matrix_layout(shape, element_bytes, columns, rows=rows, whole_rows=whole)
    if role is BufferRole.STATE:
        return cache_layout(shape, element_bytes)
    if reads.widths or prod(shape[:-1]) >= BLOCKED_ROWS:
        return activation_layout(shape, element_bytes, columns)
    if reads.gpu_rows:
        return row_layout(shape, element_bytes, reads.gpu_rows, row_unit)
    return row_major(shape)
