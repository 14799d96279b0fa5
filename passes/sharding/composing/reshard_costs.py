"""What reshards of a value cost, and what uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from xdsl.ir import SSAValue

from starc.analysis.communication import moving_steps
from starc.analysis.reencoding import encoding, shape_of
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.link_bytes import add_bytes, reshard_bytes
from starc.core.sharding.mesh import Mesh
from starc.dialects.kernel_buffers import element_bytes
from starc.dialects.sharding import AnyTensor, ReshardOp

Bytes = dict[str, int]
"""By link class."""


def reshard_of(value: SSAValue) -> ReshardOp | None:
    """The reshard of one value that gives ``value``."""
    owner = value.owner
    return owner if isinstance(owner, ReshardOp) and len(owner.inputs) == 1 else None


def reshards(value: SSAValue) -> list[ReshardOp]:
    """The reshards of a value alone."""
    users = [use.operation for use in value.uses]
    return [user for user in users if isinstance(user, ReshardOp) and len(user.inputs) == 1]


def others(value: SSAValue) -> bool:
    """Whether anything but reshards of it alone uses a value."""
    return len(reshards(value)) < sum(1 for _ in value.uses)


@dataclass(frozen=True)
class ReshardCosts:
    """Bytes of reshards on a mesh."""

    mesh: Mesh

    def cost(self, value: SSAValue, source: Encoding, target: Encoding) -> Bytes:
        """Those of a reshard of a value of that type."""
        width = element_bytes(cast(AnyTensor, value.type))
        return reshard_bytes(source, target, shape_of(value), width)

    def cost_of(self, op: ReshardOp) -> Bytes:
        """Those of a reshard of one value."""
        return self.cost(op.inputs[0], *self.ends(op))

    def ends(self, op: ReshardOp) -> tuple[Encoding, Encoding]:
        """The encodings that a reshard of one value leads from and to."""
        return encoding(op.inputs[0], self.mesh), encoding(op.results[0], self.mesh)

    def cost_behind(self, value: SSAValue, found: Encoding) -> Bytes:
        """Bytes of what follows a value if its encoding is ``found``: the reshards of it, and one
        to the encoding it has now if anything else uses it."""
        own = encoding(value, self.mesh)
        counts = [
            self.cost(value, found, encoding(user.results[0], self.mesh))
            for user in reshards(value)
        ]
        if others(value) and found != own:
            counts.append(self.cost(value, found, own))
        return add_bytes(counts)

    def steps_behind(self, value: SSAValue, found: Encoding) -> int:
        """How many collectives those reshards become."""
        own, shape = encoding(value, self.mesh), shape_of(value)
        ends = [encoding(user.results[0], self.mesh) for user in reshards(value)]
        ends += [own] if others(value) else []
        return sum(moving_steps(found, end, shape) for end in ends)
