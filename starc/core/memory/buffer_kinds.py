"""What a buffer is for, who reaches it, and in which memory it lies."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class BufferRole(StrEnum):
    """How the memory of a whole model counts a buffer."""

    WEIGHT = "weight"
    STATE = "state"
    ACTIVATION = "activation"
    COMMUNICATION = "communication"
    INPUT = "input"
    OUTPUT = "output"


class BufferSpace(StrEnum):
    """Who reads and writes a buffer: its device only, or peers too."""

    PRIVATE = "private"
    SYMMETRIC = "symmetric"


class BufferMemory(StrEnum):
    """The memory that a buffer lies in."""

    HBM = "hbm"
    SCRATCH = "scratch"


PLACING_ORDER: Final = (
    BufferRole.WEIGHT,
    BufferRole.STATE,
    BufferRole.COMMUNICATION,
    BufferRole.INPUT,
    BufferRole.OUTPUT,
    BufferRole.ACTIVATION,
)
"""In which order buffers get addresses: what lives longest comes first."""
