"""Commands, scratch scopes and engine streams of the isa dialect.

A machine whose compute units have engines of their own runs a kernel as one stream an engine.
Before ``assign-engines`` the body is one stream in which a *composite* is one command for the
scheduler of the engines, and a *scope* bounds the life of scratch tiles; both mean what their
bodies mean in line. Afterwards the body is a row of ``isa.stream``, joined by semaphores:

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

from xdsl.dialects.builtin import IntegerAttr, StringAttr, UnitAttr, i64
from xdsl.ir import Block, Operation, ParametrizedAttribute, Region, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
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
from starc.dialects.isa_control import IfOp, LoopOp
from starc.dialects.isa_counters import SignalOp, WaitOp
from starc.dialects.isa_expressions import (
    TileType,
    parse_attributes,
    print_attributes,
    resolve_tiles,
)
from starc.dialects.isa_instructions import AllocOp, DelayOp, IndexOp, MatrixOp, VectorOp
from starc.dialects.isa_memory import (
    GatherOp,
    GetOp,
    LoadOp,
    PutOp,
    StoreOp,
)

ENGINES: Final[Mapping[str, Engine]] = {engine.name.lower(): engine for engine in Engine}
"""The engines by name, in the order in which their streams are packed."""
_COMPOSABLE: Final = (AllocOp, IndexOp, LoadOp, GetOp, StoreOp, MatrixOp, VectorOp, LoopOp, IfOp)


@irdl_attr_definition
class SemaphoreType(ParametrizedAttribute, TypeAttribute):
    """A counter of a workgroup that joins two of its streams."""

    name = "isa.semaphore"


# Regions that are one command or one scope


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


# Streams and what joins them


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
