"""Instructions of the isa dialect that access memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    IntegerType,
    SymbolRefAttr,
    TensorType,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from starc.backend.program import MAX_DIMS
from starc.dialects.isa_expressions import (
    ExpressionAttr,
    TileType,
    check_expressions,
    parse_attributes,
    parse_expression,
    parse_expressions,
    parse_tile_type,
    print_attributes,
    print_expressions,
    resolve_tiles,
)
from starc.dialects.symbols import named

# Memory


def buffer_type(op: Operation, symbol: SymbolRefAttr) -> TensorType[Attribute]:
    """The local type of the buffer that ``symbol`` names, seen from ``op``.

    Raises ``VerifyException`` where there is none.
    """
    buffer = named(op, symbol)
    name = symbol.string_value()
    if buffer is None:
        raise VerifyException(f"there is no buffer @{name}")
    for attribute in {**buffer.attributes, **buffer.properties}.values():
        if isinstance(attribute, TensorType):
            return cast("TensorType[Attribute]", attribute)
    raise VerifyException(f"@{name} is a {buffer.name}, not a buffer")


class MemoryOp(IRDLOperation):
    """A box of a buffer moved to or from a tile.

    ``starts`` are element coordinates, one for each dimension of the buffer; the box has
    ``extents`` elements along them (by default those of the tile in the last dimensions and 1
    before), and its elements in row-major order are those of the tile. What lies outside the
    buffer is not accessed: a load leaves zeros there, a store drops it.
    """

    tile = operand_def(TileType)
    indices = var_operand_def(IndexType())
    buffer = prop_def(SymbolRefAttr)
    starts = prop_def(ArrayAttr[ExpressionAttr])
    extents = opt_prop_def(DenseArrayBase[IntegerType])
    peer = opt_prop_def(ExpressionAttr)

    PEER: ClassVar[str | None] = None
    """The keyword before the device of a remote access; None for local ones."""

    def __init__(
        self,
        tile: SSAValue,
        buffer: str,
        starts: Sequence[ExpressionAttr],
        indices: Sequence[SSAValue],
        *,
        extents: Sequence[int] | None = None,
        peer: ExpressionAttr | None = None,
    ):
        super().__init__(
            operands=[tile, indices],
            properties={
                "buffer": SymbolRefAttr(buffer),
                "starts": ArrayAttr(starts),
                "extents": None if extents is None else DenseArrayBase.from_list(i64, extents),
                "peer": peer,
            },
        )

    @property
    def tile_type(self) -> TileType:
        return cast(TileType, self.tile.type)

    @property
    def box(self) -> tuple[int, ...]:
        """The extents of the accessed box, one for each dimension of the buffer."""
        if self.extents is not None:
            return tuple(self.extents.get_values())
        rank = len(self.starts)
        shape = (self.tile_type.rows, self.tile_type.columns)
        return (1,) * (rank - 2) + shape if rank > 1 else shape[1:]

    @classmethod
    def parse(cls, parser: Parser):
        tile = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        buffer = parser.parse_symbol_name()
        operands: list[SSAValue] = []
        starts = parse_expressions(parser, operands)
        extents = None
        if parser.parse_optional_keyword("extents"):
            extents = parser.parse_comma_separated_list(
                parser.Delimiter.SQUARE,
                lambda: parser.parse_integer(allow_boolean=False, allow_negative=False),
            )
        peer = None
        if cls.PEER is not None:
            parser.parse_keyword(cls.PEER)
            peer = parse_expression(parser, operands)
        properties, attributes = parse_attributes(parser, cls)
        parser.parse_punctuation(":")
        handle = parser.resolve_operand(tile, parse_tile_type(parser))
        op = cls(handle, buffer.data, starts, operands, extents=extents, peer=peer)
        op.properties.update(properties)
        op.attributes = attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.tile)
        printer.print_string(", ")
        printer.print_symbol_name(self.buffer.string_value())
        print_expressions(printer, self.starts, self.indices)
        if self.extents is not None:
            printer.print_string(" extents ")
            with printer.in_square_brackets():
                printer.print_list(self.box, printer.print_int)
        if self.peer is not None and self.PEER is not None:
            printer.print_string(f" {self.PEER} ")
            print_expressions(printer, [self.peer], self.indices)
        print_attributes(printer, self, ("buffer", "starts", "extents", "peer"))
        printer.print_string(" : ")
        printer.print_attribute(self.tile.type)

    def verify_(self) -> None:
        peers = [] if self.peer is None else [self.peer]
        check_expressions(self, [*self.starts, *peers], len(self.indices))
        if (self.peer is None) != (self.PEER is None):
            raise VerifyException("remote accesses name a device, local ones do not")
        rank = len(self.starts)
        if not 1 <= rank <= MAX_DIMS:
            raise VerifyException(f"a buffer access has 1 to {MAX_DIMS} dimensions, got {rank}")
        if len(self.box) != rank:
            raise VerifyException(f"{len(self.box)} extents for {rank} dimensions")
        elements = self.tile_type.rows * self.tile_type.columns
        if prod(self.box) != elements:
            raise VerifyException(
                f"a box of {list(self.box)} has {prod(self.box)} elements, the tile {elements}"
            )
        type_ = buffer_type(self, self.buffer)
        name = self.buffer.string_value()
        if type_.get_num_dims() != rank:
            raise VerifyException(
                f"@{name} has {type_.get_num_dims()} dimensions, the access has {rank}"
            )


@irdl_op_definition
class LoadOp(MemoryOp):
    """Asynchronous read of a box of a buffer of this device into a tile. ``acquire`` reads a
    symmetric buffer past the caches, so that what peers have put is seen. ``multicast = n``: n
    workgroups side by side load the same box together, and the L2 is read once for all of them."""

    name = "isa.load"
    acquire = opt_prop_def(UnitAttr)
    multicast = opt_prop_def(IntegerAttr)

    def verify_(self) -> None:
        super().verify_()
        if self.sharing < 1:
            raise VerifyException("multicast counts workgroups, at least one")
        if self.sharing > 1 and self.acquire is not None:
            raise VerifyException("what is read past the caches is read by each workgroup")

    @property
    def sharing(self) -> int:
        """Workgroups that load together."""
        return 1 if self.multicast is None else self.multicast.value.data


@irdl_op_definition
class StoreOp(MemoryOp):
    """Write of a tile to a box of a buffer of this device, rounded to the buffer's type."""

    name = "isa.store"


