"""Builds kernel templates record by record.

Expressions are interned (equal sub-expressions are one node), the limits of the format are checked,
and ``end``, ``depth`` and ``work`` of records are filled in.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Final

from starc.backend.expressions import COUNTERS, ExpressionPool, FormatError
from starc.backend.program import (
    FLAG_ACCUMULATE,
    FLAG_ACQUIRE,
    FLAG_ATTACHED,
    FLAG_CACHED,
    FLAG_GATHER,
    FLAG_TRANSPOSE_B,
    MAX_DEPTH,
    MAX_DIMS,
    MAX_RECORDS,
    MAX_STREAM_RECORDS,
    Engine,
    Opcode,
    StreamInfo,
    TileSpace,
)
from starc.core.element_types import ElementType
from starc.core.quasi_affine import expressions as qa
from starc.core.quasi_affine.expressions import Expression
from starc.core.vector_functions.function import OPERAND_FIELDS
from starc.core.vector_functions.table import function

WORKGROUP: Final = qa.Var("wg")
DEVICE: Final = qa.Var("device")


@dataclass(frozen=True)
class Tile:
    """A tile of a template under construction."""

    index: int
    rows: int
    cols: int


@dataclass
class TemplateAssembler:
    """Emits the records of one template, in order."""

    name: str
    pool: ExpressionPool
    buffer_types: Sequence[ElementType]
    tiles: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    records: list[dict[str, int]] = field(default_factory=list[dict[str, int]])
    open: list[int] = field(default_factory=list[int])
    location: int = -1
    scratch_bytes: int = 0
    register_bytes: int = 0
    streams: list[StreamInfo] = field(default_factory=list[StreamInfo])
    semaphores: list[int] = field(default_factory=list[int])
    engine: Engine | None = None
    first: int = 0

    @property
    def depth(self) -> int:
        return sum(self.records[i]["op"] == Opcode.LOOP for i in self.open)

    def tile(
        self,
        rows: int,
        cols: int,
        dtype: ElementType,
        *,
        slots: int = 1,
        space: TileSpace = TileSpace.SCRATCH,
        depth: int = 0,
        offset: int | None = None,
    ) -> Tile:
        """A tile; without ``offset`` scratch tiles lie one after another, 16-byte aligned."""
        size = rows * cols * dtype.bytes
        if space is TileSpace.REGISTER:
            start = -1
            self.register_bytes += size * slots
        else:
            start = self.scratch_bytes if offset is None else offset
            self.scratch_bytes = max(self.scratch_bytes, start + -(-size // 16) * 16 * slots)
        self.tiles.append((rows, cols, dtype, slots, size, space, start, depth))
        return Tile(len(self.tiles) - 1, rows, cols)

    def emit(self, op: Opcode, **fields: int) -> int:
        limit = MAX_RECORDS if self.engine is None else MAX_STREAM_RECORDS
        if len(self.records) - self.first == limit:
            where = "" if self.engine is None else f"the {self.engine.name.lower()} stream of "
            raise FormatError(f"{where}kernel {self.name} needs more than {limit} records")
        if self.engine is None and self.streams:
            raise FormatError(f"kernel {self.name} has streams and a record beside them")
        self.records.append({"op": op, "depth": self.depth, "location": self.location} | fields)
        return len(self.records) - 1

    def _expressions(self, values: Sequence[Expression | int], first: int = 0) -> dict[str, int]:
        if first + len(values) > 8:
            raise FormatError(f"kernel {self.name}: a record holds at most 8 expressions")
        return {f"e{first + i}": self.pool.add(value) for i, value in enumerate(values)}

    def _memory(
        self,
        op: Opcode,
        tile: Tile,
        buffer: int,
        starts: Sequence[Expression | int],
        extents: Sequence[int] | None,
        stage: int,
        **fields: int,
    ) -> int:
        extents = self._box(tile, len(starts)) if extents is None else extents
        if len(starts) != len(extents) or not 0 < len(starts) <= MAX_DIMS:
            raise FormatError(f"kernel {self.name}: a box has 1 to {MAX_DIMS} starts and extents")
        if prod(extents) != tile.rows * tile.cols:
            raise FormatError(
                f"kernel {self.name}: a box of {'x'.join(map(str, extents))} does not fill a tile "
                f"of {tile.rows}x{tile.cols}"
            )
        return self.emit(
            op,
            buffer=buffer,
            dims=len(starts),
            dtype=self.buffer_types[buffer],
            stage=stage,
            **self._expressions(starts),
            **{f"n{i}": n for i, n in enumerate(extents)},
            **fields,
        )

    @staticmethod
    def _box(tile: Tile, dims: int) -> tuple[int, ...]:
        if dims == 1:
            return (tile.rows * tile.cols,)
        return (1,) * (dims - 2) + (tile.rows, tile.cols)

    def load(
        self,
        tile: Tile,
        buffer: int,
        starts: Sequence[Expression | int],
        extents: Sequence[int] | None = None,
        *,
        stage: int = 0,
        acquire: bool = False,
        multicast: int = 1,
        gather: Tile | None = None,
        gather_base: Expression | int = 0,
    ) -> int:
        """``tile`` from the box at ``starts`` (extents: the tile's, with leading ones). With
        ``gather``, an i32 tile of row indices less ``gather_base`` names the rows. ``multicast``
        workgroups load it together."""
        fields: dict[str, int] = {"flags": FLAG_ACQUIRE if acquire else 0, "dst": tile.index}
        if multicast > 1:
            fields["work"] = multicast
        if gather is not None:
            fields["flags"] |= FLAG_GATHER
            fields |= {"a": gather.index, "e4": self.pool.add(gather_base)}
        return self._memory(Opcode.LOAD, tile, buffer, starts, extents, stage, **fields)

    def store(
        self,
        tile: Tile,
        buffer: int,
        starts: Sequence[Expression | int],
        extents: Sequence[int] | None = None,
        *,
        stage: int = 0,
    ) -> int:
        """The box at ``starts`` of this device's buffer from ``tile``."""
        return self._memory(Opcode.STORE, tile, buffer, starts, extents, stage, a=tile.index)

    def put(
        self,
        tile: Tile,
        buffer: int,
        starts: Sequence[Expression | int],
        peer: Expression | int,
        extents: Sequence[int] | None = None,
        *,
        stage: int = 0,
        accumulate: bool = False,
    ) -> int:
        """The box at ``starts`` of the buffer of device ``peer`` from ``tile``, or with
        ``accumulate`` that added to it."""
        fields = {"a": tile.index, "peer": self.pool.add(peer)}
        if accumulate:
            fields["flags"] = FLAG_ACCUMULATE
        return self._memory(Opcode.PUT, tile, buffer, starts, extents, stage, **fields)

    def get(
        self,
        tile: Tile,
        buffer: int,
        starts: Sequence[Expression | int],
        peer: Expression | int,
        extents: Sequence[int] | None = None,
        *,
        stage: int = 0,
        cached: bool = False,
    ) -> int:
        """``tile`` from the box at ``starts`` of the buffer of device ``peer``, past the L2 or,
        with ``cached``, through it."""
        fields = {"dst": tile.index, "peer": self.pool.add(peer)}
        if cached:
            fields["flags"] = FLAG_CACHED
        return self._memory(Opcode.GET, tile, buffer, starts, extents, stage, **fields)

    def matrix(
        self,
        dst: Tile,
        a: Tile,
        b: Tile,
        *,
        transpose_b: bool = False,
        columns: Expression | int | None = None,
        inner: Expression | int | None = None,
        stage: int = 0,
    ) -> int:
        """``dst[m, n] += a[m, k] @ b[k, n]``, or ``b[n, k]`` transposed. Where ``dst`` or ``a``
        have more columns, ``columns`` or ``inner`` is the first of those that take part."""
        k, n = (b.cols, b.rows) if transpose_b else (b.rows, b.cols)
        fits = dst.rows == a.rows
        fits &= dst.cols == n if columns is None else dst.cols >= n
        fits &= a.cols == k if inner is None else a.cols >= k
        if not fits:
            raise FormatError(f"kernel {self.name}: matrix operands {dst}, {a}, {b} do not fit")
        fields: dict[str, int] = {}
        if columns is not None:
            fields["e0"] = self.pool.add(columns)
        if inner is not None:
            fields["e1"] = self.pool.add(inner)
        return self.emit(
            Opcode.MATRIX,
            dst=dst.index,
            a=a.index,
            b=b.index,
            n0=a.rows,
            n1=n,
            n2=k,
            flags=FLAG_TRANSPOSE_B if transpose_b else 0,
            stage=stage,
            work=2 * a.rows * n * k,
            **fields,
        )

    def vector(
        self,
        name: str,
        tiles: Sequence[Tile],
        parameters: Sequence[Expression | int] = (),
        *,
        stage: int = 0,
    ) -> int:
        """A vector function over tiles in the order ``dst a b c d``."""
        f = function(name)
        if len(tiles) != len(f.operands) or len(parameters) != len(f.parameters):
            raise FormatError(f"kernel {self.name}: wrong number of operands for {name}")
        operands = {key: tile.index for key, tile in zip(OPERAND_FIELDS, tiles, strict=False)}
        return self.emit(
            Opcode.VECTOR,
            fn=f.id,
            dims=len(parameters),
            stage=stage,
            work=f.work([tile.rows * tile.cols for tile in tiles]),
            **operands,
            **self._expressions(parameters),
        )

    def signal(
        self,
        counter: int,
        element: Expression | int = 0,
        value: Expression | int = 1,
        *,
        peer: Expression | int | None = None,
        attached: bool = False,
        stage: int = 0,
    ) -> int:
        """Adds to a counter when all earlier puts and stores are performed; an ``attached`` one
        comes with the words of the puts, which are not acknowledged before."""
        fields = {"flags": FLAG_ATTACHED if attached else 0}
        if peer is not None:
            fields["peer"] = self.pool.add(peer)
        return self.emit(
            Opcode.SIGNAL,
            buffer=counter,
            stage=stage,
            **fields,
            **self._expressions((element, value)),
        )

    def wait(
        self,
        counter: int,
        element: Expression | int = 0,
        value: Expression | int = 1,
        *,
        stage: int = 0,
    ) -> int:
        return self.emit(
            Opcode.WAIT, buffer=counter, stage=stage, **self._expressions((element, value))
        )

    def delay(self, picoseconds: int, *, stage: int = 0) -> int:
        return self.emit(Opcode.DELAY, work=picoseconds, stage=stage)

    def semaphore(self, initial: int = 0) -> int:
        """A semaphore of the workgroup that starts at ``initial``."""
        self.semaphores.append(initial)
        return len(self.semaphores) - 1

    def acquire(self, semaphore: int, *, stage: int = 0) -> int:
        """Until the semaphore is positive, then takes one."""
        return self.emit(Opcode.ACQUIRE, buffer=semaphore, stage=stage)

    def release(self, semaphore: int, tile: Tile | None = None, *, stage: int = 0) -> int:
        """Adds one to the semaphore when what is before it in the stream is complete; with a
        ``tile``, when its loads have arrived and its stores and puts have read it."""
        fields = {} if tile is None else {"a": tile.index}
        return self.emit(Opcode.RELEASE, buffer=semaphore, stage=stage, **fields)

    @contextmanager
    def stream(self, engine: Engine) -> Generator[None, None, None]:
        """The stream of an engine; those of a template follow in the order of the engines."""
        if self.records and not self.streams:
            raise FormatError(f"kernel {self.name} has streams and a record beside them")
        if self.streams and self.streams[-1].engine >= engine:
            raise FormatError(
                f"kernel {self.name}: the {engine.name.lower()} stream follows that of "
                f"{self.streams[-1].engine.name.lower()}"
            )
        self.engine, self.first = engine, len(self.records)
        yield
        if self.open:
            raise FormatError(f"kernel {self.name}: a stream ends inside a loop or if")
        self.streams.append(StreamInfo(engine, self.first, len(self.records) - self.first))
        self.engine = None

    def begin_loop(
        self, lower: Expression | int, upper: Expression | int, *, stage: int = 0
    ) -> qa.Var:
        """Opens a loop and returns its counter; ``end`` closes it."""
        depth = self.depth
        if depth == MAX_DEPTH:
            raise FormatError(f"kernel {self.name} nests more than {MAX_DEPTH} loops")
        self.open.append(self.emit(Opcode.LOOP, stage=stage, **self._expressions((lower, upper))))
        return COUNTERS[depth]

    def begin_if(self, condition: Expression | int, *, stage: int = 0) -> None:
        """Opens a body that runs where ``condition >= 0``; ``end`` closes it."""
        self.open.append(self.emit(Opcode.IF, stage=stage, **self._expressions((condition,))))

    def end(self) -> None:
        begin = self.open.pop()
        is_loop = self.records[begin]["op"] == Opcode.LOOP
        end = self.emit(Opcode.END_LOOP if is_loop else Opcode.END_IF)
        self.records[begin]["end"] = end

    @contextmanager
    def loop(
        self, lower: Expression | int, upper: Expression | int, *, stage: int = 0
    ) -> Generator[qa.Var, None, None]:
        counter = self.begin_loop(lower, upper, stage=stage)
        yield counter
        self.end()

    @contextmanager
    def if_(self, condition: Expression | int, *, stage: int = 0) -> Generator[None, None, None]:
        self.begin_if(condition, stage=stage)
        yield
        self.end()
