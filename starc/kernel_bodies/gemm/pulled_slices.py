"""The input of a product that lies in slices of K on the devices of a group, and the loops over it.

Every device tells the others at the start of its launch that its slice is there. A workgroup first
multiplies the slice of its own device, then goes round the group from the rank behind its own.
Steps are numbered in the order in which a device takes them; a share of K is a range of these
numbers.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from xdsl.ir import SSAValue

from starc.core.quasi_affine.expressions import Expression, expression, maximum, minimum
from starc.core.tiling import ceil_div, row_tiling
from starc.dialects import nn
from starc.dialects.collective import AllGatherOp
from starc.kernel_bodies.body import Body, Buffer, Template
from starc.kernel_bodies.context import WORKGROUP, LaunchContext
from starc.kernel_bodies.gemm.fused_tiles import TilePlace, starts_of
from starc.kernel_bodies.peers import Group


class PulledSlices:
    """The slices of one launch of ``parts`` parts. Staged ones lie in a local buffer, the last of
    ``workspace``, from which it is taken."""

    def __init__(
        self, context: LaunchContext, gather: AllGatherOp, workspace: list[Buffer], parts: int
    ) -> None:
        launch = context.launch
        self.context = context
        self.gather = gather
        self.source = context.buffer(gather.inputs[0])
        self.mode = launch.pull.data if launch.pull is not None else "cached"
        self.gathered = workspace.pop() if self.mode == "staged" else None
        self.is_split = "launch" in launch.taxes
        self.is_synced = "sync" in launch.taxes
        self.copiers = context.grid[-1] if len(context.grid) > parts else 0

    def declare(self) -> None:
        """Declares the counters of what is there."""
        size = self.context.mesh.refs_size(self.gather.axes.data)
        self.context.counter("ready", size)
        if self.gathered is not None:
            self.context.counter("copied", size)

    def group(self, body: Body) -> Group:
        return Group.of(body, self.context.mesh, self.gather.axes.data)

    def tell(self, body: Body, group: Group) -> None:
        """One workgroup tells all peers that the slice of this device is there."""
        with body.when(-WORKGROUP), body.loop("hop", 1, group.size) as hop:
            peer = body.index("peer", group.device(group.turned(hop)))
            body.signal(f"{self.context.name}.ready", group.rank, 1, peer)

    def _wait(self, body: Body, group: Group, counter: str, value: int) -> None:
        with body.loop("hop", 1, group.size) as hop:
            body.wait(f"{self.context.name}.{counter}", group.turned(hop), value)

    def meet(self) -> Template:
        """A launch that ends when the slices of all peers are there."""
        body = self.context.body(self.gather)
        group = self.group(body)
        self.tell(body, group)
        self._wait(body, group, "ready", 1)
        return self.context.template(body, 0, 1, suffix=".meet", waits=True)

    def copy(self) -> Template:
        """Workgroups that copy the slices of peers to the local buffer, one slice after the
        other; each takes an equal share of the pieces of a slice."""
        context, target = self.context, self.gathered
        assert target is not None
        body = context.body(self.gather)
        group = self.group(body)
        source = self.source
        m, _, step = context.tile
        rows = row_tiling(source.shape[0], source.shape[1], m)
        across = ceil_div(source.shape[2], step)
        pieces = rows.tiles * across
        share = ceil_div(pieces, self.copiers)
        self.tell(body, group)
        first = body.index("first", WORKGROUP * share)
        last = body.index("last", minimum(first + share, pieces))
        with body.loop("hop", 1, group.size) as hop:
            rank = body.index("source", group.turned(hop))
            peer = body.index("peer", group.device(rank))
            body.wait(f"{context.name}.ready", rank, 1)
            with body.loop("i", first, last, stages=4) as i:
                row = i // across
                sequence = row // rows.position_tiles * rows.sequences
                position = row % rows.position_tiles * rows.positions
                column = i % across * step
                piece = body.tile("piece", rows.rows, step, source.element_type, register=False)
                box = [rows.sequences, rows.positions, step]
                body.get(piece, source, [sequence, position, column], peer, box)
                body.store(piece, target, [rank, sequence, position, column], [1, *box])
            body.signal(f"{context.name}.copied", rank)
        return context.template(body, 0, self.copiers, suffix=".copy", waits=True)

    def arrive(self, body: Body, group: Group, turn: Expression | None) -> None:
        """Waits until the slices of all peers are there, in the first turn of a workgroup."""
        if self.is_split:
            return
        with _first(body, turn):
            if self.gathered is not None:
                self._wait(body, group, "copied", self.copiers)
            else:
                self._wait(body, group, "ready", 1)

    def arrive_at(self, body: Body, rank: Expression, turn: Expression | None) -> None:
        """Waits until one slice has been copied."""
        if not self.is_split and not self.is_synced:
            with _first(body, turn):
                body.wait(f"{self.context.name}.copied", rank, self.copiers)


@dataclass(frozen=True)
class Product:
    """The product of one tile or of a share of its K, in steps of ``step``."""

    context: LaunchContext
    body: Body
    linear: nn.LinearOp
    step: int
    columns: int
    place: TilePlace
    accumulator: SSAValue
    share: Expression | None

    @property
    def _stages(self) -> int:
        return self.context.launch.integer("stages")

    def _range(self, steps: int) -> tuple[Expression | int, Expression | int]:
        """The steps of the share, all of them where there is none."""
        if self.share is None:
            return 0, steps
        width = ceil_div(steps, self.context.split)
        return self.share * width, minimum(self.share * width + width, steps)

    def over_own(self) -> None:
        """The loop over an input that the device has."""
        x = self.context.buffer(self.linear.input)
        lower, upper = self._range(ceil_div(x.shape[2], self.step))
        with self.body.loop("k", lower, upper, stages=self._stages) as k:
            self._multiply(x, k * self.step, k * self.step)

    def over_slices(self, slices: PulledSlices, group: Group, turn: Expression | None) -> None:
        """The loops over the own slice and over those of the peers."""
        body, x = self.body, slices.source
        starts = starts_of(slices.gather, self.context)
        steps = ceil_div(x.shape[2], self.step)
        low, high = self._range(steps * group.size)
        lower, upper = expression(low), expression(high)
        if self.share is not None:
            lower, upper = body.index("lower", lower), body.index("upper", upper)
        if slices.is_synced:
            slices.arrive(body, group, turn)
        base = body.index("own", group.start(starts, group.rank))
        stages = self._stages
        with body.loop("k", minimum(lower, steps), minimum(upper, steps), stages=stages) as k:
            self._multiply(x, k * self.step, k * self.step + base)
        # The stream goes on only when the last product is done: then the loops below may take over
        # the scratch memory.
        body.vector("copy", self.accumulator, self.accumulator)
        if slices.gathered is not None:
            self._over_copies(slices, slices.gathered, group, turn, (lower, upper))
        else:
            self._over_peers(slices, group, turn, (lower, upper))

    def _over_copies(
        self,
        slices: PulledSlices,
        gathered: Buffer,
        group: Group,
        turn: Expression | None,
        steps_of_share: tuple[Expression, Expression],
    ) -> None:
        """The loops over the local copies of the slices of peers."""
        body, (lower, upper) = self.body, steps_of_share
        starts = starts_of(slices.gather, self.context)
        steps = ceil_div(slices.source.shape[2], self.step)
        with body.loop("hop", 1, group.size) as hop:
            rank = body.index("source", group.turned(hop))
            base = body.index("base", group.start(starts, rank))
            slices.arrive_at(body, rank, turn)
            low = maximum(minimum(lower - hop * steps, steps), 0)
            high = maximum(minimum(upper - hop * steps, steps), 0)
            with body.loop("k", low, high, stages=self._stages) as k:
                self._multiply(gathered, k * self.step, k * self.step + base, rank=rank)

    def _over_peers(
        self,
        slices: PulledSlices,
        group: Group,
        turn: Expression | None,
        steps_of_share: tuple[Expression, Expression],
    ) -> None:
        """The loop over the slices of all peers where they are."""
        body, (lower, upper) = self.body, steps_of_share
        x, starts = slices.source, starts_of(slices.gather, self.context)
        steps = ceil_div(x.shape[2], self.step)
        if not slices.is_synced:
            slices.arrive(body, group, turn)
        first, end = maximum(lower, steps), maximum(upper, steps)
        with body.loop("k", first, end, stages=self._stages) as k:
            rank = group.turned(k // steps)
            column = k % steps * self.step
            row = column + group.start(starts, rank)
            cached = slices.mode == "cached"
            self._multiply(x, column, row, peer=group.device(rank), cached=cached)

    def _multiply(
        self,
        x: Buffer,
        k: Expression,
        row: Expression,
        *,
        peer: Expression | None = None,
        rank: Expression | None = None,
        cached: bool = False,
    ) -> None:
        """A step: columns of ``x`` from ``k`` on, read from a ``peer``, or from the copy of the
        slice of a ``rank``, by the rows of the weights from ``row`` on."""
        body, rows = self.body, self.place.rows
        weight = self.context.buffer(self.linear.weight)
        a = body.tile("a", rows.count, self.step, x.element_type, register=False)
        b = body.tile("b", self.step, self.columns, weight.element_type, register=False)
        starts, box = rows.starts(k), rows.extents(self.step)
        if peer is not None:
            body.get(a, x, starts, peer, box, cached=cached)
        elif rank is not None:
            acquire = not self.context.target.coherent
            body.load(a, x, [rank, *starts], [1, *box], acquire=acquire)
        else:
            body.load(a, x, starts, box)
        body.load(b, weight, [row, self.place.column])
        body.matrix(self.accumulator, a, b)


@contextmanager
def _first(body: Body, turn: Expression | None) -> Generator[None]:
    """What a workgroup does in its first turn alone."""
    with body.when_all([] if turn is None else [-turn]):
        yield
