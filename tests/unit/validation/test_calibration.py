"""``starc calibrate``: which rows are held out, what the search finds, the file that it writes."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from starc import cli
from starc.diagnostics import InputError, UsageError
from starc.targets.loader import load_target
from starc.targets.names import machine_file_of, machine_label, numbers
from starc.validation import calibration
from starc.validation.calibration import (
    Constant,
    Fit,
    calibrate,
    chosen_cases,
    mean_errors,
    related_constants,
    split_cases,
)
from starc.validation.fit_report import fit_text
from starc.validation.fitted_machine import Chosen, chosen_constants, fitted_text
from starc.validation.machine_text import machine_text
from starc.validation.rows import Case

NORM = "h200_rms_norm.csv"


def case(m: int, measured: float = 1.0, kind: str = "rms_norm") -> Case:
    return Case(NORM, kind, {"M": m, "N": 1024}, measured)


def line_of(start: float, rate: float, m: int) -> float:
    return start + m / rate


def simulate(cases: Sequence[Case], values: Mapping[str, float]) -> list[float]:
    """A simulator of two constants: a start and a rate."""
    return [line_of(values["a.start"], values["a.rate"], each.integer("M")) for each in cases]


TRUE = {"a.start": 3.2, "a.rate": 40.0}
CONSTANTS = (Constant("a.start", 1.0, 0.0, 8.0), Constant("a.rate", 10.0, 5.0, 500.0))


def measured_cases() -> list[Case]:
    return [case(m, line_of(TRUE["a.start"], TRUE["a.rate"], m)) for m in range(10, 1000, 33)]


def test_a_fifth_of_every_class_is_held_out_whatever_was_measured():
    cases = [*(case(m) for m in range(30)), *(case(m, kind="other") for m in range(4))]
    fitted, held_out = split_cases(cases)
    assert [each.kind for each in held_out].count("rms_norm") == 6
    assert [each.kind for each in held_out].count("other") == 1
    assert len(fitted) + len(held_out) == len(cases)
    slower = [Case(each.file, each.kind, each.parameters, 9.0) for each in reversed(cases)]
    again = split_cases(slower)[1]
    names = {(each.kind, each.integer("M")) for each in held_out}
    assert {(each.kind, each.integer("M")) for each in again} == names


def test_the_search_finds_constants_that_explain_rows_it_never_saw():
    fit = calibrate(measured_cases(), CONSTANTS, simulate, budget=5000)
    assert fit.ended_by == "steps"
    assert fit.after["a.start"] == pytest.approx(TRUE["a.start"], rel=0.1)
    assert fit.after["a.rate"] == pytest.approx(TRUE["a.rate"], rel=0.1)
    assert fit.fitted_after["all"] < 0.03 < fit.fitted_before["all"]
    assert fit.held_out_after["rms_norm"] < 0.03 < fit.held_out_before["rms_norm"]


def test_the_search_is_the_same_every_time_and_keeps_to_its_budget():
    first, second = (calibrate(measured_cases(), CONSTANTS, simulate, budget=60) for _ in range(2))
    assert first == second
    assert first.ended_by == "budget"
    # The step that is under way when the budget is spent is finished.
    assert first.simulations < 60 + 2 * 16


def test_what_was_simulated_is_not_simulated_again():
    seen: list[tuple[int, tuple[float, ...]]] = []

    def watched(cases: Sequence[Case], values: Mapping[str, float]) -> list[float]:
        seen.extend((each.integer("M"), tuple(values.values())) for each in cases)
        return simulate(cases, values)

    calibrate(measured_cases(), CONSTANTS, watched)
    assert len(seen) == len(set(seen))


def test_a_machine_that_cannot_be_is_no_candidate():
    from starc.diagnostics import Diagnostic

    def picky(cases: Sequence[Case], values: Mapping[str, float]) -> list[float]:
        if values["a.start"] > 2.0:
            raise InputError(Diagnostic("too late"))
        return simulate(cases, values)

    fit = calibrate(measured_cases(), CONSTANTS, picky, budget=2000)
    assert fit.after["a.start"] <= 2.0


def test_constants_of_a_measured_kernel_matter_to_its_own_files(monkeypatch: pytest.MonkeyPatch):
    named = {"a.csv": ("kernels.a.launch", "memory.sustained"), "b.csv": ()}
    monkeypatch.setattr(calibration, "constants_of", named.__getitem__)
    constants = [Constant(key, 1.0, 0.0, 2.0) for key in named["a.csv"]]
    related = related_constants(["a.csv", "b.csv"], constants)
    assert related["a.csv"] == {"kernels.a.launch", "memory.sustained"}
    assert related["b.csv"] == {"memory.sustained"}


def test_searched_rows_are_spread_over_their_effort():
    chosen = chosen_cases([case(m) for m in range(100)], 4)
    assert len(chosen) == 4
    assert len({each.integer("M") for each in chosen}) == 4


def test_rows_that_the_search_does_not_see_are_held_out():
    # A search on few rows: no row that it did not see is called fitted.
    seen: set[int] = set()

    def watched(cases: Sequence[Case], values: Mapping[str, float]) -> list[float]:
        if values != {each.key: each.value for each in CONSTANTS}:
            seen.update(each.integer("M") for each in cases)
        return simulate(cases, values)

    cases = measured_cases()
    fit = calibrate(cases, CONSTANTS, watched, most=4, budget=40)
    assert len(fit.fitted_cases) == 4
    assert len(fit.held_out_cases) == len(cases) - 4
    assert fit.beyond == len(cases) - 4 - len(split_cases(cases)[1])
    assert fit.fitted_after["all"] < fit.fitted_before["all"]
    assert f"{fit.beyond} more than --rows of a class" in fit_text(fit, "t", "x.toml")


@pytest.mark.parametrize("most", [1, 2, 3, 16])
def test_the_error_of_fitted_rows_never_rises(most: int):
    scattered = [case(m, 3.0 + (m * 7 % 5)) for m in range(10, 400, 33)]
    fit = calibrate(scattered, CONSTANTS, simulate, most=most, budget=80)
    assert fit.fitted_after["all"] <= fit.fitted_before["all"]


def test_a_search_that_finds_nothing_better_changes_nothing():
    exact = [case(m, line_of(1.0, 10.0, m)) for m in range(10, 400, 33)]
    fit = calibrate(exact, CONSTANTS, simulate, budget=80)
    assert fit.after == fit.before
    assert any("the old ones are kept" in warning for warning in fit.warnings)
    kept = Fit({"clock.core_mhz": 1980.0}, {"clock.core_mhz": 1980.0}, (), (), (), {}, {}, {}, {})
    text = fitted_text(machine_file_of("h200"), kept, "measured", "starc calibrate")
    assert tomllib.loads(text) == machine_file_of("h200").data


def test_a_fit_that_its_held_out_rows_contradict_is_warned_of():
    errors = ({"all": 0.04}, {"all": 0.03}, {"all": 0.001}, {"all": 0.08})
    cases = (case(1), case(2), case(3))
    fit = Fit({"a": 1.0}, {"a": 2.0}, (), cases, cases, *errors)
    (warning,) = fit.warnings
    assert "THE HELD-OUT ERROR RISES from 0.10 to 8.00 %" in warning
    few = Fit({"a": 1.0}, {"a": 2.0}, (), cases, cases[:2], *errors)
    assert any("too few held-out rows to judge" in warning for warning in few.warnings)


def test_errors_are_means_by_class_and_of_all():
    cases = [case(1), case(2), case(3, kind="other")]
    assert mean_errors(cases, [0.1, 0.3, 0.5]) == pytest.approx(
        {"all": 0.3, "rms_norm": 0.2, "other": 0.5}
    )


def test_constants_are_the_calibrated_ones_with_a_range_or_those_named():
    known = numbers("h200")
    related = ["kernels.stream.loads"]
    assert [item.key for item in chosen_constants(known, [], related)] == related
    (named,) = chosen_constants(known, [Chosen("memory.sustained", 0.5, 0.99)], [])
    assert (named.low, named.high) == (0.5, 0.99)
    with pytest.raises(UsageError, match="name some with --constant"):
        chosen_constants(known, [], [])
    with pytest.raises(InputError) as error:
        chosen_constants(
            known, [Chosen("memory.sustaine"), Chosen("memory.sustained", 0.1, 0.2)], []
        )
    assert error.value.diagnostics[0].hint == "did you mean 'memory.sustained'?"
    assert len(error.value.diagnostics) == 2


@pytest.mark.parametrize("product", ["h200", "mi300x", "mi355x"])
def test_the_text_of_a_machine_is_that_machine(product: str):
    data = machine_file_of(product).data
    assert tomllib.loads(machine_text(data)) == data


def test_a_fitted_machine_is_complete_and_says_what_was_fitted(tmp_path: Path):
    constant = Constant("kernel.prologue_norm", 300000.0, 1e5, 1e6, "ps", whole=True)
    cases = (case(1), case(2))
    key = constant.key
    fit = Fit({key: 300000.0}, {key: 412345.0}, (constant,), cases, (), {}, {}, {}, {}, 9, "steps")
    path = tmp_path / "mine.toml"
    path.write_text(fitted_text(machine_file_of("h200"), fit, "measured", "starc calibrate"))
    found = next(number for number in numbers(str(path)) if number.key == key)
    assert (found.value, found.kind) == (412345, "calibrated")
    assert found.source == "starc calibrate measured"
    assert "was 300000" in found.note
    assert machine_label(str(path)) == "machine file mine.toml (based on h200)"
    (warning,) = load_target(str(path)).warnings
    assert warning == "machine file mine.toml (based on h200): not the shipped h200"
    again = fitted_text(machine_file_of(str(path)), fit, "more", "starc calibrate")
    path.write_text(again)
    found = next(number for number in numbers(str(path)) if number.key == key)
    assert found.note == "was 412345"
    assert 'fitted_on = "2 rows of rms_norm"' in path.read_text()
    assert load_target(str(path)).prologue_ps["norm"] == 412345


def test_the_command_fits_and_its_file_is_a_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder, output = tmp_path / "data", tmp_path / "mine.toml"
    folder.mkdir()
    rows = "".join(f"{m},1024,{us}\n" for m, us in ((1, 3.0), (4, 3.0), (16, 3.1)))
    (folder / NORM).write_text("M,N,us\n" + rows)
    arguments = ["calibrate", str(folder), "-o", str(output), "--jobs", "1", "--budget", "12"]
    arguments += ["--constant", "kernel.prologue_norm=100000:3000000", "--format", "json"]
    assert cli.run(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == {"fitted": 2, "held_out": 1, "held_out_beyond_search": 0}
    assert found["helped"]
    assert [item["key"] for item in found["constants"]] == ["kernel.prologue_norm"]
    errors = found["errors"]
    assert errors["fitted"]["after"]["all"] < errors["fitted"]["before"]["all"]
    assert errors["held_out"]["after"]["all"] < errors["held_out"]["before"]["all"]
    assert cli.run(["validate", "--data", str(folder), "--target", str(output), "--jobs", "1"]) == 0


def test_wrong_uses_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / NORM).write_text("M,N,us\n1,1024,3.0\n4,1024,3.0\n")
    start = ["calibrate", str(tmp_path), "-o", str(tmp_path / "x.toml")]
    assert cli.run([*start, "--constant", "kernel.prolog"]) == 2
    assert "there is no number 'kernel.prolog'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.run([*start, "--constant", "memory.sustained=2:1"])
    assert "KEY=LOW:HIGH" in capsys.readouterr().err
    assert cli.run([*start, "--target", "h20"]) == 2
    assert cli.run(["calibrate", str(tmp_path), "-o", str(tmp_path / "x.json")]) == 2
    assert "ends with .toml, not x.json" in capsys.readouterr().err
