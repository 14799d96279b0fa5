"""Writes the stream of an engine as operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Block, Operation, Region, SSAValue

from starc.core.streams.engine_body import (
    Acquire,
    Do,
    Inside,
    Item,
    Release,
    Sleep,
)
from starc.dialects import isa
from starc.dialects.isa import AllocOp, IndexOp


class StreamWriter:
    """Writes the items of a stream into a block. ``values``: the index values of the body as they
    are named here."""

    def __init__(
        self,
        allocs: Sequence[AllocOp],
        semaphores: Sequence[SSAValue],
        block: Block,
        values: Mapping[SSAValue, SSAValue],
    ) -> None:
        self.allocs = allocs
        self.semaphores = semaphores
        self.block = block
        self.values = dict(values)

    def write(self, items: Sequence[Item]) -> None:
        for item in items:
            match item:
                case Acquire():
                    op = isa.AcquireOp(self.semaphores[item.semaphore])
                case Release():
                    tile = None if item.tile is None else self.allocs[item.tile].tile
                    op = isa.ReleaseOp(self.semaphores[item.semaphore], tile)
                case Sleep():
                    op = isa.DelayOp(item.picoseconds)
                case Do():
                    op = self._moved(item.instruction.payload)
                case Inside():
                    op = self._region(item)
            op.attributes.pop("stage", None)
            if item.stage:
                op.attributes["stage"] = IntegerAttr(item.stage, i64)
            self.block.add_op(op)

    def _moved(self, op: object) -> Operation:
        """An instruction, which is in one stream only, taken out of the body."""
        assert isinstance(op, Operation)
        op.detach()
        op.operands = [self._value(operand) for operand in op.operands]
        return op

    def _region(self, item: Inside) -> Operation:
        old = item.node.payload
        assert isinstance(old, isa.LoopOp | isa.IfOp)
        indices = [self._value(value) for value in old.indices]
        if isinstance(old, isa.IfOp):
            block = Block()
            new: isa.LoopOp | isa.IfOp = isa.IfOp(old.condition, indices, Region(block))
            inner = StreamWriter(self.allocs, self.semaphores, block, self.values)
        else:
            block = Block(arg_types=[old.counter.type])
            block.args[0].name_hint = old.counter.name_hint
            new = isa.LoopOp(old.lower, old.upper, indices, Region(block))
            values = {**self.values, old.counter: block.args[0]}
            inner = StreamWriter(self.allocs, self.semaphores, block, values)
        new.location = old.location
        inner.write(item.items)
        return new

    def _value(self, value: SSAValue) -> SSAValue:
        """A tile or an index value as it is named here; names of expressions are given anew in
        every block that uses them."""
        if isinstance(value.type, isa.TileType):
            return value
        known = self.values.get(value)
        if known is None:
            old = value.owner
            assert isinstance(old, IndexOp)
            new = IndexOp(old.value, [self._value(operand) for operand in old.indices])
            new.location = old.location
            new.result.name_hint = value.name_hint
            self.block.add_op(new)
            known = self.values[value] = new.result
        return known
