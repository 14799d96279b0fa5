"""Runs of passes: what only checks, what holds until a change, and the IR before a bug."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp, StringAttr

from starc.api import SCHEDULE_CHECK, CompileOptions, compile_model, load, passes_of
from starc.diagnostics import UsageError
from starc.dialects.target import set_target
from starc.passes import manager, pipeline
from starc.passes.base import RemarkSink, StarcPass
from starc.passes.manager import CompilerBug, Driver, instantiate, ir_text
from starc.passes.pipeline import PASSES, PassEntry, load_pass
from starc.passes.selection import PassSpec
from starc.targets.target import Target

EXAMPLES = Path(__file__).parents[3] / "examples"
OPTIONS = CompileOptions(EXAMPLES / "tiny.sa", gpus=1, compile_to="collective")


@dataclass(frozen=True)
class Marks(StarcPass):
    """Leaves a mark."""

    name = "marks"

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        module.attributes["mark"] = StringAttr(self.name)

    def run_on_level(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        self.run(module, target, sink)


@dataclass(frozen=True)
class Looks(Marks):
    """Marks nothing and says so."""

    name = "looks"
    only_checks = True

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        pass


@dataclass(frozen=True)
class Breaks(Marks):
    """Changes the module, and then fails."""

    name = "breaks"

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        for op in list(module.body.ops)[::-1]:
            op.detach()
        raise KeyError("lost")


def test_what_a_check_has_found_holds_until_the_next_change() -> None:
    module = load(OPTIONS).module
    driver = Driver(OPTIONS.machine())
    seen: list[set[str]] = []
    for instance in (Looks(), Marks(), Looks()):
        driver.run_pass(module, PassSpec(instance.name, {}), instance)
        seen.append(set(driver.checked))
    assert seen == [{"looks"}, set(), {"looks"}]


def test_passes_that_only_check_are_those_named_so_and_leave_the_module_alone() -> None:
    kinds = [load_pass(entry.name) for entry in PASSES]
    assert [kind.name for kind in kinds if kind.only_checks] == ["verify-model", SCHEDULE_CHECK]
    options = CompileOptions(EXAMPLES / "tiny.sa", gpus=1, compile_to="isa")
    model, target = load(options), options.machine()
    set_target(model.module, target)
    driver = Driver(target)
    for spec in passes_of(options):
        before = ir_text(model.module, locations=True)
        instance = instantiate(spec)
        driver.run_pass(model.module, spec, instance)
        if instance.only_checks:
            assert ir_text(model.module, locations=True) == before


def test_the_schedule_of_a_program_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    original = compile_model.__globals__["pack_module"]

    def pack_module(*arguments: object, schedule_is_checked: bool) -> object:
        asked.append(schedule_is_checked)
        return original(*arguments, schedule_is_checked=schedule_is_checked)

    monkeypatch.setitem(compile_model.__globals__, "pack_module", pack_module)
    compile_model(CompileOptions(EXAMPLES / "tiny.sa", gpus=1))
    compile_model(CompileOptions(EXAMPLES / "tiny.sa", gpus=1, disable=(SCHEDULE_CHECK,)))
    assert asked == [True, False]


def test_the_ir_before_a_bug_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    specs = passes_of(OPTIONS)
    module = load(OPTIONS).module
    set_target(module, OPTIONS.machine())
    whole = module.clone()
    Driver(OPTIONS.machine()).run(whole, specs)

    def broken(spec: PassSpec) -> StarcPass:
        return Breaks() if spec.name == Breaks.name else instantiate(spec)

    monkeypatch.setattr(manager, "instantiate", broken)
    with pytest.raises(CompilerBug, match="lost") as caught:
        Driver(OPTIONS.machine()).run(module, (*specs, PassSpec(Breaks.name, {})))
    found = (caught.value.directory / "before.mlir").read_text()
    assert found == ir_text(whole, locations=True)


def test_a_pass_whose_file_is_not_installed_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = PassEntry("not-there", "kernel", "listed before it is installed")
    monkeypatch.setitem(pipeline._BY_NAME, "not-there", entry)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(UsageError, match=r"no starc.passes.kernel.not_there.*make"):
        load_pass("not-there")
