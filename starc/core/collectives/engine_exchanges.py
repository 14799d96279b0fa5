"""Estimated times of collectives on machines whose devices work as engines.

A device has one workgroup there, whose CPU gives commands one by one, and no caches: whatever is
sent on, combined or put together again comes from the memory and goes there, at the place of the
receiver. A collective is a row of *phases*: a device waits for what the phase before has sent to
it, loads that and its own part, combines them, puts the sum to others, waits until it is there and
signals. Parts are pieces; loads run ahead of what uses them, so that a phase takes the first
piece's way through all engines and the time of the slowest of them for the others. Nobody else
fills the gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starc.core.collectives.step_loads import Step
    from starc.targets.target import Target, Transport

PIECE_BYTES: Final = 8192
"""What kernels of exchanges move at a time, at most."""
ELEMENT_BYTES: Final = 2
"""Of an element that is combined: activations."""
UNROLLED: Final = 8
"""As many parts are loaded and added in a loop of their own, piece by piece."""


@dataclass(frozen=True)
class Phase:
    """What a device does between two waits: it takes what ``taken`` has brought (None: nothing is
    combined) and hands on what ``sent`` says (None: it keeps the result); ``times`` in a row.
    It ``passes_on`` what has come and is not combined."""

    times: int
    taken: Step | None
    sent: Step | None
    passes_on: bool = False


@dataclass(frozen=True)
class PhaseTime:
    """Seconds of a phase: ``fixed`` do not depend on the bytes, ``busy`` are those of each
    resource on which the bytes are, ``first`` those of the first piece's way through all."""

    fixed: float
    busy: dict[str, float]
    first: float
    pieces: int

    def seconds(self) -> float:
        """All of it."""
        slowest = max(self.busy.values(), default=0.0)
        return self.fixed + self.first + slowest * (self.pieces - 1) / self.pieces

    def bound_by(self) -> str:
        """The busiest resource."""
        return max(self.busy, key=lambda name: self.busy[name])


def phases_of(steps: Sequence[Step]) -> Iterator[Phase]:
    """The phases of a schedule: each step's parts are combined in the phase behind it."""
    taken: Step | None = None
    for number, step in enumerate(steps):
        arrives = step if step.arrivals else None
        passes_on = taken is None and number > 0
        if step.pulled:
            # What there is to read is told first.
            yield Phase(1, None, step)
        elif taken == arrives or step.times == 1:
            yield Phase(step.times, taken, step, passes_on)
        else:
            yield Phase(1, taken, step)
            yield Phase(step.times - 1, arrives, step)
        taken = arrives
    if taken is not None:
        yield Phase(1, taken, None)


@dataclass(frozen=True)
class _Work:
    """What a device does in a phase. Bytes: ``came`` from others, in ``parts``, its ``own`` part of
    what they are combined with, what it ``puts`` and what it ``keeps``; ``handed`` and ``loaded``
    are the picoseconds of commands for a piece that leaves or comes."""

    came: float
    parts: int
    own: float
    puts: float
    kept: float
    pieces: int
    loaded: float
    handed: float

    @classmethod
    def of(cls, phase: Phase, payload: int, target: Target, operands: int) -> _Work:
        taken, sent = phase.taken, phase.sent
        came = taken.reduced * payload if taken is not None else 0.0
        parts = taken.arrivals if taken is not None else 0
        copies = max(1.0, sent.sent / sent.read) if sent is not None and sent.read else 0.0
        own = came / parts if parts else (sent.read * payload if sent is not None else 0.0)
        is_done = taken is not None and (sent is None or not sent.arrivals)
        issue = target.issue_ps
        return cls(
            came=came,
            parts=parts,
            own=own,
            puts=sent.sent * payload if sent is not None else 0.0,
            kept=own if is_done else 0.0,
            pieces=_pieces(own, taken, sent, operands),
            loaded=issue["load"] * (1 + parts) + issue["math"] * parts,
            handed=issue["send"] * copies + issue["store"] * is_done,
        )


