"""New keys or values go to their positions of a cache.

The cache is [batch, head, position, d], the new rows are [batch, position, head * d]. Where the
cache is split by positions a device stores the rows whose positions it holds: positions that follow
each other among those have local indices that do. New rows that are sharded as the cache is are
those, as many as the sequence has; of whole new rows the device's are taken one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.ir import SSAValue

from starc.core.quasi_affine.expressions import Const, Expression, minimum
from starc.core.tiling import RowTiling
from starc.dialects import nn
from starc.kernel_bodies.body import Body, Buffer, Template
from starc.kernel_bodies.context import (
    WORKGROUP,
    LaunchContext,
    Rows,
    tensor_shape,
)
from starc.kernel_bodies.rows.blocks import Block, operation, tile_count, tile_of
from starc.kernel_bodies.rows.elementwise import elementwise_part
from starc.kernel_bodies.shards import Shard, global_row, shard_of


def lower_append(context: LaunchContext) -> list[list[Template]]:
    """A head of a tile of rows at a time; parts that are not appends are elementwise."""
    templates: list[Template] = []
    for part, (value, output) in enumerate(context.outputs):
        op = operation(value)
        if not isinstance(op, nn.AppendOp):
            templates.append(elementwise_part(context, part, value, output))
            continue
        body = context.body(op)
        shape = tensor_shape(op.input)
        rows, column = tile_of(context, body, shape, WORKGROUP)
        append = _Append(context, body, op, output, rows, column)
        if shard_of(value, 2, context.mesh).is_whole:
            append.emit_whole()
        else:
            append.emit_sharded()
        templates.append(context.template(body, part, tile_count(context, shape)))
    return [templates]


@dataclass(frozen=True)
class _Append:
    """A tile of new rows, from ``column`` on, that goes to a cache."""

    context: LaunchContext
    body: Body
    op: nn.AppendOp
    cache: Buffer
    rows: Rows
    column: Expression

    @property
    def start(self) -> int:
        """The position of the first new row."""
        return self.op.start.value.data

    @property
    def d(self) -> int:
        return self.cache.shape[3]

    @property
    def heads(self) -> int:
        """Heads of the tile."""
        return max(1, self.context.tile[1] // self.d)

    def _head(self, rows: Rows, head: Expression) -> SSAValue:
        """A head of some rows."""
        return Block(self.context, self.body, rows, head * self.d, self.d).value(self.op.input)

    def emit_whole(self) -> None:
        """All rows to a cache of all positions."""
        rows, body, first = self.rows, self.body, self.column // self.d
        box = [rows.tiling.sequences, 1, rows.tiling.positions, self.d]

        def append(head: Expression) -> None:
            starts = [rows.sequence, head, rows.position + self.start, 0]
            body.store(self._head(rows, head), self.cache, starts, box)

        if self.heads == 1:
            append(body.index("head", first))
        else:
            with body.loop("h", 0, self.heads, stages=2) as h:
                append(first + h)

    def emit_sharded(self) -> None:
        """The rows whose positions this device holds, a sequence after the other, for in which
        local index they begin depends on the sequence. Raises ``ValueError`` for new rows that are
        sharded in another way than their positions."""
        body, op = self.body, self.op
        mesh = self.context.mesh
        held, new = shard_of(op.result, 2, mesh), shard_of(op.input, 1, mesh)
        if not new.is_whole:
            matching = held.map.window(self.start, new.extent, held.ranks, held.extent)
            if (new.map, new.ranks, new.rank) != (matching, held.ranks, held.rank):
                raise ValueError(
                    "new rows that are sharded must lie on the owners of their positions"
                )
        with body.each("b", self.rows.tiling.sequences) as b:
            sequence = self.rows.sequence + b
            row: Expression = Const(0)
            if held.is_rotated:
                row = body.index("global_row", global_row(op.result, 0, sequence, mesh))
            own = held.at_row(row)
            own = own.of_rank(body.index("rank", own.rank))
            if new.is_whole:
                self._some_rows(sequence, own, new.extent)
            else:
                self._own_rows(sequence, own, new.extent)

    def _store(self, sequence: Expression, taken: Rows, local: Expression) -> None:
        """Copies the heads of some rows to a place of the cache."""
        with self.body.each("h", self.heads) as h:
            head = self.column // self.d + h
            box = [1, 1, taken.tiling.positions, self.d]
            starts = [sequence, head, local, 0]
            self.body.store(self._head(taken, head), self.cache, starts, box)

    @property
    def _stages(self) -> int | None:
        """Of a loop over rows."""
        return 2 if self.heads == 1 else None

    def _one(self, sequence: Expression, position: Expression) -> Rows:
        return replace(
            self.rows, tiling=RowTiling(1, 1, 1, 1), sequence=sequence, position=position
        )

    def _some_rows(self, sequence: Expression, own: Shard, query: int) -> None:
        """Of whole new rows those of the device, one by one."""
        start, rows = self.start, self.rows
        first = own.count_below(rows.position + start)
        end = minimum(rows.position + (start + rows.tiling.positions), start + query)
        with self.body.loop("i", first, own.count_below(end), stages=self._stages) as i:
            self._store(sequence, self._one(sequence, own.position(i) - start), i)

    def _own_rows(self, sequence: Expression, own: Shard, query: int) -> None:
        """New rows that are those of the device, all of a tile at once where it has them."""
        body, rows, start = self.body, self.rows, self.start
        positions = rows.tiling.positions
        base = body.index("base", own.count_below(start))
        count = own.count_below(start + query) - base
        left = body.index("left", count - rows.position)
        tiling = replace(rows.tiling, sequences=1)
        box = replace(rows, tiling=tiling, sequence=sequence)
        if positions == 1 or start + query == own.extent:
            # What the device does not hold of the box lies behind the end of its cache.
            with body.when(left - 1):
                self._store(sequence, box, base + rows.position)
            return
        with body.when(left - positions):
            self._store(sequence, box, base + rows.position)
        with body.when(positions - 1 - left), body.loop("i", 0, left, stages=self._stages) as i:
            taken = self._one(sequence, rows.position + i)
            self._store(sequence, taken, base + rows.position + i)
