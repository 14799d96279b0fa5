"""Tiles of kernels for elements with engines of their own: how long each lives, and where it lies.

``plan-scratch`` says what holds of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Operation, SSAValue

from starc.core.memory.scratch_planning import ScratchPlan, ScratchTile, Sharing, plan_scratch
from starc.diagnostics import Diagnostic
from starc.dialects import isa
from starc.dialects.isa import AllocOp, KernelOp, tiles_read, tiles_written
from starc.dialects.locations import location_of
from starc.passes.base import RemarkSink
from starc.passes.isa.pipeline_loops import tile_bytes
from starc.targets.target import Target

ALIGNMENT: Final = 128


def slot_bytes(alloc: AllocOp) -> int:
    """Bytes of a tile with all its slots, each aligned."""
    return -(-tile_bytes(alloc.type) // ALIGNMENT) * ALIGNMENT * alloc.slots.value.data


def place_tiles(kernel: KernelOp, target: Target, sink: RemarkSink) -> list[Diagnostic]:
    """Places the tiles of a template for an element whose only memory beside HBM is scratch."""
    available = target.scratch_bytes_per_cu - target.queue_bytes
    allocs = [op for op in kernel.body.walk() if isinstance(op, AllocOp)]
    tiles = _lives(kernel, allocs)
    plan = plan_scratch(tiles, available)
    for alloc, offset in zip(allocs, plan.offsets, strict=True):
        alloc.space = StringAttr("scratch")
        alloc.offset = IntegerAttr(offset, i64)
    kernel.scratch_bytes = IntegerAttr(plan.bytes, i64)
    kernel.register_bytes = IntegerAttr(0, i64)
    if plan.bytes > available:
        return [_too_much(kernel, allocs, tiles, plan, target)]
    total = sum(tile.bytes for tile in tiles)
    if allocs:
        sink.remark(
            "scratch",
            f"@{kernel.sym_name.data}: {plan.bytes:,} of {available:,} bytes of scratch memory, "
            f"{SHARED[plan.sharing]}: {_largest(allocs)}; {target.queue_bytes:,} bytes above are "
            "left to queues",
            kernel,
            scratch_bytes=plan.bytes,
            tiles_bytes=total,
            queue_bytes=target.queue_bytes,
        )
    return []


TILE_OPTIONS: Final[Mapping[str, str]] = {
    "gemm": "tile-kernels{gemm-tile=ROWS,COLUMNS,INNER} and {gemm-stages=N}",
    "attention": "tile-kernels{attention-keys=N}, {attention-rows=N} and {attention-stages=N}",
    "norm": "tile-kernels{rows-tile=ROWS,COLUMNS}",
    "elementwise": "tile-kernels{rows-tile=ROWS,COLUMNS}",
}
"""By class of kernel, the options that give a kernel smaller tiles."""

SHARED: Final[Mapping[Sharing, str]] = {
    Sharing.NONE: "every tile on its own",
    Sharing.SCOPES: "tiles of different scopes share",
    Sharing.TILES: "tiles of one slot share",
    Sharing.ALL: "all tiles share that are not alive together",
}


def _largest(allocs: Sequence[AllocOp], shown: int = 6) -> str:
    """The largest tiles with their sizes, and what the others take."""
    ordered = sorted(allocs, key=slot_bytes)[::-1]
    text = ", ".join(f"{_described(alloc)} {slot_bytes(alloc):,} B" for alloc in ordered[:shown])
    rest = ordered[shown:]
    return text + (f", {len(rest)} more {sum(map(slot_bytes, rest)):,} B" if rest else "")


def _described(alloc: AllocOp) -> str:
    slots = alloc.slots.value.data
    return (
        f"%{alloc.tile.name_hint or '?'} {alloc.type.rows}x{alloc.type.columns}x"
        f"{alloc.type.element_type}" + (f" in {slots} slots" if slots > 1 else "")
    )


def _too_much(
    kernel: KernelOp,
    allocs: Sequence[AllocOp],
    tiles: Sequence[ScratchTile],
    plan: ScratchPlan,
    target: Target,
) -> Diagnostic:
    """The error of tiles that do not fit even where all share that can."""
    available = target.scratch_bytes_per_cu - target.queue_bytes
    # The tiles that are alive at the fullest point.
    fullest = max(
        (tile.first for tile in tiles),
        key=lambda at: sum(t.bytes for t in tiles if t.first <= at <= t.last),
    )
    alive = [
        alloc
        for alloc, tile in zip(allocs, tiles, strict=True)
        if tile.first <= fullest <= tile.last
    ]
    alive.sort(key=slot_bytes, reverse=True)
    names = ", ".join(
        f"{_described(alloc)} {slot_bytes(alloc):,} B"
        + (f" ({place})" if (place := location_of(alloc)) is not None else "")
        for alloc in alive
    )
    single = [
        replace(tile, bytes=tile.bytes // alloc.slots.value.data)
        for alloc, tile in zip(allocs, tiles, strict=True)
    ]
    without_slots = plan_scratch(single, available).bytes
    largest = alive[0]
    left = available - (plan.bytes - slot_bytes(largest))
    rows = max(0, left) * largest.type.rows // slot_bytes(largest)
    options = TILE_OPTIONS.get(kernel.kernel_class.data)
    if without_slots <= available:
        hint = f"with one slot for every tile they take {without_slots:,} bytes, which fits"
    elif rows:
        hint = f"%{largest.tile.name_hint or '?'} fits with at most {rows} rows"
    else:
        hint = "smaller tiles fit, or fewer that are alive at the same time"
    if options is not None:
        hint += f"; options of the tile: {options}"
    return Diagnostic(
        f"template @{kernel.sym_name.data} needs {plan.bytes:,} bytes of scratch memory for tiles "
        f"that are alive at the same time, an element has {available:,} "
        f"({target.scratch_bytes_per_cu:,} less {target.queue_bytes:,} for queues): {names}",
        location_of(kernel),
        hint=hint,
    )


def _lives(kernel: KernelOp, allocs: Sequence[AllocOp]) -> list[ScratchTile]:
    """When each tile is alive, by positions in the body."""
    ops = list(kernel.body.walk())
    position = {op: i for i, op in enumerate(ops)}
    ends = {op: max(position[inner] for inner in op.walk()) for op in ops if op.regions}
    accesses: dict[SSAValue, list[Operation]] = {alloc.tile: [] for alloc in allocs}
    for op in ops:
        for tile in dict.fromkeys((*tiles_read(op), *tiles_written(op))):
            accesses[tile].append(op)
    found: list[ScratchTile] = []
    for alloc in allocs:
        own = isa.enclosing(alloc)
        spans = [(position[alloc], position[alloc])] if not accesses[alloc.tile] else []
        stages: set[int] = set()
        for op in accesses[alloc.tile]:
            spans.append(_span(op, own, position, ends))
            stages.add(_stage(op, own))
        slots = alloc.slots.value.data
        pipelined = slots > 1 or len(stages) > 1
        if pipelined and isinstance(own, isa.LoopOp):
            spans.append((position[own], ends[own]))
        if kernel.streams:  # nothing says which accesses come first
            spans.append((0, len(ops)))
        scopes = tuple(
            position[op] for op in reversed(_around(alloc)) if isinstance(op, isa.ScopeOp)
        )
        first, last = min(a for a, _ in spans), max(b for _, b in spans)
        found.append(ScratchTile(slot_bytes(alloc), first, last, scopes, pipelined))
    return found


def _around(op: Operation) -> list[Operation]:
    """The operations around an operation, innermost first."""
    found: list[Operation] = []
    parent = op.parent_op()
    while parent is not None:
        found.append(parent)
        parent = parent.parent_op()
    return found


def _span(
    op: Operation,
    own: Operation | None,
    position: Mapping[Operation, int],
    ends: Mapping[Operation, int],
) -> tuple[int, int]:
    """The positions that an access keeps its tile alive at: all of the outermost loop around it
    inside of what the tile is allocated in."""
    span = position[op], position[op]
    for around in _around(op):
        if around is own:
            break
        if isinstance(around, isa.LoopOp):
            span = position[around], ends[around]
    return span


def _stage(op: Operation, own: Operation | None) -> int:
    """The stage at which an access runs in the loop that its tile is allocated in."""
    inner = op
    while (parent := isa.enclosing(inner)) is not None and parent is not own:
        inner = parent
    return isa.stage_of(inner) if isinstance(own, isa.LoopOp) else 0
