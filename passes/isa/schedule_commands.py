"""Loops become commands of a scheduler, and sweeps of attention get a schedule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue

from starc.diagnostics import InputError, counted
from starc.dialects import isa
from starc.dialects.isa import AllocOp, IndexOp, KernelOp, LoopOp, tiles_read, tiles_written
from starc.kernel_bodies.attention.cube_attention import SWEEP
from starc.passes.base import OptionValues, RemarkSink, StarcPass, with_location
from starc.passes.isa.pipeline_loops import LOADS
from starc.passes.isa.plan_scratch import on_engines
from starc.passes.isa.scheduling.attention_sweeps import (
    CONTINUES,
    FREE,
    Sweep,
    SweepPlan,
    join_behind,
)
from starc.passes.isa.scheduling.tile_slots import (
    bring_slots_round,
    fetch_ahead,
    give_slots,
    is_commanded,
    run_once,
)
from starc.targets.target import Target

COMPOSITES: Final = ("auto", "none")
SCHEDULES: Final = ("blocking", "pipelined", "stateful")


@dataclass(frozen=True)
class ScheduleCommands(StarcPass):
    """Forms commands and decides which of them overlap; on targets without engines nothing
    changes.

    ``composites=auto``: an innermost loop that loads and multiplies into one accumulator becomes a
    composite, with the elementwise functions and stores behind it that take its result. Where it
    adds to what was there, the composite leaves its product in a tile of its own and an addition
    follows. Tiles that a loop loads get as many slots as its ``stages`` say, fewer where they do
    not fit, and in a loop that is repeated a number that divides its trips: then the loads of the
    next entry do not wait for the end of this one. A repeated loop of one trip is no loop. A loop
    that loads or gets, computes and stores or puts, without a command, loads the tiles of later
    iterations before it works on one: as many as its window allows, at most four. It must not store
    what it loads; a put to a device that is another one on every device does not.

    ``attention-schedule`` is that of the loops with ``sweep``, over tiles of keys:

    - ``blocking``: as it is written. The CPU waits for the scores of a tile, and the matrix engine
      idles while the softmax runs.
    - ``pipelined``: the first composite, the scores of the next tile, is issued before the softmax
      of this one: it has stage 0, what follows up to the last composite stage 1, and what merges
      its product stage 2, so that the softmax of a tile overlaps the product of the one before.
      Tiles have as many slots as iterations hold them. Engines work in order: what follows from
      the product of the first composite stands at the end of the iteration, in a composite that
      ``continues`` the command.
    - ``stateful``: besides, everything behind the first composite is one stateful composite, which
      targets with ``stateful_composites`` execute: two commands a tile.

    A sweep that synchronises with other devices, or whose first command needs what the iteration
    before has computed, stays as it is, which a remark says.

    ```mlir
    module attributes {dlti.target_system_spec = #dlti.target_system_spec<
        "starc" = #dlti.target_device_spec<"base" = "ahbm", "gpus" = 1 : i64>>} {
      kernel.buffer @x : tensor<32x512xbf16> {address = 0 : i64, bytes = 32768 : i64,
          layout = #kernel.layout<row_major>, space = "private", role = "activation"}
      kernel.buffer @w : tensor<512x64xbf16> {address = 32768 : i64, bytes = 65536 : i64,
          layout = #kernel.layout<row_major>, space = "private", role = "weight"}
      kernel.buffer @y : tensor<32x64xbf16> {address = 98304 : i64, bytes = 4096 : i64,
          layout = #kernel.layout<row_major>, space = "private", role = "activation"}
      isa.kernel @gemm coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
        %acc = isa.alloc scratch : !isa.tile<32x64xf32>
        isa.vector "zero"(%acc) : !isa.tile<32x64xf32>
        isa.loop %k = [0] to [4] {
          %a = isa.alloc scratch : !isa.tile<32x128xbf16>
          %b = isa.alloc scratch : !isa.tile<128x64xbf16>
          isa.load %a, @x[0, %k * 128] : !isa.tile<32x128xbf16>
          isa.load %b, @w[%k * 128, 0] : !isa.tile<128x64xbf16>
          isa.matrix %acc, %a, %b : !isa.tile<32x64xf32>, !isa.tile<32x128xbf16>,
              !isa.tile<128x64xbf16>
        }
        isa.vector "silu"(%acc, %acc) : !isa.tile<32x64xf32>, !isa.tile<32x64xf32>
        isa.store %acc, @y[0, 0] : !isa.tile<32x64xf32>
      }
    }
    ```
    ```mlir
    module attributes {dlti.target_system_spec = #dlti.target_system_spec<
        "starc" = #dlti.target_device_spec<"base" = "ahbm", "gpus" = 1 : i64>>} {
      kernel.buffer @x : tensor<32x512xbf16> {address = 0 : i64, bytes = 32768 : i64,
          layout = #kernel.layout<row_major>, space = "private", role = "activation"}
      kernel.buffer @w : tensor<512x64xbf16> {address = 32768 : i64, bytes = 65536 : i64,
          layout = #kernel.layout<row_major>, space = "private", role = "weight"}
      kernel.buffer @y : tensor<32x64xbf16> {address = 98304 : i64, bytes = 4096 : i64,
          layout = #kernel.layout<row_major>, space = "private", role = "activation"}
      isa.kernel @gemm coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
        %acc = isa.alloc scratch : !isa.tile<32x64xf32>
        isa.composite {
          isa.vector "zero"(%acc) : !isa.tile<32x64xf32>
          isa.loop %k = [0] to [4] {
            %a = isa.alloc scratch slots 2 : !isa.tile<32x128xbf16>
            %b = isa.alloc scratch slots 2 : !isa.tile<128x64xbf16>
            isa.load %a, @x[0, %k * 128] : !isa.tile<32x128xbf16>
            isa.load %b, @w[%k * 128, 0] : !isa.tile<128x64xbf16>
            isa.matrix %acc, %a, %b : !isa.tile<32x64xf32>, !isa.tile<32x128xbf16>,
                !isa.tile<128x64xbf16>
          }
          isa.vector "silu"(%acc, %acc) : !isa.tile<32x64xf32>, !isa.tile<32x64xf32>
          isa.store %acc, @y[0, 0] : !isa.tile<32x64xf32>
        }
      }
    }
    ```
    """

    name = "schedule-commands"
    VALUES: ClassVar[OptionValues] = {"composites": COMPOSITES, "attention_schedule": SCHEDULES}

    composites: str = "auto"
    """``auto`` or ``none``: whether loops become composites that bodies do not have."""

    attention_schedule: str = "pipelined"
    """``blocking``, ``pipelined`` or ``stateful``: what overlaps in a sweep over tiles of keys."""

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        self._check(target)
        if not target.engines:
            return
        moving = on_engines(module)
        for kernel in module.ops:
            if not isinstance(kernel, KernelOp) or kernel.sym_name.data in moving:
                continue
            if kernel.streams:
                continue
            loops = [op for op in kernel.body.walk() if isinstance(op, LoopOp)]
            formed = 0
            for loop in loops:
                if self.composites == "auto" and _is_product(loop):
                    _form(loop)
                    formed += 1
            ahead = sum(fetch_ahead(loop, kernel, target) for loop in loops)
            for loop in loops:
                give_slots(loop, kernel, target)
            loops = [loop for loop in loops if not run_once(loop)]
            for loop in loops:
                bring_slots_round(loop, kernel, target)
            if formed or ahead:
                sink.remark(
                    "commands-formed",
                    f"@{kernel.sym_name.data}: {counted(formed, 'loop')} became commands, "
                    f"{counted(ahead, 'loop')} load tiles ahead",
                    kernel,
                    composites=formed,
                    ahead=ahead,
                )
            for loop in loops:
                if SWEEP in loop.attributes:
                    self._schedule(loop, kernel, target, sink)

    def _check(self, target: Target) -> None:
        found = self.wrong_values()
        stateful = self.attention_schedule == "stateful"
        if stateful and target.engines and not target.stateful_composites:
            found = self.wrong_values(target.name, attention_schedule=SCHEDULES[:2])
            why = "its composites carry no state (its number compute.stateful_composites is 0)"
            found = [
                replace(item, hint=why) if "'stateful'" in item.message else item for item in found
            ]
        if found:
            raise InputError(found)

    def _schedule(self, loop: LoopOp, kernel: KernelOp, target: Target, sink: RemarkSink) -> None:
        """Gives a sweep its schedule."""
        name, schedule = kernel.sym_name.data, self.attention_schedule
        written = _commands(loop.body.block)
        if schedule != "blocking":
            sweep = Sweep(loop, kernel, target)
            plan = sweep.plan()
            if isinstance(plan, SweepPlan) and schedule == "stateful":
                assert sweep.first is not None
                join_behind(loop, sweep.first)
                sweep = Sweep(loop, kernel, target)
                plan = sweep.plan()
            if isinstance(plan, SweepPlan):
                sweep.apply(plan)
            else:
                sink.remark(
                    "sweep-not-scheduled",
                    f"@{name}: a sweep over tiles of keys is not {schedule}: {plan}",
                    loop,
                    declined=True,
                )
                schedule = "blocking"
        commands = _commands(loop.body.block)
        sink.remark(
            "sweep-schedule",
            f"@{name}: a sweep over tiles of keys is {schedule}, "
            f"{counted(commands, 'command')} of the CPU a tile"
            + (f", {written} as it is written" if written != commands else ""),
            loop,
            commands=commands,
            schedule=schedule,
        )


# Composites


def _is_product(loop: LoopOp) -> bool:
    """Whether a loop loads and multiplies into one accumulator, and does nothing else."""
    ops = list(loop.body.block.ops)
    if is_commanded(loop) or not all(
        isinstance(op, isa.LoadOp | isa.GetOp | isa.MatrixOp | AllocOp | IndexOp) for op in ops
    ):
        return False
    products = [op for op in ops if isinstance(op, isa.MatrixOp)]
    if len({op.accumulator for op in products}) != 1:
        return False
    accumulator = products[0].accumulator
    inside = {op.tile for op in ops if isinstance(op, AllocOp)}
    used = {tile for op in products for tile in (op.a, op.b)}
    return accumulator not in inside | used and any(isinstance(op, LOADS) for op in ops)


def _form(loop: LoopOp) -> None:
    """Puts a loop, what sets its accumulator and what follows from it into a composite."""
    product = next(op for op in loop.body.block.ops if isinstance(op, isa.MatrixOp))
    accumulator = product.accumulator
    assert isinstance(accumulator.owner, AllocOp)
    first = _setter(loop, accumulator)
    behind = _epilogue(loop, accumulator) if first is not None else []
    block = loop.parent
    assert block is not None
    composite = isa.CompositeOp(Region(Block()))
    composite.location = loop.location
    block.insert_op_before(composite, loop)
    if first is None:
        own = AllocOp(accumulator.owner.type, accumulator.owner.space.data)
        own.tile.name_hint = "product"
        block.insert_op_before(with_location(own, loop), composite)
        for op in loop.body.block.ops:
            if isinstance(op, isa.MatrixOp):
                op.operands[0] = own.tile
        first = with_location(isa.VectorOp("zero", [own.tile]), loop)
        total = isa.VectorOp("add", [accumulator, accumulator, own.tile])
        block.insert_op_after(with_location(total, loop), composite)
    else:
        first.detach()
    loop.detach()
    for op in behind:
        op.detach()
        if isinstance(op, FREE):
            block.insert_op_before(op, composite)
    composite.body.block.add_ops((first, loop, *(op for op in behind if not isinstance(op, FREE))))


def _setter(loop: LoopOp, accumulator: SSAValue) -> Operation | None:
    """The instruction that sets the accumulator before the loop, where nothing else uses it in
    between."""
    op = loop.prev_op
    while op is not None:
        for inner in op.walk():
            if accumulator in tiles_written(inner) or accumulator in tiles_read(inner):
                if not isinstance(op, isa.VectorOp) or accumulator in op.reads:
                    return None
                return op if len(op.tiles) == 1 and not op.indices else None
        op = op.prev_op
    return None


def _epilogue(loop: LoopOp, accumulator: SSAValue) -> list[Operation]:
    """What follows a loop in its block and works on its result, element by element, up to the
    store."""
    results, loaded = {accumulator}, set[SSAValue]()
    found: list[Operation] = []
    end = 0
    op = loop.next_op
    while op is not None:
        match op:
            case AllocOp() | IndexOp():
                pass
            case isa.LoadOp():
                if op.tile in results:
                    break
                loaded.add(op.tile)
            case isa.VectorOp() if op.definition.elementwise and set(op.reads) & (results | loaded):
                if set(op.reads) & results:
                    results |= set(op.writes)
                    end = len(found) + 1
                else:
                    loaded |= set(op.writes)
            case isa.StoreOp() if op.tile in results:
                end = len(found) + 1
            case _:
                break
        found.append(op)
        op = op.next_op
    return found[:end]


# Counting


def _commands(block: Block) -> int:
    """Commands of the CPU for one iteration; those of a loop count once."""
    count = 0
    for op in block.ops:
        if isinstance(op, isa.CompositeOp):
            count += CONTINUES not in op.attributes
        elif isinstance(op, LoopOp | isa.IfOp | isa.ScopeOp):
            count += _commands(op.body.block)
        elif not isinstance(op, (*FREE, isa.DelayOp)):
            count += 1
    return count
