"""A command in a process of its own leaves what it does in the process of the tests."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.conftest import EXAMPLES, Outcome, run_command, run_here

TINY = str(EXAMPLES / "tiny.sa")
MADE = ("compile", TINY, "--gpus", "1", "-o", "tiny.program")


def without_times(outcome: Outcome) -> Outcome:
    """An outcome without the seconds that the host took."""
    seconds = r'"(?:wall|compile)_s": [\d.e-]+|(?<= in )[\d.]+ s\b'
    return replace(outcome, out=re.sub(seconds, "", outcome.out, flags=re.MULTILINE))


COMMANDS: tuple[tuple[tuple[str, ...], int], ...] = (
    (("--help",), 0),
    (("--version",), 0),
    (("targets", "show", "mi300x-cpx"), 0),
    (("passes",), 0),
    (("explain", "kv_replication"), 0),
    (("compile", TINY, "--gpus", "1", "--format", "json"), 0),
    (("compile", TINY, "--gpus", "1", "--compile-to", "isa", "--remarks"), 0),
    (("compile", "-", "--gpus", "1", "--compile-to", "nn"), 0),
    (("run", "tiny.program"), 0),
    (("disasm", "tiny.program"), 0),
    (("check", TINY, "--gpus", "1"), 0),
    (("compare", TINY, "--gpus", "1", "--strategy", "naive", "--transport", "bulk"), 0),
    (("compile", "missing.sa"), 1),
    (("compile", TINY, "--bacth", "4"), 2),
    (("compile", TINY, "--gpus", "9"), 2),
    ((), 0),
)
"""Words and exit codes."""


@pytest.mark.parametrize(
    ("words", "code"),
    COMMANDS,
    ids=[" ".join(words).replace(TINY, "tiny") for words, _ in COMMANDS],
)
def test_a_process_of_its_own(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    stdin = Path(TINY).read_text()
    if "tiny.program" in words:
        assert run_here(*MADE, cwd=tmp_path).code == 0
    here = run_here(*words, cwd=tmp_path, stdin=stdin)
    apart = run_command("starc", *words, cwd=tmp_path, stdin=stdin)
    assert apart.code == code, apart.err
    assert without_times(here) == without_times(apart)
