"""The lockstep interpreter takes encodings at their word."""

from __future__ import annotations

import numpy as np
import pytest

from starc.checking.harness import ModelRun, check_module, level_of, run_module
from starc.interpreter.seeded_data import seeded_data
from starc.interpreter.spmd import ExecutionError
from tests.unit.interpreter.modules import (
    MESH,
    TWO_LAYER_MLP_WHOLE,
    parse,
    tensor,
    two_layer_mlp,
)


def reference() -> ModelRun:
    whole = parse(TWO_LAYER_MLP_WHOLE)
    assert level_of(whole) == "nn"
    return run_module(whole, seeded_data(whole))


def test_a_sharded_layer_computes_what_the_whole_one_does() -> None:
    sharded = parse(two_layer_mlp())
    assert level_of(sharded) == "sharding"
    check = check_module("test", sharded, seeded_data(sharded), reference())
    assert check.ok, check.message


def test_typed_mode_rounds_but_agrees() -> None:
    sharded = parse(two_layer_mlp())
    check = check_module("test", sharded, seeded_data(sharded), reference(), "typed")
    assert check.ok
    assert check.error is not None
    assert check.error > 1e-4


def test_a_partial_declared_complete_is_found() -> None:
    wrong = parse(two_layer_mlp(after_down=""), verify=False)
    check = check_module("test", wrong, seeded_data(wrong), reference())
    assert not check.ok
    assert "hold replicas that differ" in check.message


def test_a_partial_over_too_few_axes_is_found() -> None:
    wrong = parse(two_layer_mlp(after_down='sum{"gpu"}'), verify=False)
    check = check_module("test", wrong, seeded_data(wrong), reference())
    assert not check.ok
    assert "hold replicas that differ" in check.message


def test_a_complete_value_declared_partial_gives_wrong_numbers() -> None:
    x, partial = tensor("2x4", "{}, {}"), tensor("2x4", "{}, {}", 'sum{"gpu"}')
    text = f"""builtin.module {{
  {MESH}
  func.func @f(%x : {x}) -> {x} {{
    %a = nn.silu %x : {x} -> {partial}
    %y = sharding.reshard %a : {partial} -> {x}
    func.return %y : {x}
  }}
}}"""
    module = parse(text, verify=False)
    data = seeded_data(module)
    found = run_module(module, data).layers["f"].outputs[0]
    values = data.inputs["f"][0]
    assert np.allclose(found, 2 * values / (1 + np.exp(-values)))


def test_an_operation_needs_matching_shards() -> None:
    x = tensor("2x1x8", '{}, {}, {"gpu"}')
    w = tensor("8x4", '{"xcd"}, {}')
    y = tensor("2x1x4", "{}, {}, {}", 'sum{"gpu"}')
    text = f"""builtin.module {{
  {MESH}
  nn.parameter @f.w : {w}
  func.func @f(%x : {x}) -> {y} {{
    %w = nn.read @f.w : {w}
    %y = nn.linear %x, %w : {x}, {w} -> {y}
    func.return %y : {y}
  }}
}}"""
    module = parse(text, verify=False)
    expected = r"nn.linear.*rows of the weight differ.*0..3 and 4..7"
    with pytest.raises(ExecutionError, match=expected):
        run_module(module, seeded_data(module))


def test_a_result_must_hold_what_its_encoding_declares() -> None:
    x, y = tensor("2x4", '{"gpu"}, {}'), tensor("2x4", '{"xcd"}, {}')
    text = f"""builtin.module {{
  {MESH}
  func.func @f(%x : {x}) -> {y} {{
    %y = nn.silu %x : {x} -> {y}
    func.return %y : {y}
  }}
}}"""
    module = parse(text, verify=False)
    with pytest.raises(ExecutionError, match=r"device 1 holds 0..0 of dimension 0.*declares 1..1"):
        run_module(module, seeded_data(module))


def collective(line: str, before: str, after: str) -> str:
    return f"""builtin.module {{
  {MESH}
  func.func @f(%x : {before}) -> {after} {{
    %y = collective.{line} : {before} -> {after}
    func.return %y : {after}
  }}
}}"""


