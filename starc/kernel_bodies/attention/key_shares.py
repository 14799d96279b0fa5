"""Attention of workgroups that take a task each, or a share of its keys; shares merged in order.

A task is a sequence and the query heads of one KV head (or some of them); its queries are the rows
of one tile, row = position * group + head. The keys that they see are shared out among some
workgroups; the first one merges their states, or each the rows of a part of the tile, or a second
launch does. ``nn.partial_attention`` stores maximum, sum and unnormalised output of the keys that
the device holds. A sink is merged in when the output is normalised, once.
"""

from __future__ import annotations

from starc.core.quasi_affine.expressions import Const, Expression
from starc.core.tiling import Slice, slice_rows
from starc.dialects.kernel_problems import attention_of
from starc.kernel_bodies.attention.extents import Task, check_written, extents_of, locate
from starc.kernel_bodies.attention.key_loops import KeyLoops, Queries
from starc.kernel_bodies.attention.owner_merge import OwnerMerge
from starc.kernel_bodies.attention.state import Place, State, store_output
from starc.kernel_bodies.body import Body, Template
from starc.kernel_bodies.context import WORKGROUP, LaunchContext


class KeyShares:
    """The launch being lowered."""

    def __init__(self, context: LaunchContext) -> None:
        self.context = context
        self.op = attention_of(context.launch)
        self.shape = extents_of(context, self.op)
        self.loops = KeyLoops(context, self.op, self.shape)
        check_written(context, self.shape)
        self.owners = OwnerMerge.of(context, self.shape.positions, self.shape.row_tiles)

    def lower(self) -> list[list[Template]]:
        """The templates of all launches that it takes."""
        templates = [[self._attend()]]
        if self.loops.meets_before:
            templates.insert(0, [self.loops.meet()])
        if self.context.combine == "kernel":
            templates.append([self._merge_launch()])
        owners = self.owners
        if owners is not None and owners.is_apart:
            templates.append([owners.owners()])
        elif owners is not None:
            templates[-1].append(owners.owners())
        return templates

    # Workgroups that share a task

    def _attend(self) -> Template:
        context, shape, split = self.context, self.shape, self.context.split
        body = context.body(self.op)
        total = shape.tasks * shape.row_tiles
        number: Expression = WORKGROUP
        share: Expression | None = None
        if split > 1:
            share = body.index("share", WORKGROUP // total)
            number = WORKGROUP % total
        task = locate(body, shape, number)
        q = context.buffer(self.op.query)
        place = Place(task.batch, task.position, task.head, shape.positions, shape.group)
        tile = body.tile("q", shape.rows, shape.head_dim, q.element_type, register=True)
        body.load(tile, q, place.starts(shape.head_dim), place.extents(shape.head_dim))
        state = State.new(body, shape.rows, shape.head_dim).fill(body)
        waits = self.loops.visit(body, Queries(task, share, tile, state))
        if context.combine is None:
            self._finish(body, state, place)
            return context.template(body, 0, total, waits=waits)
        if context.combine == "kernel":
            self._store_share(body, task.number, Const(0) if share is None else share, state)
            return context.template(body, 0, total * split, waits=waits)
        assert share is not None
        counter = context.counter("shares", total)
        if context.launch.combine_rows is not None:
            self._merge_by_all(body, task, share, state, counter)
        else:
            self._merge_by_first(body, task, share, state, place, counter)
        return context.template(body, 0, total * split, waits=True)

    def _merge_by_all(
        self, body: Body, task: Task, share: Expression, state: State, counter: str
    ) -> None:
        """Every share stores its state; the first ones merge a part of the rows each."""
        split, piece = self.context.split, self._piece()
        if piece.count > split:
            raise ValueError(f"{split} shares do not own {piece.count} parts of a tile")
        self._store_share(body, task.number, share, state)
        body.signal(counter, task.number)
        with body.when(piece.count - 1 - share):
            body.wait(counter, task.number, split)
            self._merge_piece(body, task, body.index("first", share * piece.rows))

    def _merge_by_first(
        self,
        body: Body,
        task: Task,
        share: Expression,
        state: State,
        place: Place,
        counter: str,
    ) -> None:
        """The first share keeps its state and merges those that the others store."""
        others = self.context.split - 1
        with body.when(-share):
            body.wait(counter, task.number, others)
            rows = self.shape.rows
            self._merge_shares(body, rows, (0, others), (task.number, Const(0)), state)
            self._finish(body, state, place)
        with body.when(share - 1):
            self._store_share(body, task.number, share - 1, state)
            body.signal(counter, task.number)

    def _merge_launch(self) -> Template:
        """The template that merges the shares of some rows of a task."""
        context, shape = self.context, self.shape
        body = context.body(self.op)
        piece = self._piece()
        task = locate(body, shape, body.index("whole", WORKGROUP // piece.count))
        first = body.index("first", WORKGROUP % piece.count * piece.rows)
        self._merge_piece(body, task, first)
        return context.template(body, 0, shape.tasks * piece.count, suffix=".merge")

    def _piece(self) -> Slice:
        """The rows of a task that one workgroup merges."""
        limit = self.context.launch.integer("combine_rows", self.shape.rows)
        return slice_rows(self.shape.positions, self.shape.group, limit)

    def _merge_piece(self, body: Body, task: Task, first: Expression) -> None:
        """Merges all shares of the rows of a task from ``first`` on."""
        shape, piece = self.shape, self._piece()
        state = State.new(body, piece.rows, shape.head_dim).fill(body)
        shares = (0, self.context.split)
        self._merge_shares(body, piece.rows, shares, (task.number, first), state)
        position = task.position + first // shape.group
        head = task.head + first % shape.group
        self._finish(body, state, Place(task.batch, position, head, piece.outer, piece.inner))

    def _store_share(self, body: Body, slot: Expression, share: Expression, state: State) -> None:
        m, l, o = self.context.workspace[:3]  # noqa: E741
        body.store(state.m, m, [share, slot, 0], [1, 1, self.shape.rows])
        body.store(state.l, l, [share, slot, 0], [1, 1, self.shape.rows])
        body.store(state.o, o, [share, slot, 0, 0])

    def _merge_shares(
        self,
        body: Body,
        rows: int,
        shares: tuple[int, int],
        place: tuple[Expression, Expression],
        state: State,
    ) -> None:
        """Merges shares ``first .. end`` into the state, in order; ``place`` is the slot of the
        workspace and the first of its rows."""
        m, l, o = self.context.workspace[:3]  # noqa: E741
        slot, first = place
        d = o.shape[-1]
        stages = self.context.launch.integer("combine_stages", 2)
        with body.loop("other", *shares, stages=stages) as other:
            other_m = body.tile("other_m", rows, 1, register=True)
            other_l = body.tile("other_l", rows, 1, register=True)
            other_o = body.tile("other_o", rows, d, register=True)
            body.load(other_m, m, [other, slot, first], [1, 1, rows], acquire=True)
            body.load(other_l, l, [other, slot, first], [1, 1, rows], acquire=True)
            body.load(other_o, o, [other, slot, first, 0], acquire=True)
            packed = body.tile("packed", rows, d + 2, register=True)
            body.vector("lse_pack", packed, other_m, other_l, other_o)
            body.vector("lse_merge", state.o, state.m, state.l, packed)

    # The end

    def _finish(self, body: Body, state: State, place: Place) -> None:
        """Sends the records to the owners of heads, or stores what the launch yields."""
        if self.owners is not None:
            self.owners.send(body, state, place)
            return
        d = self.shape.head_dim
        store_output(self.context, body, self.op, state, place, d, register=True)
