"""Elementwise chains, norms, appends to a cache and gathers of rows: what works on tiles of rows.

A part computes the operations that its result needs, tile by tile: arguments are loaded once, each
operation is one vector instruction (``silu`` and a product are one), intermediate values stay f32
in registers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from starc.core.kernel_schedules.row_schedules import HELD_TILES, holds_rows
from starc.core.quasi_affine.expressions import Const, Expression, Table, minimum
from starc.core.tiling import RowTiling, ceil_div, row_tiling
from starc.dialects import nn
from starc.dialects.sharding import encoding_of, global_shape
from starc.kernel_bodies.body import Body, Buffer, Template
from starc.kernel_bodies.context import (
    DEVICE,
    WORKGROUP,
    LaunchContext,
    Rows,
    take_rows,
    tensor_shape,
)
from starc.kernel_bodies.shards import global_row, shard_of


@dataclass
class Block:
    """A tile of rows and columns of a part, and the values that have been computed on it."""

    context: LaunchContext
    body: Body
    rows: Rows
    column: Expression
    columns: int
    tiles: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Also given from outside: sums over rows that are known by now."""

    def value(self, value: SSAValue) -> SSAValue:
        """The tile of a value of the launch's body, loaded or computed at its first use."""
        if value not in self.tiles:
            self.tiles[value] = self._make(value)
        return self.tiles[value]

    def new(self, name: str, element_type: Attribute = f32, columns: int | None = None) -> SSAValue:
        width = self.columns if columns is None else columns
        return self.body.tile(name, self.rows.count, width, element_type, register=True)

    def _make(self, value: SSAValue) -> SSAValue:
        if isinstance(value, BlockArgument):
            return self._load(self.context.buffer(value), tensor_shape(value)[-1] == 1)
        op = value.owner
        match op:
            case nn.MulOp():
                return self._product(op)
            case nn.AddOp():
                operands = self.value(op.lhs), self.value(op.rhs)
                return self._apply("sum", "add", *operands)
            case nn.SiluOp():
                return self._apply("silu", "silu", self.value(op.input))
            case nn.GeluOp():
                return self._apply("gelu", "gelu", self.value(op.input))
            case nn.RopeOp():
                return self._rope(op)
            case nn.ScaleColumnsOp():
                return self._apply("scaled", "mul", self.value(op.input), self.weight(op.weight))
            case nn.ScaleRowsOp():
                return self._apply("scaled", "mul", self.value(op.input), self.value(op.scale))
            case nn.NormScaleOp():
                return self._norm_scale(op)
            case nn.LseFinishOp():
                return self._lse_finish(op)
            case _:
                assert isinstance(op, Operation)
                raise ValueError(f"{op.name} is not a row-wise operation")

    def _load(self, buffer: Buffer, is_row_value: bool) -> SSAValue:
        """The tile of a buffer; of one number a row, those of the rows."""
        column, columns = (Const(0), 1) if is_row_value else (self.column, self.columns)
        tile = self.new("x", buffer.element_type, columns)
        self.body.load(tile, buffer, self.rows.starts(column), self.rows.extents(columns))
        return tile

    def weight(self, value: SSAValue) -> SSAValue:
        """Weights of the columns, one row of them."""
        if value not in self.tiles:
            weight = self.context.buffer(value)
            tile = self.body.tile("w", 1, self.columns, weight.element_type, register=True)
            self.body.load(tile, weight, [self.column])
            self.tiles[value] = tile
        return self.tiles[value]

    def _norm_scale(self, op: nn.NormScaleOp) -> SSAValue:
        squares = self.value(op.input)
        result = self.new("factors", columns=1)
        params = [op.count.value.data, float(op.eps.value.data)]
        self.body.vector("norm_scale", result, squares, params=params)
        return result

    def _apply(self, name: str, function: str, *operands: SSAValue) -> SSAValue:
        result = self.new(name)
        self.body.vector(function, result, *operands)
        return result

    def _product(self, op: nn.MulOp) -> SSAValue:
        for gated, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            owner = gated.owner
            if isinstance(owner, nn.SiluOp) and gated not in self.tiles:
                return self._apply("gated", "silu_mul", self.value(owner.input), self.value(other))
        return self._apply("product", "mul", self.value(op.lhs), self.value(op.rhs))

    def _lse_finish(self, op: nn.LseFinishOp) -> SSAValue:
        """The heads of the tile; maxima and sums have a number for each."""
        d = op.head_dim.value.data
        if self.columns % d:
            raise ValueError(f"a tile of {self.columns} columns cuts a head of {d}")
        heads, first = self.columns // d, self.column // d

        def of_heads(value: SSAValue) -> SSAValue:
            if value not in self.tiles:
                buffer = self.context.buffer(value)
                tile = self.new("x", buffer.element_type, heads)
                self.body.load(tile, buffer, self.rows.starts(first), self.rows.extents(heads))
                self.tiles[value] = tile
            return self.tiles[value]

        result = self.new("result")
        if op.sink is None:
            self.body.vector("lse_finish", result, of_heads(op.l), self.value(op.o))
            return result
        logits = self.context.buffer(op.sink)
        sink = self.body.tile("sink", 1, heads, logits.element_type, register=True)
        self.body.load(sink, logits, [first])
        operands = (of_heads(op.l), self.value(op.o), of_heads(op.m), sink)
        self.body.vector("lse_finish_sink", result, *operands)
        return result

    def _rope(self, op: nn.RopeOp) -> SSAValue:
        if not shard_of(op.input, 1, self.context.mesh).is_whole:
            raise ValueError("rows that are turned by their positions must not be sharded by them")
        x = self.value(op.input)
        result = self.new("rotated")
        params = [
            op.head_dim.value.data,
            float(op.theta.value.data),
            op.start.value.data,
            tensor_shape(op.input)[1],
            self.rows.position,
        ]
        self.body.vector("rope", result, x, params=params)
        return result


