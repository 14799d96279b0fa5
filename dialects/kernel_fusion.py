"""Launches of matrix products that exchange data with their peers while they compute.

A gemm launch may hold, besides its products, the all-gather of their input in front of them
(*pull*: the input's slices are read from the devices that hold them) and behind a product the
scaling of its rows and the reduce-scatter of its result (*push*: result tiles go to their owners).
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import BlockArgument, Operation, SSAValue

from starc.dialects import nn
from starc.dialects.collective import AllGatherOp, CollectiveOp, ReduceScatterOp
from starc.dialects.kernel import LaunchOp


@dataclass(frozen=True)
class GemmPart:
    """One result of a gemm launch: a product, the factors of its rows, and its reduce-scatter."""

    linear: nn.LinearOp
    scale: SSAValue | None = None
    scatter: ReduceScatterOp | None = None

    @property
    def partial(self) -> SSAValue:
        """The value that the products of a device make up: what is scattered, or yielded."""
        if self.scatter is not None:
            return self.scatter.inputs[0]
        return self.linear.result


def pulled(launch: LaunchOp) -> AllGatherOp | None:
    """The all-gather of a launch's input, of a gemm launch that has one."""
    if launch.kind.data != "gemm":
        return None
    return next((op for op in launch.block.ops if isinstance(op, AllGatherOp)), None)


def is_fused(launch: LaunchOp) -> bool:
    """Whether a gemm launch exchanges data with peers."""
    return launch.kind.data == "gemm" and any(
        isinstance(op, CollectiveOp) for op in launch.block.ops
    )


def gemm_parts(launch: LaunchOp) -> tuple[GemmPart, ...]:
    """The parts of a gemm launch, one a yielded value. Raises ``ValueError`` for a body that is
    not made of an all-gather, products, scaled rows and reduce-scatters."""
    return tuple(_part(value) for value in launch.yielded)


def _part(value: SSAValue) -> GemmPart:
    scatter: ReduceScatterOp | None = None
    scale: SSAValue | None = None
    owner = _owner(value)
    if isinstance(owner, ReduceScatterOp):
        scatter = owner
        owner = _owner(scatter.inputs[0])
    if isinstance(owner, nn.ScaleRowsOp):
        scale = owner.scale
        owner = _owner(owner.input)
    if not isinstance(owner, nn.LinearOp):
        raise ValueError("a gemm launch yields results of nn.linear")
    return GemmPart(owner, scale, scatter)


def _owner(value: SSAValue) -> Operation | None:
    if isinstance(value, BlockArgument) or not isinstance(value.owner, Operation):
        return None
    return value.owner
