"""Which algorithms there are for which collective, and what each of them costs.

>>> from starc.core.sharding.mesh import Axis, AxisRef, Mesh
>>> node = Mesh("node", (Axis("gpu", 8, "outer", "xgmi"), Axis("xcd", 8, "inner", "usr")))
>>> profile("all_reduce", "two_shot", node, (AxisRef("gpu"),)).volumes
{'xgmi': Fraction(7, 4)}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from starc.core.collectives.bidirectional import (
    bidirectional_all_gather,
    bidirectional_all_reduce,
    bidirectional_reduce_scatter,
)
from starc.core.collectives.direct import (
    direct_all_gather,
    direct_all_to_all,
    direct_broadcast,
    direct_permute,
    direct_reduce_scatter,
    direct_reduce_to_root,
    one_shot_all_reduce,
    one_shot_reduce_scatter,
    two_shot_all_reduce,
)
from starc.core.collectives.schedules import (
    Schedule,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
)
from starc.core.collectives.tree import (
    chain_all_reduce,
    tree_all_reduce,
    tree_broadcast,
    tree_reduce_to_root,
)
from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.mesh import AxisRef, Mesh

if TYPE_CHECKING:
    from starc.targets.target import Target


class Algorithm(StrEnum):
    """The name of an algorithm, whose schedules are rows of ``SCHEDULES``."""

    RING = "ring"
    BIDIRECTIONAL_RING = "bidirectional_ring"
    ONE_SHOT = "one_shot"
    TWO_SHOT = "two_shot"
    TREE = "tree"
    CHAIN = "chain"
    DIRECT = "direct"


STRIDED: Final = (Algorithm.RING,)
"""Algorithms of which rings of several strides share the data where all devices are linked."""
BEGIN_WITH_MATES: Final = (Algorithm.BIDIRECTIONAL_RING,)
"""Algorithms in which devices of a carrier exchange among them first; whom a device speaks to is
a table then, for which loads of kernels wait."""


@dataclass(frozen=True)
class Members:
    """What a schedule is made for: ``devices`` in the order of their group, the elements that
    belong to each of them (``pieces``; what travels whole takes their sum), how many consecutive
    ones share a carrier, the strides of rings, and the group indices that a permutation sends
    to."""

    devices: tuple[int, ...]
    pieces: tuple[int, ...]
    mates: int = 1
    strides: tuple[int, ...] = (1,)
    targets: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        return sum(self.pieces)


def _by_ring(make: Callable[..., Schedule]) -> Callable[[Members], Schedule]:
    return lambda m: make(m.devices, m.pieces, m.strides)


def _by_carrier(make: Callable[..., Schedule]) -> Callable[[Members], Schedule]:
    return lambda m: make(m.devices, m.pieces, m.mates)


def _of_pieces(make: Callable[..., Schedule]) -> Callable[[Members], Schedule]:
    return lambda m: make(m.devices, m.pieces)


def _of_whole(make: Callable[..., Schedule]) -> Callable[[Members], Schedule]:
    return lambda m: make(m.devices, m.elements)


SCHEDULES: Final[Mapping[str, Mapping[str, Callable[[Members], Schedule]]]] = {
    CollectiveKind.ALL_REDUCE: {
        Algorithm.RING: _by_ring(ring_all_reduce),
        Algorithm.BIDIRECTIONAL_RING: _by_carrier(bidirectional_all_reduce),
        Algorithm.ONE_SHOT: _of_whole(one_shot_all_reduce),
        Algorithm.TWO_SHOT: _of_pieces(two_shot_all_reduce),
        Algorithm.TREE: _of_whole(tree_all_reduce),
        Algorithm.CHAIN: _of_whole(chain_all_reduce),
    },
    CollectiveKind.REDUCE_SCATTER: {
        Algorithm.RING: _by_ring(ring_reduce_scatter),
        Algorithm.BIDIRECTIONAL_RING: _by_carrier(bidirectional_reduce_scatter),
        Algorithm.DIRECT: _of_pieces(direct_reduce_scatter),
        Algorithm.ONE_SHOT: _of_pieces(one_shot_reduce_scatter),
    },
    CollectiveKind.ALL_GATHER: {
        Algorithm.RING: _by_ring(ring_all_gather),
        Algorithm.BIDIRECTIONAL_RING: _by_carrier(bidirectional_all_gather),
        Algorithm.DIRECT: _of_pieces(direct_all_gather),
    },
    CollectiveKind.ALL_TO_ALL: {Algorithm.DIRECT: _of_pieces(direct_all_to_all)},
    CollectiveKind.PERMUTE: {
        Algorithm.DIRECT: lambda m: direct_permute(
            m.devices, m.targets or tuple(range(len(m.devices))), m.elements
        ),
    },
    CollectiveKind.REDUCE_TO_ROOT: {
        Algorithm.TREE: _of_whole(tree_reduce_to_root),
        Algorithm.DIRECT: _of_whole(direct_reduce_to_root),
    },
    CollectiveKind.BROADCAST: {
        Algorithm.TREE: _of_whole(tree_broadcast),
        Algorithm.DIRECT: _of_whole(direct_broadcast),
    },
}
"""The schedule of every collective that moves data, by algorithm."""

OF_LIBRARIES: Final = (Algorithm.CHAIN,)
"""What libraries do inside a node; nothing makes it the fastest."""

ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    str(operation): tuple(str(name) for name in schedules if name not in OF_LIBRARIES)
    for operation, schedules in SCHEDULES.items()
}
"""The names of the algorithms from which the compiler chooses."""


def legal_algorithms(
    operation: str, mesh: Mesh, axes: Sequence[AxisRef], target: Target | None = None
) -> tuple[str, ...]:
    """The algorithms that can execute a collective over a group along ``axes``.

    Raises ``ValueError`` for an operation that moves nothing or does not exist.
    """
    del target
    if operation not in ALGORITHMS:
        raise ValueError(f"there is no algorithm for {operation}")
    size = mesh.refs_size(axes)
    if size < 2:
        direct, ring = str(Algorithm.DIRECT), str(Algorithm.RING)
        return (direct if direct in ALGORITHMS[operation] else ring,)
    return ALGORITHMS[operation]


def mates_of(mesh: Mesh, axes: Sequence[AxisRef], target: Target) -> int:
    """How many consecutive devices of a group along ``axes`` share a carrier: what a bidirectional
    ring exchanges before it goes round. 1 where the group leaves a GPU or is not made of equal
    runs of carriers' devices."""
    group = mesh.groups(axes)[0]
    per_gpu = target.devices_per_gpu
    if len({device // per_gpu for device in group}) > 1:
        return 1
    carriers = [
        device % per_gpu * target.dies_per_device // target.dies_per_carrier for device in group
    ]
    mates = carriers.count(carriers[0])
    runs = [carriers[start : start + mates] for start in range(0, len(carriers), mates)]
    is_regular = len(group) % mates == 0 and all(len(set(run)) == 1 for run in runs)
    if not is_regular or len({run[0] for run in runs}) != len(runs) or mates == len(group):
        return 1
    return mates


@lru_cache(maxsize=512)
def schedule_of(
    operation: str,
    algorithm: str,
    devices: tuple[int, ...],
    pieces: tuple[int, ...],
    mates: int = 1,
    strides: tuple[int, ...] = (1,),
    targets: tuple[int, ...] = (),
) -> Schedule:
    """The schedule of a collective over ``devices``, see ``Members``. Raises ``ValueError`` for an
    algorithm that the operation does not have."""
    make = SCHEDULES.get(operation, {}).get(algorithm)
    if make is None:
        raise ValueError(f"{operation} has no algorithm {algorithm}")
    return make(Members(devices, pieces, mates, strides, targets))


def unit_schedule(
    operation: str,
    algorithm: str,
    devices: tuple[int, ...],
    mates: int,
    strides: tuple[int, ...],
    targets: tuple[int, ...] = (),
) -> Schedule:
    """The schedule of the smallest pieces that all parts of an algorithm divide, for shares of the
    whole. A permutation whose targets are not known moves everything."""
    unit = 2 * max(1, len(strides))
    size = len(devices)
    turned = tuple((index + 1) % size for index in range(size))
    pieces = (unit,) * size
    return schedule_of(operation, algorithm, devices, pieces, mates, strides, targets or turned)


def mates_for(algorithm: str, mesh: Mesh, axes: Sequence[AxisRef], target: Target) -> int:
    """How many devices share a carrier, for an algorithm that asks for it."""
    return mates_of(mesh, axes, target) if algorithm in BEGIN_WITH_MATES else 1


@dataclass(frozen=True)
class Profile:
    """What an algorithm costs, for a payload of 1 (what one device holds in full).

    ``volumes`` is the payload that the busiest device sends over each class of links, ``busiest``
    the payload over the busiest directed pair of devices of each class, ``staging`` the payload
    that the busiest device receives into staging slots, ``peers`` to how many devices one device
    sends in a step over each class.
    """

    steps: int
    volumes: Mapping[str, Fraction]
    busiest: Mapping[str, Fraction]
    staging: Fraction
    peers: Mapping[str, int]

    def link_bytes(self, payload: int) -> dict[str, int]:
        """Bytes that the busiest device sends by link class."""
        return {name: -(-share * payload // 1) for name, share in self.volumes.items()}

    def staging_bytes(self, payload: int) -> int:
        return -(-self.staging * payload // 1)


def profile(
    operation: str,
    algorithm: str,
    mesh: Mesh,
    axes: Sequence[AxisRef],
    mates: int = 1,
    strides: tuple[int, ...] = (1,),
) -> Profile:
    """The profile of an algorithm over groups along ``axes``; ``mates`` as ``mates_of`` gives
    them. A permutation is taken to move everything."""
    return _profile(operation, algorithm, mesh, tuple(axes), mates, strides)


@lru_cache(maxsize=512)
def _profile(
    operation: str,
    algorithm: str,
    mesh: Mesh,
    axes: tuple[AxisRef, ...],
    mates: int,
    strides: tuple[int, ...],
) -> Profile:
    group = mesh.groups(axes)[0]
    schedule = unit_schedule(operation, algorithm, group, mates, strides)
    whole = schedule.elements
    sent: dict[str, Counter[int]] = {}
    pairs: dict[str, Counter[tuple[int, int]]] = {}
    staged: Counter[int] = Counter()
    peers: dict[str, dict[tuple[int, int], set[int]]] = {}
    for transfer in schedule.transfers:
        name = mesh.pair_link_class(transfer.source, transfer.target)
        if name is None:
            continue
        elements = schedule.chunk_size(transfer.chunk)
        sent.setdefault(name, Counter())[transfer.source] += elements
        pairs.setdefault(name, Counter())[transfer.source, transfer.target] += elements
        key = transfer.source, transfer.step
        peers.setdefault(name, {}).setdefault(key, set()).add(transfer.target)
        if transfer.action == "reduce" and not schedule.pulled:
            staged[transfer.target] += elements
    return Profile(
        schedule.steps,
        {name: Fraction(max(counts.values()), whole) for name, counts in sent.items()},
        {name: Fraction(max(counts.values()), whole) for name, counts in pairs.items()},
        Fraction(max(staged.values(), default=0), whole),
        {name: max(map(len, found.values())) for name, found in peers.items()},
    )
