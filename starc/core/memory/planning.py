"""Where buffers lie, and whether a model fits.

Buffers that live to the end come first, one behind the other. The others are packed: largest
first, each at the lowest address where no buffer that is live at the same time lies. Bases are
multiples of the interleave granule, and which memory stack a buffer starts on depends on a hash of
its name: without that, all buffers of a page-aligned allocator would start on stack 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, lcm
from zlib import crc32

from starc.core.memory.layout import GRANULE


@dataclass
class Lifetime:
    """The steps in which a buffer is live, ``first`` and ``last`` included; ``last`` None is the
    end of time."""

    first: int = 0
    last: int | None = None

    def reach(self, step: int) -> None:
        """Extends it to a step."""
        if self.last is not None:
            self.last = max(self.last, step)

    def begin(self, step: int) -> None:
        """Lets it begin with a step, if it did not before."""
        self.first = min(self.first, step)

    def pin(self) -> None:
        """From the first step to the end."""
        self.first, self.last = 0, None


@dataclass(frozen=True)
class Request:
    """A buffer of ``bytes`` that is live from step ``first`` to step ``last``, both included;
    ``last`` None is the end of time."""

    name: str
    bytes: int
    first: int = 0
    last: int | None = None

    def overlaps(self, other: Request) -> bool:
        """Whether both are live at some step."""
        return (other.last is None or self.first <= other.last) and (
            self.last is None or other.first <= self.last
        )


@dataclass(frozen=True)
class AddressPlan:
    """Addresses by name; ``persistent_bytes`` is where the packed part begins, ``peak_bytes`` the
    end of the highest buffer."""

    addresses: Mapping[str, int]
    persistent_bytes: int
    peak_bytes: int


def plan_addresses(
    requests: Iterable[Request], *, stacks: int = 1, granule: int = GRANULE
) -> AddressPlan:
    """Addresses for ``requests`` such that no two live buffers overlap. Deterministic.

    ``stacks`` memory stacks take granules in turn; buffer bases are spread over them.
    Raises ``ValueError`` for a name that occurs twice.
    """
    everything = list(requests)
    if len({request.name for request in everything}) != len(everything):
        raise ValueError("two buffers have the same name")
    addresses: dict[str, int] = {}
    end = 0
    for request in everything:
        if request.last is None and request.first == 0:
            addresses[request.name] = address = _aligned(end, request.name, stacks, granule)
            end = address + request.bytes
    persistent = -(-end // granule) * granule
    packed = [request for request in everything if request.name not in addresses]
    packed.sort(key=lambda request: (-request.bytes, request.first, request.name))
    placed: list[tuple[int, int, Request]] = []  # address, end, request
    for request in packed:
        address = _aligned(persistent, request.name, stacks, granule)
        for low, high, _ in sorted(
            (low, high, other.name) for low, high, other in placed if other.overlaps(request)
        ):
            if address + request.bytes <= low:
                break
            address = max(address, _aligned(high, request.name, stacks, granule))
        addresses[request.name] = address
        placed.append((address, address + request.bytes, request))
    peak = max([persistent, *(high for _, high, _ in placed)])
    return AddressPlan(addresses, persistent, peak)


def plan_queues(
    sizes: Mapping[str, int], first: int, available: int, alignment: int
) -> tuple[dict[str, int], int]:
    """Addresses of queues in scratch memory, one behind the other from ``first`` on, and the bytes
    that they take of the ``available`` ones. Peers write them at any time, so all live to the end.
    Raises ``OverflowError`` with the queues and their sizes where they need more."""
    addresses: dict[str, int] = {}
    end = first
    for name, size in sizes.items():
        addresses[name] = end
        end += -(-size // alignment) * alignment
    if end - first > available:
        largest = sorted(sizes, key=lambda name: (-sizes[name], name))
        names = ", ".join(f"@{name} {sizes[name]:,} B" for name in largest)
        raise OverflowError(
            f"queues take {end - first:,} bytes of scratch memory, of which {available:,} are for "
            f"queues: {names}"
        )
    return addresses, end - first


def rotation_unit(granule: int, stacks: int, carriers: int) -> int:
    """Bytes by which an address can move and stay on its stack, in its place in a 4 KiB block, and
    on its way around the ring of ``carriers``."""
    unit = lcm(GRANULE, granule * max(1, stacks))
    # Ways of the same length are taken by the bit of the address above the stacks.
    return 2 * unit if carriers > 2 else unit


def _aligned(address: int, name: str, stacks: int, granule: int) -> int:
    """The first granule at or after ``address`` on the stack that the name hashes to."""
    index = -(-address // granule)
    return (index + (crc32(name.encode()) - index) % stacks) * granule


@dataclass(frozen=True)
class Holding:
    """A parameter or state on one device: its bytes (without padding), bytes in memory, and how
    many layers have their own copy."""

    name: str
    logical_bytes: int
    buffer_bytes: int
    copies: int


@dataclass(frozen=True)
class PlacedBuffer:
    """A buffer of any role at its address on one device. ``role`` is that of ``kernel.buffer``."""

    holding: Holding
    role: str
    address: int


@dataclass(frozen=True)
class MemoryPlan:
    """The memory of the fullest partition for the whole model, in bytes.

    ``peak_bytes`` is the sum of weights and KV caches of all layers, the activations of the layer
    that needs most, communication buffers and the padding of blocked layouts. ``kv_replication``
    is how many devices hold the same part of the cache; ``kv_tokens`` how many tokens of cache fit
    a partition beside everything else; ``max_batch`` the largest batch of the whole machine that
    fits at this context, as caches, activations and communication grow with the batch.
    """

    capacity_bytes: int
    usable_bytes: int
    weights_bytes: int
    kv_bytes: int
    activations_bytes: int
    communication_bytes: int
    padding_bytes: int
    kv_replication: float
    kv_tokens: int
    max_batch: int

    @property
    def peak_bytes(self) -> int:
        return (
            self.weights_bytes
            + self.kv_bytes
            + self.activations_bytes
            + self.communication_bytes
            + self.padding_bytes
        )

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.usable_bytes

    @property
    def excess_bytes(self) -> int:
        """By how much the model does not fit, 0 if it does."""
        return max(0, self.peak_bytes - self.usable_bytes)


def account_buffers(
    buffers: Sequence[PlacedBuffer],
    *,
    capacity_bytes: int,
    utilization: float,
    local_batch: int,
    batch_groups: int,
    context: int,
    kv_replication: float,
) -> MemoryPlan:
    """The memory plan of a partition from all buffers of a program (see ``account``). Activations,
    inputs and outputs are reused from layer to layer and count once."""

    def of(*roles: str) -> list[PlacedBuffer]:
        return [buffer for buffer in buffers if buffer.role in roles]

    return account(
        [buffer.holding for buffer in of("weight")],
        [buffer.holding for buffer in of("state")],
        activations_bytes=_occupied(of("activation", "input", "output")),
        communication_bytes=_occupied(of("communication")),
        capacity_bytes=capacity_bytes,
        utilization=utilization,
        local_batch=local_batch,
        batch_groups=batch_groups,
        context=context,
        kv_replication=kv_replication,
    )


def _occupied(buffers: Sequence[PlacedBuffer]) -> int:
    """Bytes of the addresses that buffers occupy; lifetimes may share them."""
    total = end = 0
    spans = sorted((held.address, held.address + held.holding.buffer_bytes) for held in buffers)
    for first, last in spans:
        total += max(0, last - max(first, end))
        end = max(end, last)
    return total


def account(
    weights: Sequence[Holding],
    states: Sequence[Holding],
    *,
    activations_bytes: int,
    communication_bytes: int,
    capacity_bytes: int,
    utilization: float,
    local_batch: int,
    batch_groups: int,
    context: int,
    kv_replication: float,
) -> MemoryPlan:
    """The memory plan of a partition that holds ``local_batch`` sequences of ``context`` tokens;
    ``batch_groups`` groups of devices hold different sequences."""
    weights_bytes = sum(held.logical_bytes * held.copies for held in weights)
    kv_bytes = sum(held.logical_bytes * held.copies for held in states)
    padding = sum(
        (held.buffer_bytes - held.logical_bytes) * held.copies for held in (*weights, *states)
    )
    usable = floor(capacity_bytes * utilization)
    per_sequence = (kv_bytes + activations_bytes + communication_bytes) / local_batch
    free = usable - weights_bytes - padding
    max_batch = max(0, floor(free / per_sequence)) * batch_groups if per_sequence else 0
    for_tokens = free - activations_bytes - communication_bytes
    token_bytes = kv_bytes / (local_batch * context)
    kv_tokens = max(0, floor(for_tokens / token_bytes)) if token_bytes else 0
    return MemoryPlan(
        capacity_bytes=capacity_bytes,
        usable_bytes=usable,
        weights_bytes=weights_bytes,
        kv_bytes=kv_bytes,
        activations_bytes=activations_bytes,
        communication_bytes=communication_bytes,
        padding_bytes=padding,
        kv_replication=kv_replication,
        kv_tokens=kv_tokens,
        max_batch=max_batch,
    )
