"""How a ``kernel.launch`` is written and read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from xdsl.dialects.builtin import ArrayAttr, StringAttr, SymbolRefAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

from starc.dialects.kernel_attributes import LaunchAttributes

LaunchT = TypeVar("LaunchT", bound=LaunchAttributes)


@dataclass
class _Inputs:
    """The inputs of a launch as they stand: arguments of its body, and the operands or the names
    of buffers that they are."""

    arguments: list[Parser.Argument] = field(default_factory=list[Parser.Argument])
    operands: list[tuple[UnresolvedOperand, Attribute]] = field(
        default_factory=list[tuple[UnresolvedOperand, Attribute]]
    )
    names: list[SymbolRefAttr] = field(default_factory=list[SymbolRefAttr])


def parse_launch(parser: Parser, kind: type[LaunchT]) -> LaunchT:
    """Reads a launch, behind its name."""
    properties: dict[str, Attribute] = {"sym_name": parser.parse_symbol_name()}
    properties["kind"] = StringAttr(parser.parse_identifier())
    over_buffers = parser.parse_optional_keyword("reads") is not None
    inputs = _parse_inputs(parser, over_buffers)
    result_types: list[Attribute] = []
    if over_buffers:
        properties["reads"] = ArrayAttr(inputs.names)
        parser.parse_keyword("writes")
        written = parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, parser.parse_symbol_name
        )
        properties["writes"] = ArrayAttr([SymbolRefAttr(name) for name in written])
    elif parser.parse_optional_punctuation("->"):
        result_types = list(
            parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        )
    attributes = parser.parse_optional_attr_dict_with_keyword()
    given = dict(attributes.data) if attributes is not None else {}
    scheduled = kind.scheduled()
    properties |= {key: value for key, value in given.items() if key in scheduled}
    body = parser.parse_region(inputs.arguments)
    return kind.create(
        operands=[parser.resolve_operand(operand, type) for operand, type in inputs.operands],
        result_types=result_types,
        properties=properties,
        attributes={key: value for key, value in given.items() if key not in scheduled},
        regions=[body],
    )


def _parse_inputs(parser: Parser, over_buffers: bool) -> _Inputs:
    found = _Inputs()

    def parse_input() -> None:
        argument = parser.parse_argument(expect_type=False)
        parser.parse_punctuation("=")
        operand = None
        if over_buffers:
            found.names.append(SymbolRefAttr(parser.parse_symbol_name()))
        else:
            operand = parser.parse_unresolved_operand()
        parser.parse_punctuation(":")
        type = parser.parse_type()
        found.arguments.append(argument.resolve(type))
        if operand is not None:
            found.operands.append((operand, type))

    parser.parse_comma_separated_list(parser.Delimiter.PAREN, parse_input)
    return found


def print_launch(launch: LaunchAttributes, printer: Printer) -> None:
    """Writes a launch, behind its name."""
    printer.print_string(" ")
    printer.print_symbol_name(launch.sym_name.data)
    printer.print_string(f" {launch.kind.data} ")
    outer: Sequence[SSAValue | str] = launch.inputs
    if launch.uses_buffers:
        printer.print_string("reads ")
        outer = launch.read_names

    def print_input(pair: tuple[SSAValue, SSAValue | str]) -> None:
        printer.print_ssa_value(pair[0])
        printer.print_string(" = ")
        if isinstance(pair[1], str):
            printer.print_symbol_name(pair[1])
        else:
            printer.print_ssa_value(pair[1])
        printer.print_string(" : ")
        printer.print_attribute(pair[0].type)

    with printer.in_parens():
        printer.print_list(list(zip(launch.block.args, outer, strict=True)), print_input)
    if launch.uses_buffers:
        printer.print_string(" writes ")
        with printer.in_parens():
            printer.print_list(launch.written_names, printer.print_symbol_name)
    elif launch.results_:
        printer.print_string(" -> ")
        with printer.in_parens():
            printer.print_list(launch.results_.types, printer.print_attribute)
    properties = launch.properties
    shown = {key: properties[key] for key in launch.scheduled() if key in properties}
    printer.print_op_attributes({**shown, **launch.attributes}, print_keyword=True)
    printer.print_string(" ")
    printer.print_region(launch.body, print_entry_block_args=False)
