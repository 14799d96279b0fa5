"""Standard error: warnings, and progress where somebody watches."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status


def warn(message: str) -> None:
    """Prints a warning on standard error."""
    print(f"warning: {message}", file=sys.stderr)


class Progress:
    """Shows the running step on one line of a terminal, unless ``quiet``; anywhere else it prints
    nothing, or with ``verbose`` a line a step."""

    def __init__(self, *, verbose: bool = False, quiet: bool = False) -> None:
        self._status: Status | None = None
        self._verbose = verbose
        self._terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not quiet

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()

    def step(self, name: str) -> None:
        """A step begins."""
        if self._verbose:
            print(f"{name} ...", file=sys.stderr)
        elif self._terminal:
            if self._status is None:
                from rich.console import Console
                from rich.status import Status

                self._status = Status(name, console=Console(stderr=True))
                self._status.start()
            self._status.update(name)

    def clear(self) -> None:
        """Takes the line away, before a result is printed."""
        if self._status is not None:
            self._status.stop()
            self._status = None


def write_text(path: Path, text: str) -> None:
    """Writes a file under a temporary name in its folder, then renames it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
