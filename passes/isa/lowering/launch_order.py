"""Which launches must wait for a launch of another queue.

Launches of a queue run in order. Across queues a launch waits only where it says so: for the last
earlier launch that wrote what it reads, or used what it writes. Buffers count by their bytes, so
that a buffer which takes over memory of another waits for the other's users as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_buffers import BufferOp


@dataclass(frozen=True)
class _Uses:
    """The bytes that a launch reads and writes."""

    reads: tuple[range, ...]
    writes: tuple[range, ...]

    def conflicts(self, earlier: _Uses) -> bool:
        """Whether the two must not run at the same time, or in the other order."""
        return (
            _overlap(self.reads, earlier.writes)
            or _overlap(self.writes, earlier.writes)
            or _overlap(self.writes, earlier.reads)
        )


def _overlap(left: Iterable[range], right: Sequence[range]) -> bool:
    return any(a.start < b.stop and b.start < a.stop for a in left for b in right)


def cross_queue_waits(module: ModuleOp) -> dict[LaunchOp, LaunchOp]:
    """For launches over buffers: the launch of another queue that must have ended before one
    starts. A wait that an earlier launch of the same queue has done is left out."""
    spans = {
        op.sym_name.data: range(op.address.value.data, op.address.value.data + op.bytes.value.data)
        for op in module.ops
        if isinstance(op, BufferOp)
    }
    waits: dict[LaunchOp, LaunchOp] = {}
    for function in module.ops:
        launches = [op for op in function.walk() if isinstance(op, LaunchOp)]
        waits.update(_waits(launches, spans))
    return waits


def _waits(launches: Sequence[LaunchOp], spans: Mapping[str, range]) -> dict[LaunchOp, LaunchOp]:
    uses = [_uses(launch, spans) for launch in launches]
    queues = [launch.integer("queue", 0) for launch in launches]
    awaited: dict[int, int] = {}
    found: dict[LaunchOp, LaunchOp] = {}
    for index, launch in enumerate(launches):
        done = awaited.get(queues[index], -1)
        for earlier in reversed(range(done + 1, index)):
            if queues[earlier] != queues[index] and uses[index].conflicts(uses[earlier]):
                found[launch] = launches[earlier]
                awaited[queues[index]] = earlier
                break
    return found


def _uses(launch: LaunchOp, spans: Mapping[str, range]) -> _Uses:
    own = (*launch.workspace_names, *launch.staging_names)
    return _Uses(
        tuple(spans[name] for name in (*launch.read_names, *own)),
        tuple(spans[name] for name in (*launch.written_names, *own)),
    )
