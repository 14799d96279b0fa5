"""What a launch computes, as the numbers that schedules and costs are found by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from starc.core.kernel_schedules.attention_problem import AttentionProblem
from starc.core.kernel_schedules.gemm_problem import GemmProblem
from starc.core.kernel_schedules.row_schedules import PieceSchedule, RowProblem, choose_pieces
from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.core.sharding.shard_map import Cyclic
from starc.core.vector_functions.table import BY_NAME
from starc.dialects import nn
from starc.dialects.collective import (
    AllGatherOp,
    AllReduceOp,
    CollectiveOp,
    ReduceScatterOp,
)
from starc.dialects.collective_payload import payload_bytes
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_buffers import element_bytes
from starc.dialects.kernel_kinds import LaunchKind
from starc.dialects.sharding import encoding_of, global_shape, mesh_of

AnyTensor: TypeAlias = TensorType[Attribute]


@dataclass(frozen=True)
class CollectiveProblem:
    """A collective on one device: a payload [batch, query, columns] of ``element_bytes`` that is
    exchanged among ``ranks`` devices. ``levels`` are the extents of the group and their link
    classes, outer to inner.

    The payload is what one device holds in full: the operand of a reduction, the result of a
    gather. ``chunks`` is in how many parts the cut value is seen: the payload of an all-reduce in
    one part a rank; the shard of a gather or scatter in one. ``refs`` are the axes of the group on
    ``mesh``. A launch of several collectives has the problems of all in ``phases`` and is otherwise
    that of the first; they work at once on ``parts`` parts of the data.
    """

    operation: CollectiveKind
    batch: int
    query: int
    columns: int
    element_bytes: int
    ranks: int
    chunks: int
    payload_bytes: int
    levels: tuple[tuple[int, str], ...]
    axes: tuple[str, ...]
    algorithm: str
    transport: str
    rings: int
    operands: int
    mesh: Mesh
    refs: tuple[AxisRef, ...]
    phases: tuple[CollectiveProblem, ...] = ()
    parts: int = 1


def pieces_of(problem: CollectiveProblem, workgroups: int) -> PieceSchedule:
    """How the payload is cut for a transport of at most so many workgroups."""
    return choose_pieces(
        problem.batch,
        problem.query,
        problem.columns,
        problem.element_bytes,
        problem.chunks,
        workgroups,
        problem.rings,
    )


Problem: TypeAlias = GemmProblem | AttentionProblem | RowProblem | CollectiveProblem


def tensor(value: SSAValue) -> AnyTensor:
    """The type of a tensor value."""
    return cast(AnyTensor, value.type)


def view(type: AnyTensor) -> tuple[int, int, int]:
    """A tensor's extents as [batch, query, columns]; missing leading dimensions are 1."""
    shape = type.get_shape()
    if len(shape) > 3:
        raise ValueError(f"{type} has more than three dimensions")
    batch, query, columns = (1,) * (3 - len(shape)) + shape
    return batch, query, columns


def tensor_bytes(type: AnyTensor) -> int:
    """Bytes of a tensor's elements."""
    total = element_bytes(type)
    for extent in type.get_shape():
        total *= extent
    return total


def problem_of(launch: LaunchOp) -> Problem:
    """The problem of a launch. Raises ``ValueError`` for a body that no kernel is known for."""
    match launch.kind.data:
        case LaunchKind.GEMM:
            return _gemm(launch)
        case LaunchKind.ATTENTION:
            return _attention(launch)
        case LaunchKind.COLLECTIVE:
            return _collective(launch)
        case _:
            return _rows(launch)


def ops_of(launch: LaunchOp) -> list[Operation]:
    """The operations of a launch's body, without its terminator."""
    return [op for op in launch.block.ops if op is not launch.block.last_op]


def _gemm(launch: LaunchOp) -> GemmProblem:
    linears = [op for op in ops_of(launch) if isinstance(op, nn.LinearOp)]
    type = tensor(linears[0].input)
    batch, query, k = view(type)
    return GemmProblem(
        batch=batch,
        query=query,
        columns=tuple(tensor(op.weight).get_shape()[1] for op in linears),
        k=k,
        dtype=str(type.element_type),
        element_bytes=element_bytes(type),
    )


