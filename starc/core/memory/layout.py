"""How the elements of a buffer lie in memory, and which bytes a tile of it occupies.

A layout is row-major, or blocked: the buffer is a row-major grid of equal blocks, each block is
row-major inside, and edge blocks are padded to full size. Blocks of one interleave granule
(4 KiB) make a tile of a matrix a few whole granules instead of many short rows.

    row-major [4, 4]     blocked [2, 2]
     0  1  2  3           0  1  4  5
     4  5  6  7           2  3  6  7
     8  9 10 11           8  9 12 13
    12 13 14 15          10 11 14 15
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

GRANULE: Final = 4096
LINE_BYTES: Final = 128
BLOCKED_ROWS: Final = 32
"""Rows of a block of an activation of that many rows or more."""
BLOCK_COLUMNS: Final = 64
"""Columns of a block of bf16: a cache line."""
MAX_DIMS: Final = 4

LayoutKind = Literal["row_major", "blocked"]


@dataclass(frozen=True)
class Layout:
    """A bijection from the elements of ``shape`` to offsets in ``0 .. padded_elements``.

    ``block`` has the rank of ``shape`` for a blocked layout and is empty for a row-major one.
    Raises ``ValueError`` when rank, extents or block do not fit.
    """

    kind: LayoutKind
    shape: tuple[int, ...]
    block: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < len(self.shape) <= MAX_DIMS:
            raise ValueError(f"a buffer has 1 to {MAX_DIMS} dimensions, got {len(self.shape)}")
        if any(extent < 1 for extent in self.shape):
            raise ValueError(f"extents must be positive, got {list(self.shape)}")
        if self.kind == "row_major":
            if self.block:
                raise ValueError("a row-major layout has no block")
        elif len(self.block) != len(self.shape) or any(extent < 1 for extent in self.block):
            raise ValueError(f"block {list(self.block)} does not fit shape {list(self.shape)}")

    @property
    def grid(self) -> tuple[int, ...]:
        """Blocks per dimension (the shape itself when row-major)."""
        block = self.block or (1,) * len(self.shape)
        return tuple(-(-extent // size) for extent, size in zip(self.shape, block, strict=True))

    @property
    def padded_elements(self) -> int:
        """Elements of memory that the buffer takes, padding of edge blocks included."""
        return prod(self.grid) * prod(self.block)

    def bytes(self, element_bytes: int) -> int:
        """Bytes of memory that the buffer takes."""
        return self.padded_elements * element_bytes

    def offset(self, index: Sequence[int]) -> int:
        """Element offset of one element."""
        return int(self.offsets([np.array([i]) for i in index])[0])

    def offsets(self, indices: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
        """Element offsets of the elements whose coordinates per dimension are ``indices``
        (arrays that broadcast against each other)."""
        if self.kind == "row_major":
            total = np.int64(0)
            for extent, index in zip(self.shape, indices, strict=True):
                total = total * extent + index
            return np.asarray(total, dtype=np.int64)
        block_index, inner = np.int64(0), np.int64(0)
        for count, size, index in zip(self.grid, self.block, indices, strict=True):
            block_index = block_index * count + index // size
            inner = inner * size + index % size
        return np.asarray(block_index * prod(self.block) + inner, dtype=np.int64)


def row_major(shape: Sequence[int]) -> Layout:
    """The row-major layout of ``shape``."""
    return Layout("row_major", tuple(shape))


def blocked(shape: Sequence[int], block: Sequence[int]) -> Layout:
    """A blocked layout; ``block`` gives the trailing dimensions, leading ones get 1."""
    leading = (1,) * (len(shape) - len(block))
    return Layout("blocked", tuple(shape), leading + tuple(block))


def matrix_layout(
    shape: Sequence[int],
    element_bytes: int,
    columns: int = BLOCK_COLUMNS,
    granule: int = GRANULE,
    *,
    rows: int | None = None,
    whole_rows: bool = False,
) -> Layout:
    """The layout of a weight: blocks of at most one granule over the last two dimensions.

    A block is ``columns`` wide (64 for bf16: 32 x 64) and at most ``rows`` high: where a GEMM takes
    fewer rows in a step, the blocks of a step follow each other in memory. A dimension with a power
    of two of at least 16 in it is cut by that, so that no memory is lost to padding; others are
    covered. With ``whole_rows`` a row that is narrower than a block is all of the block's, instead
    of being padded: tiles of whole rows are one run then.

    >>> matrix_layout((8192, 56), 2).block, matrix_layout((8192, 56), 2, whole_rows=True).block
    ((32, 64), (32, 56))
    """
    if len(shape) < 2:
        return row_major(shape)
    if whole_rows and shape[-1] < min(columns, _block_extent(shape[-1])):
        most = 1 << (granule // (shape[-1] * element_bytes)).bit_length() - 1
        rows = most if rows is None else min(rows, most)
        return blocked(shape, (min(rows, _block_extent(shape[-2])), shape[-1]))
    columns = min(columns, _block_extent(shape[-1]))
    most = max(1, granule // (columns * element_bytes))
    rows = most if rows is None else min(rows, most)
    return blocked(shape, (min(rows, _block_extent(shape[-2])), columns))


def _block_extent(extent: int) -> int:
    divisor = extent & -extent
    return divisor if divisor >= 16 else 1 << (extent - 1).bit_length()


def cache_layout(shape: Sequence[int], element_bytes: int, granule: int = GRANULE) -> Layout:
    """The layout of a KV cache [batch, kv_head, position, d]: blocks of whole tokens that fill a
    granule (16 tokens x 128 in bf16), row-major where the granule is not whole tokens."""
    token = shape[-1] * element_bytes
    if token > granule or granule % token:
        return row_major(shape)
    return blocked(shape, (min(granule // token, _block_extent(shape[-2])), shape[-1]))


def activation_layout(
    shape: Sequence[int], element_bytes: int, columns: int = BLOCK_COLUMNS, granule: int = GRANULE
) -> Layout:
    """The layout of an activation [batch, query, feature] that a GEMM reads: blocks of
    32 x 64 in bf16, of all rows x 64 where there are fewer than 32, so that the tile of a step is
    one run (``columns`` is narrower where a GEMM steps through it in narrower tiles).

    The rows of a block are query positions where a sequence fills it, [1, 32, 64], else whole
    sequences, [32, 1, 64] in decode. Row-major where sequences do not fill a block evenly.
    """
    if len(shape) != 3 or shape[0] * shape[1] == 1:
        return row_major(shape)
    if shape[0] * shape[1] < BLOCKED_ROWS:
        return blocked(shape, (shape[0], shape[1], min(columns, _block_extent(shape[2]))))
    batch, query, _ = shape
    matrix = matrix_layout((batch * query, shape[2]), element_bytes, columns, granule)
    rows, width = matrix.block
    if query >= rows:
        return blocked(shape, (1, rows, width))
    if rows % query == 0 and batch >= rows // query:
        return blocked(shape, (rows // query, query, width))
    return row_major(shape)


def row_layout(shape: Sequence[int], element_bytes: int, rows: int, unit: int) -> Layout:
    """Rows of which each ``rows`` take a multiple of ``unit`` bytes: one block a row, padded.
    Row-major where they do so anyway.

    >>> row_layout((8, 1, 2048), 2, 1, 16384).block
    (1, 1, 8192)
    """
    row = shape[-1] * element_bytes
    pitch = unit // gcd(unit, rows)
    if row % pitch == 0 or pitch % element_bytes:
        return row_major(shape)
    return blocked(shape, (-(-row // pitch) * pitch // element_bytes,))


def run_arrays(
    layout: Layout,
    starts: Sequence[int],
    extents: Sequence[int],
    element_bytes: int,
    granule: int = GRANULE,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Byte offsets and sizes of the pieces of memory that a tile touches, in address order.

    The tile ``starts .. starts + extents`` is clipped to the buffer. Adjacent runs are coalesced
    and no piece crosses a granule, so that each is one request to one memory stack.
    """
    low = [max(0, start) for start in starts]
    high = [
        min(extent, start + size)
        for extent, start, size in zip(layout.shape, starts, extents, strict=True)
    ]
    empty = np.zeros(0, dtype=np.int64)
    if any(a >= b for a, b in zip(low, high, strict=True)):
        return empty, empty
    # The innermost dimension gives contiguous segments: between block edges when blocked.
    last = len(layout.shape) - 1
    width = layout.block[last] if layout.block else layout.shape[last]
    cuts = np.arange(low[last] // width * width, high[last], width, dtype=np.int64)
    segment_low = np.maximum(cuts, low[last])
    segment_size = np.minimum(cuts + width, high[last]) - segment_low
    axes = [np.arange(a, b, dtype=np.int64) for a, b in zip(low[:-1], high[:-1], strict=True)]
    grids = np.meshgrid(*axes, segment_low, indexing="ij")
    first = layout.offsets(grids).ravel() * element_bytes
    size = np.broadcast_to(segment_size, grids[0].shape).ravel() * element_bytes
    return _cut(*_coalesce(first, size), granule)


def _coalesce(
    first: npt.NDArray[np.int64], size: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    order = np.argsort(first, kind="stable")
    first, size = first[order], size[order]
    end = first + size
    heads = np.flatnonzero(np.concatenate(([True], first[1:] != end[:-1])))
    tails = np.concatenate((heads[1:] - 1, [len(first) - 1]))
    return first[heads], end[tails] - first[heads]


def _cut(
    first: npt.NDArray[np.int64], size: npt.NDArray[np.int64], granule: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    end = first + size
    counts = (end - 1) // granule - first // granule + 1
    run = np.repeat(np.arange(len(first)), counts)
    within = np.arange(len(run)) - np.repeat(np.cumsum(counts) - counts, counts)
    edge = (first[run] // granule + within) * granule
    low = np.maximum(edge, first[run])
    return low, np.minimum(edge + granule, end[run]) - low


def runs(
    layout: Layout,
    starts: Sequence[int],
    extents: Sequence[int],
    element_bytes: int,
    granule: int = GRANULE,
) -> list[tuple[int, int]]:
    """``run_arrays`` as a list of (byte offset, bytes)."""
    first, size = run_arrays(layout, starts, extents, element_bytes, granule)
    return list(zip(first.tolist(), size.tolist(), strict=True))
