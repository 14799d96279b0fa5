"""Attention of a prompt whose keys go around a ring of cubes; no results are merged.

A launch with ``ring`` runs as one workgroup on every device. The axes over which its keys are
gathered are the cubes of a group and the PEs of a cube: the keys of a cube are a *block*, those of
one of its PEs a *share*. Query heads are split over cubes and query rows over PEs, so that a block
is read by all PEs of a cube, each for its own rows:

    copy the own share to slot 0
    for every step of the ring:                       block of the cube ``step`` places before
      for every tile of query rows (and part of the block):
        (first ones) send a part of the own share of this block to the next cube
        (first one) wait until the shares of the block are there
        for every visible tile of keys:
          composite s = q k^T; softmax; composite y = p v; o = o * correction + y
      tell the previous cube, and the own one, that the block has been read

- Blocks lie in slots that take turns, at the same address on every device. A PE puts its share into
  the slot of the PE with its number in the next cube, and then tells all PEs there (``arrived``, a
  counter a share; ``copied`` of shares that their own PE has put there). All readers of a slot tell
  those who fill it next: the previous cube (``read``, a counter a reader) and the own one
  (``reread``), which wait for that. The last block does not go on.
- The launch ends when everything that it has sent has been read, so that the next one, of any
  device, may use the slots.
- Tiles of a block go in the order of positions, through the shares of all PEs, so that what is seen
  is the first ones of them, which bounds the loop. Where shares do not make whole tiles, or are
  rotated or in zigzag order, each is a loop of its own, bounded in the same way. Masks compare
  global positions.
- Where the query rows are one tile its state stays in scratch memory for all steps; else it is kept
  in memory between steps, and no tile depends on the context.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from starc.core.quasi_affine.expressions import Const, Expression
from starc.kernel_bodies.attention.ring_launch import ZERO, RingLaunch, RingTask
from starc.kernel_bodies.attention.ring_messages import RingMessages
from starc.kernel_bodies.attention.ring_sweeps import RingSweeps, RowTile, Sweep
from starc.kernel_bodies.attention.state import Place, State, store_result
from starc.kernel_bodies.body import Buffer, Template
from starc.kernel_bodies.context import LaunchContext
from starc.kernel_bodies.shards import clamp


def lower_ring(context: LaunchContext) -> list[list[Template]]:
    """The template of an attention launch with ``ring``."""
    return [[_RingTemplate(RingLaunch(context)).template()]]


def ring_facts(context: LaunchContext) -> dict[str, int]:
    """The extents that decide the time."""
    launch = RingLaunch(context)
    return {
        "tasks": launch.tasks,
        "keys": launch.limit,
        "head_dim": launch.shape.head_dim,
        "rotations": launch.cubes - 1,
    }


class _RingTemplate:
    """The order of work."""

    def __init__(self, launch: RingLaunch) -> None:
        self.launch = launch
        self.context = launch.context
        self.op = launch.op
        self.shape = launch.shape
        self.body = self.context.body(launch.op)
        self.messages = RingMessages(self.body, launch)
        self.sweeps = RingSweeps(self.body, launch, self.messages)
        element = self.context.buffer(self.op.query).element_type
        rows, d, register = self.shape.rows, self.shape.head_dim, launch.register
        self.queries = self.body.tile("q", rows, d, element, register=register)
        self.state = State.new(self.body, rows, d, register=register)

    def template(self) -> Template:
        """All tasks, a turn for each block of each of them."""
        launch, body = self.launch, self.body
        cubes, tasks = launch.cubes, launch.tasks
        is_one = tasks == 1
        if is_one:
            self._begin(self._task(ZERO), ZERO)
        with body.each("turn", tasks * cubes) as turn:
            task = self._task(body.index("task", turn // cubes))
            step = body.index("step", turn % cubes)
            if not is_one:
                with body.when_all([-step] if cubes > 1 else []):
                    self._begin(task, turn)
            self._step(task, step, turn)
            self.messages.tell_readings()
            if not is_one:
                with body.when_all([step - (cubes - 1)] if cubes > 1 else []):
                    self._end(task)
        if is_one:
            self._end(self._task(ZERO))
        for counter in ("reread", "read") if cubes > 1 else ("reread",):
            self.messages.wait_readings(counter, Const(cubes * tasks))
        return self.context.template(body, 0, 1, waits=True)

    def _task(self, number: Expression) -> RingTask:
        body, heads = self.body, self.shape.kv_heads
        batch = body.index("batch", number // heads) if self.shape.batch > 1 else ZERO
        kv_head = body.index("kv_head", number % heads) if heads > 1 else ZERO
        return RingTask(number, batch, kv_head, kv_head * self.shape.group)

    def _begin(self, task: RingTask, turn: Expression) -> None:
        """Queries and state of a task where its rows are one tile, else the state of all tiles; the
        own share goes to its slot."""
        self.state.fill(self.body)
        if self.shape.row_tiles == 1:
            self._load_queries(task, 0)
        else:
            with self.body.loop("r", 0, self.shape.row_tiles) as number:
                self._store_state(number)
        self.messages.copy_own(task, turn)

    def _step(self, task: RingTask, step: Expression, turn: Expression) -> None:
        """Works on one block, all of it for every tile of query rows.

        The own share of the block goes on to the next cube in parts, before each of the first
        sweeps, so that reads of keys do not wait for all of it.
        """
        launch, body = self.launch, self.body
        source = body.index("source", self.messages.source(step))
        sweeps, row_tiles = launch.sweeps, self.shape.row_tiles
        with body.each("u", row_tiles * sweeps) as unit:
            part, number = unit % sweeps, unit // sweeps
            rows = self._row_tile(number)
            if row_tiles > 1:
                with body.when_all([-part] if sweeps > 1 else []):
                    self._load_queries(task, rows.local)
                    self._load_state(number)
            if launch.cubes > 1:
                self.messages.send(task, source, step, turn, unit)
            self._sweep(task, rows, source, turn, unit, part)
            if row_tiles > 1:
                with body.when_all([part - (sweeps - 1)] if sweeps > 1 else []):
                    self._store_state(number)

    def _sweep(
        self,
        task: RingTask,
        rows: RowTile,
        source: Expression,
        turn: Expression,
        unit: Expression,
        part: Expression,
    ) -> None:
        """One sweep of a tile of query rows over a block, or over the share of a PE of it."""
        body, messages, pes = self.body, self.messages, self.launch.pes
        sweep = Sweep(rows, self.queries, self.state)
        if self.launch.block is not None:
            units = self.shape.row_tiles * self.launch.sweeps
            with body.when_all([-unit] if units > 1 else []), body.each("p", pes) as pe:
                messages.wait_share(task, pe, turn)
            self.sweeps.block(sweep, source, part, turn)
        else:
            pe = body.index("share", (messages.pe + part) % pes) if pes > 1 else ZERO
            messages.wait_share(task, pe, turn)
            self.sweeps.share(sweep, task, source, pe, turn)

    # Query rows

    def _row_tile(self, number: Expression) -> RowTile:
        shape, shard = self.shape, self.launch.rows
        local = self.body.index("row", number * shape.positions)
        position = self.body.index("position", shard.position(local) + shape.start)
        held: Expression = Const(shape.positions)
        if not self.launch.is_even:
            held = clamp(shard.count - local, shape.positions)
        return RowTile(local, position, held)

    def _load_queries(self, task: RingTask, local: Expression | int) -> None:
        shape = self.shape
        d = shape.head_dim
        box = [1, shape.positions, shape.group * d]
        source = self.context.buffer(self.op.query)
        self.body.load(self.queries, source, [task.batch, local, task.head * d], box)

    def _store_state(self, number: Expression) -> None:
        for tile, buffer, starts, box in self._parts(number):
            self.body.store(tile, buffer, starts, box)

    def _load_state(self, number: Expression) -> None:
        for tile, buffer, starts, box in self._parts(number):
            self.body.load(tile, buffer, starts, box)

    def _parts(
        self, number: Expression
    ) -> list[tuple[SSAValue, Buffer, Sequence[Expression | int], list[int]]]:
        """The tiles of the state, and where those of a row tile are kept between steps."""
        m, l, o = self.context.workspace[:3]  # noqa: E741
        rows, state = self.shape.rows, self.state
        return [
            (state.m, m, [number, 0], [1, rows]),
            (state.l, l, [number, 0], [1, rows]),
            (state.o, o, [number, 0, 0], [1, rows, self.shape.head_dim]),
        ]

    def _end(self, task: RingTask) -> None:
        """Divides by the sums and stores the rows of the heads of this cube."""
        shape, body = self.shape, self.body
        output = self.context.outputs[0][1]
        with body.each("r", shape.row_tiles) as number:
            if shape.row_tiles > 1:
                self._load_state(number)
            position = number * shape.positions
            place = Place(task.batch, position, task.head, shape.positions, shape.group)
            store_result(
                self.context,
                body,
                self.state,
                self.op.sink,
                place,
                output,
                shape.head_dim,
                register=self.launch.register,
            )
