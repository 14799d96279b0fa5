"""A piece of an exchanged value in an event of a schedule: read, combined, written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute, BlockArgument, SSAValue

from starc.core.collectives.spmd import Block, BlockKind
from starc.core.quasi_affine.expressions import Const, Expression
from starc.kernel_bodies.body import Body, Buffer
from starc.kernel_bodies.collectives.phase_body import PhaseBody
from starc.kernel_bodies.collectives.places import Place
from starc.kernel_bodies.collectives.values import Value
from starc.kernel_bodies.context import DEVICE

FUNCTIONS: Final = {"sum": "add", "max": "maximum"}
IDENTITIES: Final = {"sum": "zero", "max": "fill_neg_inf"}
STATE_IDENTITIES: Final = ("fill_neg_inf", "zero", "zero")
"""Of the components of a partial softmax."""


class Piece:
    """Piece ``i`` of the chunk that an event of a block works on, of the ``index``-th value."""

    def __init__(
        self,
        scope: PhaseBody,
        block: Block,
        value: Value,
        index: int,
        event: Expression,
        i: Expression,
    ) -> None:
        self.scope = scope
        self.body: Body = scope.body
        self.block = block
        self.value = value
        self.event = event
        self.staging = scope.staging_of(index)
        schedule, program = scope.schedule, scope.program
        subs, share = program.subs, schedule.shares[index]
        self.owner: Expression = Const(0)
        sub: Expression = Const(0)
        if program.owned:
            self.owner = scope.numbers.of(block, event, lambda e: e.chunk // subs)
            sub = scope.numbers.of(block, event, lambda e: e.chunk % subs)
        q = scope.chunk
        first = q * subs + sub
        if program.owned and not schedule.exchange.by_shard:
            first = (q * program.ranks + self.owner) * subs + sub
        self.number = self.body.index("number", first * share + i)
        divisions = scope.plan.chunks * schedule.exchange.divisions
        self.is_ragged = divisions * share != value.pieces
        turn = q % schedule.depth if schedule.is_credited else q
        self.slot_piece = turn * share + i

    def _conditions(self) -> list[Expression]:
        """What must not be negative for there to be such a piece."""
        found: list[Expression] = []
        if self.is_ragged:
            found.append(Const(self.value.pieces - 1) - self.number)
        places = self.value.places[0]
        for _, conditions in (
            places.in_operand(self.owner, self.number),
            places.in_result(self._result_owner, self.number),
        ):
            found += [condition for condition in conditions if condition not in found]
        return found

    @property
    def _result_owner(self) -> Expression:
        """Whose part of the result a piece is: of what moves, the sender's."""
        return self.scope.group.rank if self.block.kind is BlockKind.MOVE else self.owner

    def emit(self) -> None:
        """What the kind of the block says, where there is such a piece."""
        with self.body.when_all(self._conditions()):
            self._emit()

    def _emit(self) -> None:
        match self.block.kind:
            case BlockKind.SEND:
                self._send(self._combined())
            case BlockKind.FINISH:
                total = self._combined()
                self._write(total, None)
                self._write_to_targets(total)
            case BlockKind.FORWARD:
                passed = [
                    self._load("passed", n, self._output(n), self._in_result(n), acquire=True)
                    for n in range(len(self.value.outputs))
                ]
                self._write_to_targets(passed)
            case BlockKind.MOVE:
                self._write_to_targets(self._own())

    # Writes

    def _send(self, total: Sequence[SSAValue]) -> None:
        """Puts a piece into the staging slots of the targets."""
        for peer, slot in self.scope.targets(self.block, self.event):
            for tile, buffer, box in zip(total, self.staging, self.value.boxes, strict=True):
                starts: Place = [slot, self.slot_piece, 0, 0]
                for _ in range(self.scope.wire):
                    self.body.put(tile, buffer, starts, peer, [1, 1, box.rows, box.columns])

    def _write_to_targets(self, tiles: Sequence[SSAValue]) -> None:
        for peer, _ in self.scope.targets(self.block, self.event):
            self._write(tiles, peer)

    def _write(self, tiles: Sequence[SSAValue], peer: Expression | None) -> None:
        """Puts a finished piece into the result of a device, or stores it in the own one."""
        for component, tile in enumerate(tiles):
            buffer, starts = self._output(component), self._in_result(component)
            extents = self.value.boxes[component].extents
            if peer is None and not self.scope.is_handed_on:
                self.body.store(tile, buffer, starts, extents)
            else:
                for _ in range(1 if peer is None else self.scope.wire):
                    self.body.put(tile, buffer, starts, DEVICE if peer is None else peer, extents)

    # Reads

    def _output(self, component: int) -> Buffer:
        return self.scope.buffers[self.value.outputs[component]]

    def _in_result(self, component: int) -> Place:
        return self.value.places[component].in_result(self._result_owner, self.number)[0]

    def _shape(self, component: int) -> tuple[int, int]:
        """Rows and columns of a component's tiles: components that are combined have a row for
        each element of the first."""
        box = self.value.boxes[component]
        if len(self.value.boxes) == 1:
            return box.rows, box.columns
        first = self.value.boxes[0]
        rows = first.rows * first.columns
        return rows, box.rows * box.columns // rows

    def _tile(self, name: str, component: int, element_type: Attribute) -> SSAValue:
        rows, columns = self._shape(component)
        return self.body.tile(name, rows, columns, element_type, register=True)

    def _load(
        self,
        name: str,
        component: int,
        buffer: Buffer,
        starts: Place,
        *,
        acquire: bool,
        extents: Sequence[int] | None = None,
    ) -> SSAValue:
        tile = self._tile(name, component, buffer.element_type)
        box = extents or self.value.boxes[component].extents
        self.body.load(tile, buffer, starts, box, acquire=acquire)
        return tile

    def _own(self) -> list[SSAValue]:
        """The device's own contribution."""
        result: list[SSAValue] = []
        for component, operand in enumerate(self.value.inputs):
            starts, _ = self.value.places[component].in_operand(self.owner, self.number)
            is_argument = isinstance(operand, BlockArgument)
            buffer = self.scope.buffers[operand]
            result.append(self._load("own", component, buffer, starts, acquire=not is_argument))
        return result

    def _received(self, k: Expression | int) -> list[SSAValue]:
        """The k-th part that has arrived, or that another device holds."""
        block = self.block
        slot = self.scope.numbers.listed(block, self.event, k, block.parts, lambda e: e.parts)
        if self.scope.program.pulled:
            return self._pulled(slot)
        starts: Place = [slot, self.slot_piece, 0, 0]
        return [
            self._load("in", n, buffer, starts, acquire=True, extents=[1, 1, box.rows, box.columns])
            for n, (buffer, box) in enumerate(zip(self.staging, self.value.boxes, strict=True))
        ]

    def _pulled(self, source: Expression) -> list[SSAValue]:
        """The part of the piece that another device holds."""
        result: list[SSAValue] = []
        for component, operand in enumerate(self.value.inputs):
            starts, _ = self.value.places[component].in_operand(self.owner, self.number)
            buffer = self.scope.buffers[operand]
            tile = self._tile("in", component, buffer.element_type)
            extents = self.value.boxes[component].extents
            self.body.get(tile, buffer, starts, self.scope.group.member(source), extents)
            result.append(tile)
        return result

    # Combination

    def _combined(self) -> list[SSAValue]:
        """The own contribution and what has arrived, in the order of the schedule."""
        block = self.block
        if not block.parts:
            return self._own()
        if self.scope.is_unrolled(block, block.parts):
            parts = [self._own()] if block.own else []
            return self._total([*parts, *(self._received(k) for k in range(block.parts))])
        total = self._copied(self._own()) if block.own else self._identity()
        count = self.scope.numbers.of(block, self.event, lambda e: len(e.parts))
        with self.body.loop("k", 0, count, stages=2) as k:
            self._combine(total, self._received(k))
        return total

    def _total(self, parts: Sequence[list[SSAValue]]) -> list[SSAValue]:
        """All parts together; of one it is that itself."""
        if len(parts) == 1:
            return parts[0]
        if len(self.value.inputs) == 1:
            total = [self._tile("sum", 0, f32)]
            self.body.vector(self._function, total[0], parts[0][0], parts[1][0])
            rest = parts[2:]
        else:
            total = self._copied(parts[0])
            rest = parts[1:]
        for part in rest:
            self._combine(total, part)
        return total

    @property
    def _function(self) -> str:
        return FUNCTIONS[self.scope.phase.reduction or "sum"]

    def _sums(self) -> list[SSAValue]:
        return [self._tile("sum", n, f32) for n in range(len(self.value.inputs))]

    def _identity(self) -> list[SSAValue]:
        total = self._sums()
        names = (
            STATE_IDENTITIES
            if len(total) > 1
            else (IDENTITIES[self.scope.phase.reduction or "sum"],)
        )
        for tile, name in zip(total, names, strict=True):
            self.body.vector(name, tile)
        return total

    def _copied(self, part: Sequence[SSAValue]) -> list[SSAValue]:
        total = self._sums()
        for own, other in zip(total, part, strict=True):
            self.body.vector("copy", own, other)
        return total

    def _combine(self, total: Sequence[SSAValue], part: Sequence[SSAValue]) -> None:
        """Takes a part into the total; of partial states of a softmax each is rescaled to the
        larger maximum."""
        if len(total) == 1:
            self.body.vector(self._function, total[0], total[0], part[0])
            return
        scale, other = self._tile("scale", 0, f32), self._tile("other", 0, f32)
        m, sums, o = total
        self.body.vector("lse_weights", other, m, part[0], scale)
        self.body.vector("lse_blend", sums, scale, part[1], other)
        self.body.vector("lse_blend", o, scale, part[2], other)
