"""Slots of tiles that loops load, and loads ahead of what uses them.

``schedule-commands`` says what becomes of loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Operation, SSAValue

from starc.core.quasi_affine import expressions as qa
from starc.core.quasi_affine.simplification import simplify
from starc.dialects import isa
from starc.dialects.isa import AllocOp, IndexOp, KernelOp, LoopOp, tiles_read, tiles_written
from starc.dialects.isa_commands import enclosing
from starc.kernel_bodies.attention.cube_attention import SWEEP
from starc.passes.base import with_location
from starc.passes.isa.pipeline_loops import DEFAULT_STAGES, LOADS
from starc.passes.isa.scheduling.attention_sweeps import FREE
from starc.passes.isa.scheduling.scratch_tiles import slot_bytes
from starc.targets.target import Target

MOST_AHEAD: Final = 4
"""Iterations whose tiles a loop loads before it works on one."""
LOADED: Final = (isa.LoadOp, isa.GetOp)
"""What a loop may do ahead. What other devices write or read is waited for outside of the loop."""


def give_slots(loop: LoopOp, kernel: KernelOp, target: Target) -> None:
    """Tiles that a loop loads get slots: as many as the stages of the loop, a divisor of its trips
    where there is one, and no more than fit beside the other tiles."""
    tiles = [
        op
        for op in loop.body.block.ops
        if isinstance(op, AllocOp)
        and op.slots.value.data == 1
        and any(isinstance(use, LOADS) and use.tile is op.tile for use in loop.body.block.ops)
    ]
    if not tiles:
        return
    most = loop.stages.value.data if loop.stages is not None else DEFAULT_STAGES
    fits = 1 + _room(kernel, target) // sum(map(slot_bytes, tiles))
    most = max(1, min(most, fits))
    trips = _trips(loop) if _is_repeated(loop) else None
    dividing = [n for n in range(2, most + 1) if trips is not None and trips % n == 0]
    slots = max(dividing, default=most)
    for op in tiles:
        op.slots = IntegerAttr(slots, i64)


def run_once(loop: LoopOp) -> bool:
    """Puts what a loop of one trip holds in its place, where it is repeated: then the slots of its
    tiles are used in turn by the loop around it."""
    if _trips(loop) != 1 or not _is_repeated(loop) or SWEEP in loop.attributes:
        return False
    if any("stage" in op.attributes for op in loop.body.block.ops):
        return False
    block = loop.parent
    assert block is not None
    first = with_location(IndexOp(loop.lower, loop.indices), loop)
    first.result.name_hint = loop.counter.name_hint
    block.insert_op_before(first, loop)
    loop.counter.replace_all_uses_with(first.result)
    in_loop = isinstance(enclosing(loop), LoopOp)
    for op in list(loop.body.block.ops):
        op.detach()
        if isinstance(op, AllocOp) and not in_loop:
            op.slots = IntegerAttr(1, i64)
        block.insert_op_before(op, loop)
    loop.detach()
    loop.erase()
    return True


def bring_slots_round(loop: LoopOp, kernel: KernelOp, target: Target) -> None:
    """Where a loop of constant trips is repeated, its tiles get a number of slots that divides the
    trips: then every entry goes on with the slot behind the last one, and loads of the next entry
    do not wait for the end of this one."""
    trips = _trips(loop)
    if not trips or not _is_repeated(loop):
        return
    for op in loop.body.block.ops:
        slots = op.slots.value.data if isinstance(op, AllocOp) else 1
        if not isinstance(op, AllocOp) or slots == 1 or trips % slots == 0:
            continue
        size = slot_bytes(op) // slots
        room = slots + _room(kernel, target) // size
        dividing = [n for n in range(2, min(2 * slots, room) + 1) if trips % n == 0]
        least = _least_slots(loop)
        more = [n for n in dividing if n >= slots]
        fewer = [n for n in dividing if least <= n < slots]
        if more or fewer:
            op.slots = IntegerAttr(min(more) if more else max(fewer), i64)


def _least_slots(loop: LoopOp) -> int:
    """Slots that tiles need because of the stages of a loop."""
    return 1 + max((isa.stage_of(op) for op in loop.body.block.ops), default=0)


def _is_repeated(op: Operation) -> bool:
    """Whether an operation stands in a loop."""
    parent = op.parent_op()
    return parent is not None and (isinstance(parent, LoopOp) or _is_repeated(parent))


def _trips(loop: LoopOp) -> int | None:
    difference = simplify(loop.upper.data - loop.lower.data)
    return max(0, difference.value) if isinstance(difference, qa.Const) else None


def fetch_ahead(loop: LoopOp, kernel: KernelOp, target: Target) -> bool:
    """Lets a loop of loads, gets, vector functions, stores and puts load tiles ahead, where it
    may: what it loads must not be what it stores, and puts to other devices do not store here."""
    free = [op for op in loop.body.block.ops if isinstance(op, FREE)]
    ops = [op for op in loop.body.block.ops if not isinstance(op, FREE)]
    loads = [op for op in ops if isinstance(op, LOADED)]
    others = [op for op in ops if not isinstance(op, LOADED)]
    if not loads or not others or SWEEP in loop.attributes or is_commanded(loop):
        return False
    works = isa.VectorOp | isa.MatrixOp | isa.StoreOp | isa.PutOp
    if not all(isinstance(op, works) and "stage" not in op.attributes for op in others):
        return False
    own: dict[SSAValue, AllocOp] = {op.tile: op for op in free if isinstance(op, AllocOp)}
    fresh = [op.tile for op in loads]
    stored = [op for op in others if isinstance(op, isa.StoreOp | isa.PutOp)]
    if len(set(fresh)) < len(fresh) or not set(fresh) <= own.keys():
        return False
    if any(_reaches(op, loads, kernel, target) for op in stored):
        return False
    if any(set(fresh) & set(tiles_written(op)) for op in others):
        return False
    if any(tile in tiles_read(op) for n, op in enumerate(ops) for tile in _loaded(ops[n:])):
        return False
    size = sum(slot_bytes(own[tile]) for tile in fresh)
    wanted = min(MOST_AHEAD, max(1, target.window_bytes_per_cu // size))
    ahead = min(wanted, _room(kernel, target) // size)
    if ahead < 1:
        return False
    for op in (*free, *loads, *others):
        op.detach()
    loop.body.block.add_ops((*free, *loads, *others))
    for op in others:
        op.attributes["stage"] = IntegerAttr(ahead, i64)
    for tile in fresh:
        own[tile].slots = IntegerAttr(max(own[tile].slots.value.data, ahead + 1), i64)
    # What leaves an iteration does not hold up the next one.
    leaving = {op.tile for op in others if isinstance(op, isa.StoreOp | isa.PutOp)}
    for tile in own.keys() & leaving - set(fresh):
        if slot_bytes(own[tile]) <= _room(kernel, target):
            own[tile].slots = IntegerAttr(max(own[tile].slots.value.data, 2), i64)
    return True


def _reaches(
    op: isa.StoreOp | isa.PutOp, loads: Sequence[Operation], kernel: KernelOp, target: Target
) -> bool:
    """Whether an instruction may write to a buffer of this device that some others load."""
    if not any(isinstance(load, LOADED) and load.buffer == op.buffer for load in loads):
        return False
    return not isinstance(op, isa.PutOp) or not _leaves_device(op, kernel, target)


def _leaves_device(op: isa.PutOp, kernel: KernelOp, target: Target) -> bool:
    """Whether a put goes to another device on every device, as far as its target is a function of
    the device alone: then it writes nothing that a load of this loop reads, for what arrives here
    is waited for outside of the loop."""
    assert op.peer is not None
    device = kernel.device
    peers = (_of_device(op.peer.data, op.indices, device, n) for n in range(target.devices))
    return all(peer is not None and peer != n for n, peer in enumerate(peers))


def _of_device(
    e: qa.Expression, indices: Sequence[SSAValue], device: SSAValue, number: int
) -> int | None:
    """The value of an expression on a device; None where it depends on more than that."""
    values: dict[str, int] = {}
    for name in qa.variables(e):
        value = indices[int(name[1:])]
        found = number if value is device else None
        if isinstance(value.owner, IndexOp):
            index = value.owner
            found = _of_device(index.value.data, index.indices, device, number)
        if found is None:
            return None
        values[name] = found
    return int(qa.evaluate(e, values))


def _loaded(ops: Sequence[Operation]) -> set[SSAValue]:
    """Tiles that some instructions load."""
    return {op.tile for op in ops if isinstance(op, LOADED)}


def _room(kernel: KernelOp, target: Target) -> int:
    """Bytes of scratch memory that the tiles of a kernel leave."""
    tiles = sum(slot_bytes(op) for op in kernel.body.walk() if isinstance(op, AllocOp))
    return max(0, target.scratch_bytes_per_cu - target.queue_bytes - tiles)


def is_commanded(op: Operation) -> bool:
    """Whether an operation stands in a composite."""
    parent = op.parent_op()
    return parent is not None and (isinstance(parent, isa.CompositeOp) or is_commanded(parent))
