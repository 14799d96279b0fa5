"""Sweeps of attention over tiles of keys: which of their commands overlap.

``schedule-commands`` says what the schedules are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from xdsl.dialects.builtin import IntegerAttr, UnitAttr, i64
from xdsl.ir import Block, Operation, Region, SSAValue

from starc.core.streams.engine_dependences import lag
from starc.dialects import isa
from starc.dialects.isa import AllocOp, IndexOp, KernelOp, LoopOp, tiles_read, tiles_written
from starc.dialects.isa_commands import enclosing
from starc.passes.base import with_location
from starc.passes.isa.pipeline_loops import LOADS
from starc.passes.isa.scheduling.scratch_tiles import slot_bytes
from starc.targets.target import Target

CONTINUES: Final = "continues"
"""The attribute of a composite that is part of a command before: what follows from its product,
in a later place. Engines work in order, and would wait for the product instead of working on the
tile before."""
FREE: Final = (AllocOp, IndexOp)
MOST: Final = 3  # stages behind the first
REGIONS: Final = (LoopOp, isa.IfOp, isa.CompositeOp, isa.ScopeOp)


@dataclass(frozen=True, eq=False)
class _Part:
    """A statement of a sweep; a composite is two, its product and what follows from that.
    ``position`` is where it is written, ``place`` where it goes."""

    op: Operation
    leaves: tuple[Operation, ...]
    position: int
    place: int
    is_tail: bool = False


@dataclass(frozen=True)
class SweepPlan:
    """Stages of parts, and the slots that tiles need."""

    stages: Mapping[_Part, int]
    slots: Mapping[AllocOp, int]


class Sweep:
    """A loop over tiles of keys being scheduled."""

    def __init__(self, loop: LoopOp, kernel: KernelOp, target: Target) -> None:
        self.loop = loop
        self.parts = list(_parts(loop))
        composites = [part.op for part in self.parts if isinstance(part.op, isa.CompositeOp)]
        direct = [op for op in loop.body.block.ops if isinstance(op, isa.CompositeOp)]
        self.first = direct[0] if direct else None
        self.last = composites[-1] if composites else None
        self.own: dict[SSAValue, AllocOp] = {
            op.tile: op
            for op in loop.body.walk()
            if isinstance(op, AllocOp) and enclosing(op) is loop
        }
        total = sum(slot_bytes(op) for op in kernel.body.walk() if isinstance(op, AllocOp))
        self.room = target.scratch_bytes_per_cu - target.queue_bytes - total

    def plan(self) -> SweepPlan | str:
        """The stages that overlap most of those that are legal and fit, or why none is."""
        reason = self._obstacle()
        for depth, double in ((2, True), (2, False), (1, False)):
            if reason is not None:
                break
            stages = self._settled({part: self._stage(part, depth) for part in self.parts})
            if stages is None:
                return "its first command needs, or changes, what the iteration before has computed"
            slots = self._slots(stages, double=double)
            more = sum(
                slot_bytes(op) // op.slots.value.data * (count - op.slots.value.data)
                for op, count in slots.items()
            )
            if more <= self.room:
                return SweepPlan(stages, slots)
        return reason or "its tiles do not fit the scratch memory in two slots"

    def _obstacle(self) -> str | None:
        leaves = [leaf for part in self.parts for leaf in part.leaves]
        if self.first is None:
            return "it has no command of its own for the scores"
        if any("stage" in op.attributes for op in self.loop.body.walk()):
            return "it has stages already"
        if any(isinstance(op, isa.WaitOp | isa.SignalOp | isa.PutOp) for op in leaves):
            return "it waits for other devices or signals to them"
        stored = {op.buffer for op in leaves if isinstance(op, isa.StoreOp)}
        if any(op.buffer in stored for op in leaves if isinstance(op, LOADS)):
            return "it stores to what it loads"
        return None

    def _stage(self, part: _Part, depth: int) -> int:
        """0 for the first command, 1 up to the last product, and behind it ``depth``."""
        if part.op is self.first:
            return 0
        last = max(p.position for p in self.parts if p.op is self.last and not p.is_tail)
        return depth if self.last is not self.first and part.position > last else 1

    def _settled(self, stages: dict[_Part, int]) -> dict[_Part, int] | None:
        """Stages raised until every part comes behind those that it must follow, in its iteration
        and, for tiles that outlive iterations, in the next; None where the first would be late."""
        changed = True
        while changed:
            changed = False
            for x in self.parts:
                for y in self.parts:
                    least = self._least(x, y, stages[x])
                    if least > stages[y]:
                        stages[y], changed = least, True
            if any(stages[part] > MOST for part in self.parts):
                return None
        first = next(part for part in self.parts if part.op is self.first)
        return stages if stages[first] == 0 else None

    def _least(self, x: _Part, y: _Part, stage: int) -> int:
        """The least stage of ``y`` where ``x`` has this one."""
        least = 0
        behind = int(x.place >= y.place)  # in a trip
        for tile in _contended(x, y):
            if x.position < y.position:
                least = max(least, stage + behind)
            if tile not in self.own and not self._is_inside(tile):
                least = max(least, stage - 1 + behind)
        return least

    def _slots(self, stages: Mapping[_Part, int], *, double: bool) -> dict[AllocOp, int]:
        """Slots of the tiles of an iteration: as many as iterations use at once. ``double``: what
        vector functions leave for products has two, so that both work at the same time."""
        keys = {part: (stages[part], part.place) for part in self.parts}
        slots = {op: op.slots.value.data for op in self.own.values()}
        for x in self.parts:
            for y in self.parts:
                for tile in _contended(x, y) & self.own.keys():
                    slots[self.own[tile]] = max(slots[self.own[tile]], lag(keys[x], keys[y]))
        if double:
            leaves = [op for part in self.parts for op in part.leaves]
            made = {t for op in leaves if isinstance(op, isa.VectorOp) for t in op.writes}
            for op in leaves:
                if isinstance(op, isa.MatrixOp):
                    for tile in {op.a, op.b} & made & self.own.keys():
                        slots[self.own[tile]] = max(2, slots[self.own[tile]])
        return slots

    def _is_inside(self, tile: SSAValue) -> bool:
        """Whether a tile is one of a loop inside of the sweep."""
        owner = tile.owner
        return isinstance(owner, AllocOp) and self.loop.is_ancestor(owner)

    def apply(self, plan: SweepPlan) -> None:
        tails = {part.op: part for part in self.parts if part.is_tail}
        for part, stage in plan.stages.items():
            if part.is_tail:
                continue
            tail = tails.get(part.op)
            if tail is not None and (part.op is self.first or plan.stages[tail] != stage):
                assert isinstance(part.op, isa.CompositeOp)
                rest = _cut(part.op)
                _set_stage(rest, plan.stages[tail])
                if part.op is self.first:
                    rest.detach()
                    self.loop.body.block.add_op(rest)
            _set_stage(part.op, stage)
        for alloc, slots in plan.slots.items():
            alloc.slots = IntegerAttr(slots, i64)


def _set_stage(op: Operation, stage: int) -> None:
    if stage:
        op.attributes["stage"] = IntegerAttr(stage, i64)


def _cut(composite: isa.CompositeOp) -> isa.CompositeOp:
    """Takes what follows from the product of a composite into one that continues it."""
    block = composite.parent
    assert block is not None
    for op in list(composite.body.block.ops):
        if isinstance(op, FREE):
            op.detach()
            block.insert_op_before(op, composite)
    _, tail = split_composite(composite)
    for op in tail:
        op.detach()
    stateful = composite.stateful is not None
    rest = isa.CompositeOp(Region(Block(tail)), stateful=stateful)
    rest.attributes[CONTINUES] = UnitAttr()
    block.insert_op_after(with_location(rest, composite), composite)
    return rest


def _parts(loop: LoopOp) -> Iterator[_Part]:
    """The statements of a sweep in order; scopes are seen through."""

    def inside(block: Block) -> Iterator[Operation]:
        for op in block.ops:
            if isinstance(op, isa.ScopeOp):
                yield from inside(op.body.block)
            elif not isinstance(op, FREE):
                yield op

    found = list(inside(loop.body.block))
    first = next((op for op in loop.body.block.ops if isinstance(op, isa.CompositeOp)), None)
    for number, op in enumerate(found):
        if not isinstance(op, isa.CompositeOp):
            yield _Part(op, tuple(_leaves(op)), 2 * number, 2 * number)
            continue
        head, tail = split_composite(op)
        yield _Part(op, tuple(leaf for o in head for leaf in _leaves(o)), 2 * number, 2 * number)
        if tail:
            leaves = tuple(leaf for o in tail for leaf in _leaves(o))
            # By the end of an iteration the product of the next one is there.
            place = 2 * (len(found) if op is first else number) + 1
            yield _Part(op, leaves, 2 * number + 1, place, is_tail=True)


def split_composite(composite: isa.CompositeOp) -> tuple[list[Operation], list[Operation]]:
    """What a composite holds up to its last product, and what follows from that."""
    ops = list(composite.body.block.ops)
    products = [
        index
        for index, op in enumerate(ops)
        if any(isinstance(inner, isa.MatrixOp) for inner in op.walk())
    ]
    end = products[-1] + 1 if products else len(ops)
    return ops[:end], ops[end:]


def _leaves(op: Operation) -> Iterator[Operation]:
    """The instructions of a statement."""
    for inner in op.walk():
        if not isinstance(inner, (*REGIONS, *FREE)):
            yield inner


def _contended(x: _Part, y: _Part) -> set[SSAValue]:
    """Tiles that two parts use and one of them changes."""
    reads, writes = _uses(x)
    other_reads, other_writes = _uses(y)
    return (writes & (other_reads | other_writes)) | (reads & other_writes)


def _uses(part: _Part) -> tuple[set[SSAValue], set[SSAValue]]:
    return (
        {tile for op in part.leaves for tile in tiles_read(op)},
        {tile for op in part.leaves for tile in tiles_written(op)},
    )


def join_behind(loop: LoopOp, first: isa.CompositeOp) -> None:
    """Everything behind the first composite becomes one stateful composite."""
    behind: list[Operation] = []
    op = first.next_op
    while op is not None:
        behind.append(op)
        op = op.next_op
    for op in behind:
        op.detach()
    block = Block(behind)
    while inner := [op for op in block.ops if isinstance(op, isa.CompositeOp | isa.ScopeOp)]:
        for op in inner:
            _inline(op)
    command = with_location(isa.CompositeOp(Region(block), stateful=True), first)
    loop.body.block.add_op(command)


def _inline(region: isa.CompositeOp | isa.ScopeOp) -> None:
    """Puts what a composite or scope holds in its place."""
    block = region.parent
    assert block is not None
    for op in list(region.body.block.ops):
        op.detach()
        block.insert_op_before(op, region)
    region.detach()
    region.erase()
