"""Instructions of the isa dialect: tiles, memory, counters and compute.

Every operation here but ``isa.alloc`` and ``isa.index`` is one record of the packed program.
"""

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
    StringAttr,
    SymbolRefAttr,
    TensorType,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure, SymbolTable
from xdsl.utils.exceptions import VerifyException

from starc.backend.functions import BY_NAME, OPERAND_FIELDS, Function
from starc.backend.program import MAX_DIMS
from starc.dialects.isa_expressions import (
    ExpressionAttr,
    TileType,
    check_expressions,
    environment,
    integer,
    parse_attributes,
    parse_expression,
    parse_expressions,
    parse_tile_type,
    print_attributes,
    print_expressions,
)

# Tiles and index values


@irdl_op_definition
class AllocOp(IRDLOperation):
    """A tile handle. In scratch it has ``slots`` copies used in turn by the iterations of the loop
    it stands in; ``offset`` is the first byte of slot 0, given by ``plan-scratch``."""

    name = "isa.alloc"
    space = prop_def(StringAttr)
    slots = prop_def(IntegerAttr)
    offset = opt_prop_def(IntegerAttr)
    tile = result_def(TileType)

    SPACES: ClassVar = ("scratch", "register")

    def __init__(self, tile: TileType, space: str = "scratch", slots: int = 1):
        super().__init__(
            result_types=[tile],
            properties={"space": StringAttr(space), "slots": IntegerAttr(slots, i64)},
        )

    @property
    def type(self) -> TileType:
        return self.tile.type

    @classmethod
    def parse(cls, parser: Parser) -> AllocOp:
        space = parser.parse_identifier("a tile space")
        slots, offset = 1, None
        if parser.parse_optional_keyword("slots"):
            slots = parser.parse_integer(allow_boolean=False, allow_negative=False)
        if parser.parse_optional_keyword("offset"):
            offset = parser.parse_integer(allow_boolean=False, allow_negative=False)
        _, attributes = parse_attributes(parser, cls)
        parser.parse_punctuation(":")
        op = AllocOp(parse_tile_type(parser), space, slots)
        op.attributes = attributes
        op.offset = integer(offset)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.space.data}")
        if self.slots.value.data != 1:
            printer.print_string(f" slots {self.slots.value.data}")
        if self.offset is not None:
            printer.print_string(f" offset {self.offset.value.data}")
        print_attributes(printer, self, ("space", "slots", "offset"))
        printer.print_string(" : ")
        printer.print_attribute(self.tile.type)

    def verify_(self) -> None:
        if self.space.data not in self.SPACES:
            raise VerifyException(f"unknown tile space '{self.space.data}': scratch or register")
        slots = self.slots.value.data
        if slots < 1:
            raise VerifyException("a tile has at least one slot")
        parent = self.parent_op()
        if slots > 1 and (parent is None or parent.name != "isa.loop"):
            raise VerifyException("a tile of several slots must be allocated directly in a loop")


@irdl_op_definition
class IndexOp(IRDLOperation):
    """A name for a quasi-affine expression: ``%n = isa.index [%wg mod 8]``. It costs nothing."""

    name = "isa.index"
    indices = var_operand_def(IndexType())
    value = prop_def(ExpressionAttr)
    result = result_def(IndexType())
    traits = traits_def(Pure())

    def __init__(self, value: ExpressionAttr, indices: Sequence[SSAValue]):
        super().__init__(
            operands=[indices], result_types=[IndexType()], properties={"value": value}
        )

    @classmethod
    def parse(cls, parser: Parser) -> IndexOp:
        operands: list[SSAValue] = []
        op = IndexOp(parse_expression(parser, operands), operands)
        _, op.attributes = parse_attributes(parser, cls)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_expressions(printer, [self.value], self.indices)
        print_attributes(printer, self, ("value",))

    def verify_(self) -> None:
        check_expressions(self, [self.value], len(self.indices))


# Memory


