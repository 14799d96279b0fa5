"""What docs/architecture.md quotes of the levels is what the compiler prints."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from starc.cli import run

ROOT = Path(__file__).parents[3]
QUOTES = re.findall(
    r"<!-- (\w+) -->\n```\w+\n(.*?)```",
    (ROOT / "docs/architecture.md").read_text(encoding="utf-8"),
    re.DOTALL,
)


def printed(*arguments: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run(list(arguments)) == 0
    return out.getvalue()


@pytest.mark.parametrize(("level", "quote"), QUOTES, ids=[level for level, _ in QUOTES])
def test_quoted_lines_are_printed(level: str, quote: str, tmp_path: Path) -> None:
    command = ("compile", str(ROOT / "examples/mlp.sa"), "--gpus", "2", "--compile-to", level)
    if level == "program":
        file = str(tmp_path / "mlp.starc")
        printed(*command, "-o", file)
        text = printed("disasm", file)
    else:
        text = printed(*command)
    lines = [line.strip() for line in text.splitlines()]
    for quoted in quote.strip().splitlines():
        start = quoted.removesuffix(" ..")
        found = [
            line for line in lines if line == start or (line.startswith(start) and start != quoted)
        ]
        assert found, quoted
