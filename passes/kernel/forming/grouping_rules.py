"""Which operations one kernel can compute."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from starc.dialects import nn
from starc.dialects.collective import CollectiveOp
from starc.dialects.kernel_kinds import LaunchKind

IN_ROWS: Final = (
    nn.ElementwiseOp,
    nn.NormScaleOp,
    nn.ScaleColumnsOp,
    nn.ScaleRowsOp,
)
"""Elementwise operations that may stand next to a sum over whole rows."""

ELEMENTWISE: Final = (nn.RopeOp, nn.AppendOp, *IN_ROWS)
MOST_JOINED: Final = 16
"""Operations of a launch of elementwise ones: its kernel has to fit the limit of 64 records."""


@dataclass
class KernelGroup:
    """Operations that become one launch; ``sources`` are the kernels whose results they read."""

    number: int
    kind: LaunchKind
    ops: list[Operation]
    sources: set[int] = field(default_factory=set[int])
    name: str = ""

    @property
    def results(self) -> list[SSAValue]:
        """What operations outside use, and caches that are appended to."""
        members = set(self.ops)
        return [
            result
            for op in self.ops
            for result in op.results
            if isinstance(op, nn.AppendOp)
            or any(use.operation not in members for use in result.uses)
        ]


def own_kind(op: Operation) -> LaunchKind:
    if isinstance(op, nn.NormOp):
        return LaunchKind.NORM
    if isinstance(op, nn.AttentionOp | nn.PartialAttentionOp):
        return LaunchKind.ATTENTION
    if isinstance(op, nn.EmbeddingOp | nn.LastTokenOp):
        return LaunchKind.EMBEDDING
    if isinstance(op, nn.LseFinishOp):
        return LaunchKind.ELEMENTWISE
    if isinstance(op, CollectiveOp):
        return LaunchKind.COLLECTIVE
    raise ValueError(f"no kind of kernel runs {op.name}")


def rows_of(op: Operation) -> tuple[int, ...]:
    """Leading extents of the value that an elementwise operation works on."""
    type = op.operands[0].type
    assert isinstance(type, TensorType)
    return type.get_shape()[:-1]


def extents_of(op: Operation) -> tuple[int, ...]:
    """Extents of the value that an elementwise operation works on."""
    type = op.operands[0].type
    assert isinstance(type, TensorType)
    return type.get_shape()


def may_join_rows(op: Operation, kernel: KernelGroup) -> bool:
    """Whether an elementwise operation can be computed while a launch sums up rows: it works on
    the same rows and needs no sum before the end of its row."""
    sums = {member.results[0] for member in kernel.ops if isinstance(member, nn.SumSquaresOp)}
    known = {member.results[0] for member in kernel.ops if isinstance(member, nn.NormScaleOp)}
    if isinstance(op, nn.NormScaleOp):
        return op.input in sums
    return (
        isinstance(op, IN_ROWS)
        and extents_of(op) == extents_of(kernel.ops[0])
        and not any(operand in sums | known for operand in op.operands)
    )
