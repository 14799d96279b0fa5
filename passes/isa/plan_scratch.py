"""Tiles get their place in the scratch memory of a workgroup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Block, Operation, SSAValue

from starc.diagnostics import Diagnostic, InputError
from starc.dialects import isa
from starc.dialects.isa import AllocOp, KernelOp, LaunchOp, tiles_read, tiles_written
from starc.dialects.kernel_buffers import BufferOp
from starc.dialects.locations import location_of
from starc.passes.base import RemarkSink, StarcPass
from starc.passes.isa.pipeline_loops import COMPUTE, LOADS
from starc.passes.isa.scheduling.scratch_tiles import place_tiles, slot_bytes
from starc.targets.target import Target


@dataclass(frozen=True)
class PlanScratch(StarcPass):
    """Every scratch tile gets an ``offset`` that leaves room for all its slots, and every template
    its ``scratch_bytes`` and ``register_bytes``.

    Two tiles share bytes only where the second is first touched after an instruction that waits
    for everything that used the first: the machine guards tiles, not addresses. Larger tiles are
    placed first, each at the lowest place that is free during its life. A template whose tiles do
    not fit a compute unit is an error that names them.

    On a machine whose elements have engines of their own, tiles that would be in registers lie in
    scratch memory as well (their space becomes ``scratch``), below the region of the queues at its
    top (``target.queue_bytes``). There ``assign-engines`` orders all accesses of the same bytes, so
    that any two tiles whose lives do not overlap may share them, and a tile lives from its first
    to its last access: for the whole of every loop around an access that it stands outside of, and
    of its own loop if it has several slots or is used in several stages. Sharing costs overlap, so
    room comes first: tiles share only as far as they must to fit, first those of different
    ``isa.scope``, then all of one slot and stage, at last the double buffers of pipelines. The
    bytes do not depend on how often loops run.

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
    ```mlir
    kernel.buffer @x : tensor<16x512xbf16> {address = 0 : i64, bytes = 16384 : i64,
        layout = #kernel.layout<row_major>, space = "private", role = "activation"}
    kernel.buffer @w : tensor<512x128xbf16> {address = 16384 : i64, bytes = 131072 : i64,
        layout = #kernel.layout<blocked [32, 64]>, space = "private", role = "weight"}
    isa.kernel @gemm coords(%device, %gpu, %xcd, %wg) attributes {kernel_class = "gemm",
        waves = 4 : i64, scratch_bytes = 36864 : i64, register_bytes = 8192 : i64} {
      %acc = isa.alloc register : !isa.tile<16x128xf32>
      isa.loop %k = [0] to [8] attributes {stages = 2 : i64, ii = 494 : i64, res_mii = 288 : i64,
          rec_mii = 473 : i64} {
        %a = isa.alloc scratch slots 2 offset 32768 : !isa.tile<16x64xbf16>
        %b = isa.alloc scratch slots 2 offset 0 : !isa.tile<64x128xbf16>
        isa.load %a, @x[0, %k * 64] {stage = 1 : i64} : !isa.tile<16x64xbf16>
        isa.matrix %acc, %a, %b {stage = 2 : i64} : !isa.tile<16x128xf32>, !isa.tile<16x64xbf16>,
            !isa.tile<64x128xbf16>
        isa.load %b, @w[%k * 64, 0] : !isa.tile<64x128xbf16>
      }
    }
    ```
    """

    name = "plan-scratch"

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        problems = outside_of_queues(module, target) if target.engines else []
        moving = on_engines(module)
        for kernel in module.ops:
            if not isinstance(kernel, KernelOp):
                continue
            if target.engines:
                problems += place_tiles(kernel, target, sink)
                continue
            plan = _Plan(kernel)
            scratch = plan.place()
            if kernel.sym_name.data in moving:
                # What a copy engine moves lies in its own buffer, within its window.
                kernel.scratch_bytes = kernel.register_bytes = IntegerAttr(0, i64)
                continue
            working = target.working_bytes_per_lane * target.wave_size
            registers = plan.registers() + kernel.waves.value.data * working
            problems += _overflow(kernel, plan, "scratch", scratch, target.scratch_bytes_per_cu)
            problems += _overflow(
                kernel, plan, "register", registers, target.registers_bytes_per_cu
            )
            kernel.scratch_bytes = IntegerAttr(scratch, i64)
            kernel.register_bytes = IntegerAttr(registers, i64)
            sink.remark(
                "scratch",
                f"@{kernel.sym_name.data}: a workgroup takes {scratch:,} bytes of scratch memory "
                f"and {registers:,} bytes of registers",
                kernel,
                scratch_bytes=scratch,
                register_bytes=registers,
            )
        if problems:
            raise InputError(problems)


def outside_of_queues(module: ModuleOp, target: Target) -> list[Diagnostic]:
    """Buffers in scratch memory that do not lie where tiles are kept away."""
    end = target.scratch_bytes_per_cu
    first = end - target.queue_bytes
    found: list[Diagnostic] = []
    for op in module.ops:
        if not isinstance(op, BufferOp) or op.memory is None:
            continue
        address = op.address.value.data
        if not first <= address <= address + op.bytes.value.data <= end:
            found.append(
                Diagnostic(
                    f"@{op.sym_name.data} takes bytes {address:,} to "
                    f"{address + op.bytes.value.data:,} of scratch memory, which has {first:,} to "
                    f"{end:,} for queues",
                    location_of(op),
                )
            )
    return found


def on_engines(module: ModuleOp) -> frozenset[str]:
    """The templates that run on copy engines."""
    launches = [op for op in module.walk() if isinstance(op, LaunchOp) and op.engines is not None]
    return frozenset(name for launch in launches for name, _ in launch.parts)


def _overflow(
    kernel: KernelOp, plan: _Plan, space: str, used: int, available: int
) -> list[Diagnostic]:
    if used <= available:
        return []
    largest = sorted((a for a in plan.allocs if a.space.data == space), key=slot_bytes)[::-1]
    tiles = ", ".join(
        f"%{a.tile.name_hint or '?'} {a.type.rows}x{a.type.columns}x{a.type.element_type}"
        + (f" in {a.slots.value.data} slots" if a.slots.value.data > 1 else "")
        + f" {slot_bytes(a)} B"
        for a in largest[:6]
    )
    name = "scratch memory" if space == "scratch" else "registers"
    return [
        Diagnostic(
            f"template @{kernel.sym_name.data} needs {used} bytes of {name}, a compute unit has "
            f"{available}: {tiles}",
            location_of(kernel),
        )
    ]


class _Plan:
    """The tiles of a template and where in the stream they are used."""

    def __init__(self, kernel: KernelOp) -> None:
        self.ops = list(kernel.body.walk())
        self.position = {op: i for i, op in enumerate(self.ops)}
        self.allocs = [op for op in self.ops if isinstance(op, AllocOp)]
        self.accesses: dict[SSAValue, list[Operation]] = {a.tile: [] for a in self.allocs}
        for op in self.ops:
            for tile in dict.fromkeys((*tiles_read(op), *tiles_written(op))):
                self.accesses[tile].append(op)
        self.live = {a: self._interval(a) for a in self.allocs}

    def _interval(self, alloc: AllocOp) -> tuple[int, int]:
        """First and last position at which the tile is alive: a loop around an access, inside of
        which the tile is not allocated afresh, keeps it alive from its start to its end."""
        first = last = self.position[alloc]
        for op in self.accesses[alloc.tile]:
            inner = op
            while (parent := inner.parent_op()) is not None and inner.parent != alloc.parent:
                inner = parent
            last = max(last, self._end(inner))
        outer = alloc.parent_op()
        if isinstance(outer, isa.LoopOp):
            first, last = self.position[outer], max(last, self._end(outer))
        return first, last

    def _end(self, op: Operation) -> int:
        """Position of the last operation inside ``op``."""
        return max(self.position[inner] for inner in op.walk())

    # Scratch

    def place(self) -> int:
        """Gives scratch tiles their offsets; returns the bytes used."""
        tiles = [a for a in self.allocs if a.space.data == "scratch"]
        tiles.sort(key=lambda a: (-slot_bytes(a), self.position[a]))
        placed: list[tuple[int, AllocOp]] = []
        for alloc in tiles:
            size = slot_bytes(alloc)
            taken = sorted(
                (offset, offset + slot_bytes(other))
                for offset, other in placed
                if not self._apart(alloc, other)
            )
            offset = 0
            for start, end in taken:
                if offset + size <= start:
                    break
                offset = max(offset, end)
            placed.append((offset, alloc))
            alloc.offset = IntegerAttr(offset, i64)
        return max((offset + slot_bytes(a) for offset, a in placed), default=0)

    def _apart(self, a: AllocOp, b: AllocOp) -> bool:
        """Whether two tiles may share bytes."""
        if self.live[a][0] > self.live[b][1]:
            a, b = b, a
        return self.live[a][1] < self.live[b][0] and self._retired(a, b)

    def _retired(self, first: AllocOp, second: AllocOp) -> bool:
        """Whether an instruction before ``second`` waits for all that used ``first``: a reader for
        a load, and for what computes from it one that needs the result. Stores have read their
        tile when the stream goes on."""
        users = self.accesses[first.tile]
        is_read = any(first.tile in tiles_read(op) for op in users)
        return all(
            isinstance(op, isa.StoreOp | isa.PutOp)
            or (is_read if isinstance(op, LOADS) else self._waited_for(op, first, second))
            for op in users
        )

    def _waited_for(self, op: Operation, first: AllocOp, second: AllocOp) -> bool:
        """Whether an instruction between the lives of two tiles, one that surely runs before the
        second, needs a tile that ``op`` writes."""
        tiles = set(tiles_written(op))
        enclosing = _blocks_around(second)
        return any(
            isinstance(other, COMPUTE)
            and other.parent in enclosing
            and self.live[first][1] < self.position[other] < self.live[second][0]
            and tiles & {*tiles_read(other), *tiles_written(other)}
            for other in self.ops
        )

    # Registers

    def registers(self) -> int:
        """The most bytes of register tiles that are alive at once."""
        tiles = [(self.live[a], slot_bytes(a)) for a in self.allocs if a.space.data == "register"]
        return max(
            (sum(size for (a, b), size in tiles if a <= at <= b) for (at, _), _ in tiles),
            default=0,
        )


def _blocks_around(op: Operation) -> Sequence[Block]:
    """The blocks that contain an operation, innermost first."""
    blocks: list[Block] = []
    current: Operation | None = op
    while current is not None:
        if current.parent is not None:
            blocks.append(current.parent)
        current = current.parent_op()
    return blocks
