"""Merging the partial attention of a group of memory cubes, message by message.

See ``cube_reduction`` for who sends what. A record (o | l | m) goes into the receiver's slot with
an arrival signal attached; the receiver waits for each child's record in turn, merges it into its
own state, and sends that on as soon as it has all. The owner divides the state by its sum, once.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from xdsl.ir import SSAValue

from starc.core.quasi_affine.expressions import Const, Expression, Table, minimum
from starc.dialects import nn
from starc.dialects.kernel_fusion import merging_of
from starc.kernel_bodies.attention.cube_reduction import CubeReduction
from starc.kernel_bodies.attention.extents import Task
from starc.kernel_bodies.attention.state import Place, State, store_result
from starc.kernel_bodies.body import Body, Buffer
from starc.kernel_bodies.context import LaunchContext
from starc.kernel_bodies.peers import Group


@dataclass(frozen=True)
class _Turn:
    """A task of a device: its place and its number, which says what slots it has."""

    task: Task
    number: Expression
    plan: CubeReduction

    @property
    def turn(self) -> Expression:
        """The number among the tasks of the same pattern."""
        return self.number // self.plan.patterns if self.plan.patterns > 1 else self.number

    @property
    def pattern(self) -> Expression:
        return self.number % self.plan.patterns if self.plan.patterns > 1 else Const(0)

    def slot(self, slots: int, slot: Expression) -> Expression:
        """A slot of the task, of a queue with so many a task."""
        plan = self.plan
        if plan.depth * plan.patterns == 1:
            return slot
        return (self.turn % plan.depth * plan.patterns + self.pattern) * slots + slot

    @property
    def round(self) -> Expression:
        """How many records were in a slot when this task's is."""
        return self.turn // self.plan.depth + 1

    def credit(self, unit: Expression) -> Expression:
        return self.pattern * self.plan.units + unit


@dataclass(frozen=True)
class _Queue:
    """Slots of a level: their buffer, how many a task has, and the rows of a record."""

    name: str
    buffer: Buffer
    slots: int
    heads: int


