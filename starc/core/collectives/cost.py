"""Estimated times of collectives, from what their schedules put on the links in every step.

A step of a schedule costs a fixed time (reading what came, the acknowledgement of its puts, the
signal) and the time of its busiest resource: a link between carriers, a link between GPUs, the
bytes that a device keeps in flight, its memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starc.core.collectives.engine_exchanges import phase_time, phases_of
from starc.core.collectives.schedules import ring_strides
from starc.core.collectives.step_loads import Step, steps_of
from starc.core.collectives.table import BEGIN_WITH_MATES, STRIDED, legal_algorithms
from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.targets.graph import gpu_neighbours

if TYPE_CHECKING:
    from starc.targets.target import Target, Transport


def strides_of(
    algorithm: str, mesh: Mesh, axes: Sequence[AxisRef], target: Target
) -> tuple[int, ...]:
    """The strides of the rings of an algorithm: several where all devices of the group are linked
    to each other."""
    if algorithm in STRIDED and is_fully_connected(mesh, axes, target):
        return ring_strides(mesh.refs_size(axes))
    return (1,)


def is_fully_connected(mesh: Mesh, axes: Sequence[AxisRef], target: Target) -> bool:
    """Whether no device of a group passes on what others exchange: the group lies on one axis of
    the outermost level, whose GPUs have a port for each other or one to a switch."""
    names = {axis.name for axis in axes}
    if len(names) != 1:
        return False
    axis = mesh.axis(names.pop())
    if axis.level != mesh.levels()[0]:
        return False
    if target.network == "links":
        return all(len(gpu_neighbours(target, g)) == target.gpus - 1 for g in range(target.gpus))
    return target.network == "switch" or axis.size <= target.ports


def transports_of(operation: str, target: Target) -> tuple[str, ...]:
    """The transports of a target that can execute a collective, by name: copy engines only move
    data."""
    return tuple(
        name
        for name, how in sorted(target.transports.items())
        if not (how.copy_engines and CollectiveKind(operation).combines)
    )


@dataclass(frozen=True)
class CollectiveTime:
    """An estimate in seconds and what most of it is spent on: ``latency``, a link class,
    ``window`` or ``memory``. ``fixed`` are seconds that do not depend on the bytes."""

    seconds: float
    bound_by: str
    fixed: float


def collective_time(
    operation: str,
    algorithm: str,
    transport: str,
    payload: int,
    mesh: Mesh,
    axes: Sequence[AxisRef],
    target: Target,
    strides: tuple[int, ...] = (1,),
    *,
    operands: int = 1,
) -> CollectiveTime:
    """Seconds of a collective launch of ``payload`` bytes (what one device holds in full, all
    operands together), with its prologue and without the gap in front of it."""
    how = target.transports[transport]
    steps = steps_of(operation, algorithm, mesh, axes, target, strides)
    if target.engines:
        ahead = algorithm not in BEGIN_WITH_MATES
        return _on_engines(steps, payload, target, how, operands, ahead=ahead)
    fixed = (how.start_ps + target.prologue_ps.get("collective", 0)) * 1e-12
    busy: dict[str, float] = {}
    hidden = 0.0
    ranks = mesh.refs_size(axes)
    for step in steps:
        own_fixed = _fixed(step, target, how, operands)
        loads = _loads(step, payload, ranks, target, how)
        slowest = max(loads, key=lambda name: loads[name])
        own_busy = step.times * loads[slowest]
        fixed += own_fixed
        busy[slowest] = busy.get(slowest, 0.0) + own_busy
        # Workgroups that are ahead in one step fill the gaps of others; what is only passed on has
        # fewer gaps to fill.
        filled = 1.0 if step.arrivals else 0.5
        hidden += filled * (step.times - 1) / step.times * min(own_fixed, own_busy)
    # What a device holds of the payload to begin with, or has in the end, once more.
    rest = 2 * payload / ranks if steps else 2 * payload
    busy["memory"] = busy.get("memory", 0.0) + rest / target.hbm_rate
    seconds = fixed + sum(busy.values()) - hidden
    bound_by = max(busy, key=lambda name: busy[name])
    return CollectiveTime(seconds, "latency" if 2 * fixed > seconds else bound_by, fixed)


def _on_engines(
    steps: Sequence[Step],
    payload: int,
    target: Target,
    how: Transport,
    operands: int,
    *,
    ahead: bool,
) -> CollectiveTime:
    """Seconds of the phases of a schedule one after the other."""
    fixed = (how.start_ps + target.prologue_ps.get("collective", 0)) * 1e-12
    seconds = fixed
    busy: dict[str, float] = {"memory": 0.0}
    for phase in phases_of(steps):
        time = phase_time(phase, payload, target, how, operands, ahead=ahead)
        fixed += phase.times * time.fixed
        seconds += phase.times * time.seconds()
        name = time.bound_by()
        busy[name] = busy.get(name, 0.0) + phase.times * time.busy[name]
    bound_by = max(busy, key=lambda name: busy[name])
    return CollectiveTime(seconds, "latency" if 2 * fixed > seconds else bound_by, fixed)


def _fixed(step: Step, target: Target, how: Transport, operands: int) -> float:
    """Seconds of a run of equal steps apart from their bytes. In a step a device reads what came,
    puts, and waits until its puts are acknowledged (the transport's own time passes meanwhile)
    before it signals; flags beside the data need no acknowledgement. Steps follow each other at
    the pace of the slowest device, and of the ways together: a chunk that goes round crosses all
    of them."""
    read = target.l2_latency_ps + (target.mall_latency_ps if step.arrivals else 0)
    if step.pulled:
        # Parts are asked for, and are not there yet; in the end their owners are told.
        read += target.mall_latency_ps + step.way_ps
    read += (step.peers - 1) * (target.l2_latency_ps + target.store_latency_ps)
    read += max(0, step.arrivals - 1) * target.mall_latency_ps
    read += (operands - 1) * target.l2_latency_ps
    if how.copy_engines:
        # A descriptor for every operand and device that it goes to; nothing lies in an L2.
        read += operands * step.peers * target.copy_engine_start_ps
        read += target.memory_latency_ps - target.l2_latency_ps
    ways = 1 if how.payload_factor > 1 else 2
    slowest = read + max(how.step_ps, ways * step.way_ps)
    mean = read + max(how.step_ps, ways * step.mean_way_ps)
    pace = max(step.times * slowest + step.way_ps, step.times * (mean + step.mean_way_ps))
    return pace * 1e-12


def _loads(
    step: Step, payload: int, ranks: int, target: Target, how: Transport
) -> dict[str, float]:
    """Seconds that the bytes of one step take on each resource."""
    wire = payload * how.payload_factor
    round_trip = (2 * step.way_ps + target.memory_latency_ps) * 1e-12
    units = target.cus_per_die * target.dies_per_device
    workgroups = how.shared_by(payload // ranks, units)
    # What came is read again before it leaves the cache in front of the memory, if there is room.
    came = (step.sent + step.received) * payload
    if how.copy_engines:
        # What is moved is in flight from its read to its acknowledgement.
        round_trip += target.memory_latency_ps * 1e-12
    missed = min(1.0, max(0.0, came / max(1, target.mall_bytes) - 0.5))
    read = step.sent if step.arrivals else 0.0
    memory = (read + step.received + missed * step.reduced) * payload
    if step.pulled:
        memory = step.sent * payload
    engines: dict[str, float] = {}
    if how.copy_engines:
        engines["copy_engine"] = step.sent * wire / (workgroups * target.copy_engine_rate)
    links = {name: load * wire / target.link_rate[name] for name, load in step.links}
    return engines | {
        **links,
        "window": step.sent * wire * round_trip / (workgroups * how.window_bytes),
        "memory": memory / target.hbm_rate,
    }


def pipelined(phases: Sequence[CollectiveTime], parts: int) -> CollectiveTime:
    """Phases of one launch that hand on the data in ``parts`` parts and work side by side: each
    part pays the phases' latencies again, and the slowest phase sets the pace."""
    each = [phase.fixed + (phase.seconds - phase.fixed) / parts for phase in phases]
    slowest = max(range(len(phases)), key=lambda index: each[index])
    total = sum(each) + (parts - 1) * each[slowest]
    return CollectiveTime(total, phases[slowest].bound_by, sum(phase.fixed for phase in phases))


@dataclass(frozen=True)
class Choice:
    """A way to execute a collective and its estimate."""

    algorithm: str
    transport: str
    strides: tuple[int, ...]
    time: CollectiveTime


def choices(
    operation: str,
    payload: int,
    mesh: Mesh,
    axes: Sequence[AxisRef],
    target: Target,
    *,
    algorithms: Sequence[str] | None = None,
    transports: Sequence[str] | None = None,
    operands: int = 1,
) -> list[Choice]:
    """Every legal way to execute a collective, cheapest first; equal ones by name."""
    legal = legal_algorithms(operation, mesh, axes, target)
    found: list[Choice] = []
    for algorithm in legal if algorithms is None else [a for a in algorithms if a in legal]:
        strides = strides_of(algorithm, mesh, axes, target)
        able = transports_of(operation, target)
        for transport in able if transports is None else [t for t in transports if t in able]:
            time = collective_time(
                operation,
                algorithm,
                transport,
                payload,
                mesh,
                axes,
                target,
                strides,
                operands=operands,
            )
            found.append(Choice(algorithm, transport, strides, time))
    return sorted(
        found, key=lambda choice: (choice.time.seconds, choice.algorithm, choice.transport)
    )
