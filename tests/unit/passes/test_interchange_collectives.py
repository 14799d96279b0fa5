"""A product and the exchange beside it change places by cost, under nine conditions."""

from __future__ import annotations

import re

import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.analysis.communication import communicated_bytes
from starc.analysis.orthogonality import violations
from starc.analysis.product_exchanges import ExchangeCost, ProductForm, ProductGroup
from starc.checking.harness import check_module, run_module
from starc.core.sharding.mesh import Axis, AxisRef, Mesh
from starc.diagnostics import InputError
from starc.interpreter.seeded_data import seeded_data
from starc.passes.base import RemarkSink
from starc.passes.layer_costs import LaunchEstimate, different_seconds, passes_to_launches
from starc.passes.sharding.interchange_collectives import (
    InterchangeCollectivesPass,
)
from starc.passes.verification import verify
from starc.targets.loader import load_target
from tests.unit.test_pass_examples import parse

MESH = 'sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=2 : inner usr]\n'
NODE = Mesh("node", (Axis("gpu", 8, "outer", "xgmi"), Axis("xcd", 8, "inner", "usr")))
SCATTER, GATHER = ProductForm
OUTER, INNER, BOTH = '{"gpu"}', '{"xcd"}', '{"gpu", "xcd"}'


def tensor(shape: str, *dims: str, partial: str = "", element: str = "bf16") -> str:
    suffix = f", partial = sum{partial}" if partial else ""
    return f"tensor<{shape}x{element}, #sharding.of<@node, [{', '.join(dims)}]{suffix}>>"


def scatter_form(
    target: str,
    *,
    between: str = "",
    scattered: str = "%y",
    more: str = "",
    partial: str = "bf16",
) -> str:
    """A product of few rows of K and many columns, whose partial sum is scattered to ``target``."""
    x, w = tensor("2x64x64", "{}", "{}", INNER), tensor("64x4096", INNER, OUTER)
    y = tensor("2x64x4096", "{}", "{}", OUTER, partial=INNER, element=partial)
    return f"""{MESH}
nn.parameter @m.w : {w}
func.func @m(%x : {x}) -> {target} {{
  %w = nn.read @m.w : {w}
  %y = nn.linear %x, %w : {x}, {w} -> {y}
  {between}
  %z = sharding.reshard {scattered} : {y} -> {target}
  {more}
  func.return %z : {target}
}}
"""


Y = tensor("2x64x4096", "{}", "{}", OUTER, partial=INNER)
COLUMNS = tensor("2x64x4096", "{}", "{}", BOTH)


def gather_form(source: str, gathered: str = "%g") -> str:
    """A product of many rows of K and few columns, whose input is gathered from ``source``."""
    g, w = tensor("2x64x4096", "{}", "{}", OUTER), tensor("4096x64", OUTER, INNER)
    y = tensor("2x64x64", "{}", "{}", INNER, partial=OUTER)
    gather = f"%g = sharding.reshard %x : {source} -> {g}" if gathered == "%g" else ""
    return f"""{MESH}
nn.parameter @m.w : {w}
func.func @m(%x : {source}) -> {tensor("2x64x64", "{}", "{}", INNER)} {{
  {gather}
  %w = nn.read @m.w : {w}
  %y = nn.linear {gathered}, %w : {g}, {w} -> {y}
  %z = sharding.reshard %y : {y} -> {tensor("2x64x64", "{}", "{}", INNER)}
  func.return %z : {tensor("2x64x64", "{}", "{}", INNER)}
}}
"""


def run(
    text: str, *, form: str = "auto", exact: bool = False, buffer_bytes: int | None = None
) -> tuple[str, str]:
    """Runs the pass. Returns the remark and the module as text, which computes what it did."""
    module = parse(text)
    before = module.clone()
    sink = RemarkSink()
    instance = InterchangeCollectivesPass(form=form, exact=exact, buffer_bytes=buffer_bytes)
    instance.run(module, load_target("mi300x-cpx", 2), sink)
    verify(module, locations=False)
    require_same(before, module)
    remarks = [remark for _, remark in sink.remarks if remark.id == "interchange"]
    changed = not module.is_structurally_equivalent(before)
    assert changed == any(not remark.declined for remark in remarks)
    if changed:
        split_twice = [violation.op for violation in violations(module)]
        explained = [remark for _, remark in sink.remarks if remark.id == "not-orthogonal"]
        assert len(split_twice) == len(explained)
    return "\n".join(remark.message for remark in remarks), str(module)


