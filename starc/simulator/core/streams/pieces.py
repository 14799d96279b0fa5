"""Which pieces of memory a tile is: runs of bytes in address order, cut at the granule or, where
a piece may be two granules on the two stacks of a carrier, behind the second one.

A buffer is a grid of equal blocks over its last two dimensions (one row is a block where it is
row-major). The tile of a memory operation is a range per dimension; its runs are the parts of
block rows that it covers, and runs that follow each other in memory are one. What the device does
not hold is no part of a tile; where that depends on the row, a tile is taken row by row.
"""

from __future__ import annotations

import numpy as np

from starc.simulator.core.compiled import apart, compiled, inlined
from starc.simulator.state.arrays import Array, Int
from starc.simulator.state.numbers import GRANULE


@inlined
def begin_box(
    group: Array,
    buffer: Array,
    low0: Int,
    high0: Int,
    low1: Int,
    high1: Int,
    low2: Int,
    high2: Int,
    low3: Int,
    high3: Int,
) -> None:
    """Goes to the beginning of a box that lies inside its buffer."""
    fold = np.int64(buffer["fold"])
    if fold > 0:
        # Dimensions 1 and 2 are the rows of one matrix, all of dimension 2 or one index of 1.
        high2 += (high1 - 1) * fold
        low2 += low1 * fold
        low1 = low0
        high1 = high0
        low0 = np.int64(0)
        high0 = np.int64(1)
    rows = np.int64(buffer["rows"])
    columns = np.int64(buffer["columns"])
    group["at0"] = low0
    group["high0"] = high0
    group["at1"] = low1
    group["low1"] = low1
    group["high1"] = high1
    group["low2"] = low2
    group["high2"] = high2
    group["low3"] = low3
    group["high3"] = high3
    group["first2"] = low2 // rows
    group["first3"] = low3 // columns
    group["block2"] = low2 // rows
    group["block3"] = low3 // columns
    group["row"] = low2
    group["segment"] = 0


@compiled
def begin_rows(
    group: Array,
    buffer: Array,
    counts: Int,
    device: Int,
    low0: Int,
    high0: Int,
    low1: Int,
    high1: Int,
    low2: Int,
    high2: Int,
    low3: Int,
    high3: Int,
) -> None:
    """Notes a tile that is taken row by row, because it depends on the row, the index along
    dimension ``by`` of the buffer, how much of dimension ``turned`` the device holds."""
    apart()
    by = np.int64(buffer["by"])
    first, end, size = low0, high0, np.int64(buffer["dim0"])
    if by == 1:
        first, end, size = low1, high1, np.int64(buffer["dim1"])
    elif by == 2:
        first, end, size = low2, high2, np.int64(buffer["dim2"])
    elif by == 3:
        first, end, size = low3, high3, np.int64(buffer["dim3"])
    group["outer"] = first
    group["outer_end"] = end
    group["counts"] = counts + device * size
    group["tile_low0"] = low0
    group["tile_high0"] = high0
    group["tile_low1"] = low1
    group["tile_high1"] = high1
    group["tile_low2"] = low2
    group["tile_high2"] = high2
    group["tile_low3"] = low3
    group["tile_high3"] = high3


@compiled
def next_row(group: Array, buffer: Array, extents: Array) -> bool:
    """Goes on to the next row of which the device holds something; False where there is none."""
    apart()
    by = np.int64(buffer["by"])
    turned = np.int64(buffer["turned"])
    while group["outer"] < group["outer_end"]:
        row = np.int64(group["outer"])
        group["outer"] += 1
        held = np.int64(extents[np.int64(group["counts"]) + row])
        low0 = np.int64(group["tile_low0"])
        high0 = np.int64(group["tile_high0"])
        low1 = np.int64(group["tile_low1"])
        high1 = np.int64(group["tile_high1"])
        low2 = np.int64(group["tile_low2"])
        high2 = np.int64(group["tile_high2"])
        low3 = np.int64(group["tile_low3"])
        high3 = np.int64(group["tile_high3"])
        if by == 0:
            low0 = row
            high0 = row + 1
        elif by == 1:
            low1 = row
            high1 = row + 1
        elif by == 2:
            low2 = row
            high2 = row + 1
        else:
            low3 = row
            high3 = row + 1
        if turned == 0:
            high0 = min(high0, held)
        elif turned == 1:
            high1 = min(high1, held)
        elif turned == 2:
            high2 = min(high2, held)
        else:
            high3 = min(high3, held)
        if low0 < high0 and low1 < high1 and low2 < high2 and low3 < high3:
            begin_box(group, buffer, low0, high0, low1, high1, low2, high2, low3, high3)
            return True
    return False


