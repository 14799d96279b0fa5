"""The state of a tile of queries while keys go by, and what becomes of it behind the last of them.

Rows of a tile are query positions x query heads of one KV head, row = position * heads + head.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from starc.core.quasi_affine.expressions import Expression
from starc.dialects import nn
from starc.kernel_bodies.body import Body, Buffer
from starc.kernel_bodies.context import LaunchContext


@dataclass(frozen=True)
class State:
    """The running maximum, sum and unnormalised output of a tile of queries."""

    m: SSAValue
    l: SSAValue  # noqa: E741
    o: SSAValue

    @classmethod
    def new(
        cls, body: Body, rows: int, head_dim: int, *, register: bool = True, prefix: str = ""
    ) -> State:
        """Tiles for the state of so many rows."""
        return cls(
            body.tile(f"{prefix}m", rows, 1, register=register),
            body.tile(f"{prefix}l", rows, 1, register=register),
            body.tile(f"{prefix}o", rows, head_dim, register=register),
        )

    def fill(self, body: Body) -> State:
        """The identity of the merge: m = -inf, l = 0, o = 0."""
        body.vector("fill_neg_inf", self.m)
        body.vector("zero", self.l)
        body.vector("zero", self.o)
        return self


@dataclass(frozen=True)
class Place:
    """Where some queries of a task stand: a box of positions and query heads."""

    batch: Expression
    position: Expression
    head: Expression
    positions: int
    heads: int

    @property
    def rows(self) -> int:
        return self.positions * self.heads

    def starts(self, width: int = 1) -> list[Expression | int]:
        return [self.batch, self.position, self.head * width]

    def extents(self, width: int = 1) -> list[int]:
        return [1, self.positions, self.heads * width]


def store_result(
    context: LaunchContext,
    body: Body,
    state: State,
    sink: SSAValue | None,
    place: Place,
    output: Buffer,
    head_dim: int,
    *,
    register: bool,
) -> None:
    """Divides the output of some queries by the sum, into which the logits of a ``sink`` of their
    heads are merged, and stores it."""
    result = body.tile("result", place.rows, head_dim, output.element_type, register=register)
    if sink is None:
        body.vector("lse_finish", result, state.l, state.o)
    else:
        logits = context.buffer(sink)
        tile = body.tile("sink", place.heads, 1, logits.element_type, register=register)
        body.load(tile, logits, [place.head], [place.heads])
        body.vector("lse_finish_sink", result, state.l, state.o, state.m, tile)
    body.store(result, output, place.starts(head_dim), place.extents(head_dim))


def store_output(
    context: LaunchContext,
    body: Body,
    op: nn.AttentionOp | nn.PartialAttentionOp,
    state: State,
    place: Place,
    head_dim: int,
    *,
    register: bool,
) -> None:
    """Stores what an attention yields of some queries: a partial result as it is."""
    outputs = dict(context.outputs)
    if isinstance(op, nn.AttentionOp):
        output = outputs[op.result]
        store_result(context, body, state, op.sink, place, output, head_dim, register=register)
        return
    parts = ((op.m, state.m, 1), (op.l, state.l, 1), (op.o, state.o, head_dim))
    for value, tile, width in parts:
        body.store(tile, outputs[value], place.starts(width), place.extents(width))
