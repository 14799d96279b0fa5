"""The isa dialect: instruction streams of workgroups, one template for all of them.

A kernel is a template that every workgroup of every device executes with its own coordinates.
Tiles are mutable handles in a workgroup's scratch or registers; only coordinates and loop counters
are SSA values. Loads are asynchronous: an instruction that reads a tile waits for it. Operations
map one to one to records of ``starc.backend.program``; ``isa.alloc`` and ``isa.index`` take none.

    isa.counter @ready count 8
    isa.kernel @copy coords(%device, %gpu, %xcd, %wg) attributes {kernel_class = "elementwise"} {
      isa.loop %i = [0] to [4] {
        %t = isa.alloc scratch slots 2 : !isa.tile<1x64xbf16>
        isa.load %t, @x[%wg, %i * 64] : !isa.tile<1x64xbf16>
        isa.store %t, @y[%wg, %i * 64] : !isa.tile<1x64xbf16>
      }
    }

Coordinates are the device's rank, its coordinate on every mesh axis, and the workgroup's index
within its part of the launch. A tile allocated inside a loop is one tile an iteration: iteration i
uses slot ``(i - lower) mod slots``. Inside a loop an operation may carry ``stage = s``: the loop
runs ``s`` trips longer and in trip t the operation works for iteration ``t - s``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import Dialect
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from starc.dialects.isa_commands import CompositeOp, ScopeOp, enclosing, stage_of
from starc.dialects.isa_control import IfOp, LoopOp
from starc.dialects.isa_counters import CounterAccess, SignalOp, WaitOp
from starc.dialects.isa_declarations import AllocOp, IndexOp
from starc.dialects.isa_expressions import (
    ExpressionAttr,
    TileType,
    parse_attributes,
    print_attributes,
)
from starc.dialects.isa_instructions import (
    DelayOp,
    MatrixOp,
    VectorOp,
    index_environment,
    tiles_read,
    tiles_written,
)
from starc.dialects.isa_kernels import KernelOp, count_records
from starc.dialects.isa_memory import (
    GatherOp,
    GetOp,
    LoadOp,
    MemoryOp,
    PutOp,
    StoreOp,
    buffer_type,
)
from starc.dialects.isa_streams import (
    ENGINES,
    AcquireOp,
    ReleaseOp,
    SemaphoreOp,
    SemaphoreType,
    StreamOp,
)
from starc.dialects.symbols import named

__all__ = [
    "ENGINES",
    "AcquireOp",
    "AllocOp",
    "CompositeOp",
    "CounterAccess",
    "CounterOp",
    "DelayOp",
    "ExpressionAttr",
    "GatherOp",
    "GetOp",
    "IfOp",
    "IndexOp",
    "Isa",
    "KernelOp",
    "LaunchOp",
    "LoadOp",
    "LoopOp",
    "MatrixOp",
    "MemoryOp",
    "PutOp",
    "ReleaseOp",
    "ScopeOp",
    "SemaphoreOp",
    "SemaphoreType",
    "SignalOp",
    "StoreOp",
    "StreamOp",
    "TileType",
    "VectorOp",
    "WaitOp",
    "buffer_type",
    "count_records",
    "enclosing",
    "index_environment",
    "stage_of",
    "tiles_read",
    "tiles_written",
]

# Declarations


@irdl_op_definition
class CounterOp(IRDLOperation):
    """An array of monotone counters in symmetric memory, all zero when a layer starts."""

    name = "isa.counter"
    sym_name = prop_def(StringAttr)
    count = prop_def(IntegerAttr)
    traits = traits_def(SymbolOpInterface())

    def __init__(self, sym_name: str, count: int):
        super().__init__(
            properties={"sym_name": StringAttr(sym_name), "count": IntegerAttr(count, i64)}
        )

    @classmethod
    def parse(cls, parser: Parser) -> CounterOp:
        name = parser.parse_symbol_name()
        parser.parse_keyword("count")
        op = CounterOp(name.data, parser.parse_integer(allow_boolean=False))
        properties, op.attributes = parse_attributes(parser, cls)
        op.properties.update(properties)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(f" count {self.count.value.data}")
        print_attributes(printer, self, ("sym_name", "count"))

    def verify_(self) -> None:
        if self.count.value.data < 1:
            raise VerifyException("a counter array has at least one element")


# Launches

QUEUES: Final = ("compute", "communication")
"""The queues of launches, in the order of their numbers."""


@irdl_op_definition
class LaunchOp(IRDLOperation):
    """A launch of one or several templates at once, each with its number of workgroups:

        isa.launch @decoder.qkv [@decoder.qkv.0 grid 12, @decoder.qkv.1 grid 4] queue "compute"

    The launches of a queue run in order, each after the end of the one before. Workgroups start
    part after part, unless there are ``bands``: then every part is cut into so many equal bands,
    and the first bands of all parts start before the second ones. With ``engines`` the workgroups
    are streams of the device's copy engines, which move data and compute nothing. ``kind`` and
    ``info`` (a dictionary of plain values) describe it for reports.
    """

    name = "isa.launch"
    label = prop_def(StringAttr)
    kernels = prop_def(ArrayAttr[SymbolRefAttr])
    grids = prop_def(DenseArrayBase[IntegerType])
    queue = prop_def(StringAttr)
    bands = opt_prop_def(IntegerAttr)
    engines = opt_prop_def(UnitAttr)
    kind = opt_prop_def(StringAttr)
    info = opt_prop_def(DictionaryAttr)

    def __init__(
        self,
        label: str,
        parts: Sequence[tuple[str, int]],
        *,
        queue: str = "compute",
        bands: int = 1,
        engines: bool = False,
        kind: str | None = None,
        info: DictionaryAttr | None = None,
    ):
        super().__init__(
            properties={
                "label": StringAttr(label),
                "kernels": ArrayAttr(SymbolRefAttr(name) for name, _ in parts),
                "grids": DenseArrayBase.from_list(i64, [grid for _, grid in parts]),
                "queue": StringAttr(queue),
                "bands": None if bands == 1 else IntegerAttr(bands, i64),
                "engines": UnitAttr() if engines else None,
                "kind": None if kind is None else StringAttr(kind),
                "info": info,
            }
        )

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """(template, workgroups) of each part."""
        names = (kernel.string_value() for kernel in self.kernels)
        return tuple(zip(names, self.grids.get_values(), strict=True))

    @classmethod
    def parse(cls, parser: Parser) -> LaunchOp:
        def part() -> tuple[str, int]:
            name = parser.parse_symbol_name()
            parser.parse_keyword("grid")
            return name.data, parser.parse_integer(allow_boolean=False, allow_negative=False)

        label = parser.parse_symbol_name()
        parts = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, part)
        parser.parse_keyword("queue")
        op = LaunchOp(label.data, parts, queue=parser.parse_str_literal())
        properties, op.attributes = parse_attributes(parser, cls)
        op.properties.update(properties)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.label.data)
        printer.print_string(" ")
        with printer.in_square_brackets():
            for i, (name, grid) in enumerate(self.parts):
                printer.print_string(", " if i else "")
                printer.print_symbol_name(name)
                printer.print_string(f" grid {grid}")
        printer.print_string(" queue ")
        printer.print_string_literal(self.queue.data)
        print_attributes(printer, self, ("label", "kernels", "grids", "queue"))

    def verify_(self) -> None:
        if self.queue.data not in QUEUES:
            raise VerifyException(f"unknown queue '{self.queue.data}', one of {', '.join(QUEUES)}")
        if not self.parts:
            raise VerifyException("a launch has at least one part")
        for name, grid in self.parts:
            if grid < 1:
                raise VerifyException(f"@{name} is launched with {grid} workgroups")
            bands = 1 if self.bands is None else self.bands.value.data
            if bands < 1 or grid % bands:
                raise VerifyException(f"{bands} bands do not divide {grid} workgroups of @{name}")
            template = named(self, name)
            if not isinstance(template, KernelOp):
                raise VerifyException(f"there is no template @{name}")
            if self.engines is not None:
                verify_moves(template)


def verify_moves(template: KernelOp) -> None:
    """Checks that a copy engine can run a template. Raises ``VerifyException``."""
    for op in template.walk():
        is_sum = isinstance(op, PutOp) and op.accumulate is not None
        if is_sum or isinstance(op, GatherOp | MatrixOp | VectorOp):
            raise VerifyException(
                f"@{template.sym_name.data} runs on copy engines, which move data and compute "
                f"nothing, and has {op.name}"
            )


Isa = Dialect(
    "isa",
    [
        AcquireOp,
        AllocOp,
        CompositeOp,
        CounterOp,
        DelayOp,
        GatherOp,
        GetOp,
        IfOp,
        IndexOp,
        KernelOp,
        LaunchOp,
        LoadOp,
        LoopOp,
        MatrixOp,
        PutOp,
        ReleaseOp,
        ScopeOp,
        SemaphoreOp,
        SignalOp,
        StoreOp,
        StreamOp,
        VectorOp,
        WaitOp,
    ],
    [ExpressionAttr, SemaphoreType, TileType],
)
