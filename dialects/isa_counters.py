"""Signals and waits of the isa dialect: what devices and workgroups know of each other."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    IndexType,
    SymbolRefAttr,
    UnitAttr,
)
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from starc.dialects.isa_expressions import (
    ExpressionAttr,
    check_expressions,
    parse_attributes,
    parse_expression,
    print_attributes,
    print_expressions,
)
from starc.dialects.symbols import named


def _check_counter(op: Operation, symbol: SymbolRefAttr) -> None:
    counter = named(op, symbol)
    if counter is None or counter.name != "isa.counter":
        raise VerifyException(f"there is no counter @{symbol.string_value()}")


class CounterAccess(IRDLOperation):
    """What ``isa.signal`` and ``isa.wait`` share: an element of a counter array and a value."""

    indices = var_operand_def(IndexType())
    counter = prop_def(SymbolRefAttr)
    element = prop_def(ExpressionAttr)
    value = prop_def(ExpressionAttr)

    @staticmethod
    def parse_access(
        parser: Parser, verb: str
    ) -> tuple[str, ExpressionAttr, ExpressionAttr, list[SSAValue]]:
        """Counter, element, value and the index values that they use: ``@c[..] verb [..]``."""
        counter = parser.parse_symbol_name()
        operands: list[SSAValue] = []
        element = parse_expression(parser, operands)
        parser.parse_keyword(verb)
        value = parse_expression(parser, operands)
        return counter.data, element, value, operands

    def print_access(self, printer: Printer, verb: str) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.counter.string_value())
        print_expressions(printer, [self.element], self.indices)
        printer.print_string(f" {verb} ")
        print_expressions(printer, [self.value], self.indices)

    def verify_(self) -> None:
        check_expressions(self, [self.element, self.value], len(self.indices))
        _check_counter(self, self.counter)


@irdl_op_definition
class SignalOp(CounterAccess):
    """Adds to a counter of a device once all earlier stores and puts of this workgroup are
    performed: ``isa.signal @ready[%i] add [1] to [%next]``; without ``to``, of this device.

    ``attached`` means that every word of those puts carries a flag of its own, which the receiver
    looks for: nothing is acknowledged before, the last word to arrive is the signal."""

    name = "isa.signal"
    peer = opt_prop_def(ExpressionAttr)
    attached = opt_prop_def(UnitAttr)

    def __init__(
        self,
        counter: str,
        element: ExpressionAttr,
        value: ExpressionAttr,
        indices: Sequence[SSAValue],
        peer: ExpressionAttr | None = None,
        *,
        attached: bool = False,
    ):
        super().__init__(
            operands=[indices],
            properties={
                "counter": SymbolRefAttr(counter),
                "element": element,
                "value": value,
                "peer": peer,
                "attached": UnitAttr() if attached else None,
            },
        )

    @classmethod
    def parse(cls, parser: Parser) -> SignalOp:
        counter, element, value, operands = cls.parse_access(parser, "add")
        peer = None
        if parser.parse_optional_keyword("to"):
            peer = parse_expression(parser, operands)
        attached = parser.parse_optional_keyword("attached") is not None
        op = SignalOp(counter, element, value, operands, peer, attached=attached)
        _, op.attributes = parse_attributes(parser, cls)
        return op

    def print(self, printer: Printer) -> None:
        self.print_access(printer, "add")
        if self.peer is not None:
            printer.print_string(" to ")
            print_expressions(printer, [self.peer], self.indices)
        if self.attached is not None:
            printer.print_string(" attached")
        print_attributes(printer, self, ("counter", "element", "value", "peer", "attached"))

    def verify_(self) -> None:
        super().verify_()
        if self.peer is not None:
            check_expressions(self, [self.peer], len(self.indices))


@irdl_op_definition
class WaitOp(CounterAccess):
    """Blocks the stream until a counter of this device has reached a value, and sees what was
    written before the signals: ``isa.wait @ready[%i] until [%step + 1]``.

    ``deferred`` (an asynchronous receive) stands in the order of the loads and holds up those
    behind it, while the CPU goes on."""

    name = "isa.wait"
    deferred = opt_prop_def(UnitAttr)

    def __init__(
        self,
        counter: str,
        element: ExpressionAttr,
        value: ExpressionAttr,
        indices: Sequence[SSAValue],
        *,
        deferred: bool = False,
    ):
        super().__init__(
            operands=[indices],
            properties={
                "counter": SymbolRefAttr(counter),
                "element": element,
                "value": value,
                "deferred": UnitAttr() if deferred else None,
            },
        )

    @classmethod
    def parse(cls, parser: Parser) -> WaitOp:
        counter, element, value, operands = cls.parse_access(parser, "until")
        deferred = parser.parse_optional_keyword("deferred") is not None
        op = WaitOp(counter, element, value, operands, deferred=deferred)
        _, op.attributes = parse_attributes(parser, cls)
        return op

    def print(self, printer: Printer) -> None:
        self.print_access(printer, "until")
        if self.deferred is not None:
            printer.print_string(" deferred")
        print_attributes(printer, self, ("counter", "element", "value", "deferred"))
