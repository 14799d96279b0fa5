"""Where the tiles of a product lie that exchanges data with its peers, and who takes them when."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from starc.core.quasi_affine.expressions import Const, Expression
from starc.core.tiling import ceil_div, row_tiling
from starc.dialects.collective import AllGatherOp, ReduceScatterOp
from starc.dialects.kernel_fusion import GemmPart, slice_starts
from starc.kernel_bodies.body import Body
from starc.kernel_bodies.context import (
    WORKGROUP,
    LaunchContext,
    Rows,
    take_rows,
    tensor_shape,
)
from starc.kernel_bodies.peers import Group


@dataclass(frozen=True)
class TilePlace:
    """Where a tile lies: its number among all of the part, its rows, its first column in the
    product (``column``) and in what its receivers get (``within``), its number there (``slot``)
    and that of its row of tiles (``row``), and the device of its owner with how many ranks behind
    the own one that is (the group's size: itself), or neither where all devices receive it."""

    number: Expression
    slot: Expression
    row: Expression
    rows: Rows
    column: Expression
    within: Expression
    owner: Expression | None = None
    hop: Expression | None = None


class FusedTiles:
    """The tiles of one part and their order. Where columns have owners, those of each owner are
    numbered alike, and the owner behind the own rank comes first.

    ``local`` tiles are what a device receives of a rank, ``across`` of them side by side.
    """

    def __init__(self, context: LaunchContext, part: GemmPart) -> None:
        self.context = context
        m, self.columns, self.step = context.tile
        self.m = m
        self.shape = tensor_shape(part.linear.result)
        self.rows = row_tiling(self.shape[0], self.shape[1], m)
        self.ranks = 1
        self.starts: tuple[tuple[int, ...], ...] | None = None
        width = self.shape[2]
        if part.scatter is not None:
            self.ranks = context.mesh.refs_size(part.scatter.axes.data)
            self.starts = starts_of(part.scatter, context)
            width = part.received[2]
        self.width = width
        self.across = ceil_div(width, self.columns)
        self.local = self.rows.tiles * self.across
        self.count = self.local * self.ranks
        self.group, self.dies = context.launch.integers("swizzle") or (1, 1)

    def locate(self, body: Body, item: Expression, receivers: Group | None) -> TilePlace:
        if receivers is None or self.starts is None:
            number = item
            if self.dies > 1:
                number = item % self.dies * (self.count // self.dies) + item // self.dies
            number = body.index("tile", number)
            row, slot, column = self._walk(body, number)
            rows = take_rows(body, self.shape, self.m, row)
            return TilePlace(number, slot, row, rows, column, column)
        hop = body.index("behind", item // self.local + 1)
        local = body.index("tile", item % self.local)
        row, slot, within = self._walk(body, local)
        rows = take_rows(body, self.shape, self.m, row)
        rank = body.index("owner", receivers.turned(hop))
        base = receivers.start(self.starts, rank)
        column = body.index("column", within + base)
        device = body.index("owner_device", receivers.device(rank))
        return TilePlace(item, slot, row, rows, column, within, device, hop)

    def _walk(self, body: Body, number: Expression) -> tuple[Expression, Expression, Expression]:
        """Number of the row of tiles, number in the shard and column within of a tile."""
        band = self.group * self.across
        across: Expression = Const(0)
        if self.across > 1:
            across = body.index("across", number % band // self.group)
        row = body.index("row", number // band * self.group + number % self.group)
        column = body.index("within", across * self.columns)
        return row, row * self.across + across, column


def starts_of(
    op: AllGatherOp | ReduceScatterOp, context: LaunchContext
) -> tuple[tuple[int, ...], ...]:
    """Where the slices of every device begin. Raises ``ValueError`` where they are in pieces."""
    starts = slice_starts(op, context.mesh)
    if starts is None:
        raise ValueError(f"launch @{context.name}: the slices of {op.name} are not contiguous")
    return starts


@contextmanager
def in_turns(body: Body, items: int, grid: int) -> Generator[tuple[Expression, Expression | None]]:
    """What workgroup w of ``grid`` does: items w, w + grid, ... Gives the item and, where there
    are several, the turn."""
    if items == grid:
        yield WORKGROUP, None
        return
    if items < grid:
        with body.when(Const(items - 1) - WORKGROUP):
            yield WORKGROUP, None
        return
    with body.loop("turn", 0, ceil_div(items, grid)) as turn:
        item = body.index("item", turn * grid + WORKGROUP)
        if items % grid:
            with body.when(Const(items - 1) - item):
                yield item, turn
        else:
            yield item, turn