@inlined
def next_segment(group: Array, buffer: Array, extents: Array) -> None:
    """Finds the next contiguous segment of the tile: ``segment`` and ``segment_left`` of the
    group, 0 bytes when the tile is at its end."""
    if group["at0"] >= group["high0"]:
        group["segment_left"] = 0
        if buffer["counts"] < 0 or not next_row(group, buffer, extents):
            return
    rows = np.int64(buffer["rows"])
    columns = np.int64(buffer["columns"])
    element = np.int64(buffer["element"])
    i2 = np.int64(group["block2"])
    i3 = np.int64(group["block3"])
    row = np.int64(group["row"])
    row_end = min(np.int64(group["high2"]), (i2 + 1) * rows)
    first_column = max(np.int64(group["low3"]), i3 * columns)
    end_column = min(np.int64(group["high3"]), (i3 + 1) * columns)
    outer = np.int64(group["at0"]) * np.int64(buffer["inner"]) + np.int64(group["at1"])
    block = (outer * np.int64(buffer["blocks2"]) + i2) * np.int64(buffer["blocks3"]) + i3
    offset = (block * rows + row - i2 * rows) * columns + first_column - i3 * columns
    group["segment"] = group["base"] + offset * element
    if end_column - first_column == columns:
        group["segment_left"] = (row_end - row) * columns * element
        row = row_end
    else:
        group["segment_left"] = (end_column - first_column) * element
        row += 1
    if row >= row_end:
        i3 += 1
        if i3 * columns >= group["high3"]:
            i3 = np.int64(group["first3"])
            i2 += 1
            if i2 * rows >= group["high2"]:
                i2 = np.int64(group["first2"])
                group["at1"] += 1
                if group["at1"] >= group["high1"]:
                    group["at1"] = group["low1"]
                    group["at0"] += 1
            group["block2"] = i2
        group["block3"] = i3
        row = max(np.int64(group["low2"]), i2 * rows)
    group["row"] = row


@inlined
def next_run(group: Array, buffer: Array, extents: Array) -> None:
    """Goes on to the next segment."""
    group["run"] = group["segment"]
    group["run_left"] = group["segment_left"]
    next_segment(group, buffer, extents)


@inlined
def begin_pieces(
    group: Array,
    buffer: Array,
    extents: Array,
    device: Int,
    low0: Int,
    high0: Int,
    low1: Int,
    high1: Int,
    low2: Int,
    high2: Int,
    low3: Int,
    high3: Int,
) -> bool:
    """Sets a tile up, clipped to what the device holds of its buffer; False where nothing of it
    lies inside."""
    low0 = max(low0, 0)
    low1 = max(low1, 0)
    low2 = max(low2, 0)
    low3 = max(low3, 0)
    high0 = min(high0, np.int64(buffer["dim0"]))
    high1 = min(high1, np.int64(buffer["dim1"]))
    high2 = min(high2, np.int64(buffer["dim2"]))
    high3 = min(high3, np.int64(buffer["dim3"]))
    held = np.int64(buffer["held"])
    counts = np.int64(-1)
    if held >= 0:
        held += 4 * device
        high0 = min(high0, np.int64(extents[held]))
        high1 = min(high1, np.int64(extents[held + 1]))
        high2 = min(high2, np.int64(extents[held + 2]))
        high3 = min(high3, np.int64(extents[held + 3]))
        counts = np.int64(buffer["counts"])
    if low0 >= high0 or low1 >= high1 or low2 >= high2 or low3 >= high3:
        group["run_left"] = 0
        group["segment_left"] = 0
        return False
    if counts >= 0:
        begin_rows(
            group, buffer, counts, device, low0, high0, low1, high1, low2, high2, low3, high3
        )
        if not next_row(group, buffer, extents):
            group["run_left"] = 0
            group["segment_left"] = 0
            return False
    else:
        begin_box(group, buffer, low0, high0, low1, high1, low2, high2, low3, high3)
    next_segment(group, buffer, extents)
    next_run(group, buffer, extents)
    return True


@inlined
def take_pair(group: Array, buffer: Array, extents: Array) -> bool:
    """Takes two whole granules off the tile; False where it does not go on with them."""
    address = group["run"]
    left = np.int64(group["run_left"])
    if address & (GRANULE - 1) != 0 or left < GRANULE:
        return False
    if left >= 2 * GRANULE:
        group["run"] = address + 2 * GRANULE
        group["run_left"] = left - 2 * GRANULE
        return True
    # The end of the run and the beginning of the next segment, which follows it in memory.
    more = 2 * GRANULE - left
    if group["segment_left"] < more or group["segment"] != address + left:
        return False
    group["run"] = address + 2 * GRANULE
    group["run_left"] = group["segment_left"] - more
    next_segment(group, buffer, extents)
    return True


@inlined
def next_piece(group: Array, buffer: Array, extents: Array, paired: bool, limit: Int) -> Int:
    """Takes the next piece off the tile: its size; it begins where ``run`` stood before. The tile
    is at its end when ``run_left`` is 0 afterwards. A piece ends at a multiple of ``limit``, the
    granule or less. With ``paired`` it is two granules if it can be."""
    if paired and take_pair(group, buffer, extents):
        if group["run_left"] == 0:
            next_run(group, buffer, extents)
        return np.int64(2 * GRANULE)
    address = group["run"]
    size = min(np.int64(group["run_left"]), limit - (address & (limit - 1)))
    group["run"] = address + size
    group["run_left"] -= size
    while (
        group["run_left"] == 0
        and group["segment_left"] > 0
        and (address + size) & (limit - 1) != 0
        and group["segment"] == address + size
    ):
        left = np.int64(group["segment_left"])
        more = min(left, limit - ((address + size) & (limit - 1)))
        group["run"] = address + size + more
        group["run_left"] = left - more
        size += more
        next_segment(group, buffer, extents)
    if group["run_left"] == 0:
        next_run(group, buffer, extents)
    return size
