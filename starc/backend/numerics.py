"""Numbers in tiles and buffers: exact mode keeps float64, typed mode rounds every stored value.

Stored arrays have the storage type of their element type; arithmetic is done in float64 (exact) or
float32 (typed). Memory that nobody has written is poisoned: NaN, or the smallest integer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from starc.core.element_types import ElementType
from starc.core.extents import DeviceExtents

Array: TypeAlias = npt.NDArray[Any]
Mode: TypeAlias = Literal["exact", "typed"]


@dataclass(frozen=True)
class Numerics:
    """The arithmetic of one mode."""

    mode: Mode

    def storage(self, element: ElementType) -> np.dtype[Any]:
        """The type of stored arrays."""
        dtype = element.format.numpy
        return dtype if dtype.kind == "i" or self.mode == "typed" else np.dtype(np.float64)

    def store(self, values: Array, element: ElementType) -> Array:
        """``values`` rounded to what memory of this element type holds; always a new array.

        Float8 has no infinity and saturates, as the machines' conversion does.
        """
        dtype = self.storage(element)
        if dtype == element.format.numpy:
            return element.format.rounded(values)
        return np.array(values, dtype)

    def compute(self, stored: Array) -> Array:
        """Stored values in the type of arithmetic; integers stay."""
        if stored.dtype.kind == "i":
            return stored
        return stored.astype(np.float64 if self.mode == "exact" else np.float32, copy=False)

    def poison(self, shape: Sequence[int], element: ElementType) -> Array:
        """An array of memory that nobody has written."""
        dtype = self.storage(element)
        value = np.iinfo(dtype).min if dtype.kind == "i" else np.nan
        return np.full(tuple(shape), value, dtype)

    def multiply_add(
        self,
        accumulator: Array,
        a: Array,
        b: Array,
        *,
        transposed: bool,
        columns: int | None = None,
        inner: int | None = None,
    ) -> Array:
        """``accumulator + a @ b`` of stored operands, in the type of arithmetic; added from
        ``columns`` on, and of ``a`` the columns from ``inner`` on. Raises ``IndexError`` for a
        window beyond its tile."""
        right = self.compute(b)
        right = right.T if transposed else right
        k, n = right.shape
        left = self.compute(a[:, _window(inner, k, a.shape[1])])
        if columns is None:
            return self.compute(accumulator) + left @ right
        result = np.array(self.compute(accumulator))
        result[:, _window(columns, n, result.shape[1])] += left @ right
        return result


def _window(start: int | None, extent: int, columns: int) -> slice:
    first = 0 if start is None else start
    if not 0 <= first <= columns - extent:
        raise IndexError(f"columns {first}..{first + extent} of a tile of {columns}")
    return slice(first, first + extent)


@dataclass(frozen=True)
class Box:
    """The part of an access that lies inside a buffer: ``memory`` cuts the buffer, ``tile`` the
    box of ``extents``; both empty where nothing does."""

    memory: tuple[slice, ...]
    tile: tuple[slice, ...]
    extents: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        return any(part.start == part.stop for part in self.memory)

    @property
    def whole(self) -> bool:
        return all(
            part.stop - part.start == size
            for part, size in zip(self.tile, self.extents, strict=True)
        )


@dataclass(frozen=True)
class Region:
    """The parts of an access to a box of ``extents`` that the device holds: none, one, or one a
    row where it depends on the row how much is held."""

    extents: tuple[int, ...]
    boxes: tuple[Box, ...]


def clip_held(starts: Sequence[int], extents: Sequence[int], held: DeviceExtents) -> Region:
    """The part of the box ``starts .. starts + extents`` that a device holds."""
    if not held.rows:
        box = clip(starts, extents, held.shape)
        return Region(tuple(extents), () if box.is_empty else (box,))
    boxes: list[Box] = []
    by, first = held.by, starts[held.by]
    for row in range(max(first, 0), min(first + extents[by], len(held.rows))):
        shape = list(held.shape)
        shape[held.dim] = held.rows[row]
        inside = clip(
            [row if dim == by else start for dim, start in enumerate(starts)],
            [1 if dim == by else extent for dim, extent in enumerate(extents)],
            shape,
        )
        if inside.is_empty:
            continue
        tile = list(inside.tile)
        tile[by] = slice(row - first, row - first + 1)
        boxes.append(Box(inside.memory, tuple(tile), tuple(extents)))
    return Region(tuple(extents), tuple(boxes))


def clip(starts: Sequence[int], extents: Sequence[int], shape: Sequence[int]) -> Box:
    """The part of the box ``starts .. starts + extents`` inside a buffer of ``shape``."""
    memory: list[slice] = []
    tile: list[slice] = []
    for start, size, limit in zip(starts, extents, shape, strict=True):
        low = min(max(start, 0), limit)
        high = max(min(start + size, limit), low)
        memory.append(slice(low, high))
        # A box wholly outside has no part: its slice must not count from the end.
        first = min(max(low - start, 0), size)
        tile.append(slice(first, first + high - low))
    return Box(tuple(memory), tuple(tile), tuple(extents))


def read_region(buffer: Array, region: Region, shape: tuple[int, int]) -> Array:
    """The elements of a region as a tile of ``shape``, zeros outside; a copy."""
    if len(region.boxes) == 1 and region.boxes[0].whole:
        return buffer[region.boxes[0].memory].reshape(shape).copy()
    values = np.zeros(region.extents, buffer.dtype)
    for box in region.boxes:
        values[box.tile] = buffer[box.memory]
    return values.reshape(shape)


def write_region(buffer: Array, region: Region, tile: Array) -> None:
    """Writes a tile to a region, dropping what lies outside."""
    whole = tile.reshape(region.extents)
    for box in region.boxes:
        buffer[box.memory] = whole[box.tile]


def held_mask(shape: Sequence[int], held: DeviceExtents) -> npt.NDArray[np.bool_]:
    """Which elements of a buffer of a physical ``shape`` a device holds."""
    mask = np.zeros(tuple(shape), np.bool_)
    for box in clip_held((0,) * len(shape), shape, held).boxes:
        mask[box.memory] = True
    return mask


def gather_rows(
    buffer: Array, held: DeviceExtents, rows: Array, column: int, shape: tuple[int, int]
) -> Array:
    """``buffer[rows, column:column + cols]`` of a matrix, with zeros where the device holds no
    such row or column."""
    values = np.zeros(shape, buffer.dtype)
    inside = (rows >= 0) & (rows < held.shape[0])
    box = clip((column,), shape[1:], held.shape[1:])
    part = buffer[rows[inside]][:, box.memory[0]]
    values[np.flatnonzero(inside)[:, None], np.arange(shape[1])[box.tile[0]][None, :]] = part
    return values
