"""A program as the event core reads it: flat arrays, times instead of work, expressions sorted.

Decoding changes no meaning; it resolves what is the same for every workgroup. The arrays are a
cache of the program and never leave the simulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from starc.backend.program import Program
from starc.simulator.errors import DecodeError
from starc.simulator.program.buffers import buffer_rows
from starc.simulator.program.exchanges import pass_caches, stream_exchanges
from starc.simulator.program.launches import decode_launches, orders_of
from starc.simulator.program.records import RecordDecoder
from starc.simulator.program.rows import array_of
from starc.simulator.program.streams import decode_streams
from starc.simulator.state.arrays import Array
from starc.simulator.state.program_records import (
    EXPRESSION,
    NODE,
    STREAM,
    TEMPLATE,
    TERM,
    TILE_INFO,
    USE,
)
from starc.targets.target import Target


@dataclass(frozen=True)
class Sizes:
    """What a program needs of a machine, at most."""

    slots: int  # workgroups that a compute unit can hold
    width: int  # streams of a workgroup
    tile_slots: int  # of a template
    semaphores: int  # of a template
    counters: int


@dataclass(frozen=True)
class Decoded:
    """The arrays of a program for one machine, with the names that they have in ``State``."""

    sizes: Sizes
    operations: Array
    uses: Array
    expressions: Array
    terms: Array
    nodes: Array
    tables: Array
    tile_infos: Array
    templates: Array
    buffers: Array
    extents: Array
    counter_blocks: Array
    counter_bases: Array
    launches: Array
    parts: Array
    orders: Array
    order_lengths: Array
    coordinates: Array
    streams: Array
    semaphore_starts: Array


def decode(program: Program, target: Target, *, eager: bool = False) -> Decoded:
    """Decodes a program for a machine. ``eager``: the host issues launches one by one, those of a
    device in their order. Raises ``DecodeError`` where it cannot run there."""
    devices = prod(size for _, size in program.mesh)
    if devices != target.devices:
        raise DecodeError(
            f"the program is for {devices} devices, the machine {target.name} has {target.devices}"
        )
    records = RecordDecoder(program, target)
    for template in program.templates:
        records.template(template)
    operations, expressions = records.operations, records.expressions
    stream_exchanges(program, operations)
    pass_caches(program, operations)
    templates, tile_infos = _templates(program, target)
    streams, semaphores = decode_streams(program, operations, templates)
    issue = target.kernel_issue_ps if eager else 0
    launches, parts, slots = decode_launches(program, target, templates, issue)
    orders, order_lengths = orders_of(launches)
    extents: list[int] = []
    buffers = buffer_rows(program.buffers, extents)
    blocks, bases = _counters(program)
    return Decoded(
        Sizes(
            slots,
            width=max(1, int(templates["streams"].max(initial=1))),
            tile_slots=max(1, int(templates["tile_slots"].max(initial=1))),
            semaphores=max(1, int(templates["semaphores"].max(initial=1))),
            counters=max(1, int(bases[-1])),
        ),
        operations=operations,
        uses=array_of(records.uses, USE),
        expressions=array_of(expressions.rows, EXPRESSION),
        terms=array_of(expressions.terms, TERM),
        nodes=array_of(expressions.general, NODE),
        tables=array_of(program.tables.tolist(), np.dtype(np.int64)),
        tile_infos=tile_infos,
        templates=templates,
        buffers=buffers,
        extents=array_of(extents, np.dtype(np.int32)),
        counter_blocks=blocks,
        counter_bases=bases,
        launches=launches,
        parts=parts,
        orders=orders,
        order_lengths=order_lengths,
        coordinates=_coordinates(program, devices),
        streams=array_of(streams, STREAM),
        semaphore_starts=array_of(semaphores, np.dtype(np.int32)),
    )


def _templates(program: Program, target: Target) -> tuple[Array, Array]:
    """Templates, without their streams, and their tiles with the slots that each begins with."""
    templates = np.zeros(len(program.templates), TEMPLATE)
    tiles = np.zeros(max(1, len(program.tiles)), TILE_INFO)
    for row, template in zip(templates, program.templates, strict=True):
        total = 0
        for i in range(template.first_tile, template.first_tile + template.tiles):
            tiles[i] = (total, program.tiles[i]["slots"], program.tiles[i]["depth"])
            total += max(1, int(program.tiles[i]["slots"]))
        least_waves = -(-target.max_waves_per_cu // target.max_workgroups_per_cu)
        row["first"] = template.first_record
        row["end"] = template.first_record + template.records
        row["tile_slots"] = total
        row["waves"] = max(1, template.waves, least_waves)
        row["scratch"] = template.scratch_bytes
        row["registers"] = template.register_bytes
        row["window"] = template.window_bytes
    return templates, tiles


def _counters(program: Program) -> tuple[Array, Array]:
    """The granule within a device of every counter, and the first counter of every array."""
    blocks = [
        (counter.address + 64 * element) >> 12
        for counter in program.counters
        for element in range(counter.count)
    ]
    bases = np.cumsum([0, *(counter.count for counter in program.counters)])
    return array_of(blocks, np.dtype(np.int64)), bases.astype(np.int64)


def _coordinates(program: Program, devices: int) -> Array:
    """The place of every device on each axis of the mesh, of which there are four at most."""
    coordinates = np.zeros((devices, 4), np.int64)
    rest = np.arange(devices)
    for axis, (_, size) in reversed(list(enumerate(program.mesh))):
        rest, coordinates[:, axis] = np.divmod(rest, size)
    return coordinates.ravel()
