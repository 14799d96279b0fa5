"""Instructions of the isa dialect that stay in a workgroup: tiles, index values, compute.

Every operation here but ``isa.alloc`` and ``isa.index`` is one record of the packed program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    IndexType,
    IntegerAttr,
    StringAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
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

from starc.core.quasi_affine.expressions import Const
from starc.core.vector_functions.function import OPERAND_FIELDS, Function
from starc.core.vector_functions.table import BY_NAME
from starc.dialects.isa_expressions import (
    ExpressionAttr,
    TileType,
    check_expressions,
    environment,
    parse_attributes,
    parse_expression,
    parse_expressions,
    parse_tiles,
    print_attributes,
    print_expressions,
    resolve_tiles,
)
from starc.dialects.isa_memory import GatherOp, GetOp, LoadOp, PutOp, StoreOp

# Compute


@irdl_op_definition
class MatrixOp(IRDLOperation):
    """``accumulator[m, n] += a[m, k] * b[k, n]``, or ``b[n, k]`` with ``transpose_b``.

    ``columns [c]`` adds to the n columns of the accumulator from c on, ``inner [i]`` takes the k
    columns of ``a`` from i on; what is multiplied is the size of ``b``:

        isa.matrix %s, %q, %k columns [%t * 64] inner [0] {transpose_b} : ...
    """

    name = "isa.matrix"
    accumulator = operand_def(TileType)
    a = operand_def(TileType)
    b = operand_def(TileType)
    indices = var_operand_def(IndexType())
    transpose_b = opt_prop_def(UnitAttr)
    columns = opt_prop_def(ExpressionAttr)
    inner = opt_prop_def(ExpressionAttr)

    def __init__(
        self,
        accumulator: SSAValue,
        a: SSAValue,
        b: SSAValue,
        *,
        transpose_b: bool = False,
        columns: ExpressionAttr | None = None,
        inner: ExpressionAttr | None = None,
        indices: Sequence[SSAValue] = (),
    ):
        super().__init__(
            operands=[accumulator, a, b, indices],
            properties={
                "transpose_b": UnitAttr() if transpose_b else None,
                "columns": columns,
                "inner": inner,
            },
        )

    @property
    def tiles(self) -> tuple[SSAValue, SSAValue, SSAValue]:
        """Accumulator, a and b."""
        return self.accumulator, self.a, self.b

    @property
    def mnk(self) -> tuple[int, int, int]:
        """What is multiplied: the rows of ``a`` and the size of ``b``."""
        b = cast(TileType, self.b.type)
        n, k = (b.rows, b.columns) if self.transpose_b is not None else (b.columns, b.rows)
        return cast(TileType, self.a.type).rows, n, k

    @classmethod
    def parse(cls, parser: Parser) -> MatrixOp:
        handles = parse_tiles(parser, None)
        operands: list[SSAValue] = []
        columns, inner = None, None
        if parser.parse_optional_keyword("columns"):
            columns = parse_expression(parser, operands)
        if parser.parse_optional_keyword("inner"):
            inner = parse_expression(parser, operands)
        properties, attributes = parse_attributes(parser, cls)
        tiles = resolve_tiles(parser, handles)
        if len(tiles) != 3:
            parser.raise_error("a matrix instruction has an accumulator and two operands")
        op = MatrixOp(*tiles, columns=columns, inner=inner, indices=operands)
        op.properties.update(properties)
        op.attributes = attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.tiles, printer.print_ssa_value)
        if self.columns is not None:
            printer.print_string(" columns ")
            print_expressions(printer, [self.columns], self.indices)
        if self.inner is not None:
            printer.print_string(" inner ")
            print_expressions(printer, [self.inner], self.indices)
        print_attributes(printer, self, ("columns", "inner"))
        printer.print_string(" : ")
        printer.print_list([tile.type for tile in self.tiles], printer.print_attribute)

    def verify_(self) -> None:
        windows = [window for window in (self.columns, self.inner) if window is not None]
        check_expressions(self, windows, len(self.indices))
        c, a, b = (cast(TileType, tile.type) for tile in self.tiles)
        m, n, k = self.mnk
        if (
            c.rows != m
            or not _fits(n, c.columns, self.columns)
            or not _fits(k, a.columns, self.inner)
        ):
            raise VerifyException(
                f"accumulator {c.rows}x{c.columns}, a {a.rows}x{a.columns} and b "
                f"{b.rows}x{b.columns} do not multiply"
            )


def _fits(extent: int, columns: int, start: ExpressionAttr | None) -> bool:
    """Whether a window of ``extent`` columns at ``start`` may lie in a tile; without a start it is
    the whole tile."""
    if start is None:
        return extent == columns
    if isinstance(start.data, Const):
        return 0 <= start.data.value <= columns - extent
    return extent <= columns


@irdl_op_definition
class VectorOp(IRDLOperation):
    """A function of the table ``starc.core.vector_functions.table`` on up to five tiles, the first
    being its result: ``isa.vector "add"(%y, %a, %b) : ...``, with integer parameters where it has
    some: ``isa.vector "rope"(%y, %x) params [128, ...] : ...``."""

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
        handles = parse_tiles(parser, parser.Delimiter.PAREN)
        operands: list[SSAValue] = []
        parameters: list[ExpressionAttr] = []
        if parser.parse_optional_keyword("params"):
            parameters = parse_expressions(parser, operands)
        properties, attributes = parse_attributes(parser, cls)
        op = VectorOp(function, resolve_tiles(parser, handles), parameters, operands)
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
