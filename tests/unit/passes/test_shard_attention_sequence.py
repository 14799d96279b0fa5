"""``shard-attention-sequence``: what it leaves alone, and says so."""

from __future__ import annotations

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from starc.dialects import nn
from starc.dialects.sharding import Sharding
from starc.passes.base import Remark, RemarkSink
from starc.passes.sharding.shard_attention_sequence import ShardAttentionSequencePass
from starc.targets.loader import load_target

CACHE = "tensor<4x2x16x4xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>"
NEW = "tensor<4x1x8xbf16, #sharding.of<@node, [{}, {}, {}]>>"
WHOLE = "tensor<4x1x16xbf16, #sharding.of<@node, [{}, {}, {}]>>"
ATTENTION = "{head_dim = 4 : i64, start = 15 : i64, scale = 0.5 : f64, causal}"


def module_of(body: str, arguments: str, queries: str = WHOLE) -> ModuleOp:
    """A layer on 2 x 2 devices that all keep the whole cache."""
    text = f"""
    sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=2 : inner usr]
    nn.state @layer.k : {CACHE}
    nn.state @layer.v : {CACHE}
    func.func @layer({arguments}) -> {queries} {{
      {body}
    }}
    """
    context = Context()
    for dialect in (Builtin, Func, nn.Nn, Sharding):
        context.load_dialect(dialect)
    module = Parser(context, text).parse_module()
    module.verify()
    return module


def run(module: ModuleOp, **options: str | int) -> list[Remark]:
    """The remarks of the pass."""
    sink = RemarkSink()
    ShardAttentionSequencePass(**options).run(module, load_target("mi300x-cpx"), sink)  # pyright: ignore[reportArgumentType]
    module.verify()
    return [remark for _, remark in sink.remarks]


def appended(name: str) -> str:
    return f"%{name} = nn.append @layer.{name}, %n {{start = 15 : i64}} : {NEW} -> {CACHE}"


def attention(queries: str, keys: str = "%k", values: str = "%v") -> str:
    types = f"{queries}, {CACHE}, {CACHE} -> {queries}"
    return f"%a = nn.attention %q, {keys}, {values} {ATTENTION} : {types}"


def layer(queries: str = WHOLE, more: str = "") -> ModuleOp:
    steps = (appended("k"), appended("v"), attention(queries), more)
    body = "\n".join((*steps, f"func.return %a : {queries}"))
    return module_of(body, f"%q : {queries}, %n : {NEW}", queries)


def test_all_devices_share_the_positions_of_whole_heads() -> None:
    module = layer()
    (remark,) = run(module, mode="queries")
    assert not remark.declined
    assert (remark.numbers["replication_before"], remark.numbers["replication_after"]) == (4, 1)
    whole = 2 * 4 * 2 * 16 * 4 * 2
    assert (remark.numbers["kv_bytes_before"], remark.numbers["kv_bytes"]) == (whole, whole // 4)
    # Nobody has heads of its own, so all merge all of them.
    assert 'partial = lse{"gpu", "xcd"}' in str(module)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (
            module_of(
                f"{attention(WHOLE, '%c', '%c')}\nfunc.return %a : {WHOLE}",
                f"%q : {WHOLE}, %c : {CACHE}",
            ),
            "this attention: positions are not split: its keys are not what the layer appends to a "
            "cache",
        ),
        (
            layer(more=attention(WHOLE).replace("%a =", "%b =")),
            "@layer.k and @layer.v: positions are not split: @layer.k has other users",
        ),
        (
            layer('tensor<4x1x16xbf16, #sharding.of<@node, [{}, {"xcd"}, {}]>>'),
            "@layer.k and @layer.v: positions are not split: its queries are split over the "
            "devices that keep the same keys",
        ),
    ],
    ids=["no cache", "two users", "queries split"],
)
def test_what_cannot_be_split_is_left_and_said(module: ModuleOp, reason: str) -> None:
    before = str(module)
    remarks = run(module, mode="queries")
    assert remarks[0].declined
    assert remarks[0].message == reason
    assert str(module) == before


def test_a_module_is_the_same_whenever_it_is_made() -> None:
    texts: set[str] = set()
    for _ in range(2):
        module = layer()
        run(module, mode="queries")
        texts.add(str(module))
    assert len(texts) == 1