COLLECTIVES = {
    "all_gather": (
        '%x on @node axes = ["xcd"] dim = 1',
        tensor("4x2", '{}, {"gpu", "xcd"}', whole="[4, 8]"),
        tensor("4x4", '{}, {"gpu"}', whole="[4, 8]"),
    ),
    "all_slice": (
        '%x on @node axes = ["xcd"] dim = 1',
        tensor("4x4", '{}, {"gpu"}', whole="[4, 8]"),
        tensor("4x2", '{}, {"gpu", "xcd"}', whole="[4, 8]"),
    ),
    "all_to_all": (
        '%x on @node axes = ["xcd"] split_dim = 0 concat_dim = 1',
        tensor("4x4", '{}, {"xcd"}', whole="[4, 8]"),
        tensor("2x8", '{"xcd"}, {}', whole="[4, 8]"),
    ),
    "permute": (
        '%x on @node axes = ["gpu", "xcd"]',
        tensor("4x2", '{}, {"gpu", "xcd"}', whole="[4, 8]"),
        tensor("4x2", '{}, {"xcd", "gpu"}', whole="[4, 8]"),
    ),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_that_moves_keeps_the_tensor(name: str) -> None:
    line, before, after = COLLECTIVES[name]
    module = parse(collective(f"{name} {line}", before, after))
    assert level_of(module) == "collective"
    data = seeded_data(module)
    assert np.array_equal(run_module(module, data).layers["f"].outputs[0], data.inputs["f"][0])


def reduction(line: str, after: str) -> str:
    """A row-parallel linear, whose result ``line`` reduces."""
    x = tensor("2x1x2", '{}, {}, {"gpu", "xcd"}', whole="[2, 1, 8]")
    w = tensor("2x4", '{"gpu", "xcd"}, {}', whole="[8, 4]")
    partial = tensor("2x1x4", "{}, {}, {}", 'sum{"gpu", "xcd"}', whole="[2, 1, 4]")
    return f"""builtin.module {{
  {MESH}
  nn.parameter @f.w : {w}
  func.func @f(%x : {x}) -> {after} {{
    %w = nn.read @f.w : {w}
    %p = nn.linear %x, %w : {x}, {w} -> {partial}
    %y = collective.{line} : {partial} -> {after}
    func.return %y : {after}
  }}
}}"""


ALL = 'on @node axes = ["gpu", "xcd"]'
WHOLE = tensor("2x1x4", "{}, {}, {}", whole="[2, 1, 4]")


@pytest.mark.parametrize(
    ("line", "after"),
    [
        (f"all_reduce %p {ALL} reduction = sum", WHOLE),
        (
            f"reduce_scatter %p {ALL} reduction = sum dim = 2",
            tensor("2x1x1", '{}, {}, {"gpu", "xcd"}', whole="[2, 1, 4]"),
        ),
    ],
)
def test_a_collective_that_reduces_gives_the_sum(line: str, after: str) -> None:
    module = parse(reduction(line, after))
    data = seeded_data(module)
    found = run_module(module, data).layers["f"].outputs[0]
    assert np.allclose(found, data.inputs["f"][0] @ data.parameters["f.w"], rtol=1e-12)


def test_a_reduction_over_too_few_axes_is_found() -> None:
    wrong = reduction('all_reduce %p on @node axes = ["xcd"] reduction = sum', WHOLE)
    module = parse(wrong, verify=False)
    with pytest.raises(ExecutionError, match="devices 0 and 2 hold replicas that differ"):
        run_module(module, seeded_data(module))


def test_reduce_to_root_leaves_nothing_elsewhere() -> None:
    root = tensor("2x1x4", "{}, {}, {}", 'root{"gpu", "xcd"}', whole="[2, 1, 4]")
    text = reduction(f"reduce_to_root %p {ALL} reduction = sum", root)
    module = parse(text)
    data = seeded_data(module)
    found = run_module(module, data).layers["f"].outputs[0]
    assert np.allclose(found, data.inputs["f"][0] @ data.parameters["f.w"])
