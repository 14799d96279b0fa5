"""Partition modes of GPUs: into how many devices the dies of a GPU go, and into how many domains
its memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

COMPUTE_PARTITIONS: Final[Mapping[str, int | None]] = {
    "spx": 1,
    "dpx": 2,
    "tpx": 3,
    "qpx": 4,
    "cpx": None,
}
"""Devices of a GPU in each mode; CPX makes every die one."""
MEMORY_PARTITIONS: Final[Mapping[str, int]] = {"nps1": 1, "nps2": 2, "nps4": 4, "nps8": 8}
"""Domains of the memory of a GPU in each mode."""


@dataclass(frozen=True)
class PartitionMode:
    """A mode of a name in two parts: ``cpx-nps4`` is CPX with NPS4; ``memory`` may be empty."""

    compute: str
    memory: str

    @classmethod
    def of(cls, mode: str) -> PartitionMode:
        compute, _, memory = mode.partition("-")
        return cls(compute, memory)

    @property
    def is_partition(self) -> bool:
        return self.compute in COMPUTE_PARTITIONS
