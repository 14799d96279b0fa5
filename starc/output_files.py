"""Writing results: whole or not at all, and never over what the same command reads.

A file is written under a temporary name in its folder and renamed. What is not a regular file (a
device, a pipe) is written into instead, since a rename would put a file in its place.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from starc.diagnostics import UsageError


def write_file(path: Path | str, data: bytes) -> None:
    """Writes a file; a link is followed. Raises ``OSError`` that names ``path``."""
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            with open(path, "wb") as file:
                file.write(data)
        else:
            _write_renamed(Path(os.path.realpath(path)), data)
    except OSError as error:
        # The temporary name means nothing to the reader, and a failed write names no file.
        raise OSError(error.errno, error.strerror, str(path)) from error


def _write_renamed(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:64]}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        # Temporary files are private; a result gets the permissions of the file that it replaces,
        # or of an ordinary new one.
        os.chmod(temporary, _permissions(path))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _permissions(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def output_path(option: str, text: str | None) -> Path | None:
    """The path that an option names for a result. Raises ``UsageError``, before any work is done,
    for one that cannot be written to."""
    if text is None:
        return None
    if not text or "\0" in text:
        raise UsageError(f"{option} needs the name of a file")
    path = Path(text)
    if path.is_dir():
        raise UsageError(f"{option}: {text} is a directory")
    if not path.parent.is_dir():
        raise UsageError(f"{option}: the folder of {text} does not exist")
    return path


def output_directory(option: str, text: str | None) -> Path | None:
    """The folder that an option names for results, which need not exist. Raises ``UsageError`` if
    something else is in its place."""
    if text is None:
        return None
    if not text or "\0" in text:
        raise UsageError(f"{option} needs the name of a folder")
    path = Path(text)
    existing = next((part for part in (path, *path.parents) if os.path.lexists(part)), path)
    if not existing.is_dir():
        raise UsageError(f"{option}: {existing} is not a directory")
    return path


def check_distinct(inputs: Mapping[str, str | Path], outputs: Mapping[str, Path | None]) -> None:
    """Refuses an output that is an input, or two outputs that are one file, by name or by links.

    Keys say what a file is (``the model``, ``--trace``); an input ``-`` is standard input. Raises
    ``UsageError``.
    """
    seen: list[tuple[str, str | Path | int]] = [
        (name, 0 if str(path) == "-" else path) for name, path in inputs.items()
    ]
    seen.append(("standard output", 1))
    for name, path in outputs.items():
        if path is None:
            continue
        for other, place in seen:
            if _same_file(path, place):
                raise UsageError(f"{name}: {path} is also {other}")
        seen.append((name, path))


def _same_file(path: Path, other: str | Path | int) -> bool:
    """Whether two names, or a name and an open descriptor, are one regular file. Devices hold
    nothing that could be lost."""
    try:
        mine = os.stat(path)
    except OSError:
        # It does not exist yet: only an equal name can mean it.
        return not isinstance(other, int) and os.path.realpath(path) == os.path.realpath(other)
    try:
        theirs = os.fstat(other) if isinstance(other, int) else os.stat(other)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mine.st_mode) and os.path.samestat(mine, theirs)
