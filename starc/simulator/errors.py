"""What makes a program that cannot be simulated."""

from __future__ import annotations


class DecodeError(ValueError):
    """A program that the event core cannot run on this machine."""


class MachineError(ValueError):
    """A machine that the simulator cannot model."""


class DeadlockError(RuntimeError):
    """Workgroups wait for counters, or their streams for semaphores, that nobody will raise.
    ``chain`` names the waits."""

    def __init__(self, chain: tuple[str, ...]) -> None:
        super().__init__("the program deadlocks:\n  " + "\n  ".join(chain))
        self.chain = chain
