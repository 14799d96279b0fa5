"""Tiles and index values of the isa dialect: what instructions name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    IndexType,
    IntegerAttr,
    StringAttr,
    i64,
)
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from starc.backend.program import MAX_DEPTH
from starc.dialects.isa_expressions import (
    ExpressionAttr,
    TileType,
    check_expressions,
    integer,
    parse_attributes,
    parse_expression,
    parse_tile_type,
    print_attributes,
    print_expressions,
)


@irdl_op_definition
class AllocOp(IRDLOperation):
    """A tile handle. In scratch it has ``slots`` copies used in turn by the iterations of the loop
    it stands in; ``offset`` is the first byte of slot 0, given by ``plan-scratch``. A tile that
    streams share stands outside of their loops: ``turns`` is the depth of the loop whose iterations
    take the slots in turn, 1 for the outermost."""

    name = "isa.alloc"
    space = prop_def(StringAttr)
    slots = prop_def(IntegerAttr)
    turns = opt_prop_def(IntegerAttr)
    offset = opt_prop_def(IntegerAttr)
    tile = result_def(TileType)

    SPACES: ClassVar = ("scratch", "register")

    def __init__(
        self, tile: TileType, space: str = "scratch", slots: int = 1, *, turns: int | None = None
    ):
        super().__init__(
            result_types=[tile],
            properties={
                "space": StringAttr(space),
                "slots": IntegerAttr(slots, i64),
                "turns": integer(turns),
            },
        )

    @property
    def type(self) -> TileType:
        return self.tile.type

    @classmethod
    def parse(cls, parser: Parser) -> AllocOp:
        space = parser.parse_identifier("a tile space")
        slots, turns, offset = 1, None, None
        if parser.parse_optional_keyword("slots"):
            slots = parser.parse_integer(allow_boolean=False, allow_negative=False)
        if parser.parse_optional_keyword("turns"):
            turns = parser.parse_integer(allow_boolean=False, allow_negative=False)
        if parser.parse_optional_keyword("offset"):
            offset = parser.parse_integer(allow_boolean=False, allow_negative=False)
        _, attributes = parse_attributes(parser, cls)
        parser.parse_punctuation(":")
        op = AllocOp(parse_tile_type(parser), space, slots, turns=turns)
        op.attributes = attributes
        op.offset = integer(offset)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.space.data}")
        if self.slots.value.data != 1:
            printer.print_string(f" slots {self.slots.value.data}")
        if self.turns is not None:
            printer.print_string(f" turns {self.turns.value.data}")
        if self.offset is not None:
            printer.print_string(f" offset {self.offset.value.data}")
        print_attributes(printer, self, ("space", "slots", "turns", "offset"))
        printer.print_string(" : ")
        printer.print_attribute(self.tile.type)

    def verify_(self) -> None:
        if self.space.data not in self.SPACES:
            raise VerifyException(f"unknown tile space '{self.space.data}': scratch or register")
        slots = self.slots.value.data
        if slots < 1:
            raise VerifyException("a tile has at least one slot")
        parent = self.parent_op()
        if self.turns is not None:
            if parent is None or parent.name != "isa.kernel":
                raise VerifyException(
                    "a tile whose slots a loop of the streams turns is the kernel's"
                )
            if not 1 <= self.turns.value.data <= MAX_DEPTH:
                raise VerifyException(
                    f"turns names a loop by its depth, 1 to {MAX_DEPTH}, "
                    f"not {self.turns.value.data}"
                )
            return
        while parent is not None and parent.name in ("isa.composite", "isa.scope"):
            parent = parent.parent_op()
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
