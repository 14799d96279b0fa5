"""The layout is the pipeline: which way imports go, and what stands in which folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from starc.passes.pipeline import LEVELS, PASSES

ROOT = Path(__file__).parents[3]


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
