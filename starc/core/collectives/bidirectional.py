"""Reduce-scatter and all-gather over both directions of a ring: every link carries the same.

What belongs to device d comes to it from both sides. On a ring of n devices the devices at
distance 1 .. (n - 1) // 2 on either side hand their parts on towards d, each adding its own; where
n is even, the farthest device sends one half of its part each way. With n = 4::

    step 0: the farthest sends half A to the right neighbour of d, half B to the left one
    step 1: both neighbours, having added what came, send the whole to d

Of a piece of V/n each link carries V/8 and then V/4: 3V/8 for n = 4, which no schedule can beat.
The all-gather is the same with the arrows reversed.

Where ``mates`` consecutive devices of the group share one carrier, they first exchange what is for
each other's place on the ring, and every place is then a ring of its own over the carriers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from starc.core.collectives.schedules import Action, Schedule, Transfer, owned_chunks


def bidirectional_reduce_scatter(
    devices: Sequence[int], pieces: Sequence[int], mates: int = 1
) -> Schedule:
    """Device i ends with piece i combined, after n // 2 steps over a ring of n carriers and one
    more between mates."""
    builder = _Ring(devices, mates)
    builder.reduce()
    return builder.schedule(pieces)


def bidirectional_all_gather(
    devices: Sequence[int], pieces: Sequence[int], mates: int = 1
) -> Schedule:
    """Every device ends with every piece, of which device i has piece i: the reduce-scatter
    backwards."""
    builder = _Ring(devices, mates)
    builder.gather()
    return builder.schedule(pieces)


def bidirectional_all_reduce(
    devices: Sequence[int], pieces: Sequence[int], mates: int = 1
) -> Schedule:
    """A reduce-scatter and an all-gather."""
    builder = _Ring(devices, mates)
    builder.reduce()
    builder.gather()
    return builder.schedule(pieces)


@dataclass
class _Ring:
    """Transfers over ``len(devices) / mates`` carriers; device ``carrier * mates + place``."""

    devices: Sequence[int]
    mates: int
    transfers: list[Transfer] = field(default_factory=list[Transfer])
    step: int = 0

    def __post_init__(self) -> None:
        if len(self.devices) % self.mates:
            raise ValueError(f"{len(self.devices)} devices are not groups of {self.mates} mates")

    @property
    def carriers(self) -> int:
        return len(self.devices) // self.mates

    @property
    def parts(self) -> int:
        """Chunks of a piece: two where the farthest carrier sends a half each way."""
        return 2 if self.carriers % 2 == 0 else 1

    def schedule(self, pieces: Sequence[int]) -> Schedule:
        chunks, owners = owned_chunks(self.devices, pieces, self.parts)
        return Schedule(tuple(self.devices), chunks, owners, tuple(self.transfers))

    def reduce(self) -> None:
        if self.mates > 1:
            self._exchange_of_mates()
        for hop in range(self._hops, 0, -1):
            self._ring_step(hop, Action.REDUCE)

    def gather(self) -> None:
        for hop in range(1, self._hops + 1):
            self._ring_step(hop, Action.COPY)
        if self.mates > 1:
            self._spread_to_mates()

    @property
    def _hops(self) -> int:
        return self.carriers // 2

    def _rank(self, carrier: int, place: int) -> int:
        return carrier % self.carriers * self.mates + place

    def _send(self, source: int, target: int, owner: int, part: int, action: Action) -> None:
        chunk = owner * self.parts + part
        pair = self.devices[source], self.devices[target]
        self.transfers.append(Transfer(self.step, *pair, chunk, action))

    def _exchange_of_mates(self) -> None:
        for distance in range(1, self.mates):
            for away in range(self.carriers):
                for part in range(self.parts):
                    for source in range(len(self.devices)):
                        carrier, place = divmod(source, self.mates)
                        other = (place - distance) % self.mates
                        owner = self._rank(carrier + away, other)
                        self._send(source, self._rank(carrier, other), owner, part, Action.REDUCE)
        self.step += 1

    def _spread_to_mates(self) -> None:
        for distance in range(1, self.mates):
            for away in range(self.carriers):
                for part in range(self.parts):
                    for source in range(len(self.devices)):
                        carrier, place = divmod(source, self.mates)
                        target = self._rank(carrier, (place - distance) % self.mates)
                        owner = self._rank(carrier + away, place)
                        self._send(source, target, owner, part, Action.COPY)
        self.step += 1

    def _ring_step(self, hop: int, action: Action) -> None:
        """Between the devices at distance ``hop`` from an owner and those one nearer to it, on
        both sides."""
        is_farthest = self.carriers % 2 == 0 and hop == self._hops
        for side in (1, -1):
            for part in range(self.parts):
                if is_farthest and (part == 0) != (side == 1):
                    continue  # each half goes one way
                for device in range(len(self.devices)):
                    # The device sends: towards the owner (reduce) or away from it (copy).
                    carrier, place = divmod(device, self.mates)
                    if action is Action.REDUCE:
                        owner, target = carrier - side * hop, carrier - side
                    else:
                        owner, target = carrier - side * (hop - 1), carrier + side
                    self._send(
                        device, self._rank(target, place), self._rank(owner, place), part, action
                    )
        self.step += 1
