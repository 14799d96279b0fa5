"""Commands and scratch scopes of the isa dialect.

A machine whose compute units have engines of their own runs a kernel as one stream an engine.
Before ``assign-engines`` the body is one stream in which a *composite* is one command for the
scheduler of the engines, and a *scope* bounds the life of scratch tiles; both mean what their
bodies mean in line. Afterwards the body is a row of ``isa.stream``.
"""

from __future__ import annotations

from typing import Final

from xdsl.dialects.builtin import IntegerAttr, UnitAttr
from xdsl.ir import Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    region_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from starc.dialects.isa_control import IfOp, LoopOp
from starc.dialects.isa_declarations import AllocOp, IndexOp
from starc.dialects.isa_expressions import (
    parse_attributes,
    print_attributes,
)
from starc.dialects.isa_instructions import MatrixOp, VectorOp
from starc.dialects.isa_memory import (
    GetOp,
    LoadOp,
    StoreOp,
)

_COMPOSABLE: Final = (AllocOp, IndexOp, LoadOp, GetOp, StoreOp, MatrixOp, VectorOp, LoopOp, IfOp)


@irdl_op_definition
class CompositeOp(IRDLOperation):
    """One command for the scheduler of the engines: a GEMM with an elementwise epilogue.

        isa.composite {
          isa.vector "zero"(%s) : !isa.tile<32x512xf32>
          isa.loop %i = [0] to [8] {
            %k = isa.alloc scratch slots 2 : !isa.tile<64x128xbf16>
            isa.load %k, @keys[%i * 64, 0] : !isa.tile<64x128xbf16>
            isa.matrix %s, %q, %k columns [%i * 64] {transpose_b} : ...
          }
        }

    All its matrix instructions add to one accumulator, which it sets first, and its vector
    functions are elementwise. With ``stateful`` it holds a whole step of flash attention: several
    products, reductions of rows, and accumulators that an earlier command has left.
    """

    name = "isa.composite"
    stateful = opt_prop_def(UnitAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(self, body: Region, *, stateful: bool = False):
        super().__init__(regions=[body], properties={"stateful": UnitAttr() if stateful else None})

    @classmethod
    def parse(cls, parser: Parser) -> CompositeOp:
        stateful = parser.parse_optional_keyword("stateful") is not None
        properties, attributes = parse_attributes(parser, cls, keyword=True)
        op = CompositeOp(parser.parse_region(), stateful=stateful)
        op.properties.update(properties)
        op.attributes = attributes
        return op

    def print(self, printer: Printer) -> None:
        if self.stateful is not None:
            printer.print_string(" stateful")
        print_attributes(printer, self, ("stateful",), keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body)

    def verify_(self) -> None:
        if self.body.block.args:
            raise VerifyException("a composite has no arguments")
        accumulators: dict[SSAValue, None] = {}
        set_before: set[SSAValue] = set()
        for op in self.body.walk():
            if not isinstance(op, (*_COMPOSABLE, ScopeOp)):
                raise VerifyException(
                    f"'{op.name}' is not part of a composite: it holds loads, gets, stores, matrix "
                    "and vector instructions, loops and branches"
                )
            if self.stateful is not None:
                continue
            if isinstance(op, VectorOp):
                if not op.definition.elementwise:
                    raise VerifyException(
                        f"'{op.function.data}' is not elementwise: only a stateful composite holds "
                        "it"
                    )
                set_before |= {tile for tile in op.writes if tile not in op.reads}
            elif isinstance(op, MatrixOp):
                if op.accumulator not in set_before:
                    raise VerifyException(
                        "the accumulator of a composite is set in it before its first matrix "
                        "instruction: only a stateful composite adds to what was there"
                    )
                accumulators[op.accumulator] = None
        if len(accumulators) > 1:
            raise VerifyException(
                f"a composite is one product and adds to one accumulator, not to "
                f"{len(accumulators)}: only a stateful composite holds several"
            )


@irdl_op_definition
class ScopeOp(IRDLOperation):
    """A scratch scope: the tiles allocated inside are free again at its end."""

    name = "isa.scope"
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(self, body: Region):
        super().__init__(regions=[body])

    @classmethod
    def parse(cls, parser: Parser) -> ScopeOp:
        _, attributes = parse_attributes(parser, cls, keyword=True)
        op = ScopeOp(parser.parse_region())
        op.attributes = attributes
        return op

    def print(self, printer: Printer) -> None:
        print_attributes(printer, self, (), keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body)

    def verify_(self) -> None:
        if self.body.block.args:
            raise VerifyException("a scope has no arguments")


def enclosing(op: Operation) -> Operation | None:
    """The loop, branch, stream or kernel around an operation; composites and scopes are seen
    through, because their bodies run in line."""
    parent = op.parent_op()
    while isinstance(parent, CompositeOp | ScopeOp):
        parent = parent.parent_op()
    return parent


def stage_of(op: Operation) -> int:
    """The stage of an operation in the loop around it: its own, or that of the composite or branch
    that it stands directly in."""
    stage = op.attributes.get("stage")
    if isinstance(stage, IntegerAttr):
        return stage.value.data
    parent = op.parent_op()
    return stage_of(parent) if isinstance(parent, CompositeOp | ScopeOp | IfOp) else 0
