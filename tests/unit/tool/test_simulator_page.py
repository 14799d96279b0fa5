"""docs/simulator.md: its experiments exist, and its numbers say where they come from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from starc.command_line.arguments import build_parser
from starc.targets.loader import load_target
from starc.targets.machine_file import Number, products
from starc.targets.names import numbers

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
BASE = "compile examples/llama3-8b.sa --gpus 1 --batch 16 --context 4k"
KEYS = sorted({number.key for product in products() for number in numbers(product)})


def honesty() -> list[list[str]]:
    """The cells of the rows of the tables of what is simplified."""
    section = PAGE.partition("## What is simplified")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?!simplification)(.+) \|$", section, re.MULTILINE)
    return [re.split(r" \| ", row) for row in rows]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_every_simplification_has_a_direction_a_size_and_an_experiment() -> None:
    rows = honesty()
    assert len(rows) > 50
    for cells in rows:
        assert len(cells) == 4, cells
        _, error, size, experiment = cells
        assert re.search("optimistic|pessimistic|either|neither|understated|decides", error), cells
        assert re.search(r"\d|not measured|not public|one|alike", size), cells
        assert quoted(experiment) or experiment == "none", cells


@pytest.mark.parametrize("text", sorted({q for row in honesty() for q in quoted(row[3])}))
def test_an_experiment_exists(text: str) -> None:
    if re.match(r"(tests|tools)/", text):
        assert (ROOT / text).exists()
    elif text.endswith(".csv"):
        found = [path for path in (ROOT / "starc/validation/data").glob("*/*.csv")]
        assert any(str(path).endswith(f"/{text}") for path in found)
    elif text.startswith(("starc ", "--")):
        words = (f"{BASE} {text}" if text.startswith("--") else text[6:]).split()
        options, unknown = build_parser()[0].parse_known_args(words)
        assert not unknown
        for key, value in getattr(options, "overrides", ()) or ():
            load_target(options.target or "mi300x-cpx", gpus=1, overrides={key: value})
    elif text.startswith("python "):
        assert (ROOT / text.split()[1]).exists()
    elif text.startswith("SimulationOptions"):
        assert "striped" in text
    else:
        # A benchmark or kind of rows.
        data = (ROOT / "starc/validation/data").glob("*/*.csv")
        assert any(re.search(rf"\b{text}", path.read_text()) for path in data)


def test_numbers_that_the_page_names_are_numbers() -> None:
    sections = {key.split(".")[0] for key in KEYS}
    for text in quoted(PAGE):
        section, _, key = text.partition(".")
        if section in sections and re.fullmatch(r"[a-z_0-9A-Z*]+", key):
            pattern = re.escape(text).replace(r"\*", ".*")
            # A number, one by mode or type, or a table of them.
            pattern += r"(_[a-z0-9]+|\.[a-z_0-9]+)?"
            assert any(re.fullmatch(pattern, known) for known in KEYS), text


def described(number: Number) -> bool:
    """Whether an assumed number has a range, or says why it has none."""
    carried = number.source.startswith("carried over from ")
    return carried or (number.low is not None and number.high is not None) or bool(number.note)


@pytest.mark.parametrize("product", products())
def test_every_number_says_what_fixed_it(product: str) -> None:
    for number in numbers(product):
        assert bool(number.fitted_on) == (number.kind == "calibrated"), number.key
        if number.kind == "calibrated":
            files = re.findall(r"\w+\.csv", number.fitted_on)
            assert files, number.key
            for file in files:
                assert list((ROOT / "starc/validation/data").glob(f"*/{file}")), number.key
        if number.kind == "assumed":
            assert described(number), number.key
