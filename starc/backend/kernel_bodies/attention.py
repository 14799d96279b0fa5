"""Attention: a loop over key tiles with online softmax, shares of the keys merged in order.

A task is a sequence and the query heads of one KV head (or some of them); its queries are the rows
of one tile, row = position * group + head. Key tiles run up to the last position that a query of
the tile may see. Every instruction works on whole tiles: what is beyond the cache or masked does
not count, because scores are set to -inf by position and loads leave zeros outside the buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from xdsl.ir import BlockArgument, SSAValue

from starc.backend.kernel_bodies.body import Body, Buffer, Template
from starc.backend.kernel_bodies.context import WORKGROUP, LaunchContext, slice_rows, tensor_shape
from starc.core.quasi_affine import Const, Expression, Table, minimum
from starc.core.tiling import ceil_div
from starc.dialects import nn


@dataclass(frozen=True)
class _Shape:
    """The extents of an attention launch on one device, and its tiles."""

    batch: int
    query: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    start: int
    causal: bool
    keys: int  # of a key tile
    group: int  # query heads of a task
    positions: int  # query positions of a row tile
    order: tuple[int, ...] | None  # row tiles as they start; None: the last first

    @property
    def row_tiles(self) -> int:
        return ceil_div(self.query, self.positions)

    @property
    def rows(self) -> int:
        return self.positions * self.group

    @property
    def tasks(self) -> int:
        return self.batch * self.heads // self.group

    @property
    def key_limit(self) -> int:
        """Keys that are written: the last query's position and those before."""
        return min(self.context, self.start + self.query)

    @property
    def steps(self) -> int:
        return ceil_div(self.key_limit, self.keys)


@dataclass(frozen=True)
class _Task:
    """Where a workgroup works."""

    number: Expression  # of the task
    row_tile: Expression
    batch: Expression
    head: Expression  # first query head
    kv_head: Expression
    position: Expression  # first query position


@dataclass(frozen=True)
class _State:
    """The running maximum, sum and unnormalised output of a tile of queries."""

    m: SSAValue
    l: SSAValue  # noqa: E741
    o: SSAValue


def lower_attention(context: LaunchContext) -> list[list[Template]]:
    """The templates of the launch and, where a second launch merges shares, of that."""
    ((value, output),) = context.outputs
    op = _attention(value)
    shape = _shape(context, op)
    templates = [[_attend(context, op, shape, output)]]
    if context.combine == "kernel":
        templates.append([_merge_launch(context, op, shape, output)])
    return templates


def attention_facts(context: LaunchContext) -> dict[str, int]:
    """FLOP of the visible pairs, and the extents that decide the time."""
    ((value, _),) = context.outputs
    shape = _shape(context, _attention(value))
    # Queries in turn see a key more each, until they see the whole context.
    growing = min(shape.query, shape.context - shape.start) if shape.causal else 0
    seen = growing * shape.start + growing * (growing + 1) // 2
    seen += (shape.query - growing) * shape.context
    pairs = shape.batch * shape.heads * seen
    return {
        "tasks": shape.tasks,
        "keys": shape.key_limit,
        "head_dim": shape.head_dim,
        "flops": 4 * shape.head_dim * pairs,
    }


def _attention(value: SSAValue) -> nn.AttentionOp:
    if isinstance(value, BlockArgument) or not isinstance(value.owner, nn.AttentionOp):
        raise ValueError("an attention launch yields the result of nn.attention")
    return value.owner


