"""Options that are names: every one has its legal values in one place, which listings show and
errors name."""

import dataclasses
from collections.abc import Iterator

import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.command_line.explain import pass_options, pass_text
from starc.diagnostics import InputError, UsageError
from starc.passes.base import RemarkSink
from starc.passes.manager import instantiate
from starc.passes.pipeline import PASSES, entry_of, load_pass
from starc.passes.selection import PassSpec
from starc.targets.loader import load_target

FREE = {("tile-kernels", "launches")}
"""Options whose values are names of the model."""


def text_options() -> Iterator[tuple[str, str]]:
    for entry in PASSES:
        for field in dataclasses.fields(load_pass(entry.name)):
            option = field.name.replace("_", "-")
            if "str" in str(field.type) and (entry.name, option) not in FREE:
                yield entry.name, option


def test_there_are_such_options() -> None:
    assert {
        ("shard-attention-sequence", "output"), ("shard-attention-sequence", "rows"),
        ("shard-attention-sequence", "map"), ("schedule-commands", "composites"),
        ("schedule-commands", "attention-schedule"), ("tile-kernels", "softmax"),
        ("tile-kernels", "reduce-pe"), ("tile-kernels", "reduce-cube"),
        ("fuse-compute-collectives", "unfuse"),
    } <= set(text_options())  # fmt: skip


@pytest.mark.parametrize(("name", "option"), list(text_options()))
def test_values_are_listed_and_named_in_errors(name: str, option: str) -> None:
    kind = load_pass(name)
    values = kind.VALUES[option.replace("-", "_")]
    types = {key: text for key, text, _ in pass_options(kind)}
    assert types[option].removesuffix(", ...") == " | ".join(values)
    assert f"  {option}: {types[option]} = " in pass_text(entry_of(name))

    target = load_target("ahbm", gpus=1)
    wrong = instantiate(PassSpec(name, {option: "no-such-value"}))
    with pytest.raises(InputError) as error:
        wrong.run(ModuleOp([]), target, RemarkSink())
    (found,) = error.value.diagnostics
    assert f"{name}: option '{option}' has no value 'no-such-value'" in found.message
    assert ", one of " in found.message
    if option != "transport":
        assert found.message.endswith(", ".join(values))
    if "tuple" not in str(kind.__dataclass_fields__[option.replace("-", "_")].type):
        with pytest.raises(UsageError, match=f"{name}: option '{option}' has no value '3', one of"):
            instantiate(PassSpec(name, {option: 3}))


def test_several_wrong_values_are_said_at_once() -> None:
    options = {"output": "rot", "rows": "x", "map": "cyclical"}
    wrong = instantiate(PassSpec("shard-attention-sequence", options))
    with pytest.raises(InputError) as error:
        wrong.run(ModuleOp([]), load_target("ahbm", gpus=1), RemarkSink())
    assert len(error.value.diagnostics) == 3
    assert {item.hint for item in error.value.diagnostics} == {
        "did you mean 'root'?", None, "did you mean 'cyclic'?",
    }  # fmt: skip
