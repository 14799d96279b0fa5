"""What is wrong with a machine file, collected rule by rule."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from starc.diagnostics import Diagnostic
from starc.targets.machine_file import MachineFile

_SHOWN: Final = 8
"""Entries of a list that a message shows."""


class FileProblems:
    """The problems of a file, and its keys without a value that others can be held against."""

    def __init__(self, file: MachineFile) -> None:
        self.file = file
        self.problems: list[Diagnostic] = []
        self.bad = set[str]()

    def wrong(self, key: str, message: str, hint: str | None = None) -> None:
        self.problems.append(Diagnostic(message, key=f"{self.file.label}: {key}", hint=hint))

    def unusable(self, key: str, message: str, hint: str | None = None) -> None:
        """Wrong, and other rules say nothing about it."""
        self.wrong(key, message, hint)
        self.bad.add(key.removesuffix(".value"))


def listed(items: Iterable[object]) -> str:
    """A list as messages have it: the first entries."""
    shown = [str(item) for item in islice(items, _SHOWN + 1)]
    return ", ".join([*shown[:_SHOWN], *(["..."] if len(shown) > _SHOWN else [])])
