"""What ``starc check`` finds and says, and the shrunk twin of a model that is too big to run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.api import CompileOptions, passes_of
from starc.checking import check as check_module
from starc.checking.check import check_model
from starc.checking.twin import shrink, shrunk
from starc.diagnostics import InputError
from starc.frontend import ModelSummary
from starc.passes.base import RemarkSink, StarcPass
from starc.passes.kernel.assign_queues import AssignQueues
from starc.passes.selection import PassSpec
from starc.targets.target import Target
from tests.executable.mutations import lose_the_residual

EXAMPLES = Path(__file__).parents[3] / "examples"
TINY = CompileOptions(str(EXAMPLES / "tiny.sa"), mesh={"gpu": 2, "xcd": 2})


def summary(**changes: int) -> ModelSummary:
    parameters: dict[str, int | float | str] = {
        "hidden": 16384,
        "heads": 128,
        "kv_heads": 8,
        "head_dim": 128,
        "ffn": 53248,
        "vocab": 128256,
        "eps": 1e-5,
    }
    step = {"batch": 8, "query": 1, "context": 131072, **changes}
    return ModelSummary(
        name="big",
        phase="decode" if step["query"] == 1 else "prefill",
        batch=step["batch"],
        query=step["query"],
        context=step["context"],
        dtype="bf16",
        kv_dtype="bf16",
        layers=126,
        stack=(("decoder", 126),),
        parameters=parameters,
        parameter_count=0,
        parameters_per_layer={},
    )


def test_every_pass_and_the_program_are_rows() -> None:
    report = check_model(TINY)
    assert report.ok
    assert {row.subject for row in report.rows} == {
        *(spec.name for spec in passes_of(TINY)),
        "pack",
    }
    assert [row.mode for row in report.rows if row.subject == "pack"] == ["exact", "typed"]
    assert not report.changes


def test_another_seed_gives_other_numbers() -> None:
    options = dataclasses.replace(TINY, compile_to="collective")
    first, second = check_model(options), check_model(options, seed=1)
    assert second.ok
    assert [row.error for row in first.rows] != [row.error for row in second.rows]


@dataclasses.dataclass(frozen=True)
class BrokenQueues(StarcPass):
    """Assigns queues and loses a residual."""

    name = "assign-queues"

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        AssignQueues().run(module, target, sink)
        lose_the_residual(module)


def test_a_broken_pass_makes_the_report_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    original = check_module.instantiate

    def instantiate(spec: PassSpec) -> StarcPass:
        return BrokenQueues() if spec.name == "assign-queues" else original(spec)

    monkeypatch.setattr(check_module, "instantiate", instantiate)
    report = check_model(dataclasses.replace(TINY, compile_to="kernel"))
    assert not report.ok
    wrong = [row for row in report.rows if not row.ok]
    assert wrong[0].subject == "assign-queues"
    text = "\n".join(report.lines())
    assert "WRONG  result 0 of @decoder" in text
    assert report.to_dict()["ok"] is False


def test_a_narrow_model_is_checked_on_fewer_gpus() -> None:
    report = check_model(CompileOptions(str(EXAMPLES / "tiny.sa"), compile_to="sharding"))
    assert report.mesh == {"gpu": 1, "xcd": 8}
    assert report.notes == ("on --gpus 1: 8 heads cannot be split over 64 devices",)


def test_a_plan_that_was_asked_for_is_refused() -> None:
    with pytest.raises(InputError, match="8 heads cannot be split over 64 devices"):
        check_model(CompileOptions(str(EXAMPLES / "tiny.sa"), gpus=8))


def test_a_big_model_is_checked_through_its_twin() -> None:
    options = CompileOptions(
        str(EXAMPLES / "llama3-70b.sa"), gpus=1, batch=5, context=1001, compile_to="collective"
    )
    report = check_model(options)
    assert report.ok
    assert "hidden 8192 -> 256" in report.changes
    assert "context 1001 -> 553" in report.changes


def test_a_twin_splits_caches_where_the_model_does() -> None:
    """Its own caches are so small that splitting them would not pay."""
    model = str(EXAMPLES / "walkthrough.sa")
    options = CompileOptions(model, mesh={"gpu": 2, "xcd": 4}, compile_to="sharding")
    report = check_model(options)
    assert report.ok
    assert report.changes
    assert "KV caches are split along the sequence; queries travel" in report.notes[0]
    # In a prefill they stay as they are, here and there.
    assert not check_model(dataclasses.replace(options, phase="prefill")).notes


def test_a_model_that_cannot_be_shrunk_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wide.sa"
    path.write_text(
        'model "wide" { hidden = 64 }\n'
        'layer wide(x) { return linear(linear(x, 400000, name = "up"), hidden, name = "down") }\n'
        "phase decode { batch = 1, context = 1 }\n"
    )
    with pytest.raises(InputError, match="its shrunk twin still has"):
        check_model(CompileOptions(str(path), gpus=1))


def test_shrunk_keeps_remainders() -> None:
    assert [shrunk(size, 64) for size in (8192, 8200, 100, 40)] == [64, 72, 100, 40]


def test_a_twin_keeps_heads_and_what_every_device_has() -> None:
    twin = shrink(summary(), 64, 1)
    assert "heads" not in twin.settings
    assert "kv_heads" not in twin.settings
    assert twin.settings["ffn"] == 64 * 32
    assert twin.settings["vocab"] == 64 * (16 + 2004 % 16)
    assert (twin.batch, twin.context, twin.prompt) == (2, 512, None)


def test_a_twin_keeps_the_batch_divisible() -> None:
    twin = shrink(summary(batch=24), 8, 8)
    assert twin.batch == 8 * 3


def test_a_twin_keeps_what_is_left_over() -> None:
    twin = shrink(summary(batch=1027), 48, 2)
    assert twin.settings["ffn"] == 48 * (32 + 53248 // 48 % 32) + 53248 % 48
    assert twin.batch % 2 == 1


def test_an_uneven_plan_is_checked_through_its_twin() -> None:
    settings = {"heads": "28", "kv_heads": "4", "ffn": "14340", "vocab": "12001", "layers": "1"}
    path = str(EXAMPLES / "llama3-8b.sa")
    options = CompileOptions(path, gpus=1, settings=settings, strategy="naive", batch=3)
    with pytest.raises(InputError, match="28 heads cannot be split over 8 devices"):
        check_model(options)
    report = check_model(dataclasses.replace(options, uneven=True))
    assert report.ok
    assert report.changes


def test_a_twin_of_a_chunk_is_a_chunk() -> None:
    twin = shrink(summary(query=2048, context=131075), 64, 1)
    assert twin.prompt == 144
    before = 131075 - 2048
    assert twin.context - 144 == 64 + before % 64
