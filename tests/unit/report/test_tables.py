"""Tables that are too wide: numbers are shown whole or not at all."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from starc.report.comparison import Row, comparison_text
from starc.report.model import CollectiveReport, EngineUse, KernelEngines, KernelReport
from starc.report.tables import Column, FittedTable
from starc.report.text import WIDTH, render_text

from .test_text import REPORT

LONG = "a_kernel_of_a_layer_with_a_name_that_goes_on_and_on"
USE = EngineUse(987654.0, 123456.0, 876543.0, 3, 99.0, 98.0, 5)
WIDE = replace(
    REPORT,
    layer=replace(REPORT.layer, time_us=9_870_000.0),
    kernels=[
        KernelReport(
            f"decoder.{LONG}_{number}", "collective", 0.0, 987_000.0, 10**18, 10**17, 123456.0,
            "latency", 0.0, {}, 1, "gemm",
        )
        for number in range(2)
    ],
    engines=[
        KernelEngines(
            f"decoder.{LONG}",
            dict.fromkeys(("cpu", "scheduler", "dma", "gemm", "math"), USE),
            {"composite": 123_456_789_012, "load": 1},
            {},
            {"pe_mesh": 987_654_321_098},
        )
    ],
    collectives=[
        CollectiveReport(
            f"decoder.{LONG}", "reduce_scatter", ["sip", "group", "cube", "pe"], 512, 123456789,
            987_000.0, 123456.0, 234567.0, "one_shot_by_levels", "bulk",
        )
    ],
)  # fmt: skip


@pytest.mark.parametrize("width", range(40, WIDTH + 1, 6))
def test_numbers_are_whole_or_left_out(width: int) -> None:
    text = render_text(WIDE, width=width)
    tables = text.split("Kernels of one")[1].split("Traffic of")[0]
    rows = [line for line in tables.split("\n") if line.startswith("  a_k")]
    assert len(rows) == 4
    legal = {
        "987", "988", "ms", "987654", "123,456,789,013", "987,654,321,098", "10.0", "%", "89", "0",
        "1,013,171", "101,317,123", "123,456", "123", "MB", "234,567", "877", "sip", "x", "group",
        "cube", "pe", "(512)", "one_shot_by_levels,", "bulk", "reduce_scatter", "collective",
        "gemm", "latency",
    }  # fmt: skip
    for row in rows:
        name, *words = row.split()
        assert len(name) >= 8 or name.endswith("…") or width < 50
        words = [word for word in words if not set(word) <= set("█▏▎▍▌▋▊▉")]
        assert set(words) <= legal, set(words) - legal
    assert ("not shown for want of room" in " ".join(tables.split())) or width == WIDTH


def test_a_wide_report_says_what_is_left_out() -> None:
    text = render_text(WIDE)
    assert max(map(len, text.split("\n"))) <= WIDTH
    assert "123,456,789,013" in text
    assert "not shown for want of room: sched, puts" in text
    assert text.count("a_kernel_of_a_layer") == 4
    assert "one_shot_by_levels, bulk" in text
    assert " latency\n" in text


def test_a_comparison_with_long_names() -> None:
    report = replace(WIDE, target="a-machine-with-a-name-of-its-own" * 3)
    text = comparison_text([Row("best", report)])
    assert max(map(len, text.split("\n"))) <= WIDTH
    assert "9.87 s" in text


def test_columns_go_by_rank_and_the_note_names_them() -> None:
    table = FittedTable([Column("name", "left"), Column("a", rank=2), Column("b", rank=1)])
    table.add_row("short", "1" * 10, "2" * 10)
    console = Console(file=io.StringIO(), width=24)
    with console.capture() as capture:
        console.print(table)
    assert [line.rstrip() for line in capture.get().splitlines()] == [
        "name            b", "short  2222222222", "not shown for want of", "room: a",
    ]  # fmt: skip
