"""``starc explain`` knows every remark that a pass makes, and every term of the reports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from starc.command_line.explain import explain, topics_text
from starc.passes.pipeline import PASSES
from starc.report.remarks import PASSES_OF_REMARKS, REMARKS

ROOT = Path(__file__).parents[3]


def words_of(call: ast.Call) -> Iterator[str]:
    """The strings in the first argument of a call."""
    for part in ast.walk(call.args[0]):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def test_every_remark_is_explained_and_made() -> None:
    made, words = set[str](), set[str]()
    for path in (ROOT / "passes").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.add(node.value)
            if isinstance(node, ast.Call) and node.args:
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                made |= set(words_of(node)) if name in ("remark", "Remark") else set()
    assert made <= set(REMARKS) <= words
    assert set(REMARKS) == set(PASSES_OF_REMARKS)


def test_remarks_are_of_passes_that_there_are() -> None:
    made = {name for names in PASSES_OF_REMARKS.values() for name in names}
    assert made <= {entry.name for entry in PASSES}


@pytest.mark.parametrize("name", sorted(REMARKS))
def test_a_remark_names_its_passes(name: str) -> None:
    text = explain(name)
    assert REMARKS[name].split()[0] in text
    assert all(f"starc explain {maker}" in text for maker in PASSES_OF_REMARKS[name])


@pytest.mark.parametrize("name", [
    "lse partial", "owner", "orthogonal", "interchange", "pull", "push", "cached", "uncached",
    "staged", "taxes", "--unfuse", "pipelined", "chunk", "rotated map", "logical bytes", "window",
    "sink", "one_shot", "device_put", "level", "residual-stream",
    "bound by scratch", "copy_engine", "bulk", "ll", "channel_ll", "dma", "dram_fraction",
    "same_fraction"])  # fmt: skip
def test_terms_of_the_passes_are_explained(name: str) -> None:
    assert len(explain(name)) > len(name) + 20


@pytest.mark.parametrize("name", [entry.name for entry in PASSES])
def test_every_pass_is_explained(name: str) -> None:
    assert name in explain(name)


def test_a_word_that_is_a_term_and_a_remark_has_both_explanations() -> None:
    text = explain("interchange")
    assert "goes in front of it" in text
    assert "interchange, a remark" in text


def test_the_list_of_topics_has_the_remarks() -> None:
    assert "norm-scale" in topics_text()
