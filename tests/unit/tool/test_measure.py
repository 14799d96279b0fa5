"""The measuring tool without a device: cases, files, timing and what happens to failures."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "measure"
MEASUREMENTS = Path(__file__).parents[3] / "starc" / "validation" / "data"
MODULES = ("measure", "timing", "table", "device", "kinds")


@pytest.fixture
def tool() -> Iterator[Callable[[str], Any]]:
    """Imports a module of the tool as its own script does, and takes it away again."""
    sys.path.insert(0, str(TOOL))

    def load(name: str) -> Any:
        return importlib.import_module(name)

    yield load
    sys.path.remove(str(TOOL))
    for name in list(sys.modules):
        if name.split(".")[0] in MODULES:
            del sys.modules[name]


class FakeClock:
    """A device on which every launch takes the same time and events read it exactly."""

    def __init__(self, us: float, host_us: float = 20.0) -> None:
        self.us, self.host_us = us, host_us
        self.launched = 0
        self.graphs = 0

    def launch(self) -> None:
        self.launched += 1

    def elapsed_us(self, work: Callable[[], None], *, queued: bool = True) -> float:
        before = self.launched
        work()
        count = self.launched - before
        in_graph = getattr(work, "in_graph", False)
        return count * (self.us if in_graph else max(self.us, self.host_us))

    def graph(self, work: Callable[[], None]) -> Callable[[], None]:
        self.graphs += 1

        def replay() -> None:
            work()

        replay.in_graph = True  # pyright: ignore[reportFunctionMemberAccess]
        return replay


def test_a_short_kernel_is_timed_in_a_graph_that_is_long_enough(
    tool: Callable[[str], Any],
) -> None:
    clock = FakeClock(2.0)
    found = tool("timing").time_launches(clock, [clock.launch])
    assert found.us == 2.0
    # Launched one by one it seems to take 20 us: the graph is made again, longer.
    assert found.launches == 256
    assert clock.graphs == 2


def test_launches_go_round_the_buffers_in_whole_rounds(tool: Callable[[str], Any]) -> None:
    timing = tool("timing")
    assert timing.launches_for(100.0, 3) == 21
    assert timing.launches_for(5000.0, 3) == 3
    seen: list[int] = []
    clock = FakeClock(500.0)

    def launch(index: int) -> Callable[[], None]:
        def work() -> None:
            seen.append(index)
            clock.launch()

        return work

    timing.time_launches(clock, [launch(0), launch(1)])
    assert seen[:2] == [0, 1]
    assert seen.count(0) == seen.count(1)


def test_buffers_rotate_over_three_caches(tool: Callable[[str], Any]) -> None:
    sets = tool("timing").buffer_sets
    assert sets(50 << 20, 50 << 20, 140 << 30) == 4
    assert sets(1 << 10, 50 << 20, 140 << 30) == 64
    assert sets(40 << 30, 50 << 20, 140 << 30) == 1


def test_cells_have_six_digits_and_no_exponent(tool: Callable[[str], Any]) -> None:
    shown = tool("table").shown
    assert [shown(value) for value in (None, 0.0, 1.5, 1234567.0, 0.000123456, 7, "flash")] == [
        "", "0", "1.5", "1234567", "0.000123456", "7", "flash",
    ]  # fmt: skip


def test_a_row_must_have_the_columns_of_its_file(
    tool: Callable[[str], Any], tmp_path: Path
) -> None:
    results = tool("table").Results(tmp_path, "h200", {"read": ("bytes", "us")})
    results.add("read", {"bytes": 4, "us": 1.25})
    assert (tmp_path / "h200_read.csv").read_text() == "bytes,us\n4,1.25\n"
    with pytest.raises(ValueError, match="row has"):
        results.add("read", {"bytes": 4})


def test_files_have_the_columns_that_are_validated(tool: Callable[[str], Any]) -> None:
    written = {
        name: list(columns)
        for kind in tool("kinds").KINDS.values()
        for name, columns in kind.files.items()
    }
    shipped = [*(MEASUREMENTS / "h200").glob("*.csv"), *(MEASUREMENTS / "h200x2").glob("*.csv")]
    compared = 0
    for path in shipped:
        name = path.stem.split("_", 1)[1]
        if name in written:
            assert path.read_text().splitlines()[0].split(",") == written[name], path.name
            compared += 1
    assert compared >= 5


def test_every_kind_lists_cases(tool: Callable[[str], Any]) -> None:
    for kind in tool("kinds").KINDS.values():
        quick, usual, wide = (kind.cases(extent) for extent in ("quick", "default", "wide"))
        assert 1 <= len(quick) <= 8
        assert len(usual) >= len(quick)
        assert wide
        for case in usual:
            assert all(isinstance(key, str) for key in case)


def test_wide_measures_other_gemms_than_the_default(tool: Callable[[str], Any]) -> None:
    kind = tool("kinds").KINDS["gemm"]
    usual = {(case["M"], case["N"], case["K"]) for case in kind.cases("default")}
    assert not usual & {(case["M"], case["N"], case["K"]) for case in kind.cases("wide")}


class _Forgetful:
    def forget(self) -> None:
        pass


def test_a_failing_case_is_left_out_and_the_others_go_on(
    tool: Callable[[str], Any], tmp_path: Path
) -> None:
    kind_type = tool("kinds.kind").Kind

    def run(device: Any, case: Any) -> Iterator[Any]:
        if case["bytes"] == 2:
            raise RuntimeError("no memory")
        yield "read", {"bytes": case["bytes"], "us": 1.0}

    def cases(extent: str) -> list[dict[str, Any]]:
        return [{"bytes": k} for k in (1, 2, 3)]

    kind = kind_type("read", "", {"read": ("bytes", "us")}, cases, run)
    results = tool("table").Results(tmp_path, "x", kind.files)
    left_out = tool("measure").run_kinds(_Forgetful(), [kind], "default", results)
    assert results.counts() == {"read": 2}
    assert left_out == ["read bytes=2: RuntimeError: no memory"]


def test_kinds_share_a_limited_time(tool: Callable[[str], Any], tmp_path: Path) -> None:
    kind_type = tool("kinds.kind").Kind
    seconds = [0.0]

    def run(device: Any, case: Any) -> Iterator[Any]:
        seconds[0] += 1.0
        yield case["file"], {"us": 1.0}

    def cases(name: str) -> Callable[[str], list[dict[str, Any]]]:
        def listed(extent: str) -> list[dict[str, Any]]:
            return [{"file": name}] * 20

        return listed

    first, second = (kind_type(n, "", {n: ("us",)}, cases(n), run) for n in ("a", "b"))
    results = tool("table").Results(tmp_path, "x", {"a": ("us",), "b": ("us",)})
    left_out = tool("measure").run_kinds(
        _Forgetful(), [first, second], "default", results, seconds=10.0, now=lambda: seconds[0]
    )
    assert results.counts() == {"a": 6, "b": 5}
    assert left_out == ["a: 14 of 20 cases, time", "b: 15 of 20 cases, time"]


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("NVIDIA H200", "h200"), ("AMD Instinct MI300X", "mi300x"), ("NVIDIA B200", "b200"),
     ("NVIDIA H100 80GB HBM3", "h100"), ("Some Thing", "some_thing")],
)  # fmt: skip
def test_files_are_named_after_the_device(
    tool: Callable[[str], Any], name: str, prefix: str
) -> None:
    assert tool("device").prefix_of(name) == prefix


def test_unknown_kinds_are_refused_with_the_legal_ones(
    tool: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        tool("measure").parse(["--only", "gem", "--out", "x"])
    assert "choose from: launch, micro" in capsys.readouterr().err


def test_split_counts_fill_the_device(tool: Callable[[str], Any]) -> None:
    counts = tool("kinds.attention_decode").split_counts
    assert 132 in counts(1, 131072, 132)
    assert max(counts(1, 1024, 132)) == 16
    assert counts(2048, 1024, 132)[0] == 1


def test_a_dry_run_lists_cases_and_needs_no_device(
    tool: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    measure: ModuleType = tool("measure")
    assert measure.main(["--dry-run", "--quick", "--only", "streams"]) == 0
    assert "streams what=copy bytes=16777216" in capsys.readouterr().out


def test_a_dry_run_ends_with_counts(
    tool: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    measure = tool("measure")
    assert measure.main(["--dry-run", "--quick", "--only", "gemm,micro"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith(f"{len(lines) - 1} cases: ")
    assert "micro " in lines[-1]


@pytest.mark.parametrize("seconds", ["-3", "0", "nan", "inf"])
def test_no_time_is_refused(
    tool: Callable[[str], Any], capsys: pytest.CaptureFixture[str], seconds: str
) -> None:
    with pytest.raises(SystemExit):
        tool("measure").main(["--dry-run", "--seconds", seconds])
    assert "--seconds must be above 0" in capsys.readouterr().err


def _none(name: str) -> None:
    """No package is found."""


def test_a_python_without_pytorch_is_told_so(
    tool: Callable[[str], Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measure = tool("measure")
    monkeypatch.setattr(importlib.util, "find_spec", _none)
    assert measure.main(["--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "needs PyTorch and Triton" in error
    assert not (tmp_path / "out").exists()
