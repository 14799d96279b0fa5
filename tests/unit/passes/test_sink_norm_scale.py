"""When the scale of a norm may sink below the products that use it."""

from __future__ import annotations

import pytest

from starc.checking.harness import check_module, run_module
from starc.interpreter.seeded_data import seeded_data
from starc.passes.base import RemarkSink
from starc.passes.sharding.sink_norm_scale import SinkNormScalePass
from starc.passes.verification import verify
from starc.targets.loader import load_target
from tests.unit.test_pass_examples import parse

MESH = 'sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=2 : inner usr]\n'
INNER, OUTER = '{"xcd"}', '{"gpu"}'


def tensor(shape: str, *dims: str, partial: str = "", element: str = "bf16") -> str:
    suffix = f", partial = sum{partial}" if partial else ""
    return f"tensor<{shape}x{element}, #sharding.of<@node, [{', '.join(dims)}]{suffix}>>"


def norm_layer(
    uses: str,
    results: str,
    returned: str,
    *,
    element: str = "bf16",
    source: str | None = None,
    weight: str | None = None,
) -> str:
    """A norm of a row that is gathered for it, and the operations that use ``%h``."""
    split = source or tensor("2x3x64", "{}", "{}", INNER, element=element)
    whole = tensor("2x3x64", "{}", "{}", "{}", element=element)
    norm = tensor("64", "{}", element=element)
    w = weight or tensor("64x32", INNER, OUTER, element=element)
    return f"""{MESH}
nn.parameter @m.norm : {norm}
nn.parameter @m.w : {w}
func.func @m(%x : {split}) -> ({results}) {{
  %g = sharding.reshard %x : {split} -> {whole}
  %n = nn.read @m.norm : {norm}
  %h = nn.rms_norm %g, %n {{eps = 1.0e-05 : f64}} : {whole}, {norm} -> {whole}
  %w = nn.read @m.w : {w}
  {uses}
  func.return {returned}
}}
"""


def product(element: str = "bf16", result: str | None = None) -> tuple[str, str]:
    """A product that takes the normed row split, and the type of its result."""
    split = tensor("2x3x64", "{}", "{}", INNER, element=element)
    whole = tensor("2x3x64", "{}", "{}", "{}", element=element)
    w = tensor("64x32", INNER, OUTER, element=element)
    y = tensor("2x3x32", "{}", "{}", OUTER, partial=INNER, element=result or element)
    return (
        f"""%s = sharding.reshard %h : {whole} -> {split}
  %y = nn.linear %s, %w : {split}, {w} -> {y}""",
        y,
    )


def finished(element: str = "bf16") -> str:
    return tensor("2x3x32", "{}", "{}", OUTER, element=element)


def run(text: str) -> tuple[str, str]:
    """Runs the pass, checks that the layer computes what it did, and returns the messages of its
    remarks and the module."""
    module, sink = parse(text), RemarkSink()
    before = module.clone()
    SinkNormScalePass().run(module, load_target("mi300x-cpx", 2), sink)
    verify(module, locations=False)
    data = seeded_data(before)
    check = check_module("after", module, data, run_module(before, data))
    assert check.ok, (check.error, check.message)
    if all(remark.declined for _, remark in sink.remarks):
        assert module.is_structurally_equivalent(before)
    return "\n".join(remark.message for _, remark in sink.remarks), str(module)


def test_the_scale_sinks_below_a_product() -> None:
    text, y = product()
    use = f"{text}\n  %z = sharding.reshard %y : {y} -> {finished()}"
    message, module = run(norm_layer(use, finished(), f"%z : {finished()}"))
    assert "sinks below 1 of 1 uses" in message
    assert "rms_norm" not in module
    # The partial sum is scaled, and combined behind that.
    assert module.index("nn.linear") < module.index("nn.scale_rows")


def test_other_uses_are_scaled_where_they_are() -> None:
    text, y = product()
    whole = tensor("2x3x64", "{}", "{}", "{}")
    use = f"""{text}
  %z = sharding.reshard %y : {y} -> {finished()}
  %o = nn.silu %h : {whole} -> {whole}"""
    message, module = run(
        norm_layer(use, f"{finished()}, {whole}", f"%z, %o : {finished()}, {whole}")
    )
    assert "sinks below 1 of 2 uses" in message
    assert module.count("nn.scale_rows") == 2


def test_a_product_that_needs_the_whole_row_is_scaled_behind_it() -> None:
    text, y = product()
    whole, w = tensor("2x3x64", "{}", "{}", "{}"), tensor("64x32", INNER, OUTER)
    v, u = tensor("64x32", "{}", OUTER), tensor("2x3x32", "{}", "{}", OUTER)
    use = f"""{text}
  %z = sharding.reshard %y : {y} -> {finished()}
  %v = sharding.reshard %w : {w} -> {v}
  %u = nn.linear %h, %v : {whole}, {v} -> {u}"""
    message, module = run(norm_layer(use, f"{finished()}, {u}", f"%z, %u : {finished()}, {u}"))
    assert "sinks below 2 of 2 uses" in message
    assert module.count("nn.scale_rows") == 2


def test_no_product_on_the_split_row() -> None:
    whole = tensor("2x3x64", "{}", "{}", "{}")
    message, _ = run(norm_layer(f"%o = nn.silu %h : {whole} -> {whole}", whole, f"%o : {whole}"))
    assert "no product takes its result split" in message


@pytest.mark.parametrize("element", ["f16"])
def test_types_of_few_exponents(element: str) -> None:
    text, y = product(element)
    use = f"{text}\n  %z = sharding.reshard %y : {y} -> {finished(element)}"
    message, _ = run(
        norm_layer(use, finished(element), f"%z : {finished(element)}", element=element)
    )
    assert "an unscaled row of f16 could overflow" in message


def test_a_narrow_result() -> None:
    text, y = product("bf16", "f16")
    use = f"{text}\n  %z = sharding.reshard %y : {y} -> {finished('f16')}"
    message, _ = run(norm_layer(use, finished("f16"), f"%z : {finished('f16')}"))
    assert "an unscaled row of f16 could overflow" in message


def test_more_than_a_gather_is_left_alone() -> None:
    """A row that is also reduced for the norm, and one that is gathered along tokens."""
    text, y = product()
    use = f"{text}\n  %z = sharding.reshard %y : {y} -> {finished()}"
    tokens = tensor("2x3x64", INNER, "{}", "{}")
    message, module = run(norm_layer(use, finished(), f"%z : {finished()}", source=tokens))
    assert message == ""
    assert "nn.rms_norm" in module
