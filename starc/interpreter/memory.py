"""Planned memory of the lockstep interpreter: buffers at addresses that clobber each other.

Every device has the buffers at the same addresses. A store to a buffer destroys whatever overlaps
it; a read of a buffer that was destroyed, or never written, is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from starc.interpreter.local_semantics import SemanticsError
from starc.interpreter.values import Distributed


@dataclass(frozen=True)
class Extent:
    """A buffer's bytes on every device: ``address .. address + bytes``."""

    name: str
    address: int
    bytes: int

    def overlaps(self, other: Extent) -> bool:
        return (
            self.address < other.address + other.bytes and other.address < self.address + self.bytes
        )


@dataclass
class PlannedMemory:
    """The contents of the buffers of a module."""

    extents: dict[str, Extent]
    contents: dict[str, Distributed] = field(default_factory=dict[str, Distributed])
    destroyed: dict[str, str] = field(default_factory=dict[str, str])
    """Buffers whose contents are gone, with the buffer that was written over them."""

    def read(self, name: str) -> Distributed:
        """The contents of a buffer."""
        if name in self.destroyed:
            raise SemanticsError(
                f"@{name} is read after @{self.destroyed[name]}, which overlaps it, was written"
            )
        if name not in self.contents:
            raise SemanticsError(f"@{name} is read before it is written")
        return self.contents[name]

    def write(self, name: str, value: Distributed) -> None:
        """Stores a value and destroys what overlaps the buffer."""
        self.scribble(name)
        self.contents[name] = value
        self.destroyed.pop(name, None)

    def scribble(self, name: str) -> None:
        """Destroys what overlaps a buffer whose contents are not followed (partial results and
        staging)."""
        own = self._extent(name)
        for other in self.extents.values():
            if other.name != name and own.overlaps(other):
                self.contents.pop(other.name, None)
                self.destroyed[other.name] = name

    def require_disjoint(self, written: Iterable[str], others: Sequence[str]) -> None:
        """Raises ``SemanticsError`` where a launch writes over what it uses at the same time."""
        for name in written:
            for other in others:
                if other != name and self._extent(name).overlaps(self._extent(other)):
                    raise SemanticsError(
                        f"one launch writes @{name} and uses @{other}, which overlap"
                    )

    def require_intact(self, names: Iterable[str]) -> None:
        """Raises ``SemanticsError`` if something was written over one of the buffers."""
        for name in names:
            if name in self.destroyed:
                raise SemanticsError(f"@{self.destroyed[name]} was written over @{name}")

    def _extent(self, name: str) -> Extent:
        if name not in self.extents:
            raise SemanticsError(f"no buffer @{name} in the module")
        return self.extents[name]
