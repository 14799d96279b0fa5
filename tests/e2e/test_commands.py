"""The other commands, and what compile shows on the way."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from starc.passes.pipeline import LEVELS, PASSES
from tests.e2e.conftest import EXAMPLES, Command, run_command


def test_help_comes_at_once(tmp_path: Path) -> None:
    """Half a second on a busy machine; nothing of the compiler is imported."""
    run_command("starc", "--help", cwd=tmp_path)
    started = time.perf_counter()
    outcome = run_command("starc", "--help", cwd=tmp_path)
    assert time.perf_counter() - started < 0.5
    assert outcome.code == 0
    assert "examples/llama3-70b.sa" in outcome.out
    code = (
        "import sys\nfrom starc.cli import run\n"
        "try:\n    run(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'xdsl', 'numba', 'rich', 'lark', 'networkx'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("level", [level for level in LEVELS if level != "program"])
def test_ir_of_a_level_parses_back(starc: Command, tiny: Path, tmp_path: Path, level: str) -> None:
    outcome = starc("compile", tiny, "--gpus", "1", "--compile-to", level)
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    (tmp_path / "level.mlir").write_text(outcome.out)
    again = run_command("starc-opt", "level.mlir", cwd=tmp_path)
    assert again.code == 0, again.err
    assert again.out == outcome.out
    assert max(map(len, outcome.out.split("\n")[:1])) < 1000


def test_the_program_is_a_level_too(starc: Command, tiny: Path) -> None:
    outcome = starc("compile", tiny, "--gpus", "1", "--compile-to", "program", "-o", "p")
    assert outcome.code == 0, outcome.err
    assert outcome.out == starc("disasm", "p").out
    assert starc("compile", tiny, "--compile-to", "program", "--trace", "t").code == 2
    assert starc("compile", tiny, "--compile-to", "isa", "-o", "p").code == 2


def test_a_program_that_does_not_fit(starc: Command, tiny: Path, tmp_path: Path) -> None:
    words = ("--gpus", "1", "--gpu-memory-utilization", "1e-6", "-o", "p")
    assert starc("compile", tiny, *words).code == 0
    outcome = starc("run", "p", "--trace", "t")
    assert outcome.code == 0
    assert "not simulated" in outcome.out
    assert re.search(r"does not fit: [\d.]+ kB of 24.0 kB usable", outcome.err)
    assert "GB" not in outcome.err
    assert not (tmp_path / "t").exists()
    forced = starc("run", "p", "--ignore-capacity")
    assert "Kernels of one" in forced.out
    assert "compiled in" not in forced.out


def test_explicit_pipeline(starc: Command, tiny: Path) -> None:
    outcome = starc("compile", tiny, "--gpus", "1", "-p", "assign-tensor-parallel")
    assert outcome.code == 0
    assert "sharding.mesh @node" in outcome.out


def test_tree_of_ir(starc: Command, tiny: Path, tmp_path: Path) -> None:
    words = ("--print-ir-tree-dir", "ir", "--print-ir-changed-only")
    assert starc("compile", tiny, "--gpus", "1", *words).code == 0
    names = sorted(path.name for path in (tmp_path / "ir").iterdir())
    assert names[0] == "00_input.mlir"
    assert "03_propagate-shardings.mlir" in names
    # verify-model and verify-schedule change nothing.
    assert not [name for name in names if "verify" in name]


def test_tree_of_ir_has_no_files_of_an_earlier_run(
    starc: Command, tiny: Path, tmp_path: Path
) -> None:
    words = ("compile", tiny, "--gpus", "1", "--print-ir-tree-dir", "ir", "--compile-to")
    assert starc(*words, "isa").code == 0
    (tmp_path / "ir" / "99_mine.mlir").write_text("")
    assert starc(*words, "nn").code == 0
    names = sorted(path.name for path in (tmp_path / "ir").iterdir())
    assert names == ["00_input.mlir", "01_verify-model.mlir", "99_mine.mlir"]


def test_folder_that_cannot_be_made(starc: Command, tiny: Path) -> None:
    outcome = starc("compile", tiny, "--gpus", "1", "--print-ir-tree-dir", "/proc/q")
    assert outcome.code == 1
    assert outcome.err.startswith("/proc/q: error:")


def test_ir_before_and_after(starc: Command, tiny: Path) -> None:
    words = ("--print-ir-before", "localize", "--print-ir-after", "localize")
    outcome = starc("compile", tiny, "--gpus", "1", *words, "--compile-to", "collective")
    before, after = outcome.err.split("// ----- IR after localize -----")
    assert before.startswith("// ----- IR before localize -----")
    assert "sharding.reshard" in before
    assert "sharding.reshard" not in after
    assert "collective.all_reduce" in after


@pytest.mark.parametrize("words", [("-tp", "1"), ("--target", "mi300x-spx"), ()])
def test_one_of_a_kind(starc: Command, tiny: Path, words: tuple[str, ...]) -> None:
    """Nothing says "1 devices", or leaves the choice to the reader."""
    outcome = starc("compile", tiny, "--gpus", "1", "--remarks", *words)
    shown = "\n".join((outcome.out, outcome.err, starc("targets", "show", "mi300x-cpx").out))
    # Tiles are written as "1 rows x 64 keys split 1 stages 4".
    shown = re.sub(r"split 1 stages|1 rows x", "", shown)
    assert not re.findall(r"\b1 [a-z]+[^s ]s\b|\b1 GPUs|\(s\)", shown)


def test_remarks_and_timing(starc: Command, tiny: Path) -> None:
    outcome = starc("compile", tiny, "--gpus", "1", "--remarks", "--timing")
    assert outcome.code == 0
    assert re.search(r"tiny\.sa:\d+:\d+: remark: .* \[pipeline-loops: pipelined\]", outcome.err)
    for entry in PASSES:
        assert re.search(rf"\d\.\d+ .* {entry.name}$", outcome.err, re.MULTILINE)
    # The lines make up the total.
    lines = re.findall(r"^ +(\d+\.\d+) +(\d+\.\d+)? .*?  (\S.*)$", outcome.err, re.MULTILINE)
    parts = [float(first) + float(checks or 0) for first, checks, _ in lines]
    names = [name for _, _, name in lines]
    total = names.index("total, from source to program")
    assert sum(parts[:total]) == pytest.approx(parts[total], abs=0.01)
    assert parts[names.index("everything else")] < 0.25 * parts[total]


def test_standard_input(starc: Command, tiny: Path) -> None:
    outcome = starc("compile", "-", "--gpus", "1", "--compile-to", "nn", stdin=tiny.read_text())
    assert outcome.code == 0, outcome.err
    assert "nn.linear" in outcome.out


def test_check(starc: Command, tiny: Path) -> None:
    outcome = starc("check", tiny, "--gpus", "1")
    assert outcome.code == 0, outcome.err
    assert re.search(r"pack +program +typed .* ok", outcome.out)


def test_disasm(starc: Command, tiny: Path) -> None:
    assert starc("compile", tiny, "--gpus", "1", "-o", "tiny.program").code == 0
    outcome = starc("disasm", "tiny.program")
    assert outcome.code == 0
    assert "program tiny for mi300x-cpx" in outcome.out
    assert "matrix" in outcome.out


def test_compare(starc: Command, tiny: Path) -> None:
    outcome = starc(
        "compare", tiny, "--target", "mi300x-spx", "--target", "mi300x-cpx", "--gpus", "1",
        "--strategy", "naive",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert "each with its best transports" in outcome.out
    assert "all with device_put" in outcome.out
    rows = [line.split() for line in outcome.out.split("\n") if line.startswith("mi300x")]
    assert [row[0] for row in rows] == [
        "mi300x-spx",
        "mi300x-cpx",
    ] * 4  # three of times, one of bytes
    assert [row[4] for row in rows[:6:2]] == ["1.00", "1.00", "1.00"]
    # The first table once more with one fraction of the memory's rate for both modes.
    assert [row[-1] for row in rows[:6]] == ["0.755", "0.790", "0.755", "0.755", "0.755", "0.790"]
    assert "The same with one DRAM fraction for all memory modes of a product" in outcome.out


def test_compare_with_one_dram_fraction(starc: Command, tiny: Path) -> None:
    plan = (tiny, "--target", "mi300x-spx", "--target", "mi300x-cpx", "--gpus", "1",
            "--strategy", "naive", "--transport", "bulk", "--format", "json")  # fmt: skip
    found = json.loads(starc("compare", *plan).out)
    assert [(row["dram_fraction"], row["same_fraction"]) for row in found] == [
        (0.755, False),
        (0.79, False),
        (0.755, True),
        (0.755, True),
    ]
    assert found[2]["layer"] == found[0]["layer"]
    # A fraction that is given for all leaves nothing to set apart.
    fixed = json.loads(starc("compare", *plan, "--dram-fraction", "0.7").out)
    assert [row["dram_fraction"] for row in fixed] == [0.7, 0.7]


def test_other_numbers_of_the_machine(starc: Command, tiny: Path, tmp_path: Path) -> None:
    own = ("compile", tiny, "--target", "mi300x-cpx", "--gpus", "1", "--format", "json")
    first = json.loads(starc(*own).out)
    slower = starc(*own, "--machine", "fabric.usr_rate=1e9")
    assert json.loads(slower.out)["layer"]["cycles"] > first["layer"]["cycles"]
    assert "fabric.usr_rate is 1e+09 instead of 1.2e+12" in slower.err
    program = tmp_path / "tiny.program"
    starc(*own, "-o", program)
    ran = starc("run", program, "--format", "json")
    assert json.loads(ran.out)["layer"]["cycles"] == first["layer"]["cycles"]
    ran = starc("run", program, "--format", "json", "--machine", "latency.hbm_nps1=900000")
    assert json.loads(ran.out)["layer"]["cycles"] > first["layer"]["cycles"]
    refused = starc(*own, "--machine", "fabric.usr_rat=1e9")
    assert refused.code == 2
    assert "did you mean 'fabric.usr_rate'?" in refused.err
    assert "is not KEY=VALUE" in starc(*own, "--machine", "fabric.usr_rate").err


def test_compare_json(starc: Command, tiny: Path) -> None:
    outcome = starc(
        "compare", tiny, "--gpus", "1", "--transport", "bulk", "--strategy", "naive", "--format",
        "json",
    )  # fmt: skip
    (row,) = json.loads(outcome.out)
    assert row["transport"] == "bulk"
    assert sum(row["kernel_groups"].values()) == pytest.approx(row["layer"]["time_us"])
    assert row["changes"] == ["--transport bulk"]


def test_compare_shows_what_is_refused(starc: Command, tiny: Path) -> None:
    machines = ("--target", "mi300x-cpx", "--target", "mi300x-spx")
    outcome = starc("compare", tiny, *machines, "--strategy", "naive")
    assert outcome.code == 0, outcome.err
    assert "mi300x-cpx, naive: refused, 8 heads cannot be split over 64 devices" in outcome.out
    assert "mi300x-spx naive" in outcome.out
    outcome = starc("compare", tiny, "--target", "mi300x-cpx", "--strategy", "naive")
    assert outcome.code == 1
    assert outcome.out == ""


def test_targets(starc: Command) -> None:
    assert "mi300x-cpx" in starc("targets").out
    shown = starc("targets", "show", "mi300x-cpx")
    assert "white paper" in shown.out
    assert starc("targets", "show", "mi300y").code == 2
    assert "600,000,000,000 to 2,000,000,000,000" in shown.out
    assert "shared" in starc("targets").out
    assert "mi300a-cpx-nps4 is impossible" in starc("explain", "mi300a").out
    assert "a link to a switch" in starc("explain", "h200").out
    assert starc("targets", "show").code == 2


def test_passes_and_explain(starc: Command) -> None:
    listed = starc("passes").out
    for entry in PASSES:
        assert entry.name in listed
    assert starc("explain", PASSES[-1].name).code == 0
    assert "stored" in starc("explain", "kv_replication").out
    assert "nn.linear" in starc("explain", "nn.linear").out
    assert "reshard" in starc("explain", "sharding").out
    wrong = starc("explain", "kv_replicaton")
    assert wrong.code == 2
    assert "did you mean 'kv_replication'?" in wrong.err


def test_a_bug_leaves_evidence(tmp_path: Path) -> None:
    """A pass that fails names itself, a directory and a command that fails again."""
    code = (
        "import sys\n"
        "from starc.passes.collective.localize import LocalizePass\n"
        "def broken(self, module, target, sink):\n    raise KeyError('lost')\n"
        "LocalizePass.run = broken\n"
        "from starc.cli import run\n"
        f"sys.exit(run(['compile', {str(EXAMPLES / 'tiny.sa')!r}, '--gpus', '1']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 70
    assert "Traceback" not in done.stderr
    assert "bug in localize: KeyError: 'lost'" in done.stderr
    found = re.search(r"repeat with: (starc-opt (\S+)/before\.mlir -p '(.*)')", done.stderr)
    assert found is not None
    directory = Path(found[2])
    assert "KeyError" in (directory / "traceback.txt").read_text()
    again = run_command("starc-opt", directory / "before.mlir", "-p", found[3], cwd=tmp_path)
    # The real pass accepts what the broken one was given.
    assert again.code == 0, again.err
