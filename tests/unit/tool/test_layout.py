"""The layout is the pipeline: which way imports go, and what stands in which folder."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from starc.passes.pipeline import LEVELS, PASSES

ROOT = Path(__file__).parents[3]
SOURCES = [
    path
    for folder in ("starc", "dialects", "passes", "docs", "tools", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
LONGEST_FILE = 410
LONGEST_FUNCTION = 60
LONGER = {
    "docs/ahbm_study.py schedules": "one table and one chart of the study, row after row",
}
"""Functions that are longer, and why."""


def test_imports_go_one_way(tmp_path: Path) -> None:
    # Outside the checkout, where a folder named starc would hide the installed package.
    result = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", ROOT / "pyproject.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("level", LEVELS)
def test_a_file_of_a_level_is_a_pass(level: str) -> None:
    files = {path.stem for path in (ROOT / "passes" / level).glob("*.py")} - {"__init__"}
    passes = {entry.name.replace("-", "_") for entry in PASSES if entry.level == level}
    assert files == (passes or {"pack"})


def functions() -> Iterator[tuple[str, int]]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield f"{path.relative_to(ROOT)} {node.name}", lines


def test_a_file_is_read_at_one_sitting() -> None:
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in SOURCES}
    assert not {str(path): n for path, n in lines.items() if n > LONGEST_FILE}


def test_a_function_is_seen_at_once() -> None:
    assert {name for name, lines in functions() if lines > LONGEST_FUNCTION} == set(LONGER)


def test_no_file_is_a_drawer() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [path for path in SOURCES if path.stem in drawers]
