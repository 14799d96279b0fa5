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

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute, BlockArgument, SSAValue

from starc.core.collectives.spmd import Block, Event, closed_form
from starc.core.quasi_affine.expressions import Const, Expression, Table, minimum
from starc.core.tiling import ceil_div
from starc.dialects import collective
from starc.kernel_bodies.body import Body, Buffer, Template
from starc.kernel_bodies.collectives.places import Place
from starc.kernel_bodies.collectives.plan import Phase, Plan, Value, wire_copies
from starc.kernel_bodies.context import DEVICE, WORKGROUP, LaunchContext
from starc.kernel_bodies.shards import of_devices

FUNCTIONS = {"sum": "add", "max": "maximum"}
IDENTITIES = {"sum": "zero", "max": "fill_neg_inf"}


def lower_planned(context: LaunchContext, plan: Plan) -> list[list[Template]]:
    """The templates of a collective launch, all in one group."""
    buffers = _buffers(context, plan)
    templates: list[Template] = []
    staging = list(context.launch.staging_names)
    number = 0
    for index, phase in enumerate(plan.phases):
        count = len(phase.staging_shapes(plan.chunks))
        slots = [context.buffers[name] for name in staging[:count]]
        del staging[:count]
        grids = plan.grids[number : number + len(phase.parts)]
        total = len(plan.grids)
        for part, (blocks, grid) in enumerate(zip(phase.parts, grids, strict=True)):
            suffix = f".{number + part}" if total > 1 else ""
            emitter = _Emitter(context, plan, index, buffers, slots, grid)
            body = emitter.emit(blocks, is_last=part == len(phase.parts) - 1)
            templates.append(context.template(body, 0, grid, suffix=suffix, waits=True))
        number += len(phase.parts)
    return [templates]


def _buffers(context: LaunchContext, plan: Plan) -> dict[SSAValue, Buffer]:
    """The buffer behind every operand and result of every phase."""
    found: dict[SSAValue, Buffer] = {
        argument: context.buffer(argument) for argument in context.launch.block.args
    }
    found.update(zip(plan.intermediates, context.workspace, strict=True))
    found.update(context.outputs)
    return found


MOST_STAGES: Final = 8
"""Pieces of one workgroup that are on their way at a time, at most."""
MOST_ENGINE_STAGES: Final = 32
"""The same of the stream of a copy engine, which buffers what it moves itself."""


