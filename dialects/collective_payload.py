"""How many bytes a collective is about."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, cast

from starc.dialects.kernel_buffers import element_bytes

if TYPE_CHECKING:
    from starc.dialects.collective import CollectiveOp
    from starc.dialects.sharding import AnyTensor


def payload_bytes(op: CollectiveOp) -> int:
    """Bytes of the whole data of a collective on one device: results of a gather, operands of
    anything else."""
    values = op.outputs if op.KIND.payload_is_result else op.inputs
    types = [cast("AnyTensor", value.type) for value in values]
    return sum(prod(type.get_shape()) * element_bytes(type) for type in types)