def phase_time(
    phase: Phase, payload: int, target: Target, how: Transport, operands: int, *, ahead: bool
) -> PhaseTime:
    """The time of one of the ``times`` of a phase. Where loads do not run ``ahead`` of puts, each
    piece goes all the way before the next one."""
    taken, sent = phase.taken, phase.sent
    if sent is not None and sent.pulled:
        told = sent.peers * target.issue_ps["send"] + how.step_ps + sent.way_ps
        return PhaseTime((told + target.scratch_latency_ps) * 1e-12, {"latency": 0.0}, 0.0, 1)
    work = _Work.of(phase, payload, target, operands)
    pieces, issue = work.pieces, target.issue_ps
    pulled = taken is not None and taken.pulled
    read = {
        "memory": (work.own + (0.0 if pulled else work.came)) / target.hbm_rate,
        "vector": work.came / ELEMENT_BYTES / _elements_per_second(target),
    }
    write = _writes(work, taken if pulled else sent, payload, target)
    busy = {**write, "memory": read["memory"] + write["memory"], "vector": read["vector"]}
    busy["latency"] = pieces * (work.loaded + work.handed) * 1e-12
    latency = _latency_ps(phase, target)
    if work.parts >= UNROLLED:
        # A piece's parts are added before the next piece begins.
        busy["latency"] += pieces * (latency + issue["load"]) * 1e-12
    if not ahead and phase.passes_on:
        way = latency + issue["load"] + issue["send"]
        busy["latency"] = pieces * way * 1e-12 + read["memory"] + max(write.values())
    fixed = _fixed_ps(phase, work, latency, target, how, operands)
    write["latency"] = pieces * work.handed * 1e-12
    combined = max(read["vector"], pieces * work.parts * issue["math"] * 1e-12)
    first = (read["memory"] + combined + max(write.values())) / pieces
    return PhaseTime(fixed * 1e-12, busy, first, pieces)


def _writes(work: _Work, over: Step | None, payload: int, target: Target) -> dict[str, float]:
    """Seconds of what leaves a device, and of the way of ``over`` on the links."""
    links: dict[str, float] = {}
    port = (work.puts + work.kept) / target.per_clock(target.cu_port_bytes_per_clock)
    written = work.kept / target.hbm_rate
    if over is not None:
        links = {name: load * payload / target.link_rate[name] for name, load in over.links}
        written += over.received * payload / target.hbm_rate
    return {**links, "port": port, "memory": written}


def _latency_ps(phase: Phase, target: Target) -> int:
    """Picoseconds from a command until its data are there."""
    if phase.taken is not None and phase.taken.pulled:
        return target.memory_latency_ps + 2 * phase.taken.way_ps
    return target.memory_latency_ps


def _fixed_ps(
    phase: Phase, work: _Work, latency: int, target: Target, how: Transport, operands: int
) -> float:
    """Picoseconds that do not depend on the bytes."""
    taken, sent, issue = phase.taken, phase.sent, target.issue_ps
    released = 0
    if taken is not None and taken.pulled:
        # In the end owners are told, and nobody ends before his are.
        released = work.parts * (issue["receive"] + target.scratch_latency_ps)
    waits = work.parts if work.parts else 1
    fixed = waits * (issue["receive"] + target.scratch_latency_ps) + issue["load"] + latency
    fixed += (operands - 1) * (work.loaded + work.handed) + released
    if sent is not None:
        # Puts are there before the signals leave; the CPU has given those by then.
        there = max(2 * sent.way_ps, how.step_ps + issue["send"] * sent.peers)
        fixed += there + sent.mean_way_ps
    else:
        fixed += target.memory_latency_ps - target.mall_latency_ps if work.kept else 0
    return fixed


def _pieces(own: float, taken: Step | None, sent: Step | None, operands: int) -> int:
    """Pieces that a device works on one behind the other in a phase."""
    step = taken if taken is not None else sent
    chunks = 1
    if sent is not None:
        chunks = max(1, sent.chunks)
    if step is None or own <= 0:
        return chunks
    each = own / operands / chunks
    return chunks * max(1, -int(-each // PIECE_BYTES))


def _elements_per_second(target: Target) -> float:
    units = target.cus_per_die * target.dies_per_device
    return units * target.vector_ops_per_clock / float(target.cycle_ps) * 1e12
