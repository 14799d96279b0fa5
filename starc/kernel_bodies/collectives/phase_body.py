"""The body of one template of a phase: what all parts of it emit with.

Every arrival has a counter for each workgroup: workgroup w of one device speaks to workgroup w of
the others.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from xdsl.ir import SSAValue

from starc.core.collectives.event_numbers import EventNumbers
from starc.core.collectives.spmd import Block, Event
from starc.core.quasi_affine.expressions import Const, Expression, minimum
from starc.core.tiling import ceil_div
from starc.kernel_bodies.body import Buffer
from starc.kernel_bodies.collectives.plan import Plan
from starc.kernel_bodies.context import WORKGROUP, LaunchContext
from starc.kernel_bodies.peers import Group


class PhaseBody:
    """A template of ``grid`` workgroups of the phase ``index`` of a plan. ``buffers`` lie behind
    operands and results, ``slots`` are the staging buffers of the phase; ``chunk`` is the part of
    the data that is worked on."""

    def __init__(
        self,
        context: LaunchContext,
        plan: Plan,
        index: int,
        buffers: Mapping[SSAValue, Buffer],
        slots: Sequence[Buffer],
        grid: int,
    ) -> None:
        self.context = context
        self.plan = plan
        self.index = index
        self.buffers = buffers
        self.slots = slots
        self.phase = plan.phases[index]
        self.schedule = self.phase.schedule
        self.program = self.schedule.program
        self.body = context.body(self.phase.op)
        self.group = Group.of(self.body, context.mesh, self.phase.op.axes.data)
        self.numbers = EventNumbers(self.program.ranks, self.group.rank)
        self.workgroups = max(plan.phase_grids(index))
        self.arrived = self.counter("arrived", max(1, self.program.arrivals))
        transport = self.schedule.exchange.transport
        self.start_ps = transport.start_ps if transport is not None else 0
        self.step_ps = transport.step_ps if transport is not None else 0
        self.wire = self.schedule.exchange.wire
        # What a later phase reads was put by peers in part: all of it is kept out of the caches.
        self.is_handed_on = index < len(plan.phases) - 1
        self.is_handed_over = index > 0
        self.chunk: Expression = Const(0)
        self.grid = grid
        self.shares: list[tuple[Expression, Expression]] = []

    def share_out(self) -> None:
        """Names the first piece and the end of what the workgroup has of every value's chunks."""
        for share in self.schedule.shares:
            each = ceil_div(share, self.grid)
            first = self.body.index("first", WORKGROUP * each)
            last = first + each
            if each * self.grid != share:
                last = minimum(last, share)
            self.shares.append((first, self.body.index("last", last)))

    # Counters

    def counter(self, name: str, elements: int) -> str:
        """A counter of the phase, with so many elements for each workgroup."""
        several = f"{self.index}." if len(self.plan.phases) > 1 else ""
        return self.context.counter(f"{several}{name}", elements * self.workgroups)

    def element(self, number: Expression) -> Expression:
        """The element of a counter that is the workgroup's own."""
        return number * self.workgroups + WORKGROUP

    def wait(self, arrival: Expression) -> None:
        """Waits for an arrival of the chunk."""
        self.body.wait(self.arrived, self.element(arrival), self.chunk + 1)

    # Numbers

    @contextmanager
    def each(self, most: int, count: Expression | int | None = None) -> Generator[Expression]:
        """The numbers 0 .. count - 1, in a loop where there may be more or less than one."""
        if most == 1 and count in (None, 1):
            yield Const(0)
            return
        with self.body.loop("e", 0, most if count is None else count) as number:
            yield number

    @contextmanager
    def busy(self, block: Block, number: Expression) -> Generator[None]:
        """Only on devices that have an event of that number."""
        if not block.idles:
            yield
            return
        with self.body.when(self.numbers.is_busy(block, number)):
            yield

    def is_unrolled(self, block: Block, count: int) -> bool:
        """Whether so many parts or copies of a block stand without a loop."""
        return block.is_uniform and count <= self.schedule.unrolled

    def targets(self, block: Block, number: Expression) -> Generator[tuple[Expression, Expression]]:
        """Device and arrival of every target of an event, in a loop where there are many."""

        def ranks(event: Event) -> list[int]:
            return [rank for rank, _ in event.targets]

        def arrivals(event: Event) -> list[int]:
            return [arrival for _, arrival in event.targets]

        def target(k: Expression | int) -> tuple[Expression, Expression]:
            rank = self.numbers.listed(block, number, k, block.copies, ranks)
            arrival = self.numbers.listed(block, number, k, block.copies, arrivals)
            return self.group.member(rank), arrival

        if self.is_unrolled(block, block.copies):
            for k in range(block.copies):
                yield target(k)
            return
        count = self.numbers.of(block, number, lambda e: len(e.targets))
        with self.body.loop("k", 0, count) as k:
            yield target(k)

    def staging_of(self, index: int) -> Sequence[Buffer]:
        """The staging buffers of the components of a value."""
        values = self.phase.values
        before = sum(len(value.inputs) for value in values[:index])
        return self.slots[before : before + len(values[index].inputs)]
