"""How many bytes reshards and collectives must move, by link class.

The count is **logical**: what one device must send at least, with every level of the mesh doing its
own part, whatever algorithm runs in the end. A reduction over devices of two levels is counted as
a hierarchy does it, inner level first, so that the outer level carries only what inner ones leave.
Slices move nothing. Shards are counted at their largest extent.

    >>> from starc.core.sharding.combiners import ReductionKind
    >>> from starc.core.sharding.mesh import Axis
    >>> mesh = Mesh("m", (Axis("gpu", 2, "outer", "xgmi"), Axis("xcd", 4, "inner", "usr")))
    >>> whole = Encoding.replicated(mesh, 1)
    >>> reshard_bytes(whole.with_partial(ReductionKind.SUM, mesh.all_axes()), whole, (16,), 2)
    {'usr': 48, 'xgmi': 8}
    >>> reshard_bytes(whole, whole.with_dim(0, mesh.all_axes()), (16,), 2)
    {}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.core.sharding.reshard_plan import plan_reshard

LinkBytes = Mapping[str, int]
"""Bytes that a device sends, by link class; classes that carry nothing are absent."""


def add_bytes(counts: Iterable[LinkBytes]) -> dict[str, int]:
    """The sum of several counts."""
    total: dict[str, int] = {}
    for count in counts:
        for link_class, sent in count.items():
            total[link_class] = total.get(link_class, 0) + sent
    return total


def is_no_more(left: LinkBytes, right: LinkBytes) -> bool:
    """Whether no link class carries more in ``left`` than in ``right``."""
    return all(sent <= right.get(link_class, 0) for link_class, sent in left.items())


def bytes_text(count: LinkBytes) -> str:
    """``96 bytes on usr, 8 bytes on xgmi``, for remarks."""
    parts = [f"{sent:,} bytes on {link_class}" for link_class, sent in count.items()]
    return ", ".join(parts) or "nothing"


def sent_bytes(
    mesh: Mesh, kind: CollectiveKind, axes: Sequence[AxisRef], payload_bytes: int
) -> dict[str, int]:
    """The bytes that a device sends in one collective over ``axes``. ``payload_bytes`` is what a
    device holds in full: the operand of a reduction, the result of a gather."""
    if not kind.moves_data:
        return {}
    names = [axis.name for axis in mesh.axes]
    ordered = sorted(axes, key=lambda ref: (names.index(ref.name), ref.pre_size), reverse=True)
    sent: dict[str, int] = {}
    left = payload_bytes
    for ref in ordered:
        size, link_class = mesh.ref_size(ref), mesh.link_class((ref,))
        if size == 1 or link_class is None:
            continue
        moved = kind.rounds * left * (size - 1) // size
        if moved:
            sent[link_class] = sent.get(link_class, 0) + moved
        if kind.shrinks_outwards:
            left //= size
    return sent


def reshard_bytes(
    source: Encoding, target: Encoding, shape: Sequence[int], width: int
) -> dict[str, int]:
    """The bytes that a device sends when a tensor of a global shape and elements of ``width``
    bytes goes from one encoding to another. Raises ``ValueError`` as ``plan_reshard`` does."""
    counts: list[LinkBytes] = []
    before = source.canonical()
    for step in plan_reshard(source, target, tuple(shape)):
        held = step.result if step.kind.payload_is_result else before
        payload = math.prod(held.local_shape(shape)) * width
        counts.append(sent_bytes(source.mesh, step.kind, step.axes, payload))
        before = step.result
    return add_bytes(counts)
