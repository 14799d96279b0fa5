"""Quasi-affine expressions as attributes of isa operations, and their assembly.

An operation keeps the index values that its expressions use as operands; the expressions name
them ``d0``, ``d1``, ... in that order. The assembly shows the values themselves:

    isa.load %a, @x[(%wg floordiv 8) * 64, %k * 64] : !isa.tile<64x64xbf16>
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from xdsl.dialects.builtin import IndexType, IntAttr, IntegerAttr, i64
from xdsl.ir import Attribute, Data, Operation, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import IRDLOperation, irdl_attr_definition
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from starc.core.quasi_affine import expressions as qa
from starc.core.quasi_affine.expressions import Expression
from starc.core.quasi_affine.parser import parse
from starc.core.quasi_affine.simplification import substitute

_VARIABLE = re.compile(r"\bd(\d+)\b")


@irdl_attr_definition
class ExpressionAttr(Data[Expression]):
    """An expression over the index operands of its operation: ``#isa.expression<"d0 * 64">``."""

    name = "isa.expression"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Expression:
        with parser.in_angle_brackets():
            position = parser.pos
            text = parser.parse_str_literal()
            try:
                return parse(text)
            except ValueError as error:
                parser.raise_error(str(error), position, parser.pos)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(str(self.data))

    def count(self) -> int:
        """How many index operands the expression needs: one more than the highest it names."""
        return max((int(name[1:]) + 1 for name in qa.variables(self.data)), default=0)


def environment(indices: Sequence[SSAValue]) -> dict[str, SSAValue]:
    """The index value behind each variable name of an operation's expressions."""
    return {f"d{i}": value for i, value in enumerate(indices)}


def bind(
    expressions: Iterable[Expression | int], scope: Mapping[str, SSAValue]
) -> tuple[list[ExpressionAttr], list[SSAValue]]:
    """Turns expressions over the names in ``scope`` into attributes and their index operands.

    Raises ``KeyError`` for a name that is not in scope.
    """
    operands: list[SSAValue] = []
    attributes: list[ExpressionAttr] = []
    for expression in expressions:
        expression = qa.expression(expression)
        names: dict[str, Expression | int] = {}
        for node in qa.walk(expression):
            if not isinstance(node, qa.Var) or node.name in names:
                continue
            value = scope[node.name]
            if value not in operands:
                operands.append(value)
            names[node.name] = qa.Var(f"d{operands.index(value)}")
        attributes.append(ExpressionAttr(substitute(expression, names)))
    return attributes, operands


def parse_expressions(parser: Parser, operands: list[SSAValue]) -> list[ExpressionAttr]:
    """Reads ``[e, e, ...]``, appending the index values it names to ``operands``."""
    parser.parse_punctuation("[")
    result: list[ExpressionAttr] = []
    if parser.parse_optional_punctuation("]"):
        return result
    while True:
        start = parser.pos
        text, more = _collect(parser, operands)
        try:
            result.append(ExpressionAttr(parse(text)))
        except ValueError as error:
            parser.raise_error(str(error), start, parser.pos)
        if not more:
            return result


def parse_expression(parser: Parser, operands: list[SSAValue]) -> ExpressionAttr:
    """Reads ``[e]``."""
    start = parser.pos
    expressions = parse_expressions(parser, operands)
    if len(expressions) != 1:
        parser.raise_error("expected one expression", start, parser.pos)
    return expressions[0]


def _collect(parser: Parser, operands: list[SSAValue]) -> tuple[str, bool]:
    """The tokens of one expression as text with ``d<i>`` for index values, up to the comma or
    bracket that ends it, and whether it was a comma."""
    pieces: list[str] = []
    depth = 0
    while True:
        if (operand := parser.parse_optional_operand(IndexType())) is not None:
            if operand not in operands:
                operands.append(operand)
            pieces.append(f"d{operands.index(operand)}")
        elif (integer := parser.parse_optional_integer(False, False)) is not None:
            pieces.append(str(integer))
        elif (word := parser.parse_optional_identifier()) is not None:
            pieces.append(word)
        elif parser.parse_optional_punctuation("("):
            depth += 1
            pieces.append("(")
        elif parser.parse_optional_punctuation("["):
            depth += 1
            pieces.append("[")
        elif parser.parse_optional_punctuation(")"):
            depth -= 1
            pieces.append(")")
        elif parser.parse_optional_punctuation("]"):
            if depth == 0:
                return " ".join(pieces), False
            depth -= 1
            pieces.append("]")
        elif parser.parse_optional_punctuation(","):
            if depth == 0:
                return " ".join(pieces), True
            pieces.append(",")
        elif parser.parse_optional_punctuation("+"):
            pieces.append("+")
        elif parser.parse_optional_punctuation("-"):
            pieces.append("-")
        elif parser.parse_optional_punctuation("*"):
            pieces.append("*")
        elif parser.parse_optional_punctuation("<"):
            depth += 1
            pieces.append("<")
        elif parser.parse_optional_punctuation(">"):
            depth -= 1
            pieces.append(">")
        else:
            parser.raise_error("expected a quasi-affine expression")