class CubeMerge:
    """The merge of one launch."""

    def __init__(self, context: LaunchContext, plan: CubeReduction) -> None:
        merging = merging_of(context.launch)
        assert merging is not None
        self.context = context
        self.plan = plan
        self.finish: nn.LseFinishOp = merging.finish
        buffers = [context.buffers[name] for name in context.launch.staging_names]
        self.queues = dict(zip(plan.queue_shapes, buffers, strict=True))
        for name in ("inside", "across"):
            if name in self.queues:
                context.counter(name, self.queues[name].shape[0])
                if plan.gives_credits:
                    context.counter(f"{name}.credits", plan.patterns * plan.units)
        self.output = context.outputs[0][1]

    @classmethod
    def of(cls, context: LaunchContext) -> CubeMerge | None:
        plan = CubeReduction.of(context.launch, context.target)
        return None if plan is None else cls(context, plan)

    # The whole merge

    def emit(self, body: Body, task: Task, number: Expression, state: State) -> None:
        """Sends, merges and finishes what a rank has of a task."""
        plan = self.plan
        group = Group.of(body, self.context.mesh, plan.axes)
        element = body.index("element", group.rank % plan.elements)
        cube = body.index("own_cube", group.rank // plan.elements)
        ranks = _Ranks(group, cube, element, plan)
        turn = _Turn(task, number, plan)
        if plan.element_root is None:
            record = self._packed(body, state, plan.group)
            self._exchange(body, ranks, turn, record)
            self._units(body, ranks, turn, record)
            return
        self._converge(body, ranks, turn, state)
        with body.when(_equal(element, plan.element_root)):
            if plan.units == 1:
                self._cross(body, ranks, turn, Const(0), state)
                return
            self._units(body, ranks, turn, self._packed(body, state, plan.group))

    # Inside a cube

    def _converge(self, body: Body, ranks: _Ranks, turn: _Turn, state: State) -> None:
        """Up the tree of the cube's elements, all heads together."""
        plan = self.plan
        if plan.elements == 1:
            return
        tree, element = plan.tree, ranks.element
        queue = _Queue("inside", self.queues["inside"], plan.inside_slots, plan.group)
        children = plan.children([tree], plan.inside_slots)
        count = Table(tuple(len(own) for own in tree.children), element)
        with body.loop("child", 0, count) as child:
            peer = ranks.device(ranks.cube, Table(children, element * plan.inside_slots + child))
            self._receive(body, turn, queue, child, state, peer, Const(0))
        parents = tuple(tree.parents)
        slots = tuple(tree.slot(rank) for rank in range(tree.size))
        is_root = tuple(-1 if rank == tree.root else 0 for rank in range(tree.size))
        with body.when(Table(is_root, element)):
            peer = ranks.device(ranks.cube, Table(parents, element))
            record = self._packed(body, state, plan.group)
            self._send(body, turn, queue, Table(slots, element), record, peer, Const(0))

    def _exchange(self, body: Body, ranks: _Ranks, turn: _Turn, record: SSAValue) -> None:
        """Every unit of the task to the element of its owner's number."""
        plan = self.plan
        queue = _Queue("inside", self.queues["inside"], plan.inside_slots, plan.unit_heads)
        with body.loop("unit", 0, plan.units) as step:
            unit = body.index("sent_unit", (step + ranks.element + 1) % plan.units)
            number = self._number(body, turn, unit)
            target = body.index("target", _table(plan.unit_owners, number) % plan.elements)
            hop = (ranks.element - target + plan.elements) % plan.elements
            before = body.index("before", hop - 1)
            with body.when(before):
                slot = _table(plan.places, number) * (plan.elements - 1) + before
                peer = ranks.device(ranks.cube, target)
                self._send(body, turn, queue, slot, record, peer, unit, unit * plan.unit_heads)

    def _units(self, body: Body, ranks: _Ranks, turn: _Turn, record: SSAValue) -> None:
        """The units of the task that end at elements of the own number, one after the other. What
        the element has of them is taken from its record."""
        plan = self.plan
        kept = self.queues["record"]
        body.store(record, kept, [0, 0, 0, 0], self._box(plan.group))
        with body.loop("unit", 0, plan.units) as unit, self._when_own(body, ranks, turn, unit):
            rows = plan.positions * plan.unit_heads
            state = State.new(body, rows, plan.head_dim, register=False, prefix="unit_").fill(body)
            own = self._record(body, plan.unit_heads)
            body.load(own, kept, [0, 0, unit * plan.unit_heads, 0], self._box(plan.unit_heads))
            body.vector("lse_merge", state.o, state.m, state.l, own)
            if plan.element_root is None:
                self._collect(body, ranks, turn, unit, state)
            self._cross(body, ranks, turn, unit, state)

    @contextmanager
    def _when_own(
        self, body: Body, ranks: _Ranks, turn: _Turn, unit: Expression
    ) -> Generator[None]:
        if self.plan.element_root is not None:
            yield
            return
        owner = _table(self.plan.unit_owners, self._number(body, turn, unit))
        with body.when(_equal(ranks.element, owner % self.plan.elements)):
            yield

    def _collect(
        self, body: Body, ranks: _Ranks, turn: _Turn, unit: Expression, state: State
    ) -> None:
        """What the other elements of the cube have of a unit."""
        plan = self.plan
        queue = _Queue("inside", self.queues["inside"], plan.inside_slots, plan.unit_heads)
        place = _table(plan.places, self._number(body, turn, unit))
        first = body.index("first_slot", place * (plan.elements - 1))
        with body.loop("hop", 0, plan.elements - 1) as hop:
            peer = ranks.device(ranks.cube, (ranks.element + hop + 1) % plan.elements)
            self._receive(body, turn, queue, first + hop, state, peer, unit)

    # From cube to cube

    def _cross(
        self, body: Body, ranks: _Ranks, turn: _Turn, unit: Expression, state: State
    ) -> None:
        """Along the tree of the unit's cube, whose element finishes it."""
        plan = self.plan
        number = self._number(body, turn, unit)
        if plan.cubes == 1:
            self._end(body, turn, number, state)
            return
        queue = _Queue("across", self.queues["across"], plan.across_slots, plan.unit_heads)
        which = tuple(plan.roots.index(owner // plan.elements) for owner in plan.unit_owners)
        node = body.index("node", _table(which, number) * plan.cubes + ranks.cube)
        first = body.index("first", _table(plan.places, number) * plan.most_cubes)
        children = plan.children(plan.trees, plan.most_cubes)
        count = Table(plan.table(lambda tree, cube: len(tree.children[cube])), node)
        with body.loop("child", 0, count) as child:
            source = Table(children, node * plan.most_cubes + child)
            peer = ranks.device(source, ranks.element)
            self._receive(body, turn, queue, first + child, state, peer, unit)
        is_root = plan.table(lambda tree, cube: int(tree.root == cube))
        ends = body.index("ends", Table(is_root, node))
        with body.when(-ends):
            parent = Table(plan.table(lambda tree, cube: tree.parents[cube]), node)
            slot = Table(plan.table(lambda tree, cube: tree.slot(cube)), node)
            record = self._packed(body, state, plan.unit_heads)
            peer = ranks.device(parent, ranks.element)
            self._send(body, turn, queue, first + slot, record, peer, unit)
        with body.when(ends - 1):
            self._end(body, turn, number, state)

    def _end(self, body: Body, turn: _Turn, number: Expression, state: State) -> None:
        """Divides by the sum and stores the heads of a unit."""
        plan, task = self.plan, turn.task
        head = _table(plan.kept, number)
        place = Place(task.batch, task.position, head, plan.positions, plan.unit_heads)
        store_result(
            self.context,
            body,
            state,
            self.finish.sink,
            place,
            self.output,
            plan.head_dim,
            register=False,
        )

    # Messages

    def _send(
        self,
        body: Body,
        turn: _Turn,
        queue: _Queue,
        slot: Expression,
        record: SSAValue,
        peer: Expression,
        credit: Expression,
        skipped: Expression | None = None,
    ) -> None:
        """Puts a record into a slot of a peer. With ``skipped`` the slot takes only the heads from
        that on: what of the record lies beside it is not sent."""
        plan = self.plan
        peer = body.index("peer", peer)
        if plan.gives_credits:
            self._await_credit(body, turn, queue, turn.credit(credit))
        place = body.index("slot", turn.slot(queue.slots, slot))
        heads = queue.heads if skipped is None else plan.group
        starts = [place, 0, 0 if skipped is None else skipped * -1, 0]
        body.put(record, queue.buffer, starts, peer, self._box(heads))
        body.signal(f"{self.context.name}.{queue.name}", place, 1, peer, attached=True)

    def _receive(
        self,
        body: Body,
        turn: _Turn,
        queue: _Queue,
        slot: Expression,
        state: State,
        peer: Expression,
        credit: Expression,
    ) -> None:
        """Waits for the record in a slot, merges it, and gives the slot back to its sender where
        that has a task to use it for."""
        plan = self.plan
        place = body.index("slot", turn.slot(queue.slots, slot))
        body.wait(f"{self.context.name}.{queue.name}", place, turn.round)
        other = self._record(body, queue.heads)
        body.load(other, queue.buffer, [place, 0, 0, 0], self._box(queue.heads), acquire=True)
        body.vector("lse_merge", state.o, state.m, state.l, other)
        if plan.gives_credits:
            counter = f"{self.context.name}.{queue.name}.credits"
            with body.when(plan.turns - 1 - plan.depth - turn.turn):
                body.signal(counter, turn.credit(credit), 1, peer)

    def _await_credit(self, body: Body, turn: _Turn, queue: _Queue, credit: Expression) -> None:
        """Waits until the record of the task before in the slot has been read."""
        plan = self.plan
        with body.when(turn.turn - plan.depth):
            counter = f"{self.context.name}.{queue.name}.credits"
            body.wait(counter, credit, turn.turn - (plan.depth - 1))

    # Records

    def _packed(self, body: Body, state: State, heads: int) -> SSAValue:
        record = body.tile("packed", self.plan.positions * heads, self.plan.width, register=False)
        body.vector("lse_pack", record, state.m, state.l, state.o)
        return record

    def _record(self, body: Body, heads: int) -> SSAValue:
        return body.tile("other", self.plan.positions * heads, self.plan.width, register=False)

    def _box(self, heads: int) -> list[int]:
        return [1, self.plan.positions, heads, self.plan.width]

    def _number(self, body: Body, turn: _Turn, unit: Expression) -> Expression:
        """The number of a unit of the task among those of all tasks."""
        plan = self.plan
        if len(plan.unit_owners) == plan.units:
            return unit
        return body.index("number", turn.task.head // plan.unit_heads + unit)


@dataclass(frozen=True)
class _Ranks:
    """Where a device stands in its group."""

    group: Group
    cube: Expression
    element: Expression
    plan: CubeReduction

    def device(self, cube: Expression, element: Expression) -> Expression:
        return self.group.device(cube * self.plan.elements + element)


def _table(values: tuple[int, ...], index: Expression) -> Expression:
    if len(set(values)) == 1:
        return Const(values[0])
    if isinstance(index, Const):
        return Const(values[index.value])
    if all(value == number for number, value in enumerate(values)):
        return index
    return Table(values, index)


def _equal(left: Expression, right: Expression | int) -> Expression:
    """Not negative where both are the same."""
    difference = left - right
    return minimum(difference, difference * -1)
