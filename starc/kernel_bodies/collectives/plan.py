"""How the collectives of a launch are executed: pieces, slots, templates and workgroups.

``plan-memory``, ``map-workgroups`` and the lowering all ask ``plan_of``; it depends on the launch
and the target alone. A launch has one collective or a chain of them, each of which takes the
results of the one before; with ``chunks`` they work side by side, a part of the data at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final, cast

from xdsl.dialects.builtin import DenseArrayBase, IntegerType, TensorType
from xdsl.ir import Attribute, SSAValue

from starc.backend.program import MAX_RECORDS
from starc.core.collectives.spmd import Block, SpmdSchedule, spmd
from starc.core.collectives.table import mates_of, schedule_of
from starc.core.kernel_schedules.row_schedules import BLOCK_COLUMNS
from starc.core.kernel_schedules.tile_schedules import BLOCKED_ROWS
from starc.core.quasi_affine.expressions import Expression
from starc.core.sharding.combiners import COMBINERS
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.mesh import Mesh
from starc.core.tiling import ceil_div
from starc.dialects import collective
from starc.dialects.collective import CollectiveOp
from starc.dialects.kernel import LaunchOp, element_bytes
from starc.dialects.sharding import encoding_of, global_shape, mesh_of
from starc.kernel_bodies.collectives.places import Box, Cut, Places, box_of
from starc.kernel_bodies.context import on_engines
from starc.kernel_bodies.shards import global_row
from starc.targets.target import Target, Transport

UNROLLED: Final = (8, 3, 0)
"""Most parts that are combined, or copies that are sent, without a loop: what there is room for."""
PIECE_BYTES: Final = 8192
"""Bytes of the largest pieces: as much as two granules."""
DEPTH: Final = 2
"""Parts of the data that staging slots have room for: few enough for a memory-side cache."""
LEAST_PIECE_BYTES: Final = 128
USUAL_WORKGROUPS: Final = 16
RESIDENT: Final = 2
"""Workgroups of a compute unit where phases wait for each other by turns."""

AnyTensor = TensorType[Attribute]


@dataclass(frozen=True)
class Value:
    """What is exchanged and combined together: one operand, or the components of a partial state.

    ``boxes`` are the pieces of each component; all have as many.
    """

    inputs: tuple[SSAValue, ...]
    outputs: tuple[SSAValue, ...]
    places: tuple[Places, ...]

    @property
    def boxes(self) -> tuple[Box, ...]:
        return tuple(places.box for places in self.places)

    @property
    def pieces(self) -> int:
        return self.boxes[0].count


@dataclass(frozen=True)
class Phase:
    """One collective of a launch.

    A chunk of a schedule is ``share`` pieces of each value (by value). Slots have room for
    ``depth`` parts of the data, which take turns, or for all of them where it is 0. ``parts`` are
    the blocks of every template, in which at most ``unrolled`` parts or copies stand without a
    loop.
    """

    op: CollectiveOp
    program: SpmdSchedule
    values: tuple[Value, ...]
    shares: tuple[int, ...]
    parts: tuple[tuple[Block, ...], ...]
    unrolled: int
    depth: int

    @property
    def is_credited(self) -> bool:
        """Whether a staging slot is written again, once its reader has said that it may be."""
        return self.depth > 0

    @property
    def reduction(self) -> str | None:
        return self.op.reduction_kind

    def staging_shapes(self, chunks: int) -> list[tuple[Attribute, tuple[int, ...]]]:
        """Element type and shape of the staging buffer of every component of every value."""
        if not self.program.slots:
            return []
        return [
            (
                cast(AnyTensor, component.type).element_type,
                (self.program.slots, (self.depth or chunks) * share, box.rows, box.columns),
            )
            for value, share in zip(self.values, self.shares, strict=True)
            for component, box in zip(value.inputs, value.boxes, strict=True)
        ]


@dataclass(frozen=True)
class Plan:
    """The phases of a launch and how they share the device. ``grids`` are the workgroups of every
    template, phase by phase; ``chunks`` the parts of the data that phases hand on."""

    phases: tuple[Phase, ...]
    chunks: int
    tile: tuple[int, int]
    grids: tuple[int, ...]

    @property
    def resident(self) -> int:
        """Workgroups that a compute unit must hold at once."""
        return RESIDENT if len(self.phases) > 1 else 1

    @property
    def intermediates(self) -> list[SSAValue]:
        """Results that only later phases read."""
        return [value for phase in self.phases[:-1] for value in phase.op.outputs]


def is_planned(launch: LaunchOp, target: Target | None = None) -> bool:
    """Whether a collective launch is executed by a schedule's blocks. Flat rings of one whole value
    over contiguous shards have loops in closed form, however large they are, unless they run on
    the copy engines of ``target``."""
    ops = collectives_of(launch)
    if len(ops) != 1 or launch.properties.get("chunks") is not None:
        return True
    (op,) = ops
    if isinstance(op, RING_LOOPS) and target is not None and on_engines(launch, target):
        return True
    return _needs_blocks(op)


def _needs_blocks(op: CollectiveOp) -> bool:
    """Whether a collective by itself has no loops in closed form."""
    if len(op.inputs) != 1 or not isinstance(op, RING_LOOPS):
        return not isinstance(op, collective.AllSliceOp)
    if op.algorithm is not None and op.algorithm.data != "ring":
        return True
    if isinstance(op, collective.AllReduceOp | collective.ReduceScatterOp):
        if op.reduction.data != "sum":
            return True
    before, after = cast(AnyTensor, op.inputs[0].type), op.outputs.types[0]
    if len(before.get_shape()) > 3:
        return True
    mesh = mesh_of(op)
    return not (is_even(before, mesh) and is_even(after, mesh))


RING_LOOPS: Final = (
    collective.AllReduceOp,
    collective.AllGatherOp,
    collective.ReduceScatterOp,
)


def places_of(op: CollectiveOp, mesh: Mesh, tile: tuple[int, int]) -> Places:
    """Where the pieces of the only value of an operation lie."""
    ((value,),) = (value.places for value in _values(op, mesh, tile))
    return value


def is_even(type: AnyTensor, mesh: Mesh) -> bool:
    """Whether all devices hold as much, in contiguous shards."""
    encoding = encoding_of(type, mesh)
    if encoding is None:
        return True
    return all(
        not sharding.axes or (not sharding.map.suffix() and extent % encoding.ranks(dim) == 0)
        for dim, (sharding, extent) in enumerate(
            zip(encoding.dims, global_shape(type), strict=True)
        )
    )


def collectives_of(launch: LaunchOp) -> list[CollectiveOp]:
    """The collectives of a launch's body, in order."""
    return [op for op in launch.block.ops if isinstance(op, CollectiveOp)]