def buffer_type(op: Operation, symbol: SymbolRefAttr) -> TensorType[Attribute]:
    """The local type of the buffer that ``symbol`` names, seen from ``op``.

    Raises ``VerifyException`` where there is none.
    """
    buffer = SymbolTable.lookup_symbol(op, symbol)
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
    symmetric buffer past the caches, so that what peers have put is seen."""

    name = "isa.load"
    acquire = opt_prop_def(UnitAttr)


@irdl_op_definition
class StoreOp(MemoryOp):
    """Write of a tile to a box of a buffer of this device, rounded to the buffer's type."""

    name = "isa.store"


@irdl_op_definition
class PutOp(MemoryOp):
    """Write of a tile to a buffer of another device: ``isa.put %t, @inbox[0, %i] to [%next]``."""

    name = "isa.put"
    PEER: ClassVar[str | None] = "to"


@irdl_op_definition
class GetOp(MemoryOp):
    """Read of a buffer of another device: ``isa.get %t, @x[0, %i] from [%peer]``."""

    name = "isa.get"
    PEER: ClassVar[str | None] = "from"


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
        handle, numbers = _resolve_tiles(parser, [tile, rows])
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


# Counters


def _check_counter(op: Operation, symbol: SymbolRefAttr) -> None:
    counter = SymbolTable.lookup_symbol(op, symbol)
    if counter is None or counter.name != "isa.counter":
        raise VerifyException(f"there is no counter @{symbol.string_value()}")


class CounterAccess(IRDLOperation):
    """What ``isa.signal`` and ``isa.wait`` share: an element of a counter array and a value."""

    indices = var_operand_def(IndexType())
    counter = prop_def(SymbolRefAttr)
    element = prop_def(ExpressionAttr)
    value = prop_def(ExpressionAttr)

    def verify_(self) -> None:
        check_expressions(self, [self.element, self.value], len(self.indices))
        _check_counter(self, self.counter)


@irdl_op_definition
class SignalOp(CounterAccess):
    """Adds to a counter of a device once all earlier stores and puts of this workgroup are
    performed: ``isa.signal @ready[%i] add [1] to [%next]``; without ``to``, of this device."""

    name = "isa.signal"
    peer = opt_prop_def(ExpressionAttr)

    def __init__(
        self,
        counter: str,
        element: ExpressionAttr,
        value: ExpressionAttr,
        indices: Sequence[SSAValue],
        peer: ExpressionAttr | None = None,
    ):
        super().__init__(
            operands=[indices],
            properties={
                "counter": SymbolRefAttr(counter),
                "element": element,
                "value": value,
                "peer": peer,
            },
        )

    @classmethod
    def parse(cls, parser: Parser) -> SignalOp:
        counter = parser.parse_symbol_name()
        operands: list[SSAValue] = []
        element = parse_expression(parser, operands)
        parser.parse_keyword("add")
        value = parse_expression(parser, operands)
        peer = None
        if parser.parse_optional_keyword("to"):
            peer = parse_expression(parser, operands)
        op = SignalOp(counter.data, element, value, operands, peer)
        _, op.attributes = parse_attributes(parser, cls)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.counter.string_value())
        print_expressions(printer, [self.element], self.indices)
        printer.print_string(" add ")
        print_expressions(printer, [self.value], self.indices)
        if self.peer is not None:
            printer.print_string(" to ")
            print_expressions(printer, [self.peer], self.indices)
        print_attributes(printer, self, ("counter", "element", "value", "peer"))

    def verify_(self) -> None:
        super().verify_()
        if self.peer is not None:
            check_expressions(self, [self.peer], len(self.indices))