def attention_of(launch: LaunchOp) -> nn.AttentionOp | nn.PartialAttentionOp:
    """The attention of an attention launch, whole or partial. Raises ``ValueError`` for a body
    without one."""
    for op in launch.block.ops:
        if isinstance(op, nn.AttentionOp | nn.PartialAttentionOp):
            return op
    raise ValueError("an attention launch yields the results of nn.attention, whole or partial")


def gather_of(op: nn.AttentionOp | nn.PartialAttentionOp) -> AllGatherOp | None:
    """The all-gather of the keys in the body of an attention launch that reads the caches of
    peers."""
    owner = op.key.owner
    return owner if isinstance(owner, AllGatherOp) else None


def _attention(launch: LaunchOp) -> AttentionProblem:
    op = attention_of(launch)
    queries, keys = tensor(op.query), tensor(op.key)
    batch, query, features = queries.get_shape()
    _, kv_heads, _, head_dim = keys.get_shape()
    sharding = encoding_of(keys, launch)
    ranks = 1 if sharding is None else sharding.ranks(2)
    rows = encoding_of(queries, launch)
    gather = gather_of(op)
    sources: tuple[tuple[int, str], ...] = ()
    if gather is not None:
        mesh, axes = mesh_of(launch), gather.axes.data
        sources = tuple((mesh.ref_size(axis), mesh.link_class((axis,)) or "") for axis in axes)
    dealt = None if sharding is None else sharding.dims[2].map
    return AttentionProblem(
        batch=batch,
        query=query,
        kv_heads=kv_heads,
        group=features // (head_dim * kv_heads),
        head_dim=head_dim,
        start=op.start.value.data,
        keys=global_shape(keys)[2],
        causal=op.causal is not None,
        dtype=str(queries.element_type),
        element_bytes=element_bytes(queries),
        cache_element_bytes=element_bytes(tensor(op.key)),
        window=None if op.window is None else op.window.value.data,
        keep=0 if op.keep is None else op.keep.value.data,
        ranks=ranks,
        block=dealt.block if isinstance(dealt, Cyclic) and ranks > 1 else 1,
        sources=sources,
        partial_bytes=element_bytes(tensor(op.o))
        if isinstance(op, nn.PartialAttentionOp)
        else None,
        row_ranks=1 if rows is None or launch.ring is None else rows.ranks(1),
    )


# Lane-operations an element, to first order. Of elementwise operations that are not here, those of
# their vector function.
_LANE_OPERATIONS = {
    "nn.silu": 4,
    "nn.gelu": 8,
    "nn.rope": 4,
    "nn.append": 1,
    "nn.rms_norm": 4,
    "nn.sum_squares": 2,
    "nn.norm_scale": 12,
    "nn.scale_columns": 1,
    "nn.scale_rows": 1,
    "nn.lse_finish": 5,
    "nn.embedding": 1,
    "nn.last_token": 1,
}


def _lane_operations(op: Operation) -> int:
    """Lane-operations an element."""
    default = BY_NAME[op.FUNCTION].lane_operations if isinstance(op, nn.ElementwiseOp) else 1
    return _LANE_OPERATIONS.get(op.name, default)


def summed_of(launch: LaunchOp) -> AnyTensor:
    """The type of the rows that a norm launch needs as a whole. Raises ``ValueError`` for a body
    without a norm or a sum of squares."""
    for op in launch.block.ops:
        if isinstance(op, nn.NormOp | nn.SumSquaresOp):
            return tensor(op.input)
    raise ValueError("a norm launch has a norm or a sum of squares")