def require_same(before: ModuleOp, after: ModuleOp) -> None:
    data = seeded_data(before)
    check = check_module("after", after, data, run_module(before, data))
    assert check.ok, (check.error, check.message)


def test_a_scatter_becomes_a_gather() -> None:
    message, module = run(scatter_form(COLUMNS))
    assert "changed to all-gather in front" in message
    assert tensor("64x4096", "{}", BOTH) in module


def test_a_scatter_behind_linear_operations_becomes_a_gather() -> None:
    between = f"""%r = nn.rope %y {{theta = 1.0e+04 : f64, head_dim = 64 : i64, start = 3 : i64}}
      : {Y} -> {Y}"""
    text = scatter_form(COLUMNS, between=between, scattered="%r")
    message, _ = run(text)
    # The rotation can be done behind the sums, and would be a launch of its own behind a gather.
    assert "kept as reduce-scatter behind" in message
    message, module = run(text, form="gather")
    assert "changed to all-gather in front" in message
    assert f"-> {COLUMNS}" in module
    assert "partial" not in module


def test_a_gather_becomes_a_scatter() -> None:
    message, module = run(gather_form(tensor("2x64x4096", "{}", "{}", BOTH)))
    assert "changed to reduce-scatter behind" in message
    assert tensor("4096x64", BOTH, "{}") in module
    assert module.count("sharding.reshard") == 2  # of the result: nobody needs the gather now


def test_both_costs_stand_in_the_remark() -> None:
    message, _ = run(scatter_form(COLUMNS))
    assert "reduce-scatter behind" in message
    assert message.count("bytes sent") == 2


def test_forms_may_be_given() -> None:
    message, module = run(scatter_form(COLUMNS), form="scatter")
    assert "kept as reduce-scatter behind" in message
    assert tensor("64x4096", INNER, OUTER) in module
    message, _ = run(scatter_form(COLUMNS), form="gather")
    assert "changed to all-gather in front" in message
    with pytest.raises(InputError, match="option 'form' has no value 'gathers', one of"):
        run(scatter_form(COLUMNS), form="gathers")


def test_a_layer_whose_launches_are_not_known_keeps_its_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(*_: object) -> None:
        return None

    monkeypatch.setattr("starc.passes.sharding.interchange_collectives.launch_estimates", unknown)
    message, _ = run(scatter_form(COLUMNS))
    assert "kept as reduce-scatter behind" in message
    assert message.endswith("; the launches of the layer are not known")


def test_launches_that_differ() -> None:
    shared, one, two = (LaunchEstimate(name, 1e-6) for name in ("f.norm", "f.q", "f.k"))
    longer = LaunchEstimate("f.q", 3e-6)
    assert different_seconds((shared, one), (shared, longer, two)) == (1e-6, 4e-6)
    assert different_seconds((shared, one, one), (one, shared)) == (1e-6, 0)


def test_passes_up_to_launches() -> None:
    names = [spec.name for spec in passes_to_launches("interchange-collectives")]
    assert names[0] == "compose-reshards"
    assert names[-1] == "pipeline-collectives"
    apart = [spec.name for spec in passes_to_launches("interchange-collectives", fused=False)]
    assert [name for name in names if name not in apart] == ["fuse-compute-collectives"]
    uneven = passes_to_launches("interchange-collectives", uneven=True)
    assert [spec.name for spec in uneven if "uneven" in spec.options] == [
        "hierarchical-collectives"
    ]


