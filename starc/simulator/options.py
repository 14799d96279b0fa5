"""How a program is simulated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from starc.targets.target import Target


@dataclass(frozen=True)
class SimulationOptions:
    """How to run. ``engine`` and ``jit`` choose the implementation and ``full_node`` has all GPUs
    simulated where one could stand for them: they change no result. The others change what is
    simulated: ``skew`` lets workgroups start at hashed times instead of in lockstep; ``striped``
    makes two granules on the two stacks of a carrier one request; ``warm`` reports a second pass
    over the same addresses; ``eager`` launches kernels one by one instead of as a graph;
    ``page_walk`` adds what walks of the page table cost; ``governor`` runs a program once more at
    the clock that the power cap leaves, where that is below the largest; ``bins_ps`` is the width
    of the bins of the counters over time; ``log`` keeps a log of all instructions, of the devices
    ``log_devices`` or of all."""

    engine: Literal["calendar", "heap"] = "calendar"
    jit: bool = True
    skew: bool = True
    striped: bool = True
    target: Target | None = None  # instead of the one in the program
    full_node: bool = False
    warm: bool = False
    eager: bool = False
    page_walk: bool = False
    governor: bool = False
    bins_ps: int | None = None
    log: bool = False
    log_devices: tuple[int, ...] | None = None
    piece_bytes: int | None = None  # a power of two that cuts requests smaller than the machine's
