"""A program as the event core reads it: flat arrays, times instead of work, expressions sorted.

Decoding changes no meaning; it resolves what is the same for every workgroup. The arrays are a
cache of the program and never leave the simulator.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from starc.backend.program import (
    FLAG_ACCUMULATE,
    FLAG_ACQUIRE,
    FLAG_ATTACHED,
    FLAG_CACHED,
    FLAG_GATHER,
    BufferInfo,
    BufferMemory,
    ElementType,
    ExprOp,
    LayoutKind,
    Opcode,
    Program,
    TileSpace,
)
from starc.backend.rows import engine_templates
from starc.core.streams.engine_times import matrix_ps, scratch_ps, vector_ps
from starc.core.vector_functions.function import SPECIAL_OPERATIONS
from starc.core.vector_functions.table import FUNCTIONS
from starc.simulator import state as st
from starc.simulator.decode_streams import decode_streams
from starc.simulator.errors import DecodeError
from starc.simulator.expressions import AFFINE, CONSTANT, GENERAL
from starc.simulator.state import Array
from starc.targets.target import Target

_FIELDS = ("dst", "a", "b", "c", "d")
_TYPE_NAMES = {
    ElementType.BF16: "bf16",
    ElementType.F16: "f16",
    ElementType.F32: "f32",
    ElementType.F8E4M3FN: "f8E4M3FN",
    ElementType.I32: "i32",
    ElementType.I8: "i8",
}
_FOREVER = 1 << 50
STREAMED = 2  # how a load passes the L2: what is there is taken, nothing is left
_MEMORY = (Opcode.LOAD, Opcode.STORE, Opcode.PUT, Opcode.GET)


@dataclass
class Expressions:
    """Expressions that records name, sorted into constants, sums of products and the rest."""

    nodes: Array
    rows: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])
    terms: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    general: list[tuple[int, int, int, int]] = field(
        default_factory=list[tuple[int, int, int, int]]
    )
    _index: dict[int, int] = field(default_factory=dict[int, int])
    _affine: dict[int, tuple[int, dict[int, int]] | None] = field(
        default_factory=dict[int, tuple[int, dict[int, int]] | None]
    )

    def __post_init__(self) -> None:
        for i, node in enumerate(self.nodes.tolist()):
            self._affine[i] = self._affine_form(node)

    def _affine_form(self, node: Any) -> tuple[int, dict[int, int]] | None:
        op, left, right, _, imm = node
        if op == ExprOp.CONST:
            return imm, {}
        if op == ExprOp.VAR:
            return 0, {imm: 1}
        a = self._affine[left]
        if a is None:
            return None
        if op == ExprOp.ADD:
            b = self._affine[right]
            if b is None:
                return None
            factors: defaultdict[int, int] = defaultdict(int, a[1])
            for variable, factor in b[1].items():
                factors[variable] += factor
            return a[0] + b[0], dict(factors)
        if op == ExprOp.MUL:
            return a[0] * imm, {variable: factor * imm for variable, factor in a[1].items()}
        return None

    def add(self, root: int) -> int:
        """The index of a root node's expression; -1 stays -1."""
        if root < 0:
            return -1
        if root not in self._index:
            self._index[root] = len(self.rows)
            form = self._affine[root]
            if form is None:
                self.rows.append((0, GENERAL, *self._general(root)))
            else:
                factors = [(f, v) for v, f in sorted(form[1].items()) if f]
                kind = AFFINE if factors else CONSTANT
                self.rows.append((form[0], kind, len(self.terms), len(factors)))
                self.terms.extend(factors)
        return self._index[root]

    def _general(self, root: int) -> tuple[int, int]:
        needed: set[int] = set()
        pending = [root]
        while pending:
            i = pending.pop()
            if i in needed:
                continue
            needed.add(i)
            op, left, right, _, _ = self.nodes[i].tolist()
            if op not in (ExprOp.CONST, ExprOp.VAR):
                pending.append(left)
                if op in (ExprOp.ADD, ExprOp.MIN, ExprOp.MAX):
                    pending.append(right)
        place = {node: i for i, node in enumerate(sorted(needed))}
        first = len(self.general)
        for node in place:
            op, left, right, _, imm = self.nodes[node].tolist()
            self.general.append((imm, op, place.get(left, 0), place.get(right, 0)))
        return first, len(place)


