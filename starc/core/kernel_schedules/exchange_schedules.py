"""How the schedule of a collective becomes a kernel: pieces, templates, slots and workgroups.

What devices exchange is cut into pieces, of which a chunk of the schedule is a *share*. The blocks
of a schedule (``starc.core.collectives.spmd``) are put into templates as far as records go; a
template runs as some workgroups, which divide the pieces of every chunk among them. All templates
of a launch are at work together. Several collectives of a launch are its *phases*, which hand on
the data in parts and work side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starc.core.collectives.spmd import Block, BlockKind, SpmdSchedule
from starc.core.memory.layout import BLOCK_COLUMNS, BLOCKED_ROWS
from starc.core.tiling import ceil_div

if TYPE_CHECKING:
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

Parts = tuple[tuple[Block, ...], ...]
"""The blocks of every template."""


@dataclass(frozen=True)
class Cutting:
    """How a value is cut: into ``count`` pieces, which have ``shapes`` (rows, columns) and
    ``element_bytes`` by component; the components of a partial state are combined together."""

    count: int
    shapes: tuple[tuple[int, int], ...]
    element_bytes: tuple[int, ...]

    @property
    def components(self) -> int:
        return len(self.shapes)

    @property
    def piece_bytes(self) -> int:
        """Bytes of a piece, all components together."""
        return sum(
            rows * columns * width
            for (rows, columns), width in zip(self.shapes, self.element_bytes, strict=True)
        )


@dataclass(frozen=True)
class Exchange:
    """A collective as a kernel executes it: its name for messages, its program, the values that it
    exchanges, and the transport. ``by_shard`` says that pieces are numbered within the part of one
    owner."""

    name: str
    program: SpmdSchedule
    values: tuple[Cutting, ...]
    by_shard: bool
    transport: Transport | None

    @property
    def divisions(self) -> int:
        """In how many chunks of the schedule the numbered pieces fall."""
        program = self.program
        return (program.ranks if program.owned and not self.by_shard else 1) * program.subs

    @property
    def wire(self) -> int:
        return wire_copies(self.transport)

    def shares(self, chunks: int) -> tuple[int, ...]:
        """Pieces of every value in a chunk of the schedule, of data in so many parts."""
        return tuple(ceil_div(value.count, chunks * self.divisions) for value in self.values)

    def divides(self, chunks: int) -> bool:
        """Whether all chunks of the schedule have as many pieces, of data in so many parts."""
        return all(value.count % (chunks * self.divisions) == 0 for value in self.values)

    def workgroups(self, value: Cutting, share: int, units: int) -> int:
        """Workgroups that share out a chunk of ``share`` pieces of a value: the transport's, or
        more where each still has much to do, at most ``units``."""
        if self.transport is None:
            return min(units, USUAL_WORKGROUPS)
        return self.transport.shared_by(share * value.piece_bytes, units)


def wire_copies(transport: Transport | None) -> int:
    """How often a put goes over the links: a flag beside every word is as much again. The second
    put writes what the first has written."""
    return 1 if transport is None else max(1, round(transport.payload_factor))


@dataclass(frozen=True)
class Room:
    """What there is room for: ``records`` of blocks in a template, ``templates`` of one workgroup
    each on the device. Copy engines (``engines``) take a record more for every value."""

    records: int
    templates: int
    engines: bool = False


@dataclass(frozen=True)
class PhaseSchedule:
    """A collective of a launch.

    A chunk of a schedule is ``shares`` pieces of each value. Slots have room for ``depth`` parts of
    the data, which take turns, or for all of them where it is 0. ``parts`` are the blocks of every
    template, in which at most ``unrolled`` parts or copies stand without a loop.
    """

    exchange: Exchange
    shares: tuple[int, ...]
    parts: Parts
    unrolled: int
    depth: int

    @property
    def program(self) -> SpmdSchedule:
        return self.exchange.program

    @property
    def is_credited(self) -> bool:
        """Whether a staging slot is written again, once its reader has said that it may be."""
        return self.depth > 0

    @property
    def share_bytes(self) -> int:
        """Bytes of a chunk of the schedule, of the value that has most."""
        values = zip(self.exchange.values, self.shares, strict=True)
        return max(share * value.piece_bytes for value, share in values)

    def slot_pieces(self, chunks: int) -> list[int]:
        """Of every value, the pieces that a staging slot has room for, of data in so many
        parts."""
        return [(self.depth or chunks) * share for share in self.shares]


def schedule_phase(exchange: Exchange, chunks: int, room: Room) -> PhaseSchedule:
    """The schedule of one collective of a launch whose data are handed on in ``chunks`` parts.
    Raises ``ValueError`` where its blocks do not fit a template."""
    unrolled, parts = fit_templates(exchange, room, apart=chunks > 1)
    depth = DEPTH if chunks > DEPTH and exchange.program.senders is not None else 0
    return PhaseSchedule(exchange, exchange.shares(chunks), parts, unrolled, depth)


# Templates


def fit_templates(exchange: Exchange, room: Room, *, apart: bool) -> tuple[int, Parts]:
    """How far loops are unrolled, and the blocks of every template: as far as there is room for,
    and in no more templates than the device has room for, if that can be. With ``apart`` every
    block has a template of its own, so that they work on different parts of the data at a time.
    Raises ``ValueError`` where there is no room for a block."""
    found: list[tuple[int, Parts]] = []
    for unrolled in UNROLLED:
        records = [_records(block, exchange, unrolled, room) for block in exchange.program.blocks]
        if all(count <= room.records for count in records):
            found.append((unrolled, _parts(exchange.program.blocks, records, room, apart=apart)))
    if not found:
        raise ValueError(f"{exchange.name} takes more records than a template has")
    return next((how for how in found if len(how[1]) <= room.templates), found[0])


def _parts(blocks: Sequence[Block], records: Sequence[int], room: Room, *, apart: bool) -> Parts:
    """The blocks of every template: as many as there is room for in one, or one each."""
    if apart:
        return tuple((block,) for block in blocks)
    parts: list[list[Block]] = []
    used = 0
    for block, count in zip(blocks, records, strict=True):
        if not parts or used + count > room.records:
            parts.append([])
            used = 0
        parts[-1].append(block)
        used += count
    return tuple(tuple(part) for part in parts)


def _records(block: Block, exchange: Exchange, unrolled: int, room: Room) -> int:
    """At most so many records a block takes, of which at most ``unrolled`` parts or copies stand
    without a loop."""
    numbers = block.parts, block.copies
    parts, copies = ((n if block.is_uniform and n <= unrolled else 0) for n in numbers)
    looped_parts, looped_copies = (
        bool(n) and not taken for n, taken in zip(numbers, (parts, copies), strict=True)
    )
    waits = 0
    if block.parts or block.kind is BlockKind.FORWARD:
        waits = max(1, parts) + 2 * looped_parts + 2 * (block.width > 1)
    body = 0
    for value in exchange.values:
        components = value.components
        combined = parts + looped_parts
        # The start of a descriptor, the loop, own and received parts.
        body += 2 + room.engines + components * (1 + combined)
        if components > 1:
            body += (3 + 3 * combined) if block.parts else 0
        else:
            body += combined + looped_parts
        body += 2 * looped_parts + 2 * looped_copies + 2
        puts = exchange.wire * (copies + looped_copies)
        body += components * (puts + (block.kind is BlockKind.FINISH))
    signals = 1 + copies + looped_copies + 2 * looped_copies + 2 * (block.width > 1)
    busy = (2 if block.width == 1 else 6) if block.idles else 0
    return waits + body + (signals if block.copies else 0) + 2 * (block.steps > 1) + busy


# Workgroups


def grids_of(
    phases: Sequence[PhaseSchedule], latencies_ps: Sequence[int], target: Target, *, engines: bool
) -> tuple[int, ...]:
    """Workgroups of every template of all phases, as many as fit the device together, or its copy
    engines (``engines``).

    Of one phase they are the transport's, or more where each still has much to do. Phases side by
    side share the device in proportion to what they have in flight: bytes by the latency of their
    links, ``latencies_ps``.
    """
    compute_units = target.dies_per_device * target.cus_per_die
    units = target.copy_engines if engines else compute_units
    if len(phases) == 1:
        (phase,) = phases
        most = max(1, units // len(phase.parts))
        exchange = phase.exchange
        wanted = max(
            exchange.workgroups(value, share, compute_units)
            for value, share in zip(exchange.values, phase.shares, strict=True)
        )
        return (max(1, min(wanted, most, max(phase.shares))),) * len(phase.parts)
    weights: list[float] = []
    for phase, latency in zip(phases, latencies_ps, strict=True):
        moved = sum(
            block.width * block.steps * max(1, block.copies, block.parts)
            for block in phase.program.blocks
        )
        weights.append(moved * phase.share_bytes * latency / len(phase.parts))
    slots = RESIDENT * units
    scale = slots / sum(w * len(p.parts) for w, p in zip(weights, phases, strict=True))
    grids: list[int] = []
    for weight, phase in zip(weights, phases, strict=True):
        count = max(1, min(int(weight * scale), max(phase.shares)))
        grids += [count] * len(phase.parts)
    return tuple(grids)


# Pieces


def choose_tile(
    rows: int,
    element_bytes: int,
    chunks: int,
    cut: Callable[[tuple[int, int]], Sequence[Exchange]],
    target: Target,
) -> tuple[int, int]:
    """Rows and columns of the pieces of exchanges whose widest value has so many ``rows``: the
    largest that divide evenly among chunks, are whole blocks or consecutive rows of one, and give
    each workgroup one; where there are none, the ones that come nearest to that. ``cut`` cuts all
    values into pieces of at most so many rows and columns."""
    # Activations of many rows lie in blocks, which a piece should not cut.
    block = BLOCKED_ROWS if rows >= BLOCKED_ROWS else 1
    best: tuple[tuple[int, ...], tuple[int, int]] | None = None
    size = PIECE_BYTES
    while size >= LEAST_PIECE_BYTES:
        elements = max(1, size // element_bytes)
        parts = {ceil_div(block, n) for n in (2, 4, 8)}
        for height in sorted({1, block, 2 * block, min(rows, elements), *parts}):
            if height > elements:
                continue
            tile = (height, elements // height)
            key = (*_faults(cut(tile), element_bytes, chunks, block, target), height)
            if best is None or key < best[0]:
                best = key, tile
        size //= 2
    assert best is not None
    return best[1]


def _faults(
    exchanges: Sequence[Exchange], element_bytes: int, chunks: int, block: int, target: Target
) -> tuple[int, int, int, int]:
    """What is wrong with a cutting, the worst first: values that chunks do not divide, pieces that
    cut blocks, workgroups without a piece, and small pieces (negative bytes)."""
    units = target.dies_per_device * target.cus_per_die
    uneven, cut, idle, smallest = 0, 0, 0, PIECE_BYTES
    for exchange in exchanges:
        divisions = chunks * exchange.divisions
        for value, share in zip(exchange.values, exchange.shares(chunks), strict=True):
            uneven += share * divisions != value.count
            idle = max(idle, exchange.workgroups(value, share, units) - share)
            height, columns = value.shapes[-1]
            cut += block > 1 and not _is_run(height, columns, block)
            smallest = min(smallest, height * columns * element_bytes)
    return uneven, cut, idle, -smallest


def _is_run(rows: int, columns: int, block: int) -> bool:
    """Whether pieces are whole blocks of so many rows, or consecutive rows of one block."""
    if columns % BLOCK_COLUMNS:
        return False
    is_part = 1 < rows < block and block % rows == 0
    return rows % block == 0 or (is_part and columns == BLOCK_COLUMNS)
