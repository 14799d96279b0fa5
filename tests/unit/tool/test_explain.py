"""``starc explain`` knows every remark that a pass makes, and every term of the reports."""

from __future__ import annotations

import pytest

from starc.command_line.explain import explain, remarks_of, topics_text
from starc.passes.pipeline import PASSES
from starc.report.remarks import REMARKS


def test_every_remark_is_explained_and_made() -> None:
    made = {name for entry in PASSES for name in remarks_of(entry)}
    assert made == set(REMARKS)


@pytest.mark.parametrize("name", sorted(REMARKS))
def test_a_remark_names_its_passes(name: str) -> None:
    text = explain(name)
    assert REMARKS[name].split()[0] in text
    assert any(entry.name in text for entry in PASSES if name in remarks_of(entry))


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
