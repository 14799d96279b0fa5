"""Results are written whole or not at all, and never over what a command reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from starc.diagnostics import UsageError
from starc.output_files import check_distinct, output_directory, output_path, write_file


def test_a_file_is_replaced_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "result"
    write_file(path, b"one")
    path.chmod(0o640)
    write_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "result").write_bytes(b"")
    (tmp_path / "link").symlink_to("result")
    write_file(tmp_path / "link", b"data")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "result").read_bytes() == b"data"


def test_a_device_is_written_into() -> None:
    write_file("/dev/null", b"data")
    assert Path("/dev/null").is_char_device()


def test_the_error_names_what_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "no" / "result"
    with pytest.raises(FileNotFoundError) as caught:
        write_file(path, b"")
    assert caught.value.filename == str(path)
    with pytest.raises(OSError, match="No space left") as full:
        write_file("/dev/full", b"data")
    assert full.value.filename == "/dev/full"


@pytest.mark.parametrize("link", ["same", "symbolic", "hard", "dotted"])
def test_an_output_is_no_input(tmp_path: Path, link: str) -> None:
    model = tmp_path / "model.sa"
    model.write_text("text")
    output = {
        "same": model,
        "symbolic": tmp_path / "link",
        "hard": tmp_path / "link",
        "dotted": tmp_path / "." / "model.sa",
    }[link]
    if link == "symbolic":
        output.symlink_to(model)
    elif link == "hard":
        os.link(model, output)
    with pytest.raises(UsageError, match="is also the model"):
        check_distinct({"the model": str(model)}, {"-o": output})


def test_two_outputs_are_two_files(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("one")
    with pytest.raises(UsageError, match=r"--trace: .* is also -o"):
        check_distinct({}, {"-o": tmp_path / "one", "--trace": tmp_path / "one"})
    with pytest.raises(UsageError, match=r"--trace: .* is also -o"):
        check_distinct({}, {"-o": tmp_path / "one", "--trace": tmp_path / "link"})
    check_distinct({"the model": "m"}, {"-o": tmp_path / "one", "--trace": tmp_path / "two"})
    check_distinct({}, {"-o": Path("/dev/null"), "--trace": Path("/dev/null")})


@pytest.mark.parametrize("text", ["", "a\0b", ".", "no/such"])
def test_paths_that_cannot_be_written(text: str) -> None:
    with pytest.raises(UsageError, match="-o"):
        output_path("-o", text)


def test_a_folder_for_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in ("file", "file/inside"):
        with pytest.raises(UsageError, match="not a directory"):
            output_directory("--print-ir-tree-dir", str(tmp_path / path))
    assert output_directory("--print-ir-tree-dir", str(tmp_path / "a" / "b")) is not None