@irdl_op_definition
class WaitOp(CounterAccess):
    """Blocks the stream until a counter of this device has reached a value, and sees what was
    written before the signals: ``isa.wait @ready[%i] until [%step + 1]``."""

    name = "isa.wait"

    def __init__(
        self,
        counter: str,
        element: ExpressionAttr,
        value: ExpressionAttr,
        indices: Sequence[SSAValue],
    ):
        super().__init__(
            operands=[indices],
            properties={"counter": SymbolRefAttr(counter), "element": element, "value": value},
        )

    @classmethod
    def parse(cls, parser: Parser) -> WaitOp:
        counter = parser.parse_symbol_name()
        operands: list[SSAValue] = []
        element = parse_expression(parser, operands)
        parser.parse_keyword("until")
        op = WaitOp(counter.data, element, parse_expression(parser, operands), operands)
        _, op.attributes = parse_attributes(parser, cls)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.counter.string_value())
        print_expressions(printer, [self.element], self.indices)
        printer.print_string(" until ")
        print_expressions(printer, [self.value], self.indices)
        print_attributes(printer, self, ("counter", "element", "value"))


# Compute


@irdl_op_definition
class MatrixOp(IRDLOperation):
    """``accumulator[m, n] += a[m, k] * b[k, n]``, or ``b[n, k]`` with ``transpose_b``."""

    name = "isa.matrix"
    accumulator = operand_def(TileType)
    a = operand_def(TileType)
    b = operand_def(TileType)
    transpose_b = opt_prop_def(UnitAttr)

    def __init__(
        self, accumulator: SSAValue, a: SSAValue, b: SSAValue, *, transpose_b: bool = False
    ):
        super().__init__(
            operands=[accumulator, a, b],
            properties={"transpose_b": UnitAttr() if transpose_b else None},
        )

    @property
    def mnk(self) -> tuple[int, int, int]:
        a, c = cast(TileType, self.a.type), cast(TileType, self.accumulator.type)
        return c.rows, c.columns, a.columns

    @classmethod
    def parse(cls, parser: Parser) -> MatrixOp:
        handles = _parse_tiles(parser, None)
        properties, attributes = parse_attributes(parser, cls)
        tiles = _resolve_tiles(parser, handles)
        if len(tiles) != 3:
            parser.raise_error("a matrix instruction has an accumulator and two operands")
        op = MatrixOp(*tiles)
        op.properties.update(properties)
        op.attributes = attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_ssa_value)
        print_attributes(printer, self, ())
        printer.print_string(" : ")
        printer.print_list(self.operand_types, printer.print_attribute)

    def verify_(self) -> None:
        a, b = cast(TileType, self.a.type), cast(TileType, self.b.type)
        m, n, k = self.mnk
        rows, columns = (n, k) if self.transpose_b else (k, n)
        if a.rows != m or (b.rows, b.columns) != (rows, columns):
            raise VerifyException(
                f"accumulator {m}x{n}, a {a.rows}x{a.columns} and b {b.rows}x{b.columns} "
                "do not multiply"
            )


