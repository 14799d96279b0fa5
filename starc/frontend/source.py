"""Reading a model file: every way in which that can fail is a message, never a traceback."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from starc.diagnostics import Diagnostic, InputError, Location

LARGEST_FILE = 16 * 2**20
"""Bytes."""

STANDARD_INPUT = "-"


@dataclass(frozen=True)
class Source:
    """A file's name, as it was given, and its text."""

    file: str
    text: str


def read_source(path: str | Path) -> Source:
    """The text of the file, or of standard input for ``-``.

    Raises ``InputError`` for a file that cannot be read, is larger than 16 MiB, holds no text in
    UTF-8, or nothing at all.
    """
    file = str(path)
    if file == STANDARD_INPUT:
        return decode_source("<stdin>", sys.stdin.buffer.read(LARGEST_FILE + 1))
    try:
        with open(path, "rb") as stream:
            return decode_source(file, stream.read(LARGEST_FILE + 1))
    except FileNotFoundError:
        raise InputError(Diagnostic(f"no such file: {file}", hint=_neighbour(path))) from None
    except IsADirectoryError:
        raise InputError(Diagnostic(f"{file} is a directory, not a model file")) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(Diagnostic(f"cannot read {file}: {reason}")) from None


def decode_source(file: str, data: bytes) -> Source:
    """``data`` as text. Raises ``InputError``."""
    if len(data) > LARGEST_FILE:
        raise InputError(
            Diagnostic("the file is larger than 16 MiB", Location(file, 1, 1)), {file: ""}
        )
    binary = data.find(b"\0")
    if binary >= 0:
        raise InputError(
            Diagnostic(f"not a text file: byte {binary} is zero", Location(file, 1, 1))
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", errors="replace")
        line = before.count("\n") + 1
        column = len(before) - (before.rfind("\n") + 1) + 1
        message = f"not a text file in UTF-8: byte {error.start} is 0x{data[error.start]:02x}"
        raise InputError(Diagnostic(message, Location(file, line, column))) from None
    if not text.strip():
        raise InputError(Diagnostic("the file is empty", Location(file, 1, 1)))
    return Source(file, text)


def _neighbour(path: str | Path) -> str | None:
    """A hint at a file of nearly the same name in the same folder. Endings are alike anyway and
    say nothing."""
    parent = Path(path).parent
    try:
        found = {entry.stem: entry.name for entry in sorted(parent.iterdir())
                 if entry.suffix in (".sa", ".json")}  # fmt: skip
    except OSError:
        return None
    close = get_close_matches(Path(path).stem, list(found), n=1, cutoff=0.7)
    return f"did you mean '{found[close[0]]}'?" if close else None
