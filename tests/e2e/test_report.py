"""The report: every key, right numbers, the same bytes twice."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import EXAMPLES, Command, run_here

KEYS: dict[str, set[str]] = {
    "layer": {
        "time_us", "cycles", "clock_mhz", "spread_us", "lower_bound_us", "algorithm_bound_us",
        "peak_bound_us", "bound_by", "caches", "power_w", "power_cap_w",
    },
    "whole_model": {"layers", "time_us", "tokens_per_s", "tpot_ms", "ttft_ms"},
    "memory": {
        "capacity_bytes", "usable_bytes", "peak_bytes", "weights_bytes", "kv_bytes",
        "activations_bytes", "communication_bytes", "kv_replication", "kv_tokens", "max_batch",
        "fits",
    },
    "traffic": {
        "hbm_read_bytes", "hbm_write_bytes", "hbm_remote_bytes", "usr_bytes", "xgmi_bytes",
        "links", "logical_bytes",
    },
    "parameters": {"total", "per_layer"},
    "engine": {"instructions", "requests", "events", "wall_s", "compile_s", "simulated_gpus",
               "whole_node"},
}  # fmt: skip
TOP = {
    "schema", "model", "target", "strategy", "phase", "batch", "context", "devices", "mesh",
    "kernels", "collectives", "kinds", "remarks", "warnings", *KEYS,
}  # fmt: skip
KERNEL = {
    "name", "kind", "start_us", "time_us", "flops", "bytes", "intensity", "bound_by", "launch_us",
    "exposed_comm_us", "shape",
}  # fmt: skip
COLLECTIVE = {
    "op", "axes", "size_bytes", "time_us", "algbw_gbps", "busbw_gbps", "algorithm",
}  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The tiny model's report, by a plan whose collectives are launches of their own."""
    outcome = run_here(
        "compile", EXAMPLES / "tiny.sa", "--gpus", "1", "--format", "json",
        "--strategy", "hierarchical", cwd=tmp_path_factory.mktemp("report"),
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    return json.loads(outcome.out)


def test_every_key_is_there(report: dict[str, Any]) -> None:
    assert report.keys() >= TOP
    for section, keys in KEYS.items():
        assert report[section].keys() >= keys, section
    assert report["kernels"]
    assert all(kernel.keys() >= KERNEL for kernel in report["kernels"])
    assert report["collectives"]
    assert all(item.keys() >= COLLECTIVE for item in report["collectives"])
    assert report["traffic"]["links"].keys() >= {"usr", "xgmi", "die"}
    assert report["traffic"]["logical_bytes"].keys() >= {"usr", "xgmi"}
    assert report["schema"] == 1


def test_times_add_up(report: dict[str, Any]) -> None:
    layer = report["layer"]
    assert layer["time_us"] >= layer["lower_bound_us"] > 0
    assert layer["algorithm_bound_us"] >= layer["peak_bound_us"] > 0
    assert layer["cycles"] == pytest.approx(layer["time_us"] * layer["clock_mhz"], rel=1e-4)
    ends = [kernel["start_us"] + kernel["time_us"] for kernel in report["kernels"]]
    assert max(ends) == pytest.approx(layer["time_us"])
    total = sum(kind["count"] * kind["time_us"] for kind in report["kinds"])
    assert report["whole_model"]["time_us"] == pytest.approx(total)
    assert report["whole_model"]["tpot_ms"] == pytest.approx(total / 1e3)
    assert report["whole_model"]["tokens_per_s"] == pytest.approx(report["batch"] / total * 1e6)
    for item in report["collectives"]:
        assert item["algbw_gbps"] == pytest.approx(item["size_bytes"] / item["time_us"] / 1e3)
        assert item["busbw_gbps"] == pytest.approx(item["algbw_gbps"] * 2 * 7 / 8)


def test_parameters_and_flops(report: dict[str, Any]) -> None:
    hidden, heads, kv_heads, head_dim, ffn, vocab = 64, 8, 4, 16, 128, 512
    per_layer = 2 * hidden + hidden * head_dim * (2 * heads + 2 * kv_heads) + 3 * hidden * ffn
    assert report["parameters"]["per_layer"] == per_layer
    assert report["parameters"]["total"] == 2 * per_layer + 2 * vocab * hidden + hidden
    gate_up = next(kernel for kernel in report["kernels"] if kernel["name"] == "decoder.gate_up")
    assert gate_up["flops"] == 2 * report["batch"] * hidden * 2 * ffn // report["devices"]


def test_the_remark_and_the_report_count_memory_alike(report: dict[str, Any]) -> None:
    (remark,) = [entry for entry in report["remarks"] if entry["id"] == "memory-planned"]
    for key, value in remark["numbers"].items():
        assert report["memory"][key] == value, key


def test_same_bytes_twice(starc: Command, tiny: Path, tmp_path: Path) -> None:
    reports: list[dict[str, Any]] = []
    for name in ("one", "two"):
        outcome = starc("compile", tiny, "--gpus", "2", "-tp", "8", "--format", "json", "-o",
                        name, "--trace", f"{name}.json")  # fmt: skip
        assert outcome.code == 0, outcome.err
        found = json.loads(outcome.out)
        found["engine"]["wall_s"] = found["engine"]["compile_s"] = 0
        reports.append(found)
    assert json.dumps(reports[0]) == json.dumps(reports[1])
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


def test_run_repeats_the_report(starc: Command, tiny: Path) -> None:
    compiled = starc("compile", tiny, "--gpus", "1", "--format", "json", "-o", "p")
    simulated = starc("run", "p", "--format", "json")
    assert simulated.code == 0, simulated.err
    left, right = json.loads(compiled.out), json.loads(simulated.out)
    for key in left:
        if key not in ("engine", "remarks", "warnings"):
            assert left[key] == right[key], key


def test_trace(starc: Command, tiny: Path, tmp_path: Path) -> None:
    assert starc("compile", tiny, "--gpus", "1", "--trace", "trace.json").code == 0
    trace = json.loads((tmp_path / "trace.json").read_text())
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len({(event["pid"], event["tid"]) for event in slices}) == 8
    for track in range(0, 16, 2):
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in slices if e["tid"] == track)
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))


