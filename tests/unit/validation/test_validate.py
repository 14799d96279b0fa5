"""``starc validate``: what it reads, what it prints, how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from starc import cli
from starc.validation.registry import FILES, file_of, module_of, role_of
from starc.validation.report import render_text
from starc.validation.rows import ROLES, Row
from starc.validation.summary import errors_of, summarise

HEADER = "M,N,us\n"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.run(["validate", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "h200_rms_norm.csv").write_text(HEADER + "1,8192,3.0\n16,2880,2.9\n")
    (tmp_path / "notes.csv").write_text("a,b\n")
    return tmp_path


def test_rows_of_a_folder_are_tests(folder: Path, capsys: pytest.CaptureFixture[str]):
    code, out, err = run(capsys, "--data", str(folder), "--format", "json", "--jobs", "1")
    found = json.loads(out)
    assert code == 0
    assert found["schema"] == 1
    assert [(row["parameters"], row["measured"]) for row in found["rows"]] == [
        ({"M": 1, "N": 8192}, 3.0),
        ({"M": 16, "N": 2880}, 2.9),
    ]
    assert {row["role"] for row in found["rows"]} == {"test"}
    assert not any(row["fitted"] for row in found["rows"])
    assert all(row["simulated"] > 0 and row["baselines"] for row in found["rows"])
    assert {item["name"] for item in found["baselines"]} == {"roofline", "split-aware"}
    assert "notes.csv: the name is not known" in err


def test_the_text_has_rows_errors_and_baselines(folder: Path, capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(capsys, "--data", str(folder), "--jobs", "1")
    assert code == 0
    for words in ("h200_rms_norm.csv", "measured us", "split-aware", "constants", "refit on"):
        assert words in out
    assert max(len(line) for line in out.splitlines()) <= 110


def test_strict_ends_with_3_where_a_margin_is_broken(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    (folder / "h200_rms_norm.csv").write_text(HEADER + "1,8192,300\n")
    assert run(capsys, "--data", str(folder), "--jobs", "1")[0] == 0
    code, out, _ = run(capsys, "--data", str(folder), "--jobs", "1", "--strict")
    assert code == 3
    assert "broken" in out


def test_all_wrong_files_are_named_at_once(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "h200_rms_norm.csv").write_text(HEADER + "x,1,1\n")
    (folder / "h200_gemm.csv").write_text("M,N,K,us\n1,1,1,1\n")
    code, out, err = run(capsys, "--data", str(folder))
    assert code == 1
    assert out == ""
    assert "h200_rms_norm.csv:2:1: error: column M: 'x' must be" in err
    assert "h200_gemm.csv:1:1: error: column 'name' is missing" in err


def test_a_file_without_rows_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "h200_rms_norm.csv").write_text(HEADER)
    code, out, err = run(capsys, "--data", str(folder))
    assert (code, out) == (1, "")
    assert "h200_rms_norm.csv:1:1: error: the file has a header line and no rows" in err


def test_a_row_that_no_machine_holds_is_said_once_at_its_place(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    (folder / "h200_rms_norm.csv").write_text(HEADER + "16,2880,3\n1,9000000000000,3\n")
    code, out, err = run(capsys, "--data", str(folder), "--jobs", "1")
    assert (code, out) == (1, "")
    assert err.count("h200_rms_norm.csv:3:1: error: the row cannot be simulated: ") == 1
    assert "<validation>" not in err
    assert err.count("error") == 1


def test_rows_with_roles_and_long_texts_fit_a_table_of_100_columns():
    parameters = {"detail": "a long text " * 5, "other": "b" * 40, "role": "test", "margin": 0.05}
    rows = [
        Row(
            "mi300x_published.csv", "k", "k", {**parameters, "mode": mode}, 1e3, 1.1e3, "GB/s",
            "test", 0.05, {},
        )
        for mode in ("spx-nps1", "cpx-nps4")
    ]  # fmt: skip
    found = summarise(tuple(rows), {}, {}, {"mi300x_published.csv": "mi300x"})
    lines = render_text(found).splitlines()
    assert max(map(len, lines)) <= 100
    header, first = lines[1:3]
    names = [
        "detail",
        "other",
        "mode",
        "measured",
        "GB/s",
        "simulated",
        "error",
        "role",
        "(margin)",
    ]
    assert header.split() == names
    assert first.endswith("test (5 %)")
    assert first.count("test") == 1
    # Nothing is left out.
    assert "".join(lines).count("text") == 20


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--data", "/nowhere"), "no folder"),
        (("--target", "h20"), "h20"),
        (("--only", "h200_gem.csv"), "neither a file nor a class"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
):
    code, out, err = run(capsys, *arguments)
    assert code in (1, 2)
    assert out == ""
    assert words in err


def test_a_folder_without_known_files_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code, _, err = run(capsys, "--data", str(tmp_path))
    assert code == 1
    assert "h200_gemm.csv" in err


@pytest.mark.parametrize(
    ("name", "like", "target"),
    [
        ("mi300x_rms_norm.csv", "h200_rms_norm.csv", "mi300x-spx-nps1"),
        ("mygpu_gemm_fp8.csv", "h200_gemm_fp8.csv", ""),
        ("mi300xx8_collectives.csv", "h200x2_collectives.csv", "mi300x-spx-nps1"),
        ("b200_attn_decode_fixed_splits.csv", "h200_attn_decode_fixed_splits.csv", "b200"),
        ("my_gpu_read_l2.csv", "h200_read_l2.csv", ""),
        ("mi300x_collectives.csv", "", "mi300x"),
        ("h200_gemm.csv", "", "h200"),
    ],
)
def test_files_of_other_devices_are_known_by_what_was_measured(name: str, like: str, target: str):
    found = file_of(name)
    assert found is not None
    assert (found.name, found.like, found.target) == (name, like, target)
    assert found.shipped.is_file()


@pytest.mark.parametrize(
    "name", ["gemm.csv", "_gemm.csv", "h200_attn_decode_warps.csv", "x_gemm_load.csv", "x.csv"]
)
def test_other_names_are_not_known(name: str):
    assert file_of(name) is None


def test_rows_of_another_device_are_simulated_on_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for device in ("mi300x", "h200"):
        (tmp_path / f"{device}_rms_norm.csv").write_text(HEADER + "16,2880,3.0\n")
    (tmp_path / "mi300x_read.csv").write_text("bytes,us\n1048576,3.0\n")
    (tmp_path / "mi300x_gemm_load.csv").write_text("a\n")
    code, out, err = run(capsys, "--data", str(tmp_path), "--format", "json", "--jobs", "1")
    assert code == 0, err
    found = json.loads(out)
    assert found["targets"] == {
        "h200_rms_norm.csv": "h200",
        "mi300x_rms_norm.csv": "mi300x-spx-nps1",
    }
    ours, other = found["rows"]
    assert ours["simulated"] != other["simulated"]
    assert "note: measured for people, not validated: mi300x_gemm_load.csv" in err
    assert "mi300x_read.csv: left out: cannot be simulated on mi300x-spx-nps1" in err
    assert "kernels.stream.prologue" in err


def test_a_file_that_does_not_say_its_machine_needs_a_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "mygpu_gemm.csv").write_text("M,N,K,name,us\n1,64,64,a,1\n")
    code, _, err = run(capsys, "--data", str(tmp_path))
    assert code == 2
    assert "say with --target which machine mygpu_gemm.csv was measured on" in err
    code, _, err = run(capsys, "--data", str(tmp_path), "--target", "mi300x")
    assert code == 1
    assert "lacks constants" in err
    assert "kernels.gemm.launch_bf16" in err


@pytest.mark.parametrize("name", FILES)
def test_shipped_files_are_read_and_every_row_has_a_role(name: str):
    cases = module_of(name).read(FILES[name].shipped)
    assert cases
    for case in cases:
        assert case.file == name
        assert role_of(case, shipped=True) in ROLES
        assert role_of(case, shipped=False) not in ("anchor", "fitted")


def row(measured: float, simulated: float, baseline: float, role: str = "test") -> Row:
    return Row(
        "h200_rms_norm.csv", "k", "k", {"M": 1}, measured, simulated, "us", role, None,  # type: ignore[arg-type]
        {"roofline": baseline, "split-aware": baseline},
    )  # fmt: skip


def test_errors_are_relative_to_what_was_measured():
    rows = [row(10, 11, 10), row(10, 8, 10), row(100, 100, 100)]
    errors = errors_of(rows, lambda item: item.simulated)
    assert errors.mean == pytest.approx(0.1)
    assert errors.median == pytest.approx(0.1)
    assert errors.largest == pytest.approx(0.2)
    assert errors.bias == pytest.approx(-1 / 30)


def test_a_duel_counts_who_is_nearer_and_only_tests_are_scored():
    rows = (row(10, 10, 11), row(10, 12, 10), row(10, 99, 10, "shown"), row(10, 99, 10, "fitted"))
    found = summarise(rows, {}, {}, {"h200_rms_norm.csv": "t"})
    assert (found.duels[0].wins, found.duels[0].losses) == (1, 1)
    assert [item.rows for item in found.groups] == ["tests", "fitted"]
    assert found.groups[0].errors["simulator"].rows == 2
