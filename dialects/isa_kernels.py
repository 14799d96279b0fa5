"""Kernels of the isa dialect: the body that all workgroups execute, and what may stand in it."""

from __future__ import annotations

from xdsl.dialects.builtin import (
    IndexType,
    IntegerAttr,
    StringAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, NoTerminator, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from starc.backend.program import MAX_DEPTH, MAX_RECORDS, MAX_STREAM_RECORDS
from starc.dialects.isa_commands import CompositeOp, ScopeOp, enclosing
from starc.dialects.isa_control import LoopOp
from starc.dialects.isa_declarations import AllocOp
from starc.dialects.isa_expressions import (
    integer,
    parse_attributes,
    print_attributes,
)
from starc.dialects.isa_streams import (
    AcquireOp,
    ReleaseOp,
    SemaphoreOp,
    StreamOp,
    block_records,
    verify_streams,
)


@irdl_op_definition
class KernelOp(IRDLOperation):
    """A template: the body that every workgroup executes with its own coordinates.

    ``kernel_class`` picks the launch cost; ``waves`` (of the target's size) and the scratch and
    register bytes, filled by ``plan-scratch``, say how many workgroups fit a compute unit;
    ``window_bytes`` bounds the bytes in flight of a workgroup; ``piece_bytes`` is the size at which
    its accesses are cut (the target's interleave granule where absent); ``waits`` marks kernels
    whose workgroups wait for counters and so must all be resident.
    """

    name = "isa.kernel"
    sym_name = prop_def(StringAttr)
    kernel_class = prop_def(StringAttr)
    waves = prop_def(IntegerAttr)
    window_bytes = opt_prop_def(IntegerAttr)
    piece_bytes = opt_prop_def(IntegerAttr)
    scratch_bytes = opt_prop_def(IntegerAttr)
    register_bytes = opt_prop_def(IntegerAttr)
    waits = opt_prop_def(UnitAttr)
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), NoTerminator(), IsolatedFromAbove())

    def __init__(
        self,
        sym_name: str,
        body: Region,
        *,
        kernel_class: str,
        waves: int,
        window_bytes: int | None = None,
        piece_bytes: int | None = None,
        waits: bool = False,
    ):
        super().__init__(
            regions=[body],
            properties={
                "sym_name": StringAttr(sym_name),
                "kernel_class": StringAttr(kernel_class),
                "waves": IntegerAttr(waves, i64),
                "window_bytes": integer(window_bytes),
                "piece_bytes": integer(piece_bytes),
                "waits": UnitAttr() if waits else None,
            },
        )

    @property
    def device(self) -> BlockArgument:
        return self.body.block.args[0]

    @property
    def axes(self) -> tuple[BlockArgument, ...]:
        """The device's coordinates on the mesh axes, outer to inner."""
        return self.body.block.args[1:-1]

    @property
    def streams(self) -> tuple[StreamOp, ...]:
        """The streams of its engines; none where it is one stream."""
        return tuple(op for op in self.body.block.ops if isinstance(op, StreamOp))

    @property
    def workgroup(self) -> BlockArgument:
        return self.body.block.args[-1]

    @classmethod
    def parse(cls, parser: Parser) -> KernelOp:
        name = parser.parse_symbol_name()
        parser.parse_keyword("coords")
        arguments = parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, lambda: parser.parse_argument(expect_type=False)
        )
        properties, attributes = parse_attributes(parser, cls, keyword=True)
        body = parser.parse_region([a.resolve(IndexType()) for a in arguments])
        properties["sym_name"] = name
        properties.setdefault("waves", IntegerAttr(4, i64))
        return cls.create(regions=[body], properties=properties, attributes=attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(" coords(")
        printer.print_list(self.body.block.args, printer.print_ssa_value)
        printer.print_string(")")
        print_attributes(printer, self, ("sym_name",), keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)

    def verify_(self) -> None:
        args = self.body.block.args
        if len(args) < 2 or any(arg.type != IndexType() for arg in args):
            raise VerifyException(
                "coordinates are index values: the device, one for each mesh axis, the workgroup"
            )
        records = count_records(self)
        # Commands are dealt out to the streams of engines, which are longer.
        has_commands = any(isinstance(op, CompositeOp) for op in self.body.walk())
        most = MAX_STREAM_RECORDS if has_commands else MAX_RECORDS
        if self.streams:
            verify_streams(self.body.block)
        elif records > most:
            raise VerifyException(
                f"template @{self.sym_name.data} has {records} records, more than {most}"
            )
        _verify_scope(self.body.block, set(args), 0)


def count_records(kernel: KernelOp) -> int:
    """The records that the body of a template packs into; a loop or a branch takes two."""
    return block_records(kernel.body.block)


def _verify_scope(block: Block, visible: set[SSAValue], depth: int) -> None:
    """Operands are defined before use in this or an enclosing block; loops nest at most
    ``MAX_DEPTH`` deep and around a tile as deep as it ``turns``; stages stand only inside loops;
    semaphores are the kernel's and used in streams."""
    for op in block.ops:
        for operand in op.operands:
            if operand not in visible:
                raise VerifyException(
                    f"'{op.name}' uses a value that is not defined before it in its kernel"
                )
            if isinstance(operand.owner, AllocOp) and operand.owner.turns is not None:
                turns = operand.owner.turns.value.data
                if depth < turns:
                    raise VerifyException(
                        f"'{op.name}' uses a tile that loop {turns} turns, inside {depth} loops"
                    )
        _verify_place(op)
        stage = op.attributes.get("stage")
        if stage is not None:
            if not isinstance(enclosing(op), LoopOp):
                raise VerifyException(f"'{op.name}' has a stage but is not directly in a loop")
            if not isinstance(stage, IntegerAttr) or stage.value.data < 0:
                raise VerifyException("a stage is an integer from 0")
            if isinstance(op.parent_op(), CompositeOp):
                raise VerifyException(
                    "what stands directly in a composite has the composite's stage"
                )
            if isinstance(op, ScopeOp):
                raise VerifyException("a scope has no stage, what it holds has")
        inner = visible
        if isinstance(op, LoopOp):
            if depth == MAX_DEPTH:
                raise VerifyException(f"loops nest more than {MAX_DEPTH} deep")
            inner = visible | {op.counter}
        for region in op.regions:
            _verify_scope(region.block, set(inner), depth + isinstance(op, LoopOp))
        visible.update(op.results)


def _verify_place(op: Operation) -> None:
    """Where streams, semaphores and what uses them may stand."""
    parent = op.parent_op()
    if isinstance(op, StreamOp | SemaphoreOp) and not isinstance(parent, KernelOp):
        raise VerifyException(f"'{op.name}' stands directly in a kernel")
    if isinstance(op, AcquireOp | ReleaseOp):
        while parent is not None and not isinstance(parent, StreamOp):
            parent = parent.parent_op()
        if parent is None:
            raise VerifyException(f"'{op.name}' stands in a stream")
