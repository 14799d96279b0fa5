"""docs/extending.md's examples, done: its changes applied to a copy of the code, its commands run.

A fence ``diff`` with a path changes that file, at the one place that has its context; hunks are
parted by ``...``. Another fence with a path is a new file. A fence ``console`` has commands
(``$ ``) and texts that their output has, in this order. Every section starts afresh.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import starc

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "extending.md"
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = {"starc": "starc.cli", "starc-opt": "starc.opt", "python": "", "pytest": "pytest"}


@dataclass(frozen=True)
class Section:
    """A heading of the page with its fences: language, path and text of each."""

    title: str
    fences: tuple[tuple[str, str, str], ...]


def sections() -> Iterator[Section]:
    text = PAGE.read_text(encoding="utf-8")
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        fences = tuple(FENCE.findall(body))
        if any(language == "console" for language, _, _ in fences):
            yield Section(title, fences)


SECTIONS = list(sections())


def copy_of_the_code(to: Path) -> None:
    """The source as it lies in the checkout, and a package ``starc`` made of it. The simulator is
    that of the checkout: its machine code is kept by path."""
    ignore = shutil.ignore_patterns("__pycache__", "simulator")
    for folder in ("starc", "dialects", "passes", "examples"):
        shutil.copytree(ROOT / folder, to / folder, ignore=ignore)
    site = to / "site" / "starc"
    site.mkdir(parents=True)
    for path in (to / "starc").iterdir():
        (site / path.name).symlink_to(path)
    for folder in ("dialects", "passes"):
        (site / folder).symlink_to(to / folder)
    with (to / "starc" / "__init__.py").open("a", encoding="utf-8") as file:
        file.write(f"\n__path__.extend({list(starc.__path__)!r})\n")


def run(line: str, folder: Path) -> str:
    words = shlex.split(line)
    assert words[0] in COMMANDS, line
    module = COMMANDS[words[0]]
    command = [sys.executable, *(["-m", module] if module else []), *words[1:]]
    environment = os.environ | {"PYTHONPATH": str(folder / "site"), "COLUMNS": "100"}
    result = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0, f"{line}\n{result.stdout}"
    return result.stdout


def check_output(transcript: str, folder: Path) -> None:
    for part in re.split(r"^\$ ", transcript.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        line, _, expected = part.partition("\n")
        printed = run(line, folder)
        place = 0
        for wanted in filter(None, (text.strip() for text in expected.splitlines())):
            place = printed.find(wanted, place)
            assert place >= 0, f"$ {line}\nno '{wanted}' in\n{printed}"
            place += len(wanted)


def change(file: Path, diff: str) -> None:
    text = file.read_text(encoding="utf-8")
    for hunk in re.split(r"^\.\.\.\n", diff, flags=re.MULTILINE):
        lines = [
            (line[:1].strip("\n") or " ", line[1:] or "\n")
            for line in hunk.splitlines(keepends=True)
        ]
        assert all(sign in " +-" for sign, _ in lines), hunk
        old, new = ("".join(body for sign, body in lines if sign in kept) for kept in (" -", " +"))
        assert text.count(old) == 1, f"{text.count(old)} places of {file.name} have\n{old}"
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("section", SECTIONS, ids=[section.title for section in SECTIONS])
def test_example(section: Section, tmp_path: Path) -> None:
    copy_of_the_code(tmp_path)
    for language, path, text in section.fences:
        if language == "console":
            check_output(text, tmp_path)
        elif language == "diff":
            change(tmp_path / path, text)
        elif path:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text, encoding="utf-8")
