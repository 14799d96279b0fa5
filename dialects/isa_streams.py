"""Streams of engines and the semaphores that join them, in the isa dialect.

A kernel for a machine whose compute units have engines is, after ``assign-engines``, a row of
``isa.stream``, joined by semaphores:

    isa.kernel @k coords(%device, %pe, %wg) attributes {kernel_class = "gemm"} {
      %t = isa.alloc scratch slots 2 turns 1 : !isa.tile<32x64xbf16>
      %full = isa.semaphore initial 0 : !isa.semaphore
      %free = isa.semaphore initial 2 : !isa.semaphore
      isa.stream "dma" {
        isa.loop %i = [0] to [8] {
          isa.acquire %free
          isa.load %t, @x[%i * 32, 0] : !isa.tile<32x64xbf16>
          isa.release %full after %t : !isa.tile<32x64xbf16>
        }
      }
      isa.stream "math" {
        isa.loop %i = [0] to [8] {
          isa.acquire %full
          isa.vector "add"(%y, %y, %t) : ...
          isa.release %free
        }
      }
    }

Tiles and semaphores belong to the workgroup: its streams share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Block, Operation, ParametrizedAttribute, Region, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from starc.backend.program import MAX_STREAM_RECORDS, Engine
from starc.dialects.invalid_ir import InvalidIR
from starc.dialects.isa_commands import CompositeOp, ScopeOp
from starc.dialects.isa_control import IfOp, LoopOp
from starc.dialects.isa_counters import SignalOp, WaitOp
from starc.dialects.isa_declarations import AllocOp, IndexOp
from starc.dialects.isa_expressions import (
    TileType,
    parse_attributes,
    print_attributes,
    resolve_tiles,
)
from starc.dialects.isa_instructions import DelayOp, MatrixOp, VectorOp
from starc.dialects.isa_memory import (
    GatherOp,
    GetOp,
    LoadOp,
    PutOp,
    StoreOp,
)

ENGINES: Final[Mapping[str, Engine]] = {engine.name.lower(): engine for engine in Engine}
"""The engines by name, in the order in which their streams are packed."""


@irdl_attr_definition
class SemaphoreType(ParametrizedAttribute, TypeAttribute):
    """A counter of a workgroup that joins two of its streams."""

    name = "isa.semaphore"


@irdl_op_definition
class SemaphoreOp(IRDLOperation):
    """A semaphore of the workgroup: ``%s = isa.semaphore initial 2 : !isa.semaphore``."""

    name = "isa.semaphore"
    initial = prop_def(IntegerAttr)
    semaphore = result_def(SemaphoreType)

    def __init__(self, initial: int = 0):
        super().__init__(
            result_types=[SemaphoreType()], properties={"initial": IntegerAttr(initial, i64)}
        )

    @classmethod
    def parse(cls, parser: Parser) -> SemaphoreOp:
        parser.parse_keyword("initial")
        op = SemaphoreOp(parser.parse_integer(allow_boolean=False))
        _, op.attributes = parse_attributes(parser, cls)
        parser.parse_punctuation(":")
        start = parser.pos
        if not isinstance(parser.parse_type(), SemaphoreType):
            parser.raise_error("expected the type !isa.semaphore", start, parser.pos)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" initial {self.initial.value.data}")
        print_attributes(printer, self, ("initial",))
        printer.print_string(" : ")
        printer.print_attribute(self.semaphore.type)

    def verify_(self) -> None:
        if self.initial.value.data < 0:
            raise VerifyException("a semaphore starts at 0 or more")


@irdl_op_definition
class StreamOp(IRDLOperation):
    """What one engine executes of a kernel: ``isa.stream "dma" { ... }``."""

    name = "isa.stream"
    engine = prop_def(StringAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(self, engine: str, body: Region):
        super().__init__(regions=[body], properties={"engine": StringAttr(engine)})

    @classmethod
    def parse(cls, parser: Parser) -> StreamOp:
        engine = parser.parse_str_literal()
        _, attributes = parse_attributes(parser, cls, keyword=True)
        op = StreamOp(engine, parser.parse_region())
        op.attributes = attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.engine.data)
        print_attributes(printer, self, ("engine",), keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body)

    def verify_(self) -> None:
        if self.engine.data not in ENGINES:
            raise VerifyException(
                f"unknown engine '{self.engine.data}', one of {', '.join(ENGINES)}"
            )
        if self.body.block.args:
            raise VerifyException("a stream has no arguments")
        for op in self.body.walk():
            if isinstance(op, ReleaseOp) and op.tile is not None and self.engine.data != "dma":
                raise InvalidIR(
                    "only the dma stream releases after a tile: its loads and stores are in flight",
                    op,
                )
            legal = engines_of(op)
            if not legal:
                raise InvalidIR(f"'{op.name}' does not stand in a stream", op)
            if self.engine.data not in legal:
                raise InvalidIR(
                    f"'{op.name}' runs on {' or '.join(legal)}, not on {self.engine.data}", op
                )


@irdl_op_definition
class AcquireOp(IRDLOperation):
    """Waits until a semaphore is positive, and takes one: ``isa.acquire %s``."""

    name = "isa.acquire"
    semaphore = operand_def(SemaphoreType)

    def __init__(self, semaphore: SSAValue):
        super().__init__(operands=[semaphore])

    @classmethod
    def parse(cls, parser: Parser) -> AcquireOp:
        op = AcquireOp(parser.parse_operand(SemaphoreType()))
        _, op.attributes = parse_attributes(parser, cls)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.semaphore)
        print_attributes(printer, self, ())


@irdl_op_definition
class ReleaseOp(IRDLOperation):
    """Adds one to a semaphore when all earlier instructions of the stream are complete: its engine
    has ended them, loads have arrived, stores have read their tiles.

    With ``after %tile`` it does not hold the stream: the semaphore grows when the loads into this
    slot of the tile have arrived and the stores and puts from it have read it."""

    name = "isa.release"
    semaphore = operand_def(SemaphoreType)
    tile = opt_operand_def(TileType)

    def __init__(self, semaphore: SSAValue, tile: SSAValue | None = None):
        super().__init__(operands=[semaphore, tile])

    @classmethod
    def parse(cls, parser: Parser) -> ReleaseOp:
        semaphore = parser.parse_operand(SemaphoreType())
        handle = None
        if parser.parse_optional_keyword("after"):
            handle = parser.parse_unresolved_operand()
        _, attributes = parse_attributes(parser, cls)
        tile = None if handle is None else resolve_tiles(parser, [handle])[0]
        op = ReleaseOp(semaphore, tile)
        op.attributes = attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.semaphore)
        if self.tile is not None:
            printer.print_string(" after ")
            printer.print_ssa_value(self.tile)
        print_attributes(printer, self, ())
        if self.tile is not None:
            printer.print_string(" : ")
            printer.print_attribute(self.tile.type)


def engines_of(op: Operation) -> tuple[str, ...]:
    """The engines whose streams may hold an operation; none where it stands in no stream."""
    match op:
        case WaitOp():
            return ("dma",) if op.deferred is not None else ("cpu",)
        case LoadOp() | StoreOp() | PutOp() | GetOp() | GatherOp() | SignalOp():
            return ("dma",)
        case MatrixOp():
            return ("gemm",)
        case VectorOp():
            return ("math",)
        case DelayOp():
            return ("cpu", "scheduler")
        case AcquireOp() | ReleaseOp() | LoopOp() | IfOp() | IndexOp():
            return tuple(ENGINES)
        case _:
            return ()


def block_records(block: Block) -> int:
    """The records that a block packs into; a loop or a branch takes two, the bodies of composites
    and scopes are in line."""
    free = AllocOp | IndexOp | CompositeOp | ScopeOp | SemaphoreOp | StreamOp
    return sum(
        2 if isinstance(op, LoopOp | IfOp) else 0 if isinstance(op, free) else 1
        for op in block.walk()
    )


def verify_streams(block: Block) -> None:
    """The rules of a kernel body that has streams: nothing beside them but tiles, index values and
    semaphores; one stream an engine; one stream acquires a semaphore and one releases it. Raises
    ``VerifyException``."""
    seen: set[str] = set()
    users: dict[tuple[SSAValue, str], str] = {}
    for op in block.ops:
        if not isinstance(op, StreamOp):
            if not isinstance(op, AllocOp | IndexOp | SemaphoreOp):
                raise InvalidIR(f"'{op.name}' stands beside streams, not in one of them", op)
            continue
        engine = op.engine.data
        if engine in seen:
            raise InvalidIR(f"a kernel has one stream for an engine, two for '{engine}'", op)
        seen.add(engine)
        records = block_records(op.body.block)
        if records > MAX_STREAM_RECORDS:
            raise InvalidIR(
                f"the {engine} stream has {records} records, more than {MAX_STREAM_RECORDS}", op
            )
        for inner in op.body.walk():
            if isinstance(inner, AcquireOp | ReleaseOp):
                verb = "acquires" if isinstance(inner, AcquireOp) else "releases"
                first = users.setdefault((inner.semaphore, verb), engine)
                if first != engine:
                    semaphore = inner.semaphore.name_hint or "?"
                    raise InvalidIR(
                        f"one stream {verb} a semaphore, not both {first} and {engine}: "
                        f"%{semaphore}",
                        inner,
                    )