@dataclass(frozen=True)
class Decoded:
    """The arrays of a program for one machine."""

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
    slots: int  # workgroups that a compute unit can hold
    width: int  # streams of a workgroup, at most
    tile_slots: int  # of the largest template
    semaphores: int  # of a template, at most
    counters: int


def buffer_rows(buffers: Sequence[BufferInfo], extents: list[int]) -> Array:
    """Buffers as the event core reads them; adds to ``extents`` what devices hold of them."""
    return _array([_buffer(info, extents) for info in buffers], st.BUFFER)


def _buffer(info: BufferInfo, extents: list[int]) -> tuple[int, ...]:
    shape = (1,) * (4 - len(info.shape)) + info.shape
    if info.layout is LayoutKind.ROW_MAJOR:
        block = (1, 1, 1, shape[3])
    else:
        block = (1,) * (4 - len(info.block)) + info.block
    if block[0] != 1:
        raise DecodeError(f"buffer {info.name}: a block spans more than three dimensions")
    dims = shape
    fold, inner, rows, length = 0, shape[1], block[2], shape[2]
    if block[1] > 1:
        if block[2] != shape[2]:
            raise DecodeError(f"buffer {info.name}: a block covers a part of two dimensions")
        # Both dimensions together are the rows of one matrix per index of dimension 0.
        fold, inner = shape[2], shape[0]
        rows, length = block[1] * block[2], shape[1] * shape[2]
    return (
        info.address,
        *dims,
        fold,
        inner,
        rows,
        block[3],
        -(-length // rows),
        -(-shape[3] // block[3]),
        info.dtype.bytes,
        *_held(info, fold, extents),
        int(info.memory == BufferMemory.SCRATCH),
    )


def _held(info: BufferInfo, fold: int, extents: list[int]) -> tuple[int, int, int, int]:
    """Where ``extents`` has what the devices hold of a buffer: first entry of the extents per
    device, of the counts per device and row, and the dimensions of rows and counts."""
    if info.extents is None:
        return -1, -1, 0, 0
    missing = 4 - len(info.shape)
    shape = (1,) * missing + info.shape
    shapes = [(1,) * missing + held for held in info.extents.shapes]
    first = len(extents)
    extents.extend(extent for held in shapes for extent in held)
    rotation = info.extents.rotation
    if rotation is not None:
        by, turned = missing + rotation.by, missing + rotation.dim
        counts = [rotation.counts(device) for device in range(len(shapes))]
        if fold and (by != 1 or turned == 0):
            raise DecodeError(f"buffer {info.name}: blocks over rows that differ in what they hold")
    elif fold and any(held[2] < fold for held in shapes):
        # The rows of a block that a device holds do not follow each other.
        by, turned = 1, 2
        counts = [(held[2],) * held[1] for held in shapes]
    else:
        return first, -1, 0, 0
    place = len(extents)
    for rows in counts:
        extents.extend((*rows, *(0,) * (shape[by] - len(rows))))
    return first, place, by, turned


def _starts(row: Any, expressions: Expressions) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Start expressions and extents of a memory operand, aligned to four dimensions."""
    dims = int(row["dims"])
    starts = [expressions.add(int(row[f"e{i}"])) for i in range(dims)]
    extents = [int(row[f"n{i}"]) for i in range(dims)]
    missing = 4 - dims
    return (-1,) * missing + tuple(starts), (1,) * missing + tuple(extents)


def _stages(records: Any, loop: int) -> int:
    """The largest stage of the records directly inside a loop."""
    depth = int(records[loop]["depth"]) + 1
    body = records[loop + 1 : int(records[loop]["end"])]
    direct = body[(body["depth"] == depth) & ~np.isin(body["op"], (11, 13))]
    return int(direct["stage"].max(initial=0))


def decode(program: Program, target: Target, *, eager: bool = False) -> Decoded:
    """Decodes a program for a machine. ``eager``: the host issues launches one by one, those of a
    device in their order. Raises ``DecodeError`` where it cannot run there."""
    devices = 1
    for _, size in program.mesh:
        devices *= size
    if devices != target.devices:
        raise DecodeError(
            f"the program is for {devices} devices, the machine {target.name} has {target.devices}"
        )
    expressions = Expressions(program.expressions)
    extents: list[int] = []
    operations = np.zeros(len(program.records), st.OPERATION)
    uses: list[tuple[int, int, int]] = []
    templates = np.zeros(len(program.templates), st.TEMPLATE)
    tile_infos = np.zeros(len(program.tiles), st.TILE_INFO)
    for t, template in enumerate(program.templates):
        first, tile_base = template.first_record, template.first_tile
        total = 0
        for i in range(tile_base, tile_base + template.tiles):
            tile_infos[i] = (total, program.tiles[i]["slots"], program.tiles[i]["depth"])
            total += max(1, int(program.tiles[i]["slots"]))
        templates[t] = (
            first,
            first + template.records,
            tile_base,
            total,
            max(1, template.waves, -(-target.max_waves_per_cu // target.max_workgroups_per_cu)),
            template.scratch_bytes,
            template.register_bytes,
            template.window_bytes,
            0,
            0,
            0,
            0,
        )
        records = program.records[first : first + template.records]
        opened: list[int] = []
        for k in range(template.records):
            _decode_record(
                program,
                target,
                max(1, template.waves),
                records,
                k,
                first,
                tile_base,
                opened,
                expressions,
                operations,
                uses,
            )
    _stream_exchanges(program, operations)
    _pass_caches(program, operations)
    streams, semaphores = decode_streams(program, operations, templates)
    issue = target.kernel_issue_ps if eager else 0
    launches, parts, slots = _decode_launches(program, target, templates, issue)
    queue_rows = np.zeros((st.QUEUES, max(1, len(launches))), np.int32)
    lengths = np.zeros(st.QUEUES, np.int32)
    for i, queue in enumerate(launches["queue"].tolist()):
        launches[i]["position"] = lengths[queue]
        queue_rows[queue, lengths[queue]] = i
        lengths[queue] += 1
    coordinates = np.zeros((devices, 4), np.int64)
    sizes = [size for _, size in program.mesh]
    for device in range(devices):
        rest = device
        for axis in reversed(range(len(sizes))):
            coordinates[device, axis] = rest % sizes[axis]
            rest //= sizes[axis]
    bases = np.cumsum([0, *(counter.count for counter in program.counters)])
    blocks = [
        (counter.address + 64 * element) >> 12
        for counter in program.counters
        for element in range(counter.count)
    ]
    return Decoded(
        operations=operations,
        uses=_array(uses, st.USE),
        expressions=_array(expressions.rows, st.EXPRESSION),
        terms=_array(expressions.terms, st.TERM),
        nodes=_array(expressions.general, st.NODE),
        tables=program.tables if len(program.tables) else np.zeros(1, np.int64),
        tile_infos=tile_infos if len(tile_infos) else np.zeros(1, st.TILE_INFO),
        templates=templates,
        buffers=buffer_rows(program.buffers, extents),
        extents=np.array(extents or [0], np.int32),
        counter_blocks=np.array(blocks or [0], np.int64),
        counter_bases=bases.astype(np.int64),
        launches=launches,
        parts=parts,
        orders=queue_rows.ravel(),
        order_lengths=lengths,
        coordinates=coordinates.ravel(),
        streams=_array(streams, st.STREAM),
        semaphore_starts=np.array(semaphores or [0], np.int32),
        slots=slots,
        width=max(1, int(templates["streams"].max(initial=1))),
        tile_slots=max(1, int(templates["tile_slots"].max(initial=1))),
        semaphores=max(1, int(templates["semaphores"].max(initial=1))),
        counters=max(1, len(blocks)),
    )


def _array(rows: Any, dtype: Any) -> Array:
    return np.array(rows, dtype) if len(rows) else np.zeros(1, dtype)


def _decode_record(
    program: Program,
    target: Target,
    waves: int,
    records: Any,
    k: int,
    first: int,
    tile_base: int,
    opened: list[int],
    expressions: Expressions,
    operations: Array,
    uses: list[tuple[int, int, int]],
) -> None:
    row = records[k]
    op = int(row["op"])
    out = operations[first + k]
    out["op"] = op
    out["depth"] = row["depth"]
    out["stage"] = row["stage"]
    out["end"] = first + k + 1
    out["buffer"] = row["buffer"]
    out["peer"] = expressions.add(int(row["peer"]))
    out["lower"] = expressions.add(int(row["e0"]))
    out["upper"] = expressions.add(int(row["e1"]))
    flags = int(row["flags"])
    passes = not flags & FLAG_CACHED if op == Opcode.GET else flags & FLAG_ACQUIRE
    if op == Opcode.SIGNAL:
        passes = flags & FLAG_ATTACHED
    if op == Opcode.PUT:
        passes = flags & FLAG_ACCUMULATE
    out["uncached"] = int(bool(passes))
    out["first_use"] = len(uses)
    found: list[tuple[int, int, int]] = []
    if op in _MEMORY:
        starts, extents = _starts(row, expressions)
        for i in range(4):
            out[f"start{i}"] = starts[i]
            out[f"extent{i}"] = extents[i]
        out["work"] = max(1, int(row["work"])) if op == Opcode.LOAD else 1
        name = "dst" if op in (Opcode.LOAD, Opcode.GET) else "a"
        out["tile"] = tile_base + int(row[name])
        if int(row["flags"]) & FLAG_GATHER:
            found.append((tile_base + int(row["a"]), 1, 0))
        _check_fold(program, row)
    elif op == Opcode.MATRIX:
        found = [(tile_base + int(row[name]), 1, int(name == "dst")) for name in ("dst", "a", "b")]
        dtype = _TYPE_NAMES[ElementType(int(program.tiles[tile_base + int(row["a"])]["dtype"]))]
        out["work"] = matrix_ps(target, dtype, int(row["n0"]), int(row["n1"]), int(row["n2"]))
        out["latency"] = target.matrix_latency_ps
        tiles = [program.tiles[tile_base + int(row[name])] for name in ("a", "b")]
        a, b = (
            ElementType(int(tile["dtype"])).bytes * (int(tile["space"]) == TileSpace.SCRATCH)
            for tile in tiles
        )
        mnk = (int(row["n0"]), int(row["n1"]), int(row["n2"]))
        out["scratch"] = scratch_ps(target, waves, mnk, (a, b))
    elif op == Opcode.VECTOR:
        function = FUNCTIONS[int(row["fn"])]
        for name in function.operands:
            reads, writes = int(name in function.reads), int(name in function.writes)
            found.append((tile_base + int(row[name]), reads, writes))
        special = function.specials * int(row["work"]) // function.lane_operations
        plain = int(row["work"]) - SPECIAL_OPERATIONS * special
        out["work"] = vector_ps(target, plain, special)
        out["latency"] = target.vector_latency_ps
    elif op == Opcode.DELAY:
        out["work"] = row["work"]
    elif op == Opcode.LOOP:
        out["end"] = first + int(row["end"]) + 1
        out["stages"] = _stages(records, k)
        opened.append(k)
    elif op == Opcode.END_LOOP:
        begin = opened.pop()
        out["end"] = first + begin + 1
        out["depth"] = records[begin]["depth"]
    elif op == Opcode.IF:
        out["end"] = first + int(row["end"]) + 1
    elif op == Opcode.END_IF:
        out["depth"] = 0
        out["stage"] = 0
    elif op in (Opcode.ACQUIRE, Opcode.RELEASE):
        out["tile"] = tile_base + int(row["a"]) if int(row["a"]) >= 0 else -1
        out["work"] = -1
    elif op not in (Opcode.SIGNAL, Opcode.WAIT):
        raise DecodeError(f"opcode {op} is not executable")
    out["use_count"] = len(found)
    uses.extend(found)


def exchanges(program: Program) -> frozenset[int]:
    """The templates of kernels that only move data between devices, and add them up."""
    kinds: dict[int, set[str]] = defaultdict(set)
    for launch, kind in zip(program.launches, program.launch_kinds, strict=True):
        first = int(launch["first_part"])
        for part in program.parts[first : first + int(launch["parts"])]:
            kinds[int(part["template"])].add(kind)
    return frozenset(t for t, found in kinds.items() if found == {"collective"})


def _stream_exchanges(program: Program, operations: Array) -> None:
    """Exchanges take what they send and leave what they get past the order of the L2: a load that
    hits does not refresh its line, one that misses leaves none, and a store goes to memory, as the
    puts of the others do. Nobody uses the same bytes again soon."""
    for t in exchanges(program):
        info = program.templates[t]
        rows = operations[info.first_record : info.first_record + info.records]
        rows["uncached"][(rows["op"] == Opcode.LOAD) & (rows["uncached"] == 0)] = STREAMED
        rows["op"][rows["op"] == Opcode.STORE] = Opcode.PUT


def _pass_caches(program: Program, operations: Array) -> None:
    """Copy engines read and write memory, past the L2s."""
    for t in engine_templates(program):
        info = program.templates[t]
        rows = operations[info.first_record : info.first_record + info.records]
        rows["uncached"][np.isin(rows["op"], (Opcode.LOAD, Opcode.GET))] = 1
        rows["op"][rows["op"] == Opcode.STORE] = Opcode.PUT


def _check_fold(program: Program, row: Any) -> None:
    """A tile of a buffer whose rows are two dimensions covers all of one or one of the other."""
    info = program.buffers[int(row["buffer"])]
    if info.layout is LayoutKind.ROW_MAJOR or len(info.block) < 3 or info.block[-3] == 1:
        return
    dims = int(row["dims"])
    if int(row[f"n{dims - 2}"]) < info.shape[-2] and int(row[f"n{dims - 3}"]) > 1:
        raise DecodeError(f"buffer {info.name}: a tile takes parts of the rows of several blocks")


def occupancy(target: Target, template: Any) -> int:
    """Workgroups of a template that one compute unit holds. 0 where it holds none."""
    limits = [target.max_waves_per_cu // int(template["waves"])]
    if template["scratch"] > 0:
        limits.append(target.scratch_bytes_per_cu // int(template["scratch"]))
    if template["registers"] > 0:
        limits.append(target.registers_bytes_per_cu // int(template["registers"]))
    return min(limits)


def names_peers(program: Program, template: int) -> bool:
    """Whether a template has an instruction that may be about another device."""
    info = program.templates[template]
    records = program.records[info.first_record : info.first_record + info.records]
    return bool((records["peer"] >= 0).any())


def _set_quiet(launches: Array) -> None:
    """How long after the end of a launch none of its successors can send anything to another GPU:
    the gaps and prologues up to the next launch that names other devices."""
    quiet = [_FOREVER] * st.QUEUES
    for i in reversed(range(len(launches))):
        queue = int(launches[i]["queue"])
        launches[i]["quiet"] = quiet[queue]
        start = int(launches[i]["gap"])
        start += int(launches[i]["prologue"]) if launches[i]["workgroups"] else 0
        quiet[queue] = start if launches[i]["remote"] else min(_FOREVER, start + quiet[queue])


def _decode_launches(
    program: Program, target: Target, templates: Array, issue: int
) -> tuple[Any, Any, int]:
    launches = np.zeros(len(program.launches), st.LAUNCH_INFO)
    parts = _array([(*tuple(row), 0) for row in program.parts.tolist()], st.PART_INFO)
    cus = target.cus_per_die * target.dies_per_device
    most = [1] * st.QUEUES
    for i, launch in enumerate(program.launches):
        queue = int(launch["queue"])
        waves = 1
        if launch["engines"] and not target.copy_engines:
            raise DecodeError(
                f"{program.launch_names[i]} runs on copy engines, "
                f"and a device of {target.name} has none"
            )
        rows = range(int(launch["first_part"]), int(launch["first_part"]) + int(launch["parts"]))
        for p in rows:
            template = templates[int(parts[p]["template"])]
            if launch["engines"]:
                own = int(template["window"]) or target.copy_engine_window_bytes
                parts[p]["window"] = max(64, min(own, target.copy_engine_window_bytes))
                continue
            held = occupancy(target, template)
            if held == 0:
                raise DecodeError(
                    f"a workgroup of {program.launch_names[i]} does not fit a compute unit"
                )
            waves = max(waves, int(template["waves"]))
            most[queue] = max(most[queue], held)
            # The compute unit's bytes in flight are shared by the workgroups that it will hold.
            resident = max(1, min(held, -(-int(launch["workgroups"]) // cus)))
            window = max(64, target.window_bytes_per_cu // resident)
            own = int(template["window"])
            parts[p]["window"] = min(own, window) if own > 0 else window
        clocks = max(
            Fraction(target.dispatch_clocks),
            Fraction(str(target.dispatch_clocks_per_wave)) * waves,
        )
        launches[i] = (
            launch["gap_ps"],
            launch["prologue_ps"],
            ceil(clocks * target.cycle_ps),
            i * issue,
            0,
            queue,
            launch["workgroups"],
            launch["first_part"],
            launch["parts"],
            launch["depends"],
            0,
            launch["bands"],
            int(any(names_peers(program, int(parts[p]["template"])) for p in rows)),
            launch["engines"],
        )
    _set_quiet(launches)
    slots = min(62, target.max_waves_per_cu, sum(most))
    return launches, parts, slots
