"""Program files: one program in a container with a version and a checksum.

Layout, little endian: 8 bytes magic, u32 version, u32 size of the description, 32 bytes SHA-256 of
everything after it, the description (JSON, sorted keys), then the arrays ``records``,
``expressions``, ``tiles``, ``launches``, ``parts`` and ``tables`` one after another. The same
program gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from starc.backend.program import (
    EXPR,
    LAUNCH,
    PART,
    RECORD,
    TILE,
    VERSION,
    BufferInfo,
    BufferMemory,
    CounterInfo,
    Engine,
    LayerInfo,
    LayoutKind,
    Program,
    Role,
    Space,
    StreamInfo,
    TemplateInfo,
)
from starc.backend.validation import problems
from starc.core.element_types import ElementType
from starc.core.extents import LogicalExtents, Rotation
from starc.diagnostics import Diagnostic, InputError
from starc.output_files import write_file

MAGIC: Final = b"STARCPRG"
SUFFIX: Final = ".starc"
_HEADER: Final = struct.Struct("<8sII32s")
_ARRAYS: Final[dict[str, np.dtype[Any]]] = {
    "records": RECORD,
    "expressions": EXPR,
    "tiles": TILE,
    "launches": LAUNCH,
    "parts": PART,
    "tables": np.dtype("<i8"),
}
_OPTIONAL: Final = ("extents", "memory", "streams", "semaphores")
_LISTS: Final = ("layers", "templates", "counters", "buffers")
_ROTATION: Final = ("dim", "by", "block", "offset", "ranks", "extent")
_PLAIN: Final = (
    "name",
    "target",
    "mesh",
    "launch_names",
    "launch_kinds",
    "launch_attributes",
    "kernel_classes",
    "locations",
    "inputs",
    "outputs",
    "metadata",
)


def to_bytes(program: Program) -> bytes:
    """The bytes of a program file."""
    description: dict[str, Any] = {key: getattr(program, key) for key in _PLAIN}
    description |= {key: [_row(row) for row in getattr(program, key)] for key in _LISTS}
    description["arrays"] = {key: len(getattr(program, key)) for key in _ARRAYS}
    text = json.dumps(description, sort_keys=True, separators=(",", ":")).encode()
    arrays = b"".join(_bytes(getattr(program, key), dtype) for key, dtype in _ARRAYS.items())
    digest = hashlib.sha256(text + arrays).digest()
    return _HEADER.pack(MAGIC, VERSION, len(text), digest) + text + arrays


def _row(info: Any) -> dict[str, Any]:
    # What most buffers and templates do not have is not written.
    row = asdict(info)
    return {key: value for key, value in row.items() if key not in _OPTIONAL or value}


def _bytes(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> bytes:
    # The bytes between the fields of an aligned record are whatever was there: make them zero.
    clean = np.zeros(len(array), dtype)
    if dtype.names is None:
        clean[:] = array
    else:
        for name in dtype.names:
            clean[name] = array[name]
    return clean.tobytes()


def from_bytes(data: bytes, name: str = "program file") -> Program:
    """The program in the bytes of a file called ``name``.

    Raises ``InputError`` if they are no program file, of another version, truncated, altered or
    inconsistent.
    """

    def refuse(message: str, hint: str | None = None) -> InputError:
        return InputError(Diagnostic(f"{name}: {message}", hint=hint))

    if len(data) < _HEADER.size or not data.startswith(MAGIC):
        raise refuse("not a program file", "write one with 'starc compile MODEL -o FILE'")
    _, version, size, digest = _HEADER.unpack_from(data)
    if version != VERSION:
        raise refuse(
            f"program file of version {version}; this starc reads version {VERSION}",
            "compile the model again",
        )
    content = memoryview(data)[_HEADER.size :]
    if hashlib.sha256(content).digest() != digest:
        raise refuse("the checksum does not match: the file is truncated or was altered")
    try:
        description = json.loads(bytes(content[:size]))
        program = _program(description, content[size:])
    except (ValueError, KeyError, TypeError) as error:
        raise refuse(f"the description is inconsistent ({error})") from error
    found = problems(program)
    if found:
        raise refuse(f"the program is inconsistent: {found[0]}")
    return program


def _program(description: dict[str, Any], content: memoryview) -> Program:
    arrays: dict[str, Any] = {}
    offset = 0
    for key, dtype in _ARRAYS.items():
        count = int(description["arrays"][key])
        arrays[key] = (
            np.frombuffer(content, dtype, count, offset).copy() if count else (np.zeros(0, dtype))
        )
        offset += count * dtype.itemsize
    if offset != len(content):
        raise ValueError("the arrays do not fill the file")
    return Program(
        name=description["name"],
        target=description["target"],
        mesh=tuple((str(axis), int(size)) for axis, size in description["mesh"]),
        buffers=tuple(_buffer(row) for row in description["buffers"]),
        counters=tuple(CounterInfo(**row) for row in description["counters"]),
        templates=tuple(_template(row) for row in description["templates"]),
        layers=tuple(LayerInfo(**row) for row in description["layers"]),
        launch_names=tuple(description["launch_names"]),
        launch_kinds=tuple(description["launch_kinds"]),
        launch_attributes=tuple(description["launch_attributes"]),
        kernel_classes=tuple(description["kernel_classes"]),
        locations=tuple((file, line, column) for file, line, column in description["locations"]),
        inputs=tuple(description["inputs"]),
        outputs=tuple(description["outputs"]),
        metadata=description["metadata"],
        **arrays,
    )


def _buffer(row: dict[str, Any]) -> BufferInfo:
    values: dict[str, Any] = dict(row)
    values["dtype"] = ElementType(row["dtype"])
    values["shape"] = tuple(row["shape"])
    values["layout"] = LayoutKind(row["layout"])
    values["block"] = tuple(row["block"])
    values["space"] = Space(row["space"])
    values["role"] = Role(row["role"])
    values["memory"] = BufferMemory(row.get("memory", 0))
    if "extents" in row:
        values["extents"] = _extents(row["extents"])
    return BufferInfo(**values)


def _template(row: dict[str, Any]) -> TemplateInfo:
    values: dict[str, Any] = dict(row)
    values["streams"] = tuple(
        StreamInfo(Engine(stream["engine"]), stream["first_record"], stream["records"])
        for stream in row.get("streams", ())
    )
    values["semaphores"] = tuple(row.get("semaphores", ()))
    return TemplateInfo(**values)


def _extents(row: dict[str, Any]) -> LogicalExtents:
    shapes = tuple(tuple(int(extent) for extent in shape) for shape in row["shapes"])
    if row["rotation"] is None:
        return LogicalExtents(shapes)
    values = {key: int(row["rotation"][key]) for key in _ROTATION}
    return LogicalExtents(
        shapes,
        Rotation(
            **values,
            rank=tuple(int(rank) for rank in row["rotation"]["rank"]),
            rows=tuple(tuple(int(row) for row in rows) for rows in row["rotation"]["rows"]),
            held=tuple(int(held) for held in row["rotation"]["held"]),
        ),
    )


def write_program(program: Program, path: Path | str) -> None:
    """Writes a program file: under a temporary name in the same folder, then renamed, so that no
    half-written file is left. Raises ``OSError`` where the folder cannot be written."""
    write_file(path, to_bytes(program))


def read_program(path: Path | str) -> Program:
    """Reads a program file. Raises ``InputError`` if it is missing or refused (``from_bytes``)."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(Diagnostic(f"{path}: {reason}")) from error
    return from_bytes(data, str(path))
