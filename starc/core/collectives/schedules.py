"""Collective algorithms as explicit transfers: who sends which chunk to whom in which step.

One schedule object serves the cost model, the lowering to instructions, the bounds and the tests.
A group of n devices divides the data into n pieces; piece i belongs to the i-th device of the
group, which holds it after a reduce-scatter and before an all-gather. Several rings with strides
coprime to n share the data: ring r takes the r-th part of every piece and goes from device i to
device i + stride, so that rings of different strides use different links.

In every step of a ring each device sends one chunk to the next (positions are group indices)::

    reduce step t:  i sends the chunk of owner  i - (t + 1) * stride  (mod n)  to  i + stride
    gather step t:  i sends the chunk of owner  i - t * stride        (mod n)  to  i + stride

so that after n - 1 reduce steps device i holds piece i combined, in an order that depends on the
piece alone: all devices get the same bits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from starc.core.collectives.rings import is_ring, ring_behind
from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.mesh import Mesh

Array = npt.NDArray[Any]


class Action(StrEnum):
    """What a target does with what it receives; see ``Transfer``."""

    REDUCE = "reduce"
    COPY = "copy"
    MOVE = "move"


class Order(StrEnum):
    """In which order a device combines contributions; see ``Schedule``."""

    ARRIVAL = "arrival"
    RANK = "rank"


@dataclass(frozen=True)
class Transfer:
    """In ``step``, device ``source`` sends ``chunk`` to ``target``, which combines it with its own
    (``reduce``) or takes it (``copy``), or which puts it somewhere else than where the source has
    it (``move``). All transfers of a step read what was there before it."""

    step: int
    source: int
    target: int
    chunk: int
    action: Action


@dataclass(frozen=True)
class Schedule:
    """The transfers of a collective over ``devices`` (device ids in group order).

    ``chunks`` are element ranges (start, stop) of the whole data; ``owners`` gives for each chunk
    the index in the group of the device it belongs to. A device combines its own contribution with
    the received ones in the order of the transfers (``arrival``), or all of them in the order of
    the group (``rank``). Where a schedule is ``pulled``, targets read what the sources hold instead
    of having it staged.
    """

    devices: tuple[int, ...]
    chunks: tuple[tuple[int, int], ...]
    owners: tuple[int, ...]
    transfers: tuple[Transfer, ...]
    order: Order = Order.ARRIVAL
    pulled: bool = False

    @property
    def steps(self) -> int:
        return max((transfer.step + 1 for transfer in self.transfers), default=0)

    @property
    def elements(self) -> int:
        """Elements of the whole data."""
        return max((stop for _, stop in self.chunks), default=0)

    def chunk_size(self, chunk: int) -> int:
        """Elements of a chunk."""
        start, stop = self.chunks[chunk]
        return stop - start

    def sent(self) -> dict[int, int]:
        """Elements that each device sends."""
        volume = dict.fromkeys(self.devices, 0)
        for transfer in self.transfers:
            volume[transfer.source] += self.chunk_size(transfer.chunk)
        return volume

    def link_volumes(self) -> Counter[tuple[int, int]]:
        """Elements over each directed pair of devices."""
        volume: Counter[tuple[int, int]] = Counter()
        for transfer in self.transfers:
            volume[transfer.source, transfer.target] += self.chunk_size(transfer.chunk)
        return volume

    def class_volumes(self, mesh: Mesh) -> dict[str, int]:
        """Elements over each class of links of a mesh, each transfer counted once."""
        volume: dict[str, int] = {}
        for (source, target), elements in self.link_volumes().items():
            link_class = mesh.pair_link_class(source, target)
            if link_class is not None:
                volume[link_class] = volume.get(link_class, 0) + elements
        return volume

    def run(
        self, data: Sequence[Array], combine: Callable[[Array, Array], Array] = np.add
    ) -> list[Array]:
        """What every device holds at the end, for 1-D arrays of the whole data; the meaning of a
        schedule that moves nothing to another place, for tests and interpreters.
        ``combine(own, received)`` reduces."""
        index = {device: position for position, device in enumerate(self.devices)}
        # By device and chunk: the parts that are still to be combined, by group index.
        held = [
            [{position: array[start:stop].copy()} for start, stop in self.chunks]
            for position, array in enumerate(data)
        ]

        def combined(parts: dict[int, Array]) -> Array:
            keys = sorted(parts) if self.order is Order.RANK else list(parts)
            result = parts[keys[0]]
            for key in keys[1:]:
                result = combine(result, parts[key])
            return result

        for step in range(self.steps):
            current = [transfer for transfer in self.transfers if transfer.step == step]
            sent = [combined(held[index[t.source]][t.chunk]) for t in current]
            for transfer, received in zip(current, sent, strict=True):
                own = held[index[transfer.target]]
                if transfer.action is Action.REDUCE:
                    own[transfer.chunk][index[transfer.source]] = received
                else:
                    own[transfer.chunk] = {index[transfer.source]: received}
        whole = [array.copy() for array in data]
        for position, chunks in enumerate(held):
            for (start, stop), parts in zip(self.chunks, chunks, strict=True):
                whole[position][start:stop] = combined(parts)
        return whole


# ---------------------------------------------------------------------------------------------
# Rings
# ---------------------------------------------------------------------------------------------


def ring_strides(size: int) -> tuple[int, ...]:
    """The strides of the edge-disjoint rings of a fully connected group: those coprime to its
    size. Each directed pair of devices lies on at most one of them."""
    return tuple(stride for stride in range(1, max(size, 2)) if math.gcd(stride, size) == 1)


def ring_next(index: int, size: int, stride: int = 1) -> int:
    """The group index of the device that ``index`` sends to."""
    return ring_behind(index, -1, size, stride)


def ring_reduce_owner(index: int, step: int, size: int, stride: int = 1) -> int:
    """Whose piece ``index`` sends in a reduce step."""
    return ring_behind(index, step + 1, size, stride)


def ring_gather_owner(index: int, step: int, size: int, stride: int = 1) -> int:
    """Whose piece ``index`` sends in a gather step."""
    return ring_behind(index, step, size, stride)


def even_pieces(elements: int, size: int) -> tuple[int, ...]:
    """``elements`` in ``size`` pieces; the first ones have one more where it does not divide."""
    each, more = divmod(elements, size)
    return tuple(each + (index < more) for index in range(size))


def owned_chunks(
    devices: Sequence[int], pieces: Sequence[int], parts: int
) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    """The element ranges and owners of the chunks where the piece of every device is divided into
    ``parts``: chunk ``owner * parts + part``. ``pieces`` are sizes in elements, one a device."""
    size = len(devices)
    if len(pieces) != size:
        raise ValueError(f"{size} devices need {size} pieces, got {len(pieces)}")
    chunks: list[tuple[int, int]] = []
    start = 0
    for piece in pieces:
        for part in even_pieces(piece, parts):
            chunks.append((start, start + part))
            start += part
    return tuple(chunks), tuple(owner for owner in range(size) for _ in range(parts))


def ring_reduce_scatter(
    devices: Sequence[int], pieces: Sequence[int], strides: Sequence[int] = (1,)
) -> Schedule:
    """n - 1 steps; device i ends with piece i combined. ``pieces`` are sizes in elements, one a
    device; they may differ and be 0."""
    return _ring(devices, pieces, strides, reduces=True, gathers=False)


def ring_all_gather(
    devices: Sequence[int], pieces: Sequence[int], strides: Sequence[int] = (1,)
) -> Schedule:
    """n - 1 steps; every device ends with every piece, of which device i has piece i."""
    return _ring(devices, pieces, strides, reduces=False, gathers=True)


def ring_all_reduce(
    devices: Sequence[int], pieces: Sequence[int], strides: Sequence[int] = (1,)
) -> Schedule:
    """A reduce-scatter and an all-gather: 2 (n - 1) steps."""
    return _ring(devices, pieces, strides, reduces=True, gathers=True)


def _ring(
    devices: Sequence[int],
    pieces: Sequence[int],
    strides: Sequence[int],
    *,
    reduces: bool,
    gathers: bool,
) -> Schedule:
    size, rings = len(devices), len(strides)
    chunks, owners = owned_chunks(devices, pieces, rings)
    if not all(is_ring(stride, size) for stride in strides):
        raise ValueError(f"strides {tuple(strides)} must be coprime to the group's size {size}")
    transfers: list[Transfer] = []
    first = 0
    phases: list[tuple[Action, Callable[[int, int, int, int], int]]] = []
    if reduces:
        phases.append((Action.REDUCE, ring_reduce_owner))
    if gathers:
        phases.append((Action.COPY, ring_gather_owner))
    for action, owner in phases:
        for step in range(size - 1):
            for ring, stride in enumerate(strides):
                for index in range(size):
                    transfers.append(
                        Transfer(
                            first + step,
                            devices[index],
                            devices[ring_next(index, size, stride)],
                            owner(index, step, size, stride) * rings + ring,
                            action,
                        )
                    )
        first += size - 1
    return Schedule(tuple(devices), chunks, owners, tuple(transfers))


# ---------------------------------------------------------------------------------------------
# Alpha-beta costs and bounds
# ---------------------------------------------------------------------------------------------


def ring_time(
    operation: str, size: int, payload: int, latency: float, rate: float, rings: int = 1
) -> float:
    """Seconds of a ring collective of ``payload`` bytes (the whole data) over ``size`` devices:
    (n - 1) latency + (n - 1)/n * payload / (rings * rate) a phase. ``latency`` is seconds a step,
    ``rate`` bytes per second of one link in one direction."""
    phases = CollectiveKind(operation).rounds
    return phases * ((size - 1) * latency + (size - 1) / size * payload / (rings * rate))


def bandwidth_bound(operation: str, size: int, payload: int, rate: float, links: int = 1) -> float:
    """Seconds below which no algorithm can be: every device must send (n - 1)/n of the payload a
    phase over its ``links`` links."""
    return CollectiveKind(operation).rounds * (size - 1) / size * payload / (links * rate)


def latency_bound(size: int, latency: float) -> float:
    """Seconds below which no algorithm can be that sends to one device a step: log2(n) steps."""
    return math.ceil(math.log2(size)) * latency if size > 1 else 0.0
