"""Attention over a sharded sequence whose results are merged by the owner of each head.

A device has a partial result (m, l, o) of every head of its group, from the keys that it holds, and
finishes the heads of its own slice. A workgroup that has finished a task puts the records of each
head into the staging slot for its rank at the head's owner and signals with the number of query
positions; heads behind the own slice come first. Owners wait for all positions of a head, merge the
slots in the order of ranks, the own one among them, take the sink in once, and divide.

Owners are workgroups behind those of the attention, where all are resident together, else those
of a launch of their own.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from starc.core.quasi_affine.expressions import Const, Expression
from starc.core.tiling import ceil_div
from starc.dialects.kernel_fusion import Merging, merging_of
from starc.kernel_bodies.attention.state import Place, State, store_result
from starc.kernel_bodies.body import Body, Template
from starc.kernel_bodies.context import WORKGROUP, LaunchContext, tensor_shape
from starc.kernel_bodies.peers import Group


class OwnerMerge:
    """The exchange of one attention launch. ``positions`` are those of a row tile, of which the
    launch has ``row_tiles`` a sequence."""

    def __init__(
        self, context: LaunchContext, merging: Merging, positions: int, row_tiles: int
    ) -> None:
        self.context = context
        self.merging = merging
        self.positions = positions
        self.row_tiles = row_tiles
        self.batch, self.query, self.heads = tensor_shape(merging.partial.m)
        self.owned = tensor_shape(merging.scatter.outputs[0])[2]
        self.head_dim = merging.finish.head_dim.value.data
        self.staging = [context.buffers[name] for name in context.launch.staging_names]
        self.sent = context.workspace[-3:]
        self.units = self.batch * row_tiles * self.owned
        context.counter("merged", self.units)

    @classmethod
    def of(cls, context: LaunchContext, positions: int, row_tiles: int) -> OwnerMerge | None:
        """The exchange of a launch that has one."""
        merging = merging_of(context.launch)
        if merging is None:
            return None
        return cls(context, merging, positions, row_tiles)

    @property
    def is_apart(self) -> bool:
        """Whether the owners are a launch of their own."""
        launch = self.context.launch
        return "launch" in launch.taxes or len(self.context.grid) < 2

    def _group(self, body: Body) -> Group:
        return Group.of(body, self.context.mesh, self.merging.scatter.axes.data)

    def send(self, body: Body, state: State, place: Place) -> None:
        """Puts the records of every head of some queries to its owner."""
        group = self._group(body)
        d, heads = self.head_dim, place.heads
        where = (place.batch, place.position)
        parts = (("m", state.m, 1), ("l", state.l, 1), ("o", state.o, d))
        # Through local memory, for a head is some rows of a tile.
        for (_, tile, width), buffer in zip(parts, self.sent, strict=True):
            body.store(tile, buffer, place.starts(width), place.extents(width))

        def head_of(turn: Expression) -> tuple[Expression, Expression, Expression]:
            head: Expression = place.head
            if heads > 1:
                head = head + (turn + (group.rank + 1) * self.owned) % heads
            head = body.index("sent_head", head)
            owner = body.index("owner", head // self.owned)
            return head, owner, body.index("owner_device", group.device(owner))

        with body.loop("h", 0, heads) as turn:
            head, owner, device = head_of(turn)
            local = head - owner * self.owned
            for (name, _, width), source, target in zip(
                parts, self.sent, self.staging, strict=True
            ):
                box = [1, place.positions, width]
                tile = body.tile(
                    f"{name}_of", place.positions, width, target.element_type, register=True
                )
                body.load(tile, source, [*where, head * width], box)
                body.put(tile, target, [group.rank, *where, local * width], device, [1, *box])
        with body.loop("h", 0, heads) as turn:
            head, owner, device = head_of(turn)
            row_tile = place.position // self.positions
            unit = self._unit(place.batch, row_tile, head - owner * self.owned)
            body.signal(f"{self.context.name}.merged", unit, place.positions, device)

    def _unit(self, batch: Expression, row_tile: Expression, head: Expression) -> Expression:
        return (batch * self.row_tiles + row_tile) * self.owned + head

    def owners(self) -> Template:
        """The workgroups that merge and finish the heads of the device's own slice."""
        context, units = self.context, self.units
        body = context.body(self.merging.finish)
        group = self._group(body)
        grid = context.grid[1] if len(context.grid) > 1 else units
        if units <= grid:
            self._merge(body, group, WORKGROUP)
        else:
            with body.loop("turn", 0, ceil_div(units, grid)) as turn:
                unit = body.index("unit", turn * grid + WORKGROUP)
                with body.when(Const(units - 1) - unit):
                    self._merge(body, group, unit)
        return context.template(body, 0, min(grid, units), suffix=".owner", waits=True)

    def _merge(self, body: Body, group: Group, unit: Expression) -> None:
        """Merges and finishes a head of a row tile, when all of it is there."""
        context, d, rows = self.context, self.head_dim, self.positions
        head = body.index("head", unit % self.owned)
        tile = body.index("row_tile", unit // self.owned % self.row_tiles)
        batch = body.index("batch", unit // (self.owned * self.row_tiles))
        position = tile * rows
        body.wait(f"{context.name}.merged", unit, group.size * rows)
        state = State.new(body, rows, d).fill(body)
        with body.loop("source", 0, group.size, stages=4) as source:
            tiles: list[SSAValue] = []
            for name, width, buffer in zip("mlo", (1, 1, d), self.staging, strict=True):
                other = body.tile(f"{name}_other", rows, width, buffer.element_type, register=True)
                starts = [source, batch, position, head * width]
                body.load(other, buffer, starts, [1, 1, rows, width], acquire=True)
                tiles.append(other)
            packed = body.tile("packed", rows, d + 2, register=True)
            body.vector("lse_pack", packed, *tiles)
            body.vector("lse_merge", state.o, state.m, state.l, packed)
        place = Place(batch, position, head, rows, 1)
        sink, output = self.merging.finish.sink, context.outputs[0][1]
        store_result(context, body, state, sink, place, output, d, register=True)
