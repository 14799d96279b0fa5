"""How many bytes a module communicates, by link class: ``starc.core.sharding.link_bytes`` of its
reshards and collectives."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation

from starc.core.sharding.encoding import Encoding
from starc.core.sharding.link_bytes import add_bytes, reshard_bytes, sent_bytes
from starc.core.sharding.mesh import Mesh
from starc.core.sharding.reshard_plan import plan_reshard
from starc.dialects.collective import CollectiveOp
from starc.dialects.collective_payload import payload_bytes
from starc.dialects.kernel_buffers import element_bytes
from starc.dialects.sharding import (
    ReshardOp,
    encoding_of,
    global_shape,
    mesh_of,
)


def operation_bytes(op: Operation, mesh: Mesh) -> dict[str, int]:
    """The bytes that a device sends in one reshard or collective; none for any other operation."""
    if isinstance(op, ReshardOp):
        return add_bytes(
            reshard_bytes(source, target, shape, width)
            for source, target, shape, width in _ends(op, mesh)
        )
    if isinstance(op, CollectiveOp):
        return sent_bytes(mesh, op.KIND, op.axes.data, payload_bytes(op))
    return {}


def communicated_bytes(scope: Operation) -> dict[str, int]:
    """The bytes that a device sends in everything inside a module or a layer, each operation
    counted once, at the sharding level (reshards) and the collective level."""
    mesh = mesh_of(scope)
    return add_bytes(operation_bytes(op, mesh) for op in scope.walk())


def collectives_in(scope: Operation) -> int:
    """How many collectives that move data a module or layer has, or its reshards become."""
    mesh = mesh_of(scope)
    count = 0
    for op in scope.walk():
        if isinstance(op, ReshardOp):
            source, target, shape, _ = _ends(op, mesh)[0]
            count += moving_steps(source, target, shape)
        elif isinstance(op, CollectiveOp) and op.KIND.moves_data:
            count += 1
    return count


def _ends(op: ReshardOp, mesh: Mesh) -> list[tuple[Encoding, Encoding, tuple[int, ...], int]]:
    """Per value of a reshard its encodings before and after, its shape, and bytes an element."""
    ends: list[tuple[Encoding, Encoding, tuple[int, ...], int]] = []
    for before, after in zip(op.inputs, op.outputs, strict=True):
        source, target = encoding_of(before.type, mesh), encoding_of(after.type, mesh)
        assert source is not None
        assert target is not None
        ends.append((source, target, global_shape(after.type), element_bytes(after.type)))
    return ends


def moving_steps(source: Encoding, target: Encoding, shape: Sequence[int]) -> int:
    """How many collectives of a reshard move data."""
    steps = plan_reshard(source, target, tuple(shape))
    return sum(step.kind.moves_data for step in steps)
