"""Outputs in unusual places: over inputs, into devices, closed or broken streams, interruptions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from starc.api import CompileOptions, compile_and_simulate
from tests.e2e.conftest import EXAMPLES, Command

TOOLS = Path(sys.executable).parent
TINY = str(EXAMPLES / "tiny.sa")


def shell(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command line of bash with the tools on the path."""
    path = f"{TOOLS}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", command], cwd=cwd, text=True, capture_output=True,
        env={**os.environ, "PATH": path}, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ("compile", "m.sa", "-o", "m.sa"),
        ("compile", "m.sa", "--trace", "link.sa"),
        ("compile", "m.sa", "-o", "same", "--trace", "./same"),
        ("run", "m.sa", "--trace", "m.sa"),
        ("compile", "m.sa", "-o", ""),
        ("compile", "m.sa", "--print-ir-tree-dir", "m.sa"),
        ("compile", ""),
    ],
)
def test_no_output_over_an_input(
    starc: Command, tiny: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    text = tiny.read_text()
    (tmp_path / "m.sa").write_text(text)
    (tmp_path / "link.sa").symlink_to("m.sa")
    outcome = starc(*words)
    assert outcome.code == 2, outcome.err
    assert "error:" in outcome.err
    assert (tmp_path / "m.sa").read_text() == text
    assert len(list(tmp_path.iterdir())) == 2


def test_what_standard_streams_are_connected_to(tmp_path: Path, tiny: Path) -> None:
    text = tiny.read_text()
    (tmp_path / "m.sa").write_text(text)
    for command in ("starc compile - -o m.sa < m.sa", f"starc compile {TINY} -o out > out"):
        done = shell(command, tmp_path)
        assert done.returncode == 2, done.stderr
        assert "is also" in done.stderr
    assert (tmp_path / "m.sa").read_text() == text


def test_devices_stay_devices(starc: Command, tiny: Path) -> None:
    outcome = starc("compile", tiny, "--gpus", "1", "-o", "/dev/full")
    assert outcome.code == 1
    assert outcome.err == "/dev/full: error: No space left on device\n"
    assert Path("/dev/full").is_char_device()
    assert starc("compile", tiny, "--gpus", "1", "-o", "/dev/null").code == 0


@pytest.mark.parametrize("command", ["compile " + TINY + " --gpus 1", "explain nn", "--help"])
def test_closed_streams(tmp_path: Path, command: str) -> None:
    closed = shell(f"starc {command} >&-", tmp_path)
    assert closed.returncode == 1
    assert closed.stderr == "starc: error: standard output is closed\n"
    silent = shell(f"starc {command} 2>&-", tmp_path)
    assert silent.returncode == 0
    assert "bug" not in silent.stdout
    (tmp_path / "empty.mlir").write_text("builtin.module {\n}\n")
    opt = shell("starc-opt empty.mlir >&-", tmp_path)
    assert (opt.returncode, opt.stderr) == (1, "starc-opt: error: standard output is closed\n")
    assert shell("starc-opt empty.mlir 2>&-", tmp_path).stdout == "builtin.module {\n}\n"


@pytest.mark.parametrize(
    "command", ["explain nn", "passes", "targets show mi300x-cpx", f"compile {TINY} --gpus 1"]
)
def test_a_reader_that_ends_first(tmp_path: Path, command: str) -> None:
    done = shell(f"starc {command} | true; exit ${{PIPESTATUS[0]}}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("after", [0.05, 0.1, 0.2, 0.5])
def test_interruption(tmp_path: Path, after: float) -> None:
    process = subprocess.Popen(
        [TOOLS / "starc", "compile", TINY, "--gpus", "1", "-o", "out"],
        cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    # Before the command has begun, the interpreter itself may still be at work.
    if "site.py" not in err:
        assert "Traceback" not in err, err
        assert process.returncode in (0, 130, -signal.SIGINT)


def test_a_path_with_a_new_line_is_a_path(starc: Command, tiny: Path, tmp_path: Path) -> None:
    outcome = starc("compile", "no\nfile.sa")
    assert outcome.code == 1
    assert "no such file" in outcome.err
    (tmp_path / "a\nb.sa").write_text(tiny.read_text())
    assert starc("compile", "a\nb.sa", "--gpus", "1", "--compile-to", "nn").code == 0


def test_the_library_reports() -> None:
    report = compile_and_simulate(CompileOptions(TINY, gpus=1))
    assert report.layer.time_us is not None
    tight = CompileOptions(TINY, gpus=1, gpu_memory_utilization=1e-6)
    assert compile_and_simulate(tight).layer.time_us is None
    forced = compile_and_simulate(tight, ignore_capacity=True)
    assert forced.layer.time_us == report.layer.time_us
