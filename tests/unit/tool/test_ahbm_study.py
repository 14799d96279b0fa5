"""``docs/ahbm_study.py``: a small run, and that the page has what it writes."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_a_small_study_prints_its_tables() -> None:
    done = subprocess.run(
        [sys.executable, str(DOCS / "ahbm_study.py"), "--quick"],
        text=True, capture_output=True, check=True,
    )  # fmt: skip
    blocks = re.split(r"^(\w+) \.\.\.$", done.stdout, flags=re.MULTILINE)
    assert blocks[1::2] == ["schedules", "crossover", "ring"]
    rows = [line for line in blocks[2].splitlines() if re.match(r"\| 64 \| opt\d", line)]
    commands = {row.split(" | ")[1]: row.split(" | ")[2] for row in rows}
    assert commands["opt1"] == commands["opt3"] != commands["opt2"] == "2"


def test_the_page_has_every_block_and_chart() -> None:
    page = (DOCS / "ahbm.md").read_text(encoding="utf-8")
    source = (DOCS / "ahbm_study.py").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^BLOCKS: .*?^}", source, re.MULTILINE | re.DOTALL)
    names = re.findall(r"^    \"(\w+)\":", listed, re.MULTILINE)
    for name in set(names):
        (block,) = re.findall(rf"<!-- study: {name} -->\n(.*?)<!-- end -->", page, re.DOTALL)
        assert block.count("\n|") >= 3, name
    for path in DOCS.glob("ahbm-*.svg"):
        assert f"]({path.name})" in page
        assert path.stat().st_size < 200_000
        ET.parse(path)
