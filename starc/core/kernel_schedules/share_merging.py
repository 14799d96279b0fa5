"""How the partial results of workgroups that share a tile are combined.

``owner``: the workgroup of share 0 waits for the others and reads their results, which needs all of
them resident. Or the workgroups of the first shares do, each for some rows of the result: then
their own results go through memory as well, but many read at once. ``kernel``: a second launch
reads all of them, with as many workgroups as fill the compute units. Each reads share after share,
some of them ahead; the fastest estimate is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil, prod
from typing import Final

from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.tiling import slice_rows


class Combine(StrEnum):
    """Who combines the shares of a tile."""

    OWNER = "owner"
    KERNEL = "kernel"


MOST_AHEAD: Final = 32
# What the slots of shares that are read ahead may take of the registers of a compute unit: little,
# for in a launch whose owners combine they are beside the accumulators of the product.
REGISTER_SHARE: Final = 16


@dataclass(frozen=True)
class Merge:
    """``combine`` and the seconds that it adds; ``rows`` of a tile that a workgroup takes (0 where
    one owner takes all) and the ``stages`` of the loop over the shares."""

    combine: Combine | None = None
    seconds: float = 0.0
    rows: int = 0
    stages: int = 0


NO_MERGE: Final = Merge()


def choose_merge(
    *,
    rows: int,
    row_bytes: int,
    tiles: int,
    split: int,
    resident: int,
    kernel_class: str,
    rates: DeviceRates,
    box: tuple[int, int] | None = None,
    combine: Combine | None = None,
) -> Merge:
    """The merge of ``split`` shares of each of ``tiles`` results of ``rows`` rows, where
    ``resident`` workgroups fit a compute unit. ``box`` are extents of the rows, outer and inner, if
    several owners may each take a part of them. ``combine`` asks for one of the ways; owners that
    would not be resident together are not among them."""
    if split == 1:
        return NO_MERGE
    kernel = kernel_merge(
        rows=rows,
        row_bytes=row_bytes,
        tiles=tiles,
        split=split,
        kernel_class=kernel_class,
        rates=rates,
    )
    if combine is Combine.KERNEL or tiles * split > resident * rates.compute_units:
        return kernel
    stages = _stages(rows * row_bytes, rates)
    stream = rates.stream_rate(rates.window_bytes, 1)
    each = max(rows * row_bytes / stream, rates.latency_s / (stages - 1))
    seconds = rows * row_bytes / stream + (split - 1) * each + 3 * rates.latency_s
    merges = [Merge(Combine.OWNER, seconds, 0, stages)]
    if box is not None:
        merges += _owners(box, row_bytes, tiles, split, rates)
    if combine is None:
        merges.append(kernel)
    return min(merges, key=lambda merge: merge.seconds)


def _owners(
    box: tuple[int, int], row_bytes: int, tiles: int, split: int, rates: DeviceRates
) -> list[Merge]:
    """Merges by the workgroups of several shares."""
    rows = taken = prod(box)
    stream = rates.stream_rate(rates.window_bytes, 1)
    merges: list[Merge] = []
    while taken > 1:
        taken = ceil(taken / 2)
        piece = slice_rows(*box, taken)
        if piece.count > split:
            break
        reads = _reads(piece.rows, piece.count, row_bytes, tiles, split, rates)
        seconds = 3 * rates.latency_s + rows * row_bytes / stream + reads
        merges.append(
            Merge(Combine.OWNER, seconds, piece.rows, _stages(piece.rows * row_bytes, rates))
        )
    return merges


def kernel_merge(
    *, rows: int, row_bytes: int, tiles: int, split: int, kernel_class: str, rates: DeviceRates
) -> Merge:
    """The merge by a second launch."""
    taken = rows
    while taken > 1 and tiles * ceil(rows / taken) < rates.compute_units:
        taken = ceil(taken / 2)
    stages = _stages(taken * row_bytes, rates)
    stream = rates.stream_rate(rates.window_bytes, 1)
    reads = _reads(taken, ceil(rows / taken), row_bytes, tiles, split, rates)
    fixed = rates.gap_s + rates.prologue(kernel_class) + 3 * rates.latency_s
    return Merge(Combine.KERNEL, fixed + rows * row_bytes / stream + reads, taken, stages)


def _reads(
    taken: int, pieces: int, row_bytes: int, tiles: int, split: int, rates: DeviceRates
) -> float:
    """Seconds in which the shares are read, ``pieces`` workgroups a tile with ``taken`` rows
    each."""
    stages = _stages(taken * row_bytes, rates)
    busiest = ceil(tiles * pieces / rates.compute_units)
    stream = rates.stream_rate(rates.window_bytes, 1)
    everything = tiles * split * taken * pieces * row_bytes
    return max(
        busiest * split * taken * row_bytes / stream,
        split * rates.latency_s / (stages - 1),
        2 * everything / rates.hbm_rate if everything > rates.l2_bytes * rates.dies else 0.0,
    )


def _stages(share_bytes: int, rates: DeviceRates) -> int:
    room = rates.register_bytes // REGISTER_SHARE // share_bytes
    return max(2, min(MOST_AHEAD, room))