def plan_of(launch: LaunchOp, target: Target) -> Plan:
    """The plan of a collective launch. ``tile`` and ``grid``, where they stand on the launch, are
    kept; of ``chunks`` there are as many as divide the data evenly for every phase, at most those
    that the launch asks for. Raises ``ValueError`` for one that has no execution."""
    mesh = mesh_of(launch)
    ops = collectives_of(launch)
    programs = [_program(op, mesh, target) for op in ops]
    chunks = launch.integer("chunks", 1)
    engines = on_engines(launch, target)
    given = launch.tile
    if given is not None:
        tile = cast("tuple[int, int]", launch.integers("tile"))
    else:
        tile = _choose_tile(ops, programs, chunks, mesh, target)
    values = [_values(op, mesh, tile) for op in ops]
    while chunks > 1 and not _keeps_chunks(ops, programs, values, chunks):
        chunks -= 1
    phases: list[Phase] = []
    for op, program, own in zip(ops, programs, values, strict=True):
        shares = tuple(ceil_div(value.pieces, chunks * _divisions(op, program)) for value in own)
        name = op.transport.data if op.transport is not None else ""
        wire = wire_copies(target.transports.get(name))
        units = target.dies_per_device * target.cus_per_die
        most = target.copy_engines if engines else units
        unrolled, parts = _templates(
            op, program, own, wire, most, apart=chunks > 1, engines=engines
        )
        depth = DEPTH if chunks > DEPTH and program.senders is not None else 0
        phases.append(Phase(op, program, own, shares, parts, unrolled, depth))
    if launch.grid is not None:
        grids = launch.integers("grid")
        if len(grids) != sum(len(phase.parts) for phase in phases):
            raise ValueError("the grid has not a number of workgroups for every template")
    else:
        grids = _grids(phases, target, engines=engines)
    return Plan(tuple(phases), chunks, tile, grids)