def _tile_of(
    context: LaunchContext, body: Body, shape: tuple[int, ...], number: Expression
) -> tuple[Rows, Expression]:
    """Rows and first column of the ``number``-th tile of a value, row-major."""
    rows, columns = context.tile
    across = ceil_div(shape[2], columns)
    row = body.index("row", number // across) if across > 1 else number
    column = body.index("column", number % across * columns) if across > 1 else Const(0)
    return take_rows(body, shape, rows, row), column


def _tile_count(context: LaunchContext, shape: tuple[int, ...]) -> int:
    rows, columns = context.tile
    return row_tiling(shape[0], shape[1], rows).tiles * ceil_div(shape[2], columns)


def lower_elementwise(context: LaunchContext) -> list[list[Template]]:
    """One workgroup a tile of rows x columns of each part."""
    templates: list[Template] = []
    for part, (value, output) in enumerate(context.outputs):
        assert not isinstance(value, BlockArgument)
        body = context.body(_operation(value))
        shape = tensor_shape(value)
        rows, column = _tile_of(context, body, shape, WORKGROUP)
        columns = 1 if shape[2] == 1 else context.tile[1]
        _store_columns(Block(context, body, rows, column, columns), [(value, output)])
        templates.append(context.template(body, part, _tile_count(context, shape)))
    return [templates]


def _operation(value: SSAValue) -> Operation:
    owner = value.owner
    assert isinstance(owner, Operation)
    return owner


def lower_norm(context: LaunchContext) -> list[list[Template]]:
    """A workgroup normalises some rows: whole rows at once, in tiles of columns that registers hold
    until the sum of squares is known, or in two passes over such tiles. Or it only sums up the
    squares of some rows, in one pass. Elementwise results, such as a residual sum, are stored on
    the way, and what the sums alone are needed for behind it."""
    norms = [op for op in context.launch.block.ops if isinstance(op, nn.RmsNormOp)]
    sums = [op for op in context.launch.block.ops if isinstance(op, nn.SumSquaresOp)]
    if len(norms) + bool(sums) != 1:
        raise ValueError(f"launch @{context.name}: one norm, or sums of squares, in a launch")
    op = norms[0] if norms else sums[0]
    x = tensor_shape(op.input)
    rows_tile, columns = context.tile
    body = context.body(op)
    rows = take_rows(body, x, rows_tile, WORKGROUP)
    across = ceil_div(x[2], columns)
    beside = [
        (value, output)
        for value, output in context.outputs
        if not isinstance(value.owner, nn.RmsNormOp | nn.SumSquaresOp | nn.NormScaleOp)
    ]
    if norms:
        outputs = [output for value, output in context.outputs if value.owner is op]
        _normalise(context, body, norms[0], outputs, beside, rows, across)
    else:
        _sum_up(context, body, sums, beside, rows, across)
    grid = row_tiling(x[0], x[1], rows_tile).tiles
    return [[context.template(body, 0, grid)]]


def _store_columns(block: Block, results: Sequence[tuple[SSAValue, Buffer]]) -> None:
    """Stores the tiles of elementwise results."""
    rows, columns = block.rows, block.columns
    for value, output in results:
        tile = block.value(value)
        block.body.store(tile, output, rows.starts(block.column), rows.extents(columns))


def _sum_up(
    context: LaunchContext,
    body: Body,
    sums: Sequence[nn.SumSquaresOp],
    beside: Sequence[tuple[SSAValue, Buffer]],
    rows: Rows,
    across: int,
) -> None:
    columns = context.tile[1]
    squares: dict[SSAValue, SSAValue] = {}
    for op in sums:
        squares[op.result] = body.tile("squares", rows.count, 1, register=True)
        body.vector("zero", squares[op.result])

    def step(column: Expression) -> None:
        block = Block(context, body, rows, column, columns)
        for op in sums:
            body.vector("row_sum_squares_add", squares[op.result], block.value(op.input))
        _store_columns(block, beside)

    if across == 1:
        step(Const(0))
    else:
        with body.loop("c", 0, across, stages=2) as c:
            step(c * columns)
    stored = {value for value, _ in beside}
    behind = Block(context, body, rows, Const(0), 1, dict(squares))
    _store_columns(behind, [pair for pair in context.outputs if pair[0] not in stored])


def _columns(
    context: LaunchContext,
    body: Body,
    value: SSAValue,
    output: Buffer,
    rows: Rows,
    column: Expression,
) -> None:
    _store_columns(Block(context, body, rows, column, context.tile[1]), [(value, output)])


def _normalise(
    context: LaunchContext,
    body: Body,
    op: nn.RmsNormOp,
    outputs: Sequence[Buffer],
    beside: Sequence[tuple[SSAValue, Buffer]],
    rows: Rows,
    across: int,
) -> None:
    columns = context.tile[1]
    squares = body.tile("squares", rows.count, 1, register=True)
    body.vector("zero", squares)

    def square(block: Block) -> Block:
        body.vector("row_sum_squares_add", squares, block.value(op.input))
        _store_columns(block, beside)
        return block

    def at(column: Expression) -> Block:
        return Block(context, body, rows, column, columns)

    def apply(block: Block) -> None:
        scale = block.weight(op.weight)
        result = block.new("y", outputs[0].element_type)
        features = tensor_shape(op.input)[2]
        body.vector(
            "rms_apply",
            result,
            block.value(op.input),
            squares,
            scale,
            params=[features, float(op.eps.value.data)],
        )
        for output in outputs:
            body.store(result, output, rows.starts(block.column), rows.extents(columns))

    x = op.input
    is_held = across == 1
    if isinstance(x, BlockArgument) and across <= HELD_TILES:
        width = tensor_shape(x)[2] * context.buffer(x).element_bytes
        is_held |= holds_rows(rows.count, width, context.target.registers_bytes_per_cu)
    if is_held:
        # All of them, and the weights, are on their way before the first is waited for.
        blocks = [at(Const(step * columns)) for step in range(across)]
        for block in blocks:
            block.value(x)
        for block in blocks:
            block.weight(op.weight)
        for block in blocks:
            square(block)
        for block in blocks:
            apply(block)
        return
    with body.loop("c", 0, across, stages=2) as c:
        square(at(c * columns))
    with body.loop("c", 0, across, stages=2) as c:
        apply(at(c * columns))


def lower_append(context: LaunchContext) -> list[list[Template]]:
    """New keys or values go to their positions of the cache, a head at a time: the cache is
    [batch, head, position, d], the new rows are [batch, position, head * d]."""
    templates: list[Template] = []
    for part, (value, cache) in enumerate(context.outputs):
        op = _operation(value)
        if not isinstance(op, nn.AppendOp):
            templates.append(_plain_part(context, part, value, cache))
            continue
        body = context.body(op)
        shape = tensor_shape(op.input)
        d = cache.shape[3]
        rows, column = _tile_of(context, body, shape, WORKGROUP)
        start = op.start.value.data
        heads = max(1, context.tile[1] // d)
        if not shard_of(value, 2, context.mesh).is_whole:
            _append_to_shard(context, body, op, cache, rows, column)
            templates.append(context.template(body, part, _tile_count(context, shape)))
            continue

        def append(
            head: Expression,
            body: Body = body,
            rows: Rows = rows,
            op: nn.AppendOp = op,
            cache: Buffer = cache,
            start: int = start,
            d: int = d,
        ) -> None:
            block = Block(context, body, rows, head * d, d)
            body.store(
                block.value(op.input),
                cache,
                [rows.sequence, head, rows.position + start, 0],
                [rows.tiling.sequences, 1, rows.tiling.positions, d],
            )

        first = column // d
        if heads == 1:
            append(body.index("head", first))
        else:
            with body.loop("h", 0, heads, stages=2) as h:
                append(first + h)
        templates.append(context.template(body, part, _tile_count(context, shape)))
    return [templates]


def _append_to_shard(
    context: LaunchContext,
    body: Body,
    op: nn.AppendOp,
    cache: Buffer,
    rows: Rows,
    column: Expression,
) -> None:
    """Stores the new rows of a tile whose positions this device holds, a sequence after the other,
    for in which local index they begin depends on the sequence.

    Positions that follow each other among those that a device holds have local indices that do. New
    rows that are sharded as the cache is are those, as many as the sequence has; of whole new rows
    the device's are taken one by one.
    """
    mesh, start, d = context.mesh, op.start.value.data, cache.shape[3]
    held, new = shard_of(op.result, 2, mesh), shard_of(op.input, 1, mesh)
    query, tiling = new.extent, rows.tiling
    if not new.is_whole:
        matching = held.map.window(start, query, held.ranks, held.extent)
        if (new.map, new.ranks, new.rank) != (matching, held.ranks, held.rank):
            raise ValueError("new rows that are sharded must lie on the owners of their positions")
    heads = max(1, context.tile[1] // d)
    stages = 2 if heads == 1 else None
    one = replace(rows, tiling=RowTiling(1, 1, 1, 1))

    def store(sequence: Expression, taken: Rows, local: Expression) -> None:
        """Copies the heads of some rows to a place of the cache."""
        with _each(body, "h", heads) as h:
            head = column // d + h
            block = Block(context, body, taken, head * d, d)
            box = [1, 1, taken.tiling.positions, d]
            body.store(block.value(op.input), cache, [sequence, head, local, 0], box)

    with _each(body, "b", tiling.sequences) as b:
        sequence = rows.sequence + b
        row: Expression = Const(0)
        if held.is_rotated:
            row = body.index("global_row", global_row(op.result, 0, sequence, mesh))
        own = held.at_row(row)
        own = own.of_rank(body.index("rank", own.rank))
        if new.is_whole:
            first = own.count_below(rows.position + start)
            end = minimum(rows.position + (start + tiling.positions), start + query)
            with body.loop("i", first, own.count_below(end), stages=stages) as i:
                taken = replace(one, sequence=sequence, position=own.position(i) - start)
                store(sequence, taken, i)
            return
        base = body.index("base", own.count_below(start))
        count = own.count_below(start + query) - base
        left = body.index("left", count - rows.position)
        box = replace(rows, tiling=replace(tiling, sequences=1), sequence=sequence)
        if tiling.positions == 1 or start + query == held.extent:
            # What the device does not hold of the box lies behind the end of its cache.
            with body.when(left - 1):
                store(sequence, box, base + rows.position)
            return
        with body.when(left - tiling.positions):
            store(sequence, box, base + rows.position)
        with body.when(tiling.positions - 1 - left), body.loop("i", 0, left, stages=stages) as i:
            taken = replace(one, sequence=sequence, position=rows.position + i)
            store(sequence, taken, base + rows.position + i)


@contextmanager
def _each(body: Body, name: str, count: int) -> Generator[Expression]:
    """A loop, or its body alone where there is one iteration."""
    if count == 1:
        yield Const(0)
        return
    with body.loop(name, 0, count) as i:
        yield i


def _plain_part(context: LaunchContext, part: int, value: SSAValue, output: Buffer) -> Template:
    """A part of an append launch that is not an append, such as the rotated queries."""
    body = context.body(_operation(value))
    shape = tensor_shape(value)
    rows, column = _tile_of(context, body, shape, WORKGROUP)
    _columns(context, body, value, output, rows, column)
    return context.template(body, part, _tile_count(context, shape))


def lower_embedding(context: LaunchContext) -> list[list[Template]]:
    """Rows of a table by token id, zero where another device holds the row; or the last row of
    every sequence."""
    templates: list[Template] = []
    for part, (value, output) in enumerate(context.outputs):
        op = _operation(value)
        body = context.body(op)
        shape = tensor_shape(value)
        rows, column = _tile_of(context, body, shape, WORKGROUP)
        columns = context.tile[1]
        block = Block(context, body, rows, column, columns)
        if isinstance(op, nn.EmbeddingOp):
            tile = _look_up(context, body, op, block)
        elif isinstance(op, nn.LastTokenOp):
            source = context.buffer(op.input)
            tile = block.new("x", source.element_type)
            last = tensor_shape(op.input)[1] - 1
            starts = [rows.sequence, rows.position + last, column]
            body.load(tile, source, starts, rows.extents(columns))
        else:
            tile = block.value(value)
        body.store(tile, output, rows.starts(column), rows.extents(columns))
        templates.append(context.template(body, part, _tile_count(context, shape)))
    return [templates]


def _look_up(context: LaunchContext, body: Body, op: nn.EmbeddingOp, block: Block) -> SSAValue:
    ids, table = context.buffer(op.ids), context.buffer(op.table)
    numbers = body.tile("ids", block.rows.count, 1, ids.element_type, register=True)
    body.load(numbers, ids, block.rows.starts(), block.rows.extents())
    tile = block.new("x", table.element_type)
    body.gather(tile, numbers, table, block.column, _first_row(context, op.table))
    return tile


def _first_row(context: LaunchContext, table: SSAValue) -> Expression:
    """The global number of the first table row that a device holds."""
    type_ = table.type
    encoding = encoding_of(type_, context.mesh)
    if encoding is None or not encoding.dims[0].axes:
        return Const(0)
    extent = global_shape(type_)[0]  # type: ignore[arg-type]
    rows, ranks = encoding.dims[0].map, encoding.ranks(0)
    firsts: list[int] = []
    for coords in context.mesh.devices():
        rank = encoding.rank(0, coords)
        held = rows.count(rank, ranks, extent)
        first = rows.position(rank, 0, ranks, extent) if held else extent
        # Positions ascend, so that consecutive ones are told by the last.
        if held and rows.position(rank, held - 1, ranks, extent) != first + held - 1:
            raise ValueError("the rows of a table that a device holds must be consecutive")
        firsts.append(first)
    return by_device(firsts)


def by_device(values: list[int]) -> Expression:
    """An integer of each device: linear in the device where it is, else a table."""
    step = values[1] - values[0] if len(values) > 1 else 0
    if all(value == values[0] + step * i for i, value in enumerate(values)):
        return DEVICE * step + values[0]
    return Table(tuple(values), DEVICE)
