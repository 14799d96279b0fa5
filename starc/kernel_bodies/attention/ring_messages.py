"""How shares of keys go from cube to cube: into which slots, and who tells whom."""

from __future__ import annotations

from collections.abc import Sequence

from starc.core.quasi_affine.expressions import Const, Expression, Table, minimum
from starc.core.tiling import ceil_div
from starc.kernel_bodies.attention.ring_launch import ZERO, RingLaunch, RingTask
from starc.kernel_bodies.body import Body
from starc.kernel_bodies.peers import Group


class RingMessages:
    """What a PE says and hears: its cube and number in it, its place on the ring, and the cubes
    that it speaks to."""

    def __init__(self, body: Body, launch: RingLaunch) -> None:
        self.body = body
        self.launch = launch
        self.pes = launch.pes
        order, cubes = launch.order, launch.cubes
        self.group = Group.of(body, launch.context.mesh, launch.axes)
        self.cube = body.index("cube", self.group.rank // self.pes)
        self.on_ring = body.index("place", _entry(_inverse(order), self.cube))
        self.pe = body.index("pe", self.group.rank % self.pes) if self.pes > 1 else ZERO
        self.next = body.index("next", _entry(order, (self.on_ring + 1) % cubes))
        self.previous = body.index("previous", _entry(order, (self.on_ring + (cubes - 1)) % cubes))

    def device(self, cube: Expression, pe: Expression) -> Expression:
        return self.group.device(cube * self.pes + pe)

    def source(self, step: Expression) -> Expression:
        """The cube whose block is here in a step."""
        cubes = self.launch.cubes
        return _entry(self.launch.order, (self.on_ring + (cubes - step)) % cubes)

    def _counter(self, name: str) -> str:
        """A counter with an element for each PE."""
        return self.launch.context.counter(name, self.pes)

    # Shares

    def copy_own(self, task: RingTask, turn: Expression) -> None:
        """The own share to a slot, of which all PEs of the cube, and the next cube, take it."""
        launch, body = self.launch, self.body
        own = launch.share(task, self.group.rank)
        if launch.tasks > 1:  # the PEs of the cube have read what was in the slot
            self.wait_readings("reread", turn + 1 - launch.slots)
        with body.loop("c", 0, body.index("chunks", launch.chunks(own))) as c, body.scope():
            for cache, slots in zip(launch.caches, launch.staging, strict=True):
                first = c * launch.sub
                chunk = body.tile(
                    "own",
                    launch.sub,
                    launch.shape.head_dim,
                    cache.element_type,
                    register=launch.register,
                    slots=launch.stages,
                )
                body.load(chunk, cache, [task.batch, task.kv_head, first, 0])
                body.store(chunk, slots, [turn % launch.slots, first, 0])
        self._tell_arrival(self.cube, "copied")

    def send(
        self,
        task: RingTask,
        source: Expression,
        step: Expression,
        turn: Expression,
        unit: Expression,
    ) -> None:
        """Sends a part of the own share of a block on to the next cube, unless it is the last."""
        launch, body = self.launch, self.body
        shape = launch.shape
        parts = max(1, shape.row_tiles * launch.sweeps // 2)
        every = ceil_div(shape.shard.capacity, shape.keys) * (shape.keys // launch.sub)
        chunks = ceil_div(every, parts)
        own = launch.share(task, source * self.pes + self.pe)
        with body.when(minimum(launch.cubes - 2 - step, parts - 1 - unit)):
            self._wait_arrival(self.pe, turn - task.number)
            self.wait_readings("read", turn + 2 - launch.slots, deferred=True)
            last = minimum(unit * chunks + chunks, launch.chunks(own))
            target = body.index("successor", self.device(self.next, self.pe))
            with body.loop("c", unit * chunks, body.index("last_chunk", last)) as c, body.scope():
                self._put_chunk(c * launch.sub, turn, target)
            with body.when_all([unit - (parts - 1)] if parts > 1 else []):
                self._tell_arrival(self.next, "arrived")

    def _put_chunk(self, first: Expression, turn: Expression, target: Expression) -> None:
        """Puts keys and values from index ``first`` of a slot on into the next slot of a device."""
        launch, body = self.launch, self.body
        for slots in launch.staging:
            chunk = body.tile(
                "sent",
                launch.sub,
                launch.shape.head_dim,
                slots.element_type,
                register=launch.register,
                slots=launch.stages,
            )
            body.load(chunk, slots, [turn % launch.slots, first, 0], acquire=True)
            body.put(chunk, slots, [(turn + 1) % launch.slots, first, 0], target)

    # Signals

    def _tell_arrival(self, cube: Expression, counter: str) -> None:
        """Tells all PEs of a cube that the share of this PE's number is there."""
        with self.body.each("p", self.pes) as pe:
            device = self.body.index("reader", self.device(cube, pe))
            self.body.signal(self._counter(counter), self.pe, 1, device)

    def wait_share(self, task: RingTask, pe: Expression, turn: Expression) -> None:
        """Waits for the share of a PE of the block that is here."""
        self.body.wait(self._counter("copied"), pe, task.number + 1, deferred=True)
        if self.launch.cubes > 1:
            self._wait_arrival(pe, turn - task.number)

    def _wait_arrival(self, pe: Expression, rotations: Expression) -> None:
        """Waits for the share of a PE that came with the last of so many rotations."""
        self.body.wait(self._counter("arrived"), pe, rotations, deferred=True)

    def tell_readings(self) -> None:
        """Tells those who filled the slots that this PE has read all shares of a block: the PEs of
        the previous cube, and of the own one."""
        body = self.body
        with body.each("p", self.pes) as pe:
            own = body.index("owner", self.device(self.cube, pe))
            body.signal(self._counter("reread"), self.pe, 1, own)
            if self.launch.cubes > 1:
                sender = body.index("sender", self.device(self.previous, pe))
                body.signal(self._counter("read"), self.pe, 1, sender)

    def wait_readings(self, counter: str, blocks: Expression, *, deferred: bool = False) -> None:
        """Waits until every PE of a cube has read so many blocks: each has a counter, for one may
        be ahead of the others."""
        with self.body.each("p", self.pes) as pe:
            self.body.wait(self._counter(counter), pe, blocks, deferred=deferred)


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(order.index(cube) for cube in range(len(order)))


def _entry(values: Sequence[int], index: Expression) -> Expression:
    """An entry of a table; the index itself where the entries are their own numbers."""
    if list(values) == list(range(len(values))):
        return index
    if isinstance(index, Const):
        return Const(values[index.value])
    return Table(tuple(values), index)