def templates_of(op: CollectiveOp, mesh: Mesh, target: Target) -> int:
    """The templates that a collective by itself takes, each of one workgroup at least, all of them
    at work together. Raises ``ValueError`` as ``plan_of`` does."""
    if not _needs_blocks(op):
        return 1
    program = _program(op, mesh, target)
    values = _values(op, mesh, _choose_tile([op], [program], 1, mesh, target))
    wire = wire_copies(target.transports.get(op.transport.data if op.transport else ""))
    units = target.dies_per_device * target.cus_per_die
    return len(_templates(op, program, values, wire, units, apart=False, engines=False)[1])


def _templates(
    op: CollectiveOp,
    program: SpmdSchedule,
    values: Sequence[Value],
    wire: int,
    most: int,
    *,
    apart: bool,
    engines: bool,
) -> tuple[int, tuple[tuple[Block, ...], ...]]:
    """How far loops are unrolled, and the blocks of every template: as far as there is room for,
    and on a device with room for ``most`` workgroups in no more templates, if that can be."""
    found: list[tuple[int, tuple[tuple[Block, ...], ...]]] = [
        (n, _parts(program, values, n, wire, apart=apart, engines=engines))
        for n in UNROLLED
        if _fits(program, values, n, wire, engines)
    ]
    if not found:
        raise ValueError(
            f"{op.name} of {len(op.inputs)} values takes more records than a template has"
        )
    return next((how for how in found if len(how[1]) <= most), found[0])


def _is_by_shard(op: CollectiveOp) -> bool:
    """Whether pieces are numbered within the part of one owner."""
    return isinstance(
        op, collective.ReduceScatterOp | collective.AllGatherOp | collective.AllToAllOp
    )


def _divisions(op: CollectiveOp, program: SpmdSchedule) -> int:
    """In how many chunks of the schedule the numbered pieces fall."""
    return (program.ranks if program.owned and not _is_by_shard(op) else 1) * program.subs


def _program(op: CollectiveOp, mesh: Mesh, target: Target) -> SpmdSchedule:
    operation = op.name.removeprefix("collective.")
    groups = mesh.groups(op.axes.data)
    size = len(groups[0])
    algorithm = op.algorithm.data if op.algorithm is not None else "ring"
    strides: tuple[int, ...] = (1,)
    if op.rings is not None:
        strides = tuple(cast("DenseArrayBase[IntegerType]", op.rings).get_values()) or (1,)
    targets: tuple[int, ...] = ()
    if isinstance(op, collective.PermuteOp):
        targets = permutation(op, mesh)
    mates = mates_of(mesh, op.axes.data, target) if algorithm == "bidirectional_ring" else 1
    unit = 2 * len(strides)
    schedule = schedule_of(
        operation, algorithm, tuple(range(size)), (unit,) * size, mates, strides, targets
    )
    return spmd(schedule, operation)


def permutation(op: collective.PermuteOp, mesh: Mesh) -> tuple[int, ...]:
    """The group index that each member's shard goes to; the same in every group. Raises
    ``ValueError`` where it is not."""
    before, after = cast(AnyTensor, op.inputs[0].type), op.outputs.types[0]
    old, new = encoding_of(before, mesh), encoding_of(after, mesh)
    assert old is not None
    assert new is not None
    shape = global_shape(before)
    coordinates = list(mesh.devices())

    def shard(encoding: Encoding, device: int) -> tuple[int, ...]:
        return tuple(encoding.rank(dim, coordinates[device]) for dim in range(len(shape)))

    found: set[tuple[int, ...]] = set()
    for group in mesh.groups(op.axes.data):
        held = [shard(old, device) for device in group]
        wanted = [shard(new, device) for device in group]
        free = list(range(len(group)))
        targets: list[int] = []
        for index, own in enumerate(held):
            # A shard that several hold stays where it is if it may.
            choices = [other for other in free if wanted[other] == own]
            if not choices:
                raise ValueError("a shard goes nowhere")
            chosen = index if index in choices else choices[0]
            targets.append(chosen)
            free.remove(chosen)
        found.add(tuple(targets))
    if len(found) != 1:
        raise ValueError("groups are permuted differently")
    return found.pop()


