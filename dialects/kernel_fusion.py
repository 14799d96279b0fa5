"""Launches of matrix products that exchange data with their peers while they compute.

A gemm launch may hold, besides its products, the all-gather of their input in front of them
(*pull*: the input's slices are read from the devices that hold them) and behind a product the
scaling of its rows and the reduce-scatter of its result (*push*: result tiles go to their owners).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from starc.core.device_rates import DeviceRates
from starc.core.fused_schedules import FusedProblem
from starc.core.mesh import Mesh
from starc.core.tile_schedules import GemmProblem
from starc.dialects import nn
from starc.dialects.collective import AllGatherOp, CollectiveOp, ReduceScatterOp
from starc.dialects.kernel import LaunchOp, element_bytes
from starc.dialects.kernel_problems import problem_of, tensor
from starc.dialects.sharding import encoding_of, global_shape, mesh_of


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


@dataclass(frozen=True)
class Merging:
    """What an attention launch whose owners merge consists of."""

    partial: nn.PartialAttentionOp
    scatter: ReduceScatterOp
    finish: nn.LseFinishOp


def merging_of(launch: LaunchOp) -> Merging | None:
    """The parts of an attention launch that holds, behind a partial attention, the reduce-scatter
    of its heads and their end; ``None`` for any other."""
    if launch.kind.data != "attention" or len(launch.yielded) != 1:
        return None
    finish = _owner(launch.yielded[0])
    if not isinstance(finish, nn.LseFinishOp):
        return None
    scatter = _owner(finish.m)
    if not isinstance(scatter, ReduceScatterOp):
        return None
    partial = _owner(scatter.inputs[0])
    if not isinstance(partial, nn.PartialAttentionOp):
        return None
    if (finish.m, finish.l, finish.o) != tuple(scatter.outputs):
        raise ValueError("the end of an attention takes m, l and o as they are scattered")
    if (partial.m, partial.l, partial.o) != tuple(scatter.inputs):
        raise ValueError("m, l and o of an attention are scattered in this order")
    return Merging(partial, scatter, finish)


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


def fused_problem(launch: LaunchOp, rates: DeviceRates) -> FusedProblem:
    """The numbers by which a fused launch is scheduled."""
    scatters = [part.scatter for part in gemm_parts(launch)]
    return problem_with(launch, pulled(launch), scatters, rates)


def problem_with(
    launch: LaunchOp,
    gather: AllGatherOp | None,
    scatters: Sequence[ReduceScatterOp | None],
    rates: DeviceRates,
) -> FusedProblem:
    """The numbers of a gemm launch if it pulled by ``gather`` and pushed each part by its entry of
    ``scatters``."""
    mesh = mesh_of(launch)
    gemm = problem_of(launch)
    assert isinstance(gemm, GemmProblem)
    pushes = [scatter for scatter in scatters if scatter is not None]
    axes = (gather if gather is not None else pushes[0]).axes.data
    link = rates.links.get(mesh.link_class(axes) or "")
    widths = [
        tensor(scatter.outputs[0]).get_shape()[2] if scatter is not None else 0
        for scatter in scatters
    ]
    return FusedProblem(
        gemm=gemm,
        pull_ranks=mesh.refs_size(gather.axes.data) if gather is not None else 0,
        push_ranks=mesh.refs_size(pushes[0].axes.data) if pushes else 0,
        scattered=tuple(widths),
        partial_bytes=max((element_bytes(tensor(push.inputs[0])) for push in pushes), default=0),
        link_rate=link.bytes_per_s * link.per_device if link is not None else rates.hbm_rate,
        link_latency_s=link.latency_s if link is not None else 0.0,
    )


def owned_columns(part: GemmPart, mesh: Mesh) -> tuple[int, ...]:
    """The columns of a scattered part at which those of an owner begin, on any device."""
    assert part.scatter is not None
    starts = slice_starts(part.scatter, mesh)
    return () if starts is None else tuple(sorted({first for row in starts for first in row}))


def slice_starts(
    op: AllGatherOp | ReduceScatterOp, mesh: Mesh
) -> tuple[tuple[int, ...], ...] | None:
    """For every device where the slice of each rank of its group begins in the whole value that a
    gather makes or a scatter cuts, along ``dim``, in the order of ranks. ``None`` where a slice is
    not one contiguous range of it."""
    whole, part = op.inputs[0], op.outputs[0]
    if isinstance(op, AllGatherOp):
        whole, part = part, whole
    dim = op.number("dim")
    outer, inner = encoding_of(whole.type, mesh), encoding_of(part.type, mesh)
    if outer is None or inner is None or inner.rotated_by(dim) is not None:
        return None
    if outer.rotated_by(dim) is not None:
        return None
    extent = global_shape(cast("TensorType[Attribute]", whole.type))[dim]
    groups = mesh.groups(op.axes.data)
    members = {device: group for group in groups for device in group}
    coords = list(mesh.devices())
    starts: list[tuple[int, ...]] = []
    for device in range(mesh.size):
        held = outer.global_indices(dim, extent, coords[device])
        own: list[int] = []
        for member in members[device]:
            wanted = inner.global_indices(dim, extent, coords[member])
            first = int(np.searchsorted(held, int(wanted[0]))) if wanted.size else 0
            if not np.array_equal(held[first : first + wanted.size], wanted):
                return None
            own.append(first)
        starts.append(tuple(own))
    return tuple(starts)