@irdl_op_definition
class PutOp(MemoryOp):
    """Write of a tile to a buffer of another device: ``isa.put %t, @inbox[0, %i] to [%next]``.

    With ``accumulate`` the tile is added to what is there, at the memory that holds it (a remote
    atomic): somebody has written it before. Several workgroups may add to the same elements in any
    order, so that the sum is defined for integers, and of floats only where one workgroup adds."""

    name = "isa.put"
    PEER: ClassVar[str | None] = "to"
    accumulate = opt_prop_def(UnitAttr)


@irdl_op_definition
class GetOp(MemoryOp):
    """Read of a buffer of another device: ``isa.get %t, @x[0, %i] from [%peer]``.

    It passes the caches of this device. With ``cached`` it goes through the L2, so that workgroups
    of a die share one fetch; what an earlier launch brought there does not count (a launch acquires
    when it starts), so the peer's data must not change while the launch runs. Between GPUs a read
    passes the L2 either way."""

    name = "isa.get"
    PEER: ClassVar[str | None] = "from"
    cached = opt_prop_def(UnitAttr)


@irdl_op_definition
class GatherOp(IRDLOperation):
    """Asynchronous read of rows that the data names, as an embedding does: row r of the tile is row
    ``rows[r] - base`` of a matrix, from a column on; a row outside the matrix is zero.

        isa.gather %t, @table[%c * 64] rows %ids - [%device * 512] : !isa.tile<2x64xbf16>,
            !isa.tile<2x1xi32>
    """

    name = "isa.gather"
    tile = operand_def(TileType)
    rows = operand_def(TileType)
    indices = var_operand_def(IndexType())
    buffer = prop_def(SymbolRefAttr)
    column = prop_def(ExpressionAttr)
    base = prop_def(ExpressionAttr)

    def __init__(
        self,
        tile: SSAValue,
        rows: SSAValue,
        buffer: str,
        column: ExpressionAttr,
        base: ExpressionAttr,
        indices: Sequence[SSAValue],
    ):
        super().__init__(
            operands=[tile, rows, indices],
            properties={"buffer": SymbolRefAttr(buffer), "column": column, "base": base},
        )

    @property
    def tile_type(self) -> TileType:
        return cast(TileType, self.tile.type)

    @classmethod
    def parse(cls, parser: Parser) -> GatherOp:
        tile = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        buffer = parser.parse_symbol_name()
        operands: list[SSAValue] = []
        column = parse_expression(parser, operands)
        parser.parse_keyword("rows")
        rows = parser.parse_unresolved_operand()
        parser.parse_punctuation("-")
        base = parse_expression(parser, operands)
        _, attributes = parse_attributes(parser, cls)
        handle, numbers = resolve_tiles(parser, [tile, rows])
        op = GatherOp(handle, numbers, buffer.data, column, base, operands)
        op.attributes = attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.tile)
        printer.print_string(", ")
        printer.print_symbol_name(self.buffer.string_value())
        print_expressions(printer, [self.column], self.indices)
        printer.print_string(" rows ")
        printer.print_ssa_value(self.rows)
        printer.print_string(" - ")
        print_expressions(printer, [self.base], self.indices)
        print_attributes(printer, self, ("buffer", "column", "base"))
        printer.print_string(" : ")
        printer.print_list((self.tile.type, self.rows.type), printer.print_attribute)

    def verify_(self) -> None:
        check_expressions(self, [self.column, self.base], len(self.indices))
        rows = cast(TileType, self.rows.type)
        if rows.rows * rows.columns != self.tile_type.rows:
            raise VerifyException(
                f"{rows.rows * rows.columns} row numbers for {self.tile_type.rows} rows"
            )
        if buffer_type(self, self.buffer).get_num_dims() != 2:
            raise VerifyException("rows are gathered from a matrix")