# Values


def _values(op: CollectiveOp, mesh: Mesh, tile: tuple[int, int]) -> tuple[Value, ...]:
    kind = op.reduction_kind
    pairs = list(zip(op.inputs, op.outputs, strict=True))
    if kind is not None and len(COMBINERS[kind].components) > 1:
        return (_components(op, mesh, tile, pairs),)
    return tuple(
        Value((before,), (after,), (_places(op, mesh, tile, before, after),))
        for before, after in pairs
    )


def _places(
    op: CollectiveOp, mesh: Mesh, tile: tuple[int, int], before: SSAValue, after: SSAValue
) -> Places:
    operand, result = _cuts(op, mesh, before, after)
    shape = list(cast(AnyTensor, before.type).get_shape())
    for dim, cut in operand.items():
        shape[dim] = cut.extent
    both = {
        dim: [cuts[dim] for cuts in (operand, result) if dim in cuts] for dim in (*operand, *result)
    }
    rows = {
        cut.rotated_by: partial(_global_row, before, cut.rotated_by, mesh)
        for found in both.values()
        for cut in found
        if cut.rotated_by is not None
    }
    return Places(box_of(shape, tile, both), operand, result, rows)


def _global_row(value: SSAValue, by: int, mesh: Mesh, row: Expression) -> Expression:
    return global_row(value, by, row, mesh)


def _cuts(
    op: CollectiveOp, mesh: Mesh, before: SSAValue, after: SSAValue
) -> tuple[dict[int, Cut], dict[int, Cut]]:
    """The cuts of an operand and of a result of an operation, by dimension."""

    def cut(dim: int, coarse: SSAValue, fine: SSAValue) -> Cut:
        outer, inner = cast(AnyTensor, coarse.type), cast(AnyTensor, fine.type)
        old, new = encoding_of(outer, mesh), encoding_of(inner, mesh)
        assert old is not None
        assert new is not None
        whole = global_shape(outer)[dim]
        return Cut(inner.get_shape()[dim], mesh, op.axes.data, old, new, dim, whole)

    match op:
        case collective.ReduceScatterOp() | collective.AllSliceOp():
            dim = op.number("dim")
            return {dim: cut(dim, before, after)}, {}
        case collective.AllGatherOp():
            dim = op.number("dim")
            return {}, {dim: cut(dim, after, before)}
        case collective.AllToAllOp():
            split, concat = op.number("split_dim"), op.number("concat_dim")
            return {split: cut(split, before, after)}, {concat: cut(concat, after, before)}
        case _:
            return {}, {}


