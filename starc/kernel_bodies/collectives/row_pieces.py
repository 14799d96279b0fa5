"""Pieces of whole values in contiguous shards: boxes of rows and columns, numbered row-major."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.ir import BlockArgument, SSAValue

from starc.core.quasi_affine.expressions import Const, Expression
from starc.core.tiling import RowTiling, ceil_div, largest_divisor, row_tiling
from starc.dialects.collective import CollectiveOp

Place = Callable[[Expression, Expression], list[Expression | int]]
"""Start coordinates of piece i of chunk c in a buffer, from (chunk, piece)."""


@dataclass(frozen=True)
class RowPieces:
    """The pieces of a [batch, query, columns] value: rows x columns each, numbered row-major."""

    tiling: RowTiling
    columns: int
    across: int

    @property
    def count(self) -> int:
        return self.tiling.tiles * self.across

    @property
    def extents(self) -> list[int]:
        return [self.tiling.sequences, self.tiling.positions, self.columns]

    def starts(self, number: Expression) -> list[Expression]:
        """Start coordinates of a piece; those of a number past the end lie outside."""
        row = number // self.across
        position_tiles = self.tiling.position_tiles
        return [
            row // position_tiles * self.tiling.sequences,
            row % position_tiles * self.tiling.positions if position_tiles > 1 else Const(0),
            number % self.across * self.columns if self.across > 1 else Const(0),
        ]


def row_pieces(shape: tuple[int, ...], tile: tuple[int, ...], *, exact: bool = False) -> RowPieces:
    """The pieces of a value. ``exact`` pieces have extents that divide those of the value, so
    that a piece that is placed inside a larger value does not spill over its neighbours."""
    rows, columns = tile
    if exact:
        columns = largest_divisor(shape[2], columns)
        rows = (
            largest_divisor(shape[1], rows)
            if rows < shape[1]
            else shape[1] * largest_divisor(shape[0], max(1, rows // shape[1]))
        )
    return RowPieces(row_tiling(shape[0], shape[1], rows), columns, ceil_div(shape[2], columns))


def single_operand(op: CollectiveOp) -> SSAValue:
    """The only operand of a collective, an argument of the launch. Raises ``ValueError`` where it
    has others."""
    if len(op.inputs) != 1 or not isinstance(op.inputs[0], BlockArgument):
        raise ValueError(f"{op.name} of several values has no lowering")
    return op.inputs[0]


def scattered(pieces: RowPieces, dim: int, extent: int) -> Place:
    """Places of pieces of a shard within the whole, shards of ``extent`` along ``dim``."""

    def place(chunk: Expression, piece: Expression) -> list[Expression | int]:
        starts: list[Expression | int] = [*pieces.starts(piece)]
        starts[dim] = starts[dim] + chunk * extent
        return starts

    return place
