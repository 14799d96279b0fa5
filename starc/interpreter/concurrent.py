"""The isa level executed as coroutines, one for each workgroup of every device.

A seed chooses the interleaving, and chooses it against the schedule: streams advance in any order,
some devices run far ahead, loads fetch at any time before their tile is needed, stores and puts are
performed at any time after issue, a signal right after the puts of its own workgroup and possibly
before those of others. Memory and tiles that nobody has written are errors to read; so are tiles of
another iteration, races on buffers, and waits that nothing satisfies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp

from starc.backend.numerics import Array, Mode, Numerics
from starc.dialects import isa
from starc.dialects.element_types import element_type
from starc.dialects.kernel_buffers import BufferOp, logical_extents
from starc.dialects.nn import StackOp
from starc.dialects.sharding import MeshOp
from starc.interpreter.isa_streams import Kernel, decode
from starc.interpreter.isa_tiles import SharedTiles
from starc.interpreter.isa_workgroup import Workgroup
from starc.interpreter.shared_memory import Clock, Lane, ScheduleError, SharedMemory, Thread

Buffers: TypeAlias = Mapping[tuple[int, str], Array]


@dataclass
class CounterElement:
    """A counter of a device: how far it is, and what a waiter learns at each value."""

    value: int = 0
    history: list[tuple[int, Clock]] = field(default_factory=list[tuple[int, Clock]])

    def add(self, amount: int, clock: Clock) -> None:
        self.value += amount
        known = self.history[-1][1].joined(clock) if self.history else clock
        self.history.append((self.value, known))

    def known_at(self, value: int) -> Clock:
        """What the signals that brought the counter to ``value`` tell."""
        if value <= 0:
            return Clock()
        at = bisect_left(self.history, value, key=lambda entry: entry[0])
        return self.history[at][1] if at < len(self.history) else Clock()


@dataclass
class _LaneState:
    """The launches of a queue of a device."""

    lane: Lane
    launches: list[isa.LaunchOp]
    position: int = 0
    clock: Clock = field(default_factory=Clock)
    running: list[Workgroup] = field(default_factory=list["Workgroup"])
    started: bool = False


class Interleaving:
    """How a seed treats the schedule."""

    def __init__(self, seed: int, devices: int) -> None:
        self.random = Random(seed)
        self.deliver = self.random.choice((0.0, 0.1, 0.5, 0.9))
        self.burst = self.random.choice((1, 3, 20))
        favoured = self.random.sample(range(devices), self.random.randint(0, devices))
        self.favoured = frozenset(favoured if self.random.random() < 0.5 else ())

    def ahead(self, candidates: Sequence[Workgroup]) -> list[Workgroup]:
        """Those of favoured devices."""
        if not self.favoured:
            return []
        return [each for each in candidates if each.thread.lane[0] in self.favoured]

    def pick(self, candidates: Sequence[Workgroup], ahead: Sequence[Workgroup]) -> Workgroup:
        if self.favoured and self.random.random() < 0.9 and ahead:
            return self.random.choice(ahead)
        return self.random.choice(candidates)


class ConcurrentMachine:
    """All devices of a module at the isa level.

    ``buffers`` gives contents by (device rank, buffer name) in the buffer's physical shape; buffers
    without contents are poisoned, and so is what a device does not hold by the type of a buffer:
    accesses are clipped to what it holds.
    """

    def __init__(
        self, module: ModuleOp, buffers: Buffers, *, seed: int = 0, mode: Mode = "exact"
    ) -> None:
        self.module = module
        self.numerics = Numerics(mode)
        mesh = next(op.mesh for op in module.ops if isinstance(op, MeshOp))
        extents = {
            op.sym_name.data: logical_extents(op.type, mesh)
            for op in module.ops
            if isinstance(op, BufferOp)
        }
        self.axes = tuple(axis.size for axis in mesh.axes)
        self.devices = mesh.size
        self.interleaving = Interleaving(seed, self.devices)
        self.kernels: dict[str, Kernel] = {
            op.sym_name.data: decode(op) for op in module.ops if isinstance(op, isa.KernelOp)
        }
        self.counts = {
            op.sym_name.data: op.count.value.data
            for op in module.ops
            if isinstance(op, isa.CounterOp)
        }
        self.counters: dict[tuple[int, str, int], CounterElement] = {}
        operations = [op for op in module.ops if isinstance(op, BufferOp)]
        self.memory = SharedMemory(self.numerics, _overlaps(operations))
        for device in range(self.devices):
            for op in operations:
                name = op.sym_name.data
                held = extents[name]
                self.memory.add(
                    device,
                    name,
                    tuple(op.shape),
                    element_type(op.type.element_type),
                    symmetric=op.space.data == "symmetric",
                    kept=op.role.data != "communication",
                    contents=buffers.get((device, name)),
                    held=None if held is None else held.device(device),
                )
        unknown = {key for key in buffers if key not in self.memory.cells}
        if unknown:
            raise ValueError(f"there is no buffer {sorted(unknown)[0]}")

    def contents(self) -> dict[tuple[int, str], Array]:
        """The contents of all buffers that are written at least in part, and of those of which a
        device holds nothing."""
        return {
            key: cells.values
            for key, cells in self.memory.cells.items()
            if cells.held.is_empty or (cells.overwritten is None and cells.written.any())
        }

    def counter(self, device: int, name: str, element: int, text: str) -> CounterElement:
        if not 0 <= element < self.counts[name]:
            raise ScheduleError(
                "bounds", f"{text}: @{name}[{element}], of {self.counts[name]} elements"
            )
        return self.counters.setdefault((device, name, element), CounterElement())

    def run(self, functions: Sequence[str] | None = None) -> None:
        """Executes layers by name, by default those of the stack in order, each once. Between
        layers all devices meet."""
        found = {op.sym_name.data: op for op in self.module.ops if isinstance(op, FuncOp)}
        if functions is None:
            stack = next((op for op in self.module.ops if isinstance(op, StackOp)), None)
            names = [name for name, _ in stack.entries] if stack is not None else list(found)
            functions = list(dict.fromkeys(names))
        for name in functions:
            self._run_layer(found[name])

    def _run_layer(self, function: FuncOp) -> None:
        self.counters.clear()
        self.memory.meet()
        launches = [op for op in function.walk() if isinstance(op, isa.LaunchOp)]
        queues = sorted({op.queue.data for op in launches})
        lanes = [
            _LaneState((device, queue), [op for op in launches if op.queue.data == queue])
            for device in range(self.devices)
            for queue in queues
        ]
        _Scheduler(self, lanes).run()
        for device in range(self.devices):
            known = Clock()
            for lane in lanes:
                if lane.lane[0] == device:
                    known = known.joined(lane.clock)
            self.memory.check_end(device, known)

    def coordinates(self, device: int) -> list[int]:
        values: list[int] = []
        rest = device
        for size in reversed(self.axes):
            values.append(rest % size)
            rest //= size
        return [device, *reversed(values)]


def _overlaps(operations: Sequence[BufferOp]) -> dict[str, list[str]]:
    spans = sorted(
        (
            "hbm" if op.memory is None else op.memory.data,
            op.address.value.data,
            op.address.value.data + op.bytes.value.data,
            op.sym_name.data,
        )
        for op in operations
    )
    result: dict[str, list[str]] = {name: [] for _, _, _, name in spans}
    for i, (memory, _, end, name) in enumerate(spans):
        for where, start, _, other in spans[i + 1 :]:
            if where != memory or start >= end:
                break
            result[name].append(other)
            result[other].append(name)
    return result


class _Scheduler:
    """Interleaves the streams of one layer."""

    def __init__(self, machine: ConcurrentMachine, lanes: list[_LaneState]) -> None:
        self.machine = machine
        self.lanes = lanes
        self.ended: dict[tuple[int, str], Clock] = {}

    def run(self) -> None:
        interleaving = self.machine.interleaving
        random = interleaving.random
        for lane in self.lanes:
            self._start(lane)
        while True:
            active = [workgroup for lane in self.lanes for workgroup in lane.running]
            if not active:
                waiting = [lane for lane in self.lanes if lane.position < len(lane.launches)]
                if not waiting:
                    return
                if not any([self._start(lane) for lane in waiting]):
                    raise ScheduleError("deadlock", "the queues wait for each other")
                continue
            able = [workgroup for workgroup in active if not workgroup.blocked()]
            loaded = [workgroup for workgroup in active if workgroup.pending]
            if not able and not loaded:
                raise ScheduleError("deadlock", self._deadlock(active))
            able_ahead, loaded_ahead = interleaving.ahead(able), interleaving.ahead(loaded)
            for _ in range(len(active)):
                if loaded and (not able or random.random() < interleaving.deliver):
                    workgroup = interleaving.pick(loaded, loaded_ahead)
                    if workgroup.pending and workgroup.deliver(random) and not able:
                        break
                elif able:
                    workgroup = interleaving.pick(able, able_ahead)
                    for _ in range(random.randint(1, interleaving.burst)):
                        if workgroup.blocked() or not workgroup.step():
                            break
            self._retire()

    def _start(self, lane: _LaneState) -> bool:
        """Starts the lane's next launch if it may; whether it did."""
        if lane.started or lane.position == len(lane.launches):
            return False
        launch = lane.launches[lane.position]
        depends = launch.attributes.get("depends")
        if isinstance(depends, StringAttr):
            other = self.ended.get((lane.lane[0], depends.data))
            if other is None:
                return False
            lane.clock = lane.clock.joined(other)
        first = 0
        for name, grid in launch.parts:
            kernel = self.machine.kernels[name]
            for index in range(grid):
                shared = SharedTiles(kernel, lane.clock)
                for engine, body in kernel.bodies:
                    label = launch.label.data + (f" {engine} stream" if engine else "")
                    thread = Thread(lane.lane, lane.position, first + index, label)
                    lane.running.append(
                        Workgroup(self.machine, kernel, body, thread, index, lane.clock, shared)
                    )
            first += grid
        lane.started = True
        return True

    def _retire(self) -> None:
        for lane in self.lanes:
            if not lane.started:
                self._start(lane)
                continue
            if not all(workgroup.ended and not workgroup.pending for workgroup in lane.running):
                continue
            for workgroup in lane.running:
                lane.clock = lane.clock.joined(workgroup.final_clock())
            label = lane.launches[lane.position].label.data
            lane.position += 1
            lane.clock = lane.clock.after(lane.lane, lane.position)
            self.ended[lane.lane[0], label] = lane.clock
            lane.running, lane.started = [], False
            self._start(lane)

    def _deadlock(self, active: Sequence[Workgroup]) -> str:
        """Who waits for whom, starting anywhere, until someone occurs twice."""
        stuck = [workgroup for workgroup in active if workgroup.wait is not None]
        texts: list[str] = []
        seen: list[Workgroup] = []
        current = stuck[0]
        while current not in seen:
            seen.append(current)
            texts.append(current.wait_text())
            helpers = [other for other in stuck if other.may_help(current) and other not in seen]
            if not helpers:
                break
            current = helpers[0]
        return "deadlock: " + "; ".join(texts)


def run_isa(
    module: ModuleOp,
    device_buffers: Buffers,
    *,
    seed: int = 0,
    mode: Mode = "exact",
    functions: Sequence[str] | None = None,
) -> dict[tuple[int, str], Array]:
    """Executes a module at the isa level and returns the buffers of all devices.

    See ``ConcurrentMachine``. Raises ``ScheduleError`` for a bug in the schedule.
    """
    machine = ConcurrentMachine(module, device_buffers, seed=seed, mode=mode)
    machine.run(functions)
    return machine.contents()


__all__ = ["ConcurrentMachine", "ScheduleError", "run_isa"]