def _components(
    op: CollectiveOp,
    mesh: Mesh,
    tile: tuple[int, int],
    pairs: Sequence[tuple[SSAValue, SSAValue]],
) -> Value:
    """Components that are combined together: the last has ``width`` columns for each of the
    others'."""
    shapes = [cast(AnyTensor, before.type).get_shape() for before, _ in pairs]
    width = shapes[-1][-1] // shapes[0][-1]
    heads = (max(1, tile[0]), max(1, tile[1] // width))
    first = _places(op, mesh, heads, *pairs[0])
    places = [first]
    for before, after in pairs[1:]:
        operand, result = _cuts(op, mesh, before, after)
        own = cast(AnyTensor, before.type).get_shape()
        stretch = own[-1] // shapes[0][-1]
        shape, extents = list(first.box.shape), list(first.box.extents)
        shape[-1], extents[-1] = shape[-1] * stretch, extents[-1] * stretch
        for dim, cut in (*operand.items(), *result.items()):
            if not cut.fits(extents[dim]):
                raise ValueError(f"the shards of dim {dim} cut what is combined together")
        places.append(Places(Box(tuple(shape), tuple(extents)), operand, result, first.rows))
    return Value(
        tuple(before for before, _ in pairs), tuple(after for _, after in pairs), tuple(places)
    )


def _keeps_chunks(
    ops: Sequence[CollectiveOp],
    programs: Sequence[SpmdSchedule],
    values: Sequence[Sequence[Value]],
    chunks: int,
) -> bool:
    """Whether the parts that phases hand on hold the same elements in each of them."""
    boxes = {tuple(value.boxes for value in own) for own in values}
    return len(boxes) == 1 and all(
        value.pieces % (chunks * _divisions(op, program)) == 0
        for op, program, own in zip(ops, programs, values, strict=True)
        for value in own
    )


def _choose_tile(
    ops: Sequence[CollectiveOp],
    programs: Sequence[SpmdSchedule],
    chunks: int,
    mesh: Mesh,
    target: Target,
) -> tuple[int, int]:
    """The largest pieces that divide evenly among chunks, are whole blocks or consecutive rows of
    one, and give each workgroup one; where there are none, the ones that come nearest to that."""
    widest = max(
        (cast(AnyTensor, value.type) for op in ops for value in op.inputs),
        key=lambda type: prod(type.get_shape()),
    )
    width = element_bytes(widest)
    rows = prod(widest.get_shape()[:-1])
    # Activations of many rows lie in blocks, which a piece should not cut.
    block = BLOCKED_ROWS if rows >= BLOCKED_ROWS else 1
    best: tuple[tuple[int, ...], tuple[int, int]] | None = None
    size = PIECE_BYTES
    while size >= LEAST_PIECE_BYTES:
        elements = max(1, size // width)
        parts = {ceil_div(block, n) for n in (2, 4, 8)}
        for height in sorted({1, block, 2 * block, min(rows, elements), *parts}):
            if height > elements:
                continue
            tile = (height, elements // height)
            uneven, cut, idle, smallest = 0, 0, 0, PIECE_BYTES
            for op, program in zip(ops, programs, strict=True):
                divisions = chunks * _divisions(op, program)
                for value in _values(op, mesh, tile):
                    share = ceil_div(value.pieces, divisions)
                    uneven += share * divisions != value.pieces
                    workgroups = _workgroups(op, value, share, target)
                    idle = max(idle, workgroups - share)
                    box = value.boxes[-1]
                    cut += block > 1 and not _is_run(box, block)
                    smallest = min(smallest, box.rows * box.columns * width)
            key = (uneven, cut, idle, -smallest, height)
            if best is None or key < best[0]:
                best = key, tile
        size //= 2
    assert best is not None
    return best[1]


def _is_run(box: Box, block: int) -> bool:
    """Whether pieces are whole blocks of so many rows, or consecutive rows of one block."""
    if box.columns % BLOCK_COLUMNS:
        return False
    is_part = 1 < box.rows < block and block % box.rows == 0
    return box.rows % block == 0 or (is_part and box.columns == BLOCK_COLUMNS)


# Templates and workgroups


def _records(block: Block, values: Sequence[Value], unrolled: int, wire: int, engines: bool) -> int:
    """At most so many records a block takes whose puts are ``wire`` each."""
    parts, copies = ((n if block.is_uniform and n <= unrolled else 0) for n in block_numbers(block))
    looped_parts, looped_copies = (
        bool(n) and not taken
        for n, taken in zip(block_numbers(block), (parts, copies), strict=True)
    )
    waits = 0
    if block.parts or block.kind == "forward":
        waits = max(1, parts) + 2 * looped_parts + 2 * (block.width > 1)
    body = 0
    for value in values:
        components = len(value.inputs)
        combined = parts + looped_parts
        # The start of a descriptor, the loop, own and received parts.
        body += 2 + engines + components * (1 + combined)
        if components > 1:
            body += (3 + 3 * combined) if block.parts else 0
        else:
            body += combined + looped_parts
        body += 2 * looped_parts + 2 * looped_copies + 2
        body += components * (wire * (copies + looped_copies) + (block.kind == "finish"))
    signals = 1 + copies + looped_copies + 2 * looped_copies + 2 * (block.width > 1)
    busy = (2 if block.width == 1 else 6) if block.idles else 0
    return waits + body + (signals if block.copies else 0) + 2 * (block.steps > 1) + busy


def wire_copies(transport: Transport | None) -> int:
    """How often a put goes over the links: a flag beside every word is as much again. The second
    put writes what the first has written."""
    return 1 if transport is None else max(1, round(transport.payload_factor))


def block_numbers(block: Block) -> tuple[int, int]:
    """How many parts an event combines at most, and to how many devices it sends."""
    return block.parts, block.copies


ROOM: Final = MAX_RECORDS - 10
"""Records of a template for blocks: its start, chunks, hand-over and last waits take the rest."""


def _fits(
    program: SpmdSchedule, values: Sequence[Value], unrolled: int, wire: int, engines: bool
) -> bool:
    return all(_records(block, values, unrolled, wire, engines) <= ROOM for block in program.blocks)


def _parts(
    program: SpmdSchedule,
    values: Sequence[Value],
    unrolled: int,
    wire: int,
    *,
    apart: bool,
    engines: bool,
) -> tuple[tuple[Block, ...], ...]:
    """The blocks of every template: as many as there is room for in one, or one each, which then
    work on different parts of the data at a time."""
    if apart:
        return tuple((block,) for block in program.blocks)
    parts: list[list[Block]] = []
    used = 0
    for block in program.blocks:
        records = _records(block, values, unrolled, wire, engines)
        if not parts or used + records > ROOM:
            parts.append([])
            used = 0
        parts[-1].append(block)
        used += records
    return tuple(tuple(part) for part in parts)


def _workgroups(op: CollectiveOp, value: Value, share: int, target: Target) -> int:
    """Workgroups that share out a chunk of ``share`` pieces of a value: the transport's, or more
    where each still has much to do."""
    name = op.transport.data if op.transport is not None else ""
    transport = target.transports.get(name)
    units = target.dies_per_device * target.cus_per_die
    if transport is None:
        return min(units, USUAL_WORKGROUPS)
    return transport.shared_by(_value_bytes(value, share), units)


def _grids(phases: Sequence[Phase], target: Target, *, engines: bool) -> tuple[int, ...]:
    """Workgroups of every template: the transport's, or more where each still has much to do, as
    many as fit the device together, or its copy engines."""
    units = target.dies_per_device * target.cus_per_die
    if engines:
        units = target.copy_engines
    if len(phases) == 1:
        (phase,) = phases
        most = max(1, units // len(phase.parts))
        wanted = max(
            _workgroups(phase.op, value, share, target)
            for value, share in zip(phase.values, phase.shares, strict=True)
        )
        return (max(1, min(wanted, most, max(phase.shares))),) * len(phase.parts)
    # Side by side, in proportion to what they have in flight: bytes by the latency of their links.
    mesh = mesh_of(phases[0].op)
    weights: list[float] = []
    for phase in phases:
        link = mesh.link_class(phase.op.axes.data)
        latency = target.link_latency_ps.get(link or "", 0) + target.memory_latency_ps
        moved = sum(
            block.width * block.steps * max(1, block.copies, block.parts)
            for block in phase.program.blocks
        )
        weights.append(moved * _share_bytes(phase) * latency / len(phase.parts))
    slots = RESIDENT * units
    scale = slots / sum(w * len(p.parts) for w, p in zip(weights, phases, strict=True))
    grids: list[int] = []
    for weight, phase in zip(weights, phases, strict=True):
        count = max(1, min(int(weight * scale), max(phase.shares)))
        grids += [count] * len(phase.parts)
    return tuple(grids)


def _share_bytes(phase: Phase) -> int:
    """Bytes of a chunk of the schedule, of the value that has most."""
    return max(map(_value_bytes, phase.values, phase.shares))


def _value_bytes(value: Value, pieces: int) -> int:
    """Bytes of so many pieces of a value, all components together."""
    return pieces * sum(
        box.rows * box.columns * element_bytes(cast(AnyTensor, component.type))
        for component, box in zip(value.inputs, value.boxes, strict=True)
    )
