"""The reference pages are those that the code would write, and the guides' commands exist."""

from __future__ import annotations

import importlib.util
import re
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from starc.command_line.arguments import build_parser

ROOT = Path(__file__).resolve().parents[3]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", [
    "options.md", "passes.md", "dialects.md", "glossary.md", "starscream.md", "ahbm.md",
    "simulator.md", "numbers.md"])  # fmt: skip
def test_page_is_current(page: str) -> None:
    written = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert written == generator().PAGES[page](), "run 'make docs'"


@pytest.mark.parametrize("page", [
    "README.md", "docs/getting-started.md", "docs/starscream.md", "docs/ahbm.md",
    "docs/checking.md", "docs/validation.md", "docs/calibration.md"])  # fmt: skip
def test_commands_of_a_guide_parse(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", "")
    commands = re.findall(r"^\s*(?:\$ )?starc (.+?)(?:\s+#.*)?$", text, re.MULTILINE)
    assert commands
    for command in commands:
        words = re.split(r" [|>]", command)[0].split()
        options, unknown = build_parser()[0].parse_known_args(words)
        assert not unknown, command
        model = getattr(options, "model", None)
        assert model is None or (ROOT / model).exists(), command


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{name}" for name in (
    "getting-started.md", "ir.md", "language.md", "checking.md", "starscream.md", "simulator.md",
    "validation.md", "calibration.md", "measuring.md", "targets.md", "numbers.md",
    "ahbm.md", "architecture.md"))])  # fmt: skip
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def python_snippets(text: str) -> list[str]:
    """Indented or fenced blocks that import something."""
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.MULTILINE)
    blocks += re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [
        textwrap.dedent(block)
        for block in blocks
        if re.search(r"^ *(from|import) \w+", block, re.MULTILINE)
    ]


@pytest.mark.parametrize("page", ["README.md", *sorted(
    f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])  # fmt: skip
def test_python_of_a_page_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    snippets = python_snippets((ROOT / page).read_text(encoding="utf-8"))
    assert snippets or page != "README.md"
    monkeypatch.chdir(ROOT)
    for snippet in snippets:
        # A smaller model shows the same.
        exec(snippet.replace("llama3-70b.sa", "tiny.sa"), {})
