"""Standard error: warnings, and progress where somebody watches."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status


def warn(message: str) -> None:
    """Prints a warning on standard error."""
    print(f"warning: {message}", file=sys.stderr)


def note(message: str) -> None:
    """Prints what is good to know on standard error."""
    print(f"note: {message}", file=sys.stderr)


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


def open_streams() -> bool:
    """Gives the process the standard streams that its caller closed: the next file that is opened
    would take their place. False if standard output was one of them."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stderr = open(os.devnull, "w")
    # What a terminal or a file cannot show is replaced, not an error.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # pyright: ignore
    return sys.stdout is not None  # pyright: ignore[reportUnnecessaryComparison]


def emit(text: str) -> None:
    """Prints a result on standard output. A reader that ends first, as ``head`` does, has what it
    wants: the rest is dropped, and the command's exit code stays its own."""
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()


def drop_output() -> None:
    """Sends what standard output still holds, or gets, nowhere. Python would complain when it
    flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
