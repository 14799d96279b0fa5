"""Which weights get another encoding, and which keep theirs with what reason."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.analysis.orthogonality import violations
from starc.checking.harness import check_module, run_module
from starc.interpreter.seeded_data import seeded_data
from starc.passes.base import RemarkSink
from starc.passes.sharding.orthogonalize_gemms import OrthogonalizeGemmsPass
from starc.passes.verification import verify
from starc.targets.loader import load_target
from tests.unit.test_pass_examples import parse

MESH = 'sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=4 : inner usr]\n'
OUTER, INNER, BOTH = '{"gpu"}', '{"xcd"}', '{"gpu", "xcd"}'


def tensor(shape: str, *dims: str, partial: str = "", element: str = "bf16") -> str:
    suffix = f", partial = sum{partial}" if partial else ""
    return f"tensor<{shape}x{element}, #sharding.of<@node, [{', '.join(dims)}]{suffix}>>"


def run(text: str, *, uneven: bool = False) -> tuple[ModuleOp, list[str]]:
    """Runs the pass; the module computes what it did. Returns the reasons of what was declined."""
    module, sink = parse(text), RemarkSink()
    before = module.clone()
    OrthogonalizeGemmsPass(uneven=uneven).run(module, load_target("mi300x-cpx", 2), sink)
    verify(module, locations=False)
    data = seeded_data(before)
    check = check_module("after", module, data, run_module(before, data))
    assert check.ok, (check.error, check.message)
    declined = [remark.message for _, remark in sink.remarks if remark.id == "not-orthogonal"]
    assert len(declined) >= len({violation.op for violation in violations(module)})
    return module, declined


def column_parallel(k: int, n: int) -> str:
    x, w = tensor(f"2x3x{k}", "{}", "{}", "{}"), tensor(f"{k}x{n}", "{}", BOTH)
    y = tensor(f"2x3x{n}", "{}", "{}", BOTH)
    return f"""{MESH}
nn.parameter @m.w : {w}
func.func @m(%x : {x}) -> {y} {{
  %w = nn.read @m.w : {w}
  %y = nn.linear %x, %w : {x}, {w} -> {y}
  func.return %y : {y}
}}
"""


def row_parallel(rows: str, n: int, map: str = "") -> str:
    x, w = tensor("2x3x64", "{}", "{}", rows + map), tensor(f"64x{n}", rows + map, "{}")
    y = tensor(f"2x3x{n}", "{}", "{}", "{}", partial=BOTH)
    z = tensor(f"2x3x{n}", "{}", "{}", "{}")
    return f"""{MESH}
nn.parameter @m.w : {w}
func.func @m(%x : {x}) -> {z} {{
  %w = nn.read @m.w : {w}
  %y = nn.linear %x, %w : {x}, {w} -> {y}
  %z = sharding.reshard %y : {y} -> {z}
  func.return %z : {z}
}}
"""


def test_both_directions() -> None:
    module, declined = run(column_parallel(64, 32))
    assert declined == []
    assert tensor("64x32", INNER, OUTER) in str(module)
    module, declined = run(row_parallel(BOTH, 32))
    assert declined == []
    assert tensor("64x32", OUTER, INNER) in str(module)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (column_parallel(66, 32), "@m.w: K of 66 does not divide over the 4 devices"),
        (row_parallel(BOTH, 30), "@m.w: N of 30 does not divide over the 4 devices"),
    ],
)
def test_sizes_that_do_not_divide(text: str, reason: str) -> None:
    _, declined = run(text)
    assert declined[0].startswith(reason)
    _, declined = run(text, uneven=True)
    assert declined == []


@pytest.mark.parametrize(("rows", "map"), [('{"xcd", "gpu"}', ""), (BOTH, " cyclic(1)")])
def test_shards_that_are_not_those_of_the_outer_level(rows: str, map: str) -> None:
    module, declined = run(row_parallel(rows, 32, map))
    assert "is not the outer level's shards cut further" in declined[0]
    assert [violation.loop for violation in violations(module)] == ["K"]


def test_rows_that_the_inner_level_splits() -> None:
    x, w = tensor("2x4x64", "{}", INNER, "{}"), tensor("64x32", "{}", OUTER)
    v, u = tensor("64x32", "{}", BOTH), tensor("2x4x64", "{}", "{}", "{}")
    y, z = tensor("2x4x32", "{}", INNER, OUTER), tensor("2x4x32", "{}", "{}", BOTH)
    module, declined = run(f"""{MESH}
nn.parameter @m.w : {w}
nn.parameter @m.v : {v}
func.func @m(%x : {x}, %u : {u}) -> ({y}, {z}) {{
  %w = nn.read @m.w : {w}
  %y = nn.linear %x, %w : {x}, {w} -> {y}
  %v = nn.read @m.v : {v}
  %z = nn.linear %u, %v : {u}, {v} -> {z}
  func.return %y, %z : {y}, {z}
}}
""")
    assert declined == ["@m.w: the rows of its input are split over the inner level"]
    assert violations(module) == []


def test_a_weight_of_several_layers_is_stored_once() -> None:
    x, w = tensor("2x3x64", "{}", "{}", "{}"), tensor("64x32", "{}", BOTH)
    y = tensor("2x3x32", "{}", "{}", BOTH)
    layer = f"""(%x : {x}) -> {y} {{
  %w = nn.read @m.w : {w}
  %y = nn.linear %x, %w : {x}, {w} -> {y}
  func.return %y : {y}
}}
"""
    module, declined = run(f"{MESH}nn.parameter @m.w : {w}\nfunc.func @m{layer}func.func @n{layer}")
    assert declined == []
    assert str(module).count(f": {tensor('64x32', INNER, OUTER)}\n") >= 3


def test_a_weight_that_is_used_otherwise_stays() -> None:
    x, w = tensor("2x3x64", "{}", "{}", "{}"), tensor("64x32", "{}", BOTH)
    y, v = tensor("2x3x32", "{}", "{}", BOTH), tensor("64x32", "{}", BOTH)
    module, declined = run(f"""{MESH}
nn.parameter @m.w : {w}
nn.parameter @m.o : {w}
func.func @m(%x : {x}) -> ({y}, {y}) {{
  %w = nn.read @m.w : {w}
  %y = nn.linear %x, %w : {x}, {w} -> {y}
  %s = nn.silu %w : {w} -> {v}
  %z = nn.linear %x, %s : {x}, {v} -> {y}
  func.return %y, %z : {y}, {y}
}}
""")
    assert len(declined) == 2
    assert tensor("64x32", INNER, OUTER) not in str(module)


def test_terms_of_a_sum_that_is_reduced_once() -> None:
    """A partial sum that runs through an addition is combined before it, for its encoding is
    another."""
    x, w = tensor("2x3x64", "{}", "{}", BOTH), tensor("64x32", BOTH, "{}")
    y, z = tensor("2x3x32", "{}", "{}", "{}", partial=BOTH), tensor("2x3x32", "{}", "{}", "{}")
    module, declined = run(f"""{MESH}
nn.parameter @m.a : {w}
nn.parameter @m.b : {w}
func.func @m(%x : {x}) -> {z} {{
  %a = nn.read @m.a : {w}
  %1 = nn.linear %x, %a : {x}, {w} -> {y}
  %b = nn.read @m.b : {w}
  %2 = nn.linear %x, %b : {x}, {w} -> {y}
  %3 = nn.add %1, %2 : {y}, {y} -> {y}
  %4 = sharding.reshard %3 : {y} -> {z}
  func.return %4 : {z}
}}
""")
    assert declined == []
    assert violations(module) == []
