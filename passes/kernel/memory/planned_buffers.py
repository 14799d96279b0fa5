"""The buffers of a module before they have addresses, and the values that lie in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import TensorType, f32
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from starc.core.kernel_schedules.share_merging import Combine
from starc.core.memory.buffer_kinds import BufferMemory, BufferRole, BufferSpace
from starc.core.memory.buffer_layouts import TileReads
from starc.core.memory.layout import Layout, row_major
from starc.core.memory.planning import Lifetime
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_attributes import symbols
from starc.dialects.kernel_problems import AnyTensor
from starc.targets.target import Target


@dataclass
class PlannedBuffer:
    """A buffer before it has an address; ``layout`` is ``None`` where it follows from how kernels
    read it."""

    name: str
    type: AnyTensor
    role: BufferRole
    origin: Operation
    life: Lifetime
    space: BufferSpace = BufferSpace.PRIVATE
    memory: BufferMemory = BufferMemory.HBM
    reads: TileReads = field(default_factory=TileReads)
    layout: Layout | None = None

    def share(self) -> None:
        """Lets peers read what is in it, to the end."""
        self.space = BufferSpace.SYMMETRIC
        self.life.pin()


class BufferTable:
    """All buffers by name, and by the values that lie in them; ``step`` is the number of the launch
    that is looked at."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.by_name: dict[str, PlannedBuffer] = {}
        self.of_value: dict[SSAValue, PlannedBuffer] = {}
        self.shared_staging: dict[tuple[AnyTensor, int], str] = {}
        self.step = 0

    def add(self, name: str, type: AnyTensor, role: BufferRole, origin: Operation) -> PlannedBuffer:
        """A buffer that is live to the end, with a number behind a name that is taken."""
        unique, number = name, 1
        while unique in self.by_name:
            number += 1
            unique = f"{name}_{number}"
        buffer = PlannedBuffer(unique, type, role, origin, Lifetime())
        self.by_name[unique] = buffer
        return buffer

    def add_passing(self, name: str, type: AnyTensor, origin: Operation) -> PlannedBuffer:
        """A buffer of an activation that is live in this step."""
        buffer = self.add(name, type, BufferRole.ACTIVATION, origin)
        buffer.life = Lifetime(self.step, self.step)
        return buffer

    def outside(self, launch: LaunchOp, value: SSAValue) -> PlannedBuffer:
        """The buffer behind an argument of a launch's body."""
        assert isinstance(value, BlockArgument)
        return self.of_value[launch.inputs[value.index]]

    def add_workspace(
        self, launch: LaunchOp, suffix: str, shape: Sequence[int], element: Attribute = f32
    ) -> str:
        """The name of a row-major buffer that a launch alone uses."""
        name = f"{launch.sym_name.data}.{suffix}"
        buffer = self.add_passing(name, TensorType(element, shape), launch)
        buffer.layout = row_major(shape)
        return buffer.name

    def add_staging(
        self, launch: LaunchOp, name: str, type: AnyTensor, layout: Layout | None = None
    ) -> PlannedBuffer:
        """A buffer that peers write, at any time; row-major where no ``layout`` is given."""
        buffer = self.add(name, type, BufferRole.COMMUNICATION, launch)
        buffer.space = BufferSpace.SYMMETRIC
        buffer.layout = row_major(type.get_shape()) if layout is None else layout
        return buffer


def set_buffers(
    launch: LaunchOp, *, workspace: Sequence[str] = (), staging: Sequence[str] = ()
) -> None:
    """Names the buffers of a launch beside those of its values."""
    if workspace:
        launch.properties["workspace"] = symbols(workspace)
    if staging:
        launch.properties["staging"] = symbols(staging)


def shares_stored(launch: LaunchOp) -> int:
    """How many shares of a result go through memory: a single owner keeps its own, several store
    theirs as everybody does."""
    is_owner = launch.combine is not None and launch.combine.data == Combine.OWNER
    keeps = is_owner and launch.combine_rows is None
    return launch.integer("split") - (1 if keeps else 0)
