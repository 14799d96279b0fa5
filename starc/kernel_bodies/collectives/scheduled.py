"""Collectives as the blocks of their schedule: a template, or a few side by side, for all devices.

A block sends everything of its step before it signals, piece by piece to all targets in turn, so
that all links of a step are in use at once. Every arrival has a counter for each workgroup:
workgroup w of one device speaks to workgroup w of the others. Received parts lie in staging slots
of their own and are combined in the order of the schedule, in f32, and rounded where they are put
or stored. Results are put straight into their place.

Where phases follow each other in one launch, each has templates of its own. A phase takes a part
of the data when all workgroups of the one before have handed it over; what lies between them is
written past the caches, for a part of it comes from peers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from xdsl.ir import SSAValue

from starc.core.collectives.spmd import Block, BlockKind
from starc.core.quasi_affine.expressions import Const, Expression
from starc.kernel_bodies.body import Body, Buffer, Template
from starc.kernel_bodies.collectives.handshakes import (
    announce,
    await_credit,
    give_credit,
    release,
)
from starc.kernel_bodies.collectives.phase_body import PhaseBody
from starc.kernel_bodies.collectives.pieces import Piece
from starc.kernel_bodies.collectives.plan import Plan
from starc.kernel_bodies.collectives.values import Value
from starc.kernel_bodies.context import LaunchContext

MOST_STAGES: Final = 8
"""Pieces of one workgroup that are on their way at a time, at most."""
MOST_ENGINE_STAGES: Final = 32
"""The same of the stream of a copy engine, which buffers what it moves itself."""


def lower_planned(context: LaunchContext, plan: Plan) -> list[list[Template]]:
    """The templates of a collective launch, all in one group."""
    buffers = _buffers(context, plan)
    templates: list[Template] = []
    staging = list(context.launch.staging_names)
    for index, phase in enumerate(plan.phases):
        count = len(phase.staging_shapes(plan.chunks))
        slots = [context.buffers[name] for name in staging[:count]]
        del staging[:count]
        parts = phase.schedule.parts
        for part, (blocks, grid) in enumerate(zip(parts, plan.phase_grids(index), strict=True)):
            suffix = f".{len(templates)}" if len(plan.grids) > 1 else ""
            scope = PhaseBody(context, plan, index, buffers, slots, grid)
            body = _template(scope, blocks, is_last=part == len(parts) - 1)
            templates.append(context.template(body, 0, grid, suffix=suffix, waits=True))
    return [templates]


def _buffers(context: LaunchContext, plan: Plan) -> dict[SSAValue, Buffer]:
    """The buffer behind every operand and result of every phase."""
    found: dict[SSAValue, Buffer] = {
        argument: context.buffer(argument) for argument in context.launch.block.args
    }
    found.update(zip(plan.intermediates, context.workspace, strict=True))
    found.update(context.outputs)
    return found


def _template(scope: PhaseBody, blocks: Sequence[Block], *, is_last: bool) -> Body:
    """The body of a template of some blocks; the last one of a phase waits for what others put."""
    scope.body.delay(scope.start_ps)
    scope.share_out()
    chunks = scope.plan.chunks
    if chunks > 1:
        with scope.body.loop("q", 0, chunks) as q:
            scope.chunk = q
            _chunk(scope, blocks, is_last)
    else:
        _chunk(scope, blocks, is_last)
    if scope.program.pulled:
        release(scope, blocks)
    return scope.body


def _chunk(scope: PhaseBody, blocks: Sequence[Block], is_last: bool) -> None:
    """One part of the data, from the phase before to the one behind."""
    body, context, index, chunks = scope.body, scope.context, scope.index, scope.plan.chunks
    if scope.is_handed_over:
        # One counter a chunk: some workgroups are chunks ahead of others.
        before = context.counter(f"{index - 1}.done", chunks)
        body.wait(before, scope.chunk, sum(scope.plan.phase_grids(index - 1)))
    if scope.program.pulled:
        announce(scope, blocks)
    if any(block.kind is BlockKind.SEND for block in blocks):
        await_credit(scope)
    for block in blocks:
        _block(scope, block)
    if any(block.parts for block in blocks):
        give_credit(scope, blocks)
    if is_last:
        _last_waits(scope)
    if scope.is_handed_on:
        body.signal(context.counter(f"{index}.done", chunks), scope.chunk, 1)


def _last_waits(scope: PhaseBody) -> None:
    """What others put into the results has arrived."""
    last = scope.program.last
    counts = [len(arrivals) for arrivals in last]
    most = max(counts)
    if not most:
        return
    arrivals = {
        (rank, number): arrival
        for rank, row in enumerate(last)
        for number, arrival in enumerate(row)
    }
    count: Expression | int = most
    if min(counts) != most:
        count = scope.numbers.by_rank(counts)
    with scope.each(most, count) as number:
        scope.wait(scope.numbers.entry(arrivals, most, number))


# Blocks


def _block(scope: PhaseBody, block: Block) -> None:
    if block.steps > 1:
        with scope.body.loop("t", 0, block.steps) as t:
            _step(scope, block, t * block.width)
    else:
        _step(scope, block, Const(0))


def _step(scope: PhaseBody, block: Block, first: Expression) -> None:
    """What a device does before it signals: all events of a step."""
    if block.idles and block.width == 1:
        with scope.busy(block, first):
            _events(scope, block, first, is_busy=True)
    else:
        _events(scope, block, first, is_busy=not block.idles)


def _events(scope: PhaseBody, block: Block, first: Expression, *, is_busy: bool) -> None:
    """The events of a step from number ``first`` on. Unless the device ``is_busy`` in all of them
    it looks which it has."""

    @contextmanager
    def each_event() -> Generator[Expression]:
        with scope.each(block.width) as e:
            number = scope.body.index("event", first + e)
            if is_busy:
                yield number
            else:
                with scope.busy(block, number):
                    yield number

    if block.parts or block.kind is BlockKind.FORWARD:
        with each_event() as number:
            _await(scope, block, number)
    for index, value in enumerate(scope.phase.values):
        _pieces(scope, block, first, value, index, is_busy=is_busy)
    if block.copies:
        scope.body.delay(scope.step_ps)
        with each_event() as number:
            for peer, arrival in scope.targets(block, number):
                element, attached = scope.element(arrival), scope.wire > 1
                scope.body.signal(scope.arrived, element, 1, peer, attached=attached)


def _await(scope: PhaseBody, block: Block, number: Expression) -> None:
    """Waits for all that an event takes."""
    most = max(block.parts, 1 if block.kind is BlockKind.FORWARD else 0)
    if scope.is_unrolled(block, most):
        for k in range(most):
            scope.wait(scope.numbers.listed(block, number, k, most, lambda e: e.awaited))
        return
    count = scope.numbers.of(block, number, lambda e: len(e.awaited))
    with scope.body.loop("k", 0, count) as k:
        scope.wait(scope.numbers.listed(block, number, k, most, lambda e: e.awaited))


# Pieces


def _pieces(
    scope: PhaseBody, block: Block, first: Expression, value: Value, index: int, *, is_busy: bool
) -> None:
    """The own share of the pieces of a value, for all events of a step in turn."""
    body, width = scope.body, block.width
    lower, upper = scope.shares[index]
    if scope.context.engines:
        # A descriptor for every device that the pieces go to.
        body.delay(scope.context.target.copy_engine_start_ps * max(1, block.copies))
    stages = _stages(scope, block, value)
    with body.loop("i", lower * width, upper * width, stages=stages) as j:
        i = body.index("piece", j // width) if width > 1 else j
        event = body.index("event", first + j % width if width > 1 else first)
        piece = Piece(scope, block, value, index, event, i)
        if is_busy:
            piece.emit()
        else:
            with scope.busy(block, event):
                piece.emit()


def _stages(scope: PhaseBody, block: Block, value: Value) -> int:
    """Pieces that are on their way at a time: small ones fill the window of a compute unit."""
    target = scope.context.target
    window, most = target.window_bytes_per_cu, MOST_STAGES
    if scope.context.engines:
        window, most = target.copy_engine_window_bytes, MOST_ENGINE_STAGES
    return max(2, min(most, window // (value.cutting.piece_bytes * max(1, block.parts))))