@irdl_op_definition
class VectorOp(IRDLOperation):
    """A function of the table ``starc.backend.functions`` on up to five tiles, the first being
    its result: ``isa.vector "add"(%y, %a, %b) : ...``, with integer parameters where it has some:
    ``isa.vector "rope"(%y, %x) params [128, ...] : ...``."""

    name = "isa.vector"
    tiles = var_operand_def(TileType)
    indices = var_operand_def(IndexType())
    function = prop_def(StringAttr)
    parameters = prop_def(ArrayAttr[ExpressionAttr])
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def __init__(
        self,
        function: str,
        tiles: Sequence[SSAValue],
        parameters: Sequence[ExpressionAttr] = (),
        indices: Sequence[SSAValue] = (),
    ):
        super().__init__(
            operands=[tiles, indices],
            properties={"function": StringAttr(function), "parameters": ArrayAttr(parameters)},
        )

    @property
    def definition(self) -> Function:
        return BY_NAME[self.function.data]

    @property
    def reads(self) -> tuple[SSAValue, ...]:
        fields = self.definition.reads
        return tuple(t for t, f in zip(self.tiles, OPERAND_FIELDS, strict=False) if f in fields)

    @property
    def writes(self) -> tuple[SSAValue, ...]:
        fields = self.definition.writes
        return tuple(t for t, f in zip(self.tiles, OPERAND_FIELDS, strict=False) if f in fields)

    @classmethod
    def parse(cls, parser: Parser) -> VectorOp:
        function = parser.parse_str_literal()
        handles = _parse_tiles(parser, parser.Delimiter.PAREN)
        operands: list[SSAValue] = []
        parameters: list[ExpressionAttr] = []
        if parser.parse_optional_keyword("params"):
            parameters = parse_expressions(parser, operands)
        properties, attributes = parse_attributes(parser, cls)
        op = VectorOp(function, _resolve_tiles(parser, handles), parameters, operands)
        op.properties.update(properties)
        op.attributes = attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.function.data)
        with printer.in_parens():
            printer.print_list(self.tiles, printer.print_ssa_value)
        if self.parameters.data:
            printer.print_string(" params ")
            print_expressions(printer, self.parameters, self.indices)
        print_attributes(printer, self, ("function", "parameters"))
        printer.print_string(" : ")
        printer.print_list(self.tiles.types, printer.print_attribute)

    def verify_(self) -> None:
        check_expressions(self, self.parameters.data, len(self.indices))
        function = BY_NAME.get(self.function.data)
        if function is None:
            raise VerifyException(f"there is no vector function '{self.function.data}'")
        if len(self.tiles) != len(function.operands):
            raise VerifyException(
                f"'{function.name}' takes {len(function.operands)} tiles, got {len(self.tiles)}"
            )
        if len(self.parameters.data) != len(function.parameters):
            raise VerifyException(
                f"'{function.name}' takes {len(function.parameters)} parameters, "
                f"got {len(self.parameters.data)}"
            )


@irdl_op_definition
class DelayOp(IRDLOperation):
    """The stream sleeps for some picoseconds: ``isa.delay 5000``."""

    name = "isa.delay"
    picoseconds = prop_def(IntegerAttr)

    def __init__(self, picoseconds: int):
        super().__init__(properties={"picoseconds": IntegerAttr(picoseconds, i64)})

    @classmethod
    def parse(cls, parser: Parser) -> DelayOp:
        op = DelayOp(parser.parse_integer(allow_boolean=False, allow_negative=False))
        _, op.attributes = parse_attributes(parser, cls)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.picoseconds.value.data}")
        print_attributes(printer, self, ("picoseconds",))


def _parse_tiles(parser: Parser, delimiter: Parser.Delimiter | None):
    return parser.parse_comma_separated_list(
        delimiter or parser.Delimiter.NONE, parser.parse_unresolved_operand
    )


def _resolve_tiles(parser: Parser, handles: Sequence[UnresolvedOperand]) -> list[SSAValue]:
    parser.parse_punctuation(":")
    start = parser.pos
    types = parser.parse_comma_separated_list(
        parser.Delimiter.NONE, lambda: parse_tile_type(parser)
    )
    return list(parser.resolve_operands(handles, types, start))


def tiles_read(op: Operation) -> tuple[SSAValue, ...]:
    """The tiles whose contents an instruction needs."""
    match op:
        case MatrixOp():
            return (op.accumulator, op.a, op.b)
        case VectorOp():
            return op.reads
        case StoreOp() | PutOp():
            return (op.tile,)
        case GatherOp():
            return (op.rows,)
        case _:
            return ()


def tiles_written(op: Operation) -> tuple[SSAValue, ...]:
    """The tiles whose contents an instruction changes."""
    match op:
        case MatrixOp():
            return (op.accumulator,)
        case VectorOp():
            return op.writes
        case LoadOp() | GetOp() | GatherOp():
            return (op.tile,)
        case _:
            return ()


def index_environment(op: Operation) -> dict[str, SSAValue]:
    """The index value behind each variable of the expressions of an isa operation."""
    return environment([v for v in op.operands if isinstance(v.type, IndexType)])
