"""The page on sharding shows what the code does: its sessions are run, its modules verified."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from starc.analysis.sharding_rules import check
from tests.unit.interpreter.modules import parse

PAGE = Path(__file__).resolve().parents[3] / "docs" / "sharding.md"
MODULES = re.findall(r"^```mlir\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def test_sessions_give_what_the_page_says() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False)
    assert result.attempted > 20
    assert result.failed == 0


@pytest.mark.parametrize("text", MODULES)
def test_modules_are_legal_or_refused_with_the_message_that_is_shown(text: str) -> None:
    found = [str(diagnostic.message) for diagnostic in check(parse(text))]
    assert found == re.findall(r"^// error: (.*)$", text, re.M)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / target).exists(), target
