"""Launches of matrix products that exchange data with their peers while they compute.

A gemm launch may hold, besides its products, the all-gather of their input in front of them
(*pull*: the input's slices are read from the devices that hold them) and behind a product the
scaling of its rows, their rotation by position, and the reduction of its result (*push*: result
tiles go to those who add them up). A reduce-scatter of columns sends a tile to the owner of its
columns; an all-reduce, or a reduce-scatter of rows, sends it to all. Behind the reduction there may
be what is done with the sums: elementwise operations, sums of squares, appends to a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from xdsl.ir import BlockArgument, Operation, SSAValue

from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.fused_schedules import FusedProblem, SumRows
from starc.core.kernel_schedules.gemm_problem import GemmProblem
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.dialects import nn
from starc.dialects.collective import AllGatherOp, AllReduceOp, CollectiveOp, ReduceScatterOp
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_buffers import element_bytes
from starc.dialects.kernel_kinds import LaunchKind
from starc.dialects.kernel_problems import problem_of, tensor
from starc.dialects.sharding import encoding_of, global_shape, mesh_of

Reduction: TypeAlias = ReduceScatterOp | AllReduceOp

AFTER_SUMS = (
    nn.ElementwiseOp,
    nn.ScaleColumnsOp,
    nn.SumSquaresOp,
    nn.AppendOp,
)
"""What may stand behind the reduction of a product in its launch."""


@dataclass(frozen=True)
class GemmPart:
    """One product of a gemm launch, the factors and the rotation of its rows, and its reduction."""

    linear: nn.LinearOp
    scale: SSAValue | None = None
    rope: nn.RopeOp | None = None
    reduction: Reduction | None = None

    @property
    def partial(self) -> SSAValue:
        """The value that the products of a device make up: what is reduced, or yielded."""
        if self.reduction is not None:
            return self.reduction.inputs[0]
        return self.linear.result

    @property
    def scatter(self) -> ReduceScatterOp | None:
        """The reduction that sends every tile to the owner of its columns."""
        op = self.reduction
        return op if isinstance(op, ReduceScatterOp) and op.number("dim") == 2 else None

    @property
    def received(self) -> tuple[int, int, int]:
        """Extents of what a device receives from each rank of a reduction: its columns of the
        partial result, or all of it."""
        value = self.partial if self.scatter is None else self.scatter.outputs[0]
        batch, query, width = tensor(value).get_shape()
        return batch, query, width


@dataclass(frozen=True)
class Collection:
    """Parts whose sums are made together, by number, and the yielded values that they make, by
    position. Of a part without a reduction, the one value."""

    parts: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Merging:
    """What an attention launch whose owners merge consists of."""

    partial: nn.PartialAttentionOp
    scatter: ReduceScatterOp
    finish: nn.LseFinishOp


def merging_of(launch: LaunchOp) -> Merging | None:
    """The parts of an attention launch that holds, behind a partial attention, the reduce-scatter
    of its heads and their end; ``None`` for any other."""
    if launch.kind.data != LaunchKind.ATTENTION or len(launch.yielded) != 1:
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
    if launch.kind.data != LaunchKind.GEMM:
        return None
    return next((op for op in launch.block.ops if isinstance(op, AllGatherOp)), None)


def is_fused(launch: LaunchOp) -> bool:
    """Whether a gemm launch exchanges data with peers."""
    return launch.kind.data == LaunchKind.GEMM and any(
        isinstance(op, CollectiveOp) for op in launch.block.ops
    )


def gemm_parts(launch: LaunchOp) -> tuple[GemmPart, ...]:
    """The parts of a gemm launch, one a product, as the yielded values take them. Raises
    ``ValueError`` for a body that is not made of an all-gather, products, scaled and rotated rows,
    reductions, and what may stand behind them."""
    found: dict[nn.LinearOp, GemmPart] = {}
    for value in launch.yielded:
        found.update((part.linear, part) for part in _parts_behind(value))
    return tuple(found.values())


def collections_of(launch: LaunchOp) -> tuple[Collection, ...]:
    """The parts that belong together because a value is made of the sums of all of them, and the
    values that they make."""
    numbers = {part.linear: number for number, part in enumerate(gemm_parts(launch))}
    groups: list[tuple[set[int], list[int]]] = []
    for position, value in enumerate(launch.yielded):
        parts = {numbers[part.linear] for part in _parts_behind(value)}
        outputs = [position]
        for group in [group for group in groups if group[0] & parts]:
            groups.remove(group)
            parts |= group[0]
            outputs = [*group[1], *outputs]
        groups.append((parts, outputs))
    groups.sort(key=lambda group: min(group[0]))
    return tuple(Collection(tuple(sorted(parts)), tuple(sorted(o))) for parts, o in groups)


def summed_rows(op: Operation | None) -> nn.SumSquaresOp | None:
    """The sums of squares that an all-reduce adds up over devices, if it is of such."""
    if not isinstance(op, AllReduceOp) or len(op.inputs) != 1:
        return None
    owner = _owner(op.inputs[0])
    return owner if isinstance(owner, nn.SumSquaresOp) else None


def _parts_behind(value: SSAValue) -> list[GemmPart]:
    """The products that a value is made of."""
    owner = _owner(value)
    if owner is None:
        return []
    part = _part(owner)
    if part is not None:
        return [part]
    joined = summed_rows(owner)
    if joined is not None:
        return _parts_behind(joined.input)
    if not isinstance(owner, AFTER_SUMS):
        raise ValueError("a gemm launch yields results of nn.linear")
    return [part for operand in owner.operands for part in _parts_behind(operand)]


def _part(owner: Operation | None) -> GemmPart | None:
    """The part that ends with an operation."""
    reduction: Reduction | None = None
    rope: nn.RopeOp | None = None
    scale: SSAValue | None = None
    if isinstance(owner, ReduceScatterOp | AllReduceOp):
        reduction = owner
        owner = _owner(reduction.inputs[0])
    if isinstance(owner, nn.RopeOp):
        rope = owner
        owner = _owner(owner.input)
    if isinstance(owner, nn.ScaleRowsOp):
        scale = owner.scale
        owner = _owner(owner.input)
    if not isinstance(owner, nn.LinearOp) or (rope is not None and reduction is None):
        return None
    return GemmPart(owner, scale, rope, reduction)


def _owner(value: SSAValue) -> Operation | None:
    if isinstance(value, BlockArgument) or not isinstance(value.owner, Operation):
        return None
    return value.owner


def fused_problem(
    launch: LaunchOp, rates: DeviceRates, gather: AllGatherOp | None = None
) -> FusedProblem:
    """The numbers by which a fused launch is scheduled, or one that pulled by ``gather``, too."""
    parts = gemm_parts(launch)
    mesh = mesh_of(launch)
    gather = pulled(launch) or gather
    gemm = problem_of(launch)
    assert isinstance(gemm, GemmProblem)
    pushes = [part for part in parts if part.reduction is not None]
    rate, latency_s = rates.hbm_rate, 0.0
    if gather is not None:
        rate, latency_s = _link(mesh, gather.axes.data, rates)
    push_rate, push_latency_s, push_ranks = rate, latency_s, 0
    if pushes:
        assert pushes[0].reduction is not None
        axes = pushes[0].reduction.axes.data
        push_rate, push_latency_s = _link(mesh, axes, rates)
        push_ranks = mesh.refs_size(axes)
        if gather is None:
            rate, latency_s = push_rate, push_latency_s
    return FusedProblem(
        gemm=gemm,
        pull_ranks=mesh.refs_size(gather.axes.data) if gather is not None else 0,
        push_ranks=push_ranks,
        scattered=tuple(part.received[2] if part.reduction is not None else 0 for part in parts),
        partial_bytes=max((element_bytes(tensor(part.partial)) for part in pushes), default=0),
        link_rate=rate,
        link_latency_s=latency_s,
        push_rate=push_rate,
        push_latency_s=push_latency_s,
        to_all=tuple(part.reduction is not None and part.scatter is None for part in parts),
        rows_of_sums=rows_of_sums(launch),
    )


def rows_of_sums(launch: LaunchOp) -> SumRows:
    """Which rows of the sums are made at once: those of a tile; whole rows, for a sum over their
    columns; or single ones, for every row has a place of its own."""
    if any(isinstance(op, nn.SumSquaresOp) for op in launch.block.ops):
        return SumRows.WHOLE
    if any(isinstance(op, nn.AppendOp) for op in launch.block.ops):
        return SumRows.SINGLE
    return SumRows.TILE


def _link(mesh: Mesh, axes: Sequence[AxisRef], rates: DeviceRates) -> tuple[float, float]:
    """Bytes per second of a device, and latency, of the links that a group crosses."""
    link = rates.links.get(mesh.link_class(tuple(axes)) or "")
    if link is None:
        return rates.hbm_rate, 0.0
    return link.bytes_per_s * link.per_device, link.latency_s


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
    extent = global_shape(tensor(whole))[dim]
    groups = mesh.groups(op.axes.data)
    members = {device: group for group in groups for device in group}
    coords = list(mesh.devices())
    wholes, parts = (mesh.device_ranks(found.dims[dim].axes) for found in (outer, inner))
    found: dict[tuple[int, int], int] = {}
    for device in range(mesh.size):
        for member in members[device]:
            key = wholes[device], parts[member]
            if key in found:
                continue
            held = outer.global_indices(dim, extent, coords[device])
            wanted = inner.global_indices(dim, extent, coords[member])
            first = int(np.searchsorted(held, int(wanted[0]))) if wanted.size else 0
            if not np.array_equal(held[first : first + wanted.size], wanted):
                return None
            found[key] = first
    return tuple(
        tuple(found[wholes[device], parts[member]] for member in members[device])
        for device in range(mesh.size)
    )
