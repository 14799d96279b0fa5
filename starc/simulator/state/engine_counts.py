"""What is counted of the engines of a compute unit, per launch and device: first for each engine of
``starc.backend.program.Engine``, then for the device."""

from __future__ import annotations

from typing import Final

from starc.backend.program import Engine

# Of an engine.
BUSY: Final = 0  # picoseconds
FIRST: Final = 1  # begin of its first work, -1 before
LAST: Final = 2  # end of its last work
GAPS: Final = 3  # times that it began later than it had ended
HELD: Final = 4  # picoseconds that its stream waited for semaphores
AWAITED: Final = 5  # for counters
INSTRUCTIONS: Final = 6
PER_ENGINE: Final = 7

# Commands that the CPU issued, by class.
COMMANDS: Final = len(Engine) * PER_ENGINE
COMMAND_NAMES: Final = (
    "composite",
    "load",
    "store",
    "send",
    "signal",
    "receive",
    "matrix",
    "math",
)

# Instructions of the DMA, and the requests that they took.
MOVES: Final = COMMANDS + len(COMMAND_NAMES)
MOVE_NAMES: Final = ("loads", "gets", "stores", "puts", "signals", "requests")

# Puts to other devices, by the nearest class of links between them.
MESSAGES: Final = MOVES + len(MOVE_NAMES)
MESSAGE_NAMES: Final = ("die", "usr", "xgmi")
ENGINE_COUNTS: Final = MESSAGES + len(MESSAGE_NAMES)
