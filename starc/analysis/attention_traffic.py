"""What an attention reads and what its devices exchange, counted in the IR.

The counts stand on types and on the reshards and collectives around an attention, at the sharding
and the collective level. Bytes *received* are those of ``starc.analysis.communication``: what one
device must get, whatever algorithm runs. Bytes *moved* are whole tensors that a group of devices
exchanges, counted once for the group; ``between_carriers`` says how many of those cross from one
carrier die to another, which is how the share of traffic that leaves a carrier is stated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from starc.analysis.communication import operation_bytes
from starc.analysis.reencoding import encoding, shape_of
from starc.analysis.sharding_rules import module_mesh
from starc.core.sharding.attention_sharding import without
from starc.core.sharding.link_bytes import add_bytes
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.dialects.collective import CollectiveOp
from starc.dialects.kernel_buffers import element_bytes
from starc.dialects.nn import AttentionOp, PartialAttentionOp
from starc.dialects.sharding import AnyTensor, ReshardOp, local_shape


@dataclass(frozen=True)
class AttentionTraffic:
    """The bytes of one attention.

    ``cache_bytes`` is what a device reads of keys and values, ``received_bytes`` what it gets in
    the exchanges in front of the attention and behind it. Of a group of devices that exchange with
    one another, ``unique_bytes`` are queries, keys, values and results, each once; ``moved_bytes``
    those of them that are exchanged; ``statistics_bytes`` the maxima and sums beside them.
    """

    cache_bytes: int
    received_bytes: int
    unique_bytes: int
    moved_bytes: int
    statistics_bytes: int

    @property
    def received_share(self) -> Fraction:
        """Bytes received over bytes of keys and values read."""
        return Fraction(self.received_bytes, self.cache_bytes)

    def between_carriers(self, carriers: int) -> Fraction:
        """The share of the unique bytes that lies on another of a group's ``carriers`` than its
        reader, where tensors are spread over the carriers evenly."""
        return Fraction(carriers - 1, carriers) * Fraction(self.moved_bytes, self.unique_bytes)


def attentions(module: ModuleOp) -> list[AttentionOp | PartialAttentionOp]:
    """The attentions of a module, in order."""
    return [op for op in module.walk() if isinstance(op, AttentionOp | PartialAttentionOp)]


def traffic_of(op: AttentionOp | PartialAttentionOp) -> AttentionTraffic:
    """The bytes of an attention of a module whose values have encodings."""
    module = op.get_toplevel_object()
    assert isinstance(module, ModuleOp)
    mesh = module_mesh(module)
    exchanges = list(_exchanges(op))
    received = add_bytes(operation_bytes(found, mesh) for found in exchanges)
    axes = _axes(exchanges, mesh)
    columns = op.result if isinstance(op, AttentionOp) else op.o
    unique = sum(_group_bytes(value, mesh, axes) for value in (op.query, op.key, op.value, columns))
    moved, statistics = 0, 0
    for found in exchanges:
        *rows, tensor = _payloads(found, mesh)
        moved += tensor
        statistics += sum(rows)
    cache = sum(_local_bytes(value, mesh) for value in (op.key, op.value))
    return AttentionTraffic(cache, sum(received.values()), unique, moved, statistics)


def _exchanges(op: AttentionOp | PartialAttentionOp) -> Iterator[ReshardOp | CollectiveOp]:
    """The reshards and collectives that lead to the operands of an attention, and those that its
    results go through."""
    seen: set[Operation] = set()
    pending: list[SSAValue] = [op.query, op.key, op.value]
    while pending:
        source = pending.pop(0).owner
        if isinstance(source, ReshardOp | CollectiveOp) and source not in seen:
            seen.add(source)
            yield source
            pending += source.inputs
    pending = list(op.results)
    while pending:
        for use in list(pending.pop(0).uses):
            user = use.operation
            if isinstance(user, ReshardOp | CollectiveOp) and user not in seen:
                seen.add(user)
                yield user
                pending += user.outputs


def _axes(exchanges: list[ReshardOp | CollectiveOp], mesh: Mesh) -> tuple[AxisRef, ...]:
    """The axes over which exchanges go."""
    found: list[AxisRef] = []
    for op in exchanges:
        for before, after in zip(op.inputs, op.outputs, strict=True):
            old, new = (encoding(value, mesh).used_axes() for value in (before, after))
            found += without(mesh, old, new) + without(mesh, new, old)
            for one, other in zip(
                encoding(before, mesh).dims, encoding(after, mesh).dims, strict=True
            ):
                found += without(mesh, other.axes, one.axes)
    return mesh.complement(mesh.complement(found))


def _local_bytes(value: SSAValue, mesh: Mesh) -> int:
    type = cast(AnyTensor, value.type)
    return math.prod(local_shape(type, mesh)) * element_bytes(type)


def _group_bytes(value: SSAValue, mesh: Mesh, axes: tuple[AxisRef, ...]) -> int:
    """Bytes that the devices along ``axes`` have of a value, every piece once."""
    split = [ref for sharding in encoding(value, mesh).dims for ref in sharding.axes]
    pieces = mesh.refs_size(without(mesh, split, axes))
    total = math.prod(shape_of(value)) * element_bytes(cast(AnyTensor, value.type))
    return total // pieces


def _payloads(op: ReshardOp | CollectiveOp, mesh: Mesh) -> list[int]:
    """Bytes of each value that an exchange is about, whole: what a device holds of it in full, the
    result of a gather or the operand of a reduction."""
    return [
        max(_local_bytes(before, mesh), _local_bytes(after, mesh))
        for before, after in zip(op.inputs, op.outputs, strict=True)
    ]