ILLEGAL = {
    "1, another order": (gather_form(tensor("2x64x4096", "{}", "{}", '{"xcd", "gpu"}')), "1: "),
    "1, not gathered": (gather_form(tensor("2x64x4096", "{}", "{}", OUTER), "%x"), "1: "),
    "2, tokens": (scatter_form(tensor("2x64x4096", "{}", INNER, OUTER)), "2: .*tokens"),
    "2, no scatter": (scatter_form(tensor("2x64x4096", "{}", "{}", OUTER)), "2: .*does not cut"),
    "3, order of columns": (scatter_form(tensor("2x64x4096", "{}", "{}", '{"xcd", "gpu"}')), "3: "),
    "6, used twice": (
        scatter_form(COLUMNS, more=f"%u = sharding.reshard %y : {Y} -> {COLUMNS}"),
        "6: .*2 uses",
    ),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_what_is_not_legal_is_declined(name: str) -> None:
    text, reason = ILLEGAL[name]
    message, _ = run(text)
    assert "kept as" in message
    assert re.search(f"not legal by condition ({reason})", message), message


def test_condition_4_operations_between() -> None:
    """Another product's partial sum is added: the operation does not pass on this one alone."""
    x, w = tensor("2x64x64", "{}", "{}", INNER), tensor("64x4096", INNER, OUTER)
    message, _ = run(f"""{MESH}
nn.parameter @m.a : {w}
nn.parameter @m.b : {w}
func.func @m(%x : {x}) -> {COLUMNS} {{
  %a = nn.read @m.a : {w}
  %y = nn.linear %x, %a : {x}, {w} -> {Y}
  %b = nn.read @m.b : {w}
  %u = nn.linear %x, %b : {x}, {w} -> {Y}
  %s = nn.add %y, %u : {Y}, {Y} -> {Y}
  %z = sharding.reshard %s : {Y} -> {COLUMNS}
  func.return %z : {COLUMNS}
}}
""")
    assert "condition 4: 'nn.add' stands between" in message


def test_condition_5_a_weight_of_two_products() -> None:
    x, w = tensor("2x64x64", "{}", "{}", INNER), tensor("64x4096", INNER, OUTER)
    layer = f"""(%x : {x}) -> {COLUMNS} {{
  %w = nn.read @m.w : {w}
  %y = nn.linear %x, %w : {x}, {w} -> {Y}
  %z = sharding.reshard %y : {Y} -> {COLUMNS}
  func.return %z : {COLUMNS}
}}
"""
    message, _ = run(f"{MESH}nn.parameter @m.w : {w}\nfunc.func @m{layer}func.func @n{layer}")
    assert message.count("condition 5: its weight is not a parameter of this product alone") == 2


def test_condition_7_a_partial_input() -> None:
    x = tensor("2x64x64", "{}", "{}", INNER, partial=OUTER)
    w = tensor("64x4096", INNER, "{}")
    y = tensor("2x64x4096", "{}", "{}", "{}", partial=BOTH)
    z = tensor("2x64x4096", "{}", "{}", INNER, partial=OUTER)
    end = tensor("2x64x4096", "{}", "{}", INNER)
    given = tensor("2x64x64", "{}", "{}", BOTH)
    square = tensor("64x64", OUTER, INNER)
    message, _ = run(f"""{MESH}
nn.parameter @m.v : {square}
nn.parameter @m.w : {w}
func.func @m(%p : {given}) -> {end} {{
  %g = sharding.reshard %p : {given} -> {tensor("2x64x64", "{}", "{}", OUTER)}
  %v = nn.read @m.v : {square}
  %x = nn.linear %g, %v : {tensor("2x64x64", "{}", "{}", OUTER)}, {square} -> {x}
  %w = nn.read @m.w : {w}
  %y = nn.linear %x, %w : {x}, {w} -> {y}
  %z = sharding.reshard %y : {y} -> {z}
  %e = sharding.reshard %z : {z} -> {end}
  func.return %e : {end}
}}
""")
    assert 'condition 7: its input is partial sum{"gpu"}' in message


def test_condition_8_the_order_of_sums() -> None:
    message, _ = run(scatter_form(COLUMNS), exact=True)
    assert "condition 8: the sums would be added in another order" in message


def test_condition_9_memory() -> None:
    message, _ = run(scatter_form(COLUMNS), buffer_bytes=1000)
    assert "condition 9: 16384 bytes do not fit the 1000 bytes" in message


def test_condition_9_what_may_be_used_of_the_memory() -> None:
    module, sink = parse(scatter_form(COLUMNS)), RemarkSink()
    tight = InterchangeCollectivesPass(memory_utilization=1e-6)
    tight.run(module, load_target("mi300x-cpx", 2), sink)
    assert ["condition 9" in remark.message for _, remark in sink.remarks] == [True]


def fc1(tokens: int, partial_width: int, *, fused: bool = True) -> dict[ProductForm, ExchangeCost]:
    """The costs of gate and up of 405B on 8 x 8 devices."""
    group = ProductGroup((1, tokens), 16384, (53248 // 8,) * 2, "bf16", 2, partial_width)
    target, inner = load_target("mi300x-cpx"), (AxisRef("xcd"),)
    return {form: group.cost(form, NODE, inner, target, fused=fused) for form in ProductForm}


@pytest.mark.parametrize("tokens", [1, 8, 4096])
def test_fc1_of_405b_sends_fewest_bytes_by_the_type_of_partial_sums(tokens: int) -> None:
    """26624 bytes a token of bf16 partial sums against 32768 of activations; 53248 of f32."""
    narrow, wide = fc1(tokens, 2), fc1(tokens, 4)
    assert narrow[SCATTER].sent_bytes == 26624 * tokens * 7 // 8
    assert narrow[GATHER].sent_bytes == wide[GATHER].sent_bytes == 32768 * tokens * 7 // 8
    assert wide[SCATTER].sent_bytes == 53248 * tokens * 7 // 8


def test_fc1_of_405b_changes_with_the_type_of_partial_sums() -> None:
    """A chunk of 4096 tokens: reduce-scatter with bf16 partial sums, all-gather with f32."""
    margin = InterchangeCollectivesPass().margin
    narrow, wide = fc1(4096, 2), fc1(4096, 4)
    assert narrow[GATHER].seconds > (1 - margin) * narrow[SCATTER].seconds
    assert wide[GATHER].seconds < (1 - margin) * wide[SCATTER].seconds


def test_a_kernel_that_exchanges_itself_counts_only_where_it_is_faster() -> None:
    for tokens in (8, 2048):
        fused, separate = fc1(tokens, 2), fc1(tokens, 2, fused=False)
        for form in ProductForm:
            assert separate[form].fused_s is None
            assert fused[form].seconds <= separate[form].seconds
            assert separate[form].seconds == separate[form].products_s + separate[form].exchange_s


@pytest.mark.parametrize(
    ("element", "expected"),
    [("bf16", "kept as reduce-scatter behind"), ("f32", "changed to all-gather in front")],
)
def test_gate_and_up_of_405b_with_partial_sums_of_two_types(element: str, expected: str) -> None:
    x, w = tensor("1x4096x16384", "{}", "{}", INNER), tensor("16384x53248", INNER, OUTER)
    y = tensor("1x4096x53248", "{}", "{}", OUTER, partial=INNER, element=element)
    z = tensor("1x4096x53248", "{}", "{}", BOTH, element=element)
    module, sink = (
        parse(f"""sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
nn.parameter @m.gate : {w}
nn.parameter @m.up : {w}
func.func @m(%x : {x}) -> ({z}, {z}) {{
  %g = nn.read @m.gate : {w}
  %1 = nn.linear %x, %g : {x}, {w} -> {y}
  %2 = sharding.reshard %1 : {y} -> {z}
  %u = nn.read @m.up : {w}
  %3 = nn.linear %x, %u : {x}, {w} -> {y}
  %4 = sharding.reshard %3 : {y} -> {z}
  func.return %2, %4 : {z}, {z}
}}
"""),
        RemarkSink(),
    )
    before = communicated_bytes(module)
    InterchangeCollectivesPass().run(module, load_target("mi300x-cpx"), sink)
    verify(module, locations=False)
    message = sink.remarks[0][1].message
    assert f"@m.gate, @m.up over {INNER}: {expected}" in message
    width = 2 if element == "bf16" else 4
    assert before == {"usr": 13312 * width * 4096 * 7 // 8}
    after = 13312 * 2 if element == "bf16" else 16384 * 2
    assert communicated_bytes(module) == {"usr": after * 4096 * 7 // 8}


def test_what_is_left_of_a_partial_sum_counts() -> None:
    """A few rows: behind a gather the product's kernel reduces over the outer level, too."""
    group = ProductGroup((8, 1), 2880 // 8, (2880,), "bf16", 2, 2)
    target, inner, outer = load_target("mi300x-cpx"), (AxisRef("xcd"),), (AxisRef("gpu"),)
    alone = {form: group.cost(form, NODE, inner, target) for form in ProductForm}
    left = {form: group.cost(form, NODE, inner, target, outer=outer) for form in ProductForm}
    assert left[SCATTER].whole_s is None
    assert left[SCATTER].seconds == alone[SCATTER].seconds + left[SCATTER].outer_s
    whole_s = left[GATHER].whole_s
    assert whole_s is not None
    assert left[GATHER].seconds == whole_s < left[SCATTER].seconds
    apart = group.cost(GATHER, NODE, inner, target, fused=False, outer=outer)
    assert apart.whole_s is None
    assert apart.seconds > left[GATHER].seconds