def _rows(launch: LaunchOp) -> RowProblem:
    ops = ops_of(launch)
    unit, columns, lanes = 1, 1, 0
    for op in ops:
        type = tensor(op.operands[0])
        if isinstance(op, nn.AppendOp):
            unit = max(unit, tensor(op.result).get_shape()[3])
        elif isinstance(op, nn.RopeOp | nn.LseFinishOp):
            unit = max(unit, op.head_dim.value.data)
        if isinstance(op, nn.EmbeddingOp | nn.LastTokenOp | nn.LseFinishOp):
            type = tensor(op.result)
        columns = max(columns, type.get_shape()[-1])
        lanes += _lane_operations(op) * tensor_bytes(type) // element_bytes(type)
    first, is_norm = ops[0], launch.kind.data == LaunchKind.NORM
    if is_norm:
        type = summed_of(launch)
    elif isinstance(first, nn.EmbeddingOp | nn.LastTokenOp | nn.LseFinishOp):
        type = tensor(first.results[0])
    else:
        type = tensor(first.operands[0])
    batch, query, _ = view(type)
    read, written = moved_bytes(launch)
    return RowProblem(
        batch=batch,
        query=query,
        columns=columns,
        element_bytes=element_bytes(type),
        unit=unit,
        one_unit=launch.kind.data == LaunchKind.APPEND,
        whole_rows=is_norm,
        one_pass=launch.kind.data == LaunchKind.NORM
        and not any(isinstance(op, nn.NormOp) for op in ops),
        read_bytes=read,
        written_bytes=written,
        lane_operations=lanes,
    )


def moved_bytes(launch: LaunchOp) -> tuple[int, int]:
    """Bytes that a launch must read and write, each operand and result once: of a cache the rows
    that are seen or appended, of an embedding table nothing, for the rows that it looks up may be
    one, or other devices'."""
    read = written = 0
    ops = ops_of(launch)
    if launch.kind.data == LaunchKind.ATTENTION:
        problem = _attention(launch)
        results = sum(tensor_bytes(tensor(value)) for value in launch.yielded)
        return problem.compulsory_bytes - results, results
    tables = {op.table for op in ops if isinstance(op, nn.EmbeddingOp)}
    tails = {op.input for op in ops if isinstance(op, nn.LastTokenOp)}
    for argument in launch.block.args:
        if argument in tables or argument in tails:
            continue
        read += tensor_bytes(tensor(argument))
    for op in ops:
        if isinstance(op, nn.LastTokenOp):
            read += tensor_bytes(tensor(op.result))
    for value in launch.yielded:
        owner = value.owner
        if isinstance(owner, nn.AppendOp):
            # New rows, in the element type of the cache.
            new, cache = tensor(owner.input), tensor(value)
            written += tensor_bytes(new) // element_bytes(new) * element_bytes(cache)
        else:
            written += tensor_bytes(tensor(value))
    return read, written


def _collective(launch: LaunchOp) -> CollectiveProblem:
    ops = [op for op in launch.block.ops if isinstance(op, CollectiveOp)]
    problems = [_exchange(op, mesh_of(launch)) for op in ops]
    if len(problems) == 1:
        return problems[0]
    return replace(problems[0], phases=tuple(problems), parts=launch.integer("chunks"))


def exchanges_of(launch: LaunchOp) -> tuple[CollectiveProblem, ...]:
    """The collectives that a launch holds beside, or instead of, what it computes."""
    ops = [op for op in launch.block.ops if isinstance(op, CollectiveOp)]
    return tuple(_exchange(op, mesh_of(launch)) for op in ops)


def _exchange(op: CollectiveOp, mesh: Mesh) -> CollectiveProblem:
    before, after = tensor(op.inputs[0]), tensor(op.outputs[0])
    axes = op.axes.data
    ranks = mesh.refs_size(axes)
    cut = after if isinstance(op, ReduceScatterOp) else before
    shape = (1, 1, *cut.get_shape())
    batch, query, columns = prod(shape[:-2]), *shape[-2:]
    transport, algorithm = op.transport, op.algorithm
    return CollectiveProblem(
        operation=op.KIND,
        batch=batch,
        query=query,
        columns=columns,
        element_bytes=element_bytes(cut),
        ranks=ranks,
        chunks=ranks if isinstance(op, AllReduceOp) else 1,
        payload_bytes=payload_bytes(op),
        levels=tuple((mesh.ref_size(axis), mesh.link_class((axis,)) or "") for axis in axes),
        axes=tuple(str(axis) for axis in axes),
        algorithm=algorithm.data if algorithm is not None else "ring",
        transport=transport.data if transport is not None else "bulk",
        rings=len(op.rings) if op.rings is not None else 1,
        operands=len(op.inputs),
        mesh=mesh,
        refs=axes,
    )
