"""Building the body of a template: expressions over names, tiles as handles, regions as blocks."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

from xdsl.dialects.builtin import IndexType, IntegerAttr, UnitAttr, f32, i64
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from starc.core.quasi_affine.expressions import Const, Expression, Var, minimum
from starc.core.vector_functions.function import real_bits
from starc.dialects import isa
from starc.dialects.isa_expressions import bind

Index = Expression | int


@dataclass(frozen=True)
class Buffer:
    """A buffer as a body sees it: its symbol, local shape and element type."""

    name: str
    shape: tuple[int, ...]
    element_type: Attribute
    element_bytes: int


@dataclass(frozen=True)
class Template:
    """A finished template and the number of its workgroups in the launch."""

    kernel: isa.KernelOp
    grid: int


class Body:
    """Emits the operations of one template, in order.

    Index values go by name: ``device``, the mesh axes, ``wg``, and those that ``index`` and
    ``loop`` add. Every operation gets the location of ``source``.
    """

    def __init__(self, source: Operation, axes: Sequence[str]) -> None:
        names = ("device", *axes, "wg")
        self.block = Block(arg_types=[IndexType()] * len(names))
        self.names: dict[str, SSAValue] = {}
        for name, argument in zip(names, self.block.args, strict=True):
            argument.name_hint = name
            self.names[name] = argument
        self.region = Region(self.block)
        self.source = source
        self._used = set(names)

    def _add(self, op: Operation) -> None:
        op.location = self.source.location
        self.block.add_op(op)

    def _name(self, value: SSAValue, name: str) -> Var:
        unique, number = name, 1
        while unique in self._used:
            unique, number = f"{name}_{number}", number + 1
        self._used.add(unique)
        value.name_hint = unique
        self.names[unique] = value
        return Var(unique)

    # Index values and regions

    def index(self, name: str, value: Index) -> Expression:
        """A name for an expression; constants and single variables stay as they are."""
        if isinstance(value, int):
            return Const(value)
        if isinstance(value, Var | Const):
            return value
        (attribute,), operands = bind([value], self.names)
        op = isa.IndexOp(attribute, operands)
        self._add(op)
        return self._name(op.result, name)

    @contextmanager
    def loop(
        self, name: str, lower: Index, upper: Index, *, stages: int | None = None
    ) -> Generator[Var]:
        """A loop; what is emitted inside the ``with`` is its body."""
        (low, high), operands = bind([lower, upper], self.names)
        block = Block(arg_types=[IndexType()])
        self._add(isa.LoopOp(low, high, operands, Region(block), stages=stages))
        with self._inside(block):
            yield self._name(block.args[0], name)

    @contextmanager
    def when(self, condition: Index) -> Generator[None]:
        """A branch that runs where ``condition`` is not negative."""
        (attribute,), operands = bind([condition], self.names)
        block = Block()
        self._add(isa.IfOp(attribute, operands, Region(block)))
        with self._inside(block):
            yield

    @contextmanager
    def when_all(self, conditions: Sequence[Expression]) -> Generator[None]:
        """A branch that runs where no condition is negative; no branch where there are none."""
        if not conditions:
            yield
            return
        with self.when(reduce(minimum, conditions)):
            yield

    @contextmanager
    def each(self, name: str, count: int) -> Generator[Expression]:
        """A loop, or its body alone where there is one iteration."""
        if count == 1:
            yield Const(0)
            return
        with self.loop(name, 0, count) as number:
            yield number

    @contextmanager
    def composite(self, *, stateful: bool = False) -> Generator[None]:
        """One command of a scheduler of engines; what is emitted inside the ``with`` is its
        body."""
        block = Block()
        self._add(isa.CompositeOp(Region(block), stateful=stateful))
        with self._inside(block):
            yield

    @contextmanager
    def scope(self) -> Generator[None]:
        """A scratch scope: tiles made inside the ``with`` are free again at its end."""
        block = Block()
        self._add(isa.ScopeOp(Region(block)))
        with self._inside(block):
            yield

    @contextmanager
    def _inside(self, block: Block) -> Generator[None]:
        outer, names = self.block, dict(self.names)
        self.block = block
        yield
        self.block, self.names = outer, names

    # Tiles and memory

    def tile(
        self,
        name: str,
        rows: int,
        columns: int,
        element_type: Attribute = f32,
        *,
        register: bool,
        slots: int = 1,
    ) -> SSAValue:
        """A tile in registers or scratch, where it may have several slots."""
        type_ = isa.TileType.of(rows, columns, element_type)
        op = isa.AllocOp(type_, "register" if register else "scratch", slots)
        op.tile.name_hint = name
        self._add(op)
        return op.tile

    def load(
        self,
        tile: SSAValue,
        buffer: Buffer,
        starts: Sequence[Index],
        extents: Sequence[int] | None = None,
        *,
        acquire: bool = False,
        multicast: int = 1,
    ) -> None:
        attributes, operands = bind(starts, self.names)
        box = _explicit(tile, len(starts), extents)
        op = isa.LoadOp(tile, buffer.name, attributes, operands, extents=box)
        op.acquire = UnitAttr() if acquire else None
        op.multicast = IntegerAttr(multicast, i64) if multicast > 1 else None
        self._add(op)

    def store(
        self,
        tile: SSAValue,
        buffer: Buffer,
        starts: Sequence[Index],
        extents: Sequence[int] | None = None,
    ) -> None:
        attributes, operands = bind(starts, self.names)
        box = _explicit(tile, len(starts), extents)
        self._add(isa.StoreOp(tile, buffer.name, attributes, operands, extents=box))

    def put(
        self,
        tile: SSAValue,
        buffer: Buffer,
        starts: Sequence[Index],
        peer: Index,
        extents: Sequence[int] | None = None,
    ) -> None:
        (*attributes, target), operands = bind([*starts, peer], self.names)
        box = _explicit(tile, len(starts), extents)
        self._add(isa.PutOp(tile, buffer.name, attributes, operands, extents=box, peer=target))

    def get(
        self,
        tile: SSAValue,
        buffer: Buffer,
        starts: Sequence[Index],
        peer: Index,
        extents: Sequence[int] | None = None,
        *,
        cached: bool = False,
    ) -> None:
        (*attributes, source), operands = bind([*starts, peer], self.names)
        box = _explicit(tile, len(starts), extents)
        op = isa.GetOp(tile, buffer.name, attributes, operands, extents=box, peer=source)
        op.cached = UnitAttr() if cached else None
        self._add(op)

    def gather(
        self, tile: SSAValue, rows: SSAValue, buffer: Buffer, column: Index, base: Index
    ) -> None:
        (first, origin), operands = bind([column, base], self.names)
        self._add(isa.GatherOp(tile, rows, buffer.name, first, origin, operands))

    # Counters

    def signal(
        self,
        counter: str,
        element: Index,
        value: Index = 1,
        peer: Index | None = None,
        *,
        attached: bool = False,
    ) -> None:
        given = [element, value] if peer is None else [element, value, peer]
        attributes, operands = bind(given, self.names)
        target = attributes[2] if peer is not None else None
        self._add(
            isa.SignalOp(counter, attributes[0], attributes[1], operands, target, attached=attached)
        )

    def wait(self, counter: str, element: Index, value: Index, *, deferred: bool = False) -> None:
        (first, second), operands = bind([element, value], self.names)
        self._add(isa.WaitOp(counter, first, second, operands, deferred=deferred))

    # Compute

    def matrix(
        self,
        accumulator: SSAValue,
        a: SSAValue,
        b: SSAValue,
        *,
        transpose_b: bool = False,
        columns: Index | None = None,
        inner: Index | None = None,
    ) -> None:
        """A product, of whole tiles or of windows of columns of the accumulator and of ``a``."""
        windows = [window for window in (columns, inner) if window is not None]
        attributes, operands = bind(windows, self.names)
        self._add(
            isa.MatrixOp(
                accumulator,
                a,
                b,
                transpose_b=transpose_b,
                columns=attributes[0] if columns is not None else None,
                inner=attributes[-1] if inner is not None else None,
                indices=operands,
            )
        )

    def vector(self, function: str, *tiles: SSAValue, params: Sequence[Index | float] = ()) -> None:
        """A vector function; floats among ``params`` are real parameters."""
        values = [real_bits(p) if isinstance(p, float) else p for p in params]
        attributes, operands = bind(values, self.names)
        self._add(isa.VectorOp(function, tiles, attributes, operands))

    def delay(self, picoseconds: int) -> None:
        if picoseconds:
            self._add(isa.DelayOp(picoseconds))


def _explicit(tile: SSAValue, rank: int, extents: Sequence[int] | None) -> Sequence[int] | None:
    """``extents`` unless they are those that an access has by default."""
    type_ = tile.type
    assert isinstance(type_, isa.TileType)
    shape = (type_.rows, type_.columns)
    default = (1,) * (rank - 2) + shape if rank > 1 else shape[1:]
    return None if extents is None or tuple(extents) == default else extents
