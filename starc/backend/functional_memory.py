"""Memory of the devices in functional execution."""

from __future__ import annotations

from starc.backend.numerics import Array, Numerics
from starc.backend.program import Program
from starc.core.extents import DeviceExtents


class FunctionalError(RuntimeError):
    """The program cannot be executed: it deadlocks, reads a tile that nobody wrote, uses memory
    that another buffer has overwritten, or leaves its counters or devices."""


class TooManyInstructions(FunctionalError):
    """The program executes more instructions than the execution was allowed."""


class DeviceMemory:
    """The buffers of one device in physical shape, poisoned until written, and what of them the
    device holds. Writing a buffer destroys those that lie at the same addresses."""

    def __init__(
        self, program: Program, device: int, numerics: Numerics, overlaps: list[list[int]]
    ) -> None:
        self.program = program
        self.device = device
        self.numerics = numerics
        self.overlaps = overlaps
        self.held = [
            DeviceExtents(info.shape) if info.extents is None else info.extents.device(device)
            for info in program.buffers
        ]
        self.arrays: list[Array | None] = [None] * len(program.buffers)
        self.overwritten: dict[int, int] = {}

    def contents(self, index: int) -> Array:
        """A buffer to read, or to write after ``begin_write``."""
        info = self.program.buffers[index]
        if index in self.overwritten and not self.held[index].is_empty:
            other = self.program.buffers[self.overwritten[index]].name
            raise FunctionalError(
                f"@{info.name} of device {self.device} is used after @{other}, which overlaps "
                "it, was written"
            )
        array = self.arrays[index]
        if array is None:
            array = self.arrays[index] = self.numerics.poison(info.shape, info.dtype)
        return array

    def begin_write(self, index: int) -> None:
        """Destroys what a write to the buffer overwrites."""
        self.overwritten.pop(index, None)
        for other in self.overlaps[index]:
            if self.arrays[other] is not None:
                self.arrays[other] = None
                self.overwritten[other] = index

    def fill(self, index: int, values: Array) -> None:
        """Gives a buffer its contents. Raises ``ValueError`` for a wrong shape."""
        info = self.program.buffers[index]
        if tuple(values.shape) != info.shape:
            raise ValueError(f"@{info.name} has shape {info.shape}, got {tuple(values.shape)}")
        self.begin_write(index)
        self.arrays[index] = self.numerics.store(values, info.dtype)


def overlaps(program: Program) -> list[list[int]]:
    """For every buffer those that share memory with it."""
    infos = program.buffers
    order = sorted(range(len(infos)), key=lambda i: (infos[i].memory, infos[i].address))
    result: list[list[int]] = [[] for _ in program.buffers]
    for position, i in enumerate(order):
        end = infos[i].address + infos[i].bytes
        for j in order[position + 1 :]:
            if infos[j].memory != infos[i].memory or infos[j].address >= end:
                break
            result[i].append(j)
            result[j].append(i)
    return result
