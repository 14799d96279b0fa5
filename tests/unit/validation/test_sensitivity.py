"""``starc validate --sensitivity``: which numbers move, what is said of each, what flips."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import pytest

from starc import cli
from starc.targets.machine_file import Number
from starc.validation.rows import Case
from starc.validation.sensitivity import (
    Effect,
    Report,
    Watched,
    representative,
    sensitivity,
    swept_numbers,
)
from starc.validation.sensitivity_report import reports_json, reports_text
from starc.validation.watching import MODEL, modes_to_compare

FILE = "h200_rms_norm.csv"


def number(key: str, value: float, kind: str = "assumed", **rest: float) -> Number:
    unit = str(rest.pop("unit", "fraction"))
    return Number(key, value, unit, kind, "", "", rest.get("low"), rest.get("high"))


def case(m: int, measured: float) -> Case:
    return Case(FILE, "rms_norm", {"M": m, "N": 1024}, measured)


CASES = (case(1, 10.0), case(2, 20.0))


def watch(changes: Sequence[Mapping[str, float]]) -> Iterator[Watched | str]:
    """A machine: times rise with the latency; the rate makes one mode faster than the other."""
    for change in changes:
        latency, rate = change.get("latency", 1.0), change.get("rate", 1.0)
        if change.get("size", 1.0) > 1.0:
            yield "it has no such size"
        else:
            yield Watched((10 * latency, 20.0), {"spx": 1.0, "cpx": 0.9 / rate})


def report() -> Report:
    numbers = (
        number("quiet", 1.0, low=0.5, high=1.0),
        number("latency", 1.0, low=0.5, high=2.0),
        number("rate", 1.0, low=0.6, high=1.0),
        number("size", 1.0, low=1.0, high=2.0),
    )
    return sensitivity("m", swept_numbers(numbers), CASES, watch, [("spx", "cpx")])


def test_assumed_numbers_and_those_with_a_range_are_moved():
    swept = swept_numbers(
        (
            number("a", 0.5),
            number("b", 0.9),
            number("c", 0.5, kind="measured"),
            number("d", 0.5, kind="measured", low=0.4, high=0.6),
            Number("e", 10, "count", "assumed", "", ""),
            number("zero", 0.0),
        )
    )
    assert [(item.key, item.ranged) for item in swept] == [
        ("a", False), ("b", False), ("d", True), ("e", False),
    ]  # fmt: skip
    assert (swept[0].low, swept[0].high) == pytest.approx((0.35, 0.65))
    assert swept[1].high == 1.0  # a fraction is at most 1
    assert (swept[3].low, swept[3].high) == (7.0, 13.0)  # whole numbers of what is counted


def test_the_number_that_changes_most_comes_first():
    assert [item.swept.key for item in report().numbers] == ["latency", "rate", "quiet", "size"]


def test_a_conclusion_that_turns_round_is_marked():
    by_key = {item.swept.key: item for item in report().numbers}
    low = by_key["rate"].low
    assert isinstance(low, Effect)
    assert low.flips == ("spx/cpx",)
    assert low.ratios["spx/cpx"] == pytest.approx(1 / 1.5)
    assert by_key["rate"].flips
    assert not by_key["latency"].flips


def test_changes_are_relative_to_the_unmoved_machine():
    latency = next(item for item in report().numbers if item.swept.key == "latency")
    assert isinstance(latency.high, Effect)
    assert latency.high.mean == pytest.approx(0.5)
    assert latency.high.largest == pytest.approx(1.0)
    assert latency.high.largest_case == "rms_norm M=1 N=1024"
    assert latency.high.error == pytest.approx(0.5)


def test_an_end_where_there_is_no_machine_is_said():
    size = next(item for item in report().numbers if item.swept.key == "size")
    assert size.high == "it has no such size"
    assert isinstance(size.low, Effect)


def test_the_text_sorts_marks_and_names_what_does_not_matter():
    text = reports_text([report()])
    assert text.index("latency") < text.index("rate ")
    assert "FLIPS" in text
    assert "no change of 0.05 %: quiet" in text
    assert "conclusions that flip: by rate" in text
    assert "no such machine: it has no such size" in text


def test_the_json_has_both_ends_of_every_number():
    found = json.loads(reports_json([report()]))["sensitivity"][0]
    assert [item["key"] for item in found["numbers"]] == ["latency", "rate", "quiet", "size"]
    assert found["numbers"][1]["low"]["flips"] == ["spx/cpx"]
    assert found["numbers"][3]["high"] == {"value": 2.0, "problem": "it has no such size"}
    assert found["ratios"] == {"spx/cpx": pytest.approx(1 / 0.9)}


def test_representative_rows_are_a_few_of_every_class():
    cases = [case(m, float(m)) for m in range(1, 40)]
    chosen = representative(cases, 2)
    assert len(chosen) == 2
    assert chosen == representative(list(reversed(cases)), 2)


def test_the_largest_and_the_smallest_devices_are_compared():
    assert modes_to_compare("mi300x") == {
        "spx-nps1": "mi300x-spx-nps1",
        "cpx-nps4": "mi300x-cpx-nps4",
    }
    assert list(modes_to_compare("h200").values()) == ["h200-sxm"]
    assert MODEL.is_file()


def test_the_command_moves_the_numbers_named(capsys: pytest.CaptureFixture[str]):
    arguments = ["validate", "--sensitivity", "--target", "h200", "--only", "rms_norm"]
    arguments += ["--number", "kernel.prologue_norm", "--jobs", "1", "--format", "json"]
    assert cli.run(arguments) == 0
    (found,) = json.loads(capsys.readouterr().out)["sensitivity"]
    (moved,) = found["numbers"]
    assert moved["low"]["mean_change"] < 0 < moved["high"]["mean_change"]
    assert found["layers_s"]["sxm"] > 0


def test_wrong_uses_are_said(capsys: pytest.CaptureFixture[str]):
    start = ["validate", "--target", "h200", "--only", "rms_norm"]
    assert cli.run([*start, "--sensitivity", "--number", "kernel.prolog"]) == 2
    assert "--number 'kernel.prolog' is no number of h200" in capsys.readouterr().err
    assert cli.run([*start, "--sensitivity", "--number", "structure.dies"]) == 2
    assert "'structure.dies' of h200" in capsys.readouterr().err
    assert cli.run([*start, "--sensitivity", "--model", "/nowhere.sa"]) == 1
    assert "/nowhere.sa" in capsys.readouterr().err
    assert cli.run(["validate", "--sensitivity", "--only", "launch"]) == 2
    assert "no row of h200 is there to be watched" in capsys.readouterr().err
    assert cli.run([*start, "--number", "kernel.gap"]) == 2
    assert "belong to --sensitivity" in capsys.readouterr().err
