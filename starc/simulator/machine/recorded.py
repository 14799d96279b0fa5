"""Which numbers of a machine the simulator reads, and which a program has in its records.

Passes turn some numbers into records: gaps and prologues of launches, delays for what it costs to
issue a command, semaphores for queues of commands, slots of queues, bytes in flight, registers.
Another value of one of these changes nothing in a program that is there already.
"""

from __future__ import annotations

from typing import Final

from starc.targets.target import Target

_RECORDED: Final = (
    "issue.",
    "kernel.gap",
    "kernel.prologue_",
    "kernels.",
    "transports.",
    "structure.queue_",
    "structure.register_bytes_per_lane",
    "structure.working_bytes_per_lane",
    "structure.async_copies",
    "structure.multicast",
    "structure.wave_size",
    "compute.stateful_composites",
    "dispatch.window_bytes_per_wave",
    "copy_engines.start",
    "memory.access_bytes",
    "memory.nominal_bytes",
)
"""What keys of numbers that the simulator does not read begin with."""


def reads(target: Target, key: str) -> bool:
    """Whether a simulation on a machine reads the number of a key. Where commands have a cost the
    clock is in the records too, as the picoseconds of their cycles. A GPU has one link to a switch,
    whatever its ports."""
    if target.issue_ps and key.startswith("clock."):
        return False
    if target.network == "switch" and key == "structure.ports":
        return False
    return not key.startswith(_RECORDED)
