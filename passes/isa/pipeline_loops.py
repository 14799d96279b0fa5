"""Innermost loops become software pipelines by modulo scheduling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Final

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Operation, SSAValue

from starc.core.streams.engine_times import vector_ps
from starc.core.streams.modulo_schedule import (
    Dependence,
    LoopOperation,
    ModuloSchedule,
    schedule_loop,
)
from starc.diagnostics import counted
from starc.dialects import isa
from starc.dialects.isa import AllocOp, LoopOp, TileType, tiles_read, tiles_written
from starc.passes.base import RemarkSink, StarcPass
from starc.targets.target import Target

Memory = isa.LoadOp | isa.GetOp | isa.StoreOp | isa.PutOp | isa.GatherOp
MEMORY: Final = (isa.LoadOp, isa.GetOp, isa.StoreOp, isa.PutOp, isa.GatherOp)
LOADS: Final = (isa.LoadOp, isa.GetOp, isa.GatherOp)
COMPUTE: Final = (isa.MatrixOp, isa.VectorOp)
DEFAULT_STAGES: Final = 2


@dataclass(frozen=True)
class PipelineLoops(StarcPass):
    """Gives the instructions of every innermost loop without synchronisation a stage and an order,
    and the tiles allocated in it as many slots as iterations hold them at once.

    The initiation interval is that of a modulo schedule over the compute unit's resources: its
    stream (one instruction or access piece a cycle), its port to the caches, its matrix and its
    vector engine. Tiles that are loaded have ``stages`` slots, fewer where scratch memory is short,
    and a load starts as soon as a slot is free; its way from memory counts in the recurrence bound.
    The interval and its bounds, in core cycles, are noted on the loop. Waiting is the machine's: a
    schedule orders instructions, and an instruction starts when its tiles are ready.

    After it every loop that could be pipelined has ``ii``, ``res_mii`` and ``rec_mii``. On targets
    with engines that run side by side ``schedule-commands`` decides, and this pass changes nothing.

    ```mlir
    kernel.buffer @x : tensor<16x512xbf16> {address = 0 : i64, bytes = 16384 : i64,
        layout = #kernel.layout<row_major>, space = "private", role = "activation"}
    kernel.buffer @w : tensor<512x128xbf16> {address = 16384 : i64, bytes = 131072 : i64,
        layout = #kernel.layout<blocked [32, 64]>, space = "private", role = "weight"}
    isa.kernel @gemm coords(%device, %gpu, %xcd, %wg) attributes {kernel_class = "gemm",
        waves = 4 : i64} {
      %acc = isa.alloc register : !isa.tile<16x128xf32>
      isa.loop %k = [0] to [8] attributes {stages = 2 : i64} {
        %a = isa.alloc scratch : !isa.tile<16x64xbf16>
        %b = isa.alloc scratch : !isa.tile<64x128xbf16>
        isa.load %a, @x[0, %k * 64] : !isa.tile<16x64xbf16>
        isa.load %b, @w[%k * 64, 0] : !isa.tile<64x128xbf16>
        isa.matrix %acc, %a, %b : !isa.tile<16x128xf32>, !isa.tile<16x64xbf16>,
            !isa.tile<64x128xbf16>
      }
    }
    ```
    ```mlir
    kernel.buffer @x : tensor<16x512xbf16> {address = 0 : i64, bytes = 16384 : i64,
        layout = #kernel.layout<row_major>, space = "private", role = "activation"}
    kernel.buffer @w : tensor<512x128xbf16> {address = 16384 : i64, bytes = 131072 : i64,
        layout = #kernel.layout<blocked [32, 64]>, space = "private", role = "weight"}
    isa.kernel @gemm coords(%device, %gpu, %xcd, %wg) attributes {kernel_class = "gemm",
        waves = 4 : i64} {
      %acc = isa.alloc register : !isa.tile<16x128xf32>
      isa.loop %k = [0] to [8] attributes {stages = 2 : i64, ii = 494 : i64, res_mii = 288 : i64,
          rec_mii = 473 : i64} {
        %a = isa.alloc scratch slots 2 : !isa.tile<16x64xbf16>
        %b = isa.alloc scratch slots 2 : !isa.tile<64x128xbf16>
        isa.load %a, @x[0, %k * 64] {stage = 1 : i64} : !isa.tile<16x64xbf16>
        isa.matrix %acc, %a, %b {stage = 2 : i64} : !isa.tile<16x128xf32>, !isa.tile<16x64xbf16>,
            !isa.tile<64x128xbf16>
        isa.load %b, @w[%k * 64, 0] : !isa.tile<64x128xbf16>
      }
    }
    ```
    """

    name = "pipeline-loops"

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        if target.engines:
            return
        for loop in [op for op in module.walk() if isinstance(op, LoopOp)]:
            reason = _obstacle(loop)
            if reason is None:
                _Pipeline(loop, target).apply(sink)
            elif reason:
                sink.remark(
                    "not-pipelined",
                    f"{_kernel_of(loop)}: a loop is not pipelined: {reason}",
                    loop,
                    declined=True,
                )


def _kernel_of(op: Operation) -> str:
    """The name of the kernel that holds an instruction."""
    parent: Operation | None = op
    while parent is not None and not isinstance(parent, isa.KernelOp):
        parent = parent.parent_op()
    return parent.sym_name.data if parent is not None else "a kernel"


def _obstacle(loop: LoopOp) -> str | None:
    """Why a loop is not pipelined; None where it is, empty where nobody would expect it."""
    kinds = {type(op) for op in loop.body.block.ops}
    if (
        isa.WaitOp in kinds
        or isa.SignalOp in kinds
        or (isa.DelayOp in kinds and isa.PutOp in kinds)
    ):
        return "its iterations wait for other workgroups or signal to them"
    if LoopOp in kinds or isa.IfOp in kinds or not kinds & set(MEMORY):
        return ""
    if any("stage" in op.attributes for op in loop.body.block.ops):
        return ""
    return None


def tile_bytes(type_: TileType) -> int:
    """Bytes of one slot of a tile."""
    return type_.rows * type_.columns * element_bytes(type_)


def element_bytes(type_: TileType) -> int:
    bits = getattr(type_.element_type, "bitwidth", 32)
    assert isinstance(bits, int)
    return bits // 8


class _Pipeline:
    """One loop being scheduled."""

    def __init__(self, loop: LoopOp, target: Target) -> None:
        self.loop = loop
        self.target = target
        block = loop.body.block
        self.allocs = [op for op in block.ops if isinstance(op, AllocOp)]
        self.indices = [op for op in block.ops if isinstance(op, isa.IndexOp)]
        self.ops = [op for op in block.ops if not isinstance(op, AllocOp | isa.IndexOp)]
        self.local = {op.tile for op in self.allocs}
        self.operations = [self._operation(op) for op in self.ops]
        self.cycles = [max(1, *uses.uses.values()) for uses in self.operations]

    def apply(self, sink: RemarkSink) -> None:
        most = self.loop.stages.value.data if self.loop.stages is not None else DEFAULT_STAGES
        for stages in range(most, 0, -1):
            schedule = self._schedule(stages)
            slots = self._slots(schedule)
            if self._scratch(slots) <= self.target.scratch_bytes_per_cu:
                self._rewrite(schedule, slots)
                self._report(schedule, stages, most, slots, sink)
                return
        sink.remark(
            "not-pipelined",
            f"{_kernel_of(self.loop)}: a loop is not pipelined: its tiles do not fit the scratch "
            "memory",
            self.loop,
            declined=True,
        )

    # The problem

    def _operation(self, op: Operation) -> LoopOperation:
        """The resources that an instruction occupies, in cycles."""
        target = self.target
        match op:
            case isa.LoadOp() | isa.GetOp() | isa.StoreOp() | isa.PutOp() | isa.GatherOp():
                size = tile_bytes(op.tile_type)
                pieces = -(-size // target.interleave_granule)
                port = -(-size // target.cu_port_bytes_per_clock)
                return LoopOperation(op.name, {"stream": pieces, "port": port})
            case isa.MatrixOp():
                return LoopOperation(op.name, {"stream": 1, "matrix": self._matrix_cycles(op)})
            case isa.VectorOp():
                sizes = [prod((t.type.rows, t.type.columns)) for t in _tiles(op)]
                plain, special = op.definition.operations(sizes)
                lanes = ceil(vector_ps(target, plain, special) / target.cycle_ps)
                return LoopOperation(op.name, {"stream": 1, "vector": lanes})
            case isa.DelayOp():
                delay = op.picoseconds.value.data
                return LoopOperation(op.name, {"stream": max(1, round(delay / target.cycle_ps))})
            case _:
                return LoopOperation(op.name, {"stream": 1})

    def _matrix_cycles(self, op: isa.MatrixOp) -> int:
        rows = self.target.matrix_rows
        flops = 2 * prod(-(-extent // rows) * rows for extent in op.mnk)
        assert isinstance(op.a.type, TileType)
        dtype = str(op.a.type.element_type)
        per_second = self.target.matrix_rate(dtype)
        return max(1, round(flops / per_second * self.target.core_clock_mhz * 1e6))

    def _dependences(self, stages: int) -> list[Dependence]:
        """What must stay in order. A tile of the loop has as many slots as it takes, so only the
        accesses of one iteration depend on each other; tiles that are loaded have ``stages`` slots,
        and other tiles bind the next iteration too."""
        found: list[Dependence] = []
        accesses = [(set(tiles_read(op)), set(tiles_written(op))) for op in self.ops]
        for j, (reads, writes) in enumerate(accesses):
            for i in range(len(self.ops)):
                other_reads, other_writes = accesses[i]
                shared = (writes & (other_reads | other_writes)) | (reads & other_writes)
                if not shared:
                    continue
                if i < j:
                    is_needed = bool(other_writes & (reads | writes))
                    found.append(Dependence(i, j, self._latency(i, needed=is_needed)))
                elif shared - self.local:
                    # From op i of an iteration to op j of the next.
                    found.append(Dependence(i, j, self._latency(i, needed=False), 1))
                elif isinstance(self.ops[j], LOADS):
                    # The slot is free again when the last use of the tile in it has ended.
                    found.append(Dependence(i, j, self._latency(i, needed=False), stages))
        return found

    def _latency(self, index: int, *, needed: bool) -> int:
        """Cycles from the start of an operation until another may follow: its duration, and for a
        load whose data is needed the way to memory too."""
        op = self.ops[index]
        if isinstance(op, LOADS):
            way = self.target.cycles(self.target.memory_latency_ps)
            return way + self.cycles[index] if needed else 1
        if not isinstance(op, COMPUTE):
            return 1
        target = self.target
        is_matrix = isinstance(op, isa.MatrixOp)
        late = target.matrix_latency_ps if is_matrix else target.vector_latency_ps
        return self.cycles[index] + (target.cycles(late) if needed else 0)

    # The schedule

    def _schedule(self, stages: int) -> ModuloSchedule:
        """The schedule in which loads start as soon as a slot is free."""
        loads = [i for i, op in enumerate(self.ops) if isinstance(op, LOADS)]
        return schedule_loop(self.operations, self._dependences(stages), early=loads)

    def _slots(self, schedule: ModuloSchedule) -> dict[SSAValue, int]:
        """Iterations that hold a tile at once, from its first access to the end of its last."""
        slots: dict[SSAValue, int] = {}
        for tile in self.local:
            used = [
                (start, start + self._latency(i, needed=False))
                for i, (op, start) in enumerate(zip(self.ops, schedule.starts, strict=True))
                if tile in tiles_read(op) or tile in tiles_written(op)
            ]
            life = max(end for _, end in used) - min(start for start, _ in used) if used else 1
            slots[tile] = -(-life // schedule.ii)
        return slots

    def _scratch(self, slots: Mapping[SSAValue, int]) -> int:
        return sum(
            tile_bytes(op.type) * slots[op.tile] for op in self.allocs if op.space.data == "scratch"
        )

    # The result

    def _rewrite(self, schedule: ModuloSchedule, slots: Mapping[SSAValue, int]) -> None:
        block = self.loop.body.block
        for op, stage in zip(self.ops, schedule.stages, strict=True):
            if stage:
                op.attributes["stage"] = IntegerAttr(stage, i64)
            op.detach()
        for op in (*self.allocs, *self.indices):
            op.detach()
        for op in self.allocs:
            op.slots = IntegerAttr(slots[op.tile], i64)
        block.add_ops((*self.allocs, *self.indices, *(self.ops[i] for i in schedule.order)))
        for name in ("ii", "res_mii", "rec_mii"):
            self.loop.properties[name] = IntegerAttr(getattr(schedule, name), i64)

    def _report(
        self,
        schedule: ModuloSchedule,
        stages: int,
        most: int,
        slots: Mapping[SSAValue, int],
        sink: RemarkSink,
    ) -> None:
        depth = max(schedule.stages) + 1
        fewer = f", {stages} slots for want of scratch memory" if stages < most else ""
        sink.remark(
            "pipelined",
            f"{_kernel_of(self.loop)}: a loop starts an iteration every "
            f"{counted(schedule.ii, 'cycle')} (at least {schedule.res_mii} by resources, "
            f"{schedule.rec_mii} by dependences), {counted(depth, 'stage')}{fewer}",
            self.loop,
            ii=schedule.ii,
            res_mii=schedule.res_mii,
            rec_mii=schedule.rec_mii,
            stages=depth,
            scratch_bytes=self._scratch(slots),
        )


def _tiles(op: isa.VectorOp) -> Sequence[SSAValue[TileType]]:
    return op.tiles  # type: ignore[return-value]
