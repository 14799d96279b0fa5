"""Files of measurements: everything that is wrong with them is said at once, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from starc.diagnostics import InputError
from starc.validation.columns import Column, read_table, time_column

COLUMNS = (Column("M"), Column("impl", "text", ("flash", "cudnn")), time_column())


def problems(path: Path, text: str | bytes) -> list[str]:
    file = path / "file.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as raised:
        read_table(file, COLUMNS)
    return [str(item).removeprefix(f"{path}/") for item in raised.value.diagnostics]


def test_cells_are_read_by_column(tmp_path: Path):
    file = tmp_path / "file.csv"
    file.write_text("us,M,impl\n1.5,3,flash\n\n2,4, cudnn\n")
    records = read_table(file, COLUMNS)
    assert [(record.line, record.cells) for record in records] == [
        (2, {"us": 1.5, "M": 3, "impl": "flash"}),
        (4, {"us": 2.0, "M": 4, "impl": "cudnn"}),
    ]


def test_all_cells_that_are_wrong_are_named(tmp_path: Path):
    assert problems(tmp_path, "M,impl,us\n0,flash,1\n2,triton,nan\n3,flash\n") == [
        "file.csv:2:1: error: column M: '0' must be a whole number of at least 1",
        "file.csv:3:3: error: column impl: 'triton' must be one of flash, cudnn",
        "file.csv:3:10: error: column us: 'nan' must be a number above 0",
        "file.csv:4:1: error: 2 cells, but the file has 3 columns",
    ]


def test_wrong_columns_and_wrong_cells_are_named_together(tmp_path: Path):
    assert problems(tmp_path, "M,imp,us\nx,flash,1\n") == [
        "file.csv:1:1: error: unknown column 'imp'",
        "file.csv:1:1: error: column 'impl' is missing",
        "file.csv:2:1: error: column M: 'x' must be a whole number of at least 1",
    ]


def test_a_column_stands_there_once(tmp_path: Path):
    found = problems(tmp_path, "M,impl,us,us\n1,flash,1,1\n")
    assert found == ["file.csv:1:1: error: column 'us' stands there 2 times"]


@pytest.mark.parametrize("text", ["", "\n\n", b"\xff\xfe\x00", 'M,impl,us\n"1,flash,1\n'])
def test_what_is_no_table_is_refused(tmp_path: Path, text: str | bytes):
    assert len(problems(tmp_path, text)) == 1
