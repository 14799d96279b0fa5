"""``--log``, ``--log-devices`` and lanes of ``--trace``."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Command


def test_log_of_a_model(starc: Command, tiny: Path, tmp_path: Path) -> None:
    words = ("compile", tiny, "--gpus", "1", "--log-devices", "0,2-3")
    assert starc(*words, "--log", "log.csv", "--trace", "trace.json").code == 0
    with open(tmp_path / "log.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["device"] for row in rows} == {"0", "2", "3"}
    assert rows[3]["coordinates"] == "gpu=0 xcd=0"
    assert {"cpu", "dma", "gemm", "math"} >= {row["engine"] for row in rows} >= {"dma", "gemm"}
    assert all(int(row["start_ps"]) <= int(row["end_ps"]) for row in rows)
    assert any("tiny.sa:" in row["location"] for row in rows)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(event["name"] == "matrix" and event["ph"] == "X" for event in events)
    assert starc(*words, "--log", "log.jsonl").code == 0
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [str(line["start_ps"]) for line in lines] == [row["start_ps"] for row in rows]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--log-devices", "0"), "--log-devices shows in --log FILE and in --trace FILE"),
        (("--log", "l", "--log-devices", "8"), "there is no device 8; the program has 8, from 0"),
        (("--log", "l", "--log-devices", "3-1"), "'3-1' is not a list of devices and ranges"),
        (("--log", "l", "--trace", "l"), "--log: "),
        (("--log", "l", "--compile-to", "isa"), "--log, --check and --format json belong to the"),
    ],
)
def test_wrong_use(starc: Command, tiny: Path, words: tuple[str, ...], message: str) -> None:
    outcome = starc("compile", tiny, "--gpus", "1", *words)
    assert outcome.code == 2
    assert message in outcome.err


def test_log_of_a_program_file(starc: Command, tiny: Path, tmp_path: Path) -> None:
    words = ("--target", "ahbm", "--mesh", "sip=1,group=1,cube=1,pe=2")
    assert starc("compile", tiny, *words, "-o", "program").code == 0
    outcome = starc("run", "program", "--log", "log.csv", "--trace", "trace.json")
    assert outcome.code == 0, outcome.err
    assert "Engines of a device in those kernels" in outcome.out
    with open(tmp_path / "log.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["engine"] for row in rows} == {"cpu", "scheduler", "dma", "gemm", "math"}
    assert {row["device"] for row in rows} == {"0", "1"}
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    lanes = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    # The first device of the only group.
    assert "device 0 (sip=0 group=0 cube=0 pe=0), gemm" in lanes
    assert not [name for name in lanes if name.startswith("device 1 (")]