def _shape(context: LaunchContext, op: nn.AttentionOp) -> _Shape:
    batch, query, features = tensor_shape(op.query)
    _, kv_heads, positions, head_dim = tensor_shape(op.key)
    rows, keys, _ = context.tile
    group = context.launch.integer("group")
    written = op.start.value.data + query
    if written < positions and written % keys:
        raise ValueError(
            f"launch @{context.name}: a tile of {keys} keys would read cache rows from {written} "
            "on, which nobody has written"
        )
    positions_of_tile = min(query, max(1, rows // group))
    return _Shape(
        batch=batch,
        query=query,
        heads=features // head_dim,
        kv_heads=kv_heads,
        head_dim=head_dim,
        context=positions,
        start=op.start.value.data,
        causal=op.causal is not None,
        keys=keys,
        group=group,
        positions=positions_of_tile,
        order=context.launch.integers("order") or None,
    )


def _locate(body: Body, shape: _Shape, number: Expression) -> _Task:
    """The task and row tile of the ``number``-th workgroup of a share: later row tiles see more
    keys, so the longest start first; see
    ``row_tile_order``."""
    task, row_tile = number, Const(0)
    if shape.row_tiles > 1:
        task = number % shape.tasks
        place = number // shape.tasks
        if shape.order is None:
            row_tile = body.index("row_tile", shape.row_tiles - 1 - place)
        else:
            row_tile = body.index("row_tile", Table(shape.order, place))
    task = body.index("task", task)
    groups = shape.heads // shape.group
    batch = body.index("batch", task // groups) if shape.batch > 1 else Const(0)
    head = body.index("head", task % groups * shape.group) if groups > 1 else Const(0)
    shared = shape.heads // shape.kv_heads
    kv_head = body.index("kv_head", head // shared) if shape.kv_heads > 1 else Const(0)
    return _Task(task, row_tile, batch, head, kv_head, row_tile * shape.positions)


def _initial(body: Body, shape: _Shape, rows: int) -> _State:
    """The identity of the merge: m = -inf, l = 0, o = 0."""
    m = body.tile("m", rows, 1, register=True)
    l = body.tile("l", rows, 1, register=True)  # noqa: E741
    o = body.tile("o", rows, shape.head_dim, register=True)
    body.vector("fill_neg_inf", m)
    body.vector("zero", l)
    body.vector("zero", o)
    return _State(m, l, o)


def _attend(context: LaunchContext, op: nn.AttentionOp, shape: _Shape, output: Buffer) -> Template:
    body = context.body(op)
    split = context.split
    total = shape.tasks * shape.row_tiles
    number: Expression = WORKGROUP
    share: Expression | None = None
    if split > 1:
        share = body.index("share", WORKGROUP // total)
        number = WORKGROUP % total
    task = _locate(body, shape, number)
    q, k, v = (context.buffer(value) for value in (op.query, op.key, op.value))
    d = shape.head_dim
    queries = body.tile("q", shape.rows, d, q.element_type, register=True)
    start = [task.batch, task.position, task.head * d]
    extents = [1, shape.positions, shape.group * d]
    body.load(queries, q, start, extents)
    state = _initial(body, shape, shape.rows)
    # A query at position p sees keys 0 .. p; without a mask all see what is written.
    first_query: Expression = task.position + shape.start
    last: Expression = Const(shape.steps)
    if not shape.causal:
        first_query = Const(shape.key_limit)
    elif shape.row_tiles > 1:
        end = minimum(task.position + (shape.start + shape.positions), shape.key_limit)
        last = body.index("steps", (end + (shape.keys - 1)) // shape.keys)
    lower: Expression = Const(0)
    if share is not None:
        width = ceil_div(shape.steps, split)
        lower, last = share * width, minimum(share * width + width, last)
    with body.loop("j", lower, last, stages=context.launch.integer("stages")) as j:
        key = body.tile("k", shape.keys, d, k.element_type, register=False)
        value = body.tile("v", shape.keys, d, v.element_type, register=False)
        scores = body.tile("s", shape.rows, shape.keys, register=True)
        weights = body.tile("p", shape.rows, shape.keys, v.element_type, register=True)
        correction = body.tile("correction", shape.rows, 1, register=True)
        body.load(key, k, [task.batch, task.kv_head, j * shape.keys, 0])
        body.vector("zero", scores)
        body.matrix(scores, queries, key, transpose_b=True)
        body.vector(
            "softmax_step",
            weights,
            scores,
            state.m,
            state.l,
            correction,
            params=[
                op.scale.value.data,
                first_query,
                shape.group,
                j * shape.keys,
                shape.key_limit,
            ],
        )
        body.vector("rescale", state.o, correction)
        body.load(value, v, [task.batch, task.kv_head, j * shape.keys, 0])
        body.matrix(state.o, weights, value)
    if share is None:
        _finish(body, state, output, [*start], extents, shape.rows)
        return context.template(body, 0, total)
    slot = task.number
    if context.combine == "kernel":
        _store_share(context, body, shape, slot, share, state)
        return context.template(body, 0, total * split)
    counter = context.counter("shares", total)
    with body.when(-share):
        body.wait(counter, slot, split - 1)
        _merge_shares(context, body, shape.rows, (0, split - 1), (slot, Const(0)), state)
        _finish(body, state, output, [*start], extents, shape.rows)
    with body.when(share - 1):
        _store_share(context, body, shape, slot, share - 1, state)
        body.signal(counter, slot)
    return context.template(body, 0, total * split, waits=True)


def _finish(
    body: Body,
    state: _State,
    output: Buffer,
    start: Sequence[Expression | int],
    extents: Sequence[int],
    rows: int,
) -> None:
    """Divides by the sum and stores."""
    d = prod(extents) // rows
    result = body.tile("result", rows, d, output.element_type, register=True)
    body.vector("lse_finish", result, state.l, state.o)
    body.store(result, output, start, extents)


def _store_share(
    context: LaunchContext,
    body: Body,
    shape: _Shape,
    slot: Expression,
    share: Expression,
    state: _State,
) -> None:
    m, l, o = context.workspace  # noqa: E741
    body.store(state.m, m, [share, slot, 0], [1, 1, shape.rows])
    body.store(state.l, l, [share, slot, 0], [1, 1, shape.rows])
    body.store(state.o, o, [share, slot, 0, 0])


def _merge_shares(
    context: LaunchContext,
    body: Body,
    rows: int,
    shares: tuple[int, int],
    place: tuple[Expression, Expression],
    state: _State,
) -> None:
    """Merges shares ``first .. end`` into the state, in order; ``place`` is the slot of the
    workspace and the first of its rows."""
    m, l, o = context.workspace  # noqa: E741
    slot, first = place
    d = o.shape[-1]
    with body.loop("other", *shares, stages=context.launch.integer("combine_stages", 2)) as other:
        other_m = body.tile("other_m", rows, 1, register=True)
        other_l = body.tile("other_l", rows, 1, register=True)
        other_o = body.tile("other_o", rows, d, register=True)
        body.load(other_m, m, [other, slot, first], [1, 1, rows], acquire=True)
        body.load(other_l, l, [other, slot, first], [1, 1, rows], acquire=True)
        body.load(other_o, o, [other, slot, first, 0], acquire=True)
        packed = body.tile("packed", rows, d + 2, register=True)
        body.vector("lse_pack", packed, other_m, other_l, other_o)
        body.vector("lse_merge", state.o, state.m, state.l, packed)


def _merge_launch(
    context: LaunchContext, op: nn.AttentionOp, shape: _Shape, output: Buffer
) -> Template:
    """The template that merges the shares of some rows of a task."""
    body = context.body(op)
    limit = context.launch.integer("combine_rows", shape.rows)
    piece = slice_rows(shape.positions, shape.group, limit)
    task = _locate(body, shape, body.index("whole", WORKGROUP // piece.count))
    first = body.index("first", WORKGROUP % piece.count * piece.rows)
    state = _initial(body, shape, piece.rows)
    _merge_shares(context, body, piece.rows, (0, context.split), (task.number, first), state)
    d = shape.head_dim
    start = [
        task.batch,
        task.position + first // shape.group,
        (task.head + first % shape.group) * d,
    ]
    _finish(body, state, output, start, [1, piece.outer, piece.inner * d], piece.rows)
    return context.template(body, 0, shape.tasks * piece.count, suffix=".merge")