def test_text_fits_the_terminal(starc: Command, tiny: Path) -> None:
    outcome = starc("compile", tiny, "--gpus", "1", "--strategy", "hierarchical")
    assert outcome.code == 0
    assert max(map(len, outcome.out.split("\n"))) <= 100
    assert "\x1b" not in outcome.out
    for part in ("Memory of the fullest partition", "fits", "attention", "all_reduce"):
        assert part in outcome.out


def test_prefill(starc: Command, tiny: Path) -> None:
    outcome = starc("compile", tiny, "--gpus", "1", "--phase", "prefill", "--prompt", "16",
                    "--format", "json")  # fmt: skip
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["phase"] == "prefill"
    assert found["whole_model"]["tpot_ms"] is None
    assert found["whole_model"]["ttft_ms"] == pytest.approx(found["whole_model"]["time_us"] / 1e3)


def compile_json(name: str, *words: str, cwd: Path) -> tuple[dict[str, Any], str]:
    outcome = run_here("compile", EXAMPLES / f"{name}.sa", "--format", "json", *words, cwd=cwd)
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out), outcome.err


@pytest.mark.parametrize(
    ("target", "strategy", "devices", "replication"),
    [
        ("mi300x-cpx", "naive", 64, 8.0),
        ("mi300x-cpx", "starscream", 64, 1.0),
        ("mi300x-spx", "starscream", 8, 1.0),
    ],
)
def test_memory_of_70b(
    target: str, strategy: str, devices: int, replication: float, tmp_path: Path
) -> None:
    """The memory of Llama-3-70B by closed formulas."""
    words = ("--batch", "8", "--context", "16k", "--target", target, "--strategy", strategy)
    found, warnings = compile_json(
        "llama3-70b", *words, "--gpu-memory-utilization", "0.01", cwd=tmp_path
    )
    memory = found["memory"]
    assert found["devices"] == devices
    assert memory["kv_replication"] == replication
    copies = replication * 8 / devices
    assert memory["kv_bytes"] == 80 * 2 * 16384 * 128 * 2 * 8 * copies
    assert memory["capacity_bytes"] == 192_000_000_000 // (devices // 8)
    assert found["parameters"]["total"] == 70_553_706_496
    # With one percent of the memory it does not fit: no times, and the warning says so.
    assert memory["fits"] is False
    assert memory["usable_bytes"] == memory["capacity_bytes"] // 100
    assert found["layer"]["time_us"] is None
    assert found["whole_model"]["time_us"] is None
    assert "does not fit" in warnings
    assert "no batch fits" in warnings


def test_batch_that_does_not_fit(tmp_path: Path) -> None:
    found, warnings = compile_json("llama3-70b", "--batch", "64", "--context", "128k", cwd=tmp_path)
    assert found["memory"]["fits"] is False
    assert 1 <= found["memory"]["max_batch"] < 64
    would = found["memory"]["max_batch"]
    assert f"batch {would} would fit" in warnings
    # One sequence more would be one too many.
    memory = found["memory"]
    a_sequence = (memory["peak_bytes"] - memory["weights_bytes"]) / 64
    assert memory["weights_bytes"] + would * a_sequence <= memory["usable_bytes"]
    assert memory["weights_bytes"] + (would + 1) * a_sequence > memory["usable_bytes"]


def test_a_doubled_batch_is_not_faster(starc: Command, tiny: Path) -> None:
    times: list[float] = []
    for batch in ("2", "4", "8"):
        outcome = starc("compile", tiny, "--gpus", "1", "--batch", batch, "--format", "json")
        times.append(json.loads(outcome.out)["layer"]["time_us"])
    assert times[1] >= 0.97 * times[0]
    assert times[2] >= 0.97 * times[1]
