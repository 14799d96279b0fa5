"""What passes ask of an operation of the ``collective`` dialect to estimate its time."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, cast

from starc.dialects.kernel_buffers import element_bytes

if TYPE_CHECKING:
    from starc.core.sharding.collective_kind import CollectiveKind
    from starc.dialects.collective import CollectiveOp
    from starc.dialects.sharding import AnyTensor


def operation_name(op: CollectiveOp) -> CollectiveKind:
    """The operation without its dialect: ``all_reduce``."""
    return op.KIND


def payload_bytes(op: CollectiveOp) -> int:
    """Bytes of the whole data of a collective on one device: results of a gather, operands of
    anything else."""
    values = op.outputs if op.KIND.payload_is_result else op.inputs
    types = [cast("AnyTensor", value.type) for value in values]
    return sum(prod(type.get_shape()) * element_bytes(type) for type in types)