@dataclass
class _Emitter:
    """The body of one template: some blocks of one phase."""

    context: LaunchContext
    plan: Plan
    index: int
    buffers: Mapping[SSAValue, Buffer]
    slots: Sequence[Buffer]
    grid: int

    def __post_init__(self) -> None:
        self.phase: Phase = self.plan.phases[self.index]
        self.program = self.phase.program
        self.body: Body = self.context.body(self.phase.op)
        mesh = self.context.mesh
        groups = mesh.groups(self.phase.op.axes.data)
        ranks = {device: rank for group in groups for rank, device in enumerate(group)}
        self.rank = self.body.index("rank", of_devices([ranks[d] for d in range(mesh.size)]))
        self.groups = {device: group for group in groups for device in group}
        several = f"{self.index}." if len(self.plan.phases) > 1 else ""
        workgroups = max(self._phase_grids(self.index))
        self.arrived = self.context.counter(
            f"{several}arrived", max(1, self.program.arrivals) * workgroups
        )
        self.workgroups = workgroups
        name = self.phase.op.transport
        transport = self.context.target.transports.get(name.data if name is not None else "")
        self.start_ps = transport.start_ps if transport is not None else 0
        self.step_ps = transport.step_ps if transport is not None else 0
        self.wire = wire_copies(transport)
        self.engines = self.context.engines
        # What a later phase reads was put by peers in part: all of it is kept out of the caches.
        self.is_handed_on = self.index < len(self.plan.phases) - 1
        self.is_handed_over = self.index > 0
        self.chunk: Expression = Const(0)

    def _phase_grids(self, index: int) -> tuple[int, ...]:
        first = sum(len(phase.parts) for phase in self.plan.phases[:index])
        return self.plan.grids[first : first + len(self.plan.phases[index].parts)]

    def emit(self, blocks: Sequence[Block], *, is_last: bool) -> Body:
        self.body.delay(self.start_ps)
        self.shares: list[tuple[Expression, Expression]] = []
        for share in self.phase.shares:
            each = ceil_div(share, self.grid)
            first = self.body.index("first", WORKGROUP * each)
            last = first + each
            if each * self.grid != share:
                last = minimum(last, share)
            self.shares.append((first, self.body.index("last", last)))
        if self.plan.chunks > 1:
            with self.body.loop("q", 0, self.plan.chunks) as q:
                self.chunk = q
                self._chunk(blocks, is_last)
        else:
            self._chunk(blocks, is_last)
        if self.program.pulled:
            self._release(blocks)
        return self.body

    def _chunk(self, blocks: Sequence[Block], is_last: bool) -> None:
        """One part of the data, from the phase before to the one behind."""
        if self.is_handed_over:
            # One counter a chunk: some workgroups are chunks ahead of others.
            before = self.context.counter(f"{self.index - 1}.done", self.plan.chunks)
            total = sum(self._phase_grids(self.index - 1))
            self.body.wait(before, self.chunk, total)
        if self.program.pulled:
            self._announce(blocks)
        if any(block.kind == "send" for block in blocks):
            self._await_credit()
        for block in blocks:
            self._block(block)
        if any(block.parts for block in blocks):
            self._give_credit(blocks)
        if is_last:
            self._last_waits()
        if self.is_handed_on:
            done = self.context.counter(f"{self.index}.done", self.plan.chunks)
            self.body.signal(done, self.chunk, 1)

    # Operands that others read

    def _announce(self, blocks: Sequence[Block]) -> None:
        """Tells all who read the device's operand that they may."""
        readers = self._readers_of_operand(blocks)
        width = self.program.arrivals
        ranks = {key: reader for key, (reader, _) in readers.items()}
        arrivals = {key: arrival for key, (_, arrival) in readers.items()}
        self.body.delay(self.step_ps)
        with self._each(width) as number:
            element = self._number(arrivals, width, number) * self.workgroups + WORKGROUP
            peer = self._device(self._number(ranks, width, number))
            self.body.signal(self.arrived, element, 1, peer)

    def _release(self, blocks: Sequence[Block]) -> None:
        """Nobody ends before the others have read its operand."""
        width = self.program.arrivals
        readers = self._readers_of_operand(blocks)
        # What a device has read of whom, told under the number of the announcement there.
        sources = {(rank, arrival): source for (source, _), (rank, arrival) in readers.items()}
        numbers = {(rank, arrival): number for (_, number), (rank, arrival) in readers.items()}
        several = f"{self.index}." if len(self.plan.phases) > 1 else ""
        counter = self.context.counter(f"{several}read", width * self.workgroups)
        with self._each(width) as number:
            element = self._number(numbers, width, number) * self.workgroups + WORKGROUP
            peer = self._device(self._number(sources, width, number))
            self.body.signal(counter, element, 1, peer)
        with self._each(width) as number:
            self.body.wait(counter, number * self.workgroups + WORKGROUP, 1)

    def _readers_of_operand(
        self, blocks: Sequence[Block]
    ) -> dict[tuple[int, int], tuple[int, int]]:
        """By (rank, number) the rank of a device that reads its operand, and the arrival there."""
        found: dict[int, dict[tuple[int, int], None]] = {}
        for block in blocks:
            for reader, row in enumerate(block.events):
                for event in row:
                    if event is None:
                        continue
                    for source, arrival in zip(event.parts, event.awaited, strict=True):
                        found.setdefault(source, {})[reader, arrival] = None
        return {
            (rank, number): target
            for rank, targets in found.items()
            for number, target in enumerate(sorted(targets, key=lambda pair: pair[1]))
        }

    # Slots that are written again

    @property
    def _readers(self) -> list[tuple[Block, ...]]:
        """The templates of the phase that read staging slots."""
        return [part for part in self.phase.parts if any(block.parts for block in part)]

    def _credit(self) -> str:
        """The counter by which readers of slots tell those that they receive from, with an element
        for each reading template, receiver and workgroup."""
        receivers = self.program.receivers
        assert receivers is not None
        several = f"{self.index}." if len(self.plan.phases) > 1 else ""
        count = len(self._readers) * len(receivers[0]) * self.workgroups
        return self.context.counter(f"{several}read", count)

    def _await_credit(self) -> None:
        """Before slots are written again, all that read them have done so."""
        receivers = self.program.receivers
        if not self.phase.is_credited or receivers is None:
            return
        count = len(self._readers) * len(receivers[0])
        with self._each(count) as number:
            element = number * self.workgroups + WORKGROUP
            self.body.wait(self._credit(), element, self.chunk - (self.phase.depth - 1))

    def _give_credit(self, blocks: Sequence[Block]) -> None:
        """Tells all whose parts have been read that their slots are free."""
        senders, receivers = self.program.senders, self.program.receivers
        if not self.phase.is_credited or senders is None or receivers is None:
            return
        reader = next(n for n, part in enumerate(self._readers) if part == tuple(blocks))
        ranks = {
            (rank, number): sender
            for rank, row in enumerate(senders)
            for number, sender in enumerate(row)
        }
        places = {
            (rank, number): receivers[sender].index(rank)
            for (rank, number), sender in ranks.items()
        }
        width = len(senders[0])
        with self._each(width) as number:
            place = self._number(places, width, number) + reader * width
            element = place * self.workgroups + WORKGROUP
            peer = self._device(self._number(ranks, width, number))
            self.body.signal(self._credit(), element, 1, peer)

    def _last_waits(self) -> None:
        """What others put into the results has arrived."""
        last = self.program.last
        most = max(map(len, last))
        if not most:
            return
        counts = [len(arrivals) for arrivals in last]
        arrivals = {
            (rank, number): arrival
            for rank, row in enumerate(last)
            for number, arrival in enumerate(row)
        }
        count: Expression | int = most
        if min(counts) != most:
            count = Table(tuple(counts), self.rank)
        with self._each(most, count) as number:
            self._wait(self._number(arrivals, most, number))

    @contextmanager
    def _each(self, most: int, count: Expression | int | None = None) -> Generator[Expression]:
        """The numbers 0 .. count - 1, in a loop where there may be more or less than one."""
        if most == 1 and count in (None, 1):
            yield Const(0)
            return
        with self.body.loop("e", 0, most if count is None else count) as number:
            yield number

    # Numbers of events

    def _number(
        self, values: Mapping[tuple[int, int], int], width: int, number: Expression
    ) -> Expression:
        """A number by (rank, event): a formula where there is one, else a table."""
        columns: dict[int, set[int]] = {}
        for (_, m), value in values.items():
            columns.setdefault(m, set()).add(value)
        if all(len(found) == 1 for found in columns.values()):
            column = {m: next(iter(found)) for m, found in columns.items()}
            first = min(column)
            step = column[first + 1] - column[first] if first + 1 in column else 0
            base = column[first] - step * first
            if all(value == base + step * m for m, value in column.items()):
                return number * step + base
        form = closed_form(values, self.program.ranks)
        if form is not None:
            a, b, c = form
            return (self.rank * a + number * b + c) % self.program.ranks
        flat = [0] * (self.program.ranks * width)
        for (rank, m), value in values.items():
            flat[rank * width + m] = value
        return Table(tuple(flat), self.rank * width + number)

    def _of(
        self, block: Block, number: Expression, value: Callable[[Event], int | None]
    ) -> Expression:
        """A number of the events of a block."""
        values: dict[tuple[int, int], int] = {}
        for rank, row in enumerate(block.events):
            for m, event in enumerate(row):
                found = value(event) if event is not None else None
                if found is not None:
                    values[rank, m] = found
        return self._number(values, block.steps * block.width, number)

    def _listed(
        self,
        block: Block,
        number: Expression,
        k: Expression | int,
        most: int,
        of: Callable[[Event], Sequence[int]],
    ) -> Expression:
        """The ``k``-th of the numbers that an event lists."""
        if isinstance(k, int):
            return self._of(block, number, lambda e: of(e)[k] if k < len(of(e)) else None)
        values: dict[tuple[int, int], int] = {}
        for rank, row in enumerate(block.events):
            for m, event in enumerate(row):
                for position, value in enumerate(of(event) if event is not None else ()):
                    values[rank, m * most + position] = value
        width = block.steps * block.width * most
        return self._number(values, width, number * most + k)

    def _device(self, rank: Expression) -> Expression:
        """The device of the own group that has a rank."""
        groups = {group[0]: group for group in self.groups.values()}
        widths = {(group[1] - group[0]) if len(group) > 1 else 0 for group in groups.values()}
        size = self.program.ranks
        if len(widths) == 1:
            (width,) = widths
            if all(
                member == group[0] + index * width
                for group in groups.values()
                for index, member in enumerate(group)
            ):
                if width == 1 and len(groups) == 1:
                    return rank
                return DEVICE + (rank - self.rank) * width
        flat = tuple(
            member for device in range(self.context.mesh.size) for member in self.groups[device]
        )
        return Table(flat, DEVICE * size + rank)

    # Blocks

    def _block(self, block: Block) -> None:
        if block.steps > 1:
            with self.body.loop("t", 0, block.steps) as t:
                self._step(block, t * block.width)
        else:
            self._step(block, Const(0))

    @contextmanager
    def _busy(self, block: Block, number: Expression) -> Generator[None]:
        """Only on devices that have an event of that number."""
        if not block.idles:
            yield
            return
        flags = {
            (rank, m): 0 if event is not None else -1
            for rank, row in enumerate(block.events)
            for m, event in enumerate(row)
        }
        width = block.steps * block.width
        flat = tuple(flags[rank, m] for rank in range(self.program.ranks) for m in range(width))
        with self.body.when(Table(flat, self.rank * width + number)):
            yield

    def _step(self, block: Block, first: Expression) -> None:
        """What a device does before it signals: all events of a step."""
        if block.idles and block.width == 1:
            with self._busy(block, first):
                self._events(block, first, is_busy=True)
        else:
            self._events(block, first, is_busy=False)

    def _events(self, block: Block, first: Expression, *, is_busy: bool) -> None:
        @contextmanager
        def each_event() -> Generator[Expression]:
            with self._each(block.width) as e:
                number = self.body.index("event", first + e)
                if is_busy or not block.idles:
                    yield number
                else:
                    with self._busy(block, number):
                        yield number

        if block.parts or block.kind == "forward":
            with each_event() as number:
                self._await(block, number)
        for value, share in zip(self.phase.values, range(len(self.phase.values)), strict=True):
            self._pieces(block, first, value, share, is_busy=is_busy)
        if block.copies:
            self.body.delay(self.step_ps)
            with each_event() as number:
                self._signal(block, number)

    def _unrolled(self, block: Block, count: int) -> bool:
        return block.is_uniform and count <= self.phase.unrolled

    def _await(self, block: Block, number: Expression) -> None:
        most = max(block.parts, 1 if block.kind == "forward" else 0)
        if self._unrolled(block, most):
            for k in range(most):
                self._wait(self._listed(block, number, k, most, lambda e: e.awaited))
            return
        count = self._of(block, number, lambda e: len(e.awaited))
        with self.body.loop("k", 0, count) as k:
            self._wait(self._listed(block, number, k, most, lambda e: e.awaited))

    def _wait(self, arrival: Expression) -> None:
        element = arrival * self.workgroups + WORKGROUP
        self.body.wait(self.arrived, element, self.chunk + 1)

    def _signal(self, block: Block, number: Expression) -> None:
        for rank, arrival in self._targets(block, number):
            element = arrival * self.workgroups + WORKGROUP
            self.body.signal(self.arrived, element, 1, self._device(rank), attached=self.wire > 1)

    def _targets(
        self, block: Block, number: Expression
    ) -> Generator[tuple[Expression, Expression]]:
        """Rank and arrival of every target of an event, in a loop where there are many."""

        def ranks(event: Event) -> list[int]:
            return [rank for rank, _ in event.targets]

        def arrivals(event: Event) -> list[int]:
            return [arrival for _, arrival in event.targets]

        copies = block.copies
        if self._unrolled(block, copies):
            for k in range(copies):
                yield (
                    self._listed(block, number, k, copies, ranks),
                    self._listed(block, number, k, copies, arrivals),
                )
            return
        count = self._of(block, number, lambda e: len(e.targets))
        with self.body.loop("k", 0, count) as k:
            yield (
                self._listed(block, number, k, copies, ranks),
                self._listed(block, number, k, copies, arrivals),
            )

    # Pieces

    def _pieces(
        self, block: Block, first: Expression, value: Value, index: int, *, is_busy: bool
    ) -> None:
        """The own share of the pieces of a value, for all events of a step in turn."""
        body, width = self.body, block.width
        lower, upper = self.shares[index]
        if self.engines:
            # A descriptor for every device that the pieces go to.
            body.delay(self.context.target.copy_engine_start_ps * max(1, block.copies))
        with body.loop("i", lower * width, upper * width, stages=self._stages(block, value)) as j:
            i = body.index("piece", j // width) if width > 1 else j
            event = first + j % width if width > 1 else first
            event = body.index("event", event)
            piece = _Piece(self, block, value, index, event, i)
            conditions = piece.conditions()
            if not is_busy and block.idles:
                with self._busy(block, event):
                    self._guarded(conditions, piece)
            else:
                self._guarded(conditions, piece)

    def _stages(self, block: Block, value: Value) -> int:
        """Pieces that are on their way at a time: small ones fill the window of a compute unit."""
        size = sum(
            box.rows * box.columns * self.buffers[component].element_bytes
            for component, box in zip(value.inputs, value.boxes, strict=True)
        )
        window, most = self.context.target.window_bytes_per_cu, MOST_STAGES
        if self.engines:
            window, most = self.context.target.copy_engine_window_bytes, MOST_ENGINE_STAGES
        return max(2, min(most, window // (size * max(1, block.parts))))

    def _guarded(self, conditions: Sequence[Expression], piece: _Piece) -> None:
        if not conditions:
            piece.emit()
            return
        all_hold = conditions[0]
        for condition in conditions[1:]:
            all_hold = minimum(all_hold, condition)
        with self.body.when(all_hold):
            piece.emit()

    def staging_of(self, index: int) -> Sequence[Buffer]:
        """The staging buffers of the components of a value."""
        before = sum(len(value.inputs) for value in self.phase.values[:index])
        return self.slots[before : before + len(self.phase.values[index].inputs)]


@dataclass
class _Piece:
    """A piece of a value in an event: read, combined, written."""

    emitter: _Emitter
    block: Block
    value: Value
    index: int
    event: Expression
    i: Expression  # within the chunk of the schedule

    def __post_init__(self) -> None:
        emitter, block = self.emitter, self.block
        program, phase = emitter.program, emitter.phase
        subs, share = program.subs, phase.shares[self.index]

        def of(value: Callable[[Event], int | None]) -> Expression:
            return emitter._of(block, self.event, value)  # pyright: ignore[reportPrivateUsage]

        self.owner: Expression = Const(0)
        sub: Expression = Const(0)
        if program.owned:
            self.owner = of(lambda e: e.chunk // subs)
            sub = of(lambda e: e.chunk % subs)
        q = emitter.chunk
        by_shard = isinstance(
            phase.op,
            collective.ReduceScatterOp | collective.AllGatherOp | collective.AllToAllOp,
        )
        first = q * subs + sub
        if program.owned and not by_shard:
            first = (q * program.ranks + self.owner) * subs + sub
        number = first * share + self.i
        self.number = emitter.body.index("number", number)
        chunks = emitter.plan.chunks
        divisions = chunks * subs * (program.ranks if program.owned and not by_shard else 1)
        self.is_ragged = divisions * share != self.value.pieces
        turn = q % phase.depth if phase.is_credited else q
        self.slot_piece = turn * share + self.i

    def conditions(self) -> list[Expression]:
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
        return self.emitter.rank if self.block.kind == "move" else self.owner

    def emit(self) -> None:
        block = self.block
        match block.kind:
            case "send":
                total = self._combined()
                staging = self.emitter.staging_of(self.index)
                for rank, slot in self._targets():
                    for tile, buffer, box in zip(total, staging, self.value.boxes, strict=True):
                        starts: Place = [slot, self.slot_piece, 0, 0]
                        extents = [1, 1, box.rows, box.columns]
                        peer = self._device(rank)
                        for _ in range(self.emitter.wire):
                            self.body.put(tile, buffer, starts, peer, extents)
            case "finish":
                total = self._combined()
                self._write(total, None)
                for rank, _ in self._targets():
                    self._write(total, rank)
            case "forward":
                passed = [
                    self._load("passed", n, self._output(n), self._in_result(n), acquire=True)
                    for n in range(len(self.value.outputs))
                ]
                for rank, _ in self._targets():
                    self._write(passed, rank)
            case "move":
                moved = self._own()
                for rank, _ in self._targets():
                    self._write(moved, rank)

    @property
    def body(self) -> Body:
        return self.emitter.body

    def _targets(self) -> Generator[tuple[Expression, Expression]]:
        return self.emitter._targets(self.block, self.event)  # pyright: ignore[reportPrivateUsage]

    def _device(self, rank: Expression) -> Expression:
        return self.emitter._device(rank)  # pyright: ignore[reportPrivateUsage]

    # Reads and writes

    def _output(self, component: int) -> Buffer:
        return self.emitter.buffers[self.value.outputs[component]]

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

    def _write(self, tiles: Sequence[SSAValue], rank: Expression | None) -> None:
        """Puts a finished piece into the result of a device, or stores it in the own one."""
        for component, tile in enumerate(tiles):
            buffer, starts = self._output(component), self._in_result(component)
            extents = self.value.boxes[component].extents
            if rank is None and not self.emitter.is_handed_on:
                self.body.store(tile, buffer, starts, extents)
            else:
                peer = DEVICE if rank is None else self._device(rank)
                for _ in range(1 if rank is None else self.emitter.wire):
                    self.body.put(tile, buffer, starts, peer, extents)

    def _own(self) -> list[SSAValue]:
        """The device's own contribution."""
        result: list[SSAValue] = []
        for component, operand in enumerate(self.value.inputs):
            starts, _ = self.value.places[component].in_operand(self.owner, self.number)
            is_argument = isinstance(operand, BlockArgument)
            buffer = self.emitter.buffers[operand]
            result.append(self._load("own", component, buffer, starts, acquire=not is_argument))
        return result

    def _received(self, k: Expression | int) -> list[SSAValue]:
        """The k-th part that has arrived, or that another device holds."""
        slot = self.emitter._listed(  # pyright: ignore[reportPrivateUsage]
            self.block, self.event, k, self.block.parts, lambda e: e.parts
        )
        if self.emitter.program.pulled:
            return self._pulled(slot)
        return [
            self._load(
                "in",
                component,
                buffer,
                [slot, self.slot_piece, 0, 0],
                acquire=True,
                extents=[1, 1, box.rows, box.columns],
            )
            for component, (buffer, box) in enumerate(
                zip(self.emitter.staging_of(self.index), self.value.boxes, strict=True)
            )
        ]

    def _pulled(self, source: Expression) -> list[SSAValue]:
        """The part of the piece that another device holds."""
        result: list[SSAValue] = []
        for component, operand in enumerate(self.value.inputs):
            starts, _ = self.value.places[component].in_operand(self.owner, self.number)
            buffer = self.emitter.buffers[operand]
            tile = self._tile("in", component, buffer.element_type)
            extents = self.value.boxes[component].extents
            self.body.get(tile, buffer, starts, self._device(source), extents)
            result.append(tile)
        return result

    # Combination

    def _combined(self) -> list[SSAValue]:
        """The own contribution and what has arrived, in the order of the schedule."""
        block = self.block
        if not block.parts:
            return self._own()
        combine = self._merge if len(self.value.inputs) > 1 else self._add
        if block.is_uniform and block.parts <= self.emitter.phase.unrolled:
            parts = [self._own()] if block.own else []
            parts += [self._received(k) for k in range(block.parts)]
            if len(parts) == 1:
                return parts[0]
            if len(self.value.inputs) == 1:
                total = [self._tile("sum", 0, f32)]
                self.body.vector(self._function, total[0], parts[0][0], parts[1][0])
                parts = parts[2:]
            else:
                total = combine(None, parts[0])
                parts = parts[1:]
            for part in parts:
                total = combine(total, part)
            return total
        total = combine(None, self._own()) if block.own else self._identity()
        emitter = self.emitter
        count = emitter._of(  # pyright: ignore[reportPrivateUsage]
            block, self.event, lambda e: len(e.parts)
        )
        with self.body.loop("k", 0, count, stages=2) as k:
            combine(total, self._received(k))
        return total

    @property
    def _function(self) -> str:
        return FUNCTIONS[self.emitter.phase.reduction or "sum"]

    def _identity(self) -> list[SSAValue]:
        total = [self._tile("sum", n, f32) for n in range(len(self.value.inputs))]
        kind = self.emitter.phase.reduction or "sum"
        if len(total) > 1:
            for tile, name in zip(total, ("fill_neg_inf", "zero", "zero"), strict=True):
                self.body.vector(name, tile)
        else:
            self.body.vector(IDENTITIES[kind], total[0])
        return total

    def _add(self, total: list[SSAValue] | None, part: list[SSAValue]) -> list[SSAValue]:
        if total is None:
            total = [self._tile("sum", 0, f32)]
            self.body.vector("copy", total[0], part[0])
        else:
            self.body.vector(self._function, total[0], total[0], part[0])
        return total

    def _merge(self, total: list[SSAValue] | None, part: list[SSAValue]) -> list[SSAValue]:
        """Partial states of a softmax: each is rescaled to the larger maximum."""
        if total is None:
            total = [self._tile("sum", n, f32) for n in range(len(part))]
            for own, other in zip(total, part, strict=True):
                self.body.vector("copy", own, other)
            return total
        scale, other = self._tile("scale", 0, f32), self._tile("other", 0, f32)
        m, sums, o = total
        self.body.vector("lse_weights", other, m, part[0], scale)
        self.body.vector("lse_blend", sums, scale, part[1], other)
        self.body.vector("lse_blend", o, scale, part[2], other)
        return total
