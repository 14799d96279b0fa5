"""Program files: the same bytes for the same program, and nothing else is read."""

from __future__ import annotations

import dataclasses
import errno
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from starc.backend.files import from_bytes, read_program, to_bytes, write_program
from starc.backend.program import Program
from starc.backend.validation import problems
from starc.diagnostics import InputError
from tests.unit.backend.builders import gemm, ring_all_reduce, stream_copy

ARRAYS = ("records", "expressions", "tiles", "launches", "parts", "tables")
PROGRAMS = [stream_copy(), gemm(), ring_all_reduce(target={"name": "toy", "cus_per_die": 2})]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_round_trip(program: Program, tmp_path: Path):
    path = tmp_path / "program.starc"
    write_program(program, path)
    again = read_program(path)
    for field in dataclasses.fields(Program):
        left: Any = getattr(program, field.name)
        right: Any = getattr(again, field.name)
        if field.name in ARRAYS:
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)
        else:
            assert left == right, field.name
    assert to_bytes(again) == path.read_bytes()
    assert list(tmp_path.iterdir()) == [path]


def test_same_program_same_bytes():
    assert to_bytes(gemm()) == to_bytes(gemm())


def refused(data: bytes) -> str:
    with pytest.raises(InputError) as caught:
        from_bytes(data, "x.starc")
    (diagnostic,) = caught.value.diagnostics
    return diagnostic.message


def test_every_altered_byte_is_refused():
    data = to_bytes(stream_copy())
    for position in range(0, len(data), 7):
        altered = bytearray(data)
        altered[position] ^= 0x40
        assert refused(bytes(altered)).startswith("x.starc: ")


def test_truncated_file():
    data = to_bytes(stream_copy())
    assert "truncated" in refused(data[:-1])
    assert "truncated" in refused(data[:100])
    assert "not a program file" in refused(data[:10])
    assert "truncated" in refused(data + b"\0")


def test_other_files():
    assert "not a program file" in refused(b"")
    assert "not a program file" in refused(b"model tiny {}\n" * 100)


def test_other_version():
    data = bytearray(to_bytes(stream_copy()))
    data[8:12] = struct.pack("<I", 999)
    assert "version 999" in refused(bytes(data))


def test_missing_file(tmp_path: Path):
    with pytest.raises(InputError, match="No such file"):
        read_program(tmp_path / "missing.starc")


def test_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "program.starc"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_program(stream_copy(), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("array", "row", "field", "value", "message"),
    [
        ("records", 1, "dst", 9, "a tile does not exist"),
        ("records", 1, "e0", 99, "an expression does not exist"),
        ("records", 1, "e0", -1, "an expression is missing"),
        ("records", 1, "buffer", 7, "the memory operand does not exist"),
        ("records", 1, "dims", 1, "another rank"),
        ("records", 1, "op", 77, "unknown opcode"),
        ("records", 0, "end", 2, "an end without its begin"),
        ("expressions", 3, "l", 5, "node 3 is malformed"),
        ("launches", 0, "workgroups", 5, "differ in workgroups"),
        ("parts", 0, "template", 3, "a template that does not exist"),
        ("tiles", 0, "slots", 0, "a tile has no slot"),
    ],
)
def test_inconsistent_rows_are_refused(array: str, row: int, field: str, value: int, message: str):
    program = stream_copy()
    assert problems(program) == []
    getattr(program, array)[row][field] = value
    assert any(message in text for text in problems(program))
    assert "inconsistent" in refused(to_bytes(program))
