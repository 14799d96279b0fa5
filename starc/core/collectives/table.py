"""Which algorithms there are for which collective, and what each of them costs.

>>> from starc.core.sharding.mesh import Axis, AxisRef, Mesh
>>> node = Mesh("node", (Axis("gpu", 8, "outer", "xgmi"), Axis("xcd", 8, "inner", "usr")))
>>> profile("all_reduce", "two_shot", node, (AxisRef("gpu"),)).volumes
{'xgmi': Fraction(7, 4)}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from starc.core.sharding.mesh import AxisRef, Mesh

if TYPE_CHECKING:
    from starc.targets.target import Target

ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "all_reduce": ("ring", "bidirectional_ring", "one_shot", "two_shot", "tree"),
    "reduce_scatter": ("ring", "bidirectional_ring", "direct", "one_shot"),
    "all_gather": ("ring", "bidirectional_ring", "direct"),
    "all_to_all": ("direct",),
    "permute": ("direct",),
    "reduce_to_root": ("tree", "direct"),
    "broadcast": ("tree", "direct"),
}
"""The algorithms of every collective that moves data, from which the compiler chooses. A ``chain``
also sums to all, as libraries do it inside a node; nothing makes it the fastest."""


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
        return ("direct",) if "direct" in ALGORITHMS[operation] else ("ring",)
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
    """The schedule of a collective over ``devices`` in the order of their group. ``pieces`` are the
    elements that belong to each of them; what travels whole takes their sum. ``targets`` are the
    group indices that a permutation sends to. Raises ``ValueError`` for an algorithm that the
    operation does not have."""
    elements = sum(pieces)
    match operation, algorithm:
        case "all_reduce", "ring":
            return ring_all_reduce(devices, pieces, strides)
        case "reduce_scatter", "ring":
            return ring_reduce_scatter(devices, pieces, strides)
        case "all_gather", "ring":
            return ring_all_gather(devices, pieces, strides)
        case "all_reduce", "bidirectional_ring":
            return bidirectional_all_reduce(devices, pieces, mates)
        case "reduce_scatter", "bidirectional_ring":
            return bidirectional_reduce_scatter(devices, pieces, mates)
        case "all_gather", "bidirectional_ring":
            return bidirectional_all_gather(devices, pieces, mates)
        case "all_reduce", "one_shot":
            return one_shot_all_reduce(devices, elements)
        case "reduce_scatter", "one_shot":
            return one_shot_reduce_scatter(devices, pieces)
        case "all_reduce", "two_shot":
            return two_shot_all_reduce(devices, pieces)
        case "reduce_scatter", "direct":
            return direct_reduce_scatter(devices, pieces)
        case "all_gather", "direct":
            return direct_all_gather(devices, pieces)
        case "all_to_all", "direct":
            return direct_all_to_all(devices, pieces)
        case "permute", "direct":
            return direct_permute(devices, targets or tuple(range(len(devices))), elements)
        case "all_reduce", "tree":
            return tree_all_reduce(devices, elements)
        case "all_reduce", "chain":
            return chain_all_reduce(devices, elements)
        case "reduce_to_root", "tree":
            return tree_reduce_to_root(devices, elements)
        case "broadcast", "tree":
            return tree_broadcast(devices, elements)
        case "reduce_to_root", "direct":
            return direct_reduce_to_root(devices, elements)
        case "broadcast", "direct":
            return direct_broadcast(devices, elements)
        case _:
            raise ValueError(f"{operation} has no algorithm {algorithm}")


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
    size = len(group)
    unit = 2 * max(1, len(strides))  # divides every piece into its parts
    turned = tuple((index + 1) % size for index in range(size))
    schedule = schedule_of(
        operation, algorithm, group, (unit,) * size, mates, tuple(strides), turned
    )
    whole = unit * size
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
