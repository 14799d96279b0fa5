"""Runs the commands as a user does: ``starc`` in this process, whose modules are loaded once;
test_processes.py shows that a process of its own gives the same."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from starc.cli import run

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


@dataclass(frozen=True)
class Outcome:
    """What a command left: exit code, standard output and standard error."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


def run_command(tool: str, *words: str | Path, cwd: Path, stdin: str | None = None) -> Outcome:
    """Runs a tool of the environment in ``cwd``, in a process of its own."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / tool), *map(str, words)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "COLUMNS": "100"},
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def run_here(*words: str | Path, cwd: Path, stdin: str | None = None) -> Outcome:
    """Runs ``starc`` in ``cwd``, in this process."""
    given, out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(3))
    given.write(stdin or "")
    given.seek(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        patch.setenv("COLUMNS", "100")
        for name, stream in (("stdin", given), ("stdout", out), ("stderr", err)):
            patch.setattr(sys, name, stream)
        try:
            code = run([str(word) for word in words])
        except SystemExit as ended:  # help and wrong words
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    for stream in (out, err):
        stream.seek(0)
    return Outcome(code, out.read(), err.read())


@pytest.fixture
def starc(tmp_path: Path) -> Command:
    """``starc`` in an empty directory, which the test sees as ``tmp_path``."""

    def call(*words: str | Path, stdin: str | None = None) -> Outcome:
        return run_here(*words, cwd=tmp_path, stdin=stdin)

    return call


@pytest.fixture
def tiny() -> Path:
    """The model that tests use."""
    return EXAMPLES / "tiny.sa"
