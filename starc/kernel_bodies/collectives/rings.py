"""Collectives as rings of puts and signals.

The devices of a group form a ring in the order of their ranks. A reduce-scatter sends, in step t,
the chunk that device ``rank - t - 1`` will own to the next device, which adds its own part and
passes it on: chunk c is summed in the order c + 1, c + 2, ..., c, so that its bits do not depend on
timing. An all-gather then sends finished chunks round, as they are: all ranks hold the same bits.

Every receiving step has a slot of its own in the staging buffer, so a slot is written once and
needs no credit; results are put straight into their place in the next device's output. The
workgroups of a device divide the pieces of every chunk among them, and workgroup w of one device
speaks to workgroup w of the next alone: one counter each, one signal a step.

With several rings, workgroup w uses ring ``w mod rings``, whose successor is ``stride`` ranks on
or, from the size of the group on, that of a Hamiltonian cycle (``starc.core.collectives.rings``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import DenseArrayBase, IntegerType
from xdsl.ir import SSAValue

from starc.core.collectives.rings import is_ring, ring_behind
from starc.core.collectives.schedules import ring_next
from starc.core.kernel_schedules.exchange_schedules import wire_copies
from starc.core.quasi_affine.expressions import Const, Expression, Table, minimum
from starc.core.tiling import ceil_div
from starc.dialects import collective
from starc.kernel_bodies.body import Body, Buffer, Template
from starc.kernel_bodies.collectives.row_pieces import (
    Place,
    RowPieces,
    row_pieces,
    scattered,
    single_operand,
)
from starc.kernel_bodies.context import (
    DEVICE,
    WORKGROUP,
    LaunchContext,
)
from starc.kernel_bodies.peers import Group


@dataclass(frozen=True)
class _Ring:
    """The ring seen from a device: its size, rank and successor, and what a step costs."""

    size: int
    rank: Expression
    next: Expression
    stride: Expression | int  # of this workgroup's ring
    strides: tuple[int, ...]
    start_ps: int
    step_ps: int
    wire: int  # puts of a piece: flags beside the data are as much again

    def behind(self, hops: Expression) -> Expression:
        """The rank that is ``hops`` steps back along the ring."""
        n = self.size
        ring = WORKGROUP % len(self.strides)
        if max(self.strides) >= n:
            places = tuple(
                ring_behind(rank, h, n, s)
                for s in self.strides
                for rank in range(n)
                for h in range(2 * n)
            )
            return Table(places, (ring * n + self.rank) * (2 * n) + hops)
        if len(self.strides) == 1:
            return (self.rank - hops * self.strides[0]) % n
        table = tuple(h * s % n for s in self.strides for h in range(2 * n))
        return (self.rank - Table(table, ring * (2 * n) + hops)) % n


def _ring(context: LaunchContext, body: Body, op: collective.CollectiveOp) -> _Ring:
    mesh = context.mesh
    groups = mesh.groups(op.axes.data)
    size = len(groups[0])
    strides: tuple[int, ...] = (1,)
    if op.rings is not None:
        strides = tuple(cast("DenseArrayBase[IntegerType]", op.rings).get_values()) or (1,)
    if not all(is_ring(stride, size) for stride in strides):
        raise ValueError(f"strides {list(strides)} do not all visit {size} ranks")
    ranks = {device: rank for group in groups for rank, device in enumerate(group)}
    rank = Group.of(body, mesh, op.axes.data).rank
    successors = [
        [
            group[ring_next(ranks[device], size, stride)]
            for device in range(mesh.size)
            for group in groups
            if device in group
        ]
        for stride in strides
    ]
    if len(strides) == 1:
        following = _successor(successors[0], size, rank)
    else:
        flat = tuple(device for row in successors for device in row)
        following = Table(flat, WORKGROUP % len(strides) * mesh.size + DEVICE)
    name = op.transport.data if op.transport is not None else ""
    transport = context.target.transports.get(name)
    return _Ring(
        size,
        rank,
        body.index("next", following),
        strides[0],
        strides,
        transport.start_ps if transport else 0,
        transport.step_ps if transport else 0,
        wire_copies(transport),
    )


def _successor(successors: list[int], size: int, rank: Expression) -> Expression:
    """The next device of the ring, by device."""
    devices = range(len(successors))
    if all(successors[d] == (d + 1) % len(successors) for d in devices):
        return (DEVICE + 1) % len(successors)
    for width in range(1, len(successors) + 1):
        if all(
            successors[d] - d == ((d // width + 1) % size - d // width % size) * width
            for d in devices
        ):
            return DEVICE + ((rank + 1) % size - rank) * width
    return Table(tuple(successors), DEVICE)


@dataclass(frozen=True)
class _Flow:
    """What the phases of a ring share."""

    body: Body
    ring: _Ring
    counter: str
    first: Expression  # first piece of this workgroup within a chunk
    last: Expression
    extents: list[int]
    rows: int
    columns: int

    def tile(self, name: str, like: Buffer) -> SSAValue:
        return self.body.tile(name, self.rows, self.columns, like.element_type, register=True)

    def put(
        self, tile: SSAValue, buffer: Buffer, starts: Sequence[Expression | int], *box: int
    ) -> None:
        """Puts a piece to the next device."""
        for _ in range(self.ring.wire):
            self.body.put(tile, buffer, starts, self.ring.next, box or None)

    def signal(self) -> None:
        """Hands a step over to the next device. What the transport's fence and flag cost passes
        while the puts are on their way; flags beside the data need neither."""
        self.body.delay(self.ring.step_ps)
        self.body.signal(self.counter, WORKGROUP, 1, self.ring.next, attached=self.ring.wire > 1)

    def arrive(self, signals: Expression | int) -> None:
        """Waits for that many signals of the previous device."""
        self.body.wait(self.counter, WORKGROUP, signals)


def _flow(
    context: LaunchContext, body: Body, op: collective.CollectiveOp, pieces: RowPieces, chunk: int
) -> _Flow:
    """The share of a workgroup of ``chunk`` pieces of every chunk, and the ring it works on."""
    ring = _ring(context, body, op)
    grid = _workgroups(context, ring.strides)
    share = ceil_div(chunk, grid)
    first = body.index("first", WORKGROUP * share)
    last = minimum(first + share, chunk) if chunk % share else first + share
    if grid * share > chunk and chunk % share == 0:
        last = minimum(first + share, chunk)
    return _Flow(
        body,
        ring,
        context.counter("arrived", grid),
        first,
        body.index("last", last),
        pieces.extents,
        pieces.tiling.rows,
        pieces.columns,
    )


def _workgroups(context: LaunchContext, strides: tuple[int, ...]) -> int:
    return max(sum(context.grid), len(strides))


def _staged(flow: _Flow, slot: Expression | int, piece: Expression) -> list[Expression | int]:
    return [slot, piece, 0, 0]


def _reduce_phase(
    flow: _Flow,
    source: Buffer,
    staging: Buffer,
    place: Place,
    finish: Callable[[SSAValue, Expression], None],
    result: Buffer,
) -> None:
    """Reduce-scatter: after it each device has summed the chunk of its own rank, piece by piece
    handed to ``finish``. Takes ``size - 1`` signals."""
    body, ring = flow.body, flow.ring
    body.delay(ring.start_ps)
    chunk = body.index("chunk", ring.behind(Const(1)))
    with body.loop("i", flow.first, flow.last, stages=2) as i:
        own = flow.tile("own", source)
        body.load(own, source, place(chunk, i), flow.extents)
        flow.put(own, staging, _staged(flow, 0, i))
    flow.signal()

    def combine(step: Expression | int, chunk: Expression, like: Buffer, i: Expression) -> SSAValue:
        own, received, total = (
            flow.tile("own", source),
            flow.tile("in", staging),
            flow.tile("sum", like),
        )
        body.load(own, source, place(chunk, i), flow.extents)
        body.load(received, staging, _staged(flow, step - 1, i), acquire=True)
        body.vector("add", total, received, own)
        return total

    if ring.size > 2:
        with body.loop("t", 1, ring.size - 1) as t:
            flow.arrive(t)
            chunk = body.index("chunk", ring.behind(t + 1))
            with body.loop("i", flow.first, flow.last, stages=2) as i:
                total = combine(t, chunk, staging, i)
                flow.put(total, staging, _staged(flow, t, i))
            flow.signal()
    flow.arrive(ring.size - 1)
    with body.loop("i", flow.first, flow.last, stages=2) as i:
        finish(combine(ring.size - 1, ring.rank, result, i), i)


def _gather_phase(flow: _Flow, output: Buffer, place: Place, signals: int) -> None:
    """All-gather of chunks that each device has put to its own output and the next one's;
    ``signals`` is the count at which the first of them has arrived."""
    body, ring = flow.body, flow.ring
    if ring.size > 2:
        with body.loop("t", 1, ring.size - 1) as t:
            flow.arrive(t + (signals - 1))
            chunk = body.index("chunk", ring.behind(t))
            with body.loop("i", flow.first, flow.last, stages=2) as i:
                passed = flow.tile("passed", output)
                body.load(passed, output, place(chunk, i), flow.extents, acquire=True)
                flow.put(passed, output, place(chunk, i), *flow.extents)
            flow.signal()
    flow.arrive(signals + ring.size - 2)


def ring_all_reduce(context: LaunchContext, op: collective.AllReduceOp, output: Buffer) -> Template:
    body = context.body(op)
    source = context.buffer(single_operand(op))
    size = context.mesh.refs_size(op.axes.data)
    pieces = row_pieces(source.shape, context.tile)
    chunk_pieces = ceil_div(pieces.count, size)
    flow = _flow(context, body, op, pieces, chunk_pieces)
    staging = context.buffers[context.launch.staging_names[0]]

    def place(chunk: Expression, piece: Expression) -> list[Expression | int]:
        return [*pieces.starts(chunk * chunk_pieces + piece)]

    def finish(total: SSAValue, i: Expression) -> None:
        starts = place(flow.ring.rank, i)
        body.store(total, output, starts, flow.extents)
        flow.put(total, output, starts, *flow.extents)

    _reduce_phase(flow, source, staging, place, finish, output)
    flow.signal()
    _gather_phase(flow, output, place, size)
    grid = _workgroups(context, flow.ring.strides)
    return context.template(body, 0, grid, waits=True)


def ring_reduce_scatter(
    context: LaunchContext, op: collective.ReduceScatterOp, output: Buffer
) -> Template:
    body = context.body(op)
    source = context.buffer(single_operand(op))
    dim = op.number("dim")
    pieces = row_pieces(output.shape, context.tile)
    flow = _flow(context, body, op, pieces, pieces.count)
    staging = context.buffers[context.launch.staging_names[0]]

    def finish(total: SSAValue, i: Expression) -> None:
        body.store(total, output, [*pieces.starts(i)], flow.extents)

    place = scattered(pieces, dim, output.shape[dim])
    _reduce_phase(flow, source, staging, place, finish, output)
    grid = _workgroups(context, flow.ring.strides)
    return context.template(body, 0, grid, waits=True)


def ring_all_gather(context: LaunchContext, op: collective.AllGatherOp, output: Buffer) -> Template:
    body = context.body(op)
    source = context.buffer(single_operand(op))
    dim = op.number("dim")
    pieces = row_pieces(source.shape, context.tile, exact=True)
    flow = _flow(context, body, op, pieces, pieces.count)
    ring = flow.ring
    place = scattered(pieces, dim, source.shape[dim])
    body.delay(ring.start_ps)
    with body.loop("i", flow.first, flow.last, stages=2) as i:
        own = flow.tile("own", source)
        body.load(own, source, [*pieces.starts(i)], flow.extents)
        starts = place(ring.rank, i)
        body.store(own, output, starts, flow.extents)
        flow.put(own, output, starts, *flow.extents)
    flow.signal()
    _gather_phase(flow, output, place, 1)
    grid = _workgroups(context, ring.strides)
    return context.template(body, 0, grid, waits=True)
