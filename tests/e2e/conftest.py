"""Runs the installed commands as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

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
    """Runs a tool of the environment in ``cwd``."""
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


@pytest.fixture
def starc(tmp_path: Path) -> Command:
    """``starc`` in an empty directory, which the test sees as ``tmp_path``."""

    def call(*words: str | Path, stdin: str | None = None) -> Outcome:
        return run_command("starc", *words, cwd=tmp_path, stdin=stdin)

    return call


@pytest.fixture
def tiny() -> Path:
    """The model that tests use."""
    return EXAMPLES / "tiny.sa"
