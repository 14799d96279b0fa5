"""Kernel bodies become a stream for each engine of a processing element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Block, Operation, Region, SSAValue

from starc.backend.program import MAX_STREAM_RECORDS
from starc.core.quasi_affine import expressions as qa
from starc.core.quasi_affine.simplification import simplify
from starc.core.streams import engine_body as streams
from starc.core.streams.engine_body import (
    Branch,
    Composite,
    Instruction,
    Loop,
    Node,
    Streams,
    Tile,
)
from starc.core.streams.engine_dependences import IllegalStages
from starc.core.streams.engine_streams import assign_streams
from starc.diagnostics import Diagnostic, InputError, counted
from starc.dialects import isa
from starc.dialects.isa import AllocOp, IndexOp, KernelOp, tiles_read, tiles_written
from starc.dialects.isa_commands import enclosing, stage_of
from starc.dialects.isa_streams import block_records
from starc.dialects.kernel_buffers import BufferOp
from starc.dialects.locations import location_of
from starc.dialects.symbols import named
from starc.passes.base import RemarkSink, StarcPass, with_location
from starc.passes.isa.plan_scratch import on_engines
from starc.passes.isa.scheduling.attention_sweeps import CONTINUES
from starc.passes.isa.scheduling.machine_limits import illegal_commands
from starc.passes.isa.scheduling.scratch_tiles import slot_bytes
from starc.passes.isa.scheduling.stream_writer import StreamWriter
from starc.targets.target import Target

ISSUE_CLASSES: Final[Mapping[type[Operation], str]] = {
    isa.LoadOp: "load",
    isa.GetOp: "load",
    isa.GatherOp: "load",
    isa.StoreOp: "store",
    isa.PutOp: "send",
    isa.SignalOp: "send",
    isa.WaitOp: "receive",
    isa.MatrixOp: "matrix",
    isa.VectorOp: "math",
}
"""What an instruction costs its issuer; an attached signal is part of the send before it."""

ENGINES: Final[Mapping[type[Operation], str]] = {
    isa.LoadOp: streams.DMA,
    isa.GetOp: streams.DMA,
    isa.GatherOp: streams.DMA,
    isa.StoreOp: streams.DMA,
    isa.PutOp: streams.DMA,
    isa.SignalOp: streams.DMA,
    isa.WaitOp: streams.CPU,
    isa.DelayOp: streams.CPU,
    isa.MatrixOp: streams.GEMM,
    isa.VectorOp: streams.MATH,
}


@dataclass(frozen=True)
class AssignEngines(StarcPass):
    """Every kernel becomes a stream for each engine, joined by semaphores; on targets without
    engines nothing changes.

    Loads, stores, puts, gets and signals go to the ``dma`` stream, products to ``gemm``, vector
    functions to ``math``, waits to ``cpu`` (deferred ones to ``dma``). Loops and branches stand in
    every stream that has something inside. The CPU sleeps for what it costs to issue a command and
    releases the queue of the engine; a composite it issues once, and the scheduler what is inside.
    Where more commands than ``structure.queue_commands`` may lie in a queue, who issues them first
    acquires the queue's room, which the engine releases when it begins one.

    Two instructions of different engines that use a tile, or scratch bytes that lie over each
    other, are joined by a semaphore where one of them writes: the first releases it when it is
    complete, the second acquires it before it starts; a tile with n slots starts with n credits.
    The CPU itself waits for what an instruction reads that it issues alone, where that is loaded or
    computed in a composite (the wait at the first use). What other semaphores imply is left out.

    After it a kernel has no loops, composites and scopes outside of streams, and its tiles stand
    before them.

    ```mlir
    module attributes {dlti.target_system_spec = #dlti.target_system_spec<
        "starc" = #dlti.target_device_spec<"base" = "ahbm", "gpus" = 1 : i64>>} {
      kernel.buffer @x : tensor<512x64xbf16> {address = 0 : i64, bytes = 65536 : i64,
          layout = #kernel.layout<row_major>, space = "private", role = "activation"}
      isa.kernel @sum coords(%device, %wg) attributes {kernel_class = "norm", waves = 4 : i64} {
        %s = isa.alloc scratch offset 16384 : !isa.tile<64x1xf32>
        isa.vector "zero"(%s) : !isa.tile<64x1xf32>
        isa.loop %i = [0] to [8] {
          %t = isa.alloc scratch slots 2 offset 0 : !isa.tile<64x64xbf16>
          isa.load %t, @x[%i * 64, 0] : !isa.tile<64x64xbf16>
          isa.vector "row_sum_squares_add"(%s, %t) : !isa.tile<64x1xf32>, !isa.tile<64x64xbf16>
        }
      }
      func.func @layer() {
        isa.launch @sum [@sum grid 1] queue "compute"
        func.return
      }
    }
    ```
    ```mlir
    module attributes {dlti.target_system_spec = #dlti.target_system_spec<
        "starc" = #dlti.target_device_spec<"base" = "ahbm", "gpus" = 1 : i64>>} {
      kernel.buffer @x : tensor<512x64xbf16> {address = 0 : i64, bytes = 65536 : i64,
          layout = #kernel.layout<row_major>, space = "private", role = "activation"}
      isa.kernel @sum coords(%device, %wg) attributes {kernel_class = "norm", waves = 4 : i64} {
        %s = isa.alloc scratch offset 16384 : !isa.tile<64x1xf32>
        %t = isa.alloc scratch slots 2 turns 1 offset 0 : !isa.tile<64x64xbf16>
        %math_queue = isa.semaphore initial 0 : !isa.semaphore
        %dma_queue = isa.semaphore initial 0 : !isa.semaphore
        %math_to_dma = isa.semaphore initial 2 : !isa.semaphore
        %dma_to_cpu = isa.semaphore initial 0 : !isa.semaphore
        isa.stream "cpu" {
          isa.delay 10000
          isa.release %math_queue
          isa.loop %i = [0] to [8] {
            isa.delay 10000
            isa.release %dma_queue
            isa.acquire %dma_to_cpu
            isa.delay 10000
            isa.release %math_queue
          }
        }
        isa.stream "dma" {
          isa.loop %i = [0] to [8] {
            isa.acquire %dma_queue
            isa.acquire %math_to_dma
            isa.load %t, @x[%i * 64, 0] : !isa.tile<64x64xbf16>
            isa.release %dma_to_cpu after %t : !isa.tile<64x64xbf16>
          }
        }
        isa.stream "math" {
          isa.acquire %math_queue
          isa.vector "zero"(%s) : !isa.tile<64x1xf32>
          isa.loop %i = [0] to [8] {
            isa.acquire %math_queue
            isa.vector "row_sum_squares_add"(%s, %t) : !isa.tile<64x1xf32>, !isa.tile<64x64xbf16>
            isa.release %math_to_dma
          }
        }
      }
      func.func @layer() {
        isa.launch @sum [@sum grid 1] queue "compute"
        func.return
      }
    }
    ```
    """

    name = "assign-engines"

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        if not target.engines:
            return
        moving = on_engines(module)
        problems: list[Diagnostic] = []
        for kernel in module.ops:
            if not isinstance(kernel, KernelOp) or kernel.streams:
                continue
            illegal = illegal_commands(kernel, target)
            problems += illegal
            if not illegal and kernel.sym_name.data not in moving:
                problems += _Kernel(kernel, target).rewrite(sink)
        if problems:
            raise InputError(problems)


class _Kernel:
    """A kernel being taken apart."""

    def __init__(self, kernel: KernelOp, target: Target) -> None:
        self.kernel = kernel
        self.target = target
        self.allocs = [op for op in kernel.body.walk() if isinstance(op, AllocOp)]
        self.numbers: dict[SSAValue, int] = {op.tile: i for i, op in enumerate(self.allocs)}
        self.homes = {op: _loop_around(op) for op in self.allocs}

    def rewrite(self, sink: RemarkSink) -> list[Diagnostic]:
        name = self.kernel.sym_name.data
        body = self._nodes(self.kernel.body.block)
        try:
            found = assign_streams(
                body, [self._tile(op) for op in self.allocs], self.target.queue_commands
            )
        except IllegalStages as error:
            alloc = self.allocs[error.tile]
            return [
                Diagnostic(
                    f"template @{name}: tile %{alloc.tile.name_hint or '?'} has "
                    f"{counted(alloc.slots.value.data, 'slot')}: it is used again before the "
                    "stages that need it are over",
                    location_of(alloc),
                )
            ]
        self._replace(found)
        records = {op.engine.data: block_records(op.body.block) for op in self.kernel.streams}
        long = [engine for engine, count in records.items() if count > MAX_STREAM_RECORDS]
        if long:
            return [
                Diagnostic(
                    f"template @{name}: its {engine} stream has {records[engine]} records, more "
                    f"than {MAX_STREAM_RECORDS}",
                    location_of(self.kernel),
                )
                for engine in long
            ]
        listed = ", ".join(f"{engine} {count}" for engine, count in records.items())
        sink.remark(
            "engine-streams",
            f"@{name}: {counted(found.commands, 'command')} of the CPU, records by stream: "
            f"{listed or 'none'}; {counted(len(found.semaphores), 'semaphore')}",
            self.kernel,
            commands=found.commands,
            records=max(records.values(), default=0),
            semaphores=len(found.semaphores),
        )
        return []

    # What goes in

    def _tile(self, alloc: AllocOp) -> Tile:
        slots = alloc.slots.value.data
        if alloc.offset is None:
            return Tile(slots)
        return Tile(slots, alloc.offset.value.data, slot_bytes(alloc))

    def _nodes(self, block: Block, *, in_composite: bool = False) -> tuple[Node, ...]:
        found: list[Node] = []
        for op in block.ops:
            stage = stage_of(op) if isinstance(enclosing(op), isa.LoopOp) else 0
            match op:
                case AllocOp() | IndexOp():
                    pass
                case isa.ScopeOp():
                    found += self._nodes(op.body.block, in_composite=in_composite)
                case isa.CompositeOp():
                    inner = self._nodes(op.body.block, in_composite=True)
                    cost = self.target.issue_ps["composite"]
                    is_command = CONTINUES not in op.attributes
                    found.append(Composite(inner, cost, stage, is_command))
                case isa.LoopOp():
                    inner = self._nodes(op.body.block, in_composite=in_composite)
                    mine = frozenset(
                        self.numbers[alloc.tile] for alloc in self.allocs if self.homes[alloc] is op
                    )
                    found.append(Loop(inner, mine, _trips(op), stage, op))
                case isa.IfOp():
                    inner = self._nodes(op.body.block, in_composite=in_composite)
                    found.append(Branch(inner, stage, op))
                case _:
                    found.append(self._instruction(op, stage, in_composite=in_composite))
        return tuple(found)

    def _instruction(self, op: Operation, stage: int, *, in_composite: bool) -> Instruction:
        engine = ENGINES[type(op)]
        if isinstance(op, isa.WaitOp) and op.deferred is not None:
            engine = streams.DMA
        return Instruction(
            engine,
            frozenset(self.numbers[tile] for tile in tiles_read(op)),
            frozenset(self.numbers[tile] for tile in tiles_written(op)),
            cost=self._cost(op, in_composite=in_composite),
            shared=_reads_shared_memory(op),
            publishes=isinstance(op, isa.SignalOp),
            stage=stage,
            payload=op,
        )

    def _cost(self, op: Operation, *, in_composite: bool) -> int:
        """What its issuer sleeps for an instruction, in picoseconds."""
        if in_composite:
            return self.target.issue_ps["scheduler"]
        if isinstance(op, isa.SignalOp) and op.attached is not None:
            return 0
        issue_class = ISSUE_CLASSES.get(type(op))
        return 0 if issue_class is None else self.target.issue_ps[issue_class]

    # What comes out

    def _replace(self, found: Streams) -> None:
        body = self.kernel.body.block
        indices = [op for op in body.ops if isinstance(op, IndexOp)]
        outer: dict[SSAValue, SSAValue] = {
            value: value for value in (*body.args, *(op.result for op in indices))
        }
        depths = {op: _depth(op) for op in self.allocs}
        for op in self.allocs:
            op.detach()
            op.turns = IntegerAttr(depths[op], i64) if depths[op] else None
        semaphores = [isa.SemaphoreOp(initial) for initial in found.semaphores]
        for op, name in zip(semaphores, found.names, strict=True):
            op.semaphore.name_hint = name
        made: list[isa.StreamOp] = []
        for engine, items in found.streams.items():
            block = Block()
            values = [op.semaphore for op in semaphores]
            StreamWriter(self.allocs, values, block, outer).write(items)
            made.append(isa.StreamOp(engine, Region(block)))
        for op in list(body.ops):
            if op in indices:
                op.detach()
            else:
                op.detach()
                op.drop_all_references()
        body.add_ops((*self.allocs, *indices, *semaphores, *made))
        for op in (*semaphores, *made):
            with_location(op, self.kernel)
        for index in reversed(indices):
            if not index.result.uses:
                index.detach()
                index.erase()


def _loop_around(op: Operation) -> isa.LoopOp | None:
    """The innermost loop around an operation."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, isa.LoopOp):
        parent = parent.parent_op()
    return parent


def _depth(op: Operation) -> int:
    """Loops around an operation."""
    loop = _loop_around(op)
    return 0 if loop is None else 1 + _depth(loop)


def _trips(loop: isa.LoopOp) -> int | None:
    """Iterations of a loop, where they are a constant."""
    difference = simplify(loop.upper.data - loop.lower.data)
    return max(0, difference.value) if isinstance(difference, qa.Const) else None


def _reads_shared_memory(op: Operation) -> bool:
    """Whether an instruction reads memory that other devices write."""
    if isinstance(op, isa.GetOp):
        return True
    if not isinstance(op, isa.LoadOp | isa.GatherOp):
        return False
    buffer = named(op, op.buffer)
    return isinstance(buffer, BufferOp) and buffer.space.data == "symmetric"
