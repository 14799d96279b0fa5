"""How the collectives of a launch are executed: pieces, slots, templates and workgroups.

``plan-memory``, ``map-workgroups`` and the lowering all ask ``plan_of``; it depends on the launch
and the target alone. A launch has one collective or a chain of them, each of which takes the
results of the one before; with ``chunks`` they work side by side, a part of the data at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, cast

from xdsl.dialects.builtin import DenseArrayBase, IntegerType
from xdsl.ir import Attribute, SSAValue

from starc.backend.program import MAX_RECORDS
from starc.core.collectives.spmd import SpmdSchedule, spmd
from starc.core.collectives.table import mates_for, unit_schedule
from starc.core.kernel_schedules.exchange_schedules import (
    RESIDENT,
    Exchange,
    PhaseSchedule,
    Room,
    choose_tile,
    fit_templates,
    grids_of,
    schedule_phase,
)
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.mesh import Mesh
from starc.dialects import collective
from starc.dialects.collective import CollectiveOp
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_buffers import element_bytes
from starc.dialects.sharding import encoding_of, global_shape, mesh_of
from starc.kernel_bodies.collectives.places import Box
from starc.kernel_bodies.collectives.values import AnyTensor, Value, values_of
from starc.kernel_bodies.context import on_engines
from starc.targets.target import Target

RECORDS: Final = MAX_RECORDS - 10
"""Records of a template for blocks: its start, chunks, hand-over and last waits take the rest."""


@dataclass(frozen=True)
class Phase:
    """One collective of a launch and how its kernel executes it."""

    op: CollectiveOp
    values: tuple[Value, ...]
    schedule: PhaseSchedule

    @property
    def program(self) -> SpmdSchedule:
        return self.schedule.program

    @property
    def shares(self) -> tuple[int, ...]:
        return self.schedule.shares

    @property
    def reduction(self) -> str | None:
        return self.op.reduction_kind

    def staging_shapes(self, chunks: int) -> list[tuple[Attribute, tuple[int, ...]]]:
        """Element type and shape of the staging buffer of every component of every value."""
        slots = self.schedule.program.slots
        if not slots:
            return []
        return [
            (
                cast(AnyTensor, component.type).element_type,
                (slots, pieces, box.rows, box.columns),
            )
            for value, pieces in zip(self.values, self.schedule.slot_pieces(chunks), strict=True)
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

    def phase_grids(self, index: int) -> tuple[int, ...]:
        """Workgroups of the templates of a phase."""
        first = sum(len(phase.schedule.parts) for phase in self.phases[:index])
        return self.grids[first : first + len(self.phases[index].schedule.parts)]

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
    if launch.tile is not None:
        tile = cast("tuple[int, int]", launch.integers("tile"))
    else:
        tile = _choose_tile(ops, programs, chunks, mesh, target)
    values = [values_of(op, mesh, tile) for op in ops]
    exchanges = [
        _exchange(op, program, own, target)
        for op, program, own in zip(ops, programs, values, strict=True)
    ]
    while chunks > 1 and not _keeps_chunks(values, exchanges, chunks):
        chunks -= 1
    units = target.dies_per_device * target.cus_per_die
    room = Room(RECORDS, target.copy_engines if engines else units, engines)
    schedules = [schedule_phase(exchange, chunks, room) for exchange in exchanges]
    if launch.grid is not None:
        grids = launch.integers("grid")
        if len(grids) != sum(len(schedule.parts) for schedule in schedules):
            raise ValueError("the grid has not a number of workgroups for every template")
    else:
        latencies = [_latency_ps(op, mesh, target) for op in ops]
        grids = grids_of(schedules, latencies, target, engines=engines)
    phases = tuple(map(Phase, ops, values, schedules))
    return Plan(phases, chunks, tile, grids)


def templates_of(op: CollectiveOp, mesh: Mesh, target: Target) -> int:
    """The templates that a collective by itself takes, each of one workgroup at least, all of them
    at work together. Raises ``ValueError`` as ``plan_of`` does."""
    if not _needs_blocks(op):
        return 1
    program = _program(op, mesh, target)
    tile = _choose_tile([op], [program], 1, mesh, target)
    exchange = _exchange(op, program, values_of(op, mesh, tile), target)
    room = Room(RECORDS, target.dies_per_device * target.cus_per_die)
    return len(fit_templates(exchange, room, apart=False)[1])


def _latency_ps(op: CollectiveOp, mesh: Mesh, target: Target) -> int:
    """From a put until the data are there."""
    link = mesh.link_class(op.axes.data)
    return target.link_latency_ps.get(link or "", 0) + target.memory_latency_ps


def _exchange(
    op: CollectiveOp, program: SpmdSchedule, values: Sequence[Value], target: Target
) -> Exchange:
    transport = op.transport.data if op.transport is not None else ""
    return Exchange(
        f"{op.name} of {len(op.inputs)} values",
        program,
        tuple(value.cutting for value in values),
        is_by_shard(op),
        target.transports.get(transport),
    )


def is_by_shard(op: CollectiveOp) -> bool:
    """Whether pieces are numbered within the part of one owner."""
    return isinstance(
        op, collective.ReduceScatterOp | collective.AllGatherOp | collective.AllToAllOp
    )


def _program(op: CollectiveOp, mesh: Mesh, target: Target) -> SpmdSchedule:
    size = mesh.refs_size(op.axes.data)
    algorithm = op.algorithm.data if op.algorithm is not None else "ring"
    strides: tuple[int, ...] = (1,)
    if op.rings is not None:
        strides = tuple(cast("DenseArrayBase[IntegerType]", op.rings).get_values()) or (1,)
    targets: tuple[int, ...] = ()
    if isinstance(op, collective.PermuteOp):
        targets = permutation(op, mesh)
    mates = mates_for(algorithm, mesh, op.axes.data, target)
    devices = tuple(range(size))
    schedule = unit_schedule(op.KIND, algorithm, devices, mates, strides, targets)
    return spmd(schedule, op.KIND)


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


def _keeps_chunks(
    values: Sequence[Sequence[Value]], exchanges: Sequence[Exchange], chunks: int
) -> bool:
    """Whether the parts that phases hand on hold the same elements in each of them."""
    boxes: set[tuple[tuple[Box, ...], ...]] = {
        tuple(value.boxes for value in own) for own in values
    }
    return len(boxes) == 1 and all(exchange.divides(chunks) for exchange in exchanges)


def _choose_tile(
    ops: Sequence[CollectiveOp],
    programs: Sequence[SpmdSchedule],
    chunks: int,
    mesh: Mesh,
    target: Target,
) -> tuple[int, int]:
    """Rows and columns of the pieces of all values."""
    widest = max(
        (cast(AnyTensor, value.type) for op in ops for value in op.inputs),
        key=lambda type: prod(type.get_shape()),
    )

    def cut(tile: tuple[int, int]) -> list[Exchange]:
        return [
            _exchange(op, program, values_of(op, mesh, tile), target)
            for op, program in zip(ops, programs, strict=True)
        ]

    rows = prod(widest.get_shape()[:-1])
    return choose_tile(rows, element_bytes(widest), chunks, cut, target)
