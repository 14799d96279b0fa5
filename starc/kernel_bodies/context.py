"""What the body of a launch is built from: its operations, buffers and schedule, and the mesh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import cast

from xdsl.dialects.builtin import TensorType, f32
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from starc.core.quasi_affine.expressions import Const, Expression, Var
from starc.core.sharding.mesh import Mesh
from starc.core.tiling import RowTiling, row_tiling
from starc.dialects import isa, kernel, nn
from starc.dialects.collective import CollectiveOp
from starc.dialects.kernel_kinds import ONE_PART
from starc.kernel_bodies.body import Body, Buffer, Template
from starc.targets.target import Target

WORKGROUP = Var("wg")
DEVICE = Var("device")


@dataclass(frozen=True)
class Rows:
    """A tile of rows of a [batch, query, ...] value: the sequences and positions it covers."""

    tiling: RowTiling
    sequence: Expression
    position: Expression

    @property
    def count(self) -> int:
        return self.tiling.rows

    def starts(self, *rest: Expression | int) -> list[Expression | int]:
        return [self.sequence, self.position, *rest]

    def extents(self, *rest: int) -> list[int]:
        return [self.tiling.sequences, self.tiling.positions, *rest]


@dataclass
class LaunchContext:
    """One ``kernel.launch`` being lowered.

    ``counters`` collects the counter arrays that its templates need, by name.
    """

    launch: kernel.LaunchOp
    buffers: Mapping[str, Buffer]
    mesh: Mesh
    target: Target
    counters: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def name(self) -> str:
        return self.launch.sym_name.data

    @property
    def engines(self) -> bool:
        """Whether the launch runs on copy engines: its exchanges go by a transport of theirs."""
        return on_engines(self.launch, self.target)

    @property
    def tile(self) -> tuple[int, ...]:
        return self.launch.integers("tile")

    @property
    def grid(self) -> tuple[int, ...]:
        return self.launch.integers("grid")

    @property
    def split(self) -> int:
        return self.launch.integer("split")

    @property
    def combine(self) -> str | None:
        return self.launch.combine.data if self.launch.combine is not None else None

    @property
    def outputs(self) -> tuple[tuple[SSAValue, Buffer], ...]:
        """Each yielded value with the buffer that it is written to, one a part."""
        names = self.launch.written_names
        return tuple(
            (value, self.buffers[name])
            for value, name in zip(self.launch.yielded, names, strict=True)
        )

    @property
    def workspace(self) -> tuple[Buffer, ...]:
        return tuple(self.buffers[name] for name in self.launch.workspace_names)

    def buffer(self, value: SSAValue) -> Buffer:
        """The buffer behind an argument of the launch's body."""
        if not isinstance(value, BlockArgument):
            raise ValueError(f"launch @{self.name}: an operand is not read from a buffer")
        return self.buffers[self.launch.read_names[value.index]]

    def counter(self, name: str, count: int) -> str:
        """Declares a counter array of the launch and returns its name."""
        full = f"{self.name}.{name}"
        self.counters[full] = count
        return full

    def body(self, source: Operation | None = None) -> Body:
        return Body(source or self.launch, [axis.name for axis in self.mesh.axes])

    def template(
        self,
        body: Body,
        part: int,
        grid: int,
        *,
        suffix: str = "",
        waits: bool = False,
        parts: int | None = None,
    ) -> Template:
        """The finished template of a part; several parts of a launch are numbered. There are as
        many as the launch yields values where ``parts`` does not say."""
        if parts is None:
            is_one = self.launch.kind.data in ONE_PART
            parts = 1 if is_one else len(self.launch.yielded)
        several = f".{part}" if parts > 1 else ""
        launch = self.launch
        kernel_class = launch.kernel_class.data if launch.kernel_class else launch.kind.data
        op = isa.KernelOp(
            f"{self.name}{several}{suffix}",
            body.region,
            kernel_class=kernel_class,
            waves=launch.integer("waves", 4),
            window_bytes=launch.integer("window_bytes", self.target.window_bytes_per_cu),
            piece_bytes=launch.integer("piece_bytes", self.target.interleave_granule),
            waits=waits,
        )
        op.location = body.source.location
        return Template(op, grid)


def on_engines(launch: kernel.LaunchOp, target: Target) -> bool:
    """Whether a launch does nothing but move data by a transport of copy engines."""
    ops = [op for op in launch.block.ops if isinstance(op, CollectiveOp)]
    names = [op.transport.data for op in ops if op.transport is not None]
    found = [target.transports[name] for name in names if name in target.transports]
    return launch.kind.data == "collective" and any(how.copy_engines for how in found)


def tensor_shape(value: SSAValue) -> tuple[int, ...]:
    """The local shape of a tensor value."""
    return cast("TensorType[Attribute]", value.type).get_shape()


def element_type(value: SSAValue) -> Attribute:
    return cast("TensorType[Attribute]", value.type).element_type


def row_factors(
    context: LaunchContext,
    body: Body,
    scale: SSAValue,
    starts: Sequence[Expression | int],
    extents: Sequence[int],
) -> SSAValue:
    """The factors of some rows [rows, 1]: read, or made of sums of squares by the launch itself."""
    op = scale.owner
    source = op.input if isinstance(op, nn.NormScaleOp) else scale
    factors = body.tile("factors", prod(extents), 1, f32, register=True)
    body.load(factors, context.buffer(source), starts, extents)
    if isinstance(op, nn.NormScaleOp):
        params = [op.count.value.data, float(op.eps.value.data)]
        body.vector("norm_scale", factors, factors, params=params)
    return factors


def take_rows(body: Body, shape: tuple[int, ...], rows: int, number: Expression) -> Rows:
    """The ``number``-th row tile of a [batch, query, ...] value."""
    tiling = row_tiling(shape[0], shape[1], rows)
    sequence: Expression = Const(0)
    position: Expression = Const(0)
    if tiling.sequence_tiles > 1:
        sequence = body.index("sequence", number // tiling.position_tiles * tiling.sequences)
    if tiling.position_tiles > 1:
        tile = number % tiling.position_tiles if tiling.sequence_tiles > 1 else number
        position = body.index("position", tile * tiling.positions)
    return Rows(tiling, sequence, position)