def print_expressions(
    printer: Printer, expressions: Iterable[ExpressionAttr], operands: Sequence[SSAValue]
) -> None:
    """Prints ``[e, e, ...]`` with the names of the index values."""
    with printer.in_square_brackets():
        for i, attribute in enumerate(expressions):
            if i:
                printer.print_string(", ")
            pieces = _VARIABLE.split(str(attribute.data))
            for j, piece in enumerate(pieces):
                if j % 2:
                    printer.print_ssa_value(operands[int(piece)])
                else:
                    printer.print_string(piece)


# Types


@irdl_attr_definition
class TileType(ParametrizedAttribute, TypeAttribute):
    """A two-dimensional tile of elements, in row-major order: ``!isa.tile<64x128xf32>``."""

    name = "isa.tile"

    row_count: IntAttr
    column_count: IntAttr
    element_type: Attribute

    @staticmethod
    def of(rows: int, columns: int, element_type: Attribute) -> TileType:
        return TileType(IntAttr(rows), IntAttr(columns), element_type)

    @property
    def rows(self) -> int:
        return self.row_count.data

    @property
    def columns(self) -> int:
        return self.column_count.data

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            rows = parser.parse_shape_dimension(allow_dynamic=False)
            parser.parse_shape_delimiter()
            columns = parser.parse_shape_dimension(allow_dynamic=False)
            parser.parse_shape_delimiter()
            if rows < 1 or columns < 1:
                parser.raise_error("a tile has at least one row and one column")
            return (IntAttr(rows), IntAttr(columns), parser.parse_type())

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"{self.rows}x{self.columns}x")
            printer.print_attribute(self.element_type)


# Assembly of what is neither operand nor expression


def parse_attributes(parser: Parser, op: type[IRDLOperation], *, keyword: bool = False):
    """An optional attribute dictionary, split into the properties of ``op`` and the rest."""
    if keyword:
        dictionary = parser.parse_optional_attr_dict_with_keyword()
        entries = {} if dictionary is None else dict(dictionary.data)
    else:
        entries = parser.parse_optional_attr_dict()
    known = op.get_irdl_definition().accessor_names
    names = set(op.get_irdl_definition().properties) | set(known)
    return (
        {k: v for k, v in entries.items() if k in names},
        {k: v for k, v in entries.items() if k not in names},
    )


def print_attributes(
    printer: Printer, op: IRDLOperation, shown: Sequence[str], *, keyword: bool = False
) -> None:
    entries = {**op.properties, **op.attributes}
    printer.print_op_attributes(
        entries, reserved_attr_names=(*shown, "operandSegmentSizes"), print_keyword=keyword
    )


def integer(value: int | None) -> IntegerAttr | None:
    return None if value is None else IntegerAttr(value, i64)


def check_expressions(op: Operation, expressions: Sequence[ExpressionAttr], indices: int) -> None:
    for expression in expressions:
        if expression.count() > indices:
            raise VerifyException(
                f"expression '{expression.data}' names an index operand that does not exist: "
                f"the operation has {indices}"
            )


def parse_tile_type(parser: Parser) -> TileType:
    start = parser.pos
    type_ = parser.parse_type()
    if not isinstance(type_, TileType):
        parser.raise_error("expected an !isa.tile type", start, parser.pos)
    return type_


def parse_tiles(parser: Parser, delimiter: Parser.Delimiter | None):
    return parser.parse_comma_separated_list(
        delimiter or parser.Delimiter.NONE, parser.parse_unresolved_operand
    )


def resolve_tiles(parser: Parser, handles: Sequence[UnresolvedOperand]) -> list[SSAValue]:
    parser.parse_punctuation(":")
    start = parser.pos
    types = parser.parse_comma_separated_list(
        parser.Delimiter.NONE, lambda: parse_tile_type(parser)
    )
    return list(parser.resolve_operands(handles, types, start))
