"""Buffers get their layouts and addresses, and become ``kernel.buffer``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from starc.core.memory.buffer_kinds import PLACING_ORDER, BufferMemory
from starc.core.memory.buffer_layouts import buffer_layout
from starc.core.memory.layout import GRANULE, Layout
from starc.core.memory.planning import Request, plan_addresses, plan_queues, rotation_unit
from starc.diagnostics import Diagnostic, InputError
from starc.dialects.kernel_buffers import SCRATCH_ALIGNMENT, BufferOp, element_bytes
from starc.dialects.locations import location_of
from starc.passes.base import with_location
from starc.passes.kernel.memory.planned_buffers import PlannedBuffer
from starc.targets.target import Target


@dataclass(frozen=True)
class _Placed:
    """A buffer with its layout."""

    buffer: PlannedBuffer
    layout: Layout

    @property
    def bytes(self) -> int:
        return self.layout.bytes(element_bytes(self.buffer.type))

    def at(self, address: int) -> BufferOp:
        """The buffer at an address."""
        buffer = self.buffer
        op = BufferOp(
            buffer.name,
            buffer.type,
            address=address,
            layout=self.layout,
            space=buffer.space,
            role=buffer.role,
            element_bytes=element_bytes(buffer.type),
            memory=buffer.memory,
        )
        return with_location(op, buffer.origin)


def place_buffers(
    module: ModuleOp, anchor: Operation, buffers: Sequence[PlannedBuffer], target: Target
) -> int:
    """Puts the buffers in front of ``anchor``, those that live longest first. Returns the bytes of
    queues in scratch memory. Raises ``InputError`` where these need more than there are."""
    ordered = sorted(buffers, key=lambda buffer: PLACING_ORDER.index(buffer.role))
    placed = [_Placed(buffer, buffer.layout or _layout(buffer, target)) for buffer in ordered]
    # Buffers begin with a page, and on a stack of their own where granules are larger.
    plan = plan_addresses(
        [
            Request(each.buffer.name, each.bytes, each.buffer.life.first, each.buffer.life.last)
            for each in placed
            if each.buffer.memory is BufferMemory.HBM
        ],
        stacks=max(1, target.stacks // target.memory_domains),
        granule=max(GRANULE, target.interleave_granule),
    )
    queues = [each for each in placed if each.buffer.memory is BufferMemory.SCRATCH]
    of_queues, queue_bytes = _place_queues(queues, target)
    addresses = {**plan.addresses, **of_queues}
    for each in placed:
        module.body.block.insert_op_before(each.at(addresses[each.buffer.name]), anchor)
    return queue_bytes


def _layout(buffer: PlannedBuffer, target: Target) -> Layout:
    # In a mesh of carriers there is one way.
    carriers = 1 if target.grid else target.carriers
    stacks = target.stacks // target.memory_domains
    return buffer_layout(
        buffer.role,
        buffer.type.get_shape(),
        element_bytes(buffer.type),
        buffer.reads,
        channels=target.channels,
        row_unit=rotation_unit(target.interleave_granule, stacks, carriers),
    )


def _place_queues(queues: Sequence[_Placed], target: Target) -> tuple[Mapping[str, int], int]:
    """Addresses of the buffers in scratch memory, and their bytes: in the region for queues at its
    top, for peers may write before this device starts a launch."""
    sizes = {each.buffer.name: each.bytes for each in queues}
    available = target.queue_bytes
    first = target.scratch_bytes_per_cu - available
    try:
        return plan_queues(sizes, first, available, SCRATCH_ALIGNMENT)
    except OverflowError as error:
        largest = max(queues, key=lambda each: each.bytes)
        hint = "queues of fewer slots or smaller tiles fit"
        location = location_of(largest.buffer.origin)
        raise InputError(Diagnostic(str(error), location, hint=hint)) from None
