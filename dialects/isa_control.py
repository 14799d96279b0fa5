"""Loops and branches of the isa dialect."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    IndexType,
    IntegerAttr,
)
from xdsl.ir import BlockArgument, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from starc.dialects.isa_expressions import (
    ExpressionAttr,
    check_expressions,
    integer,
    parse_attributes,
    parse_expression,
    print_attributes,
    print_expressions,
)


@irdl_op_definition
class LoopOp(IRDLOperation):
    """A counted loop: ``isa.loop %k = [lower] to [upper] { ... }``; it may be empty.

    ``stages`` is the most stages that ``pipeline-loops`` may use; the pass notes the initiation
    interval ``ii`` that it reached and its bounds ``res_mii`` and ``rec_mii``, in core cycles.
    """

    name = "isa.loop"
    indices = var_operand_def(IndexType())
    lower = prop_def(ExpressionAttr)
    upper = prop_def(ExpressionAttr)
    stages = opt_prop_def(IntegerAttr)
    ii = opt_prop_def(IntegerAttr)
    res_mii = opt_prop_def(IntegerAttr)
    rec_mii = opt_prop_def(IntegerAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(
        self,
        lower: ExpressionAttr,
        upper: ExpressionAttr,
        indices: Sequence[SSAValue],
        body: Region,
        *,
        stages: int | None = None,
    ):
        super().__init__(
            operands=[indices],
            regions=[body],
            properties={"lower": lower, "upper": upper, "stages": integer(stages)},
        )

    @property
    def counter(self) -> BlockArgument:
        return self.body.block.args[0]

    @classmethod
    def parse(cls, parser: Parser) -> LoopOp:
        counter = parser.parse_argument(expect_type=False).resolve(IndexType())
        operands: list[SSAValue] = []
        parser.parse_punctuation("=")
        lower = parse_expression(parser, operands)
        parser.parse_keyword("to")
        upper = parse_expression(parser, operands)
        properties, attributes = parse_attributes(parser, cls, keyword=True)
        op = LoopOp(lower, upper, operands, parser.parse_region([counter]))
        op.properties.update(properties)
        op.attributes = attributes
        return op

    def print(self, printer: Printer) -> None:
        # The counter is in scope of the body alone, so its name is taken in the body's scope.
        printer.print_string(" ")
        printer.print_ssa_value(self.counter)
        printer.print_string(" = ")
        print_expressions(printer, [self.lower], self.indices)
        printer.print_string(" to ")
        print_expressions(printer, [self.upper], self.indices)
        print_attributes(printer, self, ("lower", "upper"), keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)

    def verify_(self) -> None:
        check_expressions(self, [self.lower, self.upper], len(self.indices))
        if [arg.type for arg in self.body.block.args] != [IndexType()]:
            raise VerifyException("a loop has one counter, an index value")


@irdl_op_definition
class IfOp(IRDLOperation):
    """A branch without an else: the body runs where the condition is not negative.

    ``isa.if [%device - 1] { ... }`` runs on every device but the first.
    """

    name = "isa.if"
    indices = var_operand_def(IndexType())
    condition = prop_def(ExpressionAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(self, condition: ExpressionAttr, indices: Sequence[SSAValue], body: Region):
        super().__init__(operands=[indices], regions=[body], properties={"condition": condition})

    @classmethod
    def parse(cls, parser: Parser) -> IfOp:
        operands: list[SSAValue] = []
        condition = parse_expression(parser, operands)
        _, attributes = parse_attributes(parser, cls, keyword=True)
        op = IfOp(condition, operands, parser.parse_region())
        op.attributes = attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_expressions(printer, [self.condition], self.indices)
        print_attributes(printer, self, ("condition",), keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body)

    def verify_(self) -> None:
        check_expressions(self, [self.condition], len(self.indices))
